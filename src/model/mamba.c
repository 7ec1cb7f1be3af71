/* Mamba: Gu and Dao 2023, arXiv:2312.00752. Falcon Mamba: arXiv:2410.05355: the same with
 * norms of time step, B and C. Mamba-2: Dao and Gu 2024, arXiv:2405.21060. No layer has
 * attention, so a sequence's state has a fixed size. */
#include "model/architectures.h"

static const arch_names mamba_names = {
    .hf = {[W_TOKENS] = "backbone.embeddings|backbone.embedding",
           [W_OUT_NORM] = "backbone.norm_f",
           [W_ATTN_NORM] = "backbone.layers.%d.norm",
           [W_MAMBA_IN] = "backbone.layers.%d.mixer.in_proj",
           [W_MAMBA_TAPS] = "backbone.layers.%d.mixer.conv1d",
           [W_MAMBA_X] = "backbone.layers.%d.mixer.x_proj",
           [W_MAMBA_STEP] = "backbone.layers.%d.mixer.dt_proj",
           [W_MAMBA_STEP_BIAS] = "backbone.layers.%d.mixer.dt_bias",
           [W_MAMBA_RATE] = "backbone.layers.%d.mixer.A_log",
           [W_MAMBA_SKIP] = "backbone.layers.%d.mixer.D",
           [W_MAMBA_NORM] = "backbone.layers.%d.mixer.norm",
           [W_MAMBA_OUT] = "backbone.layers.%d.mixer.out_proj"},
};

static quire_err mamba_describe_layers(const config *c, state_layers *s, model_desc *d) {
    for (int32_t i = 0; i < d->n_layers; i++) {
        s->recurs[i] = true;
    }
    steps_set(d, steps_mamba);
    return config_set_states(c, s, d);
}

static quire_err describe_mamba(const config *c, model_desc *d) {
    bool normed = config_is(c, "FalconMambaForCausalLM");
    state_layers s = {0};
    d->tied_embeddings = true;
    TRY(config_decoder(c, &(decoder_shape){.no_attention = true}, d));
    TRY(config_bool(c, "ssm.dt_b_c_rms", NULL, &normed));
    d->mamba.inner_norms = normed ? MAMBA_NORMS_BARE : MAMBA_NORMS_NONE;
    d->mamba.inner_eps = 1e-6f;
    TRY(config_f32(c, NULL, "mixer_rms_eps", &d->mamba.inner_eps));
    TRY(config_mamba1(c, d, &s));
    return mamba_describe_layers(c, &s, d);
}

static quire_err describe_mamba2(const config *c, model_desc *d) {
    bool has_norm = true;
    state_layers s = {0};
    d->mamba = (mamba_desc){.n_heads = 128, .n_groups = 8, .n_states = 128};
    TRY(config_decoder(c, &(decoder_shape){.no_attention = true}, d));
    TRY(config_mamba2(c, 2.0f, 64, d, &s));
    TRY(config_bool(c, NULL, "rms_norm", &has_norm));
    if (!has_norm) {
        return config_unsupported(c, "rms_norm false is not supported for Mamba-2");
    }
    d->mamba.n_norm_groups = d->mamba.n_groups;
    d->mamba.inner_eps = d->norm_eps;
    return mamba_describe_layers(c, &s, d);
}

/* Jamba: Lieber et al. 2024, arXiv:2403.19887: Mamba-1 with norms of time step, B and C,
 * attention without positions in one of eight layers, experts in every other layer. */

static const arch_names jamba_names = {
    .hf = {[W_OUT_NORM] = "model.final_layernorm",
           [W_FFN_NORM] = "model.layers.%d.pre_ff_layernorm",
           MLP_NAMES("model.layers.%d.feed_forward"),
           [W_ROUTER] = "model.layers.%d.feed_forward.router",
           EXPERT_NAMES("model.layers.%d.feed_forward.experts.%d")},
};

/* A period of layers, and one layer in it. */
typedef struct jamba_period {
    int32_t period, offset;
} jamba_period;

static quire_err jamba_read_period(const config *c, const char *period, const char *offset,
                                   jamba_period *out) {
    TRY(config_period(c, NULL, period, &out->period));
    TRY(config_i32(c, NULL, offset, &out->offset));
    return out->period > 0 && out->offset < out->period ? QUIRE_OK
                                                        : config_bad(c, offset, "must be under its period");
}

static quire_err describe_jamba(const config *c, model_desc *d) {
    jamba_period attends = {8, 4}, mixes = {2, 1};
    state_layers s = {0};
    TRY(config_decoder(c, &(decoder_shape){0}, d));
    TRY(jamba_read_period(c, "attn_layer_period", "attn_layer_offset", &attends));
    TRY(jamba_read_period(c, "expert_layer_period", "expert_layer_offset", &mixes));
    const int32_t d_ff = d->layers[0].d_ff;
    d->moe = (moe_desc){.score = ROUTE_SOFTMAX};
    TRY(config_moe(c, d));
    d->mamba = (mamba_desc){.inner_norms = MAMBA_NORMS_WEIGHED, .inner_eps = d->norm_eps};
    TRY(config_mamba1(c, d, &s));
    for (int32_t i = 0; i < d->n_layers; i++) {
        s.attends[i] = c->is_gguf ? !config_has_mamba(c, i) : i % attends.period == attends.offset;
        s.recurs[i] = !s.attends[i];
        const bool has_experts = c->is_gguf ? config_has_experts(c, i)
                                            : d->layers[i].n_experts > 1 && i % mixes.period == mixes.offset;
        if (!has_experts) {
            config_set_dense(d, i, d_ff);
        }
        if (s.recurs[i]) {
            d->layers[i].steps = has_experts ? steps_mamba_moe : steps_mamba_mlp;
        }
    }
    return config_set_states(c, &s, d);
}

const arch mamba_archs[] = {
    {{"mamba"}, {"MambaForCausalLM", "FalconMambaForCausalLM"}, &mamba_names, .describe = describe_mamba},
    {{"mamba2"}, {"Mamba2ForCausalLM"}, &mamba_names, .describe = describe_mamba2},
    {{"jamba"}, {"JambaForCausalLM"}, &jamba_names, .describe = describe_jamba},
    {.describe = NULL},
};
