#include "lab/sim/cost.h"

#include <assert.h>
#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Published shapes of models. */
typedef struct model_facts {
    const char *name;
    double n_params;
    int32_t n_layers, d_model, n_kv_heads, d_head, max_model_len;
} model_facts;

static const model_facts models[] = {
    {"opt-13b", 12.85e9, 40, 5120, 40, 128, 2048},     {"opt-66b", 65.7e9, 64, 9216, 72, 128, 2048},
    {"opt-175b", 174.6e9, 96, 12288, 96, 128, 2048},   {"llama-7b", 6.74e9, 32, 4096, 32, 128, 2048},
    {"llama-13b", 13.02e9, 40, 5120, 40, 128, 2048},   {"llama-30b", 32.53e9, 60, 6656, 52, 128, 2048},
    {"llama-65b", 65.29e9, 80, 8192, 64, 128, 2048},   {"llama-2-7b", 6.74e9, 32, 4096, 32, 128, 4096},
    {"llama-2-13b", 13.02e9, 40, 5120, 40, 128, 4096}, {"llama-2-70b", 68.98e9, 80, 8192, 8, 128, 4096},
    {"llama-3-8b", 8.03e9, 32, 4096, 8, 128, 8192},    {"llama-3-70b", 70.6e9, 80, 8192, 8, 128, 8192},
};

/* Peak figures of data sheets: memory, its bandwidth, dense 16-bit operations, and the
 * bus to the host in one direction. */
typedef struct device_facts {
    const char *name;
    double bytes, bytes_per_s, operations_per_s, host_bytes_per_s;
} device_facts;

static const device_facts devices[] = {
    {"t4", 16 * 0x1p30, 0.32e12, 65e12, 16e9},          {"l4", 24 * 0x1p30, 0.3e12, 121e12, 32e9},
    {"a100-40gb", 40 * 0x1p30, 1.555e12, 312e12, 32e9}, {"a100-80gb", 80 * 0x1p30, 2.039e12, 312e12, 32e9},
    {"h100-80gb", 80 * 0x1p30, 3.35e12, 989e12, 64e9},  {"h200-141gb", 141 * 0x1p30, 4.8e12, 989e12, 64e9},
};

enum {
    N_MODELS = (int)(sizeof models / sizeof *models),
    N_DEVICES = (int)(sizeof devices / sizeof *devices)
};
enum { BYTES_OF_NUMBER = 2, MAX_DEVICES = 64 }; /* weights, keys and values have 16 bits */

static const double ARITHMETIC_HAD = 0.5, BANDWIDTH_HAD = 0.8, MEMORY_HAD = 0.9;

/* Sets the time by rows: that of the weights' bytes until the rows' products take
 * longer. */
static void describe_rows(const model_facts *m, const device_facts *d, cost_model *c) {
    double weights_us = m->n_params * BYTES_OF_NUMBER / (d->bytes_per_s * BANDWIDTH_HAD) * 1e6;
    double row_us = 2 * m->n_params / (d->operations_per_s * ARITHMETIC_HAD) * 1e6;
    double knee = weights_us / row_us;
    c->n_points = 3;
    c->rows[0] = 0;
    c->us[0] = weights_us;
    c->rows[1] = knee;
    c->us[1] = weights_us;
    c->rows[2] = 2 * knee;
    c->us[2] = 2 * weights_us;
}

static void sim_cost_describe(const model_facts *m, const device_facts *d, cost_model *c) {
    *c = (cost_model){.max_model_len = m->max_model_len};
    (void)snprintf(c->model, sizeof c->model, "%s", m->name);
    (void)snprintf(c->device, sizeof c->device, "%s", d->name);
    describe_rows(m, d, c);
    double token_bytes = 2.0 * m->n_layers * m->n_kv_heads * m->d_head * BYTES_OF_NUMBER;
    double read_us = token_bytes / (d->bytes_per_s * BANDWIDTH_HAD) * 1e6;
    c->token_bytes = (int64_t)token_bytes;
    c->decode_pair_us = read_us;
    /* q k and p v: two operations each */
    c->prefill_pair_us = 4.0 * m->n_layers * m->d_model / (d->operations_per_s * ARITHMETIC_HAD) * 1e6;
    c->copy_us = 2 * read_us;
    c->swap_us = token_bytes / (d->host_bytes_per_s * BANDWIDTH_HAD) * 1e6;
    c->weight_bytes = (int64_t)(m->n_params * BYTES_OF_NUMBER);
    c->kv_tokens = (int64_t)fmax(0, (d->bytes * MEMORY_HAD - m->n_params * BYTES_OF_NUMBER) / token_bytes);
}

