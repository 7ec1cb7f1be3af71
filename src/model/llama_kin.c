/* Kin of Llama. EXAONE 3: arXiv:2408.03541. InternLM 2: arXiv:2403.17297: q, k and v in
 * one tensor, group by group. IQuest-Coder. Helium: neighbours rotate together. Jais 2:
 * layer norms, a squared ReLU without gate. */
#include "model/architectures.h"

static const arch_names internlm2_names = {
    .hf = {[W_TOKENS] = "model.tok_embeddings",
           [W_HEAD] = "output",
           [W_ATTN_NORM] = "model.layers.%d.attention_norm",
           [W_QKV] = "model.layers.%d.attention.wqkv",
           [W_O] = "model.layers.%d.attention.wo",
           [W_FFN_NORM] = "model.layers.%d.ffn_norm",
           [W_GATE] = "model.layers.%d.feed_forward.w1",
           [W_UP] = "model.layers.%d.feed_forward.w3",
           [W_DOWN] = "model.layers.%d.feed_forward.w2"},
};
static const arch_names exaone_names = {
    .hf = {[W_TOKENS] = "transformer.wte",
           [W_OUT_NORM] = "transformer.ln_f",
           [W_ATTN_NORM] = "transformer.h.%d.ln_1",
           [W_Q] = "transformer.h.%d.attn.attention.q_proj",
           [W_K] = "transformer.h.%d.attn.attention.k_proj",
           [W_V] = "transformer.h.%d.attn.attention.v_proj",
           [W_O] = "transformer.h.%d.attn.attention.out_proj",
           [W_FFN_NORM] = "transformer.h.%d.ln_2",
           [W_GATE] = "transformer.h.%d.mlp.c_fc_0",
           [W_UP] = "transformer.h.%d.mlp.c_fc_1",
           [W_DOWN] = "transformer.h.%d.mlp.c_proj"},
};

static quire_err describe_iquestcoder(const config *c, model_desc *d) {
    return config_llama(c, ROPE_HALVES, ROPE_NEIGHBOURS, d);
}

static quire_err describe_exaone(const config *c, model_desc *d) {
    return config_llama(c, ROPE_HALVES, ROPE_HALVES, d);
}

static quire_err describe_internlm2(const config *c, model_desc *d) {
    TRY(config_llama(c, ROPE_HALVES, ROPE_NEIGHBOURS, d));
    d->attend.order = QKV_GROUPED;
    return QUIRE_OK;
}

static quire_err describe_helium(const config *c, model_desc *d) {
    return config_llama(c, ROPE_NEIGHBOURS, ROPE_NEIGHBOURS, d);
}

static quire_err describe_jais2(const config *c, model_desc *d) {
    d->activation = ACT_RELU2;
    TRY(config_llama(c, ROPE_HALVES, ROPE_HALVES, d));
    d->norm.kind = NORM_LAYER;
    d->ungated = true;
    return QUIRE_OK;
}

const arch arch_iquestcoder = {
    .gguf = {"iquestcoder"}, .hf = {"IQuestCoderForCausalLM"}, .describe = describe_iquestcoder};
const arch arch_exaone = {
    .gguf = {"exaone"}, .hf = {"ExaoneForCausalLM"}, .names = &exaone_names, .describe = describe_exaone};
const arch arch_internlm2 = {.gguf = {"internlm2"},
                             .hf = {"InternLM2ForCausalLM"},
                             .names = &internlm2_names,
                             .describe = describe_internlm2};
const arch arch_helium = {.gguf = {"helium"}, .hf = {"HeliumForCausalLM"}, .describe = describe_helium};
const arch arch_jais2 = {.gguf = {"jais2"}, .hf = {"Jais2ForCausalLM"}, .describe = describe_jais2};
