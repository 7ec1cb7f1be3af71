/* MiniMax-Text-01 and M1: arXiv:2501.08313: lightning attention in most layers, experts
 * in all. Each half adds to the result of its norm, and both have factors. */
#include <stdio.h>

#include "model/architectures.h"

/* clang-format off */
static const layer_step attend_mixed[] = {
    NORM(W_ATTN_NORM, X, X), ATTEND(X, A), MIX(A, X),
    NORM(W_FFN_NORM, X, X), MOE(X, A), MIX(A, X), END};

static const layer_step lightning_mixed[] = {
    NORM(W_ATTN_NORM, X, X), DELTA(X, A), MIX(A, X),
    NORM(W_FFN_NORM, X, X), MOE(X, A), MIX(A, X), END};
/* clang-format on */

static const arch_names minimax_names = {
    .hf = {[W_ROUTER] = "model.layers.%d.block_sparse_moe.gate",
           EXPERT_W_NAMES("model.layers.%d.block_sparse_moe.experts.%d"),
           [W_DELTA_QKV] = "model.layers.%d.self_attn.qkv_proj",
           [W_DELTA_GATE] = "model.layers.%d.self_attn.output_gate",
           [W_DELTA_NORM] = "model.layers.%d.self_attn.norm",
           [W_DELTA_OUT] = "model.layers.%d.self_attn.out_proj"},
    /* tables computed from the head's and layer's number */
    .left_out = {"model.layers.%d.self_attn.slope_rate", "model.layers.%d.self_attn.query_decay",
                 "model.layers.%d.self_attn.key_decay", "model.layers.%d.self_attn.diagonal_decay"},
};

/* Reads a half's two factors: of the residual and of the half's result. */
static quire_err read_mix(const config *c, const char *keep, const char *add, residual_mix *out) {
    *out = (residual_mix){1.0f, 1.0f};
    TRY(config_f32(c, NULL, keep, &out->keep));
    return config_f32(c, NULL, add, &out->add);
}

static quire_err minimax_read_layers(const config *c, state_layers *s, model_desc *d) {
    residual_mix attends, recurs, ff;
    bool are_typed;
    TRY(read_mix(c, "full_attn_alpha_factor", "full_attn_beta_factor", &attends));
    TRY(read_mix(c, "linear_attn_alpha_factor", "linear_attn_beta_factor", &recurs));
    TRY(read_mix(c, "mlp_alpha_factor", "mlp_beta_factor", &ff));
    TRY(config_state_types(c, d, "linear_attention", s, &are_typed));
    for (int32_t i = 0; i < d->n_layers; i++) {
        layer_desc *l = &d->layers[i];
        s->recurs[i] = are_typed ? s->recurs[i] : i % 2 == 1;
        s->attends[i] = !s->recurs[i];
        l->steps = s->recurs[i] ? lightning_mixed : attend_mixed;
        l->mixes[0] = s->recurs[i] ? recurs : attends;
        l->mixes[1] = ff;
    }
    return QUIRE_OK;
}

static quire_err describe_minimax(const config *c, model_desc *d) {
    decoder_shape shape = {0};
    state_layers s = {0};
    TRY(config_decoder(c, &shape, d));
    rope_desc r = config_plain_rope(c, d);
    r.pairs = ROPE_HALVES;
    TRY(config_rotary_dim(c, d, &r.n_dims));
    TRY(config_rope(c, NULL, d, &r));
    TRY(config_add_rope(c, d, &r));
    TRY(config_window_on_all(c, 0, d));
    d->moe = (moe_desc){.score = ROUTE_SOFTMAX, .renormalise = true};
    TRY(config_moe(c, d));
    d->delta = (delta_desc){.kind = DELTA_LIGHTNING,
                            .n_heads = shape.n_heads,
                            .n_key_heads = shape.n_heads,
                            .d_key = shape.d_head,
                            .d_value = shape.d_head,
                            .gate = ACT_SIGMOID,
                            .norm_eps = 1e-6f};
    TRY(minimax_read_layers(c, &s, d));
    config_delta_caches(d, &s);
    return config_set_states(c, &s, d);
}

/* MiniMax M3: attention reads blocks of keys that an index head selects for each KV head;
 * experts after the first layers; clamped gate and up products. Norms have weights 1 +
 * w. */

static const arch_names m3_names = {
    .gguf = {[W_INDEX_K] = "blk.%d.indexer.k_proj", [W_INDEX_Q] = "blk.%d.indexer.q_proj"},
    .hf = {[W_INDEX_K] = "model.layers.%d.self_attn.index_k_proj",
           [W_INDEX_K_NORM] = "model.layers.%d.self_attn.index_k_norm",
           [W_INDEX_Q] = "model.layers.%d.self_attn.index_q_proj",
           [W_INDEX_Q_NORM] = "model.layers.%d.self_attn.index_q_norm",
           [W_ROUTER] = "model.layers.%d.block_sparse_moe.gate",
           [W_ROUTER_BIAS] = "model.layers.%d.block_sparse_moe.e_score_correction_bias",
           EXPERT_W_NAMES("model.layers.%d.block_sparse_moe.experts.%d"),
           SHARED_NAMES("model.layers.%d.block_sparse_moe.shared_experts")},
};

/* Reads a list of 0 and 1, one per layer; `is` is unchanged if it is absent. */
static quire_err m3_read_flags(const config *c, const char *key, int32_t n_layers, bool *is) {
    int32_t list[DESC_MAX_LAYERS];
    size_t n;
    TRY(config_i32s(c, NULL, key, list, DESC_MAX_LAYERS, &n));
    if (n > 0 && n != (size_t)n_layers) {
        return config_bad(c, key, "must have a number for each layer");
    }
    for (size_t i = 0; i < n; i++) {
        is[i] = list[i] != 0;
    }
    return QUIRE_OK;
}

