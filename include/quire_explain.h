/* The report on a request: why it took the time that it took, and what it reused. The
 * field "explain" requests it. Plain data.
 *
 * Times are microseconds. Lists are bounded; counts and sums include what does not
 * fit. */
#ifndef QUIRE_EXPLAIN_H
#define QUIRE_EXPLAIN_H

#include <stdint.h>

/* Why a request waited. */
typedef enum quire_wait {
    /* not considered yet: a step was running, or more were before it than a step
     * considers */
    QUIRE_WAIT_TURN,
    QUIRE_WAIT_PAGES,  /* no pages: others held them; after a preemption always */
    QUIRE_WAIT_SLOT,   /* the limit of running sequences was reached */
    QUIRE_WAIT_BUDGET, /* the rows of the steps went to others */
    QUIRE_WAIT_PREFIX, /* another request was computing its next pages, which it reuses */
    QUIRE_WAIT_TIER,   /* its pages were being fetched from host memory, file or Redis */
    QUIRE_N_WAITS
} quire_wait;

#define QUIRE_EXPLAIN_CHUNKS      64
#define QUIRE_EXPLAIN_PREEMPTIONS 8

/* Tokens of the prompt (or, after a preemption, of all known tokens) that one step
 * computed. */
typedef struct quire_explain_chunk {
    int64_t step; /* the engine's number of the step */
    int32_t tokens;
} quire_explain_chunk;

typedef struct quire_explain_preemption {
    int32_t recomputed;    /* tokens that had to be computed again */
    int64_t swapped_bytes; /* copied to host memory and back; 0: it was not swapped */
    int64_t us;            /* from the preemption until as much was computed again */
} quire_explain_preemption;

typedef struct quire_explain {
    int64_t wait_us[QUIRE_N_WAITS];
    int32_t n_waits[QUIRE_N_WAITS]; /* how often it began to wait for this */

    int32_t matched; /* tokens found in the prefix cache when it was first admitted */
    int32_t copied;  /* of these, tokens in a part-filled page, which was copied before the first write */
    int32_t tier;    /* tokens that tiers gave back for it */
    /* prompt tokens that its fork parent had computed: another sample, or the stream it
     * was forked from */
    int32_t shared;

    int32_t n_chunks;
    quire_explain_chunk chunks[QUIRE_EXPLAIN_CHUNKS];
    int32_t n_decodes; /* steps that computed one token of it (or, with drafts, a few) */

    int32_t n_preemptions;
    quire_explain_preemption preemptions[QUIRE_EXPLAIN_PREEMPTIONS];
    quire_explain_preemption preempted; /* the sums of all */

    /* Of the rule that the output obeys (docs/structured.md). */
    /* how each keyword of its schema is enforced: a JSON array of objects with path,
     * keyword, status and how; NULL: there is no rule */
    const char *rule;
    int64_t compile_us; /* time of its compilation */
    int64_t mask_us;    /* time of making masks, for all choices */
    int32_t n_forced;   /* tokens that were not sampled since only one was possible */
    int32_t n_guessed;  /* tokens that it had guessed, as they were sampled */

    int64_t tokenise_us, queue_us, prefill_us, decode_us, detokenise_us;
} quire_explain;

#endif
