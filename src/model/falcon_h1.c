/* Falcon-H1: arXiv:2507.22448: attention and Mamba-2 side by side in every layer, and a
 * factor on nearly every product. GGUF files have the factors in the weights. */
#include "model/architectures.h"

static const arch_names falcon_h1_names = {
    .hf = {[W_OUT_NORM] = "model.final_layernorm",
           [W_FFN_NORM] = "model.layers.%d.pre_ff_layernorm",
           [W_GATE] = "model.layers.%d.feed_forward.gate_proj",
           [W_UP] = "model.layers.%d.feed_forward.up_proj",
           [W_DOWN] = "model.layers.%d.feed_forward.down_proj"},
};

/* x += attend(norm(x)) + mamba(norm(x)); x += mlp(norm(x)). */
static const layer_step attend_beside_mamba[] = {NORM(W_ATTN_NORM, X, A),
                                                 NORM(W_MAMBA_IN_NORM, X, B),
                                                 ATTEND(A, A),
                                                 ADD(A, X),
                                                 MAMBA(B, B),
                                                 ADD(B, X),
                                                 NORM(W_FFN_NORM, X, A),
                                                 MLP(A, A),
                                                 ADD(A, X),
                                                 END};

/* A factor; null and no key: 1. */
static quire_err read_multiplier(const config *c, const char *hf, float *out) {
    *out = 1.0f;
    TRY(config_f32(c, NULL, config_is_null(c, hf) ? NULL : hf, out));
    return *out != 0.0f ? QUIRE_OK : config_bad(c, hf, "must not be 0");
}

/* n factors, or none. */
static quire_err read_multipliers(const config *c, const char *hf, float *out, size_t n_wanted) {
    size_t n = 0;
    for (size_t i = 0; i < n_wanted; i++) {
        out[i] = 1.0f;
    }
    TRY(c->is_gguf || config_is_null(c, hf) ? QUIRE_OK : config_f32s(c, hf, out, n_wanted, &n));
    bool fits = n == 0 || n == n_wanted;
    for (size_t i = 0; i < n_wanted; i++) {
        fits = fits && out[i] != 0.0f;
    }
    return fits ? QUIRE_OK : config_bad(c, hf, "must be a number other than 0 for each part");
}

static quire_err falcon_h1_read_scales(const config *c, model_desc *d) {
    float key, mlp[2];
    TRY(read_multiplier(c, "embedding_multiplier", &d->embed.scale));
    TRY(read_multiplier(c, "lm_head_multiplier", &d->head.scale));
    TRY(read_multiplier(c, "key_multiplier", &key));
    TRY(read_multiplier(c, "attention_in_multiplier", &d->attend.in_scale));
    TRY(read_multiplier(c, "attention_out_multiplier", &d->attend.out_scale));
    TRY(read_multiplier(c, "ssm_in_multiplier", &d->mamba.in_scale));
    TRY(read_multiplier(c, "ssm_out_multiplier", &d->mamba.out_scale));
    TRY(read_multipliers(c, "ssm_multipliers", d->mamba.scales, 5));
    TRY(read_multipliers(c, "mlp_multipliers", mlp, 2));
    d->attention_scale *= key;
    d->gate_scale = mlp[0];
    d->down_scale = mlp[1];
    return QUIRE_OK;
}

static quire_err describe_falcon_h1(const config *c, model_desc *d) {
    bool has_norm = model_file_find(c->f, "blk.0.ssm_norm.weight") != NULL, norm_first = !c->is_gguf;
    state_layers s = {0};
    TRY(config_llama(c, ROPE_HALVES, ROPE_HALVES, d));
    d->mamba = (mamba_desc){.n_inner = 1024, .n_heads = 128, .n_groups = 1, .n_states = 256};
    TRY(config_i32_or_none(c, NULL, "mamba_d_ssm", &d->mamba.n_inner));
    TRY(config_mamba2(c, 2.0f, 0, d, &s));
    TRY(config_bool(c, NULL, "mamba_rms_norm", &has_norm));
    TRY(config_bool(c, NULL, "mamba_norm_before_gate", &norm_first));
    d->mamba.n_norm_groups = has_norm ? d->mamba.n_groups : 0;
    d->mamba.norm_first = norm_first;
    d->mamba.inner_eps = d->norm_eps;
    TRY(falcon_h1_read_scales(c, d));
    for (int32_t i = 0; i < d->n_layers; i++) {
        s.attends[i] = s.recurs[i] = true;
    }
    steps_set(d, attend_beside_mamba);
    return config_set_states(c, &s, d);
}

const arch arch_falcon_h1 = {.gguf = {"falcon-h1"},
                             .hf = {"FalconH1ForCausalLM"},
                             .names = &falcon_h1_names,
                             .describe = describe_falcon_h1};
