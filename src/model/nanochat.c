/* nanochat: norms without weights, embeddings and heads of queries and keys too, these
 * behind the rotation, which turns the other way. BitNet: arXiv:2504.12285: norms before
 * both last products of a layer. Both square what ReLU gives. */
#include "model/architectures.h"

static const arch_names nanochat_names = {
    .hf = {[W_UP] = "model.layers.%d.mlp.fc1", [W_DOWN] = "model.layers.%d.mlp.fc2"}};
static const arch_names bitnet_names = {
    .hf = {[W_ATTN_INNER_NORM] = "model.layers.%d.self_attn.attn_sub_norm",
           [W_FFN_INNER_NORM] = "model.layers.%d.mlp.ffn_sub_norm"},
};

static quire_err describe_nanochat(const config *c, model_desc *d) {
    d->activation = ACT_RELU2;
    d->ungated = true;
    d->head.cap = 15.0f;
    TRY(config_llama(c, ROPE_HALVES, ROPE_HALVES, d));
    d->ropes[0].backwards = true;
    d->norm.bare = true;
    d->embed.normed = true;
    d->attend.qk_norm = QK_NORM_BARE;
    d->attend.norm_after_rope = true;
    return config_f32_or_none(c, "final_logit_softcapping", "final_logit_softcapping", &d->head.cap);
}

static quire_err describe_bitnet(const config *c, model_desc *d) {
    d->activation = ACT_RELU2;
    d->norm_eps = 1e-5f;
    TRY(config_llama(c, ROPE_HALVES, ROPE_HALVES, d));
    d->norm.inner = true;
    return QUIRE_OK;
}

const arch arch_nanochat = {.gguf = {"nanochat"},
                            .hf = {"NanoChatForCausalLM"},
                            .names = &nanochat_names,
                            .describe = describe_nanochat};
const arch arch_bitnet = {.gguf = {"bitnet-b1.58"},
                          .hf = {"BitNetForCausalLM"},
                          .names = &bitnet_names,
                          .describe = describe_bitnet};
