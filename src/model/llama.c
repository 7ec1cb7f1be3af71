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
    TRY(c->is_gguf ? config_window_on_all(c, 0, d) : QUIRE_OK); /* GGUF calls Mistral llama too */
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
    TRY(describe_llama(c, d));
    TRY(config_str(c, NULL, "model_type", &type));
    bool is_ministral3 = str_is(type, "ministral3") || config_is(c, "Ministral3ForCausalLM");
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
