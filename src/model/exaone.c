/* EXAONE 4: arXiv:2507.11407: norms after both halves of a layer, windows on three of
 * four layers, no positions in the fourth. K-EXAONE: a sigmoid mixture with the same
 * attention, and norms before both halves. */
#include "model/architectures.h"

static const arch_names exaone4_names = {
    .hf = {[W_ATTN_POST_NORM] = "model.layers.%d.post_attention_layernorm",
           [W_FFN_POST_NORM] = "model.layers.%d.post_feedforward_layernorm"},
};
static const arch_names exaone_moe_names = {
    .hf = {[W_ROUTER_BIAS] = "model.layers.%d.mlp.e_score_correction_bias|"
                             "model.layers.%d.mlp.gate.e_score_correction_bias"},
    .left_out = {"mtp"},
};

/* Reads the period, which published files spell out: "LLLG", three layers with windows
 * and one without. */
static quire_err read_period(const config *c, int32_t *period) {
    str letters = {0};
    const char *key = c->has_text ? "text_config.sliding_window_pattern" : "sliding_window_pattern";
    if (c->is_gguf || model_file_str(c->f, key, &letters) != QUIRE_OK) {
        return config_i32(c, NULL, "sliding_window_pattern", period);
    }
    for (size_t i = 0; i < letters.n; i++) {
        if (letters.n > DESC_MAX_LAYERS || letters.p[i] != (i + 1 < letters.n ? 'L' : 'G')) {
            return config_unsupported(
                c, "a sliding_window_pattern must be a number, or a series of L followed by a G");
        }
    }
    *period = (int32_t)letters.n;
    return QUIRE_OK;
}

/* Sets windows on all layers but every fourth, which then has no positions. gguf_window:
 * default of GGUF files. */
static quire_err exaone_describe_common(const config *c, int32_t gguf_window, model_desc *d) {
    int32_t window = c->is_gguf ? gguf_window : 4096, period = 4;
    d->norm_eps = 1e-5f;
    TRY(config_llama(c, ROPE_HALVES, ROPE_HALVES, d));
    d->attend.qk_norm = QK_NORM_HEAD;
    TRY(config_window(c, &window));
    TRY(read_period(c, &period));
    if (window == 0) {
        return QUIRE_OK;
    }
    TRY(config_windows(c, window, period, period - 1, d));
    for (int32_t i = 0; i < d->n_layers; i++) {
        d->layers[i].rope = d->layers[i].window > 0 ? d->layers[i].rope : NO_ROPE;
    }
    return QUIRE_OK;
}

static quire_err describe_exaone4(const config *c, model_desc *d) {
    TRY(exaone_describe_common(c, 0, d));
    steps_set(d, steps_branch_norm);
    return QUIRE_OK;
}

static quire_err describe_exaone_moe(const config *c, model_desc *d) {
    TRY(exaone_describe_common(c, 128, d));
    const int32_t d_ff = d->layers[0].d_ff;
    d->moe = (moe_desc){.score = ROUTE_SIGMOID,
                        .correction_bias = true,
                        .group_by_best_two = true,
                        .renormalise = !c->is_gguf,
                        .scale = c->is_gguf ? 0.0f : 2.5f};
    TRY(config_moe(c, d));
    config_usual_shared(c, 1, d);
    return config_dense_layers(c, "first_k_dense_replace", 1, d_ff, d);
}

const arch exaone_archs[] = {
    {{"exaone4"}, {"Exaone4ForCausalLM"}, &exaone4_names, .describe = describe_exaone4},
    {{"exaone-moe"}, {"ExaoneMoeForCausalLM"}, &exaone_moe_names, .describe = describe_exaone_moe},
    {.describe = NULL},
};
