/* A gated short convolution in place of attention: LFM2. Amini et al. 2025,
 * arXiv:2511.23404.
 *
 *   B, C, x = h W^T;  out = (C * conv(B * x)) Wo^T
 *
 * b, c, x: [M, D]. */
#include "model/decoder.h"

#include <assert.h>

typedef struct conv_block {
    linear_use products[3]; /* B, C, x */
    multiply_use in, out;
    conv_use conv;
} conv_block;

static void conv_run(const pass *p, const decoder_op *o) {
    const conv_block *c = o->own;
    p->op->norm_linears(p->b, o->in, o->nm, c->products, 3);
    p->op->multiply(p->b, &c->in);
    p->op->conv(p->b, &c->conv);
    p->op->multiply(p->b, &c->out);
}

static quire_err conv_load_products(binding *b, conv_block *c) {
    static const char *const names[] = {"b", "c", "x"};
    static const buffer_role roles[] = {BUFFER_CONV_B, BUFFER_CONV_C, BUFFER_CONV_X};
    const int32_t width = b->d->d_model;
    for (int i = 0; i < 3; i++) {
        weight_part part = {.suffix = names[i],
                            .n_rows = 3 * (int64_t)width,
                            .first = i * (int64_t)width,
                            .block = width,
                            .step = width};
        linear *w;
        TRY(loader_linear(b->l, binding_name(b, W_CONV_IN), b->layer, &part, width, width, &w));
        c->products[i].w = w;
        TRY(binding_buffer(b, roles[i], width, &c->products[i].out));
    }
    return QUIRE_OK;
}

quire_err conv_bind(binding *b, const layer_step *s) {
    assert(b != NULL);
    const int32_t width = b->d->d_model;
    conv_block *c;
    conv_taps *taps;
    linear *out;
    row_value in;
    TRY(binding_need_op(b, b->l->b->ops->conv != NULL, "short convolutions"));
    TRY(binding_new(b, 1, sizeof *c, &c));
    TRY(conv_load_products(b, c));
    TRY(loader_conv(b->l, binding_name(b, W_CONV_TAPS), b->layer, (conv_channels){0, width, width},
                    b->d->conv.n_taps, &taps));
    TRY(binding_linear(b, W_CONV_OUT, width, width, &out));
    buffer gate_b = c->products[0].out, gate_c = c->products[1].out, x = c->products[2].out;
    c->in = (multiply_use){.f = ACT_NONE, .gate = gate_b, .x = x, .out = x};
    c->conv = (conv_use){
        .cache = b->d->layers[b->layer].caches[CACHE_CONV], .w = taps, .f = ACT_NONE, .x = x, .out = x};
    c->out = (multiply_use){.f = ACT_NONE, .gate = gate_c, .x = x, .out = x};
    TRY(binding_read(b, s->from, &in));
    b->rows[s->to] = (row_value){.at = x, .product = out};
    return binding_emit(b, (decoder_op){.run = conv_run, .in = in.at, .nm = in.nm, .own = c});
}
