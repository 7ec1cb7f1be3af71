/* What precedes and follows a decoder's layers, and its forward pass. */
#include "model/decoder.h"

#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "core/half.h"
#include "file/packed.h"

/* ---- load ---- */

/* ALiBi's slopes: a geometric series from 2^(-max / n) for the largest power of two n up
 * to the number of heads, then every other element of the series for 2 n. Press et al.
 * 2021, arXiv:2108.12409. */
static quire_err decoder_load_slopes(binding *b) {
    const attend_desc *a = &b->d->attend;
    int32_t n_heads = b->d->layers[0].n_heads, n = 1;
    if (a->alibi <= 0.0f) {
        return QUIRE_OK;
    }
    TRY(binding_new(b, (size_t)n_heads, sizeof *b->w->slopes, &b->w->slopes));
    while (2 * n <= n_heads) {
        n *= 2;
    }
    for (int32_t i = 0; i < n_heads; i++) {
        double exponent = i < n ? (double)(i + 1) / n : (2.0 * (i - n) + 1.0) / (2.0 * n);
        float slope = (float)pow(2.0, -(double)a->alibi * exponent);
        slope = a->alibi_bf16 ? bf16_to_f32(f32_to_bf16(slope)) : slope;
        b->w->slopes[i] = a->alibi_scale > 0.0f ? slope * a->alibi_scale : slope;
    }
    return QUIRE_OK;
}

/* Whether the file has a head other than the table of embeddings, even if its
 * metadata say that they are tied. */
static bool decoder_has_head(const loader *l, weight_name tokens, weight_name head) {
    const tensor_view *t = loader_look(l, tokens, NO_LAYER, ".weight"),
                      *h = loader_look(l, head, NO_LAYER, ".weight");
    bool differs =
        t != NULL && h != NULL &&
        (h->type != t->type || h->n_bytes != t->n_bytes || memcmp(h->data, t->data, h->n_bytes) != 0);
    /* a packed or quantised head has no `.weight` */
    return differs || (h == NULL && loader_has(l, tokens, NO_LAYER) && loader_has(l, head, NO_LAYER));
}

/* Loads the table of tokens and the head, which may be the same. */
static quire_err decoder_load_tokens(binding *b) {
    const model_desc *d = b->d;
    decoder *w = b->w;
    weight_name tokens = binding_name(b, W_TOKENS), head = binding_name(b, W_HEAD);
    bool tied = d->tied_embeddings && !decoder_has_head(b->l, tokens, head);
    int32_t width = d->embed.width > 0 ? d->embed.width : d->d_model;
    if (tied && !d->no_head) {
        const tensor_view *copy;
        TRY(loader_head(b->l, tokens, &head, d->n_vocab, width, &w->head));
        TRY(loader_tied_embedding(b->l, tokens, &head, d->n_vocab, width, w->head, &w->tokens));
        return loader_find(b->l, head, NO_LAYER, ".weight", &copy); /* marks the second copy as used */
    }
    TRY(loader_embedding(b->l, tokens, tied ? &head : NULL, d->n_vocab, width, &w->tokens));
    return d->no_head ? QUIRE_OK : loader_head(b->l, head, NULL, d->n_vocab, width, &w->head);
}

static quire_err decoder_load_ends(binding *b) {
    const model_desc *d = b->d;
    const embed_desc *e = &d->embed;
    decoder *w = b->w;
    TRY(decoder_load_tokens(b));
    if (e->positions) {
        TRY(loader_rows(b->l, binding_name(b, W_POSITIONS), (int64_t)d->max_positions + e->position_offset,
                        d->d_model, &w->positions));
    }
    if (e->n_token_types > 0) {
        TRY(loader_rows(b->l, binding_name(b, W_TYPES), e->n_token_types, d->d_model, &w->types));
    }
    if (e->normed) {
        const norm_spec bare = {.kind = d->norm.kind, .width = d->d_model, .eps = d->norm_eps};
        TRY(b->l->b->ops->norm_load(b->l->b, &bare, &w->embed_norm, b->l->err));
    } else if (weight_role_is(b->l->names, W_EMBED_NORM)) {
        TRY(binding_norm(b, W_EMBED_NORM, false, &w->embed_norm));
    }
    if (weight_role_is(b->l->names, W_OUT_NORM) && !d->head.bare) {
        TRY(binding_norm(b, W_OUT_NORM, false, &w->out_norm));
    }
    if (e->width > 0) {
        TRY(loader_linear(b->l, binding_name(b, W_EMBED_IN), NO_LAYER, NULL, d->d_model, e->width,
                          &w->embed_in));
        TRY(loader_linear(b->l, binding_name(b, W_EMBED_OUT), NO_LAYER, NULL, e->width, d->d_model,
                          &w->embed_out));
        TRY(binding_buffer(b, BUFFER_EMBEDDING, e->width, &w->narrow));
    }
    return binding_row(b, X, &w->x);
}

