/* The block in which explain.h collects a request's report, allocated with the sequence,
 * so that a step allocates nothing. */
#ifndef ENGINE_EXPLAIN_BLOCK_H
#define ENGINE_EXPLAIN_BLOCK_H

#include <stdbool.h>
#include <stdint.h>

#include "base/mem.h"
#include "quire_explain.h"
#include "sched/admission_policy.h"

typedef enum explain_stage { EXPLAIN_QUEUE, EXPLAIN_PREFILL, EXPLAIN_DECODE } explain_stage;

/* The kind of wait for an adapter's slot. It is none of the report's list, which keeps
 * its length: quire_explain_more has it. */
#define EXPLAIN_WAIT_ADAPTER QUIRE_N_WAITS

typedef struct explain {
    quire_explain report;
    int64_t adapter_wait_us; /* the time of EXPLAIN_WAIT_ADAPTER, and how often it began */
    int32_t n_adapter_waits;
    explain_stage stage;
    quire_wait wait;      /* in EXPLAIN_QUEUE */
    int64_t since_us;     /* when the stage or wait began; 0: at the submission */
    int64_t preempted_us; /* when it was preempted; 0: it was not, or has been computed again */
    int32_t was_computed; /* tokens that were computed when it was preempted */
    bool is_counted;      /* in n_explained */
    int32_t n_prefix;     /* report.matched if there were a snapshot after each token */
    int64_t first_token_step, last_token_step; /* -1: no token came yet */
    int32_t n_ahead;                           /* waiting sequences that preceded it when it began to wait */
    admission_policy order;
} explain;

/* A block for a sequence that begins to wait; NULL when out of memory. The last owner
 * frees it with mem_free: the reader, who gets it with the end event, or the sequence. */
static inline explain *explain_new(void) {
    explain *x = mem_new(1, sizeof *x);
    if (x != NULL) {
        x->report.n_waits[QUIRE_WAIT_TURN] = 1;
        x->first_token_step = x->last_token_step = -1;
    }
    return x;
}

#endif
