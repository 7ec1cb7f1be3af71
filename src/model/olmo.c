/* OLMo: arXiv:2402.00838: norms without weights, clipped q, k and v. OLMo 2: 2501.00656:
 * norms behind both halves of a layer only, norms over all heads of q and k. OLMo 3:
 * windows on three of four layers, YaRN on the fourth. OLMoE: 2409.02060. FlexOLMo:
 * 2507.07024: OLMo 2's norms around experts. */
#include "model/architectures.h"

static const arch_names olmo2_names = {
    .hf = {[W_ATTN_POST_NORM] = "model.layers.%d.post_attention_layernorm",
           [W_FFN_POST_NORM] = "model.layers.%d.post_feedforward_layernorm"},
};

static quire_err describe_olmo(const config *c, model_desc *d) {
    TRY(config_llama(c, ROPE_HALVES, ROPE_NEIGHBOURS, d));
    d->norm_eps = c->is_gguf ? d->norm_eps : 1e-5f; /* config.json has no say in it */
    d->norm = (norm_desc){.kind = NORM_LAYER, .bare = true};
    return config_f32_or_none(c, "attention.clamp_kqv", "clip_qkv", &d->attend.clip);
}

/* OLMo 3 is called olmo2 in GGUF, where its window tells it apart. Layers with windows
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
    TRY(is_olmo3 || c->is_gguf ? config_window(c, &window) : QUIRE_OK);
    if (window == 0) {
        return QUIRE_OK;
    }
    if (by_type) {
        TRY(config_rope(c, "rope_parameters.sliding_attention", d, &local));
    } else {
        /* config.json's one base is that of the other layers */
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

const arch arch_olmo = {.gguf = {"olmo"}, .hf = {"OlmoForCausalLM"}, .describe = describe_olmo};
const arch arch_olmo2 = {.gguf = {"olmo2"},
                         .hf = {"Olmo2ForCausalLM", "Olmo3ForCausalLM"},
                         .names = &olmo2_names,
                         .describe = describe_olmo2};
const arch arch_olmoe = {.gguf = {"olmoe"}, .hf = {"OlmoeForCausalLM"}, .describe = describe_olmoe};
const arch arch_flex_olmo = {.gguf = {"flex_olmo"},
                             .hf = {"FlexOlmoForCausalLM"},
                             .names = &olmo2_names,
                             .describe = describe_flex_olmo};
