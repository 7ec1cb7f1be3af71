/* Llama: Touvron et al. 2023, arXiv:2302.13971 and 2307.09288. Mistral: Jiang et al.
 * 2023, arXiv:2310.06825. Mixtral: Jiang et al. 2024, arXiv:2401.04088. Arcee's AFM: an
 * ungated squared ReLU. Code World Model: arXiv:2510.02387: windows on three of four
 * layers. */
#include "model/architectures.h"

const arch_names mixtral_names = {
    .hf = {[W_ROUTER] = "model.layers.%d.block_sparse_moe.gate",
           EXPERT_W_NAMES("model.layers.%d.block_sparse_moe.experts.%d")},
};

static quire_err describe_llama(const config *c, model_desc *d) {
    TRY(config_llama(c, ROPE_HALVES, ROPE_NEIGHBOURS, d));
    if (c->is_gguf) {
        TRY(config_window_on_all(c, 0, d)); /* GGUF calls Mistral llama too */
    }
    d->moe = (moe_desc){.score = ROUTE_SOFTMAX, .renormalise = true};
    return config_moe(c, d); /* Mixtral is llama too */
}

/* Ministral: reads from "layer_types" which layers have no window. */
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

/* Relatives of Llama. EXAONE 3: arXiv:2408.03541. InternLM 2: arXiv:2403.17297: q, k and
 * v in one tensor, group by group. IQuest-Coder. Helium: neighbours rotate together. Jais
 * 2: layer norms, an ungated squared ReLU. */

