/* Sigmoid mixtures in which only layers with windows rotate, and the others have no
 * positions. AFMoE (Trinity): an output gate, norms after both halves of a layer. Beam:
 * both, with a bias per head in the gate and a residual scaled by depth. Kolibri 1: the
 * same norms, experts chosen by logit. Flint: sinks in all layers. */
#include <math.h>

#include "model/architectures.h"

static const arch_names afmoe_names = {
    .hf = {[W_ATTN_GATE] = "model.layers.%d.self_attn.gate_proj",
           [W_ATTN_POST_NORM] = "model.layers.%d.post_attention_layernorm",
           [W_FFN_NORM] = "model.layers.%d.pre_mlp_layernorm",
           [W_FFN_POST_NORM] = "model.layers.%d.post_mlp_layernorm",
           [W_ROUTER] = "model.layers.%d.mlp.router.gate",
           [W_ROUTER_BIAS] = "model.layers.%d.mlp.expert_bias"},
};
static const arch_names beam_names = {
    .hf = {[W_ATTN_GATE] = "model.layers.%d.self_attn.gate_proj",
           [W_ATTN_GATE_BIAS] = "model.layers.%d.self_attn.gate_bias",
           SANDWICH_NAMES("model.layers.%d")},
};
static const arch_names kolibri_names = {
    .hf = {[W_ATTN_POST_NORM] = "model.layers.%d.post_attn_norm|model.layers.%d.post_self_attn_layernorm",
           [W_FFN_POST_NORM] = "model.layers.%d.post_ffn_norm|model.layers.%d.post_mlp_layernorm",
           [W_ROUTER_BIAS] = "model.layers.%d.moe.router.expert_bias|"
                             "model.layers.%d.mlp.gate.e_score_correction_bias"},
};
static const arch_names flint_names = {
    .hf = {[W_SINKS] = "model.layers.%d.self_attn.softmax_offset|model.layers.%d.self_attn.sinks",
           SHARED_NAMES("model.layers.%d.mlp.shared_expert")},
};

/* Sets the windows; is_window applies to layers without a type in the file. */
static quire_err afmoe_set_windows(const config *c, int32_t window, const bool *is_window, model_desc *d) {
    TRY(config_window(c, &window));
    for (int32_t i = 0; i < d->n_layers; i++) {
        config_set_window(d, i, is_window[i] ? window : 0);
        d->layers[i].rope = is_window[i] ? d->layers[i].rope : NO_ROPE;
    }
    d->attend.qk_norm = QK_NORM_HEAD;
    return QUIRE_OK;
}

static quire_err check_score(const config *c) {
    str score = str_of("sigmoid");
    TRY(config_str(c, NULL, "score_func", &score));
    return str_is(score, "sigmoid")
               ? QUIRE_OK
               : config_unsupported(c, "a score_func other than \"sigmoid\" is not supported");
}

static quire_err describe_afmoe(const config *c, model_desc *d) {
    bool is_window[DESC_MAX_LAYERS], is_mup = c->is_gguf;
    int32_t period = 4;
    TRY(config_llama(c, ROPE_HALVES, ROPE_HALVES, d));
    TRY(config_period(c, NULL, "global_attn_every_n_layers", &period));
    TRY(config_window_layers(c, d, period, period - 1, is_window));
    TRY(afmoe_set_windows(c, c->is_gguf ? 0 : 1024, is_window, d));
    TRY(config_bool(c, NULL, "mup_enabled", &is_mup));
    d->embed.scale = is_mup ? sqrtf((float)d->d_model) : 0.0f;
    d->attend.gate = ATTEND_GATE_ELEMENTS;
    d->attend.gate_f = ACT_SIGMOID;
    const int32_t d_ff = d->layers[0].d_ff;
    d->moe = (moe_desc){.score = ROUTE_SIGMOID, .correction_bias = true, .renormalise = !c->is_gguf};
    TRY(check_score(c));
    TRY(config_moe(c, d));
    config_usual_shared(c, 2, d);
    TRY(config_dense_layers(c, "num_dense_layers", 1, d_ff, d));
    steps_set_mixed(d, steps_sandwich, steps_sandwich_moe);
    return QUIRE_OK;
}

