/* A scheduler: queues of waiting and running tasks, the admission policy, and the plan of
 * the present step.
 *
 * Hooks supply what only the owner of the tasks knows. Allocates nothing after
 * scheduler_open, and reads no clock. Single-threaded. */
#ifndef SCHED_SCHEDULER_H
#define SCHED_SCHEDULER_H

#include <stdbool.h>
#include <stdint.h>

#include "sched/admission_policy.h"
#include "sched/sched.h"
#include "sched/step_cost.h"
#include "sched/task.h"

/* Callbacks to the owner of the tasks. Each may be NULL. */
typedef struct sched_hooks {
    /* Whether the waiting task t may be admitted in this step. False while its pages are
     * fetched from a tier. */
    bool (*is_ready)(void *context, sched_task *t);
    /* Adds to the description *d of t what the owner knows: drafts, beams beside it. */
    void (*describe)(void *context, const sched_task *t, sched_seq *d);
    /* t was admitted, with its cached pages, and is in neither queue yet. If the owner
     * appends a token, the planned row computes it. If t ends (TASK_DONE), it stays in
     * the running queue until the owner removes it after step_plan. */
    void (*admitted)(void *context, sched_task *t);
    /* t is being preempted: it still has its pages, and is in neither queue. True: the
     * owner has released the pages and requeued t. */
    bool (*preempt)(void *context, sched_task *t);
    /* The step is planned and its preemptions are done: the owner preempts further tasks
     * that belong to preempted ones. */
    void (*settle)(void *context);
    /* t has reserved n_pages for its next n_rows. */
    void (*reserved)(void *context, const sched_task *t, int32_t n_rows, int32_t n_pages);
    /* t would miss its deadline and is refused. A similar task could be served in after_s
     * seconds. The owner ends t (TASK_DONE). */
    void (*refuse)(void *context, sched_task *t, int32_t after_s);
    /* Too few pages are left for any task to run: the owner releases pages that it holds
     * outside of tasks, if any. */
    void (*yield)(void *context);
} sched_hooks;

typedef struct scheduler_options {
    sched_limits limits; /* limits of steps; state_pages and most are taken from kv */
    int32_t most_rows;   /* most rows of one task in a step, with drafts; 0: max_rows */
    admission_policy policy;
    double lambda;       /* ADMISSION_PREFIX: number of cached tokens that a second of waiting is worth */
    int32_t n_groups;    /* groups of tokens */
    int32_t max_tasks;   /* waiting and running tasks in total */
    int32_t max_tenants; /* tenants with their own service counter */
    kv_cache *kv;        /* NULL: tasks have no pages, and the hooks decide what fits */
    const sched_hooks *hooks;
    void *context; /* first argument of every hook */
} scheduler_options;

/* Tokens looked up in the prefix cache, and tokens found there: at first admissions, and
 * when preempted tasks are admitted again. */
typedef struct sched_counts {
    int64_t prompt_tokens_queried, prompt_tokens_reused;
    int64_t known_tokens_queried, known_tokens_reused;
    int64_t preemptions;
} sched_counts;

typedef struct scheduler {
    scheduler_options options;
    sched_limits limits;
    kv_cache *kv;
    service_counters service;
    /* measured cost of steps without programs, fed by scheduler_note_us */
    step_cost step_cost;
    program_costs programs; /* the measured cost of attention programs */
    sched_counts counts;
    sched_task **running, **waiting; /* both in the order of queue_goes_after */
    int32_t n_running, n_waiting;

    /* State of the present step: */
    int64_t now_us;
    sched_seq *running_seqs, *waiting_seqs; /* input of the planner */
    sched_task **candidates;                /* [n_candidates] the tasks described by waiting_seqs */
    int32_t n_candidates;
    /* [n_waiting] in queue order, except that steps of one program are ordered by
     * depth */
    sched_task **ordered;
    /* [max_tasks] sort keys of the waiting tasks; the key that was taken last */
    double *keys, last_key;
    sched_plan plan;
    sched_task **tasks; /* [plan.n_items] the task of each item */
    program_work *work; /* [n_work] what the step computes with attention programs */
    int32_t n_work;
    kv_copies copies; /* pages to copy before the forward pass */
} scheduler;