quire_err decoder_load(loader *l, const model_desc *d, decoder **out) {
    decoder *w = *out = mem_new(1, sizeof *w);
    binding b = {.l = l, .d = d, .w = w, .layer = NO_LAYER};
    TRY(err_set(l->err, mem_check(w), -1, "out of memory while loading"));
    TRY(decoder_load_ends(&b));
    TRY(decoder_load_slopes(&b));
    for (int32_t i = 0; i < d->n_ropes; i++) {
        TRY(l->b->ops->rope_load(l->b, &d->ropes[i], l->max_positions, &w->ropes[i], l->err));
    }
    const bool has_streams = d->streams.n > 0;
    const bool is_predicted = d->streams.kind == STREAMS_PREDICTED;
    if (has_streams) {
        TRY((is_predicted ? streams_bind : hyper_bind)(&b));
    }
    TRY(decoder_bind_layers(&b));
    return has_streams ? (is_predicted ? streams_bind_end : hyper_bind_end)(&b) : QUIRE_OK;
}

void decoder_close(decoder *w) {
    for (size_t i = 0; w != NULL && i < w->n_memory; i++) {
        mem_free(w->memory[i]);
    }
    if (w != NULL) {
        mem_free(w->memory);
        mem_free(w->ops);
        mem_free(w);
    }
}

/* ---- forward ---- */

static float decoder_factor(float factor) {
    return factor == 0.0f ? 1.0f : factor;
}

/* x = positions + narrow W^T. A model with embeddings narrower than itself has learned
 * positions (desc_check). */
static void decoder_widen(const pass *p) {
    const decoder *w = p->w;
    const embed_desc *e = &p->d->embed;
    p->op->embed(p->b, &(embed_use){.tokens = w->tokens, .scale = decoder_factor(e->scale), .x = w->narrow});
    p->op->embed(p->b,
                 &(embed_use){.positions = w->positions, .position_offset = e->position_offset, .x = w->x});
    p->op->linear_add(p->b, w->narrow, &(linear_use){w->embed_in, w->x}, 1.0f, w->x);
}

static void decoder_begin(const pass *p, const batch *rows) {
    const decoder *w = p->w;
    const embed_desc *e = &p->d->embed;
    p->op->step_begin(p->b, rows);
    if (w->embed_in != NULL) {
        decoder_widen(p);
        return;
    }
    p->op->embed(p->b, &(embed_use){.tokens = w->tokens,
                                    .scale = decoder_factor(e->scale),
                                    .positions = w->positions,
                                    .position_offset = e->position_offset,
                                    .skips_padding = e->skips_padding,
                                    .types = w->types,
                                    .nm = w->embed_norm,
                                    .x = w->x});
}

static void decoder_end(const pass *p, const batch *rows) {
    const decoder *w = p->w;
    bool narrows = w->embed_out != NULL;
    if (rows->n_out > 0 && narrows) {
        p->op->norm_linears(p->b, w->x, w->out_norm, &(linear_use){w->embed_out, w->narrow}, 1);
    }
    if (rows->n_out > 0) {
        p->op->head(p->b, narrows ? w->narrow : w->x, narrows ? NULL : w->out_norm, w->head,
                    decoder_factor(p->d->head.scale), p->d->head.cap);
    }
    if (rows->wants_rows && p->w->out_norm != NULL) {
        p->op->norm_rows(p->b, p->w->x, p->w->out_norm, p->w->x);
    }
}

void decoder_forward(const decoder *w, const model_desc *d, backend *b, const batch *rows) {
    const pass p = {b, b->ops, d, w};
    decoder_begin(&p, rows);
    for (size_t i = 0; i < w->n_ops; i++) {
        w->ops[i].run(&p, &w->ops[i]);
    }
    decoder_end(&p, rows);
}
