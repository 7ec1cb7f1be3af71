/* Qwen3-Next, Qwen3.5 and 3.6, and their mixtures of experts: three of four layers have
 * the gated delta rule in place of attention (Yang et al. 2024, arXiv:2412.06464), and
 * attention has a gate on its result. Norms are 1 + w, but for the one of the delta rule's
 * result. */
#include "model/architectures.h"

static const arch_names qwen_next_names = {
    .gguf = {[W_FFN_NORM] = "blk.%d.post_attention_norm"},
    .hf = {[W_SHARED_GATE] = "model.layers.%d.mlp.shared_expert.gate_proj",
           [W_SHARED_UP] = "model.layers.%d.mlp.shared_expert.up_proj",
           [W_SHARED_DOWN] = "model.layers.%d.mlp.shared_expert.down_proj",
           [W_SHARED_ROUTER] = "model.layers.%d.mlp.shared_expert_gate",
           [W_EXPERT_GATE_UP] = "model.layers.%d.mlp.experts.gate_up_proj",
           [W_EXPERTS_DOWN] = "model.layers.%d.mlp.experts.down_proj",
           [W_DELTA_QKVZ] = "model.layers.%d.linear_attn.in_proj_qkvz",
           [W_DELTA_BA] = "model.layers.%d.linear_attn.in_proj_ba",
           [W_DELTA_QKV] = "model.layers.%d.linear_attn.in_proj_qkv",
           [W_DELTA_GATE] = "model.layers.%d.linear_attn.in_proj_z",
           [W_DELTA_BETA] = "model.layers.%d.linear_attn.in_proj_b",
           [W_DELTA_DECAY] = "model.layers.%d.linear_attn.in_proj_a",
           [W_DELTA_CONV] = "model.layers.%d.linear_attn.conv1d",
           [W_DELTA_RATE] = "model.layers.%d.linear_attn.A_log",
           [W_DELTA_BIAS] = "model.layers.%d.linear_attn.dt_bias",
           [W_DELTA_NORM] = "model.layers.%d.linear_attn.norm",
           [W_DELTA_OUT] = "model.layers.%d.linear_attn.out_proj"},
    .left_out = {"visual"},
};

/* Which layers attend: as the file lists them, else one of each full_attention_interval,
 * the last. */
static quire_err qwen_next_layers(const config *c, const model_desc *d, state_layers *s) {
    int32_t period = 4, recurs[DESC_MAX_LAYERS];
    size_t n;
    bool are_typed;
    TRY(config_state_types(c, d, "linear_attention", s, &are_typed));
    TRY(config_period(c, "full_attention_interval", "full_attention_interval", &period));
    TRY(config_i32s(c, "attention.recurrent_layers", NULL, recurs, DESC_MAX_LAYERS, &n));
    if (n > 0 && n < (size_t)d->n_layers) {
        return config_bad(c, "attention.recurrent_layers", "must have one value for each layer");
    }
    for (int32_t i = 0; i < d->n_layers && !are_typed; i++) {
        s->recurs[i] = n > 0 ? recurs[i] != 0 : period > 0 && (i + 1) % period != 0;
        s->attends[i] = !s->recurs[i];
    }
    return QUIRE_OK;
}

quire_err qwen_next_common(const config *c, state_layers *s, model_desc *d) {
    d->delta = (delta_desc){.kind = DELTA_GATED,
                            .n_heads = 32,
                            .n_key_heads = 16,
                            .d_key = 128,
                            .d_value = 128,
                            .n_taps = 4,
                            .gate = ACT_SILU};
    d->norm.add_one = true;
    d->attend.qk_norm = QK_NORM_HEAD;
    d->attend.gate = ATTEND_GATE_QUERIES;
    d->attend.gate_f = ACT_SIGMOID;
    TRY(config_decoder(c, &(decoder_shape){0}, d));
    TRY(config_i32(c, NULL, "mtp_num_hidden_layers", &d->n_next_token_layers));
    TRY(config_rotary(c, d, ROPE_HALVES, ROPE_HALVES, 0.25f));
    TRY(config_delta(c, d));
    TRY(qwen_next_layers(c, d, s));
    config_delta_caches(d, s);
    return QUIRE_OK;
}

/* Gives the layers that do not attend their steps, and all of them their caches. */
static quire_err qwen_next_end(const config *c, const state_layers *s, model_desc *d) {
    for (int32_t i = 0; i < d->n_layers; i++) {
        if (s->recurs[i]) {
            d->layers[i].steps = d->layers[i].n_experts > 0 ? steps_delta_moe : steps_delta;
        }
    }
    return config_set_states(c, s, d);
}

static quire_err describe_qwen3_next(const config *c, model_desc *d) {
    state_layers s = {0};
    TRY(qwen_next_common(c, &s, d));
    d->moe = (moe_desc){.score = ROUTE_SOFTMAX, .shared_gate = true, .d_shared = 512, .renormalise = true};
    TRY(qwen_experts(c, d));
    return qwen_next_end(c, &s, d);
}

static quire_err describe_qwen3_5(const config *c, model_desc *d) {
    state_layers s = {0};
    TRY(qwen_next_common(c, &s, d));
    d->delta.cyclic = c->is_gguf; /* whose value heads are in another order */
    return qwen_next_end(c, &s, d);
}

static quire_err describe_qwen3_5_moe(const config *c, model_desc *d) {
    state_layers s = {0};
    TRY(qwen_next_common(c, &s, d));
    d->delta.cyclic = c->is_gguf;
    d->moe = (moe_desc){.score = ROUTE_SOFTMAX, .shared_gate = true, .d_shared = 512, .renormalise = true};
    TRY(config_moe(c, d));
    d->moe.renormalise = true; /* whatever norm_topk_prob says */
    return qwen_next_end(c, &s, d);
}

const arch arch_qwen3_next = {.gguf = {"qwen3next"},
                              .hf = {"Qwen3NextForCausalLM"},
                              .names = &qwen_next_names,
                              .describe = describe_qwen3_next};
const arch arch_qwen3_5 = {.gguf = {"qwen35"},
                           .hf = {"Qwen3_5ForCausalLM", "Qwen3_5ForConditionalGeneration"},
                           .names = &qwen_next_names,
                           .describe = describe_qwen3_5};
const arch arch_qwen3_5_moe = {.gguf = {"qwen35moe"},
                               .hf = {"Qwen3_5MoeForCausalLM", "Qwen3_5MoeForConditionalGeneration"},
                               .names = &qwen_next_names,
                               .describe = describe_qwen3_5_moe};
