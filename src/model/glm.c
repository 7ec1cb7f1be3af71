/* GLM-4 (9B, "chatglm" in GGUF), GLM-4-0414 and its norms behind both halves of a layer, GLM-4.5: arXiv:2508.06471, a mixture of experts.
 */
#include "model/architectures.h"

static const arch_names glm_names = {
    .gguf = {[W_GATE_UP] = "blk.%d.ffn_up"},
    .hf = {[W_GATE_UP] = "model.layers.%d.mlp.gate_up_proj"},
};
static const arch_names glm4_names = {
    .gguf = {[W_GATE_UP] = "blk.%d.ffn_up"},
    .hf = {[W_GATE_UP] = "model.layers.%d.mlp.gate_up_proj",
           [W_ATTN_POST_NORM] = "model.layers.%d.post_self_attn_layernorm",
           [W_FFN_POST_NORM] = "model.layers.%d.post_mlp_layernorm"},
};
static const arch_names glm4_moe_names = {.gguf = {[W_FFN_NORM] = "blk.%d.post_attention_norm|blk.%d.ffn_norm"}};

static quire_err describe_glm(const config *c, model_desc *d) {
    decoder_shape s = {0};
    TRY(config_decoder(c, &s, d));
    TRY(config_rotary(c, d, ROPE_NEIGHBOURS, ROPE_NEIGHBOURS, 0.5f));
    int32_t usual = d->d_model / s.n_heads;
    if (c->is_gguf && !config_has(c, "attention.key_length", NULL) && usual > 0 && d->ropes[0].n_dims <= usual) {
        /* such files count them as if heads were as wide as usual */
        d->ropes[0].n_dims = (int32_t)((int64_t)d->ropes[0].n_dims * s.d_head / usual);
    }
    return QUIRE_OK;
}

static quire_err describe_glm4_moe(const config *c, model_desc *d) {
    decoder_shape s = {0};
    int32_t n_dense = 1;
    bool qk_norm = c->is_gguf && model_file_find(c->f, "blk.0.attn_q_norm.weight") != NULL;
    TRY(config_decoder(c, &s, d));
    TRY(config_rotary(c, d, ROPE_HALVES, ROPE_HALVES, 0.5f));
    TRY(config_bool(c, NULL, "use_qk_norm", &qk_norm));
    d->blocks.qk_norm = qk_norm ? QK_NORM_HEAD : QK_NORM_NONE;
    d->moe = (moe_desc){.score = ROUTE_SIGMOID, .correction_bias = true, .group_by_best_two = true, .renormalise = true};
    TRY(config_moe(c, d));
    TRY(config_i32(c, "leading_dense_block_count", "first_k_dense_replace", &n_dense));
    for (int32_t i = 0; i < n_dense && i < d->n_layers; i++) {
        config_set_dense(d, i, s.d_ff);
    }
    return QUIRE_OK;
}

const arch arch_glm = {.gguf = {"chatglm"}, .hf = {"GlmForCausalLM"}, .names = &glm_names, .describe = describe_glm};
const arch arch_glm4 = {.gguf = {"glm4"}, .hf = {"Glm4ForCausalLM"}, .names = &glm4_names, .describe = describe_glm};
const arch arch_glm4_moe = {.gguf = {"glm4moe"}, .hf = {"Glm4MoeForCausalLM"}, .names = &glm4_moe_names, .describe = describe_glm4_moe};
