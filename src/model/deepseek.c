/* DeepSeek V2: arXiv:2405.04434, V3: arXiv:2412.19437, and models with the same layers:
 * Kimi K2 and K2.5, GLM-4.7 Flash, Mistral Small 4, Youtu, A.X K1. All have latent
 * attention, and most a mixture of experts after the first layers. DeepSeek V3.2:
 * arXiv:2512.02556, and GLM-5: rows select the keys that they read. LongCat Flash:
 * arXiv:2509.01322: two attentions and MLPs per layer, and experts beside them. */
#include <math.h>

#include "model/architectures.h"

static const arch_names stacked_names = {
    .hf = {STACK_NAMES("model.layers.%d.mlp.experts")}, /* quantised: modules */
};

static const arch_names axk1_names = {
    .hf = {[W_FFN_POST_NORM] = "model.layers.%d.post_mlp_layernorm"},
};
static const arch_names axk2_names = {
    .hf = {[W_ATTN_NORM] = "model.layers.%d.input_layernorm.norm",
           [W_ATTN_NORM_DOWN] = "model.layers.%d.input_layernorm.W_down",
           [W_ATTN_NORM_UP] = "model.layers.%d.input_layernorm.W_up",
           [W_FFN_NORM] = "model.layers.%d.post_attention_layernorm.norm|"
                          "model.layers.%d.post_attention_layernorm",
           [W_FFN_NORM_DOWN] = "model.layers.%d.post_attention_layernorm.W_down",
           [W_FFN_NORM_UP] = "model.layers.%d.post_attention_layernorm.W_up"},
};
static const arch_names longcat_second = {
    .hf = {[W_ATTN_NORM] = "model.layers.%d.input_layernorm.1",
           LATENT_NAMES("model.layers.%d.self_attn.1"),
           [W_O] = "model.layers.%d.self_attn.1.o_proj",
           [W_FFN_NORM] = "model.layers.%d.post_attention_layernorm.1",
           MLP_NAMES("model.layers.%d.mlps.1")},
};
static const arch_names longcat_names = {
    .second = &longcat_second,
    .hf = {[W_ATTN_NORM] = "model.layers.%d.input_layernorm.0",
           LATENT_NAMES("model.layers.%d.self_attn.0"),
           [W_O] = "model.layers.%d.self_attn.0.o_proj",
           [W_FFN_NORM] = "model.layers.%d.post_attention_layernorm.0",
           MLP_NAMES("model.layers.%d.mlps.0"),
           [W_ROUTER] = "model.layers.%d.mlp.router.classifier",
           [W_ROUTER_BIAS] = "model.layers.%d.mlp.router.e_score_correction_bias"},
};
/* clang-format off */
static const layer_step steps_normed_moe[] = {
    NORM(W_ATTN_NORM, X, A), LATENT(A, A), ADD(A, X),
    NORM(W_FFN_NORM, X, A), MOE(A, A), NORM(W_FFN_POST_NORM, A, A), ADD(A, X), END};
static const layer_step steps_gated_norm[] = {
    NORM(W_ATTN_NORM, X, A), GATE(W_ATTN_NORM_DOWN, A), LATENT(A, A), ADD(A, X),
    NORM(W_FFN_NORM, X, A), MLP(A, A), ADD(A, X), END};
static const layer_step steps_gated_norms_moe[] = {
    NORM(W_ATTN_NORM, X, A), GATE(W_ATTN_NORM_DOWN, A), LATENT(A, A), ADD(A, X),
    NORM(W_FFN_NORM, X, A), GATE(W_FFN_NORM_DOWN, A), MOE(A, B), ADD(B, X), END};
static const layer_step steps_longcat[] = {
    NORM(W_ATTN_NORM, X, A), LATENT(A, A), ADD(A, X),
    NORM(W_FFN_NORM, X, A), MOE(A, B), MLP(A, A), ADD(A, X),
    SECOND(STEP_NORM, X, A, W_ATTN_NORM), SECOND(STEP_LATENT, A, A, 0), ADD(A, X),
    SECOND(STEP_NORM, X, A, W_FFN_NORM), SECOND(STEP_MLP, A, A, 0), ADD(A, X),
    ADD(B, X), END};
