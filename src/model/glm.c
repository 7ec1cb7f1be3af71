/* GLM-4 (9B, "chatglm" in GGUF). GLM-4-0414 with norms after both halves of a layer.
 * GLM-4.5: arXiv:2508.06471, a mixture of experts. dots.llm1: arXiv:2506.05767, and Solar
 * Open: the same mixture with other attention. */
#include "model/architectures.h"

static const arch_names glm_names = {
    .gguf = {[W_GATE_UP] = "blk.%d.ffn_up"},
    .hf = {[W_GATE_UP] = "model.layers.%d.mlp.gate_up_proj"},
};
static const arch_names glm4_names = {
    .gguf = {[W_GATE_UP] = "blk.%d.ffn_up"},
    .hf = {[W_GATE_UP] = "model.layers.%d.mlp.gate_up_proj",
           [W_ATTN_POST_NORM] = "model.layers.%d.post_self_attn_layernorm",
           [W_FFN_POST_NORM] = "model.layers.%d.post_mlp_layernorm"},
};
static const arch_names glm4_moe_names = {
    .gguf = {[W_FFN_NORM] = "blk.%d.post_attention_norm|blk.%d.ffn_norm"}};

/* Reads which elements rotate together in a GGUF file. If positions have several axes,
 * its queries and keys are in another order than the checkpoint's. */
static quire_err read_pairs(const config *c, rope_pairs *pairs) {
    int32_t sections[4] = {0};
    size_t n;
    TRY(config_i32s(c, "rope.dimension_sections", "rope_parameters.mrope_section|rope_scaling.mrope_section",
                    sections, 4, &n));
    *pairs = sections[0] > 0 && sections[1] > 0 ? ROPE_HALVES : ROPE_NEIGHBOURS;
    return QUIRE_OK;
}

/* rotary: the part of a head that rotates if the file does not say it. */
static quire_err glm_describe_dense(const config *c, float rotary, const layer_step *steps, model_desc *d) {
    decoder_shape s = {0};
    rope_pairs pairs;
    TRY(config_decoder(c, &s, d));
    steps_set(d, steps);
    TRY(read_pairs(c, &pairs));
    TRY(config_rotary(c, d, ROPE_NEIGHBOURS, pairs, rotary));
    int32_t usual = d->d_model / s.n_heads;
    if (c->is_gguf && !config_has(c, "attention.key_length", NULL) && usual > 0 &&
        d->ropes[0].n_dims <= usual) {
        /* such files count them as if heads had the usual width */
        d->ropes[0].n_dims = (int32_t)((int64_t)d->ropes[0].n_dims * s.d_head / usual);
    }
    return QUIRE_OK;
}

static quire_err describe_glm(const config *c, model_desc *d) {
    return glm_describe_dense(c, 0.5f, steps_pre_norm, d);
}

static quire_err describe_glm4(const config *c, model_desc *d) {
    return glm_describe_dense(c, 0.5f, steps_sandwich, d);
}

/* The text model of GLM-4.1V, whose positions have three axes, which coincide without
 * images. */
static quire_err describe_glm4v(const config *c, model_desc *d) {
    return glm_describe_dense(c, 1.0f, steps_sandwich, d);
}

/* A sigmoid mixture after n_dense dense layers. */
static quire_err describe_mixture(const config *c, float rotary, int32_t n_dense, bool renormalise,
                                  model_desc *d) {
    decoder_shape s = {0};
    TRY(config_decoder(c, &s, d));
    TRY(config_rotary(c, d, ROPE_HALVES, ROPE_HALVES, rotary));
    d->moe = (moe_desc){.score = ROUTE_SIGMOID,
                        .correction_bias = true,
                        .group_by_best_two = true,
                        .n_groups_used = 1,
                        .renormalise = renormalise};
    TRY(config_moe(c, d));
    config_usual_shared(c, c->is_gguf || config_is(c, "Dots1ForCausalLM") ? 0 : 1, d);
    TRY(config_i32(c, "leading_dense_block_count", "first_k_dense_replace", &n_dense));
    for (int32_t i = 0; i < n_dense && i < d->n_layers; i++) {
        config_set_dense(d, i, s.d_ff);
    }
    return QUIRE_OK;
}

static quire_err describe_glm4_moe(const config *c, model_desc *d) {
    bool qk_norm = c->is_gguf && model_file_find(c->f, "blk.0.attn_q_norm.weight") != NULL;
    TRY(describe_mixture(c, 0.5f, 1, true, d));
    TRY(config_bool(c, NULL, "use_qk_norm", &qk_norm));
    d->attend.qk_norm = qk_norm ? QK_NORM_HEAD : QK_NORM_NONE;
    return QUIRE_OK;
}

/* Layers from max_window_layers on have a window, unless layer_types says otherwise. */
static quire_err describe_dots1(const config *c, model_desc *d) {
    bool is_window[DESC_MAX_LAYERS], are_listed = config_has(c, NULL, "layer_types");
    int32_t window = c->is_gguf ? 0 : 4096, first = 62;
    TRY(describe_mixture(c, 1.0f, 0, false, d));
    d->attend.qk_norm = QK_NORM_HEAD;
    TRY(config_window(c, &window));
    TRY(config_i32(c, NULL, "max_window_layers", &first));
    TRY(config_window_layers(c, d, 0, 0, is_window));
    for (int32_t i = 0; i < d->n_layers; i++) {
        config_set_window(d, i, (are_listed ? is_window[i] : i >= first) ? window : 0);
    }
    return QUIRE_OK;
}

static quire_err describe_solar_open(const config *c, model_desc *d) {
    return describe_mixture(c, 1.0f, 0, true, d);
}

const arch glm_archs[] = {
    {{"chatglm"}, {"GlmForCausalLM"}, &glm_names, .describe = describe_glm},
    {{"glm4"}, {"Glm4ForCausalLM"}, &glm4_names, .describe = describe_glm4},
    {{"glm4v"}, {"Glm4vForConditionalGeneration"}, &glm4_names, .describe = describe_glm4v},
    {{"glm4v-moe"}, {"Glm4vMoeForConditionalGeneration"}, &glm4_moe_names, .describe = describe_glm4_moe},
    {{"glm4moe"}, {"Glm4MoeForCausalLM"}, &glm4_moe_names, .describe = describe_glm4_moe},
    {{"dots1"}, {"Dots1ForCausalLM"}, .describe = describe_dots1},
    {{"solar-open"}, {"SolarOpenForCausalLM"}, .describe = describe_solar_open},
    {.describe = NULL},
};
