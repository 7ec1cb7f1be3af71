/* A task is a sequence as the scheduler sees it: its tokens, its pages, and what decides
 * when it runs.
 *
 *   WAITING --admitted--> PREFILL --prompt computed--> DECODE --finished--> DONE
 *   preempted: back to WAITING
 *
 * The first member of its owner's struct. Owner: the engine thread. Invariant while it
 * runs: kv.n_computed < n_known <= n_max. */
#ifndef SCHED_TASK_H
#define SCHED_TASK_H

#include <stdbool.h>
#include <stdint.h>

#include "base/mem.h"
#include "kv/kv_seq.h"

typedef enum task_state { TASK_WAITING, TASK_PREFILL, TASK_DECODE, TASK_DONE } task_state;

typedef struct sched_task {
    /* Read in every step, for hundreds of tasks: */
    task_state state;
    int32_t n_known;     /* known tokens: prompt and sampled */
    kv_seq kv;           /* its pages; they hold the first n_computed of the known tokens */
    int32_t n_preempted; /* how often it was preempted */
    int32_t group;       /* tasks of one group (not 0) are preempted together or not at all: beams */
    uint64_t adapter;    /* its adapter, whose slot it uses while it runs (adapter_slots.h); 0: none */
    int32_t tenant_slot; /* its tenant's entry in the service counters (admission_policy.h) */
    /* ADMISSION_FAIR: its prompt goes before those of tenants that run more tasks
     * (step_plan.c) */
    bool is_first;
    /* running: gets no rows in this step, since it waits for data of its own; keeps its
     * pages */
    bool sits_out;
    bool lacks_slot; /* waiting: there was no slot for its adapter in this step */

    /* Set before it is submitted, then constant, except for the content of `tokens`: */
    _Alignas(MEM_ALIGN) int32_t n_prompt;
    int32_t n_max;    /* length at which it ends: prompt + max_tokens */
    int32_t *tokens;  /* [n_max] published ones are final; those after n_known are drafts */
    uint64_t arrival; /* number in order of arrival; kept when preempted, so that the task keeps its place */
    int32_t priority; /* ADMISSION_PRIORITY: the lowest number is admitted first; else 0 */
    bool wants_prompt_logits; /* logits are wanted of the prompt's rows from logits_first on */
    int32_t logits_first;
    /* its own attention program, if its cost is measured (step_cost.h); 0: none */
    uint64_t program;
    /* wants no logits and ends when its prompt is computed: n_max is n_prompt */
    bool no_logits;

    /* Rarely read: */
    /* the program that it is a step of (0: none), and its depth in the tree of steps
     * (admission_policy.h) */
    uint64_t tree;
    int32_t depth;
    /* all its known tokens are cached and no row is needed: the next admission reuses the
     * last token too, and the task never runs */
    bool needs_no_row;
    /* deadline_us: when its first token is due (clock_us); 0: no deadline */
    int64_t submitted_us, deadline_us;
    /* time from submitted_us to the first admission; set before the first token is
     * known */
    int64_t queue_us;
    int32_t n_found;    /* tokens that were cached when it arrived */
    int32_t n_admitted; /* number of admissions; more than 1 after preemption */
    /* true: an admission takes at most reuse_limit tokens from the cache, since later
     * rows are wanted */
    bool limits_reuse;
    int32_t reuse_limit;
    int32_t n_reused; /* tokens taken from the cache at the last admission */
    /* tokens taken from the cache at the first admission; set before the first token is
     * known */
    int32_t n_cached;
    /* waiting: `arrival` of the task that computes its tokens up to blocked_until
     * (prefix_wait.h); blocked_until 0: none */
    uint64_t blocked_on;
    int32_t blocked_on_priority; /* `priority` of that task */
    int32_t blocked_until;
} sched_task;

/* Whether logits of the prompt, from logits_first on, are still wanted. Not once a token
 * was sampled, even if the task is recomputed: its reader may have taken them. */
static inline bool task_wants_logits(const sched_task *t) {
    return t->wants_prompt_logits && t->n_known == t->n_prompt;
}

/* Number of leading tokens of t that it may take from the cache: none whose row is needed
 * (the last known one, and those with wanted logits), none that are never published, and
 * at most reuse_limit. */
static inline int32_t task_reusable(const sched_task *t) {
    int32_t n = t->needs_no_row ? t->n_known : t->n_known - 1;
    n = t->limits_reuse && t->reuse_limit < n ? t->reuse_limit : n;
    n = kv_seq_shareable(&t->kv, n);
    return task_wants_logits(t) && t->logits_first < n ? t->logits_first : n;
}

#endif
