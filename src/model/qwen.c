/* Qwen2 and 2.5: arXiv:2407.10671, 2412.15115: Llama with biases on q, k and v. Qwen3:
 * arXiv:2505.09388: with norms over the heads of q and k instead. Their mixtures of
 * experts. The text of Qwen2-VL, 2.5-VL and 3-VL (arXiv:2409.12191), whose positions have
 * three axes: without an image one number. */
#include <string.h>

#include "model/architectures.h"

static const arch_names qwen_vl_names = {.left_out = {"visual"}};
static const arch_names qwen3_vl_moe_names = {
    .hf = {[W_EXPERT_GATE_UP] = "model.layers.%d.mlp.experts.gate_up_proj",
           [W_EXPERT_DOWN] = "model.layers.%d.mlp.experts.down_proj"},
};
static const arch_names qwen2_moe_names = {
    .hf = {[W_SHARED_GATE] = "model.layers.%d.mlp.shared_expert.gate_proj",
           [W_SHARED_UP] = "model.layers.%d.mlp.shared_expert.up_proj",
           [W_SHARED_DOWN] = "model.layers.%d.mlp.shared_expert.down_proj",
           [W_SHARED_ROUTER] = "model.layers.%d.mlp.shared_expert_gate"},
};

/* Which layers have a window where the file lists none: those from max_window_layers on;
 * the even ones before it; all. */
typedef enum windowed { WINDOWED_LAST, WINDOWED_EVEN, WINDOWED_ALL } windowed;

/* The published max_window_layers; GGUF files have theirs. */
static int32_t usual_first(const config *c, const model_desc *d) {
    return c->is_gguf ? d->n_layers : strcmp(d->architecture, "qwen2vl") == 0 ? 80 : 28;
}

/* Layers with a window, where use_sliding_window says that any has. */
static quire_err qwen_read_windows(const config *c, windowed which, model_desc *d) {
    bool use = false, is_window[DESC_MAX_LAYERS];
    int32_t window = c->is_gguf ? 0 : 4096, first = usual_first(c, d);
    TRY(config_bool(c, NULL, "use_sliding_window", &use));
    if (!use) {
        return QUIRE_OK;
    }
    TRY(config_window(c, &window));
    TRY(config_i32(c, NULL, "max_window_layers", &first));
    TRY(config_window_layers(c, d, 0, 0, is_window));
    bool are_listed =
        config_has(c, NULL, "layer_types") || config_has(c, "attention.sliding_window_pattern", NULL);
    for (int32_t i = 0; i < d->n_layers; i++) {
        bool has = which == WINDOWED_ALL    ? true
                   : are_listed             ? is_window[i]
                   : which == WINDOWED_EVEN ? i % 2 == 0 && i < first
                                            : i >= first;
        config_set_window(d, i, has ? window : 0);
    }
    return QUIRE_OK;
}

static quire_err qwen_describe_common(const config *c, windowed which, model_desc *d) {
    TRY(config_llama(c, ROPE_HALVES, ROPE_HALVES, d));
    return qwen_read_windows(c, which, d);
}

static quire_err describe_qwen2(const config *c, model_desc *d) {
    return qwen_describe_common(c, WINDOWED_LAST, d);
}

static quire_err describe_qwen3(const config *c, model_desc *d) {
    TRY(qwen_describe_common(c, WINDOWED_LAST, d));
    d->attend.qk_norm = QK_NORM_HEAD;
    d->no_head = config_is(c, "Qwen3Model");
    return QUIRE_OK;
}

quire_err qwen_experts(const config *c, model_desc *d) {
    int32_t d_ff = d->layers[0].d_ff;
    TRY(config_moe(c, d));
    return config_sparse_layers(c, 0, d_ff, d);
}

static quire_err describe_qwen2_moe(const config *c, model_desc *d) {
    TRY(qwen_describe_common(c, WINDOWED_EVEN, d));
    d->moe = (moe_desc){.score = ROUTE_SOFTMAX, .shared_gate = true, .d_shared = d->layers[0].d_ff};
    return qwen_experts(c, d);
}

static quire_err describe_qwen3_moe(const config *c, model_desc *d) {
    TRY(qwen_describe_common(c, WINDOWED_ALL, d));
    d->attend.qk_norm = QK_NORM_HEAD;
    d->moe = (moe_desc){.score = ROUTE_SOFTMAX, .renormalise = c->is_gguf};
    return qwen_experts(c, d);
}

/* Published files have an expert's weights the other way round than those that
 * transformers writes: their shape tells. */
static bool are_transposed(const config *c, const model_desc *d) {
    const tensor_view *t = model_file_find(c->f, "model.language_model.layers.0.mlp.experts.gate_up_proj");
    return t == NULL || t->n_dims != 3 || t->dims[2] != d->d_model || t->dims[1] == d->d_model;
}

static quire_err describe_qwen3_vl_moe(const config *c, model_desc *d) {
    TRY(describe_qwen3_moe(c, d));
    d->moe.renormalise = true; /* whatever norm_topk_prob says */
    d->moe.transposed = are_transposed(c, d);
    return QUIRE_OK;
}

/* The last row's; a GGUF file's are the logits of "yes" and "no". */
static const score_head qwen3_scores = {
    .kind = POOLING_LAST, .gguf_kind = POOLING_LAST, .out = "score", .gguf_softmax = true};

const arch arch_qwen2 = {.gguf = {"qwen2"}, .hf = {"Qwen2ForCausalLM"}, .describe = describe_qwen2};
const arch arch_qwen2_vl = {.gguf = {"qwen2vl"},
                            .hf = {"Qwen2VLForConditionalGeneration", "Qwen2_5_VLForConditionalGeneration"},
                            .names = &qwen_vl_names,
                            .describe = describe_qwen2};
const arch arch_qwen2_moe = {.gguf = {"qwen2moe"},
                             .hf = {"Qwen2MoeForCausalLM"},
                             .names = &qwen2_moe_names,
                             .describe = describe_qwen2_moe};
const arch arch_qwen3 = {.gguf = {"qwen3"},
                         .hf = {"Qwen3ForCausalLM", "Qwen3Model", "Qwen3ForSequenceClassification"},
                         .describe = describe_qwen3,
                         .scores = &qwen3_scores};
const arch arch_qwen3_vl = {.gguf = {"qwen3vl"},
                            .hf = {"Qwen3VLForConditionalGeneration"},
                            .names = &qwen_vl_names,
                            .describe = describe_qwen3};
const arch arch_qwen3_vl_moe = {.gguf = {"qwen3vlmoe"},
                                .hf = {"Qwen3VLMoeForConditionalGeneration"},
                                .names = &qwen3_vl_moe_names,
                                .describe = describe_qwen3_vl_moe};
const arch arch_qwen3_moe = {
    .gguf = {"qwen3moe"}, .hf = {"Qwen3MoeForCausalLM"}, .describe = describe_qwen3_moe};
