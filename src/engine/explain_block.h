/* The block in which explain.h collects a request's report. It is made with the sequence, so that a step allocates nothing. */
#ifndef ENGINE_EXPLAIN_BLOCK_H
#define ENGINE_EXPLAIN_BLOCK_H

#include <stdbool.h>
#include <stdint.h>

#include "base/mem.h"
#include "quire_explain.h"

typedef enum explain_stage { EXPLAIN_QUEUE, EXPLAIN_PREFILL, EXPLAIN_DECODE } explain_stage;

typedef struct explain {
    quire_explain report;
    explain_stage stage;
    quire_wait wait;      /* in EXPLAIN_QUEUE */
    int64_t since_us;     /* when that began; 0: with the submission */
    int64_t preempted_us; /* 0: it is not coming back from a preemption */
    int32_t was_computed; /* tokens, when it was preempted */
    bool is_counted;      /* in n_explained */
} explain;

/* A block for a sequence that begins to wait; NULL when out of memory. Its last owner frees it with mem_free: the reader, who takes it with
 * the end event, or the sequence. */
static inline explain *explain_new(void) {
    explain *x = mem_new(1, sizeof *x);
    if (x != NULL) {
        x->report.n_waits[QUIRE_WAIT_TURN] = 1;
    }
    return x;
}

#endif
