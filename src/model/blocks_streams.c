/* Several residual streams (AltUp: Baykal et al. 2023, arXiv:2301.13310), and a low-rank
 * product beside attention (LAuReL: Menghani et al. 2024, arXiv:2411.07501). Gemma 3n has
 * both.
 *
 * Before a layer each stream i gets a prediction p_i = s_i + sum over j of c_ij s_j. The
 * layer computes with that of the active stream; afterwards every stream is p_i + (c_i +
 * 1) times (the layer's result - the active prediction). Coefficients are products of m =
 * tanh(router(norm(x) / D)), where x is the active stream or the layer's result. */
#include <assert.h>
#include <math.h>

#include "model/decoder.h"

#define MAGNITUDE_EPS 1e-12f

static quire_err streams_buffer(binding *b, buffer_role role, int32_t i, buffer *out) {
    return binding_buffer(b, role + (buffer_role)i, b->d->d_model, out);
}

/* Makes a norm with the given weights. */
static quire_err streams_norm(binding *b, norm_kind kind, float eps, const float *weights, norm **out) {
    const int32_t width = b->d->d_model;
    const tensor_view view = {.name = "a norm of streams",
                              .type = DTYPE_F32,
                              .n_dims = 1,
                              .dims = {width, 1, 1, 1},
                              .data = weights,
                              .n_bytes = (size_t)width * sizeof *weights};
    const norm_spec spec = {
        .kind = kind, .width = width, .eps = eps, .weight = weights != NULL ? &view : NULL};
    return b->l->b->ops->norm_load(b->l->b, &spec, out, b->l->err);
}

/* ---- coefficients ---- */

/* Computes a row's coefficients: n modes and, from them, n_out numbers. */
typedef struct stream_coefficients {
    norm *nm;
    linear *router, *of_modes;
    buffer from, modes, out;
} stream_coefficients;

static quire_err coefficients_load(binding *b, weight_role role, int32_t n_out, stream_coefficients *c) {
    const int32_t n = b->d->streams.n, width = b->d->d_model;
    float *weights;
    TRY(binding_vector(b, W_STREAM_NORM, ".weight", "norm before its streams' router", width, &weights));
    for (int32_t i = 0; i < width; i++) {
        weights[i] /= (float)width;
    }
    TRY(streams_norm(b, NORM_RMS, b->d->norm_eps, weights, &c->nm));
    /* both steps of a layer load it: a packed model has a name for each */
    const weight_part part = {
        .suffix = role == W_STREAM_PREDICT ? "predict" : "correct", .n_rows = n, .block = n, .step = n};
    TRY(loader_router_part(b->l, binding_name(b, W_STREAM_ROUTER), b->layer, &part, n, width, &c->router));
    TRY(loader_router(b->l, binding_name(b, role), b->layer, n_out, n, &c->of_modes));
    TRY(binding_buffer(b, BUFFER_MODES, n, &c->modes));
    return binding_buffer(b, BUFFER_COEFFICIENTS, n_out, &c->out);
}

static void coefficients_run(const pass *p, const stream_coefficients *c) {
    p->op->feed_forward(
        p->b, &(feed_forward_use){.x = c->from, .nm = c->nm, .up = c->router, .f = ACT_TANH, .h = c->modes});
    p->op->norm_linears(p->b, c->modes, NULL, &(linear_use){c->of_modes, c->out}, 1);
}

/* out = or += x times the coefficient in a column. */
static void coefficients_weigh(const pass *p, const stream_coefficients *c, int32_t column, bool adds,
                               buffer x, buffer out) {
    p->op->multiply(p->b, &(multiply_use){.f = ACT_NONE,
                                          .gate = c->out,
                                          .x = x,
                                          .gate_column = column,
                                          .n_gates = 1,
                                          .adds = adds,
                                          .out = out});
}

/* ---- a layer ---- */

typedef struct stream_step {
    stream_coefficients c;
    norm *scale; /* norm of the new residual, with weights of 1 if the file has none */
    buffer streams[DESC_MAX_STREAMS], predictions[DESC_MAX_STREAMS], x;
} stream_step;

