/* Granite 3: Llama with factors on embeddings, residuals, attention and logits; its mixture of experts. */
#include "model/architectures.h"

static const arch_names granite_moe_names = {
    .hf = {[W_ROUTER] = "model.layers.%d.block_sparse_moe.router.layer",
           [W_EXPERT_GATE_UP] = "model.layers.%d.block_sparse_moe.input_linear",
           [W_EXPERT_DOWN] = "model.layers.%d.block_sparse_moe.output_linear"},
};

static quire_err describe_granite(const config *c, model_desc *d) {
    decoder_shape s = {0};
    float logits = 1.0f;
    TRY(config_decoder(c, &s, d));
    d->attention_scale = c->is_gguf ? d->attention_scale : 1.0f;
    TRY(config_f32_or_none(c, "embedding_scale", "embedding_multiplier", &d->blocks.embedding_scale));
    TRY(config_f32_or_none(c, "residual_scale", "residual_multiplier", &d->blocks.residual_scale));
    TRY(config_f32(c, "attention.scale", "attention_multiplier", &d->attention_scale));
    TRY(config_f32(c, "logit_scale", "logits_scaling", &logits));
    if (!(logits > 0.0f)) {
        return config_bad(c, "logits_scaling", "must be over 0");
    }
    d->blocks.logits_scale = 1.0f / logits;
    return config_rotary(c, d, ROPE_HALVES, ROPE_NEIGHBOURS, 1.0f);
}

static quire_err describe_granite_moe(const config *c, model_desc *d) {
    TRY(describe_granite(c, d));
    d->moe = (moe_desc){.score = ROUTE_SOFTMAX_CHOSEN};
    TRY(config_moe(c, d));
    d->moe.score = ROUTE_SOFTMAX_CHOSEN;
    return QUIRE_OK;
}

const arch arch_granite = {.gguf = {"granite"}, .hf = {"GraniteForCausalLM"}, .describe = describe_granite};
const arch arch_granite_moe = {
    .gguf = {"granitemoe"}, .hf = {"GraniteMoeForCausalLM"}, .names = &granite_moe_names, .describe = describe_granite_moe};
