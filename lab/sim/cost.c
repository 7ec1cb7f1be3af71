#include "lab/sim/cost.h"

#include <assert.h>
#include <math.h>

/* Time of the step but for attention and logits. */
static double base_us(const cost_model *c, double rows) {
    int32_t i = 1;
    while (i < c->n_points - 1 && c->rows[i] < rows) {
        i++;
    }
    double slope = (c->us[i] - c->us[i - 1]) / (c->rows[i] - c->rows[i - 1]);
    return c->us[i - 1] + slope * fmax(0, rows - c->rows[i - 1]);
}

double cost_of(const cost_model *c, const step_work *w) {
    return base_us(c, w->rows) + w->out * c->out_us + w->decode_pairs * c->decode_pair_us +
           w->prefill_pairs * c->prefill_pair_us + w->copied * c->copy_us + w->swapped * c->swap_us;
}

/* Knots up to SINGLE_ROWS lie one apart. */
enum { SINGLE_ROWS = 8, TWELVE = SINGLE_ROWS, FIRST_POWER = 4 }; /* 2^FIRST_POWER comes behind 12 */

int32_t cost_knot(int32_t i) {
    return i < SINGLE_ROWS ? i + 1 : i == TWELVE ? 12 : 1 << (i - TWELVE - 1 + FIRST_POWER);
}

int32_t cost_knot_before(double rows, double *part) {
    int32_t i = 0;
    while (i < COST_N_KNOTS - 2 && cost_knot(i + 1) <= rows) {
        i++;
    }
    *part = fmax(0, (rows - cost_knot(i)) / (cost_knot(i + 1) - cost_knot(i)));
    return i;
}

int32_t cost_knots_until(int32_t most, int32_t *knots) {
    int32_t n = 0;
    while (n < COST_MAX_POINTS - 1 && cost_knot(n) < most) {
        knots[n] = cost_knot(n);
        n++;
    }
    knots[n++] = most;
    return n;
}

void cost_mean(cost_model *c, int32_t n, const cost_model *other) {
    if (n == 0) {
        *c = *other;
        return;
    }
    assert(c->n_points == other->n_points);
    for (int32_t i = 0; i < c->n_points; i++) {
        assert(c->rows[i] == other->rows[i]);
        c->us[i] += (other->us[i] - c->us[i]) / (n + 1);
    }
    c->out_us += (other->out_us - c->out_us) / (n + 1);
    c->decode_pair_us += (other->decode_pair_us - c->decode_pair_us) / (n + 1);
    c->prefill_pair_us += (other->prefill_pair_us - c->prefill_pair_us) / (n + 1);
    c->copy_us += (other->copy_us - c->copy_us) / (n + 1);
    c->swap_us += (other->swap_us - c->swap_us) / (n + 1);
    c->request_us += (other->request_us - c->request_us) / (n + 1);
}
