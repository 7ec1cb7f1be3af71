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

/* Command R and R+, Command R7B (Cohere 2): attention and feed-forward side by side
 * behind one layer norm without bias; Cohere 2 has windows on all but every fourth layer,
 * which has no positions. */

static quire_err cohere_describe_common(const config *c, model_desc *d) {
    bool qk_norm = c->is_gguf && model_file_find(c->f, "blk.0.attn_q_norm.weight") != NULL;
    d->tied_embeddings = true;
    d->norm_eps = 1e-5f;
    TRY(config_llama(c, ROPE_NEIGHBOURS, ROPE_NEIGHBOURS, d));
    steps_set(d, steps_parallel);
    d->norm.kind = d->attend.qk_norm_type = NORM_LAYER;
    d->head.scale = 0.0625f;
    TRY(config_bool(c, NULL, "use_qk_norm", &qk_norm));
    d->attend.qk_norm = qk_norm ? QK_NORM_HEADS : QK_NORM_NONE;
    return config_f32_or_none(c, "logit_scale", "logit_scale", &d->head.scale);
}

static quire_err describe_cohere2(const config *c, model_desc *d) {
    int32_t window = 4096, period = 4;
    bool is_window[DESC_MAX_LAYERS];
    TRY(cohere_describe_common(c, d));
    TRY(config_window(c, &window));
    TRY(config_period(c, NULL, "sliding_window_pattern|_sliding_window_pattern", &period));
    TRY(config_window_layers(c, d, period, period - 1, is_window));
    for (int32_t i = 0; i < d->n_layers; i++) {
        config_set_window(d, i, is_window[i] ? window : 0);
        d->layers[i].rope = is_window[i] ? d->layers[i].rope : NO_ROPE;
    }
    return QUIRE_OK;
}

const arch arch_cohere = {
    .gguf = {"command-r"}, .hf = {"CohereForCausalLM"}, .describe = cohere_describe_common};
const arch arch_cohere2 = {.gguf = {"cohere2"}, .hf = {"Cohere2ForCausalLM"}, .describe = describe_cohere2};
