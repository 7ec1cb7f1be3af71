/* The state of a simulated server (lab/sim/serving.h) and its use of the scheduler, between serving.c and serving_plan.c. */
#ifndef LAB_SIM_SERVING_STATE_H
#define LAB_SIM_SERVING_STATE_H

#include "lab/sim/first_fit.h"
#include "lab/sim/serving.h"
#include "sched/scheduler.h"

/* A request from its arrival to its end. task.arrival is its number in the trace; task.tokens is NULL where there is no cache, and task.kv
 * has no tables with pieces. */
typedef struct served {
    sched_task task;
    int64_t reserved; /* tokens that its piece holds; 0 with pages */
    double arrival, first;
} served;

typedef struct serving {
    const trace *t;
    const serving_options *o;
    serving_result *r;
    scheduler sched;
    int32_t page_tokens;
    bool pieces;     /* keys and values in one piece each */
    bool is_full;    /* a request found no piece in this step */
    kv_cache kv;     /* empty with pieces */
    first_fit room;  /* of pieces */
    served *seqs;    /* [n_requests] */
    int32_t next;    /* the next to arrive */
    double now;
} serving;

static inline served *served_of(const sched_task *t) {
    return (served *)(uintptr_t)t; /* its first member */
}

/* Opens the scheduler over s->kv, or over pieces. QUIRE_NO_MEMORY. */
quire_err serving_open_scheduler(serving *s);
/* Plans a step at s->now with step_plan, as the engine does. False: nothing can be computed. */
bool serving_plan(serving *s);

#endif
