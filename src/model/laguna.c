/* Laguna: query heads by layer, a gate per head, windows with their own rotary table, a
 * sigmoid mixture. Mellum 2: the same tables, and the experts of Qwen 3. */
#include "model/architectures.h"

static const arch_names laguna_names = {
    .hf = {[W_ATTN_GATE] = "model.layers.%d.self_attn.g_proj",
           [W_ROUTER_BIAS] = "model.layers.%d.mlp.experts.e_score_correction_bias|"
                             "model.layers.%d.mlp.gate.e_score_correction_bias",
           SHARED_NAMES("model.layers.%d.mlp.shared_expert")},
};

static const arch_names mellum_names = {.left_out = {"mtp"}};

/* Reads whether there is a gate per head ("per-head", or true) or per element. In a GGUF
 * file the tensor's shape tells. */
static quire_err laguna_read_gate(const config *c, model_desc *d) {
    bool by_head = true;
    str text = {0};
    const char *key = c->has_text ? "text_config.gating" : "gating";
    if (c->is_gguf) {
        by_head = config_tensor_rows(c, d, "attn_gate") == d->layers[0].n_heads;
    } else if (model_file_str(c->f, key, &text) == QUIRE_OK) {
        by_head = str_is(text, "per-head");
    } else {
        TRY(config_bool(c, NULL, "gating", &by_head));
    }
    d->attend.gate = by_head ? ATTEND_GATE_HEADS : ATTEND_GATE_ELEMENTS;
    d->attend.gate_f = ACT_SOFTPLUS;
    return QUIRE_OK;
}

static quire_err laguna_read_experts(const config *c, model_desc *d) {
    const int32_t d_ff = d->layers[0].d_ff;
    bool at_input = false;
    d->moe = (moe_desc){.score = ROUTE_SIGMOID,
                        .correction_bias = true,
                        .renormalise = !c->is_gguf,
                        .d_shared = c->is_gguf ? 0 : 512};
    TRY(config_bool(c, NULL, "moe_apply_router_weight_on_input", &at_input));
    if (at_input) {
        return config_unsupported(c, "moe_apply_router_weight_on_input true is not supported");
    }
    TRY(config_f32(c, NULL, "moe_router_logit_softcapping", &d->moe.logit_cap));
    TRY(config_moe(c, d));
    d->moe.renormalise = d->moe.renormalise || !c->is_gguf; /* norm_topk_prob is ignored */
    config_usual_shared(c, 1, d);
    return config_dense_layers(c, "first_k_dense_replace", 1, d_ff, d);
}

/* full_at, period: which layers have no window in GGUF files that do not list them;
 * checkpoints then have no windows. */
static quire_err laguna_read_layers(const config *c, int32_t window, int32_t full_at, float part,
                                    model_desc *d) {
    rope_desc full = config_plain_rope(c, d), local = full;
    full.pairs = local.pairs = ROPE_HALVES;
    full.n_dims = (int32_t)((float)full.n_dims * part);
    full.theta = c->is_gguf ? full.theta : 5e5f;
    local.theta = 1e4f;
    window = c->is_gguf ? 0 : window;
    TRY(config_window(c, &window));
    TRY(config_windows(c, window, c->is_gguf ? 4 : 0, full_at, d));
    d->attend.qk_norm = QK_NORM_HEAD;
    return config_rotary_by_window(c, &full, &local, d);
}

static quire_err describe_laguna(const config *c, model_desc *d) {
    decoder_shape s = {.has_heads_by_layer = true};
    TRY(config_decoder(c, &s, d));
    TRY(laguna_read_layers(c, 512, 0, c->is_gguf ? 1.0f : 0.5f, d));
    TRY(laguna_read_gate(c, d));
    return laguna_read_experts(c, d);
}

static quire_err describe_mellum(const config *c, model_desc *d) {
    decoder_shape s = {0};
    TRY(config_decoder(c, &s, d));
    TRY(laguna_read_layers(c, 1024, 3, 1.0f, d));
    const int32_t d_ff = d->layers[0].d_ff;
    d->moe = (moe_desc){.score = ROUTE_SOFTMAX, .renormalise = true};
    TRY(config_moe(c, d));
    return config_dense_layers(c, NULL, 0, d_ff, d);
}

const arch laguna_archs[] = {
    {{"laguna"}, {"LagunaForCausalLM"}, &laguna_names, .describe = describe_laguna},
    {{"mellum"}, {"MellumForCausalLM"}, &mellum_names, .describe = describe_mellum},
    {.describe = NULL},
};
