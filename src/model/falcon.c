/* Falcon: arXiv:2311.16867, in its three layouts. BLOOM: arXiv:2211.05100. MPT. */

#include "model/architectures.h"

static const arch_names falcon_names = {
    .gguf = {[W_ATTN_NORM] = "blk.%d.attn_norm_2|blk.%d.attn_norm",
             [W_FFN_NORM] = "blk.%d.ffn_norm|blk.%d.attn_norm"},
    .hf = {[W_TOKENS] = "transformer.word_embeddings",
           [W_OUT_NORM] = "transformer.ln_f",
           [W_ATTN_NORM] = "transformer.h.%d.input_layernorm|transformer.h.%d.ln_attn",
           [W_QKV] = "transformer.h.%d.self_attention.query_key_value",
           [W_O] = "transformer.h.%d.self_attention.dense",
           [W_FFN_NORM] = "transformer.h.%d.post_attention_layernorm|transformer.h.%d.ln_mlp",
           [W_UP] = "transformer.h.%d.mlp.dense_h_to_4h",
           [W_DOWN] = "transformer.h.%d.mlp.dense_4h_to_h"},
};
static const arch_names bloom_names = {
    .hf = {[W_TOKENS] = "transformer.word_embeddings|word_embeddings",
           [W_EMBED_NORM] = "transformer.word_embeddings_layernorm|word_embeddings_layernorm",
           [W_OUT_NORM] = "transformer.ln_f|ln_f",
           [W_ATTN_NORM] = "transformer.h.%d.input_layernorm|h.%d.input_layernorm",
           [W_QKV] = "transformer.h.%d.self_attention.query_key_value|h.%d.self_attention.query_key_value",
           [W_O] = "transformer.h.%d.self_attention.dense|h.%d.self_attention.dense",
           [W_FFN_NORM] = "transformer.h.%d.post_attention_layernorm|h.%d.post_attention_layernorm",
           [W_UP] = "transformer.h.%d.mlp.dense_h_to_4h|h.%d.mlp.dense_h_to_4h",
           [W_DOWN] = "transformer.h.%d.mlp.dense_4h_to_h|h.%d.mlp.dense_4h_to_h"},
};
static const arch_names mpt_names = {
    .hf = {[W_TOKENS] = "transformer.wte",
           [W_OUT_NORM] = "transformer.norm_f",
           [W_ATTN_NORM] = "transformer.blocks.%d.norm_1",
           [W_QKV] = "transformer.blocks.%d.attn.Wqkv",
           [W_O] = "transformer.blocks.%d.attn.out_proj",
           [W_FFN_NORM] = "transformer.blocks.%d.norm_2",
           [W_UP] = "transformer.blocks.%d.ffn.up_proj",
           [W_DOWN] = "transformer.blocks.%d.ffn.down_proj"},
};

static quire_err falcon_describe_shape(const config *c, model_desc *d, int32_t n_kv_heads) {
    d->activation = ACT_GELU;
    d->tied_embeddings = true;
    return gpt_describe_shape(c, "hidden_size|n_embed|d_model", n_kv_heads, d);
}

/* 7B: one norm for attention and feed-forward side by side, one KV head. 40B ("new"): two
 * norms, groups of heads. RW: ALiBi, the halves one after the other. GGUF has the first
 * two. */
