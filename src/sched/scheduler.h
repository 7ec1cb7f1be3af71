/* A scheduler: the queues of waiting and running tasks, the admission policy, and the
 * plan of the present step.
 *
 * What only the owner of the tasks knows comes through hooks. Nothing is allocated after
 * scheduler_open, and no clock is read. One thread. */
#ifndef SCHED_SCHEDULER_H
#define SCHED_SCHEDULER_H

#include <stdbool.h>
#include <stdint.h>

#include "sched/admission_policy.h"
#include "sched/sched.h"
#include "sched/step_cost.h"
#include "sched/task.h"

/* What the owner of the tasks adds; each may be NULL. */
typedef struct sched_hooks {
    /* Whether t, which waits, may be admitted in this step. False while its pages are
     * fetched from elsewhere. */
    bool (*is_ready)(void *context, sched_task *t);
    /* Adds to *d, which holds what t itself needs: drafts, sequences beside it. */
    void (*describe)(void *context, const sched_task *t, sched_seq *d);
    /* t was admitted, with its cached pages, and is in neither queue yet. If the owner
     * appends a token, the planned row computes that; if t ends (TASK_DONE), it stays
     * among the running until the owner removes it after step_plan. */
    void (*admitted)(void *context, sched_task *t);
    /* t is about to release its pages, since it is preempted, and is in neither queue.
     * True: the owner has done all of it, queues included. */
    bool (*preempt)(void *context, sched_task *t);
    /* The plan of this step is made and its preemptions are done: the owner preempts more
     * where tasks belong together. */
    void (*settle)(void *context);
    /* t has taken n_pages for its next n_rows. */
    void (*reserved)(void *context, const sched_task *t, int32_t n_rows, int32_t n_pages);
    /* t is refused: it would miss its deadline. One like it may be served after_s seconds
     * from now. The owner ends it (TASK_DONE). */
    void (*refuse)(void *context, sched_task *t, int32_t after_s);
    /* Pages are so few that no task can run. The owner releases some that it holds
     * besides tasks, if there are any. */
    void (*yield)(void *context);
} sched_hooks;

typedef struct scheduler_options {
    sched_limits limits; /* state_pages and most are kv's */
    int32_t most_rows;   /* most rows of one task in a step, drafts included; 0: max_rows */
    admission_policy policy;
    double lambda;       /* ADMISSION_PREFIX: cached tokens that a second of waiting is worth */
    int32_t n_groups;    /* groups of tokens */
    int32_t max_tasks;   /* waiting and running together */
    int32_t max_tenants; /* tenants with a service counter of their own */
    kv_cache *kv;        /* NULL: tasks have no pages, and hooks say what fits */
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
    /* the measured cost of steps without programs; the owner notes them
     * (scheduler_note_us) */
    step_cost step_cost;
    program_costs programs; /* what attention programs add to it */
    sched_counts counts;
    sched_task **running, **waiting; /* in the order of queue_goes_after */
    int32_t n_running, n_waiting;

    /* Of the present step. */
    int64_t now_us;
    sched_seq *running_seqs, *waiting_seqs; /* the planner's input */
    sched_task **candidates;                /* [n_candidates] which waiting_seqs describes */
    int32_t n_candidates;
    /* [n_waiting] the waiting tasks in the order of the queue, but steps of a program by
     * depth */
    sched_task **ordered;
    /* [max_tasks] sort keys of the waiting tasks; the key of the last one taken */
    double *keys, last_key;
    sched_plan plan;
    sched_task **tasks; /* [plan.n_items] */
    program_work *work; /* [n_work] what the step computes under programs */
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
/* Puts a task that has pages among the running, in the state that they give it. */
void scheduler_run(scheduler *s, sched_task *t);
/* Removes t from the running. */
void scheduler_stop(scheduler *s, const sched_task *t);

/* ---- one task's admission and preemption, for tasks that belong together ---- */
/* Gives t, whose tables are empty, the pages that the cache has. */
void scheduler_admit(scheduler *s, sched_task *t);
/* Counts n tokens that t found in the prefix cache: of its prompt at the first
 * admission, later of the tokens it had when preempted. */
void scheduler_count_reuse(scheduler *s, sched_task *t, int32_t n);
/* Releases the part-filled page of t, directly after scheduler_admit. */
void scheduler_keep_whole_pages(scheduler *s, sched_task *t);
/* Preempts the running tasks that plan.decisions marks so (plan.n_preempted of them). */
void scheduler_preempt_marked(scheduler *s);
/* Preempts victim, which runs, with its group. spared (NULL: none) stays, with its group.
 * plan.n_preempted counts them. */
void scheduler_preempt_group(scheduler *s, const sched_task *victim, const sched_task *spared);
/* Preempts t, which is in neither queue: releases its pages and puts it among the
 * waiting. */
void scheduler_preempt(scheduler *s, sched_task *t);

/* ---- step_plan.c ---- */
/* Preempts the newest running task with its group, between steps: another scheduler needs
 * the memory of its pages. False: none runs. */
bool scheduler_yield(scheduler *s);
/* Plans a step, moves tasks between the queues, and reserves pages for every planned row:
 * plan, tasks and copies of s are set. False: nothing can be computed now. A task that
 * finds no pages after all is left out. now_us: any clock that only grows.
 * O(running + waiting), and the lookups of the candidates in the prefix cache. */
bool step_plan(scheduler *s, int64_t now_us);
/* Notes that the planned step, with all its rows computed, took `us` microseconds;
 * later plans use this. */
void scheduler_note_us(scheduler *s, double us);

/* Turns of several models on one engine thread: whose step runs next, as a pure function
 * of times.
 *
 * A step is of one model. The model that was served least goes first, so that each gets
 * an equal share of the time as long as it has work, whatever the others ask for. A model
 * whose request would miss its deadline after another's step goes before that, as long
 * as it is not too far ahead of its share. */

/* Microseconds by which a model may be ahead of the least served one and still go first
 * because of a deadline. */
#define TURN_MOST_AHEAD_US 500000.0

/* A model that has work. */
typedef struct turn_claim {
    /* time that its steps took, on a clock that all models share: a model that comes back
     * from a pause begins where the others are (turn_resume) */
    double served_us;
    double step_us;      /* time of its last step; 0: unknown */
    int64_t deadline_us; /* the earliest deadline of a first token that waits (clock_us); 0: none */
} turn_claim;

/* The number of the model whose step runs next, of n >= 1. Ties go to the lowest
 * number. */
int32_t turn_choose(const turn_claim *claims, int32_t n, int64_t now_us);
/* served_us of a model that has work again, beside n others that have work: its own,
 * but at least the minimum of theirs. If n is 0: at least most_us, the largest of any
 * model, so that a new one does not get back the time that another was alone. */
double turn_resume(double served_us, const turn_claim *others, int32_t n, double most_us);
/* served_us of a model that had the turn but no step to run, since its sequences wait for
 * something outside of steps; a model that was served taken_us ran instead. A turn that
 * was passed is not made up for later. */
double turn_pass(double served_us, double taken_us);

#endif
