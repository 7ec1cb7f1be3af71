/* ERNIE 4.5: neighbouring elements of a head rotate together; its mixture of experts.
 * Hunyuan: norms of queries and keys after the rotation; Hunyuan 3: before it, and a
 * sigmoid mixture. MiniMax-M2: norms over all heads of queries and keys. */
#include <math.h>

#include "model/architectures.h"

static const arch_names ernie_moe_names = {
    .hf = {[W_ROUTER_BIAS] = "model.layers.%d.mlp.moe_statics.e_score_correction_bias"}};
static const arch_names ernie_vl_names = {
    .hf = {[W_ROUTER_BIAS] = "model.layers.%d.mlp.moe_statics.e_score_correction_bias"},
    .left_out = {"model.layers.%d.mlp.gate.weight_1", "vision_model|model.vision_tower|model.visual",
                 "model.resampler_model|model.resampler"},
};
static const arch_names hunyuan_names = {
    .hf = {[W_Q_NORM] = "model.layers.%d.self_attn.query_layernorm",
           [W_K_NORM] = "model.layers.%d.self_attn.key_layernorm",
           [W_ROUTER] = "model.layers.%d.mlp.gate.wg",
           SHARED_NAMES("model.layers.%d.mlp.shared_mlp")},
};
static const arch_names hy_v3_names = {
    .hf = {[W_ROUTER] = "model.layers.%d.mlp.router.gate",
           [W_ROUTER_BIAS] = "model.layers.%d.mlp.expert_bias",
           SHARED_NAMES("model.layers.%d.mlp.shared_mlp")},
};
static const arch_names minimax_names = {
    .hf = {[W_ROUTER] = "model.layers.%d.block_sparse_moe.gate",
           [W_ROUTER_BIAS] = "model.layers.%d.block_sparse_moe.e_score_correction_bias",
           EXPERT_W_NAMES("model.layers.%d.block_sparse_moe.experts.%d")},
};

static quire_err describe_ernie(const config *c, model_desc *d) {
    d->tied_embeddings = true;
    d->norm_eps = 1e-5f;
    return config_llama(c, ROPE_NEIGHBOURS, ROPE_NEIGHBOURS, d);
}

/* Checks the lower limit of the sum of chosen experts' weights. The sum is at least what
 * equal weights would give, so a limit below that has no effect. */
static quire_err check_least(const config *c, const model_desc *d) {
    float least = 0.0f;
    TRY(config_f32(c, NULL, "moe_norm_min", &least));
    int32_t n = d->layers[0].n_experts;
    return n == 0 || least <= (float)d->moe.n_used / (float)n * 0.5f
               ? QUIRE_OK
               : config_unsupported(c, "a moe_norm_min of that size is not supported");
}

/* Experts from moe_layer_start_index to moe_layer_end_index, in every
 * moe_layer_interval-th layer. */
static quire_err describe_ernie_moe(const config *c, model_desc *d) {
    int32_t first = 1, last = -1, step = 1;
    TRY(describe_ernie(c, d));
    int32_t d_ff = d->layers[0].d_ff;
    d->moe = (moe_desc){.score = ROUTE_SOFTMAX, .correction_bias = true, .renormalise = true};
    TRY(config_moe(c, d));
    d->moe.renormalise = true;
    config_usual_shared(c, c->is_gguf ? 0 : 2, d);
    TRY(config_i32(c, "leading_dense_block_count", "moe_layer_start_index", &first));
    TRY(config_layer(c, NULL, "moe_layer_end_index", &last));
    TRY(config_i32(c, "interleave_moe_layer_step", "moe_layer_interval", &step));
    TRY(check_least(c, d));
    for (int32_t i = 0; i < d->n_layers; i++) {
        if (i < first || (last >= 0 && i > last) || (step > 1 && (i + 1) % step != 0)) {
            config_set_dense(d, i, d_ff);
        }
    }
    return QUIRE_OK;
}

/* ERNIE 4.5 VL: text rows use the text experts; as many experts for images follow them in
 * the file and are left out. */
static quire_err describe_ernie_vl(const config *c, model_desc *d) {
    bool is_sparse[DESC_MAX_LAYERS];
    TRY(describe_ernie(c, d));
    int32_t d_ff = d->layers[0].d_ff;
    d->moe = (moe_desc){
        .score = ROUTE_SOFTMAX, .correction_bias = true, .renormalise = true, .n_image_experts = 1};
    TRY(config_moe(c, d));
    d->moe.renormalise = true;
    d->moe.n_image_experts = d->layers[0].n_experts;
    if (!config_has(c, NULL, "moe_num_shared_experts") && d->moe.d_expert <= INT32_MAX / 2) {
        d->moe.d_shared = 2 * d->moe.d_expert;
    }
    TRY(check_least(c, d));
    for (int32_t i = 0; i < d->n_layers; i++) {
        is_sparse[i] = i > 0;
    }
    return config_sparse_types(c, is_sparse, d_ff, d);
}

