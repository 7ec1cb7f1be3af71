#include "lab/bench/cost_fit.h"

#include <math.h>

void cost_fit_add_step(const int32_t *knots, int32_t n, const step_work *w, double *terms) {
    double before = 0;
    for (int32_t i = 0; i < n; i++) {
        double part = i == 0 ? 1 : (w->rows - before) / (knots[i] - before);
        terms[i] += fmax(0, fmin(1, part));
        before = knots[i];
    }
    terms[n + COST_FIT_OUT] += w->out;
    terms[n + COST_FIT_DECODE] += w->decode_pairs;
    terms[n + COST_FIT_PREFILL] += w->prefill_pairs;
}

void cost_fit_fill(const int32_t *knots, int32_t n, const double *factors, cost_model *c) {
    double us = 0;
    c->n_points = n;
    c->out_us = factors[n + COST_FIT_OUT];
    c->decode_pair_us = factors[n + COST_FIT_DECODE];
    c->prefill_pair_us = factors[n + COST_FIT_PREFILL];
    for (int32_t i = 0; i < n; i++) {
        us += factors[i];
        c->rows[i] = knots[i];
        c->us[i] = fmax(us, 1e-3);
    }
}