static quire_err stream_step_new(binding *b, weight_role role, int32_t n_out, stream_step **out) {
    stream_step *s;
    TRY(binding_new(b, 1, sizeof *s, &s));
    for (int32_t i = 0; i < b->d->streams.n; i++) {
        TRY(streams_buffer(b, BUFFER_STREAM, i, &s->streams[i]));
        TRY(streams_buffer(b, BUFFER_PREDICTION, i, &s->predictions[i]));
    }
    TRY(binding_row(b, X, &s->x));
    TRY(coefficients_load(b, role, n_out, &s->c));
    *out = s;
    return QUIRE_OK;
}

static void predict_run(const pass *p, const decoder_op *o) {
    const stream_step *s = o->own;
    const int32_t n = p->d->streams.n;
    coefficients_run(p, &s->c);
    for (int32_t i = 0; i < n; i++) {
        for (int32_t j = 0; j < n; j++) {
            coefficients_weigh(p, &s->c, i * n + j, j > 0, s->streams[j], s->predictions[i]);
        }
        p->op->norm_add(p->b, s->streams[i], NULL, 1.0f, s->predictions[i]);
    }
    p->op->norm_rows(p->b, s->predictions[p->d->streams.active], s->scale, s->x);
}

quire_err predict_bind(binding *b, const layer_step *step) {
    assert(step != NULL);
    const streams_desc *d = &b->d->streams;
    stream_step *s;
    assert(step->to == X);
    TRY(stream_step_new(b, W_STREAM_PREDICT, d->n * d->n, &s));
    s->c.from = s->streams[d->active];
    TRY(streams_norm(b, NORM_SCALE, 0.0f, NULL, &s->scale));
    b->rows[X] = (row_value){.at = s->x};
    return binding_emit(b, (decoder_op){.run = predict_run, .own = s});
}

static void correct_run(const pass *p, const decoder_op *o) {
    const stream_step *s = o->own;
    const streams_desc *d = &p->d->streams;
    coefficients_run(p, &s->c);
    p->op->norm_add(p->b, s->predictions[d->active], NULL, -1.0f, s->x);
    for (int32_t i = 0; i < d->n; i++) {
        coefficients_weigh(p, &s->c, i, false, s->x, s->streams[i]);
        p->op->norm_add(p->b, s->x, NULL, 1.0f, s->streams[i]);
        p->op->norm_add(p->b, s->predictions[i], NULL, 1.0f, s->streams[i]);
    }
    p->op->norm_rows(p->b, s->streams[d->active], s->scale, s->x);
}

quire_err correct_bind(binding *b, const layer_step *step) {
    assert(step != NULL);
    const streams_desc *d = &b->d->streams;
    stream_step *s;
    float *scale = NULL;
    assert(step->to == X);
    TRY(binding_settle(b, X));
    TRY(stream_step_new(b, W_STREAM_CORRECT, d->n, &s));
    s->c.from = s->x;
    if (d->scales_output) {
        TRY(binding_vector(b, W_STREAM_SCALE, "", "scale of its corrected stream", b->d->d_model, &scale));
    } else {
        const tensor_view *unread;
        TRY(loader_find(b->l, binding_name(b, W_STREAM_SCALE), b->layer, "", &unread));
    }
    TRY(streams_norm(b, NORM_SCALE, 0.0f, scale, &s->scale));
    return binding_emit(b, (decoder_op){.run = correct_run, .own = s});
}

/* Writes the streams, for an op that reads a row beside them. */
static void spread_run(const pass *p, const decoder_op *o) {
    const buffer *streams = o->own;
    for (int32_t i = 1; i < p->d->streams.n; i++) {
        p->op->norm_add(p->b, o->in, o->nm, 1.0f, streams[i]);
    }
}

quire_err spread_bind(binding *b, const layer_step *step) {
    buffer *streams;
    row_value in;
    TRY(binding_new(b, DESC_MAX_STREAMS, sizeof *streams, &streams));
    for (int32_t i = 0; i < b->d->streams.n; i++) {
        TRY(streams_buffer(b, BUFFER_STREAM, i, &streams[i]));
    }
    TRY(binding_read(b, step->from, &in));
    return binding_emit(b, (decoder_op){.run = spread_run, .in = in.at, .nm = in.nm, .own = streams});
}

