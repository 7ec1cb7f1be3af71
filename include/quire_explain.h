/* Why a request took the time that it took, and what was reused: what the field "explain" asks for. Plain data.
 *
 * Times are microseconds. Lists are bounded; what does not fit is still in their counts and sums. */
#ifndef QUIRE_EXPLAIN_H
#define QUIRE_EXPLAIN_H

#include <stdint.h>

/* What a request that did not run waited for. */
typedef enum quire_wait {
    QUIRE_WAIT_TURN,   /* not looked at yet: a step was running, or more stood before it than a step looks at */
    QUIRE_WAIT_PAGES,  /* no pages: they were held by others; after a preemption always */
    QUIRE_WAIT_SLOT,   /* as many sequences ran as may run at once */
    QUIRE_WAIT_BUDGET, /* the rows of the steps went to others */
    QUIRE_WAIT_PREFIX, /* its next pages were being computed by another request, which it reuses */
    QUIRE_WAIT_TIER,   /* its pages were on their way from host memory, file or Redis */
    QUIRE_N_WAITS
} quire_wait;

#define QUIRE_EXPLAIN_CHUNKS      64
#define QUIRE_EXPLAIN_PREEMPTIONS 8

/* Tokens of the prompt (or, after a preemption, of all that was known) that one step computed. */
typedef struct quire_explain_chunk {
    int64_t step;   /* the engine's number of it */
    int32_t tokens;
} quire_explain_chunk;

typedef struct quire_explain_preemption {
    int32_t recomputed;    /* tokens that had to be computed again */
    int64_t swapped_bytes; /* copied to host memory and back; 0: it was not swapped */
    int64_t us;            /* from the preemption until it had again what it had */
} quire_explain_preemption;

typedef struct quire_explain {
    int64_t wait_us[QUIRE_N_WAITS];
    int32_t n_waits[QUIRE_N_WAITS]; /* times that it began to wait for this */

    int32_t matched; /* tokens found in the prefix cache when it was first admitted */
    int32_t copied;  /* of these, tokens in a part-filled page, which was copied to be written */
    int32_t tier;    /* tokens that came back from the tiers for it */
    int32_t shared;  /* tokens of a prompt that another sample, or the stream it was forked from, had computed */

    int32_t n_chunks;
    quire_explain_chunk chunks[QUIRE_EXPLAIN_CHUNKS];
    int32_t n_decodes; /* steps that computed one token of it (or, with drafts, a few) */

    int32_t n_preemptions;
    quire_explain_preemption preemptions[QUIRE_EXPLAIN_PREEMPTIONS];
    quire_explain_preemption preempted; /* the sums of all */

    int64_t tokenise_us, queue_us, prefill_us, decode_us, detokenise_us;
} quire_explain;

#endif
