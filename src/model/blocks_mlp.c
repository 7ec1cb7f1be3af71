/* The dense feed-forward part of a layer. Gated: Shazeer 2020, arXiv:2002.05202. */
#include "model/decoder.h"

static quire_err mlp_load(binding *b, feed_forward_use *m, linear **gate, linear **up, linear **down) {
    int32_t f = b->d->layers[b->layer].d_ff, width = b->d->d_model;
    bool gated = !b->d->ungated;
    if (gated && binding_has(b, W_GATE_UP) && !binding_has(b, W_GATE)) {
        TRY(binding_pair(b, W_GATE_UP, f, width, gate, up));
    } else {
        TRY(binding_linear(b, W_UP, f, width, up));
        if (gated) {
            TRY(binding_linear(b, W_GATE, f, width, gate));
        }
    }
    TRY(binding_linear(b, W_DOWN, width, f, down));
    return binding_buffer(b, BUFFER_H, f, &m->h);
}

static void mlp_run(const pass *p, const decoder_op *o) {
    p->op->feed_forward(p->b, o->own);
}

quire_err mlp_bind(binding *b, const layer_step *s) {
    feed_forward_use *m;
    linear *gate = NULL, *up, *down;
    row_value in;
    TRY(binding_new(b, 1, sizeof *m, &m));
    TRY(mlp_load(b, m, &gate, &up, &down));
    TRY(binding_read(b, s->from, &in));
    m->x = in.at;
    m->nm = in.nm;
    m->gate = gate;
    m->up = up;
    m->f = b->d->activation;
    m->reader = down;
    b->rows[s->to] = (row_value){.at = m->h, .product = down};
    return binding_emit(b, (decoder_op){.run = mlp_run, .own = m});
}