static quire_err describe_falcon(const config *c, model_desc *d) {
    bool is_new = false, multi_query = true, alibi = false, parallel = true;
    int32_t n_norms = 0, n_kv_heads = 0;
    TRY(config_bool(c, NULL, "new_decoder_architecture", &is_new));
    TRY(config_bool(c, NULL, "multi_query", &multi_query));
    TRY(config_bool(c, NULL, "alibi", &alibi));
    TRY(config_bool(c, NULL, "parallel_attn", &parallel));
    TRY(config_i32(c, NULL, "num_ln_in_parallel_attn", &n_norms));
    TRY(config_same_i32(c, "attention.head_count_kv", "num_kv_heads", &n_kv_heads));
    TRY(falcon_describe_shape(c, d, n_kv_heads));
    TRY(config_activation(c, "activation", d));
    if (c->is_gguf) {
        is_new = model_file_find(c->f, "blk.0.attn_norm_2.weight") != NULL;
    } else if (!is_new && multi_query) {
        n_kv_heads = 1;
    } else if (!is_new) {
        n_kv_heads = d->layers[0].n_heads;
    }
    for (int32_t i = 0; i < d->n_caches && n_kv_heads > 0; i++) {
        d->caches[i].n_kv_heads = n_kv_heads;
    }
    if (is_new || parallel) {
        steps_set(d, is_new && n_norms != 1 ? steps_parallel_norms : steps_parallel);
    }
    d->attend.order = is_new || !multi_query ? QKV_GROUPED : QKV_STACKED;
    if (alibi) { /* slopes are rounded, and scaled like the scores */
        d->attend.alibi = 8.0f;
        d->attend.alibi_bf16 = true;
        d->attend.alibi_scale = d->attention_scale;
        return QUIRE_OK;
    }
    return config_rotary(c, d, ROPE_HALVES, ROPE_HALVES, 1.0f);
}

/* x = norm(x); x += attend(x); x = norm(x); x += mlp(x): the norms replace the
 * residual. */
static const layer_step bloom_normed[] = {
    NORM(W_ATTN_NORM, X, X), ATTEND(X, A), ADD(A, X), NORM(W_FFN_NORM, X, X), MLP(X, A), ADD(A, X), END};

static quire_err describe_bloom(const config *c, model_desc *d) {
    bool normed = false;
    d->max_positions = 2048;
    TRY(falcon_describe_shape(c, d, 0));
    d->activation = ACT_GELU_TANH;
    d->attend.alibi = 8.0f;
    d->attend.order = QKV_GROUPED;
    TRY(config_bool(c, NULL, "apply_residual_connection_post_layernorm", &normed));
    steps_set(d, normed ? bloom_normed : steps_pre_norm);
    return QUIRE_OK;
}

static quire_err describe_mpt(const config *c, model_desc *d) {
    bool alibi = true, qk_norm = false;
    float scale = 0.0f;
    TRY(falcon_describe_shape(c, d, 0));
    TRY(config_bool(c, NULL, "attn_config.alibi", &alibi));
    TRY(config_bool(c, NULL, "attn_config.qk_ln", &qk_norm));
    TRY(config_f32(c, NULL, "attn_config.softmax_scale", &scale));
    if (!alibi || qk_norm) {
        return config_unsupported(c, "MPT without ALiBi or with norms of queries and keys is not supported");
    }
    d->attention_scale = scale > 0.0f ? scale : d->attention_scale;
    d->attend.alibi = 8.0f;
    TRY(config_f32(c, "attention.max_alibi_bias", "attn_config.alibi_bias_max", &d->attend.alibi));
    return config_f32_or_none(c, "attention.clamp_kqv", "attn_config.clip_qkv", &d->attend.clip);
}

/* Falcon-H1: arXiv:2507.22448: attention and Mamba-2 side by side in every layer, and a
 * factor on nearly every product. In GGUF files the weights include the factors. */

static const arch_names falcon_h1_names = {
    .hf = {[W_OUT_NORM] = "model.final_layernorm",
           [W_FFN_NORM] = "model.layers.%d.pre_ff_layernorm",
           MLP_NAMES("model.layers.%d.feed_forward")},
};

/* x += attend(norm(x)) + mamba(norm(x)); x += mlp(norm(x)). */
static const layer_step attend_beside_mamba[] = {NORM(W_ATTN_NORM, X, A),
                                                 NORM(W_MAMBA_IN_NORM, X, B),
                                                 ATTEND(A, A),
                                                 ADD(A, X),
                                                 MAMBA(B, B),
                                                 ADD(B, X),
                                                 NORM(W_FFN_NORM, X, A),
                                                 MLP(A, A),
                                                 ADD(A, X),
                                                 END};

