/* The turn store keeps token ids of answers, so that a conversation that sends an answer
 * back continues with exactly the ids that were generated.
 *
 * A text has several tokenisations, and a model may generate another one than the
 * tokenizer's. Tokenised again, the conversation would miss the prefix cache from the
 * first difference on. A turn is found by an id that the client got with the answer: that
 * of its first call, or its own. It is found only for its tenant, and only if the new
 * conversation's text is the text before the turn, byte for byte, followed by the
 * generated text. So a request's token ids depend on the turns that it names, and on
 * nothing else that the server has seen. Several answers may share an id.
 *
 * A tenant holds at most half of the store; over a limit, the oldest turns are dropped.
 * Any thread; a lock is held while turns are compared and copied. */
#ifndef STREAM_TURN_STORE_H
#define STREAM_TURN_STORE_H

#include <stdint.h>

#include "base/str.h"
#include "text/token_list.h"

#define TURN_STORE_TURNS 4096 /* most turns in the store */
/* most turns of one tenant, and most that are looked up for one request */
#define TURN_STORE_OF_ONE (TURN_STORE_TURNS / 2)
/* Most places in a text at which turns of one id are looked for: a client may use one id
 * for all its answers, and the text before each place is hashed. */
#define TURN_STORE_PLACES 8

typedef struct turn_store turn_store;

/* Where a turn begins: after a conversation's text of n bytes with this hash. */
typedef struct turn_place {
    size_t n; /* 0: nowhere */
    uint64_t hash;
} turn_place;

/* The place at the end of a text. */
turn_place turn_place_after(str text);

/* Lookups of the turns that requests named. */
typedef struct turn_counts {
    int64_t n_reused, n_gone, n_differ; /* found; not in the store; in the store with a different text */
} turn_counts;

quire_err turn_store_open(size_t max_bytes, turn_store **out);
void turn_store_close(turn_store *s);
/* Keeps a copy of a turn under an id of CHAT_CALL_ID_BYTES. Does nothing if it is too
 * large for the store, or if out of memory. */
void turn_store_keep(turn_store *s, uint64_t tenant, const char *id, turn_place place, str text,
                     const int32_t *ids, size_t n_ids);
/* Finds the turn with this id in a conversation's text, at or after byte `from`: appends
 * its token ids to *ids and sets its text's range *at..*end. False if there is none. Out
 * of memory counts as a different text. Counts the result in *counts. */
bool turn_store_find(turn_store *s, uint64_t tenant, const char *id, str text, size_t from, token_list *ids,
                     size_t *at, size_t *end, turn_counts *counts);
turn_counts turn_store_count(turn_store *s);

#endif
