/* The state of a simulated server (lab/sim/serving.h) and its use of the scheduler,
 * between serving.c and serving_plan.c. */
#ifndef LAB_SIM_SERVING_STATE_H
#define LAB_SIM_SERVING_STATE_H

#include "lab/sim/first_fit.h"
#include "lab/sim/serving.h"
#include "sched/scheduler.h"

/* A request from its arrival to its end. task.arrival is its number in the trace;
 * task.tokens is NULL where there is no cache, and task.kv has no tables with pieces. */
typedef struct served {
    sched_task task;
    int32_t n_ended;         /* requests that had ended when it was preempted for a piece that grows */
    int64_t piece, reserved; /* its piece's first token, and how many it holds; 0 with pages */
    double arrival, first;
} served;

typedef struct serving {
    const trace *t;
    const serving_options *o;
    serving_result *r;
    scheduler sched;
    int32_t page_tokens;
    bool pieces;          /* keys and values in one piece each */
    bool is_full;         /* a request found no piece in this step */
    kv_cache kv;          /* empty with pieces */
    first_fit room;       /* of pieces */
    served *seqs;         /* [n_requests] */
    int64_t *item_pieces; /* [max_seqs] with pieces and an execution: the first token of each item's piece */
    int32_t next;         /* the next to arrive */
    double now;
    int64_t moved;   /* tokens that moved in this step, as pieces grew */
    int64_t swapped; /* tokens that went to host memory in this step, or came back */
} serving;

static inline served *served_of(const sched_task *t) {
    return (served *)(uintptr_t)t; /* its first member */
}

/* Opens the scheduler over s->kv, or over pieces. QUIRE_NO_MEMORY. */
quire_err serving_open_scheduler(serving *s);
/* Plans a step at s->now with step_plan, as the engine does. false in *did: nothing can
 * be computed. Fails where moving a piece does. */
quire_err serving_plan(serving *s, bool *did);

#endif
