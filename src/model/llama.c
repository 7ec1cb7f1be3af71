/* Llama: Touvron et al. 2023, arXiv:2302.13971 and 2307.09288. Mistral: Jiang et al.
 * 2023, arXiv:2310.06825. Mixtral: Jiang et al. 2024, arXiv:2401.04088. Arcee's AFM: a
 * squared ReLU without gate. Code World Model: arXiv:2510.02387: windows in three of four
 * layers. */
#include "model/architectures.h"

const arch_names mixtral_names = {
    .hf = {[W_ROUTER] = "model.layers.%d.block_sparse_moe.gate",
           [W_EXPERT_GATE] = "model.layers.%d.block_sparse_moe.experts.%d.w1",
           [W_EXPERT_UP] = "model.layers.%d.block_sparse_moe.experts.%d.w3",
           [W_EXPERT_DOWN] = "model.layers.%d.block_sparse_moe.experts.%d.w2"},
};

static quire_err describe_llama(const config *c, model_desc *d) {
    TRY(config_llama(c, ROPE_HALVES, ROPE_NEIGHBOURS, d));
    if (c->is_gguf) {
        TRY(config_window_on_all(c, 0, d)); /* GGUF calls Mistral llama too */
    }
    d->moe = (moe_desc){.score = ROUTE_SOFTMAX, .renormalise = true};
    return config_moe(c, d); /* and Mixtral */
}

/* Ministral: "layer_types" names layers that have no window. */
static quire_err read_full_layers(const config *c, model_desc *d) {
    bool is_window[DESC_MAX_LAYERS];
    TRY(config_window_layers(c, d, 0, 0, is_window));
    for (int32_t i = 0; i < d->n_layers && config_has(c, NULL, "layer_types"); i++) {
        config_set_window(d, i, is_window[i] ? d->layers[i].window : 0);
    }
    return QUIRE_OK;
}

static quire_err describe_mistral(const config *c, model_desc *d) {
    str type = {0};
    d->tied_embeddings = config_is(c, "Mistral3ForConditionalGeneration");
    TRY(describe_llama(c, d));
    TRY(config_str(c, NULL, "model_type", &type));
    bool is_ministral3 = str_is(type, "ministral3") || config_is(c, "Ministral3ForCausalLM");
    if (is_ministral3 && !c->is_gguf && !config_has(c, NULL, "rms_norm_eps")) {
        d->norm_eps = 1e-5f;
    }
    TRY(config_temperature(c, is_ministral3, d));
    TRY(config_window_on_all(c, is_ministral3 ? 0 : 4096, d));
    return config_is(c, "MinistralForCausalLM") ? read_full_layers(c, d) : QUIRE_OK;
}

static quire_err describe_mixtral(const config *c, model_desc *d) {
    TRY(describe_llama(c, d));
    d->moe.renormalise = d->moe.renormalise || !c->is_gguf; /* whatever norm_topk_prob says */
    return config_window_on_all(c, 0, d);
}

static quire_err describe_arcee(const config *c, model_desc *d) {
    d->activation = ACT_RELU2;
    TRY(describe_llama(c, d));
    d->ungated = true;
    return QUIRE_OK;
}

static quire_err describe_cwm(const config *c, model_desc *d) {
    int32_t window = 8192;
    if (!c->is_gguf && !config_has(c, NULL, "rope_parameters") && !config_has(c, NULL, "rope_scaling")) {
        return config_bad(c, "rope_scaling", "is missing from the metadata");
    }
    TRY(describe_llama(c, d));
    TRY(config_window(c, &window));
    return config_windows(c, window, 4, 0, d);
}

const arch arch_llama = {.gguf = {"llama"},
                         .hf = {"LlamaForCausalLM", "LLaMAForCausalLM", "AquilaForCausalLM", "AquilaModel",
                                "InternLM3ForCausalLM", "XverseForCausalLM"},
                         .names = NULL,
                         .describe = describe_llama};
const arch arch_mistral = {.gguf = {"mistral", "mistral3"},
                           .hf = {"MistralForCausalLM", "Mistral3ForConditionalGeneration",
                                  "Ministral3ForCausalLM", "MinistralForCausalLM"},
                           .describe = describe_mistral};
const arch arch_mixtral = {
    .gguf = {"mixtral"}, .hf = {"MixtralForCausalLM"}, .names = &mixtral_names, .describe = describe_mixtral};
const arch arch_arcee = {.gguf = {"arcee"}, .hf = {"ArceeForCausalLM"}, .describe = describe_arcee};
const arch arch_cwm = {.gguf = {"cwm"}, .hf = {"CwmForCausalLM"}, .describe = describe_cwm};

/* ---- kin of Llama ---- */

/* Kin of Llama. EXAONE 3: arXiv:2408.03541. InternLM 2: arXiv:2403.17297: q, k and v in
 * one tensor, group by group. IQuest-Coder. Helium: neighbours rotate together. Jais 2:
 * layer norms, a squared ReLU without gate. */

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

/* ---- nanochat ---- */

/* nanochat: norms without weights, embeddings and heads of queries and keys too, these
 * after the rotation, which turns the other way. BitNet: arXiv:2504.12285: norms before
 * both last products of a layer. Both square what ReLU gives. */

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