/* clang-format on */

static const latent_desc
    deepseek_latent = {.q_rank = 1536, .rank = 512, .d_nope = 128, .d_rope = 64, .d_value = 128},
    glm_latent = {.q_rank = 768, .rank = 512, .d_nope = 192, .d_rope = 64, .d_value = 256},
    glm5_latent = {.q_rank = 2048, .rank = 512, .d_nope = 192, .d_rope = 64, .d_value = 256},
    mistral_latent = {.q_rank = 1024, .rank = 256, .d_nope = 64, .d_rope = 64, .d_value = 128};

/* Reads which layers are dense: a list, or the first n and all but every
 * moe_layer_freq-th. */
static quire_err read_dense_layers(const config *c, int32_t n_dense, int32_t d_ff, model_desc *d) {
    int32_t period = 1;
    TRY(config_i32(c, "leading_dense_block_count", "first_k_dense_replace", &n_dense));
    TRY(config_i32(c, NULL, "moe_layer_freq", &period));
    if (period < 1) {
        return config_bad(c, "moe_layer_freq", "must be 1 or more");
    }
    for (int32_t i = 0; i < d->n_layers; i++) {
        str type;
        TRY(config_str_at(c, "mlp_layer_types", (size_t)i, &type));
        if (type.n > 0 && !str_is(type, "dense") && !str_is(type, "sparse")) {
            return config_bad(c, "mlp_layer_types", "may name only dense and sparse");
        }
        const bool is_dense = type.n > 0 ? str_is(type, "dense") : i < n_dense || i % period != 0;
        if (is_dense) {
            config_set_dense(d, i, d_ff);
        }
        config_set_latent(d, i);
    }
    return QUIRE_OK;
}

/* Describes the mixture. n_dense: default number of layers before the first mixture. */
static quire_err deepseek_describe_experts(const config *c, moe_desc usual, int32_t n_dense, model_desc *d) {
    const int32_t d_ff = d->layers[0].d_ff;
    d->moe = usual;
    if (c->is_gguf) {
        const bool has_bias = config_has_correction(c, d);
        d->moe = (moe_desc){.score = has_bias ? ROUTE_SIGMOID : ROUTE_SOFTMAX};
        d->moe.correction_bias = has_bias;
    }
    TRY(config_moe(c, d));
    config_usual_shared(c, c->is_gguf ? 0 : config_is(c, "DeepseekV2ForCausalLM") ? 2 : 1, d);
    d->moe.group_by_best_two = d->moe.score == ROUTE_SIGMOID; /* false in V2, true in V3 */
    return d->layers[0].n_experts > 0 ? read_dense_layers(c, n_dense, d_ff, d) : QUIRE_OK;
}

static quire_err check_method(const config *c, const char *usual, const char *other, str *method) {
    TRY(config_str(c, NULL, "topk_method", method));
    if (method->n > 0 && !str_is(*method, usual) && !str_is(*method, other)) {
        return err_set(c->err, QUIRE_UNSUPPORTED, -1, "%s: topk_method \"%.*s\" is not supported: %s%s%s is",
                       model_file_path(c->f), (int)(method->n < 40 ? method->n : 40), method->p, usual,
                       other[0] != 0 ? " or " : "", other);
    }
    return QUIRE_OK;
}

static quire_err describe_v2(const config *c, model_desc *d) {
    str method = str_of("greedy");
    TRY(config_latents(c, &deepseek_latent, ROPE_NEIGHBOURS, ROPE_NEIGHBOURS, d));
    TRY(check_method(c, "greedy", "group_limited_greedy", &method));
    TRY(deepseek_describe_experts(c, (moe_desc){.score = ROUTE_SOFTMAX}, 0, d));
    if (!c->is_gguf && str_is(method, "greedy")) {
        d->moe.n_groups = d->moe.n_groups_used = 0;
    }
    return QUIRE_OK;
}

static const moe_desc v3_experts = {.n_groups = 8,
                                    .n_groups_used = 4,
                                    .score = ROUTE_SIGMOID,
                                    .correction_bias = true,
                                    .renormalise = true,
                                    .scale = 2.5f};

