/* The output table passes new tokens from the engine thread to one reader. engine.h
 * explains why no token is lost and nothing overflows.
 *
 * It has one word for each request, at the request's output index: how many tokens are
 * final, the newest of them, and whether it has ended. At the end of a step the engine
 * overwrites the words of requests that have grown, and sets their bits in the dirty
 * bitmap. So each cache line, with the words of eight requests, moves between processors
 * at most once a step. A late reader finds earlier tokens in the sequence's own array. */
#ifndef ENGINE_OUTPUT_H
#define ENGINE_OUTPUT_H

#include "engine/sequence.h"

struct engine_out {
    /* Constant after the table is opened. */
    engine *e;
    wake *reader;
    /* number of words in the dirty bitmap, which has one bit for each output index */
    int32_t n_dirty;
    /* [max_requests] the sequence at each index, NULL if it is not of this table. Set by
     * the submitting thread, cleared by the reader */
    _Atomic(sequence *) *sequences;
    atomic_uint_fast64_t *words; /* [max_requests] the words described above */
    /* [n_dirty] the dirty bitmap: set by the engine, taken by the reader */
    atomic_uint_fast64_t *dirty;
    engine_out *next; /* the engine's list of tables, under its readers_lock */
    /* number of places that the reader waits for (0: none), and link in the engine's list
     * of waiting tables; under the engine's lock */
    int32_t n_awaited;
    engine_out *next_awaiting;

    /* the engine's: some requests of this table have grown in this step */
    _Alignas(MEM_ALIGN) bool has_fresh;
    uint64_t *fresh; /* [n_dirty] the engine's: bitmap of these requests */
    /* [max_requests] the engine's: these requests' words, to be stored in `words` */
    uint64_t *fresh_words;

    /* the reader's: the sequence whose tokens it is reading, or NULL */
    _Alignas(MEM_ALIGN) sequence *current;
    uint64_t left; /* dirty bits that were fetched and are not processed yet */
    int32_t at;    /* index in the dirty bitmap of the word that `left` came from */
    /* log-probabilities of the prompt whose end was popped last; valid until the next
     * pop */
    token_logprob *ended_logprobs;
};

/* Whether n sequences of table o may take entries now; if true, the caller must take
 * them. Saved entries count only with has_waited, and only if o is the first waiting
 * table. Under the engine's lock. */
bool out_take_places(engine_out *o, int32_t n, bool has_waited);

/* Enters s, whose id is set, into its reader's table s->out. Any thread, before s is
 * pushed to the engine. */
void out_enter(sequence *s);
/* Publishes the known tokens of s, and its end unless reason is FINISH_NONE. The reader
 * sees them after the next out_wake_readers. Engine thread. */
void out_publish(sequence *s, finish_reason reason);
/* Publishes how many of s's given tokens are processed, if its reader wants progress;
 * this step has computed n of them. A late reader sees only the newest number. Engine
 * thread. */
void out_progress(engine *e, sequence *s, int32_t n);
/* Stores the words published since the last call in the readers' tables, and wakes those
 * readers. Engine thread. */
void out_wake_readers(engine *e);

#endif
