/* A scheduler: the queues of waiting and running tasks, the admission policy, and the
 * plan of the present step.
 *
 * Hooks supply what only the owner of the tasks knows. Nothing is allocated after
 * scheduler_open, and no clock is read. Single-threaded. */
#ifndef SCHED_SCHEDULER_H
#define SCHED_SCHEDULER_H

#include <stdbool.h>
#include <stdint.h>

#include "sched/admission_policy.h"
#include "sched/sched.h"
#include "sched/step_cost.h"
#include "sched/task.h"

/* Hooks of the owner of the tasks; each may be NULL. */
typedef struct sched_hooks {
    /* Whether t, which waits, may be admitted in this step. False while its pages are
     * fetched from elsewhere. */
    bool (*is_ready)(void *context, sched_task *t);
    /* Adds what the owner knows to *d, which describes t itself: drafts, sequences beside
     * it. */
    void (*describe)(void *context, const sched_task *t, sched_seq *d);
    /* t was admitted, with its cached pages, and is in neither queue yet. If the owner
     * appends a token, the planned row computes that; if t ends (TASK_DONE), it stays in
     * the running queue until the owner removes it after step_plan. */
    void (*admitted)(void *context, sched_task *t);
    /* t is being preempted: it is about to release its pages, and is in neither queue.
     * True: the owner has done everything, including the queues. */
    bool (*preempt)(void *context, sched_task *t);
    /* This step is planned and its preemptions are done: the owner preempts further tasks
     * that belong together. */
    void (*settle)(void *context);
    /* t has reserved n_pages for its next n_rows. */
    void (*reserved)(void *context, const sched_task *t, int32_t n_rows, int32_t n_pages);
    /* t is refused: it would miss its deadline. A similar one could be served in after_s
     * seconds. The owner ends it (TASK_DONE). */
    void (*refuse)(void *context, sched_task *t, int32_t after_s);
    /* Too few pages are left for any task to run. The owner releases pages that it holds
     * outside of tasks, if there are any. */
    void (*yield)(void *context);
} sched_hooks;

typedef struct scheduler_options {
    sched_limits limits; /* state_pages and most are taken from kv */
    int32_t most_rows;   /* most rows of one task in a step, drafts included; 0: max_rows */
    admission_policy policy;
    double lambda;       /* ADMISSION_PREFIX: cached tokens that a second of waiting is worth */
    int32_t n_groups;    /* groups of tokens */
    int32_t max_tasks;   /* waiting and running tasks together */
    int32_t max_tenants; /* tenants with their own service counter */
    kv_cache *kv;        /* NULL: tasks have no pages, and hooks decide what fits */
    const sched_hooks *hooks;
    void *context; /* the first argument of every hook */
} scheduler_options;

/* Tokens looked up in the prefix cache and found there: at first admissions, and when a
 * preempted task is admitted again. */
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
    /* the measured cost of steps without programs, fed by scheduler_note_us */
    step_cost step_cost;
    program_costs programs; /* the measured cost of attention programs */
    sched_counts counts;
    sched_task **running, **waiting; /* in the order of queue_goes_after */
    int32_t n_running, n_waiting;

    /* Of the present step: */
    int64_t now_us;
    sched_seq *running_seqs, *waiting_seqs; /* the planner's input */
    sched_task **candidates;                /* [n_candidates] the tasks that waiting_seqs describes */
    int32_t n_candidates;
    /* [n_waiting] the waiting tasks in queue order, but steps of a program by depth */
    sched_task **ordered;
    /* [max_tasks] sort keys of the waiting tasks; the key taken last */
    double *keys, last_key;
    sched_plan plan;
    sched_task **tasks; /* [plan.n_items] */
    program_work *work; /* [n_work] what the step computes with programs */
    int32_t n_work;
    kv_copies copies; /* pages to copy before anything is computed */
} scheduler;

/* Opens a scheduler in place. On failure *out is empty, and scheduler_close does nothing.
 * QUIRE_NO_MEMORY. */
