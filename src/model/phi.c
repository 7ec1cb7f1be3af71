/* Phi and Phi-2: arXiv:2309.05463: attention and feed-forward side by side. Phi-3 and 4:
 * arXiv:2404.14219: Llama with fused weights. PhiMoE. */
#include <string.h>

#include "model/architectures.h"

static const arch_names phi_names = {
    .hf = {[W_OUT_NORM] = "model.final_layernorm",
           [W_Q_NORM] = "model.layers.%d.self_attn.q_layernorm",
           [W_K_NORM] = "model.layers.%d.self_attn.k_layernorm",
           [W_O] = "model.layers.%d.self_attn.dense",
           [W_UP] = "model.layers.%d.mlp.fc1",
           [W_DOWN] = "model.layers.%d.mlp.fc2"},
};
static const arch_names phi3_names = {
    .gguf = {[W_GATE_UP] = "blk.%d.ffn_up"},
    .hf = {[W_QKV] = "model.layers.%d.self_attn.qkv_proj", [W_GATE_UP] = "model.layers.%d.mlp.gate_up_proj"},
};

static quire_err describe_phi(const config *c, model_desc *d) {
    decoder_shape s = {0};
    bool qk_norm = false;
    d->activation = ACT_GELU_TANH;
    TRY(config_bool(c, NULL, "qk_layernorm", &qk_norm));
    TRY(config_decoder(c, &s, d));
    TRY(config_ff_of_tensor(c, d));
    config_kv_heads_of_tensor(c, d);
    steps_set(d, steps_parallel);
    d->norm.kind = d->attend.qk_norm_type = NORM_LAYER;
    d->ungated = true;
    d->attend.qk_norm = qk_norm ? QK_NORM_HEAD : QK_NORM_NONE;
    return config_rotary(c, d, ROPE_HALVES, ROPE_HALVES, 0.5f);
}

static quire_err describe_phi3(const config *c, model_desc *d) {
    decoder_shape s = {0};
    TRY(config_decoder(c, &s, d));
    rope_desc r = config_plain_rope(c, d);
    r.pairs = ROPE_HALVES;
    r.original_positions = c->is_gguf ? r.original_positions : 4096; /* default of the trained length */
    TRY(config_rope(c, NULL, d, &r));
    TRY(config_add_rope(c, d, &r));
    return config_window_on_all(c, 0, d);
}

static quire_err describe_phimoe(const config *c, model_desc *d) {
    TRY(describe_phi3(c, d));
    /* The reference implementation uses the short factors at every length. */
    memcpy(d->ropes[0].long_factors, d->ropes[0].factors, sizeof d->ropes[0].factors);
    d->norm.kind = NORM_LAYER;
    d->moe = (moe_desc){.score = ROUTE_SPARSE_MIXER, .jitter_eps = 0.01f};
    TRY(config_f32(c, NULL, "router_jitter_noise", &d->moe.jitter_eps));
    TRY(config_moe(c, d));
    d->moe.score = ROUTE_SPARSE_MIXER;
    return QUIRE_OK;
}

const arch phi_archs[] = {
    {{"phi2"}, {"PhiForCausalLM"}, &phi_names, .describe = describe_phi},
    {{"phi3"}, {"Phi3ForCausalLM"}, &phi3_names, .describe = describe_phi3},
    {{"phimoe"}, {"PhiMoEForCausalLM", "PhimoeForCausalLM"}, &mixtral_names, .describe = describe_phimoe},
    {.describe = NULL},
};