/* Sets windows on all layers but every sixth and the last. */
static quire_err beam_read_layers(const config *c, model_desc *d) {
    bool is_window[DESC_MAX_LAYERS], is_listed = config_has(c, NULL, "layer_types");
    int32_t window = 512;
    rope_desc full = config_plain_rope(c, d);
    TRY(config_window(c, &window));
    TRY(config_window_layers(c, d, 6, 5, is_window));
    for (int32_t i = 0; i < d->n_layers; i++) {
        bool is_last = !is_listed && i == d->n_layers - 1;
        config_set_window(d, i, is_window[i] && !is_last ? window : 0);
    }
    if (!config_has(c, NULL, "rope_parameters")) { /* the other layers have no positions */
        TRY(config_rotary(c, d, ROPE_HALVES, ROPE_HALVES, 1.0f));
        for (int32_t i = 0; i < d->n_layers; i++) {
            d->layers[i].rope = d->layers[i].window > 0 ? d->layers[i].rope : NO_ROPE;
        }
        return QUIRE_OK;
    }
    return config_rotary_by_window(c, &full, &full, d);
}

static quire_err describe_beam(const config *c, model_desc *d) {
    decoder_shape s = {0};
    TRY(config_decoder(c, &s, d));
    TRY(beam_read_layers(c, d));
    d->residual_by_depth = true;
    d->attend.qk_norm = QK_NORM_HEAD;
    d->attend.gate = ATTEND_GATE_ELEMENTS;
    d->attend.gate_f = ACT_SIGMOID;
    d->attend.gate_bias = true;
    d->attend.temperature_power = 0.1f;
    d->attend.temperature_length = 2048;
    d->head.cap = 30.0f;
    TRY(config_f32_or_none(c, NULL, "final_logit_softcapping", &d->head.cap));
    const int32_t d_ff = d->layers[0].d_ff;
    d->moe = (moe_desc){.score = ROUTE_SIGMOID,
                        .n_groups = 8,
                        .n_groups_used = 4,
                        .group_by_best_two = true,
                        .correction_bias = true,
                        .renormalise = true,
                        .scale = 2.5f};
    TRY(config_moe(c, d));
    TRY(config_dense_layers(c, NULL, 3, d_ff, d));
    steps_set_mixed(d, steps_sandwich, steps_sandwich_moe);
    return QUIRE_OK;
}

static quire_err describe_kolibri(const config *c, model_desc *d) {
    bool is_window[DESC_MAX_LAYERS];
    TRY(config_llama(c, ROPE_HALVES, ROPE_HALVES, d));
    TRY(config_window_layers(c, d, 5, 4, is_window));
    TRY(afmoe_set_windows(c, 513, is_window, d));
    for (int32_t i = 0; i < d->n_layers && config_is_null(c, "sliding_window"); i++) {
        d->layers[i].rope = 0; /* without any windows all layers rotate */
    }
    d->moe = (moe_desc){
        .score = ROUTE_SIGMOID, .correction_bias = true, .choose_by_logits = true, .d_shared = 512};
    TRY(config_moe(c, d));
    steps_set_mixed(d, steps_sandwich, steps_sandwich_moe);
    return QUIRE_OK;
}

static quire_err describe_flint(const config *c, model_desc *d) {
    bool is_window[DESC_MAX_LAYERS], is_listed = config_has(c, NULL, "layer_types");
    TRY(config_llama(c, ROPE_HALVES, ROPE_HALVES, d));
    TRY(config_window_layers(c, d, 0, 0, is_window));
    for (int32_t i = 0; !is_listed && i < d->n_layers; i++) {
        is_window[i] = i >= 2 && i % 4 != 1 && i != d->n_layers - 1;
    }
    TRY(afmoe_set_windows(c, 513, is_window, d));
    d->attend.sinks = true;
    const int32_t d_ff = d->layers[0].d_ff;
    d->moe = (moe_desc){.score = ROUTE_SIGMOID, .renormalise = true, .d_shared = 1024};
    TRY(config_moe(c, d));
    return config_sparse_layers(c, 2, d_ff, d);
}

const arch afmoe_archs[] = {
    {{"afmoe"}, {"AfmoeForCausalLM"}, &afmoe_names, .describe = describe_afmoe},
    {{"kolibri1"}, {"Kolibri1ForCausalLM"}, &kolibri_names, .describe = describe_kolibri},
    {{"flint"}, {"FlintForCausalLM"}, &flint_names, .describe = describe_flint},
    {{"beam"}, {"BeamForCausalLM"}, &beam_names, .describe = describe_beam},
    {.describe = NULL},
};
