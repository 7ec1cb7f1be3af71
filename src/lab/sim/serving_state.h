/* The state of a simulated server (lab/sim/serving.h) and its planning, between serving.c and serving_plan.c. */
#ifndef LAB_SIM_SERVING_STATE_H
#define LAB_SIM_SERVING_STATE_H

#include "kv/kv_seq.h"
#include "lab/sim/first_fit.h"
#include "lab/sim/serving.h"
#include "sched/step_cost.h"

enum { SERVING_MAX_ADMIT = 16 }; /* waiting requests that a plan looks at, as in src/engine/admission_candidates.c */

/* A request from its arrival to its end. */
typedef struct served {
    int32_t number;  /* in the trace; the order of arrival */
    int32_t *tokens; /* [n_most], where there is a cache */
    kv_seq kv; /* without tables with pieces */
    int32_t n_prompt, n_most, n_known, n_preempted, n_admitted, n_reused;
    int64_t reserved;   /* tokens that its piece holds; 0 with pages */
    int32_t blocked_on;   /* request that computes its tokens up to blocked_until, 0: nobody */
    int32_t blocked_until;
    double arrival, first;
} served;

typedef struct serving {
    const trace *t;
    const serving_options *o;
    serving_result *r;
    sched_limits limits;
    step_cost step_cost;
    bool pieces;     /* keys and values in one piece each */
    kv_cache kv;     /* empty with pieces */
    first_fit room;  /* of pieces */
    kv_copies copies;
    served *seqs;       /* [n_requests] */
    int32_t *running, *waiting, n_running, n_waiting, next; /* numbers, oldest first; the next to arrive */
    int32_t candidates[SERVING_MAX_ADMIT];
    sched_seq *running_view, waiting_view[SERVING_MAX_ADMIT];
    sched_plan plan;
    double now;
} serving;

/* Puts a request's number into a list in order of arrival; takes one out that is there. */
void serving_list_insert(int32_t *list, int32_t *n, int32_t number);
void serving_list_remove(int32_t *list, int32_t *n, int32_t number);

/* Plans a step as src/engine/step.c does: looks waiting requests up in the cache, asks the engine's planner, admits and preempts. The
 * plan's items name requests. */
void serving_plan(serving *s);
/* Pages for every item; one that finds none is left out, and planned again next step. */
quire_err serving_reserve(serving *s);
/* a gives up its pages or its piece; what it computed stays in the cache. */
void serving_release(serving *s, served *a);

#endif