quire_err scheduler_open(const scheduler_options *o, scheduler *out);
void scheduler_close(scheduler *s);

/* The order of both queues: by priority, then by arrival. */
static inline bool queue_goes_after(const sched_task *a, const sched_task *b) {
    return a->priority != b->priority ? a->priority > b->priority : a->arrival > b->arrival;
}

/* Puts a task that has no pages among the waiting. */
void scheduler_wait(scheduler *s, sched_task *t);
/* Puts a task with pages among the running, in the state that follows from its pages. */
void scheduler_run(scheduler *s, sched_task *t);
/* Removes t from the running. */
void scheduler_stop(scheduler *s, const sched_task *t);

/* ---- one task's admission and preemption, for tasks that belong together ---- */
/* Gives t, whose tables are empty, the pages that the cache has. */
void scheduler_admit(scheduler *s, sched_task *t);
/* Counts n tokens that t found in the prefix cache: of its prompt at the first admission,
 * later of the tokens it had when it was preempted. */
void scheduler_count_reuse(scheduler *s, sched_task *t, int32_t n);
/* Releases the part-filled page of t. Call it directly after scheduler_admit. */
void scheduler_keep_whole_pages(scheduler *s, sched_task *t);
/* Preempts the running tasks that plan.decisions marks; plan.n_preempted is their
 * number. */
void scheduler_preempt_marked(scheduler *s);
/* Preempts victim, which is running, with its group. spared, with its group, is kept; may
 * be NULL. plan.n_preempted counts them. */
void scheduler_preempt_group(scheduler *s, const sched_task *victim, const sched_task *spared);

/* ---- step_plan.c ---- */
/* Preempts the newest running task with its group, between steps, because another
 * scheduler needs the memory of its pages. False if none runs. */
bool scheduler_yield(scheduler *s);
/* Plans a step, moves tasks between the queues, and reserves pages for every planned row:
 * plan, tasks and copies of s are set. False: nothing can be computed now. A task that
 * finds no pages in the end is left out. now_us: any monotonic clock. O(running +
 * waiting), plus the candidates' lookups in the prefix cache. */
bool step_plan(scheduler *s, int64_t now_us);
/* Records that the planned step, with all its rows computed, took `us` microseconds;
 * later plans use it. */
void scheduler_note_us(scheduler *s, double us);

/* Turns of several models on one engine thread: whose step runs next, as a pure function
 * of times.
 *
 * Each step belongs to one model. The model that was served least goes first, so that
 * each gets an equal share of the time while it has work, however much the others ask
 * for. A model whose request would miss its deadline if another's step ran first goes
 * first, unless it is too far ahead of its share. */

/* Microseconds by which a model may be ahead of the least served one and still go first
 * because of a deadline. */
#define TURN_MOST_AHEAD_US 500000.0

/* A model that has work. */
typedef struct turn_claim {
    /* time that its steps took, on a clock that all models share: a model that resumes
     * after a pause starts where the others are (turn_resume) */
    double served_us;
    double step_us;      /* time of its last step; 0: unknown */
    int64_t deadline_us; /* the earliest deadline of a waiting first token (clock_us); 0: none */
} turn_claim;

/* The number of the model whose step runs next, of n >= 1. Ties go to the lowest
 * number. */
int32_t turn_choose(const turn_claim *claims, int32_t n, int64_t now_us);
/* served_us of a model that has work again, beside n others with work: its own, but at
 * least the minimum of theirs. If n is 0: at least most_us, the largest of any model, so
 * that a new model does not claim the time during which another ran alone. */
double turn_resume(double served_us, const turn_claim *others, int32_t n, double most_us);
/* served_us of a model that had the turn but no step to run, since its sequences wait for
 * something outside of steps; a model with served_us `taken_us` ran instead. The missed
 * turn is not made up for later. */
double turn_pass(double served_us, double taken_us);

#endif