/* Reads which layers select keys: by config.json's types, or in a GGUF file those with an
 * index. */
static quire_err m3_read_choosers(const config *c, const model_desc *d, bool *chooses) {
    TRY(m3_read_flags(c, "sparse_attention_config.sparse_attention_freq", d->n_layers, chooses));
    for (int32_t i = 0; i < d->n_layers; i++) {
        char name[64];
        str type;
        TRY(config_str_at(c, "layer_types", (size_t)i, &type));
        if (type.n > 0 && !str_is(type, "minimax_m3_sparse") && !str_is(type, "full_attention")) {
            return config_bad(c, "layer_types", "may name only minimax_m3_sparse and full_attention");
        }
        chooses[i] = type.n > 0 ? str_is(type, "minimax_m3_sparse") : chooses[i];
        (void)snprintf(name, sizeof name, "blk.%d.indexer.k_norm.weight", (int)i);
        chooses[i] = c->is_gguf ? model_file_find(c->f, name) != NULL : chooses[i];
    }
    return config_check_types(c, d, "layer_types");
}

static quire_err m3_read_index(const config *c, model_desc *d) {
    index_desc *x = &d->index;
    bool chooses[DESC_MAX_LAYERS] = {false};
    int32_t n_blocks = 16;
    *x = (index_desc){.kind = CHOOSE_BLOCKS,
                      .n_heads = 4,
                      .d_head = 128,
                      .block = 128,
                      .n_own = 1,
                      .source = INDEX_OF_ROW,
                      .rms_norms = true,
                      .unweighed = true};
    TRY(config_i32(c, "attention.indexer.head_count",
                   "index_n_heads|sparse_attention_config.sparse_num_index_heads", &x->n_heads));
    TRY(config_i32(c, "attention.indexer.key_length",
                   "index_head_dim|sparse_attention_config.sparse_index_dim", &x->d_head));
    TRY(config_i32(c, "attention.indexer.top_k",
                   "index_topk_blocks|sparse_attention_config.sparse_topk_blocks", &n_blocks));
    TRY(config_i32(c, "attention.indexer.block_size",
                   "index_block_size|sparse_attention_config.sparse_block_size", &x->block));
    TRY(config_i32(c, "attention.indexer.local_blocks",
                   "index_local_blocks|sparse_attention_config.sparse_local_block", &x->n_own));
    if (x->block < 1 || n_blocks < 1 || n_blocks > INT32_MAX / x->block) {
        return config_bad(c, c->is_gguf ? "attention.indexer.top_k" : "index_topk_blocks",
                          "or the number of keys in a block is below 1 or too large");
    }
    x->n_best = n_blocks * x->block;
    TRY(m3_read_choosers(c, d, chooses));
    return config_add_index(c, chooses, d);
}

/* Reads the limit of gate and up products, which applies to experts and dense layers. */
static quire_err m3_read_limit(const config *c, model_desc *d) {
    float limit = 7.0f, alpha = 1.702f;
    TRY(config_f32(c, NULL, "swiglu_limit", &limit));
    TRY(config_f32(c, NULL, "swiglu_alpha", &alpha));
    if (!(limit > 0.0f) || alpha != 1.702f) {
        return config_bad(c, "swiglu_limit", "must be over 0, and swiglu_alpha must be 1.702");
    }
    d->activation = d->moe.activation = ACT_SWIGLU_CLAMPED;
    for (int32_t i = 0; i < d->n_layers; i++) {
        d->layers[i].limit = d->layers[i].dense_limit = limit;
    }
    return QUIRE_OK;
}

static quire_err m3_read_experts(const config *c, int32_t d_ff, model_desc *d) {
    bool is_sparse[DESC_MAX_LAYERS];
    d->moe = (moe_desc){.score = ROUTE_SIGMOID, .correction_bias = true, .renormalise = true, .scale = 2.0f};
    TRY(config_moe(c, d));
    d->moe.renormalise = true;
    config_usual_shared(c, 1, d);
    if (c->is_gguf) {
        return config_dense_layers(c, NULL, 0, d_ff, d);
    }
    for (int32_t i = 0; i < d->n_layers; i++) {
        is_sparse[i] = true;
    }
    TRY(m3_read_flags(c, "moe_layer_freq", d->n_layers, is_sparse));
    return config_sparse_types(c, is_sparse, d_ff, d);
}

static quire_err describe_minimax_m3(const config *c, model_desc *d) {
    decoder_shape s = {.own_activation = "swigluoai"};
    int32_t rotary = 0, dense = 12288;
    d->norm.add_one = true;
    d->attend.qk_norm = QK_NORM_HEAD;
    TRY(config_decoder(c, &s, d));
    rope_desc r = config_plain_rope(c, d);
    r.pairs = ROPE_HALVES;
    TRY(config_rotary_dim(c, d, &rotary));
    r.n_dims = rotary > 0 ? rotary : r.n_dims / 2;
    TRY(config_rope(c, NULL, d, &r));
    TRY(config_add_rope(c, d, &r));
    TRY(config_i32(c, NULL, "dense_intermediate_size", &dense));
    TRY(m3_read_experts(c, c->is_gguf ? d->layers[0].d_ff : dense, d));
    TRY(m3_read_limit(c, d));
    return m3_read_index(c, d);
}

const arch minimax_archs[] = {
    {{"minimax"}, {"MiniMaxForCausalLM"}, &minimax_names, .describe = describe_minimax},
    {{"minimax-m3"},
     {"MiniMaxM3SparseForConditionalGeneration", "MiniMaxM3SparseForCausalLM"},
     &m3_names,
     .describe = describe_minimax_m3},
    {.describe = NULL},
};
