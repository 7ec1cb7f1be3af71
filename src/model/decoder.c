#include "model/decoder.h"

#include <assert.h>
#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "core/half.h"
#include "file/packed.h"

static quire_err no_memory(const loader *l) {
    return err_set(l->err, QUIRE_NO_MEMORY, -1, "out of memory while loading");
}

quire_err decoder_buffer(loader *l, decoder *w, buffer_role role, int32_t width, buffer *out) {
    for (int32_t i = 0; i < w->n_buffers; i++) {
        if (w->buffers[i].role == role && w->buffers[i].width == width) {
            *out = w->buffers[i].id;
            return QUIRE_OK;
        }
    }
    buffer id = w->n_buffers < DECODER_MAX_BUFFERS ? l->b->ops->buffer_reserve(l->b, width) : BUFFER_NONE;
    if (id.id == BUFFER_NONE.id) {
        return err_set(l->err, QUIRE_UNSUPPORTED, -1, "%s: the layers have too many different widths",
                       model_file_path(l->file));
    }
    w->buffers[w->n_buffers].role = role;
    w->buffers[w->n_buffers].width = width;
    w->buffers[w->n_buffers++].id = *out = id;
    return QUIRE_OK;
}

quire_err decoder_norm(loader *l, const model_desc *d, const arch_names *names, weight_role role,
                       int32_t layer, int32_t width, norm **out) {
    norm_spec spec = {.kind = d->blocks.norm, .width = width, .eps = d->norm_eps};
    spec.replaces =
        (d->blocks.norm_behind || d->blocks.norm_ahead) && (role == W_ATTN_NORM || role == W_FFN_NORM);
    assert(!spec.replaces || d->moe.n_used == 0); /* moe_run reads a norm's rows more than once */
    *out = NULL;
    if (!weight_role_is(names, role)) {
        return QUIRE_OK;
    }
    if (d->blocks.norm_bare) {
        return l->b->ops->norm_load(l->b, &spec, out, l->err);
    }
    /* GGUF files have the 1 added */
    spec.add_one = d->blocks.norm_add_one && model_file_format(l->file) != MODEL_GGUF;
    return loader_norm(l, weight_name_of(names, role), layer, &spec, width, out);
}

quire_err decoder_linear(loader *l, const model_desc *d, const arch_names *names, weight_role role,
                         int32_t layer, int64_t n_out, int64_t n_in, linear **out) {
    weight_part conv = {.suffix = "t", .n_rows = n_out, .block = n_out, .step = n_out, .transposed = true};
    bool transposed = d->blocks.conv1d && model_file_format(l->file) != MODEL_GGUF;
    return loader_linear(l, weight_name_of(names, role), layer, transposed ? &conv : NULL, n_out, n_in, out);
}

quire_err decoder_pair(loader *l, const arch_names *names, weight_role role, int32_t layer, int64_t n_out,
                       int64_t n_in, linear **first, linear **second) {
    weight_part part = {.suffix = "gate", .n_rows = 2 * n_out, .block = n_out, .step = n_out};
    TRY(loader_linear(l, weight_name_of(names, role), layer, &part, n_out, n_in, first));
    part.suffix = "up";
    part.first = n_out;
    return loader_linear(l, weight_name_of(names, role), layer, &part, n_out, n_in, second);
}

/* ---- load ---- */

/* ALiBi's slopes: a geometric series from 2^(-max / n) for the largest power of two n
 * within the heads, then every other one of the series for 2 n. Press et al. 2021,
 * arXiv:2108.12409. */
static quire_err load_slopes(const loader *l, const model_desc *d, decoder *w) {
    int32_t n_heads = d->layers[0].n_heads, n = 1;
    if (d->blocks.alibi <= 0.0f) {
        return QUIRE_OK;
    }
    w->slopes = mem_new((size_t)n_heads, sizeof *w->slopes);
    if (w->slopes == NULL) {
        return no_memory(l);
    }
    while (2 * n <= n_heads) {
        n *= 2;
    }
    for (int32_t i = 0; i < n_heads; i++) {
        double exponent = i < n ? (double)(i + 1) / n : (2.0 * (i - n) + 1.0) / (2.0 * n);
        float slope = (float)pow(2.0, -(double)d->blocks.alibi * exponent);
        slope = d->blocks.alibi_bf16 ? bf16_to_f32(f32_to_bf16(slope)) : slope;
        w->slopes[i] = d->blocks.alibi_scale > 0.0f ? slope * d->blocks.alibi_scale : slope;
    }
    return QUIRE_OK;
}

/* Whether the file has a head that is not the table of embeddings, whatever its numbers
 * say of tying. */
