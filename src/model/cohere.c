/* Command R and R+, Command R7B (Cohere 2): attention and feed-forward side by side
 * behind one layer norm without bias; Cohere 2 has windows on all but every fourth layer,
 * which has no positions. */
#include "model/architectures.h"

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