/* Parses "h200-141gb" or "4xh200-141gb": that many devices, which share every layer's
 * work, as one with the total memory, bandwidth and arithmetic. Their communication takes
 * no time here. */
static bool find_device(const char *name, device_facts *out) {
    char *end;
    long n = strtol(name, &end, 10);
    bool several = end != name && *end == 'x' && n >= 1 && n <= MAX_DEVICES;
    const char *one = several ? end + 1 : name;
    for (int i = 0; i < N_DEVICES; i++) {
        if (strcmp(one, devices[i].name) == 0) {
            double times = several ? (double)n : 1;
            *out = (device_facts){name, devices[i].bytes * times, devices[i].bytes_per_s * times,
                                  devices[i].operations_per_s * times, devices[i].host_bytes_per_s * times};
            return true;
        }
    }
    return false;
}

static const model_facts *find_model(const char *name) {
    for (int i = 0; i < N_MODELS; i++) {
        if (strcmp(name, models[i].name) == 0) {
            return &models[i];
        }
    }
    return NULL;
}

quire_err cost_describe(const char *model, const char *device, cost_model *out, quire_error *err) {
    const model_facts *m = find_model(model);
    device_facts d = {0};
    bool has_device = find_device(device, &d);
    char names[256] = "";
    for (int i = 0; i < (m == NULL ? N_MODELS : N_DEVICES); i++) {
        size_t n = strlen(names);
        (void)snprintf(names + n, sizeof names - n, "%s%s", i > 0 ? ", " : "",
                       m == NULL ? models[i].name : devices[i].name);
    }
    if (m == NULL || !has_device) {
        return err_set(err, QUIRE_INVALID, -1, "%s %s is not known; there are %s%s",
                       m == NULL ? "model" : "device", m == NULL ? model : device, names,
                       m == NULL ? "" : ", also several, as in 4xa100-40gb");
    }
    sim_cost_describe(m, &d, out);
    if (out->kv_tokens < 1) {
        return err_set(err, QUIRE_INVALID, -1,
                       "%s on %s: its weights take %.1f GB and leave no memory for keys and values", model,
                       device, (double)out->weight_bytes / 1e9);
    }
    return QUIRE_OK;
}

/* Time of a step without attention and logits. */
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

/* Knots up to SINGLE_ROWS are one row apart. */
enum { SINGLE_ROWS = 8, TWELVE = SINGLE_ROWS, FIRST_POWER = 4 }; /* the knot after 12 is 2^FIRST_POWER */

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
    double *const of[] = {&c->out_us, &c->decode_pair_us, &c->prefill_pair_us, &c->copy_us, &c->swap_us};
    const double more[] = {other->out_us, other->decode_pair_us, other->prefill_pair_us, other->copy_us,
                           other->swap_us};
    for (int i = 0; i < 5; i++) {
        *of[i] += (more[i] - *of[i]) / (n + 1);
    }
}

/* ---- fitting ---- */

enum { MAX_ROUNDS = 200000 };

void fit_add(fit *f, const double *terms, double value) {
    for (int32_t i = 0; i < f->n_terms; i++) {
        for (int32_t k = 0; k < f->n_terms; k++) {
            f->products[i][k] += terms[i] / value * (terms[k] / value);
        }
        f->sums[i] += terms[i] / value;
    }
}

/* Moves one factor to where the error is least with the others fixed. Returns the
 * effective change. */
static double improve(const fit *f, int32_t i, double *factors) {
    double rest = f->sums[i];
    for (int32_t k = 0; k < f->n_terms; k++) {
        rest -= k != i ? f->products[i][k] * factors[k] : 0;
    }
    double before = factors[i];
    factors[i] = fmax(0, rest / f->products[i][i]);
    return fabs(factors[i] - before) * sqrt(f->products[i][i]);
}

void fit_solve(const fit *f, double *factors) {
    for (int32_t i = 0; i < f->n_terms; i++) {
        factors[i] = 0;
    }
    double moved = INFINITY;
    for (int32_t round = 0; round < MAX_ROUNDS && moved > 1e-9; round++) {
        moved = 0;
        for (int32_t i = 0; i < f->n_terms; i++) {
            moved = f->products[i][i] > 0 ? fmax(moved, improve(f, i, factors)) : moved;
        }
    }
}

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
