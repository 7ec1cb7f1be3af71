/* The prompt cache: the ids of conversations that were tokenised, so that the next turn
 * of one costs its new text only.
 *
 * An entry is a rendered text with its marks, its ids, and the seams (text/token_list.h)
 * at which its encoding can be taken up again. The longest beginning that a new text
 * shares with an entry of its own tenant gives the ids up to the last seam in it. They
 * are the
 * ids of the whole text, always: bytes and marks are compared, hashes only choose among
 * entries.
 *
 * Tenants do not see each other's entries, nor can one drive out another's: past the
 * limit the least recently used entry of the tenant that holds most goes.
 *
 * Threads: any. Texts are compared and copied without the lock, which guards lists of
 * entries only: a thread of low priority that loses its processor with it delays nobody
 * for long. Of two texts of one conversation that are kept at the same time both may
 * stay. */
#ifndef STREAM_PROMPT_CACHE_H
#define STREAM_PROMPT_CACHE_H

#include <stdint.h>

#include "base/str.h"
#include "text/added.h"
#include "text/token_list.h"

/* of a text that is worth an entry; texts are compared by blocks of as many */
#define PROMPT_CACHE_LEAST_BYTES 1024
#define PROMPT_CACHE_ENTRIES     512 /* at most */

typedef struct prompt_cache prompt_cache;

/* The known beginning of a text. Zero-initialised: nothing is known. */
typedef struct prompt_start {
    size_t at;          /* the seam: the text before it is encoded */
    token_list ids;     /* these ids, */
    encode_seams seams; /* and its seams up to there, `at` included */
} prompt_start;

void prompt_start_deinit(prompt_start *s);

quire_err prompt_cache_open(size_t max_bytes, prompt_cache **out);
void prompt_cache_close(prompt_cache *c);
/* Fills *out, which the caller zeroes before and deinits. It is empty where nothing is
 * known. QUIRE_NO_MEMORY. */
quire_err prompt_cache_find(prompt_cache *c, uint64_t tenant, str text, const text_marks *marks,
                            prompt_start *out);
/* Keeps a copy of a text's ids and seams, replacing an entry whose text it continues.
 * Does nothing for a text that is too short or too long, or without a seam, and if
 * memory is out. */
void prompt_cache_keep(prompt_cache *c, uint64_t tenant, str text, const text_marks *marks,
                       const int32_t *ids, size_t n_ids, const encode_seams *seams);
/* Bytes that the entries take. */
size_t prompt_cache_bytes(prompt_cache *c);

#endif
