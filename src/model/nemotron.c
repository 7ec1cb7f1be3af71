/* Nemotron-4 and Minitron: arXiv:2402.16819: layer norms by 1 + w, a squared ReLU without
 * gate, half of each head rotates. StableLM 2: 2402.17834. SmolLM 3: every fourth layer
 * has no positions. Seed-OSS. */
#include "model/architectures.h"

static const arch_names stablelm_names = {
    .hf = {[W_Q_NORM] = "model.layers.%d.self_attn.q_layernorm.norms.%d",
           [W_K_NORM] = "model.layers.%d.self_attn.k_layernorm.norms.%d"},
};

static quire_err describe_nemotron(const config *c, model_desc *d) {
    decoder_shape s = {0};
    d->activation = ACT_RELU2;
    d->norm_eps = 1e-5f;
    TRY(config_decoder(c, &s, d));
    d->norm = (norm_desc){.kind = NORM_LAYER, .add_one = true};
    d->ungated = true;
    TRY(config_rotary(c, d, ROPE_HALVES, ROPE_HALVES, 0.5f));
    bool is_of_file = c->is_gguf && config_has(c, "rope.dimension_count", NULL);
    is_of_file = is_of_file && model_file_set_by(c->f, "nemotron.rope.dimension_count") == NULL;
    int64_t n = d->ropes[0].n_dims, width = d->d_model;
    /* files count them as if heads were as wide as usual, and round down */
    if (is_of_file && n <= width / s.n_heads) {
        n = (n * s.n_heads * s.d_head + width - 1) / width;
        n += n % 2;
        d->ropes[0].n_dims = n < s.d_head ? (int32_t)n : s.d_head;
    }
    return QUIRE_OK;
}

static quire_err describe_stablelm(const config *c, model_desc *d) {
    decoder_shape s = {0};
    bool parallel = false, qk_norm = false;
    d->norm_eps = 1e-5f;
    TRY(config_decoder(c, &s, d));
    TRY(config_bool(c, "use_parallel_residual", "use_parallel_residual", &parallel));
    TRY(config_bool(c, NULL, "qk_layernorm", &qk_norm));
    if (c->is_gguf) { /* whether a layer has a second norm tells */
        parallel = model_file_find(c->f, "blk.0.ffn_norm.weight") == NULL;
        qk_norm = model_file_find(c->f, "blk.0.attn_q_norm.weight") != NULL;
    }
    steps_set(d, parallel ? steps_parallel : steps_pre_norm);
    d->norm.kind = d->attend.qk_norm_type = NORM_LAYER;
    d->attend.qk_norm = qk_norm ? QK_NORM_HEADS : QK_NORM_NONE;
    return config_rotary(c, d, ROPE_HALVES, ROPE_HALVES, 0.25f);
}

/* Where windows are used, the layers without positions have one, unless layer_types says
 * otherwise. */
static quire_err nemotron_read_windows(const config *c, model_desc *d) {
    bool use = false, is_window[DESC_MAX_LAYERS];
    int32_t window = 0;
    TRY(config_bool(c, NULL, "use_sliding_window", &use));
    if (!use) {
        return QUIRE_OK;
    }
    TRY(config_window(c, &window));
    TRY(config_window_layers(c, d, 0, 0, is_window));
    bool are_listed = config_has(c, NULL, "layer_types");
    for (int32_t i = 0; i < d->n_layers; i++) {
        config_set_window(d, i, (are_listed ? is_window[i] : d->layers[i].rope == NO_ROPE) ? window : 0);
    }
    return QUIRE_OK;
}

static quire_err describe_smollm3(const config *c, model_desc *d) {
    int32_t period = 4, has[DESC_MAX_LAYERS];
    size_t n;
    d->tied_embeddings = true;
    TRY(config_llama(c, ROPE_HALVES, ROPE_NEIGHBOURS, d));
    TRY(config_i32(c, NULL, "no_rope_layer_interval", &period));
    TRY(config_i32s(c, NULL, "no_rope_layers", has, DESC_MAX_LAYERS, &n));
    if (n != 0 && n < (size_t)d->n_layers) {
        return config_bad(c, "no_rope_layers", "must have a number for each layer");
    }
    for (int32_t i = 0; i < d->n_layers; i++) {
        bool rotates = (size_t)i < n ? has[i] != 0 : period < 1 || (i + 1) % period != 0;
        d->layers[i].rope = rotates ? d->layers[i].rope : NO_ROPE;
    }
    return nemotron_read_windows(c, d);
}

static quire_err describe_seed(const config *c, model_desc *d) {
    return config_llama(c, ROPE_HALVES, ROPE_HALVES, d);
}

static const arch_names seed_names = {.gguf = {[W_FFN_NORM] = "blk.%d.post_attention_norm|blk.%d.ffn_norm"}};

const arch arch_nemotron = {
    .gguf = {"nemotron"}, .hf = {"NemotronForCausalLM"}, .describe = describe_nemotron};
const arch arch_stablelm = {.gguf = {"stablelm"},
                            .hf = {"StableLmForCausalLM", "StableLMEpochForCausalLM"},
                            .names = &stablelm_names,
                            .describe = describe_stablelm};
const arch arch_smollm3 = {.gguf = {"smollm3"}, .hf = {"SmolLM3ForCausalLM"}, .describe = describe_smollm3};
const arch arch_seed_oss = {
    .gguf = {"seed_oss"}, .hf = {"SeedOssForCausalLM"}, .names = &seed_names, .describe = describe_seed};
