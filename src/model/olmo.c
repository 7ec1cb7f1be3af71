/* OLMo: arXiv:2402.00838: norms without weights, clipped q, k and v. OLMo 2:
 * arXiv:2501.00656: norms only after both halves of a layer, norms over all heads of q
 * and k. OLMo 3: windows on three of four layers, YaRN on the fourth. OLMoE:
 * arXiv:2409.02060. FlexOLMo: arXiv:2507.07024: OLMo 2's norms around experts. */
#include "model/architectures.h"

static const arch_names olmo2_names = {
    .hf = {[W_ATTN_POST_NORM] = "model.layers.%d.post_attention_layernorm",
           [W_FFN_POST_NORM] = "model.layers.%d.post_feedforward_layernorm"},
};

static quire_err describe_olmo(const config *c, model_desc *d) {
    TRY(config_llama(c, ROPE_HALVES, ROPE_NEIGHBOURS, d));
    d->norm_eps = c->is_gguf ? d->norm_eps : 1e-5f; /* config.json does not change it */
    d->norm = (norm_desc){.kind = NORM_LAYER, .bare = true};
    return config_f32_or_none(c, "attention.clamp_kqv", "clip_qkv", &d->attend.clip);
}

/* OLMo 3 is called olmo2 in GGUF and recognised there by its window. Layers with windows
 * have a table without scaling. */
static quire_err describe_olmo2(const config *c, model_desc *d) {
    decoder_shape s = {0};
    bool is_olmo3 = config_is(c, "Olmo3ForCausalLM");
    int32_t window = is_olmo3 ? 4096 : 0;
    const char *types =
        "rope_parameters.full_attention.rope_type|rope_parameters.sliding_attention.rope_type|"
        "rope_parameters.full_attention.rope_theta|rope_parameters.sliding_attention.rope_theta";
    bool by_type = is_olmo3 && config_has(c, NULL, types);
    d->norm_eps = 1e-5f;
    TRY(config_decoder(c, &s, d));
    steps_set(d, steps_branch_norm);
    d->attend.qk_norm = QK_NORM_ROW;
    rope_desc full = config_plain_rope(c, d), local = full;
    full.pairs = local.pairs = ROPE_HALVES;
    full.theta = local.theta = is_olmo3 ? 5e5f : full.theta;
    TRY(config_rope(c, by_type ? "rope_parameters.full_attention" : NULL, d, &full));
    TRY(config_add_rope(c, d, &full));
    if (is_olmo3 || c->is_gguf) {
        TRY(config_window(c, &window));
    }
    if (window == 0) {
        return QUIRE_OK;
    }
    if (by_type) {
        TRY(config_rope(c, "rope_parameters.sliding_attention", d, &local));
    } else {
        /* config.json's only base is that of the other layers */
        local.theta = c->is_gguf ? full.theta : local.theta;
        TRY(config_f32(c, "rope.freq_base_swa", NULL, &local.theta));
    }
    d->ropes[d->n_ropes] = local;
    TRY(config_windows(c, window, 4, 3, d));
    for (int32_t i = 0; i < d->n_layers; i++) {
        d->layers[i].rope = (int16_t)(d->layers[i].window > 0 ? d->n_ropes : 0);
    }
    d->n_ropes++;
    return QUIRE_OK;
}

/* clang-format off */
static const layer_step steps_flex[] = {
    ATTEND(X, A), NORM(W_ATTN_POST_NORM, A, A), ADD(A, X),
    MOE(X, A), NORM(W_FFN_POST_NORM, A, A), ADD(A, X), END};
/* clang-format on */

static quire_err describe_flex_olmo(const config *c, model_desc *d) {
    TRY(config_llama(c, ROPE_HALVES, ROPE_HALVES, d));
    d->attend.qk_norm = QK_NORM_ROW;
    d->moe = (moe_desc){.score = ROUTE_SOFTMAX};
    TRY(config_moe(c, d));
    steps_set(d, d->layers[0].n_experts > 0 ? steps_flex : steps_branch_norm);
    return QUIRE_OK;
}

