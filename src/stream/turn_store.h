/* The turn store: the ids of answers, so that a conversation that sends an answer back
 * continues the very ids that were generated.
 *
 * A text can be tokenised in several ways, and what a model generates need not be the way
 * of the tokenizer: tokenised anew, a conversation would leave the prefix cache at the
 * first difference. A turn is found by an id that the answer was given: that of its first
 * call, or its own. It is found by its tenant alone, and counts only where the new
 * conversation's text is byte for byte the text that the turn was made after, followed by
 * the text that was generated. So the ids of a request depend on the ids that it names,
 * and on nothing else that the server has seen. Several answers may have one id.
 *
 * A tenant holds at most half of it; past a limit the oldest turns go. Any thread; a lock
 * is held while turns are compared and copied. */
#ifndef STREAM_TURN_STORE_H
#define STREAM_TURN_STORE_H

#include <stdint.h>

#include "base/str.h"
#include "text/token_list.h"

#define TURN_STORE_TURNS  4096                   /* at most */
#define TURN_STORE_OF_ONE (TURN_STORE_TURNS / 2) /* most of one tenant, and looked up for a request */
/* places at which the turns of one id are looked for: a client may give one id to all its
 * answers, and the text before each place is hashed */
#define TURN_STORE_PLACES 8

typedef struct turn_store turn_store;

/* Where a turn stands: after a conversation's text of n bytes with this hash. */
typedef struct turn_place {
    size_t n; /* 0: nowhere */
    uint64_t hash;
} turn_place;

/* The place after a text. */
turn_place turn_place_after(str text);

/* What became of the ids by which requests named turns. */
typedef struct turn_counts {
    int64_t n_reused, n_gone, n_differ; /* differ: the text is another one */
} turn_counts;

quire_err turn_store_open(size_t max_bytes, turn_store **out);
void turn_store_close(turn_store *s);
/* Keeps a turn under an id of CHAT_CALL_ID_BYTES. Copies. One that is too
 * large for the store is not kept; nor is any where memory is out. */
void turn_store_keep(turn_store *s, uint64_t tenant, const char *id, turn_place place, str text,
                     const int32_t *ids, size_t n_ids);
/* Looks for the turn of an id in a conversation's text: appends its ids to *ids, and sets
 * *at and *end to where its text stands; true. False: there is none at or after `from`.
 * NO_MEMORY counts as another text. Counts the result in *counts too. */
bool turn_store_find(turn_store *s, uint64_t tenant, const char *id, str text, size_t from, token_list *ids,
                     size_t *at, size_t *end, turn_counts *counts);
turn_counts turn_store_count(turn_store *s);

#endif