typedef struct laurel {
    linear *left, *right;
    norm *nm, *copy;
    buffer low, branch;
} laurel;

/* out = row + norm(row left^T right^T). */
static void laurel_run(const pass *p, const decoder_op *o) {
    const laurel *l = o->own;
    p->op->norm_linears(p->b, o->in, o->nm, &(linear_use){l->left, l->low}, 1);
    p->op->norm_linears(p->b, l->low, NULL, &(linear_use){l->right, l->branch}, 1);
    p->op->norm_rows(p->b, o->in, o->nm != NULL ? o->nm : l->copy, o->out);
    p->op->norm_add(p->b, l->branch, l->nm, 1.0f, o->out);
}

quire_err laurel_bind(binding *b, const layer_step *s) {
    assert(b != NULL);
    const int32_t rank = b->d->streams.d_laurel, width = b->d->d_model;
    laurel *l;
    row_value in;
    buffer out;
    TRY(binding_new(b, 1, sizeof *l, &l));
    TRY(binding_linear(b, W_LAUREL_LEFT, rank, width, &l->left));
    TRY(binding_linear(b, W_LAUREL_RIGHT, width, rank, &l->right));
    TRY(binding_norm(b, W_LAUREL_NORM, false, &l->nm));
    TRY(streams_norm(b, NORM_SCALE, 0.0f, NULL, &l->copy));
    TRY(binding_buffer(b, BUFFER_LOW, rank, &l->low));
    TRY(binding_buffer(b, BUFFER_PROJECTED, width, &l->branch));
    TRY(binding_read(b, s->from, &in));
    TRY(binding_row(b, s->to, &out));
    b->rows[s->to] = (row_value){.at = out};
    return binding_emit(b, (decoder_op){.run = laurel_run, .in = in.at, .nm = in.nm, .out = out, .own = l});
}

/* How much of each element a residual keeps, and how much it takes. */
typedef struct blend {
    norm *keep, *take;
} blend;

static void blend_run(const pass *p, const decoder_op *o) {
    const blend *m = o->own;
    p->op->norm_rows(p->b, o->out, m->keep, o->out);
    p->op->norm_add(p->b, o->in, m->take, 1.0f, o->out);
}

quire_err blend_bind(binding *b, const layer_step *s) {
    assert(b != NULL && s != NULL);
    const int32_t width = b->d->d_model;
    blend *m;
    float *take, *keep;
    TRY(binding_settle(b, s->from));
    TRY(binding_settle(b, s->to));
    TRY(binding_new(b, 1, sizeof *m, &m));
    TRY(binding_new(b, (size_t)width, sizeof *keep, &keep));
    TRY(binding_vector(b, s->norm, "", "gate of its residual", width, &take));
    for (int32_t i = 0; i < width; i++) {
        double part = 1.0 / (1.0 + exp(-(double)take[i] / (double)b->d->blend_temperature));
        take[i] = (float)part;
        keep[i] = (float)sqrt(fmax(1.0 - part * part, 0.0));
    }
    TRY(streams_norm(b, NORM_SCALE, 0.0f, keep, &m->keep));
    TRY(streams_norm(b, NORM_SCALE, 0.0f, take, &m->take));
    return binding_emit(
        b, (decoder_op){.run = blend_run, .in = b->rows[s->from].at, .out = b->rows[s->to].at, .own = m});
}

static void join_run(const pass *p, const decoder_op *o) {
    p->op->norm_add(p->b, o->in, o->nm, 1.0f, o->out);
    p->op->scale_rows(p->b, sqrtf(0.5f), o->out);
}

quire_err join_bind(binding *b, const layer_step *s) {
    assert(s != NULL);
    row_value in;
    TRY(binding_settle(b, s->to));
    TRY(binding_read(b, s->from, &in));
    return binding_emit(b, (decoder_op){.run = join_run, .in = in.at, .nm = in.nm, .out = b->rows[s->to].at});
}

/* ---- before the first layer and after the last ---- */

/* Makes rows as large as the first stream: a row becomes its bare norm times the root
 * mean square of the first stream. */
