/* The dense feed-forward part of a layer. Gated: Shazeer 2020, arXiv:2002.05202. */
#include "model/decoder.h"

quire_err mlp_load(loader *l, const model_desc *d, const arch_names *names, int32_t i, decoder *w) {
    decoder_layer *to = &w->layers[i];
    int32_t f = d->layers[i].d_ff;
    weight_name pair = weight_name_of(names, W_GATE_UP);
    if (!d->blocks.ungated && loader_has(l, pair, i) && !loader_has(l, weight_name_of(names, W_GATE), i)) {
        TRY(decoder_pair(l, names, W_GATE_UP, i, f, d->d_model, &to->gate, &to->up));
    } else {
        TRY(decoder_linear(l, d, names, W_UP, i, f, d->d_model, &to->up));
        if (!d->blocks.ungated) {
            TRY(decoder_linear(l, d, names, W_GATE, i, f, d->d_model, &to->gate));
        }
    }
    TRY(decoder_linear(l, d, names, W_DOWN, i, d->d_model, f, &to->down));
    return decoder_buffer(l, w, BUFFER_H, f, &to->h_rows);
}

void branch_add(const pass *p, buffer a, const linear *w, const norm *post) {
    float scale = p->d->blocks.residual_scale == 0.0f ? 1.0f : p->d->blocks.residual_scale;
    if (post == NULL) {
        p->op->linear_add(p->b, a, &(linear_use){w, p->w->x}, scale, p->w->x);
        return;
    }
    p->op->norm_linears(p->b, a, NULL, &(linear_use){w, p->w->y}, 1);
    p->op->norm_add(p->b, p->w->y, post, scale, p->w->x);
}

void mlp_run(const pass *p, int32_t i, buffer in, const norm *nm) {
    const decoder_layer *l = &p->w->layers[i];
    if (l->moe.experts != NULL) {
        moe_run(p, i, in, nm);
        return;
    }
    p->op->feed_forward(p->b, &(feed_forward_use){.x = in,
                                                  .nm = nm,
                                                  .gate = l->gate,
                                                  .up = l->up,
                                                  .f = p->d->activation,
                                                  .h = l->h_rows,
                                                  .reader = l->down});
    branch_add(p, l->h_rows, l->down, l->ffn_post_norm);
}
