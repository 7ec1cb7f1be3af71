#include "engine/deadline.h"

#include <math.h>

#include "engine/admission_candidates.h"
#include "engine/lists.h"

#define MEASURED    8 /* steps after which the measured costs are used */
#define LONGEST_S   3600

double deadline_foretell_us(const sched_limits *l, const deadline_load *load) {
    double work_us = load->rows * l->cost.row_us + load->pairs * l->cost.pair_us;
    double beside_us = sched_predict_us(&l->cost, load->n_decodes, load->decode_pairs);
    double n_steps = ceil(load->rows / fmax(1.0, l->max_rows - load->n_decodes));
    if (l->target_us > 0.0 && load->n_decodes > 0 && beside_us > 0.0) {
        n_steps = fmax(n_steps, ceil(work_us / fmax(l->target_us - beside_us, beside_us)));
    }
    return work_us + n_steps * beside_us;
}

static void add_prompt(deadline_load *load, double n_done, double n_known) {
    double n = n_known - n_done;
    load->rows += n;
    load->pairs += n * (n_done + (n + 1.0) / 2.0);
}

static deadline_load load_of_running(const engine *e) {
    deadline_load load = {0};
    for (int32_t i = 0; i < e->n_running; i++) {
        const sequence *s = e->running[i];
        if (s->task.n_known - s->task.kv.n_computed == 1) {
            load.n_decodes++;
            load.decode_pairs += s->task.n_known;
        } else {
            add_prompt(&load, s->task.kv.n_computed, s->task.n_known);
        }
    }
    return load;
}

/* Ends s and all samples of its prompt. */
static void refuse(engine *e, sequence *s, double late_us) {
    int32_t after_s = (int32_t)fmin(LONGEST_S, fmax(1.0, ceil(late_us * 1e-6)));
    while (s->next_child != NULL) {
        sequence *next = s->next_child;
        s->next_child = next->next_child;
        next->next_child = NULL;
        next->retry_after_s = after_s;
        step_finish(e, next, FINISH_ERROR, QUIRE_BUSY);
        sequence_drop(next);
    }
    s->retry_after_s = after_s;
    step_finish(e, s, FINISH_ERROR, QUIRE_BUSY);
    e->stats.deadlines_refused++;
}

static bool any_deadline(const engine *e) {
    for (int32_t i = 0; i < e->n_waiting; i++) {
        if (e->waiting[i]->task.deadline_us > 0) {
            return true;
        }
    }
    return false;
}

/* Adds the prompt of s to the load before later ones, unless s is late itself: then it is refused, and the result is false. One that was
 * admitted once is computed to its end, late or not. */
static bool pass(engine *e, const sched_limits *l, deadline_load *load, sequence *s, int64_t now_us) {
    deadline_load with = *load;
    add_prompt(&with, s->task.n_found, s->task.n_known);
    double late_us = (double)(now_us - s->task.deadline_us) + deadline_foretell_us(l, &with);
    if (s->task.deadline_us > 0 && s->task.n_admitted == 0 && late_us > 0.0) {
        refuse(e, s, late_us);
        return false;
    }
    *load = with;
    return true;
}

void deadline_check(engine *e, int64_t now_us) {
    if (e->step_cost.n_steps < MEASURED || !any_deadline(e)) {
        return;
    }
    sched_limits l = e->limits;
    l.cost = step_cost_fit(&e->step_cost);
    deadline_load load = load_of_running(e);
    int32_t n = candidates_order_begin(e);
    for (int32_t k = 0, i; k < CANDIDATES_EXAMINED && (i = candidates_order_next(e, n)) < n; k++) {
        if (pass(e, &l, &load, e->waiting[i], now_us)) {
            candidates_order_served(e, n, e->waiting[i]);
        }
    }
    for (int32_t i = 0; i < e->n_waiting; i++) {
        if (i >= n || e->step.keys[i] == e->step.keys[i]) { /* not visited yet */
            (void)pass(e, &l, &load, e->waiting[i], now_us);
        }
    }
    list_drop_done(e->waiting, &e->n_waiting);
}
