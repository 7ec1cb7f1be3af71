/* The engine's planner without a model: sched_make_plan and kv_seq carry requests of
 * known lengths from step to step, as the engine does (src/engine/step.c), and tokens are
 * only counted. What it says of steps, pages and preemptions is exact.
 *
 * Owner: one thread. Invariant between steps: dry_run_check. */
#ifndef LAB_BENCH_DRY_RUN_H
#define LAB_BENCH_DRY_RUN_H

#include <stdbool.h>

#include "kv/kv_seq.h"
#include "sched/sched.h"

typedef struct dry_request {
    int32_t n_prompt, n_output; /* at least 1 each */
    int32_t arrival;            /* the step before which it comes; later requests come no earlier */
} dry_request;

typedef enum dry_state { DRY_AWAY, DRY_WAITING, DRY_RUNNING, DRY_DONE } dry_state;

/* What a step did for a sequence: nothing, part of its prompt, part of what it lost when
 * it was preempted, or its next token. */
typedef enum dry_work { DRY_NOTHING, DRY_PREFILL, DRY_AGAIN, DRY_DECODE } dry_work;

typedef struct dry_seq {
    dry_request request;
    dry_state state;
    kv_seq kv;
    int32_t n_known;
    dry_work work; /* of the last step, and its rows */
    int32_t n_rows;
    bool was_preempted;  /* in the last step */
    int32_t n_preempted; /* times */
    /* steps, counted from 1: of its first rows, its first token, its last; 0: not yet */
    int32_t started, first, ended;
} dry_seq;

typedef struct dry_run {
    sched_limits limits;
    kv_cache cache; /* without an index */
    dry_seq *seqs;  /* [n], in order of arrival */
    int32_t n, n_done, step;
    int32_t *running, *waiting, n_running, n_waiting; /* indices, oldest first */
    sched_seq *running_view, *waiting_view;
    sched_plan plan; /* of the last step */
} dry_run;

/* n requests for a pool of n_pages; limits is copied. QUIRE_INVALID where a request can
 * never fit or lengths are not positive. */
quire_err dry_run_open(const sched_limits *limits, int32_t n_pages, const dry_request *requests, int32_t n,
                       dry_run *out, quire_error *err);
void dry_run_close(dry_run *d);
/* One step. false: all requests are done, and nothing changed. QUIRE_INTERNAL in *e when
 * the planner stands still or plans what does not fit. */
bool dry_run_step(dry_run *d, quire_err *e);
/* All steps to the end. */
quire_err dry_run_finish(dry_run *d);
/* Proves that pool and tables agree and that a running sequence's table holds what it has
 * computed. */
quire_err dry_run_check(const dry_run *d, quire_error *err);

#endif
