/* Command R and R+, Command R7B (Cohere 2): attention and feed-forward side by side after
 * one layer norm without bias. Cohere 2 has windows on all layers but every fourth, which
 * has no positions. Also its mixture of experts, and the text model of North, a vision
 * model. */
#include "model/architectures.h"

static quire_err cohere_describe_common(const config *c, model_desc *d) {
    bool qk_norm = c->is_gguf && model_file_find(c->f, "blk.0.attn_q_norm.weight") != NULL;
    d->tied_embeddings = true;
    d->norm_eps = 1e-5f;
    TRY(config_llama(c, ROPE_NEIGHBOURS, ROPE_NEIGHBOURS, d));
    TRY(config_f32(c, NULL, "layer_norm_eps", &d->norm_eps));
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

/* Sets windows if config.json lists none: on all but each `period`-th layer (in the dense
 * layers before the mixtures, counted apart: each `prefix_period`-th). */
static quire_err cohere_read_windows(const config *c, int32_t n_dense, int32_t prefix_period, model_desc *d) {
    int32_t window = 4096, period = 4;
    bool is_window[DESC_MAX_LAYERS];
    bool is_listed = config_has(c, NULL, "layer_types");
    TRY(config_window(c, &window));
    TRY(config_period(c, NULL, "sliding_window_pattern", &period));
    TRY(config_window_layers(c, d, period, c->is_gguf ? 0 : period - 1, is_window));
    for (int32_t i = 0; i < d->n_layers; i++) {
        bool is_prefix = i < n_dense;
        int32_t of = is_prefix ? prefix_period : period, at = is_prefix ? i : i - n_dense;
        bool has = is_listed || c->is_gguf ? is_window[i] : (at + 1) % of != 0;
        bool rotates = has || (d->layers[i].n_experts == 0 && (c->is_gguf || prefix_period == 1));
        config_set_window(d, i, has ? window : 0);
        d->layers[i].rope = rotates ? d->layers[i].rope : NO_ROPE;
    }
    return QUIRE_OK;
}

/* Reads how routed and shared experts are combined, and how experts are chosen. */
static quire_err cohere_read_experts(const config *c, model_desc *d) {
    str join = str_of("average"), choice = str_of("softmax");
    TRY(config_str(c, NULL, "shared_expert_combination_strategy", &join));
    TRY(config_str(c, NULL, "expert_selection_fn", &choice));
    if (!str_is(join, "average") && !str_is(join, "sum")) {
        return config_bad(c, "shared_expert_combination_strategy", "must be \"average\" or \"sum\"");
    }
    if (!str_is(choice, "softmax") && !str_is(choice, "sigmoid")) {
        return config_bad(c, "expert_selection_fn", "must be \"softmax\" or \"sigmoid\"");
    }
    bool is_sigmoid = c->is_gguf || str_is(choice, "sigmoid");
    d->moe = (moe_desc){.score = is_sigmoid ? ROUTE_SIGMOID : ROUTE_SOFTMAX_CHOSEN,
                        .renormalise = is_sigmoid && !c->is_gguf,
                        .shared_mean = str_is(join, "average")};
    TRY(config_moe(c, d));
    d->moe.renormalise = d->moe.renormalise && d->moe.score != ROUTE_SOFTMAX_CHOSEN;
    return QUIRE_OK;
}

static quire_err describe_cohere2_moe(const config *c, model_desc *d) {
    int32_t n_dense = 0, prefix_period = 1;
    TRY(cohere_describe_common(c, d));
    bool is_rms = config_has(c, "attention.layer_norm_rms_epsilon", "rms_norm_eps") &&
                  !config_is_null(c, "rms_norm_eps");
    int32_t d_ff = d->layers[0].d_ff;
    TRY(config_f32(c, NULL, "rms_norm_eps", &d->norm_eps));
    d->norm.kind = is_rms ? NORM_RMS : NORM_LAYER;
    TRY(cohere_read_experts(c, d));
    TRY(config_i32(c, "leading_dense_block_count", "first_k_dense_replace", &n_dense));
    TRY(config_period(c, NULL, "prefix_dense_sliding_window_pattern", &prefix_period));
    TRY(config_i32(c, NULL, "prefix_dense_intermediate_size", &d_ff));
    TRY(config_dense_layers(c, "first_k_dense_replace", 0, d_ff, d));
    steps_set_mixed(d, steps_parallel, steps_parallel_moe);
    return cohere_read_windows(c, n_dense, prefix_period > 0 ? prefix_period : 1, d);
}

/* The text model of North. Layers with windows and the others have separate rotary
 * tables, either of which may be missing. */
static quire_err describe_cohere_compass(const config *c, model_desc *d) {
    decoder_shape s = {0};
    int32_t window = 4096;
    d->tied_embeddings = true;
    TRY(config_decoder(c, &s, d));
    TRY(config_f32(c, NULL, "layer_norm_eps", &d->norm_eps));
    steps_set(d, steps_parallel);
    d->norm.kind = NORM_LAYER;
    TRY(config_f32_or_none(c, NULL, "logit_scale", &d->head.scale));
    TRY(config_window(c, &window));
    TRY(config_windows(c, window, 0, 0, d));
    const rope_desc usual = config_plain_rope(c, d);
    return config_rotary_by_window(c, &usual, &usual, d);
}

const arch cohere_archs[] = {
    {{"command-r"}, {"CohereForCausalLM"}, .describe = cohere_describe_common},
    {{"cohere2"}, {"Cohere2ForCausalLM"}, .describe = describe_cohere2},
    {{"cohere2moe"}, {"Cohere2MoeForCausalLM"}, .describe = describe_cohere2_moe},
    {{"cohere_compass"},
     {"CohereCompassForConditionalGeneration", "CohereCompassForCausalLM"},
     .describe = describe_cohere_compass},
    {.describe = NULL},
};