/* Reads a factor; null or absent: 1. */
static quire_err read_multiplier(const config *c, const char *hf, float *out) {
    *out = 1.0f;
    TRY(config_f32(c, NULL, config_is_null(c, hf) ? NULL : hf, out));
    return *out != 0.0f ? QUIRE_OK : config_bad(c, hf, "must not be 0");
}

/* Reads n factors, or none. */
static quire_err read_multipliers(const config *c, const char *hf, float *out, size_t n_wanted) {
    size_t n = 0;
    for (size_t i = 0; i < n_wanted; i++) {
        out[i] = 1.0f;
    }
    if (!c->is_gguf && !config_is_null(c, hf)) {
        TRY(config_f32s(c, hf, out, n_wanted, &n));
    }
    bool fits = n == 0 || n == n_wanted;
    for (size_t i = 0; i < n_wanted; i++) {
        fits = fits && out[i] != 0.0f;
    }
    return fits ? QUIRE_OK : config_bad(c, hf, "must be a number other than 0 for each part");
}

static quire_err falcon_h1_read_scales(const config *c, model_desc *d) {
    float key, mlp[2];
    TRY(read_multiplier(c, "embedding_multiplier", &d->embed.scale));
    TRY(read_multiplier(c, "lm_head_multiplier", &d->head.scale));
    TRY(read_multiplier(c, "key_multiplier", &key));
    TRY(read_multiplier(c, "attention_in_multiplier", &d->attend.in_scale));
    TRY(read_multiplier(c, "attention_out_multiplier", &d->attend.out_scale));
    TRY(read_multiplier(c, "ssm_in_multiplier", &d->mamba.in_scale));
    TRY(read_multiplier(c, "ssm_out_multiplier", &d->mamba.out_scale));
    TRY(read_multipliers(c, "ssm_multipliers", d->mamba.scales, 5));
    TRY(read_multipliers(c, "mlp_multipliers", mlp, 2));
    d->attention_scale *= key;
    d->gate_scale = mlp[0];
    d->down_scale = mlp[1];
    return QUIRE_OK;
}

static quire_err describe_falcon_h1(const config *c, model_desc *d) {
    bool has_norm = model_file_find(c->f, "blk.0.ssm_norm.weight") != NULL, norm_first = !c->is_gguf;
    state_layers s = {0};
    TRY(config_llama(c, ROPE_HALVES, ROPE_HALVES, d));
    d->mamba = (mamba_desc){.n_inner = 1024, .n_heads = 128, .n_groups = 1, .n_states = 256};
    TRY(config_i32_or_none(c, NULL, "mamba_d_ssm", &d->mamba.n_inner));
    TRY(config_mamba2(c, 2.0f, 0, d, &s));
    TRY(config_bool(c, NULL, "mamba_rms_norm", &has_norm));
    TRY(config_bool(c, NULL, "mamba_norm_before_gate", &norm_first));
    d->mamba.n_norm_groups = has_norm ? d->mamba.n_groups : 0;
    d->mamba.norm_first = norm_first;
    d->mamba.inner_eps = d->norm_eps;
    TRY(falcon_h1_read_scales(c, d));
    for (int32_t i = 0; i < d->n_layers; i++) {
        s.attends[i] = s.recurs[i] = true;
    }
    steps_set(d, attend_beside_mamba);
    return config_set_states(c, &s, d);
}

const arch falcon_archs[] = {
    {{"falcon"}, {"FalconForCausalLM", "RWForCausalLM"}, &falcon_names, .describe = describe_falcon},
    {{"bloom"}, {"BloomForCausalLM"}, &bloom_names, .describe = describe_bloom},
    {{"mpt"}, {"MPTForCausalLM", "MptForCausalLM"}, &mpt_names, .describe = describe_mpt},
    {{"falcon-h1"}, {"FalconH1ForCausalLM"}, &falcon_h1_names, .describe = describe_falcon_h1},
    {.describe = NULL},
};
