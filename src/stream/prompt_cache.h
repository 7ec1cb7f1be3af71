/* The prompt cache keeps token ids of conversations, so that a conversation's next turn
 * only tokenises its new text.
 *
 * An entry is a rendered text with its marks, its ids, and the seams (text/token_list.h)
 * at which encoding can resume. A new text takes the ids of the longest prefix that it
 * shares with an entry of its tenant, up to the last seam in that prefix. The result
 * always equals the ids of the whole text: bytes and marks are compared; hashes only
 * preselect entries.
 *
 * Tenants neither see nor evict each other's entries: over the limit, the least recently
 * used entry of the tenant that holds most is dropped.
 *
 * Any thread. The lock guards only the lists of entries; texts are compared and copied
 * without it, so a low-priority thread that is descheduled with the lock delays others
 * only briefly. If two texts of one conversation are kept at the same time, both may
 * stay. */
#ifndef STREAM_PROMPT_CACHE_H
#define STREAM_PROMPT_CACHE_H

#include <stdint.h>

#include "base/str.h"
#include "text/added.h"
#include "text/token_list.h"

/* Length of the shortest text that gets an entry; texts are compared in blocks of this
 * many bytes. */
#define PROMPT_CACHE_LEAST_BYTES 1024
#define PROMPT_CACHE_ENTRIES     512 /* most entries */

typedef struct prompt_cache prompt_cache;

/* A text's prefix with known ids. Zeroed: nothing is known. */
typedef struct prompt_start {
    size_t at;          /* the last seam: the text before it has known ids */
    token_list ids;     /* the ids of that text */
    encode_seams seams; /* the seams in that text, up to and including `at` */
} prompt_start;

void prompt_start_deinit(prompt_start *s);

quire_err prompt_cache_open(size_t max_bytes, prompt_cache **out);
void prompt_cache_close(prompt_cache *c);
/* Finds the known prefix of a text; empty if nothing is known. The caller zeroes *out
 * before and deinits it afterwards. QUIRE_NO_MEMORY. */
quire_err prompt_cache_find(prompt_cache *c, uint64_t tenant, str text, const text_marks *marks,
                            prompt_start *out);
/* Keeps a copy of a text with its ids and seams; replaces an entry whose text it
 * continues. Does nothing if the text is too short, too long or has no seam, or if out of
 * memory. */
void prompt_cache_keep(prompt_cache *c, uint64_t tenant, str text, const text_marks *marks,
                       const int32_t *ids, size_t n_ids, const encode_seams *seams);
/* Total size of the entries in bytes. */
size_t prompt_cache_bytes(prompt_cache *c);

#endif
