/* LFM2 and its mixtures of experts: Amini et al. 2025, arXiv:2511.23404: most layers have
 * a gated short convolution instead of attention. LFM3: adds windows, a gate on
 * attention, and norms after both halves. */

#include "model/architectures.h"

/* clang-format off */
static const layer_step conv_mlp[] = {
    NORM(W_ATTN_NORM, X, A), CONV(A, A), ADD(A, X),
    NORM(W_FFN_NORM, X, A), MLP(A, A), ADD(A, X), END};

static const layer_step conv_moe[] = {
    NORM(W_ATTN_NORM, X, A), CONV(A, A), ADD(A, X),
    NORM(W_FFN_NORM, X, A), MOE(A, A), ADD(A, X), END};
/* clang-format on */

static const arch_names lfm2_names = {
    .gguf = {[W_OUT_NORM] = "token_embd_norm|output_norm"}, /* the first is an older name of the last norm */
    .hf = {[W_OUT_NORM] = "model.embedding_norm",
           [W_ATTN_NORM] = "model.layers.%d.operator_norm",
           [W_FFN_NORM] = "model.layers.%d.ffn_norm",
           [W_Q_NORM] = "model.layers.%d.self_attn.q_layernorm",
           [W_K_NORM] = "model.layers.%d.self_attn.k_layernorm",
           [W_O] = "model.layers.%d.self_attn.out_proj",
           [W_CONV_IN] = "model.layers.%d.conv.in_proj",
           [W_CONV_TAPS] = "model.layers.%d.conv.conv",
           [W_CONV_OUT] = "model.layers.%d.conv.out_proj",
           MLP_W_NAMES("model.layers.%d.feed_forward"),
           [W_ROUTER] = "model.layers.%d.feed_forward.gate",
           [W_ROUTER_BIAS] = "model.layers.%d.feed_forward.expert_bias",
           EXPERT_W_NAMES("model.layers.%d.feed_forward.experts.%d")},
};

static const arch_names lfm3_names = {
    .hf = {[W_OUT_NORM] = "model.embedding_norm",
           [W_ATTN_NORM] = "model.layers.%d.operator_norm",
           [W_ATTN_POST_NORM] = "model.layers.%d.post_operator_norm",
           [W_FFN_NORM] = "model.layers.%d.ffn_norm",
           [W_FFN_POST_NORM] = "model.layers.%d.post_ffn_norm",
           [W_ATTN_GATE] = "model.layers.%d.self_attn.gate_proj|model.layers.%d.self_attn.g_proj",
           [W_CONV_IN] = "model.layers.%d.conv.in_proj",
           [W_CONV_TAPS] = "model.layers.%d.conv.conv",
           [W_CONV_OUT] = "model.layers.%d.conv.out_proj",
           MLP_W_NAMES("model.layers.%d.feed_forward")},
};

/* Reads which layers have attention. GGUF files give the others no KV heads; config.json
 * lists types, or the layers with attention. By default all have it. */
static quire_err lfm_read_layers(const config *c, const model_desc *d, state_layers *s) {
    int32_t full[DESC_MAX_LAYERS];
    bool are_typed;
    size_t n = 0;
    TRY(config_state_types(c, d, "conv", s, &are_typed));
    if (are_typed) {
        return QUIRE_OK;
    }
    TRY(config_i32s(c, NULL, "full_attn_idxs", full, DESC_MAX_LAYERS, &n));
    for (int32_t i = 0; i < d->n_layers; i++) {
        s->attends[i] = c->is_gguf ? d->caches[i].n_kv_heads > 0 : n == 0;
        for (size_t k = 0; k < n; k++) {
            s->attends[i] = s->attends[i] || full[k] == i;
        }
        s->recurs[i] = !s->attends[i];
    }
    return QUIRE_OK;
}

/* What all of them have: rotary attention with norms per head, and convolutions. */
static quire_err lfm_describe_mixers(const config *c, state_layers *s, model_desc *d) {
    d->conv.n_taps = 3;
    d->attend.qk_norm = QK_NORM_HEAD;
    TRY(config_taps(c, "shortconv.l_cache", "conv_L_cache", &d->conv.n_taps));
    TRY(config_rotary(c, d, ROPE_HALVES, ROPE_HALVES, 1.0f));
    if (!config_has(c, NULL, "rope_theta|rope_parameters.rope_theta")) {
        TRY(config_f32(c, NULL, "theta", &d->ropes[0].theta)); /* an older name of the base */
    }
    TRY(lfm_read_layers(c, d, s));
    s->conv = conv_cache(conv_units(d->d_model), d->conv.n_taps);
    return QUIRE_OK;
}

static quire_err lfm_decoder(const config *c, model_desc *d) {
    d->tied_embeddings = true;
    TRY(config_decoder(c, &(decoder_shape){0}, d));
    return c->is_gguf ? QUIRE_OK : config_bool(c, NULL, "tie_embedding", &d->tied_embeddings);
}

/* Adjusts the feed-forward width: config.json's is that of an ungated part, of which two
 * thirds count, rounded up. */
