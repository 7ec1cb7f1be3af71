/* The output table carries new tokens from the engine thread to one reader. engine.h says why none is lost and nothing overflows.
 *
 * It has one word for each request, at the request's output index: how many tokens are final, the newest of them, and whether it has ended.
 * At the end of a step the engine overwrites the words of requests that have grown, and sets their bits in the dirty bitmap. So a step
 * moves each cache line of words, eight requests in one, between processors once. A late reader finds earlier tokens in the sequence's own
 * array. */
#ifndef ENGINE_OUTPUT_H
#define ENGINE_OUTPUT_H

#include "engine/sequence.h"

struct engine_out {
    /* The same from when it is opened. */
    engine *e;
    wake *reader;
    int32_t n_dirty;                         /* words of the dirty bitmap: a bit an output index */
    /* [max_requests] the owner of each index, NULL: none of this output table's. Set by who submits, cleared by the reader */
    _Atomic(sequence *) *sequences;
    atomic_uint_fast64_t *words;             /* [max_requests] see above */
    atomic_uint_fast64_t *dirty;             /* [n_dirty] indexes to look at: set by the engine, taken by the reader */
    engine_out *next;                        /* the engine's list, under its readers_lock */

    _Alignas(MEM_ALIGN) bool has_fresh;      /* the engine's: some have grown in this step */
    uint64_t *fresh;                         /* [n_dirty] the engine's: which */
    uint64_t *fresh_words;                   /* [max_requests] the engine's: words to be shown */

    _Alignas(MEM_ALIGN) sequence *current;   /* the reader's: whose tokens are being given out, or NULL */
    uint64_t left;                           /* dirty bits taken but not looked at */
    int32_t at;                              /* the word of the dirty bitmap that they are of */
};

/* s, which has its id, shows its tokens to s->out's reader from now on. Any thread, before the engine has s. */
void out_enter(sequence *s);
/* The tokens known by now and, unless reason is FINISH_NONE, the end are for s's reader to see: with the next out_wake_readers. Engine
 * thread. */
void out_publish(sequence *s, finish_reason reason);
/* Shows every reader what was published for it since the last call, and rings. Engine thread. */
void out_wake_readers(engine *e);

#endif
