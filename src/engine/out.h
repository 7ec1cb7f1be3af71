/* Boards: whose tokens have grown, from the engine thread to one reader. See engine.h for why none is lost and nothing overflows.
 *
 * A board has a place for each request of the table, and in it one word: how many tokens of the request are final, the newest of them, and whether it has
 * ended. The engine overwrites the word whenever it commits a token; which words are new it says once a step, by one bit a place. So what a step
 * costs between two processors are the lines of the words, eight requests in each, and not a line or more for each request. A reader that
 * comes late finds the earlier tokens in the sequence's own array. */
#ifndef ENGINE_OUT_H
#define ENGINE_OUT_H

#include "engine/sequence.h"

struct engine_out {
    /* The same from when it is opened. */
    engine *e;
    wake *reader;
    int32_t n_marks;                         /* words of marks: a bit a place */
    _Atomic(sequence *) *sequences;          /* [max_requests] whose place it is, NULL: none of this board's. Set by who submits, cleared by the reader */
    atomic_uint_fast64_t *words;             /* [max_requests] as out_publish writes them */
    atomic_uint_fast64_t *marks;             /* [n_marks] places to look at: set by the engine, taken by the reader */
    engine_out *next;                        /* the engine's list, under its readers_lock */

    _Alignas(MEM_ALIGN) bool is_rung_later;  /* the engine's: some place was written in this step */
    uint64_t *fresh;                         /* [n_marks] the engine's: which */

    _Alignas(MEM_ALIGN) sequence *current;   /* the reader's: whose tokens are being given out, or NULL */
    uint64_t left;                           /* its marks, taken but not looked at */
    int32_t at;                              /* of the marks' word that they are of */
};

/* s, which has its id, shows its tokens to s->out's reader from now on. Any thread, before the engine has s. */
void out_enter(sequence *s);
/* Shows s's reader the tokens known by now and, unless reason is FINISH_NONE, the end: with the next out_wake_readers, or before. Engine thread. */
void out_publish(sequence *s, finish_reason reason);
/* Rings for every reader that was given something since the last call. Engine thread. */
void out_wake_readers(engine *e);

#endif