static bool has_own_head(const loader *l, weight_name tokens, weight_name head) {
    const tensor_view *t = loader_look(l, tokens, NO_LAYER, ".weight"),
                      *h = loader_look(l, head, NO_LAYER, ".weight");
    bool differs =
        t != NULL && h != NULL &&
        (h->type != t->type || h->n_bytes != t->n_bytes || memcmp(h->data, t->data, h->n_bytes) != 0);
    return differs || (t != NULL && loader_look(l, head, NO_LAYER, ".weight" PACKED_SUFFIX) != NULL);
}

static quire_err load_ends(loader *l, const model_desc *d, const arch_names *names, decoder *w) {
    weight_name tokens = weight_name_of(names, W_TOKENS), head = weight_name_of(names, W_HEAD);
    bool tied = d->tied_embeddings && !has_own_head(l, tokens, head);
    int32_t width = d->blocks.d_embedding > 0 ? d->blocks.d_embedding : d->d_model;
    const bool shares = tied && !d->no_head;
    if (shares) {
        TRY(loader_head(l, tokens, &head, d->n_vocab, width, &w->head));
        TRY(loader_tied_embedding(l, tokens, &head, d->n_vocab, width, w->head, &w->tokens));
    } else {
        TRY(loader_embedding(l, tokens, tied ? &head : NULL, d->n_vocab, width, &w->tokens));
    }
    if (d->blocks.positions) {
        weight_name positions = weight_name_of(names, W_POSITIONS);
        TRY(loader_rows(l, positions, (int64_t)d->max_positions + d->blocks.position_offset, d->d_model,
                        &w->positions));
    }
    if (d->blocks.n_token_types > 0) {
        TRY(loader_rows(l, weight_name_of(names, W_TYPES), d->blocks.n_token_types, d->d_model, &w->types));
    }
    TRY(decoder_norm(l, d, names, W_EMBED_NORM, NO_LAYER, d->d_model, &w->embed_norm));
    if (!d->blocks.bare_end) {
        TRY(decoder_norm(l, d, names, W_OUT_NORM, NO_LAYER, d->d_model, &w->out_norm));
    }
    if (d->blocks.d_embedding > 0) {
        TRY(loader_linear(l, weight_name_of(names, W_EMBED_IN), NO_LAYER, NULL, d->d_model, width,
                          &w->embed_in));
        TRY(loader_linear(l, weight_name_of(names, W_EMBED_OUT), NO_LAYER, NULL, width, d->d_model,
                          &w->embed_out));
        TRY(decoder_buffer(l, w, BUFFER_EMBEDDING, width, &w->narrow));
    }
    if (shares) {
        const tensor_view *copy;
        return loader_find(l, head, NO_LAYER, ".weight", &copy); /* marks a second copy as used */
    }
    return d->no_head ? QUIRE_OK : loader_head(l, head, NULL, d->n_vocab, width, &w->head);
}

static quire_err load_layer(loader *l, const model_desc *d, const arch_names *names, int32_t i, decoder *w) {
    decoder_layer *layer = &w->layers[i];
    if (i > 0 || !d->blocks.bare_start) {
        TRY(decoder_norm(l, d, names, W_ATTN_NORM, i, d->d_model, &layer->attn_norm));
    }
    TRY(attention_load(l, d, names, i, w));
    TRY(decoder_norm(l, d, names, W_ATTN_POST_NORM, i, d->d_model, &layer->attn_post_norm));
    if (!d->blocks.one_norm) {
        TRY(decoder_norm(l, d, names, W_FFN_NORM, i, d->d_model, &layer->ffn_norm));
    }
    if (d->layers[i].n_experts > 0) {
        TRY(moe_load(l, d, names, i, w));
    }
    if (d->layers[i].d_ff > 0) {
        TRY(mlp_load(l, d, names, i, w));
    }
    return decoder_norm(l, d, names, W_FFN_POST_NORM, i, d->d_model, &layer->ffn_post_norm);
}

quire_err decoder_load(loader *l, const model_desc *d, const arch_names *names, void **weights) {
    decoder *w = mem_new(1, sizeof *w + (size_t)d->n_layers * sizeof w->layers[0]);
    if (!w) {
        return no_memory(l);
    }
    *weights = w;
    w->n_layers = d->n_layers;
    TRY(load_ends(l, d, names, w));
    TRY(load_slopes(l, d, w));
    for (int32_t i = 0; i < d->n_ropes; i++) {
        TRY(l->b->ops->rope_load(l->b, &d->ropes[i], l->max_positions, &w->ropes[i], l->err));
    }
    TRY(decoder_buffer(l, w, BUFFER_X, d->d_model, &w->x));
    w->y = w->z = BUFFER_NONE;
    bool collects = d->moe.n_used > 0,
         has_post_norm = weight_role_is(names, W_ATTN_POST_NORM) || weight_role_is(names, W_FFN_POST_NORM);
    if (collects || has_post_norm || d->blocks.parallel) {
        TRY(decoder_buffer(l, w, BUFFER_Y, d->d_model, &w->y));
    }
    if (collects || (d->blocks.parallel && !d->blocks.one_norm)) {
        TRY(decoder_buffer(l, w, BUFFER_Z, d->d_model, &w->z));
    }
    for (int32_t i = 0; i < d->n_layers; i++) {
        TRY(load_layer(l, d, names, i, w));
    }
    return QUIRE_OK;
}

