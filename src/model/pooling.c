/* What follows the pooling of a model's rows: products with few rows each, computed here
 * in f32 under every compute mode. */
#include "model/pooling.h"

#include <assert.h>
#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "base/size.h"
#include "core/math_plain.h"
#include "model/model.h"

#define BLOCK          32        /* outputs that are computed together */
#define LEAST_PRODUCTS (1 << 16) /* of a step that is shared among the compute threads */

/* A step's weights: blocks of BLOCK outputs, each [n_in][BLOCK], so that a block reads
 * memory in order. Outputs past n_out have zeros. */
typedef struct pooled_layer {
    pooled_step step;
    float *weight, *bias; /* bias: an element for each of the row, or NULL */
} pooled_layer;

struct pooled_layers {
    backend *b;
    float norm_eps;
    int32_t n;
    pooled_layer layers[DESC_MAX_POOLED];
    float *rows[2]; /* between steps */
};

/* ---- computing ---- */

static float function_of(row_function f, float x) {
    switch (f) {
    case ROW_TANH:
        return plain_tanh(x);
    case ROW_GELU:
        return plain_gelu(x);
    case ROW_RELU:
        return plain_relu(x);
    case ROW_SIGMOID:
        return plain_sigmoid(x);
    default:
        return x;
    }
}

typedef struct product {
    const pooled_layer *l;
    const float *x;
    float *y;
} product;

/* One block of outputs: each a sum over k in ascending order, then the bias. */
static void run_block(void *context, int32_t block, int32_t worker) {
    const product *p = context;
    const pooled_step *s = &p->l->step;
    const float *w = p->l->weight + (size_t)block * (size_t)s->n_in * BLOCK;
    int32_t first = block * BLOCK, n = s->n_out - first < BLOCK ? s->n_out - first : BLOCK;
    float sums[BLOCK] = {0};
    (void)worker;
    for (int32_t k = 0; k < s->n_in; k++) {
        for (int i = 0; i < BLOCK; i++) {
            sums[i] += p->x[k] * w[(size_t)k * BLOCK + (size_t)i];
        }
    }
    for (int32_t i = 0; i < n; i++) {
        float bias = p->l->bias != NULL ? p->l->bias[first + i] : 0.0f;
        p->y[first + i] = function_of(s->f, sums[i] + bias);
    }
}

static void run_dense(backend *b, const pooled_layer *l, const float *x, float *y) {
    product p = {l, x, y};
    int32_t n = (l->step.n_out + BLOCK - 1) / BLOCK;
    if (b->ops->run_tasks != NULL && (int64_t)l->step.n_in * l->step.n_out >= LEAST_PRODUCTS) {
        b->ops->run_tasks(b, run_block, &p, n);
        return;
    }
    for (int32_t i = 0; i < n; i++) {
        run_block(&p, i, 0);
    }
}

void row_divide_by_length(float *row, int32_t n) {
    double sum = 0.0;
    for (int32_t i = 0; i < n; i++) {
        sum += (double)row[i] * (double)row[i];
    }
    double length = sqrt(sum);
    for (int32_t i = 0; i < n && length > 0.0; i++) {
        row[i] = (float)((double)row[i] / length);
    }
}

/* In double, so that the order of a sum matters little; it is fixed all the same. */
static void run_norm(const pooled_layer *l, float eps, const float *x, int32_t n, float *y) {
    double mean = 0.0, square = 0.0;
    for (int32_t i = 0; i < n; i++) {
        mean += (double)x[i] / (double)n;
    }
    for (int32_t i = 0; i < n; i++) {
        square += ((double)x[i] - mean) * ((double)x[i] - mean) / (double)n;
    }
    double scale = 1.0 / sqrt(square + (double)eps);
    for (int32_t i = 0; i < n; i++) {
        float unit = (float)(((double)x[i] - mean) * scale);
        y[i] = function_of(l->step.f, unit * l->weight[i] + (l->bias != NULL ? l->bias[i] : 0.0f));
    }
}

static void run_softmax(const float *x, int32_t n, float *y) {
    float top = x[0], sum = 0.0f;
    for (int32_t i = 1; i < n; i++) {
        top = plain_max(top, x[i]);
    }
    for (int32_t i = 0; i < n; i++) {
        y[i] = plain_exp(x[i] - top);
        sum += y[i];
    }
    for (int32_t i = 0; i < n; i++) {
        y[i] /= sum;
    }
}

