/* Qwen2 and 2.5: arXiv:2407.10671, 2412.15115: Llama with biases on q, k and v. Qwen3:
 * arXiv:2505.09388: with norms over the heads of q and k instead. Their mixtures of
 * experts. The text of Qwen2-VL, 2.5-VL and 3-VL (arXiv:2409.12191), whose positions have
 * three axes: without an image one number. */
#include <assert.h>
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
    assert(d != NULL);
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
    const tensor_view *t = NULL;
    for (int32_t i = 0; i < model_file_n_tensors(c->f) && t == NULL; i++) {
        const tensor_view *one = model_file_tensor(c->f, i);
        t = str_ends(str_of(one->name), ".mlp.experts.gate_up_proj") ? one : NULL;
    }
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

/* ---- Qwen3-Next and 3.5 ---- */

/* Qwen3-Next, Qwen3.5 and 3.6, and their mixtures of experts: three of four layers have
 * the gated delta rule in place of attention (Yang et al. 2024, arXiv:2412.06464), and
 * attention has a gate on its result. Norms are 1 + w, except for the one of the delta
 * rule's result. */

static const arch_names qwen_next_names = {
    .gguf = {[W_FFN_NORM] = "blk.%d.post_attention_norm"},
    .hf = {[W_SHARED_GATE] = "model.layers.%d.mlp.shared_expert.gate_proj",
           [W_SHARED_UP] = "model.layers.%d.mlp.shared_expert.up_proj",
           [W_SHARED_DOWN] = "model.layers.%d.mlp.shared_expert.down_proj",
           [W_SHARED_ROUTER] = "model.layers.%d.mlp.shared_expert_gate",
           [W_EXPERT_GATE_UP] = "model.layers.%d.mlp.experts.gate_up_proj",
           [W_EXPERTS_DOWN] = "model.layers.%d.mlp.experts.down_proj",
           [W_DELTA_QKVZ] = "model.layers.%d.linear_attn.in_proj_qkvz",
           [W_DELTA_BA] = "model.layers.%d.linear_attn.in_proj_ba",
           [W_DELTA_QKV] = "model.layers.%d.linear_attn.in_proj_qkv",
           [W_DELTA_GATE] = "model.layers.%d.linear_attn.in_proj_z",
           [W_DELTA_BETA] = "model.layers.%d.linear_attn.in_proj_b",
           [W_DELTA_DECAY] = "model.layers.%d.linear_attn.in_proj_a",
           [W_DELTA_CONV] = "model.layers.%d.linear_attn.conv1d",
           [W_DELTA_RATE] = "model.layers.%d.linear_attn.A_log",
           [W_DELTA_BIAS] = "model.layers.%d.linear_attn.dt_bias",
           [W_DELTA_NORM] = "model.layers.%d.linear_attn.norm",
           [W_DELTA_OUT] = "model.layers.%d.linear_attn.out_proj"},
    .left_out = {"visual"},
};

/* Which layers attend: as the file lists them, else one of each full_attention_interval,
 * the last. */
static quire_err qwen_next_layers(const config *c, const model_desc *d, state_layers *s) {
    int32_t period = 4, recurs[DESC_MAX_LAYERS];
    size_t n;
    bool are_typed;
    TRY(config_state_types(c, d, "linear_attention", s, &are_typed));
    TRY(config_period(c, "full_attention_interval", "full_attention_interval", &period));
    TRY(config_i32s(c, "attention.recurrent_layers", NULL, recurs, DESC_MAX_LAYERS, &n));
    if (n > 0 && n < (size_t)d->n_layers) {
        return config_bad(c, "attention.recurrent_layers", "must have one value for each layer");
    }
    for (int32_t i = 0; i < d->n_layers && !are_typed; i++) {
        s->recurs[i] = n > 0 ? recurs[i] != 0 : period > 0 && (i + 1) % period != 0;
        s->attends[i] = !s->recurs[i];
    }
    return QUIRE_OK;
}

quire_err qwen_next_common(const config *c, state_layers *s, model_desc *d) {
    assert(d != NULL);
    d->delta = (delta_desc){.kind = DELTA_GATED,
                            .n_heads = 32,
                            .n_key_heads = 16,
                            .d_key = 128,
                            .d_value = 128,
                            .n_taps = 4,
                            .gate = ACT_SILU};
    d->norm.add_one = true;
    d->attend.qk_norm = QK_NORM_HEAD;
    d->attend.gate = ATTEND_GATE_QUERIES;
    d->attend.gate_f = ACT_SIGMOID;
    TRY(config_decoder(c, &(decoder_shape){0}, d));
    TRY(config_i32(c, NULL, "mtp_num_hidden_layers", &d->n_next_token_layers));
    TRY(config_rotary(c, d, ROPE_HALVES, ROPE_HALVES, 0.25f));
    TRY(config_delta(c, d));
    TRY(qwen_next_layers(c, d, s));
    config_delta_caches(d, s);
    return QUIRE_OK;
}

/* Gives the layers that do not attend their steps, and all of them their caches. */
static quire_err qwen_next_end(const config *c, const state_layers *s, model_desc *d) {
    for (int32_t i = 0; i < d->n_layers; i++) {
        if (s->recurs[i]) {
            d->layers[i].steps = d->layers[i].n_experts > 0 ? steps_delta_moe : steps_delta;
        }
    }
    return config_set_states(c, s, d);
}

static quire_err describe_qwen3_next(const config *c, model_desc *d) {
    state_layers s = {0};
    TRY(qwen_next_common(c, &s, d));
    d->moe = (moe_desc){.score = ROUTE_SOFTMAX, .shared_gate = true, .d_shared = 512, .renormalise = true};
    TRY(qwen_experts(c, d));
    return qwen_next_end(c, &s, d);
}

static quire_err describe_qwen3_5(const config *c, model_desc *d) {
    state_layers s = {0};
    TRY(qwen_next_common(c, &s, d));
    d->delta.cyclic = c->is_gguf; /* whose value heads are in another order */
    return qwen_next_end(c, &s, d);
}

static quire_err describe_qwen3_5_moe(const config *c, model_desc *d) {
    state_layers s = {0};
    TRY(qwen_next_common(c, &s, d));
    d->delta.cyclic = c->is_gguf;
    d->moe = (moe_desc){.score = ROUTE_SOFTMAX, .shared_gate = true, .d_shared = 512, .renormalise = true};
    TRY(config_moe(c, d));
    d->moe.renormalise = true; /* whatever norm_topk_prob says */
    return qwen_next_end(c, &s, d);
}

const arch arch_qwen3_next = {.gguf = {"qwen3next"},
                              .hf = {"Qwen3NextForCausalLM"},
                              .names = &qwen_next_names,
                              .describe = describe_qwen3_next};
const arch arch_qwen3_5 = {.gguf = {"qwen35"},
                           .hf = {"Qwen3_5ForCausalLM", "Qwen3_5ForConditionalGeneration"},
                           .names = &qwen_next_names,
                           .describe = describe_qwen3_5};
const arch arch_qwen3_5_moe = {.gguf = {"qwen35moe"},
                               .hf = {"Qwen3_5MoeForCausalLM", "Qwen3_5MoeForConditionalGeneration"},
                               .names = &qwen_next_names,
                               .describe = describe_qwen3_5_moe};
