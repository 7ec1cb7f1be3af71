/* The report on how the engine served one request (quire_explain.h), for requests that
 * ask for it.
 *
 * The engine thread fills it step by step, in a block that is allocated with the
 * sequence, so a step allocates nothing. A sequence without a report costs one comparison
 * a step. Every microsecond of a sequence is counted exactly once: for one kind of wait,
 * for prefill or for decoding. */
#ifndef ENGINE_EXPLAIN_H
#define ENGINE_EXPLAIN_H

#include <stdbool.h>
#include <stdint.h>

#include "base/mem.h"
#include "engine/sequence.h"
#include "quire_explain.h"
#include "sched/admission_policy.h"

/* The engine thread has taken s from the in-ring. */
void explain_entered(engine *e, sequence *s);
/* s, with its chained samples, begins to wait for the first time: records how many are
 * ahead of it. O(waiting) for one with a report. */
void explain_queued(engine *e, sequence *s);
/* The plan is made and the admitted sequences run: records why each other sequence waits.
 * O(1) where no sequence has a report, else O(waiting). */
void explain_waiting(engine *e);
/* Each function below does nothing for a sequence without a report. */
/* s is admitted, with the pages that it reuses. */
void explain_admitted(engine *e, sequence *s);
/* s ends a wait of this kind and runs, sharing pages that another sequence computed. */
void explain_shared(sequence *s, quire_wait wait);
/* s is about to be preempted. */
void explain_preempted(engine *e, sequence *s);
/* This step has computed n tokens of s. */
void explain_computed(engine *e, sequence *s, int32_t n);
/* A token was appended to s. */
void explain_token(engine *e, sequence *s, int64_t now_us);
/* n tokens of s came from its draft: forced or guessed by its constraint. */
void explain_drafted(sequence *s, int32_t n, bool is_forced);
/* Tokens of s were promoted from a tier. */
void explain_promoted(sequence *s, int32_t n_tokens);
/* Pages of the preempted s were swapped out or in. */
void explain_swapped(sequence *s, int64_t bytes);
/* s has ended. */
void explain_ended(engine *e, sequence *s);

typedef enum explain_stage { EXPLAIN_QUEUE, EXPLAIN_PREFILL, EXPLAIN_DECODE } explain_stage;

/* The kind of wait for an adapter's slot. It is not in the report's list, whose length is
 * part of the ABI; quire_explain_more has it. */
#define EXPLAIN_WAIT_ADAPTER QUIRE_N_WAITS

typedef struct explain {
    quire_explain report;
    int64_t adapter_wait_us; /* the time of EXPLAIN_WAIT_ADAPTER, and how often it began */
    int32_t n_adapter_waits;
    explain_stage stage;
    quire_wait wait;      /* kind of wait in EXPLAIN_QUEUE */
    int64_t since_us;     /* time at which the stage or wait began; 0: at submission */
    int64_t preempted_us; /* time of the last preemption; 0: none, or what it lost is recomputed */
    int32_t was_computed; /* tokens that were computed when it was preempted */
    bool is_counted;      /* counted in engine.n_explained */
    int32_t n_prefix;     /* value that report.matched would have with a snapshot after each token */
    /* step numbers of the first and the last token; -1: none yet */
    int64_t first_token_step, last_token_step;
    int32_t n_ahead; /* waiting sequences that preceded it when it began to wait */
    admission_policy order;
} explain;

/* The report block of a new sequence; NULL: out of memory. The reader frees it with
 * mem_free after the end event; without one, the sequence does. */
static inline explain *explain_new(void) {
    explain *x = mem_new(1, sizeof *x);
    if (x != NULL) {
        x->report.n_waits[QUIRE_WAIT_TURN] = 1;
        x->first_token_step = x->last_token_step = -1;
    }
    return x;
}

#endif