static quire_err describe_olmoe(const config *c, model_desc *d) {
    d->norm_eps = 1e-5f;
    TRY(config_llama(c, ROPE_HALVES, ROPE_HALVES, d));
    d->attend.qk_norm = QK_NORM_ROW;
    TRY(config_f32_or_none(c, "attention.clamp_kqv", "clip_qkv", &d->attend.clip));
    d->moe = (moe_desc){.score = ROUTE_SOFTMAX};
    return config_moe(c, d);
}

/* OLMo Hybrid: in most layers the gated delta rule with states that may change sign, and
 * norms before; OLMo 2's layers with norms after in the others. Lara Mini: Qwen3-Next's
 * layers with windowed layers in between. */

/* Layers with attention have norms after their halves, the others before. In files
 * written by a newer library the latter have the names that the former have in published
 * files. */
static const arch_names olmo_hybrid_names = {
    .hf = {[W_ATTN_NORM] = "model.layers.%d.attention_layer_norm|model.layers.%d.input_layernorm",
           [W_FFN_NORM] = "model.layers.%d.feedforward_layer_norm|model.layers.%d.post_attention_layernorm",
           [W_ATTN_POST_NORM] = "model.layers.%d.post_attention_layernorm",
           [W_FFN_POST_NORM] = "model.layers.%d.post_feedforward_layernorm",
           [W_DELTA_Q] = "model.layers.%d.linear_attn.q_proj",
           [W_DELTA_K] = "model.layers.%d.linear_attn.k_proj",
           [W_DELTA_V] = "model.layers.%d.linear_attn.v_proj",
           [W_DELTA_GATE] = "model.layers.%d.linear_attn.g_proj",
           [W_DELTA_BETA] = "model.layers.%d.linear_attn.b_proj",
           [W_DELTA_DECAY] = "model.layers.%d.linear_attn.a_proj",
           [W_DELTA_CONV_Q] = "model.layers.%d.linear_attn.q_conv1d",
           [W_DELTA_CONV_K] = "model.layers.%d.linear_attn.k_conv1d",
           [W_DELTA_CONV_V] = "model.layers.%d.linear_attn.v_conv1d",
           [W_DELTA_NORM] = "model.layers.%d.linear_attn.o_norm",
           [W_DELTA_OUT] = "model.layers.%d.linear_attn.o_proj"},
};

static const arch_names lara_names = {
    .hf = {[W_EXPERT_GATE_UP] = "model.layers.%d.mlp.experts.gate_up_proj",
           [W_EXPERTS_DOWN] = "model.layers.%d.mlp.experts.down_proj",
           SHARED_NAMES("model.layers.%d.mlp.shared_expert"),
           [W_DELTA_IN] = "model.layers.%d.linear_attn.in_proj",
           [W_DELTA_CONV] = "model.layers.%d.linear_attn.conv1d",
           [W_DELTA_NORM] = "model.layers.%d.linear_attn.out_norm"},
};

/* Adds a rotary table unless config.json's base is null, as in published files; for a
 * GGUF file only if it has one. */
static quire_err olmo_hybrid_rotary(const config *c, model_desc *d) {
    const bool rotates =
        c->is_gguf ? config_has(c, "rope.freq_base", NULL)
                   : !config_is_null(c, "rope_parameters.rope_theta|rope_theta|rope_scaling.rope_theta");
    return rotates ? config_rotary(c, d, ROPE_HALVES, ROPE_HALVES, 1.0f) : QUIRE_OK;
}