typedef struct stream_ends {
    linear *products[DESC_MAX_STREAMS]; /* products from the first stream or to it; [0] is NULL */
    norm *bare, *copy;
    linear *mean;     /* mean of a row's elements: a product with weights of 1 / D */
    buffer magnitude; /* [M, 1] */
    buffer row, x, streams[DESC_MAX_STREAMS];
} stream_ends;

static quire_err stream_ends_new(binding *b, weight_role role, stream_ends **out) {
    const int32_t width = b->d->d_model;
    stream_ends *s;
    float *shares;
    TRY(binding_new(b, 1, sizeof *s, &s));
    TRY(binding_new(b, (size_t)width, sizeof *shares, &shares));
    for (int32_t i = 0; i < width; i++) {
        shares[i] = 1.0f / (float)width;
    }
    const tensor_view view = {.name = "the mean of a row",
                              .type = DTYPE_F32,
                              .n_dims = 2,
                              .dims = {1, width, 1, 1},
                              .data = shares,
                              .n_bytes = (size_t)width * sizeof *shares};
    const linear_spec spec = {.weight = &view, .exact = true};
    TRY(b->l->b->ops->linear_load(b->l->b, &spec, &s->mean, b->l->err));
    TRY(streams_norm(b, NORM_RMS, MAGNITUDE_EPS, NULL, &s->bare));
    TRY(streams_norm(b, NORM_SCALE, 0.0f, NULL, &s->copy));
    for (int32_t i = 0; i < b->d->streams.n; i++) {
        TRY(streams_buffer(b, BUFFER_STREAM, i, &s->streams[i]));
        if (i > 0) {
            TRY(loader_linear(b->l, binding_name(b, role), i - 1, NULL, width, width, &s->products[i]));
        }
    }
    TRY(binding_buffer(b, BUFFER_MAGNITUDE, 1, &s->magnitude));
    TRY(binding_buffer(b, BUFFER_PROJECTED, width, &s->row));
    TRY(binding_row(b, X, &s->x));
    *out = s;
    return QUIRE_OK;
}

/* magnitude = the root mean square of the first stream, computed as the mean of x times
 * x's bare norm. */
static void magnitude_run(const pass *p, const stream_ends *s) {
    p->op->norm_rows(p->b, s->streams[0], s->bare, s->row);
    p->op->multiply(p->b, &(multiply_use){.f = ACT_NONE, .gate = s->row, .x = s->streams[0], .out = s->row});
    p->op->norm_linears(p->b, s->row, NULL, &(linear_use){s->mean, s->magnitude}, 1);
}

/* out = or += magnitude * bare norm(from W^T); from and out differ. */
static void resize_run(const pass *p, const stream_ends *s, int32_t i, buffer from, bool adds, buffer out) {
    p->op->norm_linears(p->b, from, NULL, &(linear_use){s->products[i], s->row}, 1);
    p->op->norm_rows(p->b, s->row, s->bare, s->row);
    p->op->multiply(
        p->b, &(multiply_use){.f = ACT_NONE, .gate = s->magnitude, .x = s->row, .adds = adds, .out = out});
}

static void streams_run(const pass *p, const decoder_op *o) {
    const stream_ends *s = o->own;
    p->op->norm_rows(p->b, s->x, s->copy, s->streams[0]);
    magnitude_run(p, s);
    for (int32_t i = 1; i < p->d->streams.n; i++) {
        resize_run(p, s, i, s->streams[0], false, s->streams[i]);
    }
}

quire_err streams_bind(binding *b) {
    stream_ends *s;
    TRY(stream_ends_new(b, W_STREAM_IN, &s));
    return binding_emit(b, (decoder_op){.run = streams_run, .own = s});
}

static void streams_end_run(const pass *p, const decoder_op *o) {
    const stream_ends *s = o->own;
    magnitude_run(p, s);
    p->op->norm_rows(p->b, s->streams[0], s->copy, s->x);
    for (int32_t i = 1; i < p->d->streams.n; i++) {
        resize_run(p, s, i, s->streams[i], true, s->x);
    }
    p->op->scale_rows(p->b, 1.0f / (float)p->d->streams.n, s->x);
}

quire_err streams_bind_end(binding *b) {
    stream_ends *s;
    TRY(stream_ends_new(b, W_STREAM_OUT, &s));
    return binding_emit(b, (decoder_op){.run = streams_end_run, .own = s});
}
