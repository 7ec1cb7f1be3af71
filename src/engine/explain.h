/* The report on one request's way through the engine (quire_explain.h), for requests that
 * ask for it.
 *
 * The engine thread collects it as it goes, in a block that is allocated with the
 * sequence, so a step allocates nothing. A sequence without a report costs one comparison
 * a step. Every moment of a sequence is counted once: for one kind of wait, for its
 * prefill or for its decoding. */
#ifndef ENGINE_EXPLAIN_H
#define ENGINE_EXPLAIN_H

#include <stdbool.h>
#include <stdint.h>

#include "base/mem.h"
#include "engine/sequence.h"
#include "quire_explain.h"
#include "sched/admission_policy.h"

/* s has reached the engine thread. */
void explain_entered(engine *e, sequence *s);
/* s, with its chained samples, has begun to wait, for the first time: notes how many are
 * before it. O(waiting) for one with a report. */
void explain_queued(engine *e, sequence *s);
/* The plan is made and the admitted sequences run: records why each other sequence waits.
 * O(1) where no sequence has a report, else O(waiting). */
void explain_waiting(engine *e);
/* Each function below does nothing for a sequence without a report. */
/* s is admitted, and has the pages that it reuses. */
void explain_admitted(engine *e, sequence *s);
/* s ends a wait of this kind and runs, with pages that another sequence computed. */
void explain_shared(sequence *s, quire_wait wait);
/* s is about to be preempted. */
void explain_preempted(engine *e, sequence *s);
/* This step has computed n tokens of s. */
void explain_computed(engine *e, sequence *s, int32_t n);
/* s has one more token. */
void explain_token(engine *e, sequence *s, int64_t now_us);
/* So many tokens of s came of a draft: forced, or guessed by its constraint. */
void explain_drafted(sequence *s, int32_t n, bool is_forced);
/* Tokens of s were promoted from a tier. */
void explain_promoted(sequence *s, int32_t n_tokens);
/* Pages of the preempted s were swapped out or in. */
void explain_swapped(sequence *s, int64_t bytes);
/* s is over. */
void explain_ended(engine *e, sequence *s);

/* The block in which explain.h collects a request's report, allocated with the sequence,
 * so that a step allocates nothing. */

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
