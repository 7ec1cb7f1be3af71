/* A gated linear recurrence instead of attention: Griffin. De et al. 2024,
 * arXiv:2402.19427.
 *
 *   x = conv(h Wx^T + bx);  y = f(h Wy^T + by);  out = (lru(x) * y) Wo^T + bo
 * x, y: [M, C]. */
#include <assert.h>
#include <math.h>

#include "base/mem.h"
#include "core/recurrence.h"
#include "model/decoder.h"

typedef struct lru_block {
    linear_use in[2]; /* x, y */
    conv_use conv;
    lru_use lru;
    multiply_use gate;
} lru_block;

static void lru_run(const pass *p, const decoder_op *o) {
    const lru_block *l = o->own;
    p->op->norm_linears(p->b, o->in, o->nm, l->in, 2);
    p->op->conv(p->b, &l->conv);
    p->op->lru(p->b, &l->lru);
    p->op->multiply(p->b, &l->gate);
}

/* Rearranges a gate's weights [blocks][W in][W out] and biases for the op. which: 0
 * input, 1 decay. */
static void lru_lay_out(const lru_desc *d, const float *weights, const float *biases, int which, float *to) {
    const int32_t width = d->width / d->n_blocks, n_units = lru_units(d->width, d->n_blocks),
                  per_block = n_units / d->n_blocks;
    for (int32_t u = 0; u < n_units; u++) {
        const int32_t block = u / per_block, first = u % per_block * STATE_LANES;
        float *unit = to + (int64_t)u * (width + 1) * 2 * STATE_LANES + which * STATE_LANES;
        for (int32_t c = 0; c < STATE_LANES && first + c < width; c++) {
            for (int32_t j = 0; j < width; j++) {
                unit[(int64_t)j * 2 * STATE_LANES + c] =
                    weights[((int64_t)block * width + j) * width + first + c];
            }
            unit[(int64_t)width * 2 * STATE_LANES + c] = biases[block * width + first + c];
        }
    }
}

static quire_err lru_load_gate(binding *b, weight_role role, int which, float *to) {
    const lru_desc *d = &b->d->lru;
    const int32_t width = d->width / d->n_blocks;
    const weight_name name = binding_name(b, role);
    float *weights, *biases;
    TRY(loader_matrices(b->l, name, b->layer, "_weight", d->n_blocks, width, width, &weights));
    quire_err e = loader_matrix(b->l, name, b->layer, "_bias", d->n_blocks, width, &biases);
    if (e == QUIRE_OK) {
        lru_lay_out(d, weights, biases, which, to);
        mem_free(biases);
    }
    mem_free(weights);
    return e;
}

/* Loads 8 softplus(p), the magnitude of the decay's smallest logarithm. */
static quire_err lru_load_rates(binding *b, const float **out) {
    const lru_desc *d = &b->d->lru;
    const int32_t width = d->width / d->n_blocks, n_units = lru_units(d->width, d->n_blocks),
                  per_block = n_units / d->n_blocks;
    float *given, *rate;
    TRY(binding_vector(b, W_LRU_RATE, "", "recurrent_param", d->width, &given));
    TRY(binding_new(b, (size_t)n_units * STATE_LANES, sizeof *rate, &rate));
    for (int32_t i = 0; i < d->width; i++) {
        const int32_t block = i / width, at = i % width;
        const double p = (double)given[i];
        rate[(block * per_block + at / STATE_LANES) * STATE_LANES + at % STATE_LANES] =
            (float)(8.0 * (p > 30.0 ? p : log1p(exp(p))));
    }
    *out = rate;
    return QUIRE_OK;
}

static quire_err lru_load(binding *b, lru_block *to) {
    static const weight_role roles[2] = {W_LRU_X, W_LRU_Y};
    static const buffer_role rows[2] = {BUFFER_LRU_X, BUFFER_LRU_Y};
    const lru_desc *d = &b->d->lru;
    const size_t n_units = (size_t)lru_units(d->width, d->n_blocks),
                 unit = ((size_t)(d->width / d->n_blocks) + 1) * 2 * STATE_LANES;
    conv_taps *taps;
    float *gates;
    for (int i = 0; i < 2; i++) {
        linear *w;
        TRY(binding_linear(b, roles[i], d->width, b->d->d_model, &w));
        TRY(binding_buffer(b, rows[i], d->width, &to->in[i].out));
        to->in[i].w = w;
    }
    TRY(loader_conv(b->l, binding_name(b, W_LRU_TAPS), b->layer, (conv_channels){0, d->width, d->width},
                    d->n_taps, &taps));
    TRY(binding_new(b, n_units * unit, sizeof *gates, &gates));
    TRY(lru_load_gate(b, W_LRU_INPUT, 0, gates));
    TRY(lru_load_gate(b, W_LRU_DECAY, 1, gates));
    TRY(lru_load_rates(b, &to->lru.rate));
    to->lru.gates = gates;
    to->conv.w = taps;
    return binding_buffer(b, BUFFER_LRU_OUT, d->width, &to->lru.out);
}

quire_err lru_bind(binding *b, const layer_step *s) {
    assert(b != NULL);
    const layer_desc *layer = &b->d->layers[b->layer];
    const lru_desc *d = &b->d->lru;
    lru_block *to;
    linear *out;
    row_value in;
    TRY(binding_need_op(b, b->l->b->ops->conv != NULL, "short convolutions"));
    TRY(binding_need_op(b, b->l->b->ops->lru != NULL, "gated linear recurrences"));
    TRY(binding_new(b, 1, sizeof *to, &to));
    TRY(lru_load(b, to));
    TRY(binding_linear(b, W_LRU_OUT, b->d->d_model, d->width, &out));
    const buffer x = to->in[0].out, y = to->in[1].out;
    to->conv.cache = layer->caches[CACHE_CONV];
    to->conv.f = ACT_NONE;
    to->conv.x = to->conv.out = x;
    to->lru.cache = layer->caches[CACHE_STATE];
    to->lru.n_channels = d->width;
    to->lru.n_blocks = d->n_blocks;
    to->lru.x = x;
    to->gate = (multiply_use){.f = b->d->activation, .gate = y, .x = to->lru.out, .out = to->lru.out};
    TRY(binding_read(b, s->from, &in));
    b->rows[s->to] = (row_value){.at = to->lru.out, .product = out};
    return binding_emit(b, (decoder_op){.run = lru_run, .in = in.at, .nm = in.nm, .own = to});
}
