#include "sched/deadline.h"

#include <assert.h>
#include <math.h>

#include "sched/admission_candidates.h"

#define MEASURED  8 /* steps after which the measured costs are used */
#define LONGEST_S 3600

double deadline_foretell_us(const sched_limits *l, const deadline_load *load) {
    double work_us = load->rows * l->cost.row_us + load->pairs * l->cost.pair_us + load->program_us;
    double beside_us =
        sched_predict_us(&l->cost, load->n_decodes, load->decode_pairs) + load->decode_program_us;
    double n_steps = ceil(load->rows / fmax(1.0, l->max_rows - load->n_decodes));
    if (l->target_us > 0.0 && load->n_decodes > 0 && beside_us > 0.0) {
        n_steps = fmax(n_steps, ceil(work_us / fmax(l->target_us - beside_us, beside_us)));
    }
    return work_us + n_steps * beside_us;
}

/* The time that t's attention program, if any, adds to a pair. */
static double added_pair_us(const scheduler *s, const sched_task *t) {
    return t->program != 0 ? program_pair_us(&s->programs, t->program) : 0.0;
}

static void add_prompt(const scheduler *s, deadline_load *load, const sched_task *t, double n_done) {
    double n = (double)t->n_known - n_done, pairs = n * (n_done + (n + 1.0) / 2.0);
    load->rows += n;
    load->pairs += pairs;
    load->program_us += pairs * added_pair_us(s, t);
}

static deadline_load load_of_running(const scheduler *s) {
    deadline_load load = {0};
    for (int32_t i = 0; i < s->n_running; i++) {
        const sched_task *t = s->running[i];
        if (t->n_known - t->kv.n_computed == 1) {
            load.n_decodes++;
            load.decode_pairs += t->n_known;
            load.decode_program_us += t->n_known * added_pair_us(s, t);
        } else {
            add_prompt(s, &load, t, t->kv.n_computed);
        }
    }
    return load;
}

static bool any_deadline(const scheduler *s) {
    for (int32_t i = 0; i < s->n_waiting; i++) {
        if (s->waiting[i]->deadline_us > 0) {
            return true;
        }
    }
    return false;
}

/* Adds the prompt of t to the load before later ones, unless t is late itself: then it is
 * refused, and the result is false. A task that has been admitted is computed to its end
 * even if it is late. */
static bool deadline_pass(scheduler *s, const sched_limits *l, deadline_load *load, sched_task *t,
                          int64_t now_us) {
    deadline_load with = *load;
    add_prompt(s, &with, t, t->n_found);
    double late_us = (double)(now_us - t->deadline_us) + deadline_foretell_us(l, &with);
    if (t->deadline_us > 0 && t->n_admitted == 0 && late_us > 0.0) {
        s->options.hooks->refuse(s->options.context, t,
                                 (int32_t)fmin(LONGEST_S, fmax(1.0, ceil(late_us * 1e-6))));
        return false;
    }
    *load = with;
    return true;
}

int32_t deadline_check(scheduler *s, int64_t now_us) {
    assert(s != NULL);
    int32_t n_refused = 0;
    if (s->step_cost.n_steps < MEASURED || !any_deadline(s)) {
        return 0;
    }
    s->now_us = now_us;
    sched_limits l = s->limits;
    l.cost = step_cost_fit(&s->step_cost);
    deadline_load load = load_of_running(s);
    int32_t n = candidates_order_begin(s);
    for (int32_t k = 0, i; k < CANDIDATES_EXAMINED && (i = candidates_order_next(s, n)) < n; k++) {
        if (deadline_pass(s, &l, &load, s->ordered[i], now_us)) {
            candidates_order_served(s, n, s->ordered[i]);
        } else {
            n_refused++;
        }
    }
    for (int32_t i = 0; i < s->n_waiting; i++) {
        if (i >= n || s->keys[i] == s->keys[i]) { /* not visited yet */
            n_refused += !deadline_pass(s, &l, &load, s->ordered[i], now_us);
        }
    }
    return n_refused;
}
