/* Muse Glimmer: norms before and after both halves of a layer, norms without weights on
 * embeddings and on heads of queries and keys, a gate on each element of attention's
 * result; layers without windows do not rotate. Muse Spark: experts of their own width,
 * each followed by a norm, and residuals that keep as much of each element as they do not
 * take. */

#include "model/architectures.h"

static const arch_names muse_names = {
    .hf = {[W_ATTN_GATE] = "model.layers.%d.self_attn.gate_proj", SANDWICH_NAMES("model.layers.%d")},
};

static const arch_names spark_names = {
    .hf = {[W_ATTN_GATE] = "model.layers.%d.self_attn.gate_proj",
           [W_FFN_NORM] = "model.layers.%d.pre_feedforward_layernorm",
           [W_FFN_POST_NORM] = "model.layers.%d.post_feedforward_layernorm",
           [W_ATTN_BLEND] = "model.layers.%d.post_attention_residual_gate.gate",
           [W_FFN_BLEND] = "model.layers.%d.post_feedforward_residual_gate.gate",
           STACK_NAMES("model.layers.%d.mlp.experts"), /* quantised: modules */
           [W_EXPERT_RESULT_NORM] = "model.layers.%d.mlp.experts.post_expert_norm",
           [W_EXPERTS_IN] = "model.layers.%d.mlp.pre_expert_proj",
           [W_EXPERTS_IN_NORM] = "model.layers.%d.mlp.pre_expert_norm",
           [W_EXPERTS_OUT] = "model.layers.%d.mlp.post_expert_proj"},
};

enum { MOST_LATENT = 1 << 20 };

enum { MUSE_PERIOD = 4 }; /* the last of each period neither rotates nor has a window */

static quire_err muse_read_positions(const config *c, model_desc *d) {
    int32_t window = 2048;
    rope_desc usual = config_plain_rope(c, d);
    /* counted from the last layer, every MUSE_PERIOD-th has no window */
    TRY(config_window(c, &window));
    TRY(config_windows(c, window, MUSE_PERIOD, (d->n_layers - 1) % MUSE_PERIOD, d));
    TRY(config_rope(c, NULL, d, &usual));
    usual.pairs = c->is_gguf ? ROPE_NEIGHBOURS : ROPE_HALVES;
    config_set_rows(c, ROPE_HALVES, ROPE_NEIGHBOURS);
    TRY(config_add_rope(c, d, &usual));
    /* layers with base 0 have no positions; all others share one base */
    for (int32_t i = 0; i < d->n_layers; i++) {
        bool rotates = c->is_gguf ? d->layers[i].window > 0 : (d->n_layers - 1 - i) % MUSE_PERIOD != 0;
        float theta = rotates ? 1.0f : 0.0f;
        TRY(config_f32_at(c, NULL, "layer_rope_theta", (size_t)i, &theta));
        if (theta < 0.0f) {
            return config_bad(c, "layer_rope_theta", "must be 0 or more");
        }
        d->layers[i].rope = theta > 0.0f ? d->layers[i].rope : NO_ROPE;
    }
    return QUIRE_OK;
}

static quire_err muse_describe_common(const config *c, model_desc *d) {
    decoder_shape s = {0};
    float factor = c->is_gguf ? 1.0f : 3.87f;
    d->norm_eps = 1e-5f;
    d->norm.post_eps = 1e-8f;
    d->head.cap = 20.0f;
    d->head.scale = 0.19611613513818404f;
    TRY(config_decoder(c, &s, d));
    TRY(config_f32(c, NULL, "post_norm_eps", &d->norm.post_eps));
    TRY(config_f32(c, NULL, "qk_scale_factor", &factor));
    TRY(config_f32(c, "logit_scale", "output_multiplier", &d->head.scale));
    TRY(config_f32_or_none(c, "final_logit_softcapping", "final_logit_softcapping", &d->head.cap));
    if (!(factor > 0.0f) || !(d->head.scale > 0.0f) || !(d->norm.post_eps >= 0.0f)) {
        return config_bad(c, "qk_scale_factor, output_multiplier and post_norm_eps", "must be over 0");
    }
    d->attention_scale *= factor;
    d->embed.normed = true;
    d->norm.add_one = true;
    d->norm.plain_last = true;
    /* GGUF files store the factor as weights of norms */
    d->attend.qk_norm = c->is_gguf ? QK_NORM_HEAD : QK_NORM_BARE_ALL;
    d->attend.gate = ATTEND_GATE_ELEMENTS;
    d->attend.gate_f = ACT_SIGMOID;
    return muse_read_positions(c, d);
}

