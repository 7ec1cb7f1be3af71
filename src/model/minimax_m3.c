/* MiniMax M3: attention reads blocks of keys, which an index head chooses for each KV head;
 * experts behind the first layers, gates and up products clamped. Norms are 1 + w. */
#include <stdio.h>

#include "model/architectures.h"

static const arch_names m3_names = {
    .gguf = {[W_INDEX_K] = "blk.%d.indexer.k_proj", [W_INDEX_Q] = "blk.%d.indexer.q_proj"},
    .hf = {[W_INDEX_K] = "model.layers.%d.self_attn.index_k_proj",
           [W_INDEX_K_NORM] = "model.layers.%d.self_attn.index_k_norm",
           [W_INDEX_Q] = "model.layers.%d.self_attn.index_q_proj",
           [W_INDEX_Q_NORM] = "model.layers.%d.self_attn.index_q_norm",
           [W_ROUTER] = "model.layers.%d.block_sparse_moe.gate",
           [W_ROUTER_BIAS] = "model.layers.%d.block_sparse_moe.e_score_correction_bias",
           [W_EXPERT_GATE] = "model.layers.%d.block_sparse_moe.experts.%d.w1",
           [W_EXPERT_UP] = "model.layers.%d.block_sparse_moe.experts.%d.w3",
           [W_EXPERT_DOWN] = "model.layers.%d.block_sparse_moe.experts.%d.w2",
           [W_SHARED_GATE] = "model.layers.%d.block_sparse_moe.shared_experts.gate_proj",
           [W_SHARED_UP] = "model.layers.%d.block_sparse_moe.shared_experts.up_proj",
           [W_SHARED_DOWN] = "model.layers.%d.block_sparse_moe.shared_experts.down_proj"},
};

/* A list of 0 and 1, one a layer; absent: what `is` has. */
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

/* Which layers choose: as config.json types them; in a GGUF file those with an index. */
static quire_err m3_read_choosers(const config *c, const model_desc *d, bool *chooses) {
    TRY(m3_read_flags(c, "sparse_attention_config.sparse_attention_freq", d->n_layers, chooses));
    for (int32_t i = 0; i < d->n_layers; i++) {
        char name[64];
        str type;
        TRY(config_str_at(c, "layer_types", (size_t)i, &type));
        if (type.n > 0 && !str_is(type, "minimax_m3_sparse") && !str_is(type, "full_attention")) {
            return config_bad(c, "layer_types", "may name minimax_m3_sparse and full_attention only");
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
                          "and the keys of a block must be over 0, and not that large");
    }
    x->n_best = n_blocks * x->block;
    TRY(m3_read_choosers(c, d, chooses));
    return config_add_index(c, chooses, d);
}

/* Gates and up products are clamped, in experts and dense layers alike. */
static quire_err m3_read_limit(const config *c, model_desc *d) {
    float limit = 7.0f, alpha = 1.702f;
    TRY(config_f32(c, NULL, "swiglu_limit", &limit));
    TRY(config_f32(c, NULL, "swiglu_alpha", &alpha));
    if (!(limit > 0.0f) || alpha != 1.702f) {
        return config_bad(c, "swiglu_limit", "must be over 0, and swiglu_alpha 1.702");
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
    TRY(config_sparse_types(c, d, is_sparse));
    for (int32_t i = 0; i < d->n_layers; i++) {
        if (!is_sparse[i]) {
            config_set_dense(d, i, d_ff);
        }
    }
    return QUIRE_OK;
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

const arch arch_minimax_m3 = {.gguf = {"minimax-m3"},
                              .hf = {"MiniMaxM3SparseForConditionalGeneration", "MiniMaxM3SparseForCausalLM"},
                              .names = &m3_names,
                              .describe = describe_minimax_m3};
