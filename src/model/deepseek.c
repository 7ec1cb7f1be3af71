/* DeepSeek V2: arXiv:2405.04434, V3: arXiv:2412.19437, and models with their layers: Kimi K2
 * and K2.5, GLM-4.7 Flash, Mistral Small 4, Youtu. Latent attention
 * everywhere; most have mixtures of experts behind their first layers. */
#include <math.h>
#include <stdio.h>

#include "model/architectures.h"

static const arch_names stacked_names = {
    .hf = {[W_EXPERT_GATE_UP] = "model.layers.%d.mlp.experts.gate_up_proj",
           [W_EXPERT_DOWN] = "model.layers.%d.mlp.experts.down_proj"},
};

static const arch_names axk1_names = {
    .hf = {[W_FFN_POST_NORM] = "model.layers.%d.post_mlp_layernorm"},
};
/* clang-format off */
static const layer_step steps_normed_moe[] = {
    NORM(W_ATTN_NORM, X, A), LATENT(A, A), ADD(A, X),
    NORM(W_FFN_NORM, X, A), MOE(A, A), NORM(W_FFN_POST_NORM, A, A), ADD(A, X), END};
/* clang-format on */

static const latent_desc
    deepseek_latent = {.q_rank = 1536, .rank = 512, .d_nope = 128, .d_rope = 64, .d_value = 128},
    glm_latent = {.q_rank = 768, .rank = 512, .d_nope = 192, .d_rope = 64, .d_value = 256},
    mistral_latent = {.q_rank = 1024, .rank = 256, .d_nope = 64, .d_rope = 64, .d_value = 128};

/* Which layers are dense: a list, or the first n and all but every moe_layer_freq-th. */
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
            return config_bad(c, "mlp_layer_types", "may name dense and sparse only");
        }
        const bool is_dense = type.n > 0 ? str_is(type, "dense") : i < n_dense || i % period != 0;
        if (is_dense) {
            config_set_dense(d, i, d_ff);
        }
        config_set_latent(d, i);
    }
    return QUIRE_OK;
}

/* Whether a GGUF file's mixture chooses with a correction. */
static bool has_correction(const config *c, const model_desc *d) {
    bool found = false;
    for (int32_t i = 0; i < d->n_layers && !found; i++) {
        char name[64];
        (void)snprintf(name, sizeof name, "blk.%d.exp_probs_b.bias", (int)i);
        found = model_file_find(c->f, name) != NULL;
    }
    return found;
}

/* The mixture. n_dense: layers before the first that has experts, where the file does not
 * say it. */
static quire_err deepseek_describe_experts(const config *c, moe_desc usual, int32_t n_dense, model_desc *d) {
    const int32_t d_ff = d->layers[0].d_ff;
    d->moe = usual;
    if (c->is_gguf) {
        const bool has_bias = has_correction(c, d);
        d->moe = (moe_desc){.score = has_bias ? ROUTE_SIGMOID : ROUTE_SOFTMAX};
        d->moe.correction_bias = has_bias;
    }
    TRY(config_moe(c, d));
    /* as V2's choice, and V3's */
    d->moe.group_by_best_two = d->moe.closed_is_zero = d->moe.score == ROUTE_SIGMOID;
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

/* GGUF files have one name for all that are made of such layers. */
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

/* A.X K1: a norm behind the experts. */
static quire_err describe_axk1(const config *c, model_desc *d) {
    TRY(describe_v3(c, d));
    for (int32_t i = 0; i < d->n_layers; i++) {
        d->layers[i].steps = d->layers[i].n_experts > 0 ? steps_normed_moe : d->layers[i].steps;
    }
    return QUIRE_OK;
}

static quire_err describe_youtu(const config *c, model_desc *d) {
    d->tied_embeddings = true;
    return config_latents(c, &deepseek_latent, ROPE_NEIGHBOURS, ROPE_NEIGHBOURS, d);
}

const arch arch_deepseek2 = {
    .gguf = {"deepseek2"},
    .hf = {"DeepseekV3ForCausalLM", "KimiK25ForConditionalGeneration", "Kimi_K25ForConditionalGeneration"},
    .describe = describe_deepseek};
const arch arch_deepseek_v2 = {
    .gguf = {"deepseek-v2"}, .hf = {"DeepseekV2ForCausalLM"}, .describe = describe_v2};
const arch arch_glm4_moe_lite = {
    .gguf = {"glm4-moe-lite"}, .hf = {"Glm4MoeLiteForCausalLM"}, .describe = describe_glm4_lite};
const arch arch_axk1 = {
    .gguf = {"axk1"}, .hf = {"AXK1ForCausalLM"}, .names = &axk1_names, .describe = describe_axk1};
const arch arch_youtu = {.gguf = {"youtu"}, .hf = {"YoutuForCausalLM"}, .describe = describe_youtu};
const arch arch_mistral4 = {.gguf = {"mistral4"},
                            .hf = {"Mistral4ForCausalLM"},
                            .names = &stacked_names,
                            .describe = describe_mistral4};