/* Dynamic scaling with a fixed alpha, which means a larger base. */
static quire_err read_alpha(const config *c, const model_desc *d, rope_desc *r) {
    float alpha = 0.0f;
    TRY(config_f32(c, NULL, "rope_scaling.alpha|rope_parameters.alpha", &alpha));
    if (r->kind == ROPE_NTK && config_has(c, NULL, "rope_scaling.alpha|rope_parameters.alpha")) {
        if (alpha <= 0.0f || r->n_dims < 4) {
            return config_bad(c, "alpha", "must be over 0, and heads must be wider than 2");
        }
        r->kind = ROPE_PLAIN;
        r->theta *= powf(alpha, (float)r->n_dims / (float)(r->n_dims - 2));
    }
    (void)d;
    return QUIRE_OK;
}

static quire_err describe_hunyuan(const config *c, model_desc *d) {
    decoder_shape s = {0};
    d->norm_eps = 1e-5f;
    TRY(config_decoder(c, &s, d));
    rope_desc r = config_plain_rope(c, d);
    r.pairs = ROPE_HALVES;
    TRY(config_rope(c, NULL, d, &r));
    TRY(read_alpha(c, d, &r));
    TRY(config_add_rope(c, d, &r));
    d->attend.qk_norm = QK_NORM_HEAD;
    d->attend.norm_after_rope = true;
    return QUIRE_OK;
}

/* In config.json, the experts and the shared expert are as wide as the feed-forward part;
 * other values there have no meaning. */
static quire_err read_hunyuan_experts(const config *c, model_desc *d) {
    moe_desc *m = &d->moe;
    int32_t n = 1;
    m->n_used = 1;
    TRY(config_same_i32(c, NULL, "num_experts|num_local_experts", &n));
    TRY(config_same_i32(c, NULL, "moe_topk|num_experts_per_tok", &m->n_used));
    if (n < 1 || m->n_used < 1 || m->n_used > n) {
        return config_bad(c, "the experts", "must be 1 or more, and a row must use from 1 to all of them");
    }
    m->d_expert = m->d_shared = d->layers[0].d_ff;
    m->activation = d->activation;
    for (int32_t i = 0; i < d->n_layers; i++) {
        config_set_experts(d, i, n);
    }
    return QUIRE_OK;
}

static quire_err describe_hunyuan_moe(const config *c, model_desc *d) {
    TRY(describe_hunyuan(c, d));
    d->moe = (moe_desc){.score = ROUTE_SOFTMAX, .renormalise = true};
    if (!c->is_gguf) {
        return read_hunyuan_experts(c, d);
    }
    TRY(config_moe(c, d));
    d->moe.d_shared = d->moe.d_shared > 0 ? d->moe.d_shared : d->moe.d_expert;
    return QUIRE_OK;
}

static quire_err describe_hy_v3(const config *c, model_desc *d) {
    TRY(config_llama(c, ROPE_HALVES, ROPE_HALVES, d));
    const int32_t d_ff = d->layers[0].d_ff;
    d->attend.qk_norm = QK_NORM_HEAD;
    d->moe = (moe_desc){.score = ROUTE_SIGMOID, .correction_bias = true, .renormalise = !c->is_gguf};
    d->moe.scale = c->is_gguf ? 0.0f : 2.826f;
    TRY(config_moe(c, d));
    d->moe.renormalise = d->moe.renormalise || !c->is_gguf; /* norm_topk_prob is ignored */
    config_usual_shared(c, 1, d);
    return config_dense_layers(c, "first_k_dense_replace", 1, d_ff, d);
}

static quire_err describe_minimax_m2(const config *c, model_desc *d) {
    decoder_shape s = {0};
    int32_t rotary = 0;
    TRY(config_decoder(c, &s, d));
    rope_desc r = config_plain_rope(c, d);
    r.pairs = ROPE_HALVES;
    TRY(config_rotary_dim(c, d, &rotary));
    r.n_dims = rotary > 0 ? rotary : r.n_dims;
    TRY(config_rope(c, NULL, d, &r));
    TRY(config_add_rope(c, d, &r));
    d->attend.qk_norm = QK_NORM_ROW;
    d->moe = (moe_desc){.score = ROUTE_SIGMOID, .correction_bias = true, .renormalise = true};
    return config_moe(c, d);
}

const arch ernie_archs[] = {
    {{"ernie4_5"}, {"Ernie4_5ForCausalLM", "Ernie4_5_ForCausalLM"}, .describe = describe_ernie},
    {{"ernie4_5-moe"}, {"Ernie4_5_MoeForCausalLM"}, &ernie_moe_names, .describe = describe_ernie_moe},
    {{"ernie4_5-vl-moe"},
     {"Ernie4_5_VLMoeForConditionalGeneration", "Ernie4_5_VL_MoeForConditionalGeneration"},
     &ernie_vl_names,
     .describe = describe_ernie_vl},
    {{"hunyuan-dense"}, {"HunYuanDenseV1ForCausalLM"}, &hunyuan_names, .describe = describe_hunyuan},
    {{"hunyuan-moe"}, {"HunYuanMoEV1ForCausalLM"}, &hunyuan_names, .describe = describe_hunyuan_moe},
    {{"hy_v3"}, {"HYV3ForCausalLM"}, &hy_v3_names, .describe = describe_hy_v3},
    {{"minimax-m2"}, {"MiniMaxM2ForCausalLM"}, &minimax_names, .describe = describe_minimax_m2},
    {.describe = NULL},
};