static quire_err adjust_ff(const config *c, model_desc *d) {
    int32_t multiple = 256, width = d->layers[0].d_ff;
    bool adjusts = true;
    float factor = 1.0f;
    TRY(config_i32(c, NULL, "block_ff_dim", &width));
    TRY(config_bool(c, NULL, "block_auto_adjust_ff_dim", &adjusts));
    TRY(config_i32(c, NULL, "block_multiple_of", &multiple));
    TRY(config_f32(c, NULL, "block_ffn_dim_multiplier", &factor));
    if (c->is_gguf) {
        return QUIRE_OK;
    }
    if (width < 1 || width > 1 << 24 || multiple < 1 || multiple > 1 << 20 || !(factor > 0.0f) ||
        factor > 1024.0f) {
        return config_bad(
            c, "block_ff_dim",
            "with block_multiple_of and block_ffn_dim_multiplier gives no width that this build supports");
    }
    int64_t adjusted = 2 * (int64_t)width / 3;
    if (!config_is_null(c, "block_ffn_dim_multiplier")) {
        adjusted = (int64_t)((double)factor * (double)adjusted);
        adjusted = (adjusted + multiple - 1) / multiple * multiple;
    }
    for (int32_t i = 0; i < d->n_layers; i++) {
        d->layers[i].d_ff = adjusts && adjusted <= INT32_MAX ? (int32_t)adjusted : width;
    }
    return QUIRE_OK;
}

static quire_err describe_lfm2(const config *c, model_desc *d) {
    state_layers s = {0};
    TRY(lfm_decoder(c, d));
    TRY(adjust_ff(c, d));
    TRY(lfm_describe_mixers(c, &s, d));
    for (int32_t i = 0; i < d->n_layers; i++) {
        d->layers[i].steps = s.attends[i] ? steps_pre_norm : conv_mlp;
    }
    return config_set_states(c, &s, d);
}

static quire_err describe_lfm2_moe(const config *c, model_desc *d) {
    state_layers s = {0};
    TRY(lfm_decoder(c, d));
    int32_t d_ff = d->layers[0].d_ff;
    d->moe = (moe_desc){.score = ROUTE_SIGMOID, .renormalise = true};
    d->moe.correction_bias = !c->is_gguf || config_has_correction(c, d);
    TRY(config_bool(c, NULL, "use_expert_bias", &d->moe.correction_bias));
    TRY(config_moe(c, d));
    if (d->layers[0].n_experts > 0) {
        TRY(config_dense_layers(c, "num_dense_layers", 2, d_ff, d));
    }
    TRY(lfm_describe_mixers(c, &s, d));
    for (int32_t i = 0; i < d->n_layers; i++) {
        if (!s.attends[i]) {
            d->layers[i].steps = d->layers[i].n_experts > 0 ? conv_moe : conv_mlp;
        }
    }
    return config_set_states(c, &s, d);
}

/* clang-format off */
static const layer_step conv_sandwich[] = {
    NORM(W_ATTN_NORM, X, A), CONV(A, A), NORM(W_ATTN_POST_NORM, A, A), ADD(A, X),
    NORM(W_FFN_NORM, X, A), MLP(A, A), NORM(W_FFN_POST_NORM, A, A), ADD(A, X), END};
/* clang-format on */

/* Reads the rotary tables of layers with windows and of the others. */
static quire_err lfm3_ropes(const config *c, const state_layers *s, model_desc *d) {
    static const char *const objects[] = {"rope_parameters.full_attention",
                                          "rope_parameters.sliding_attention"};
    if (!c->is_gguf && !config_has(c, NULL, "rope_parameters")) {
        return config_bad(c, "rope_parameters", "is missing from the metadata");
    }
    for (int w = 0; w < 2; w++) {
        rope_desc r = config_plain_rope(c, d);
        r.pairs = ROPE_HALVES;
        TRY(config_rope(c, c->is_gguf ? NULL : objects[w], d, &r));
        d->ropes[d->n_ropes++] = r;
        for (int32_t i = 0; i < d->n_layers; i++) {
            d->layers[i].rope = s->has_window[i] == (w == 1) ? (int16_t)w : d->layers[i].rope;
        }
    }
    return QUIRE_OK;
}

static quire_err describe_lfm3(const config *c, model_desc *d) {
    state_layers s = {.may_have_windows = true};
    bool is_sandwich = !c->is_gguf, is_gated = !c->is_gguf;
    int32_t window = 256;
    TRY(lfm_decoder(c, d));
    d->conv.n_taps = 7;
    d->attend.qk_norm = QK_NORM_HEAD;
    TRY(config_taps(c, "shortconv.l_cache", "conv_L_cache", &d->conv.n_taps));
    TRY(config_bool(c, NULL, "use_sandwich_norm", &is_sandwich));
    TRY(config_bool(c, NULL, "use_attention_gate", &is_gated));
    TRY(config_window(c, &window));
    d->attend.gate = is_gated ? ATTEND_GATE_HEADS : ATTEND_NO_GATE;
    d->attend.gate_f = ACT_SIGMOID;
    TRY(lfm_read_layers(c, d, &s));
    TRY(lfm3_ropes(c, &s, d));
    for (int32_t i = 0; i < d->n_layers; i++) {
        const layer_step *attends = is_sandwich ? steps_sandwich : steps_pre_norm,
                         *recurs = is_sandwich ? conv_sandwich : conv_mlp;
        config_set_window(d, i, s.has_window[i] ? window : 0);
        d->layers[i].steps = s.attends[i] ? attends : recurs;
    }
    s.conv = conv_cache(conv_units(d->d_model), d->conv.n_taps);
    return config_set_states(c, &s, d);
}

const arch lfm_archs[] = {
    {{"lfm2"}, {"Lfm2ForCausalLM"}, &lfm2_names, .describe = describe_lfm2},
    {{"lfm2moe"}, {"Lfm2MoeForCausalLM"}, &lfm2_names, .describe = describe_lfm2_moe},
    {{"lfm3"}, {"Lfm3ForCausalLM"}, &lfm3_names, .describe = describe_lfm3},
    {.describe = NULL},
};