void pooling_apply(const pooled_layers *p, int32_t width, const float *row, float *out) {
    const float *x = row;
    for (int32_t i = 0; p != NULL && i < p->n; i++) {
        const pooled_layer *l = &p->layers[i];
        float *y = p->rows[i % 2];
        switch (l->step.kind) {
        case POOLED_DENSE:
            run_dense(p->b, l, x, y);
            width = l->step.n_out;
            break;
        case POOLED_LENGTH:
            memcpy(y, x, (size_t)width * sizeof *y);
            row_divide_by_length(y, width);
            break;
        case POOLED_NORM:
            run_norm(l, p->norm_eps, x, width, y);
            break;
        case POOLED_SOFTMAX:
            run_softmax(x, width, y);
            break;
        }
        x = y;
    }
    memcpy(out, x, (size_t)width * sizeof *out);
}

/* ---- loading ---- */

/* Copies rows [n_out, n_in] into blocks. */
static quire_err pack(loader *l, const pooled_step *s, const float *rows, float **out) {
    size_t n_blocks = ((size_t)s->n_out + BLOCK - 1) / BLOCK, n;
    float *w = size_mul(n_blocks * BLOCK, (size_t)s->n_in, &n) ? mem_new(n, sizeof *w) : NULL;
    if (w == NULL) {
        return err_set(l->err, QUIRE_NO_MEMORY, -1, "out of memory while loading");
    }
    for (size_t r = 0; r < (size_t)s->n_out; r++) {
        float *block = w + r / BLOCK * (size_t)s->n_in * BLOCK + r % BLOCK;
        for (size_t k = 0; k < (size_t)s->n_in; k++) {
            block[k * BLOCK] = rows[r * (size_t)s->n_in + k];
        }
    }
    *out = w;
    return QUIRE_OK;
}

/* A product's weights and bias, or a norm's, whose rows have `width` elements. */
static quire_err load_layer(loader *l, int32_t width, pooled_layer *layer) {
    const pooled_step *s = &layer->step;
    const weight_name name = {s->name, s->name};
    int32_t n = s->kind == POOLED_DENSE ? s->n_out : width;
    if (s->kind == POOLED_DENSE) {
        float *rows;
        TRY(loader_matrix(l, name, NO_LAYER, ".weight", s->n_out, s->n_in, &rows));
        quire_err e = pack(l, s, rows, &layer->weight);
        mem_free(rows);
        TRY(e);
    } else {
        TRY(loader_need_vector(l, name, ".weight", n, &layer->weight));
    }
    return s->has_bias        ? loader_need_vector(l, name, ".bias", n, &layer->bias)
           : s->may_have_bias ? loader_vector(l, name, NO_LAYER, ".bias", n, &layer->bias)
                              : QUIRE_OK;
}

static quire_err load_all(loader *l, const model_desc *d, pooled_layers *p) {
    int32_t width = d->d_model, widest = width;
    p->b = l->b;
    p->norm_eps = d->norm_eps;
    for (int32_t i = 0; i < d->pooling.n_steps; i++) {
        const pooled_step *s = &d->pooling.steps[i];
        p->layers[p->n++].step = *s;
        if (s->kind == POOLED_DENSE || s->kind == POOLED_NORM) {
            TRY(load_layer(l, width, &p->layers[i]));
        }
        width = s->kind == POOLED_DENSE ? s->n_out : width;
        widest = width > widest ? width : widest;
    }
    for (int i = 0; i < 2; i++) {
        p->rows[i] = mem_new((size_t)widest, sizeof(float));
        if (p->rows[i] == NULL) {
            TRY(err_set(l->err, QUIRE_NO_MEMORY, -1, "out of memory while loading"));
        }
    }
    return QUIRE_OK;
}

quire_err pooling_load(loader *l, const model_desc *d, pooled_layers **out) {
    assert(d != NULL);
    *out = NULL;
    if (d->pooling.n_steps == 0) {
        return QUIRE_OK;
    }
    pooled_layers *p = mem_new(1, sizeof *p);
    if (p == NULL) {
        TRY(err_set(l->err, QUIRE_NO_MEMORY, -1, "out of memory while loading"));
    }
    quire_err e = load_all(l, d, p);
    if (e != QUIRE_OK) {
        pooling_close(p);
        return e;
    }
    *out = p;
    return QUIRE_OK;
}

void pooling_close(pooled_layers *p) {
    for (int32_t i = 0; p != NULL && i < p->n; i++) {
        mem_free(p->layers[i].weight);
        mem_free(p->layers[i].bias);
    }
    if (p != NULL) {
        mem_free(p->rows[0]);
        mem_free(p->rows[1]);
    }
    mem_free(p);
}