static quire_err describe_muse_glimmer(const config *c, model_desc *d) {
    TRY(muse_describe_common(c, d));
    steps_set(d, steps_sandwich);
    return QUIRE_OK;
}

/* clang-format off */
static const layer_step steps_blend[] = {
    NORM(W_ATTN_NORM, X, A), ATTEND(A, A), NORM(W_ATTN_POST_NORM, A, A), BLEND(W_ATTN_BLEND, A, X),
    NORM(W_FFN_NORM, X, A), MLP(A, A), NORM(W_FFN_POST_NORM, A, A), BLEND(W_FFN_BLEND, A, X), END};
static const layer_step steps_blend_moe[] = {
    NORM(W_ATTN_NORM, X, A), ATTEND(A, A), NORM(W_ATTN_POST_NORM, A, A), BLEND(W_ATTN_BLEND, A, X),
    NORM(W_FFN_NORM, X, A), MOE(A, A), NORM(W_FFN_POST_NORM, A, A), BLEND(W_FFN_BLEND, A, X), END};
/* clang-format on */

/* Reads experts with rows of their own width; the router's logits are scaled like the
 * head's. By default all layers are mixtures. */
static quire_err muse_read_experts(const config *c, model_desc *d) {
    bool is_sparse[DESC_MAX_LAYERS];
    int32_t d_ff = d->layers[0].d_ff;
    moe_desc *m = &d->moe;
    *m = (moe_desc){.score = ROUTE_SIGMOID,
                    .correction_bias = true,
                    .latent_norm = true,
                    .result_norm = true,
                    .router_scale = d->head.scale};
    TRY(config_moe(c, d));
    m->renormalise = true;
    TRY(config_need_i32(c, NULL, "moe_hidden_size", &m->d_latent));
    if (m->d_latent < 1 || m->d_latent > MOST_LATENT || d->layers[0].n_experts < 1) {
        return config_bad(c, "moe_hidden_size and num_local_experts", "is below 1 or too large");
    }
    for (int32_t i = 0; i < d->n_layers; i++) {
        is_sparse[i] = true;
    }
    TRY(config_sparse_types(c, is_sparse, d_ff, d));
    steps_set_mixed(d, steps_blend, steps_blend_moe);
    return QUIRE_OK;
}

static quire_err describe_muse_spark(const config *c, model_desc *d) {
    if (c->is_gguf) {
        return config_unsupported(c, "Muse Spark is not supported as GGUF; use its safetensors checkpoint");
    }
    TRY(muse_describe_common(c, d));
    d->norm.post_weighed = true;
    d->attend.result_norm = true;
    d->blend_temperature = 1.0f;
    TRY(config_f32(c, NULL, "residual_gate_temperature", &d->blend_temperature));
    if (!(d->blend_temperature > 0.0f)) {
        return config_bad(c, "residual_gate_temperature", "must be over 0");
    }
    return muse_read_experts(c, d);
}

const arch muse_archs[] = {
    {{"muse-glimmer"},
     {"MuseGlimmerForConditionalGeneration", "MuseGlimmerForCausalLM"},
     &muse_names,
     .describe = describe_muse_glimmer},
    {{"muse-spark"},
     {"MuseSparkForConditionalGeneration", "MuseSparkForCausalLM"},
     &spark_names,
     .describe = describe_muse_spark},
    {.describe = NULL},
};