static quire_err describe_v3(const config *c, model_desc *d) {
    str method = {0};
    TRY(config_latents(c, &deepseek_latent, ROPE_NEIGHBOURS, ROPE_NEIGHBOURS, d));
    TRY(check_method(c, "noaux_tc", "", &method));
    return deepseek_describe_experts(c, v3_experts, 3, d);
}

/* One function for all, since GGUF files have one name for all models with such
 * layers. */
static quire_err describe_deepseek(const config *c, model_desc *d) {
    return c->is_gguf ? describe_v2(c, d) : describe_v3(c, d);
}

static quire_err describe_glm4_lite(const config *c, model_desc *d) {
    moe_desc usual = v3_experts;
    usual.n_groups = usual.n_groups_used = 1;
    usual.scale = 1.8f;
    TRY(config_latents(c, &glm_latent, ROPE_NEIGHBOURS, ROPE_NEIGHBOURS, d));
    return deepseek_describe_experts(c, usual, 1, d);
}

static quire_err describe_mistral4(const config *c, model_desc *d) {
    const moe_desc usual = {
        .n_groups = 1, .n_groups_used = 1, .score = ROUTE_SOFTMAX, .renormalise = true, .scale = 1.0f};
    TRY(config_latents(c, &mistral_latent, ROPE_NEIGHBOURS, ROPE_NEIGHBOURS, d));
    TRY(config_temperature(c, false, d));
    return deepseek_describe_experts(c, usual, 0, d);
}

/* A.X K1: a norm after the experts. */
static quire_err describe_axk1(const config *c, model_desc *d) {
    TRY(describe_v3(c, d));
    for (int32_t i = 0; i < d->n_layers; i++) {
        d->layers[i].steps = d->layers[i].n_experts > 0 ? steps_normed_moe : d->layers[i].steps;
    }
    return QUIRE_OK;
}

/* A.X K2: V3.2's layers, with low-rank gates after norms except in dense parts, and
 * queries that include gates of the result. */
static quire_err describe_axk2(const config *c, model_desc *d) {
    const index_desc usual = {.n_best = 2048, .n_heads = 16, .d_head = 128};
    const latent_desc axk2_latent = {.q_rank = 384, .rank = 128, .d_nope = 64, .d_rope = 32, .d_value = 64};
    if (c->is_gguf) {
        return config_unsupported(c, "A.X K2 is not supported as GGUF; use its safetensors checkpoint");
    }
    moe_desc usual_experts = v3_experts;
    usual_experts.n_groups = usual_experts.n_groups_used = 1;
    TRY(config_latents(c, &axk2_latent, ROPE_NEIGHBOURS, ROPE_NEIGHBOURS, d));
    TRY(deepseek_describe_experts(c, usual_experts, 1, d));
    d->moe.closed_is_zero = true;
    d->norm.gate_rank = 16;
    TRY(config_i32(c, NULL, "gated_norm_rank", &d->norm.gate_rank));
    if (d->norm.gate_rank < 1 || d->norm.gate_rank > d->d_model || d->latent.q_rank < 1 ||
        d->latent.q_rank > INT32_MAX / 2) {
        return config_bad(c, "gated_norm_rank",
                          "must be from 1 to the model's width, and q_lora_rank over 0");
    }
    d->latent.q_gates = true;
    for (int32_t i = 0; i < d->n_layers; i++) {
        d->layers[i].steps = d->layers[i].n_experts > 0 ? steps_gated_norms_moe : steps_gated_norm;
    }
    return config_index(c, usual, ROPE_HALVES, d);
}

static quire_err describe_v32(const config *c, model_desc *d) {
    const index_desc usual = {.n_best = 2048, .n_heads = 64, .d_head = 128};
    TRY(describe_v3(c, d));
    return config_index(c, usual, ROPE_HALVES, d);
}

