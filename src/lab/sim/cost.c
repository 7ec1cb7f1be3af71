#include "lab/sim/cost.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

/* Published shapes. */
typedef struct model_facts {
    const char *name;
    double n_params;
    int32_t n_layers, d_model, n_kv_heads, d_head, weight_bytes, kv_bytes, max_model_len; /* bytes of a weight; of an element of K or V */
} model_facts;

static const model_facts models[] = {
    {"opt-13b", 12.85e9, 40, 5120, 40, 128, 2, 2, 2048},
    {"opt-66b", 65.7e9, 64, 9216, 72, 128, 2, 2, 2048},
    {"llama-2-7b", 6.74e9, 32, 4096, 32, 128, 2, 2, 4096},
    {"llama-3-8b", 8.03e9, 32, 4096, 8, 128, 2, 2, 8192},
    {"llama-3-70b", 70.6e9, 80, 8192, 8, 128, 2, 2, 8192},
};

/* Peak figures of the makers' data sheets: memory, its bandwidth, dense 16-bit operations; n devices count as one. */
typedef struct device_facts {
    const char *name;
    double bytes, bytes_per_s, operations_per_s;
} device_facts;

static const device_facts devices[] = {
    {"a100-40gb", 40 * 0x1p30, 1.555e12, 312e12},    {"a100-80gb", 80 * 0x1p30, 2.039e12, 312e12},
    {"4xa100-40gb", 160 * 0x1p30, 6.22e12, 1248e12}, {"8xa100-80gb", 640 * 0x1p30, 16.3e12, 2496e12},
    {"h100-80gb", 80 * 0x1p30, 3.35e12, 989e12},
};

enum { N_MODELS = (int)(sizeof models / sizeof *models), N_DEVICES = (int)(sizeof devices / sizeof *devices) };

static const double ARITHMETIC_HAD = 0.5, BANDWIDTH_HAD = 0.8, MEMORY_HAD = 0.9;

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
    return base_us(c, w->rows) + w->out * c->out_us + w->decode_pairs * c->decode_pair_us + w->prefill_pairs * c->prefill_pair_us +
           w->copied * c->copy_us;
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
    c->request_us += (other->request_us - c->request_us) / (n + 1);
}

/* Time by rows: the weights' bytes, until the rows' products take longer. */
static void describe_rows(const model_facts *m, const device_facts *d, cost_model *c) {
    double weights_us = m->n_params * m->weight_bytes / (d->bytes_per_s * BANDWIDTH_HAD) * 1e6;
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

static void describe(const model_facts *m, const device_facts *d, cost_model *c) {
    *c = (cost_model){.max_model_len = m->max_model_len};
    snprintf(c->model, sizeof c->model, "%s", m->name);
    snprintf(c->device, sizeof c->device, "%s", d->name);
    describe_rows(m, d, c);
    double token_bytes = 2.0 * m->n_layers * m->n_kv_heads * m->d_head * m->kv_bytes;
    double read_us = token_bytes / (d->bytes_per_s * BANDWIDTH_HAD) * 1e6;
    c->token_bytes = (int64_t)token_bytes;
    c->decode_pair_us = read_us;
    /* q k and p v: two operations each */
    c->prefill_pair_us = 4.0 * m->n_layers * m->d_model / (d->operations_per_s * ARITHMETIC_HAD) * 1e6;
    c->copy_us = 2 * read_us;
    c->kv_tokens = (int64_t)fmax(0, (d->bytes * MEMORY_HAD - m->n_params * m->weight_bytes) / token_bytes);
}

quire_err cost_describe(const char *model, const char *device, cost_model *out, quire_error *err) {
    const model_facts *m = NULL;
    const device_facts *d = NULL;
    char names[256] = "";
    for (int i = 0; i < N_MODELS; i++) {
        m = strcmp(model, models[i].name) == 0 ? &models[i] : m;
    }
    for (int i = 0; i < N_DEVICES; i++) {
        d = strcmp(device, devices[i].name) == 0 ? &devices[i] : d;
    }
    for (int i = 0; i < (m == NULL ? N_MODELS : N_DEVICES); i++) {
        size_t n = strlen(names);
        snprintf(names + n, sizeof names - n, "%s%s", i > 0 ? ", " : "", m == NULL ? models[i].name : devices[i].name);
    }
    if (m == NULL || d == NULL) {
        return err_set(err, QUIRE_INVALID, -1, "--described %s,%s: the known %s are %s; or give a measured --cost FILE", model, device,
                       m == NULL ? "models" : "devices", names);
    }
    describe(m, d, out);
    if (out->kv_tokens < 1) {
        return err_set(err, QUIRE_INVALID, -1, "--described %s,%s: its weights take %.1f GB and leave no memory for keys and values", model,
                       device, m->n_params * m->weight_bytes / 1e9);
    }
    return QUIRE_OK;
}
