/* gpt-oss: arXiv:2508.10925: sinks in the softmax, windows on every other layer, YaRN,
 * experts with biases and a clamped SwiGLU. */
#include <math.h>

#include "model/architectures.h"

static const arch_names gpt_oss_names = {
    .gguf = {[W_FFN_NORM] = "blk.%d.post_attention_norm|blk.%d.ffn_norm", [W_ROUTER] = "blk.%d.ffn_gate_inp"},
    .hf = {[W_ROUTER] = "model.layers.%d.mlp.router",
           [W_EXPERT_GATE_UP] = "model.layers.%d.mlp.experts.gate_up_proj",
           [W_EXPERT_DOWN] = "model.layers.%d.mlp.experts.down_proj"},
};

/* The published YaRN where config.json has no scaling at all. */
static quire_err read_rope(const config *c, model_desc *d) {
    rope_desc r = config_plain_rope(c, d);
    r.pairs = ROPE_HALVES;
    r.truncate = !c->is_gguf; /* the published models do not truncate; GGUF files say nothing */
    TRY(config_rope(c, NULL, d, &r));
    if (!c->is_gguf &&
        !config_has(c, NULL,
                    "rope_parameters.rope_type|rope_scaling.rope_type|rope_scaling.type|rope_parameters.type|"
                    "rope_parameters.rope_theta")) {
        r.kind = ROPE_YARN;
        r.factor = 32.0f;
        r.truncate = false;
        r.original_positions = 4096;
    }
    return config_add_rope(c, d, &r);
}

/* The slope in the experts' sigmoid is part of their kernels. */
static quire_err check_alpha(const config *c) {
    float alpha = 1.702f;
    TRY(config_f32(c, NULL, "swiglu_alpha", &alpha));
    return alpha == 1.702f ? QUIRE_OK
                           : config_unsupported(c, "a swiglu_alpha other than 1.702 is not supported");
}

static quire_err describe_gpt_oss(const config *c, model_desc *d) {
    decoder_shape s = {0};
    int32_t window = 128;
    TRY(config_decoder(c, &s, d));
    TRY(read_rope(c, d));
    TRY(config_window(c, &window));
    TRY(config_windows(c, window, 2, 1, d));
    d->attend.sinks = true;
    d->moe =
        (moe_desc){.score = ROUTE_SOFTMAX_CHOSEN, .interleaved = true, .transposed = true, .limit = 7.0f};
    TRY(config_moe(c, d));
    d->moe.activation = ACT_SWIGLU_CLAMPED;
    TRY(check_alpha(c));
    TRY(config_f32_or_none(c, NULL, "swiglu_limit", &d->moe.limit));
    d->moe.limit = d->moe.limit > 0.0f ? d->moe.limit : INFINITY; /* null: nothing is cut */
    return QUIRE_OK;
}

const arch arch_gpt_oss = {
    .gguf = {"gpt-oss"}, .hf = {"GptOssForCausalLM"}, .names = &gpt_oss_names, .describe = describe_gpt_oss};