static quire_err describe_glm_dsa(const config *c, model_desc *d) {
    const index_desc usual = {.n_best = 2048, .n_heads = 32, .d_head = 128};
    bool neighbours = true;
    moe_desc usual_experts = v3_experts;
    usual_experts.n_groups = usual_experts.n_groups_used = 1;
    TRY(config_latents(c, &glm5_latent, ROPE_NEIGHBOURS, ROPE_NEIGHBOURS, d));
    TRY(deepseek_describe_experts(c, usual_experts, 3, d));
    TRY(config_bool(c, NULL, "indexer_rope_interleave", &neighbours));
    return config_index(c, usual, neighbours ? ROPE_NEIGHBOURS : ROPE_HALVES, d);
}

/* Its keys have other names, and queries and latents have factors. */
static quire_err describe_longcat(const config *c, model_desc *d) {
    latent_desc *m = &d->latent;
    int32_t n_identity = 256;
    bool q_scaled = true, kv_scaled = true;
    TRY(config_latents(c, &deepseek_latent, ROPE_NEIGHBOURS, ROPE_NEIGHBOURS, d));
    d->moe = (moe_desc){.score = ROUTE_SOFTMAX, .correction_bias = true, .scale = 6.0f, .d_expert = 2048};
    TRY(config_i32(c, NULL, "expert_ffn_hidden_size", &d->moe.d_expert));
    TRY(config_i32(c, NULL, "zero_expert_num", &n_identity));
    const int32_t d_ff = d->layers[0].d_ff;
    TRY(config_moe(c, d));
    const int32_t n_experts = d->layers[0].n_experts;
    if (n_experts == 0 || n_experts > ROUTE_MAX_EXPERTS || n_identity > ROUTE_MAX_EXPERTS) {
        return config_bad(c, "n_routed_experts",
                          "must be from 1 to 1024, and zero_expert_num from 0 to 1024");
    }
    d->moe.n_identity = n_identity;
    TRY(config_bool(c, NULL, "mla_scale_q_lora", &q_scaled));
    TRY(config_bool(c, NULL, "mla_scale_kv_lora", &kv_scaled));
    m->q_scale = q_scaled && m->q_rank > 0 ? sqrtf((float)d->d_model / (float)m->q_rank) : 0.0f;
    m->latent_scale = kv_scaled ? sqrtf((float)d->d_model / (float)m->rank) : 0.0f;
    for (int32_t i = 0; i < d->n_layers && d->n_caches < DESC_MAX_CACHES; i++) {
        const cache_desc second = d->caches[d->layers[i].caches[CACHE_ATTENTION]];
        d->layers[i].caches[CACHE_SECOND] = desc_add_cache(d, &second);
        d->layers[i].n_experts += n_identity;
        d->layers[i].d_ff = d_ff;
        d->layers[i].steps = steps_longcat;
    }
    return 2 * d->n_layers <= DESC_MAX_CACHES ? QUIRE_OK : config_unsupported(c, "too many layers");
}

static quire_err describe_youtu(const config *c, model_desc *d) {
    d->tied_embeddings = true;
    return config_latents(c, &deepseek_latent, ROPE_NEIGHBOURS, ROPE_NEIGHBOURS, d);
}

const arch deepseek_archs[] = {
    {{"deepseek2"},
     {"DeepseekV3ForCausalLM", "KimiK25ForConditionalGeneration", "Kimi_K25ForConditionalGeneration"},
     .describe = describe_deepseek},
    {{"deepseek-v2"}, {"DeepseekV2ForCausalLM"}, .describe = describe_v2},
    {{"glm4-moe-lite"}, {"Glm4MoeLiteForCausalLM"}, .describe = describe_glm4_lite},
    {{"axk1"}, {"AXK1ForCausalLM"}, &axk1_names, .describe = describe_axk1},
    {{"axk2"}, {"AXK2ForCausalLM"}, &axk2_names, .describe = describe_axk2},
    {{"deepseek32"}, {"DeepseekV32ForCausalLM"}, .describe = describe_v32},
    {{"glm-dsa"}, {"GlmMoeDsaForCausalLM"}, .describe = describe_glm_dsa},
    {{"longcat-flash"}, {"LongcatFlashForCausalLM"}, &longcat_names, .describe = describe_longcat},
    {{"youtu"}, {"YoutuForCausalLM"}, .describe = describe_youtu},
    {{"mistral4"}, {"Mistral4ForCausalLM"}, &stacked_names, .describe = describe_mistral4},
    {.describe = NULL},
};