void decoder_close(void *weights) {
    decoder *w = weights;
    for (int32_t i = 0; w != NULL && i < w->n_layers; i++) {
        mem_free(w->layers[i].sinks);
        mem_free(w->layers[i].k_scales);
        mem_free(w->layers[i].v_scales);
        mem_free(w->layers[i].moe.correction);
    }
    if (w != NULL) {
        mem_free(w->slopes);
        mem_free(w);
    }
}

/* ---- forward ---- */

/* Both halves of a layer read the residual as it was before the layer. */
static void run_parallel(const pass *p, int32_t i) {
    const decoder *w = p->w;
    const decoder_layer *l = &w->layers[i];
    p->op->norm_rows(p->b, w->x, l->attn_norm, w->y);
    if (l->ffn_norm != NULL) {
        p->op->norm_rows(p->b, w->x, l->ffn_norm, w->z);
    }
    attention_run(p, i, w->y, NULL);
    mlp_run(p, i, l->ffn_norm != NULL ? w->z : w->y, NULL);
}

static void run_sequential(const pass *p, int32_t i) {
    attention_run(p, i, p->w->x, p->w->layers[i].attn_norm);
    mlp_run(p, i, p->w->x, p->w->layers[i].ffn_norm);
}

/* The norm behind a half is the one through which the next half reads. */
static void run_norms_behind(const pass *p, int32_t i) {
    const decoder *w = p->w;
    attention_run(p, i, w->x, i > 0 ? w->layers[i - 1].ffn_norm : NULL);
    mlp_run(p, i, w->x, w->layers[i].attn_norm);
    if (i == w->n_layers - 1) {
        p->op->norm_rows(p->b, w->x, w->layers[i].ffn_norm, w->x);
    }
}

static float or_one(float scale) {
    return scale == 0.0f ? 1.0f : scale;
}

/* x = positions + narrow W^T: a model whose embeddings are narrower than itself has
 * learned positions (desc_check). */
static void widen(const pass *p) {
    const decoder *w = p->w;
    p->op->embed(
        p->b,
        &(embed_use){.tokens = w->tokens, .scale = or_one(p->d->blocks.embedding_scale), .x = w->narrow});
    p->op->embed(
        p->b,
        &(embed_use){.positions = w->positions, .position_offset = p->d->blocks.position_offset, .x = w->x});
    p->op->linear_add(p->b, w->narrow, &(linear_use){w->embed_in, w->x}, 1.0f, w->x);
}

void decoder_begin(const pass *p, const batch *rows) {
    const decoder *w = p->w;
    const block_desc *blocks = &p->d->blocks;
    p->op->step_begin(p->b, rows);
    if (w->embed_in != NULL) {
        widen(p);
        return;
    }
    p->op->embed(p->b, &(embed_use){.tokens = w->tokens,
                                    .scale = or_one(blocks->embedding_scale),
                                    .positions = w->positions,
                                    .position_offset = blocks->position_offset,
                                    .skips_padding = blocks->skips_padding,
                                    .types = w->types,
                                    .nm = w->embed_norm,
                                    .x = w->x});
}

void decoder_end(const pass *p, const batch *rows) {
    const block_desc *blocks = &p->d->blocks;
    const decoder *w = p->w;
    bool narrows = w->embed_out != NULL;
    if (rows->n_out > 0 && narrows) {
        p->op->norm_linears(p->b, w->x, w->out_norm, &(linear_use){w->embed_out, w->narrow}, 1);
    }
    if (rows->n_out > 0) {
        p->op->head(p->b, narrows ? w->narrow : w->x, narrows ? NULL : w->out_norm, w->head,
                    or_one(blocks->logits_scale), blocks->logits_cap);
    }
    if (rows->wants_rows && p->w->out_norm != NULL) {
        p->op->norm_rows(p->b, p->w->x, p->w->out_norm, p->w->x);
    }
}

void decoder_forward(const model *m, const batch *rows) {
    const pass p = {m->b, m->b->ops, &m->desc, m->weights};
    decoder_begin(&p, rows);
    for (int32_t i = 0; i < m->desc.n_layers; i++) {
        if (m->desc.blocks.parallel) {
            run_parallel(&p, i);
        } else if (m->desc.blocks.norm_behind) {
            run_norms_behind(&p, i);
        } else {
            run_sequential(&p, i);
        }
    }
    decoder_end(&p, rows);
}

buffer decoder_hidden(const model *m) {
    return ((const decoder *)m->weights)->x;
}
