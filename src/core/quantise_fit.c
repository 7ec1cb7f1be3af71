#include "core/quantise_fit.h"

#include <math.h>
#include <string.h>

#include "core/quant.h"

/* relative variance of numbers below which they are taken for equal, and leave the min
 * open */
#define EQUAL 1e-5f

static float add_lanes(const float a[FIT_LANES]) {
    return ((a[0] + a[4]) + (a[2] + a[6])) + ((a[1] + a[5]) + (a[3] + a[7]));
}

void fit_weigh(const float *x, int n, float *weights) {
    float squares[FIT_LANES] = {0};
    for (int i = 0; i < n; i += FIT_LANES) {
        for (int k = 0; k < FIT_LANES; k++) {
            squares[k] += x[i + k] * x[i + k];
        }
    }
    const float root = sqrtf(add_lanes(squares) / (float)n);
    for (int i = 0; i < n; i++) {
        weights[i] = root + fabsf(x[i]);
    }
}

/* ---- numbers ---- */

/* The number of the table nearest to x: it starts from the lowest and takes a step for
 * each midpoint below x. */
static void look_up(const float *x, float inverse, int n, float *numbers) {
    static const float middles[15] = {-115.5f, -93.5f, -74.0f, -57.0f, -42.0f, -28.5f, -16.0f, -4.5f,
                                      7.0f,    19.0f,  31.5f,  45.5f,  61.0f,  79.0f,  101.0f};
    static const float steps[15] = {23.0f, 21.0f, 18.0f, 16.0f, 14.0f, 13.0f, 12.0f, 11.0f,
                                    12.0f, 12.0f, 13.0f, 15.0f, 16.0f, 20.0f, 24.0f};
    for (int i = 0; i < n; i += FIT_LANES) {
        float sums[FIT_LANES], scaled[FIT_LANES];
        for (int k = 0; k < FIT_LANES; k++) {
            scaled[k] = x[i + k] * inverse;
            sums[k] = -127.0f;
        }
        for (int t = 0; t < 15; t++) {
            for (int k = 0; k < FIT_LANES; k++) {
                sums[k] += scaled[k] > middles[t] ? steps[t] : 0.0f;
            }
        }
        memcpy(numbers + i, sums, sizeof sums);
    }
}

/* The numbers of n elements under a scale of 1 / inverse. */
static void quantise_fit_round_all(const fit_codes *c, float inverse, float min, const float *x, int n,
                                   float *numbers) {
    if (c->is_table) {
        look_up(x, inverse, n, numbers);
        return;
    }
    for (int i = 0; i < n; i++) {
        numbers[i] = fit_nearest((x[i] + min) * inverse, -c->low, c->top);
    }
}

static float inverse_of(float scale) {
    return scale != 0.0f ? 1.0f / scale : 0.0f;
}

float fit_round(const fit_codes *c, const fit *f, const float *x, const float *weights, int n,
                float *numbers) {
    float errors[FIT_LANES] = {0};
    quantise_fit_round_all(c, inverse_of(f->scale), f->min, x, n, numbers);
    for (int i = 0; i < n; i += FIT_LANES) {
        for (int k = 0; k < FIT_LANES; k++) {
            const float error = f->scale * numbers[i + k] - f->min - x[i + k];
            errors[k] += weights[i + k] * error * error;
        }
    }
    return add_lanes(errors);
}

/* ---- least squares ---- */

/* Weighted sums over a group: of 1, x, number, number^2, x * number. */
typedef struct fit_sums {
    float w, x, q, qq, xq;
} fit_sums;

static fit_sums sum_all(const float *x, const float *weights, const float *numbers, int n) {
    float w[FIT_LANES] = {0}, wx[FIT_LANES] = {0}, q[FIT_LANES] = {0}, qq[FIT_LANES] = {0},
          xq[FIT_LANES] = {0};
    for (int i = 0; i < n; i += FIT_LANES) {
        for (int k = 0; k < FIT_LANES; k++) {
            const float weighted = weights[i + k] * numbers[i + k];
            w[k] += weights[i + k];
            wx[k] += weights[i + k] * x[i + k];
            q[k] += weighted;
            qq[k] += weighted * numbers[i + k];
            xq[k] += weighted * x[i + k];
        }
    }
    return (fit_sums){add_lanes(w), add_lanes(wx), add_lanes(q), add_lanes(qq), add_lanes(xq)};
}

/* The scale, and min where there is one, that are best for given numbers. A min alone
 * where all numbers are 0. */
static fit solve(const fit_codes *c, const fit_sums *s) {
    const float whole = s->w * s->qq, determinant = whole - s->q * s->q;
    if (c->has_min && s->qq == 0.0f && s->x < 0.0f) {
        return (fit){0.0f, -s->x / s->w};
    }
    if (c->has_min && determinant > EQUAL * whole) {
        const float min = (s->q * s->xq - s->qq * s->x) / determinant;
        if (min > 0.0f) {
            return (fit){(s->w * s->xq - s->x * s->q) / determinant, min};
        }
    }
    return (fit){s->qq > 0.0f ? s->xq / s->qq : 0.0f, 0.0f};
}

/* ---- the search ---- */

typedef struct search {
    const fit_codes *c;
    const float *x, *weights;
    int n;
    fit best;
    float gain;
} search;

/* Tries the numbers of a first guess, with the scale that is best for them: the error is
 * then the weighted squares of x less `gain`. */
static void try_guess(search *s, float inverse, float min) {
    float numbers[FIT_MOST];
    quantise_fit_round_all(s->c, inverse, min, s->x, s->n, numbers);
    const fit_sums sums = sum_all(s->x, s->weights, numbers, s->n);
    const fit found = solve(s->c, &sums);
    const float gain = found.scale * sums.xq - found.min * sums.x;
    if (gain > s->gain && (found.scale >= 0.0f || !s->c->has_min)) {
        s->best = found;
        s->gain = gain;
    }
}

/* The least and the greatest element, and 0. */
static void find_range(const float *x, int n, float *least, float *greatest) {
    *least = *greatest = 0.0f;
    for (int i = 0; i < n; i++) {
        *least = x[i] < *least ? x[i] : *least;
        *greatest = x[i] > *greatest ? x[i] : *greatest;
    }
}

/* Ranges of codes that are stretched or cut by so much are tried. */
static const float stretches[] = {-0.9f, -0.6f, -0.3f, 0.0f, 0.3f, 0.6f, 0.9f, 1.2f};

#define N_STRETCHES (sizeof stretches / sizeof *stretches)

fit fit_find(const fit_codes *c, const float *x, const float *weights, int n) {
    float least, greatest;
    find_range(x, n, &least, &greatest);
    const float extreme = greatest > -least ? greatest : least;
    search s = {.c = c, .x = x, .weights = weights, .n = n};
    if (!(greatest - least > 0.0f)) {
        return s.best;
    }
    for (size_t i = 0; i < N_STRETCHES; i++) {
        if (c->has_min) {
            try_guess(&s, (c->top + stretches[i]) / (greatest - least), -least);
        } else {
            const float unit = c->is_table ? 16.0f : 1.0f;
            try_guess(&s, -(c->low + unit * stretches[i]) / extreme, 0.0f);
        }
    }
    return s.best;
}
