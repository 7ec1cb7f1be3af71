/* Llama. Touvron et al. 2023, arXiv:2302.13971 and 2307.09288; grouped queries: Ainslie et al. 2023, arXiv:2305.13245.
 *
 * x: [M, d_model]; q: [M, n_heads, d_head]; k, v: [M, n_kv_heads, d_head]; h: [M, d_ff]. Biases where the file has them. */
#include <math.h>

#include "base/mem.h"
#include "model/arch.h"

typedef struct llama_layer_weights {
    norm *attn_norm, *ffn_norm;
    linear *wq, *wk, *wv, *wo;
    linear *gate, *up, *down;
} llama_layer_weights;

typedef struct llama_weights {
    embedding *tokens;
    norm *out_norm;
    linear *head;
    rope *rope;
    buffer x, q, k, v, a, h;
    llama_layer_weights layers[];
} llama_weights;

static const weight_name TOKENS = {"token_embd", "model.embed_tokens"};
static const weight_name OUT_NORM = {"output_norm", "model.norm"};
static const weight_name HEAD = {"output", "lm_head"};
static const weight_name ATTN_NORM = {"blk.%d.attn_norm", "model.layers.%d.input_layernorm"};
static const weight_name WQ = {"blk.%d.attn_q", "model.layers.%d.self_attn.q_proj"};
static const weight_name WK = {"blk.%d.attn_k", "model.layers.%d.self_attn.k_proj"};
static const weight_name WV = {"blk.%d.attn_v", "model.layers.%d.self_attn.v_proj"};
static const weight_name WO = {"blk.%d.attn_output", "model.layers.%d.self_attn.o_proj"};
static const weight_name FFN_NORM = {"blk.%d.ffn_norm", "model.layers.%d.post_attention_layernorm"};
static const weight_name GATE = {"blk.%d.ffn_gate", "model.layers.%d.mlp.gate_proj"};
static const weight_name UP = {"blk.%d.ffn_up", "model.layers.%d.mlp.up_proj"};
static const weight_name DOWN = {"blk.%d.ffn_down", "model.layers.%d.mlp.down_proj"};

static quire_err llama_describe(const model_file *f, model_desc *d, quire_error *err) {
    TRY(config_transformer(f, d, err));
    TRY(config_rope(f, d, err));
    d->attention_scale = 1.0f / sqrtf((float)d->d_head);
    return QUIRE_OK;
}

static quire_err load_layer(loader *l, const model_desc *d, int32_t i, llama_layer_weights *w) {
    int64_t q_width = (int64_t)d->n_heads * d->d_head, kv_width = (int64_t)d->n_kv_heads * d->d_head;
    TRY(loader_norm(l, ATTN_NORM, i, NORM_RMS, d->d_model, d->norm_eps, &w->attn_norm));
    TRY(loader_linear(l, WQ, i, q_width, d->d_model, &w->wq));
    TRY(loader_linear(l, WK, i, kv_width, d->d_model, &w->wk));
    TRY(loader_linear(l, WV, i, kv_width, d->d_model, &w->wv));
    TRY(loader_linear(l, WO, i, d->d_model, q_width, &w->wo));
    TRY(loader_norm(l, FFN_NORM, i, NORM_RMS, d->d_model, d->norm_eps, &w->ffn_norm));
    TRY(loader_linear(l, GATE, i, d->d_ff, d->d_model, &w->gate));
    TRY(loader_linear(l, UP, i, d->d_ff, d->d_model, &w->up));
    return loader_linear(l, DOWN, i, d->d_model, d->d_ff, &w->down);
}

static quire_err llama_load(loader *l, const model_desc *d, void **weights) {
    llama_weights *w = mem_new(1, sizeof *w + (size_t)d->n_layers * sizeof w->layers[0]);
    if (!w) {
        return err_set(l->err, QUIRE_NO_MEMORY, -1, "out of memory");
    }
    *weights = w;
    bool tied = d->tied_embeddings;
    TRY(loader_embedding(l, TOKENS, tied ? &HEAD : NULL, d->n_vocab, d->d_model, &w->tokens));
    for (int32_t i = 0; i < d->n_layers; i++) {
        TRY(load_layer(l, d, i, &w->layers[i]));
    }
    TRY(loader_norm(l, OUT_NORM, NO_LAYER, NORM_RMS, d->d_model, d->norm_eps, &w->out_norm));
    TRY(loader_head(l, tied ? TOKENS : HEAD, tied ? &HEAD : NULL, d->n_vocab, d->d_model, &w->head));
    const tensor_view *copy;
    TRY(loader_find(l, HEAD, NO_LAYER, ".weight", &copy)); /* marks a tied model's second copy as used */
    TRY(l->b->ops->rope_load(l->b, &d->rope, l->max_positions, &w->rope, l->err));

    const backend_ops *op = l->b->ops;
    w->x = op->buffer_reserve(l->b, d->d_model);
    w->q = op->buffer_reserve(l->b, d->n_heads * d->d_head);
    w->k = op->buffer_reserve(l->b, d->n_kv_heads * d->d_head);
    w->v = op->buffer_reserve(l->b, d->n_kv_heads * d->d_head);
    w->a = op->buffer_reserve(l->b, d->n_heads * d->d_head);
    w->h = op->buffer_reserve(l->b, d->d_ff);
    return QUIRE_OK;
}

static void llama_layer(backend *b, const llama_weights *m, const llama_layer_weights *w, const attn_spec *mask, activation f,
                        int32_t layer) {
    const backend_ops *op = b->ops;
    op->norm_linears(b, m->x, w->attn_norm, (linear_use[]){{w->wq, m->q}, {w->wk, m->k}, {w->wv, m->v}}, 3);
    op->qk_norm_rope_store(b, layer, m->q, m->k, m->v, NULL, m->rope);
    op->attention(b, layer, m->q, mask, m->a);
    op->linear_add(b, m->a, &(linear_use){w->wo, m->x}, 1.0f, m->x);
    op->feed_forward(b,
                     &(feed_forward_use){.x = m->x, .nm = w->ffn_norm, .gate = w->gate, .up = w->up, .f = f, .h = m->h, .reader = w->down});
    op->linear_add(b, m->h, &(linear_use){w->down, m->x}, 1.0f, m->x);
}

static void llama_forward(const model *m, const batch *rows) {
    const llama_weights *w = m->weights;
    backend *b = m->b;
    attn_spec mask = {.scale = m->desc.attention_scale, .causal = true};
    b->ops->step_begin(b, rows);
    b->ops->embed(b, &(embed_use){.tokens = w->tokens, .scale = 1.0f, .x = w->x});
    for (int32_t i = 0; i < m->desc.n_layers; i++) {
        llama_layer(b, w, &w->layers[i], &mask, m->desc.activation, i);
    }
    if (rows->n_out > 0) {
        b->ops->head(b, w->x, w->out_norm, w->head, 1.0f, 0.0f);
    }
}

static buffer llama_hidden(const model *m) {
    return ((const llama_weights *)m->weights)->x;
}

const arch arch_llama = {"llama", "LlamaForCausalLM", llama_describe, llama_load, llama_forward, llama_hidden};
