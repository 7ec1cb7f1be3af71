/* Boards: whose tokens have grown, from the engine thread to one reader. See engine.h for why none is lost and nothing overflows.
 *
 * A board has a place for each request of the table, and in it one word: how many tokens of the request are final, the newest of them, and
 * whether it has ended. At the end of a step the engine overwrites the words of those that have grown and says which, by one bit a place.
 * So what a step costs between two processors are the lines of the words, eight requests in each, once, and not a line or more for each
 * request. A reader that comes late finds the earlier tokens in the sequence's own array. */
#ifndef ENGINE_OUTPUT_H
#define ENGINE_OUTPUT_H

#include "engine/sequence.h"

struct engine_out {
    /* The same from when it is opened. */
    engine *e;
    wake *reader;
    int32_t n_marks;                         /* words of marks: a bit a place */
    _Atomic(sequence *) *sequences;          /* [max_requests] whose place it is, NULL: none of this board's. Set by who submits, cleared by the reader */
    atomic_uint_fast64_t *words;             /* [max_requests] see above */
    atomic_uint_fast64_t *marks;             /* [n_marks] places to look at: set by the engine, taken by the reader */
    engine_out *next;                        /* the engine's list, under its readers_lock */

    _Alignas(MEM_ALIGN) bool has_fresh;      /* the engine's: some have grown in this step */
    uint64_t *fresh;                         /* [n_marks] the engine's: which */
    uint64_t *fresh_words;                   /* [max_requests] the engine's: words to be shown */

    _Alignas(MEM_ALIGN) sequence *current;   /* the reader's: whose tokens are being given out, or NULL */
    uint64_t left;                           /* its marks, taken but not looked at */
    int32_t at;                              /* of the marks' word that they are of */
};

/* s, which has its id, shows its tokens to s->out's reader from now on. Any thread, before the engine has s. */
void out_enter(sequence *s);
/* The tokens known by now and, unless reason is FINISH_NONE, the end are for s's reader to see: with the next out_wake_readers. Engine
 * thread. */
void out_publish(sequence *s, finish_reason reason);
/* Shows every reader what was published for it since the last call, and rings. Engine thread. */
void out_wake_readers(engine *e);

#endif
