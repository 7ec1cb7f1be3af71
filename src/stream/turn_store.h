/* The turn store keeps the token ids of answers, so that a conversation that sends an
 * answer back continues with exactly the ids that were generated.
 *
 * A text has several tokenisations, and a model need not generate the tokenizer's own:
 * tokenised again, a conversation would miss the prefix cache from the first difference
 * on. A turn is found by an id that the answer was given: that of its first call, or its
 * own. Only its tenant can find it, and only if the new conversation's text is byte for
 * byte the text that the turn was made after, followed by the generated text. So the
 * token ids of a request depend on the turns that it names, and on nothing else that the
 * server has seen. Several answers may share an id.
 *
 * A tenant holds at most half of the store; over a limit the oldest turns are dropped.
 * Any thread; a lock is held while turns are compared and copied. */
#ifndef STREAM_TURN_STORE_H
#define STREAM_TURN_STORE_H

#include <stdint.h>

#include "base/str.h"
#include "text/token_list.h"

#define TURN_STORE_TURNS 4096 /* most turns */
/* most turns of one tenant, and most that are looked up for a request */
#define TURN_STORE_OF_ONE (TURN_STORE_TURNS / 2)
/* most places at which the turns of one id are looked for: a client may give one id to
 * all its answers, and the text before each place must be hashed */
#define TURN_STORE_PLACES 8

typedef struct turn_store turn_store;

/* A turn's place: after a conversation's text of n bytes with this hash. */
typedef struct turn_place {
    size_t n; /* 0: no place */
    uint64_t hash;
} turn_place;

/* The place after a text. */
turn_place turn_place_after(str text);

/* What became of the turn ids that requests named. */
typedef struct turn_counts {
    int64_t n_reused, n_gone, n_differ; /* n_differ: the text was different */
} turn_counts;

quire_err turn_store_open(size_t max_bytes, turn_store **out);
void turn_store_close(turn_store *s);
/* Copies a turn and keeps it under an id of CHAT_CALL_ID_BYTES. It is not kept if it is
 * too large for the store or if memory is out. */
void turn_store_keep(turn_store *s, uint64_t tenant, const char *id, turn_place place, str text,
                     const int32_t *ids, size_t n_ids);
/* Looks for the turn of an id in a conversation's text: appends its ids to *ids, and sets
 * *at and *end to the range of its text; true. False: there is none at or after `from`.
 * Running out of memory counts as a different text. Also counts the result in *counts. */
bool turn_store_find(turn_store *s, uint64_t tenant, const char *id, str text, size_t from, token_list *ids,
                     size_t *at, size_t *end, turn_counts *counts);
turn_counts turn_store_count(turn_store *s);

#endif