static quire_err describe_olmo_hybrid(const config *c, model_desc *d) {
    decoder_shape shape = {0};
    state_layers s = {0};
    bool are_typed, has_negative = true;
    TRY(config_decoder(c, &shape, d));
    TRY(olmo_hybrid_rotary(c, d));
    d->attend.qk_norm = QK_NORM_ROW;
    delta_desc *r = &d->delta;
    *r = (delta_desc){.kind = DELTA_GATED,
                      .n_heads = shape.n_heads,
                      .n_key_heads = shape.n_heads,
                      .n_taps = 4,
                      .gate = ACT_SILU,
                      .norm_eps = 1e-5f};
    TRY(config_i32(c, NULL, "linear_num_key_heads", &r->n_key_heads));
    r->d_key = (int32_t)(0.75 * d->d_model / (r->n_key_heads > 0 ? r->n_key_heads : 1));
    TRY(config_i32(c, NULL, "linear_key_head_dim", &r->d_key));
    r->d_value = r->d_key <= DESC_MAX_HEAD ? 2 * r->d_key : r->d_key;
    TRY(config_delta(c, d));
    TRY(config_bool(c, NULL, "linear_allow_neg_eigval", &has_negative));
    r->beta_scale = has_negative ? 2.0f : 1.0f;
    TRY(config_state_types(c, d, "linear_attention", &s, &are_typed));
    for (int32_t i = 0; i < d->n_layers; i++) {
        bool is_last = d->n_layers < 4 && i == d->n_layers - 1;
        s.recurs[i] = are_typed ? s.recurs[i] : i % 4 != 3 && !is_last;
        s.attends[i] = !s.recurs[i];
        d->layers[i].steps = s.recurs[i] ? steps_delta : steps_branch_norm;
    }
    config_delta_caches(d, &s);
    return config_set_states(c, &s, d);
}

static quire_err describe_lara_mini(const config *c, model_desc *d) {
    state_layers s = {.may_have_windows = true};
    int32_t window = 512;
    bool are_typed;
    d->tied_embeddings = !c->is_gguf;
    TRY(config_llama(c, ROPE_HALVES, ROPE_HALVES, d));
    TRY(config_window(c, &window));
    d->attend.qk_norm = QK_NORM_HEAD;
    d->moe = (moe_desc){.score = ROUTE_SOFTMAX, .renormalise = true};
    TRY(config_moe(c, d));
    d->delta = (delta_desc){.kind = DELTA_GATED,
                            .n_heads = 16,
                            .n_key_heads = 8,
                            .d_key = 128,
                            .d_value = 128,
                            .n_taps = 4,
                            .gate = ACT_SILU};
    TRY(config_delta(c, d));
    TRY(config_state_types(c, d, "linear_attention", &s, &are_typed));
    for (int32_t i = 0; i < d->n_layers; i++) {
        s.recurs[i] = are_typed ? s.recurs[i] : i % 5 == 0 || i % 5 == 2;
        s.attends[i] = !s.recurs[i];
        s.has_window[i] = are_typed ? s.has_window[i] : i % 5 == 1 || i % 5 == 4;
        config_set_window(d, i, s.has_window[i] ? window : 0);
        d->layers[i].rope = s.has_window[i] ? d->layers[i].rope : NO_ROPE;
        d->layers[i].steps = s.recurs[i] ? steps_delta_moe : d->layers[i].steps;
    }
    config_delta_caches(d, &s);
    return config_set_states(c, &s, d);
}

const arch olmo_archs[] = {
    {{"olmo"}, {"OlmoForCausalLM"}, .describe = describe_olmo},
    {{"olmo2"}, {"Olmo2ForCausalLM", "Olmo3ForCausalLM"}, &olmo2_names, .describe = describe_olmo2},
    {{"olmoe"}, {"OlmoeForCausalLM"}, .describe = describe_olmoe},
    {{"flex_olmo"}, {"FlexOlmoForCausalLM"}, &olmo2_names, .describe = describe_flex_olmo},
    {{"olmo-hybrid"}, {"OlmoHybridForCausalLM"}, &olmo_hybrid_names, .describe = describe_olmo_hybrid},
    {{"lara-mini"}, {"LaraMiniForCausalLM"}, &lara_names, .describe = describe_lara_mini},
    {.describe = NULL},
};