static const arch_names internlm2_names = {
    .hf = {[W_TOKENS] = "model.tok_embeddings",
           [W_HEAD] = "output",
           [W_ATTN_NORM] = "model.layers.%d.attention_norm",
           [W_QKV] = "model.layers.%d.attention.wqkv",
           [W_O] = "model.layers.%d.attention.wo",
           [W_FFN_NORM] = "model.layers.%d.ffn_norm",
           MLP_W_NAMES("model.layers.%d.feed_forward")},
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

/* nanochat: norms without weights, also on embeddings and on heads of queries and keys
 * after the rotation, which turns in the opposite direction. BitNet: arXiv:2504.12285:
 * norms before both last products of a layer. Both use squared ReLU. */

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

/* Llama 4's text model: all layers but every nth rotate and attend within chunks; the
 * others see everything, without positions, and scale queries by position. One expert per
 * row, whose input is scaled by a sigmoid, and a shared expert; dense layers in
 * between. */

static const arch_names llama4_names = {
    .hf = {[W_ROUTER] = "model.layers.%d.feed_forward.router",
           MLP_NAMES("model.layers.%d.feed_forward"),
           [W_EXPERT_GATE_UP] = "model.layers.%d.feed_forward.experts.gate_up_proj",
           [W_EXPERT_DOWN] = "model.layers.%d.feed_forward.experts.down_proj",
           /* for files whose experts are modules, quantised by llm-compressor */
           [W_EXPERT_GATE] = "model.layers.%d.feed_forward.experts.%d.gate_proj",
           [W_EXPERT_UP] = "model.layers.%d.feed_forward.experts.%d.up_proj",
           [W_EXPERTS_DOWN] = "model.layers.%d.feed_forward.experts.%d.down_proj",
           SHARED_NAMES("model.layers.%d.feed_forward.shared_expert")},
};

/* Makes a layer attend within chunks. Its cache keeps no more than the longest chunk. */
static void set_chunk(model_desc *d, int32_t layer, int32_t chunk) {
    cache_desc *cache = &d->caches[d->layers[layer].caches[0]];
    d->layers[layer].chunk = cache->window = chunk;
    cache->kind = chunk > 0 ? LAYER_WINDOW : LAYER_FULL;
}

/* Reads which layers rotate, and which of them attend within chunks. GGUF files do not
 * say; if their window is 0, none does. */
static quire_err llama4_read_layers(const config *c, model_desc *d) {
    int32_t interval = 4, chunk = 8192, window = 1, rotates[DESC_MAX_LAYERS];
    size_t n;
    TRY(config_i32(c, "attention.sliding_window", NULL, &window));
    TRY(config_i32_or_none(c, "attention.chunk_size", "attention_chunk_size", &chunk));
    TRY(config_i32(c, NULL, "no_rope_layer_interval", &interval));
    TRY(config_i32s(c, NULL, "no_rope_layers", rotates, DESC_MAX_LAYERS, &n));
    if (n != 0 && n != (size_t)d->n_layers) {
        return config_bad(c, "no_rope_layers", "must have one number for each layer");
    }
    chunk = window > 0 ? chunk : 0;
    interval = window > 0 ? interval : 0;
    for (int32_t i = 0; i < d->n_layers; i++) {
        bool is_rotary = n > 0 ? rotates[i] != 0 : interval == 0 || (i + 1) % interval != 0;
        str type;
        TRY(config_str_at(c, "layer_types", (size_t)i, &type));
        d->layers[i].rope = is_rotary ? d->layers[i].rope : NO_ROPE;
        set_chunk(d, i, (type.n > 0 ? str_is(type, "chunked_attention") : is_rotary) ? chunk : 0);
    }
    return QUIRE_OK;
}

/* Rotary layers norm queries and keys after the rotation; the others scale queries by
 * position. GGUF files do not say whether there are norms: of the published models only
 * the one with 128 experts has none. */
static quire_err read_attention(const config *c, model_desc *d) {
    bool has_temperature = true, has_norm;
    int32_t n_experts = 0;
    attend_desc *a = &d->attend;
    TRY(config_i32(c, "expert_count", NULL, &n_experts));
    has_norm = n_experts != 128;
    a->norm_after_rope = true;
    TRY(config_bool(c, NULL, "use_qk_norm", &has_norm));
    a->qk_norm = has_norm ? QK_NORM_BARE : QK_NORM_NONE;
    a->temperature = 0.1f;
    a->temperature_length = 8192;
    TRY(config_f32(c, NULL, "attn_scale", &a->temperature));
    TRY(config_i32(c, NULL, "floor_scale", &a->temperature_length));
    TRY(config_bool(c, NULL, "attn_temperature_tuning", &has_temperature));
    if (a->temperature_length < 1) {
        return config_bad(c, "floor_scale", "must be at least 1");
    }
    a->temperature = has_temperature ? a->temperature : 0.0f;
    return QUIRE_OK;
}

/* Reads the experts. config.json's intermediate_size is the experts' width, GGUF's that
 * of dense layers. */
static quire_err llama4_read_experts(const config *c, model_desc *d) {
    int32_t step = 1, d_ff = d->layers[0].d_ff, listed[DESC_MAX_LAYERS];
    size_t n;
    bool is_moe[DESC_MAX_LAYERS] = {0};
    d->moe = (moe_desc){.score = ROUTE_SIGMOID, .scale_inputs = true, .transposed = true};
    TRY(config_moe(c, d));
    d->moe.d_shared = d->moe.d_shared > 0 ? d->moe.d_shared : d->moe.d_expert;
    TRY(config_i32(c, NULL, "intermediate_size_mlp", &d_ff));
    TRY(config_i32(c, "interleave_moe_layer_step", "interleave_moe_layer_step", &step));
    TRY(config_i32s(c, NULL, "moe_layers", listed, DESC_MAX_LAYERS, &n));
    for (size_t k = 0; k < n; k++) {
        if (listed[k] >= d->n_layers) {
            return config_bad(c, "moe_layers", "names a layer that the model does not have");
        }
        is_moe[listed[k]] = true;
    }
    for (int32_t i = 0; i < d->n_layers; i++) {
        bool has_experts = config_has(c, NULL, "moe_layers") ? is_moe[i] : step > 0 && (i + 1) % step == 0;
        if (!has_experts || d->layers[i].n_experts == 0) {
            config_set_dense(d, i, d_ff);
        }
    }
    return QUIRE_OK;
}

static quire_err describe_llama4(const config *c, model_desc *d) {
    d->norm_eps = 1e-5f;
    TRY(config_llama(c, ROPE_NEIGHBOURS, ROPE_NEIGHBOURS, d));
    TRY(llama4_read_layers(c, d));
    TRY(read_attention(c, d));
    return llama4_read_experts(c, d);
}

const arch llama_archs[] = {
    {{"llama"},
     {"LlamaForCausalLM", "LLaMAForCausalLM", "AquilaForCausalLM", "AquilaModel", "InternLM3ForCausalLM",
      "XverseForCausalLM"},
     .describe = describe_llama},
    {{"mistral", "mistral3"},
     {"MistralForCausalLM", "Mistral3ForConditionalGeneration", "Ministral3ForCausalLM",
      "MinistralForCausalLM"},
     .describe = describe_mistral},
    {{"mixtral"}, {"MixtralForCausalLM"}, &mixtral_names, .describe = describe_mixtral},
    {{"arcee"}, {"ArceeForCausalLM"}, .describe = describe_arcee},
    {{"cwm"}, {"CwmForCausalLM"}, .describe = describe_cwm},
    {{"iquestcoder"}, {"IQuestCoderForCausalLM"}, .describe = describe_iquestcoder},
    {{"exaone"}, {"ExaoneForCausalLM"}, &exaone_names, .describe = describe_exaone},
    {{"internlm2"}, {"InternLM2ForCausalLM"}, &internlm2_names, .describe = describe_internlm2},
    {{"helium"}, {"HeliumForCausalLM"}, .describe = describe_helium},
    {{"jais2"}, {"Jais2ForCausalLM"}, .describe = describe_jais2},
    {{"nanochat"}, {"NanoChatForCausalLM"}, &nanochat_names, .describe = describe_nanochat},
    {{"bitnet-b1.58"}, {"BitNetForCausalLM"}, &bitnet_names, .describe = describe_bitnet},
    {{"llama4"},
     {"Llama4ForCausalLM", "Llama4ForConditionalGeneration"},
     &llama4_names,
     .describe = describe_llama4},
    {.describe = NULL},
};
