/* The report on a request (field "explain"): where its time went and what it reused.
 * Plain data.
 *
 * Times are in microseconds. Lists are bounded; counts and sums include items that did
 * not fit. */
#ifndef QUIRE_EXPLAIN_H
#define QUIRE_EXPLAIN_H

#include <stdint.h>

/* Why a request waited. */
typedef enum quire_wait {
    /* not considered yet: a step was running, or too many requests were ahead */
    QUIRE_WAIT_TURN,
    QUIRE_WAIT_PAGES,  /* too few free pages; also every wait after a preemption */
    QUIRE_WAIT_SLOT,   /* the limit of running sequences was reached */
    QUIRE_WAIT_BUDGET, /* the step's rows were used by other requests */
    QUIRE_WAIT_PREFIX, /* another request was computing pages that this one reuses */
    QUIRE_WAIT_TIER,   /* its pages were being fetched from host memory, file or Redis */
    QUIRE_N_WAITS
} quire_wait;

#define QUIRE_EXPLAIN_CHUNKS      64
#define QUIRE_EXPLAIN_PREEMPTIONS 8

/* Prompt tokens (after a preemption: all known tokens) computed in one step. */
typedef struct quire_explain_chunk {
    int64_t step; /* number of the step, counted by the engine */
    int32_t tokens;
} quire_explain_chunk;

typedef struct quire_explain_preemption {
    int32_t recomputed;    /* tokens that had to be computed again */
    int64_t swapped_bytes; /* bytes copied to host memory and back; 0: not swapped */
    int64_t us;            /* from the preemption until all lost tokens were computed again */
} quire_explain_preemption;

typedef struct quire_explain {
    int64_t wait_us[QUIRE_N_WAITS];
    int32_t n_waits[QUIRE_N_WAITS]; /* number of waits for this reason */

    int32_t matched; /* tokens found in the prefix cache when it was first admitted */
    int32_t copied;  /* part of matched in a part-filled page that was copied before the first write */
    int32_t tier;    /* tokens fetched from tiers */
    /* prompt tokens computed by its fork parent: another sample of the prompt, or the
     * stream that it was forked from */
    int32_t shared;

    int32_t n_chunks;
    quire_explain_chunk chunks[QUIRE_EXPLAIN_CHUNKS];
    int32_t n_decodes; /* steps that computed its newest token (and draft tokens) */

    int32_t n_preemptions;
    quire_explain_preemption preemptions[QUIRE_EXPLAIN_PREEMPTIONS];
    quire_explain_preemption preempted; /* sums over all preemptions */

    /* Constraint of the output (docs/structured.md). */
    /* how each schema keyword is enforced: a JSON array of objects with path, keyword,
     * status and how; NULL: no constraint */
    const char *rule;
    int64_t compile_us; /* compile time */
    int64_t mask_us;    /* time to compute masks, for all choices */
    int32_t n_forced;   /* tokens not sampled because only one was possible */
    int32_t n_guessed;  /* tokens that the constraint guessed and sampling confirmed */

    int64_t tokenise_us, queue_us, prefill_us, decode_us, detokenise_us;
} quire_explain;

#endif
