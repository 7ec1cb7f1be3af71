/* A task is a sequence as the scheduler sees it: its tokens, its pages, and what its
 * order of execution depends on.
 *
 *   WAITING --admitted--> PREFILL --prompt computed--> DECODE --finished--> DONE
 *   preempted: back to WAITING
 *
 * It is the first member of its owner's struct. Owner: the engine thread. Invariant:
 * kv.n_computed < n_known <= n_max while it runs. */
#ifndef SCHED_TASK_H
#define SCHED_TASK_H

#include <stdbool.h>
#include <stdint.h>

#include "base/mem.h"
#include "kv/kv_seq.h"

typedef enum task_state { TASK_WAITING, TASK_PREFILL, TASK_DECODE, TASK_DONE } task_state;

typedef struct sched_task {
    /* Read in every step, which visits hundreds of tasks. */
    task_state state;
    int32_t n_known;     /* known tokens: prompt and sampled */
    kv_seq kv;           /* its pages; n_computed of the known tokens are in them */
    int32_t n_preempted; /* how often it was preempted */
    int32_t group;       /* tasks of one group (not 0) are preempted together or not at all: beams */
    uint64_t adapter;    /* its adapter, whose slot it uses while it runs (adapter_slots.h); 0: none */
    int32_t tenant_slot; /* its tenant's slot (admission_policy.h) */
    /* under ADMISSION_FAIR: its prompt goes before those of tenants that run more
     * (step_plan.c) */
    bool is_first;
    /* running: sits out this step, since something of its own is not ready; keeps its
     * pages */
    bool sits_out;
    bool lacks_slot; /* waiting: its adapter found no slot in this step */

    /* Constant once the scheduler has it, except for the content of the array. */
    _Alignas(MEM_ALIGN) int32_t n_prompt;
    int32_t n_max;            /* length at which it ends: prompt + max_tokens */
    int32_t *tokens;          /* [n_max]; published ones are final, those after n_known are drafts */
    uint64_t arrival;         /* order of arrival; constant, so that a preempted task keeps its place */
    int32_t priority;         /* ADMISSION_PRIORITY only, else 0: the lower number is admitted first */
    bool wants_prompt_logits; /* the logits of the prompt's rows from logits_first on are wanted */
    int32_t logits_first;
    /* its own attention program, if that is measured separately (step_cost.h); 0:
     * none */
    uint64_t program;
    /* it needs no logits and ends when its prompt is computed: n_max is n_prompt */
    bool no_logits;

    /* Rarely read. */
    /* the program of which it is a step (0: none), and its depth in the tree of steps
     * (admission_policy.h) */
    uint64_t tree;
    int32_t depth;
    /* all its known tokens are cached, and it needs no row: the next admission reuses the
     * last one too. It never runs */
    bool needs_no_row;
    /* deadline_us: when its first token is due (clock_us); 0: no deadline */
    int64_t submitted_us, deadline_us;
    /* time from submitted_us to its first admission; written before the first token is
     * known */
    int64_t queue_us;
    int32_t n_found;    /* tokens that the cache held when it arrived */
    int32_t n_admitted; /* number of admissions; more than 1 after preemption */
    /* most tokens that an admission takes from the cache: rows after them are wanted */
    bool limits_reuse;
    int32_t reuse_limit;
    int32_t n_reused; /* tokens that the last admission took from the cache */
    /* tokens that the first admission took from the cache; written before the first token
     * is known */
    int32_t n_cached;
    /* while it waits: the arrival number of the task that computes its tokens up to
     * blocked_until; blocked_until 0: none (prefix_wait.h) */
    uint64_t blocked_on;
    int32_t blocked_on_priority; /* the priority of that task */
    int32_t blocked_until;
} sched_task;

/* Whether logits of the prompt are still wanted, from logits_first on. Not after a token
 * was sampled, even if a preempted task is computed again: its reader may have taken
 * them. */
static inline bool task_wants_logits(const sched_task *t) {
    return t->wants_prompt_logits && t->n_known == t->n_prompt;
}

/* Number of leading tokens of t that may be reused: not the last known one, whose row
 * must be computed, none whose logits are wanted, none that are never published, and no
 * more than reuse_limit. */
static inline int32_t task_reusable(const sched_task *t) {
    int32_t n = t->needs_no_row ? t->n_known : t->n_known - 1;
    n = t->limits_reuse && t->reuse_limit < n ? t->reuse_limit : n;
    n = kv_seq_shareable(&t->kv, n);
    return task_wants_logits(t) && t->logits_first < n ? t->logits_first : n;
}

#endif