/* Opens a scheduler in place. QUIRE_NO_MEMORY: *out is empty, and scheduler_close does
 * nothing. */
quire_err scheduler_open(const scheduler_options *o, scheduler *out);
void scheduler_close(scheduler *s);

/* Whether a comes after b in a queue: by priority, then by arrival. */
static inline bool queue_goes_after(const sched_task *a, const sched_task *b) {
    return a->priority != b->priority ? a->priority > b->priority : a->arrival > b->arrival;
}

/* Adds a task that holds no pages to the waiting queue. */
void scheduler_wait(scheduler *s, sched_task *t);
/* Adds a task to the running queue; its pages decide its state, prefill or decode. */
void scheduler_run(scheduler *s, sched_task *t);
/* Removes t from the running queue. */
void scheduler_stop(scheduler *s, const sched_task *t);

/* ---- admission and preemption of single tasks, for tasks that belong together ---- */
/* Gives t, whose block tables are empty, its cached pages. */
void scheduler_admit(scheduler *s, sched_task *t);
/* Counts n tokens of t as found in the prefix cache: of its prompt at the first
 * admission, later of all tokens that it had when it was preempted. */
void scheduler_count_reuse(scheduler *s, sched_task *t, int32_t n);
/* Releases t's partly filled page. Only directly after scheduler_admit. */
void scheduler_keep_whole_pages(scheduler *s, sched_task *t);
/* Preempts the running tasks that plan.decisions marks, plan.n_preempted in number. */
void scheduler_preempt_marked(scheduler *s);
/* Preempts the running task victim with its group, but not spared (may be NULL) and its
 * group. Counts them in plan.n_preempted. */
void scheduler_preempt_group(scheduler *s, const sched_task *victim, const sched_task *spared);

/* Preempts the newest running task with its group, between steps, because another
 * scheduler needs the memory. False if none runs. */
bool scheduler_yield(scheduler *s);
/* Plans a step, moves tasks between the queues, and reserves pages for every planned row:
 * sets s->plan, tasks and copies. A task that finds no pages in the end is left out.
 * False if nothing can be computed now. now_us: any monotonic clock. O(running +
 * waiting), plus prefix lookups of the candidates. */
bool step_plan(scheduler *s, int64_t now_us);
/* Records that the planned step took `us` microseconds to compute; later plans use it. */
void scheduler_note_us(scheduler *s, double us);

/* Turns of several models on one engine thread: whose step runs next, as a pure function
 * of times.
 *
 * Each step belongs to one model. The model that was served least goes first, so each one
 * with work gets an equal share of the time, however many requests the others have. A
 * model whose request would miss its deadline if another's step ran first goes first,
 * unless it is too far ahead of its share. */

/* A model that is ahead of the least served one by more than this many microseconds does
 * not go first because of a deadline. */
#define TURN_MOST_AHEAD_US 500000.0

/* A model with work. */
typedef struct turn_claim {
    /* total time of its steps, on a clock that all models share: after a pause it
     * continues at least at the others' minimum (turn_resume) */
    double served_us;
    double step_us;      /* duration of its last step; 0: unknown */
    int64_t deadline_us; /* earliest deadline of a waiting request's first token (clock_us); 0: none */
} turn_claim;

/* The index of the model whose step runs next; n >= 1. Of equals the lowest index. */
int32_t turn_choose(const turn_claim *claims, int32_t n, int64_t now_us);
/* served_us of a model that has work again, while n others have work: its own, but at
 * least the minimum of theirs. If n is 0, at least most_us, the largest of any model, so
 * that a new model does not claim the time during which another ran alone. */
double turn_resume(double served_us, const turn_claim *others, int32_t n, double most_us);
/* served_us of a model that had the turn but no step to run, because its sequences wait
 * for something else; a model with served_us `taken_us` ran instead. It does not get the
 * missed turn back. */
double turn_pass(double served_us, double taken_us);

#endif
