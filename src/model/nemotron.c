/* Nemotron-4 and Minitron: arXiv:2402.16819: layer norms with 1 + w, an ungated squared
 * ReLU, half of each head rotates. StableLM 2: arXiv:2402.17834. SmolLM 3: every fourth
 * layer has no positions. Seed-OSS. */
#include <math.h>
#include <string.h>

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
    /* files count them as if heads had the usual width, rounded down */
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

/* If windows are used, layers without positions have one, unless layer_types says
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

/* Nemotron-H: arXiv:2504.03624, and Nemotron 3: each layer is a single block: Mamba-2,
 * attention without positions, an ungated squared ReLU, or experts with it, which in
 * later models read rows narrower than the model. */

static const arch_names nemotron_h_names = {
    .gguf = {[W_FFN_NORM] = "blk.%d.attn_norm"},
    .hf = {[W_TOKENS] = "backbone.embeddings|model.embeddings|model.embed_tokens",
           [W_OUT_NORM] = "backbone.norm_f|model.norm_f",
           [W_ATTN_NORM] = "backbone.layers.%d.norm|model.layers.%d.norm",
           [W_Q] = "backbone.layers.%d.mixer.q_proj|model.layers.%d.mixer.q_proj",
           [W_K] = "backbone.layers.%d.mixer.k_proj|model.layers.%d.mixer.k_proj",
           [W_V] = "backbone.layers.%d.mixer.v_proj|model.layers.%d.mixer.v_proj",
           [W_O] = "backbone.layers.%d.mixer.o_proj|model.layers.%d.mixer.o_proj",
           [W_K_SCALE] = "backbone.layers.%d.mixer.k_proj.k_scale",
           [W_V_SCALE] = "backbone.layers.%d.mixer.v_proj.v_scale",
           [W_UP] = "backbone.layers.%d.mixer.up_proj|model.layers.%d.mixer.up_proj",
           [W_DOWN] = "backbone.layers.%d.mixer.down_proj|model.layers.%d.mixer.down_proj",
           [W_ROUTER] = "backbone.layers.%d.mixer.gate|model.layers.%d.mixer.gate",
           [W_ROUTER_BIAS] = "backbone.layers.%d.mixer.gate.e_score_correction_bias|"
                             "model.layers.%d.mixer.gate.e_score_correction_bias",
           [W_EXPERT_UP] = "backbone.layers.%d.mixer.experts.%d.up_proj",
           [W_EXPERT_DOWN] = "backbone.layers.%d.mixer.experts.%d.down_proj",
           [W_SHARED_UP] =
               "backbone.layers.%d.mixer.shared_experts.up_proj|model.layers.%d.mixer.shared_experts.up_proj",
           [W_SHARED_DOWN] = "backbone.layers.%d.mixer.shared_experts.down_proj|"
                             "model.layers.%d.mixer.shared_experts.down_proj",
           [W_EXPERTS_IN] = "backbone.layers.%d.mixer.fc1_latent_proj|model.layers.%d.mixer.fc1_latent_proj",
           [W_EXPERTS_OUT] = "backbone.layers.%d.mixer.fc2_latent_proj|model.layers.%d.mixer.fc2_latent_proj",
           [W_MAMBA_IN] = "backbone.layers.%d.mixer.in_proj|model.layers.%d.mixer.in_proj",
           [W_MAMBA_TAPS] = "backbone.layers.%d.mixer.conv1d|model.layers.%d.mixer.conv1d",
           [W_MAMBA_STEP_BIAS] = "backbone.layers.%d.mixer.dt_bias|model.layers.%d.mixer.dt_bias",
           [W_MAMBA_RATE] = "backbone.layers.%d.mixer.A_log|model.layers.%d.mixer.A_log",
           [W_MAMBA_SKIP] = "backbone.layers.%d.mixer.D|model.layers.%d.mixer.D",
           [W_MAMBA_NORM] = "backbone.layers.%d.mixer.norm|model.layers.%d.mixer.norm",
           [W_MAMBA_OUT] = "backbone.layers.%d.mixer.out_proj|model.layers.%d.mixer.out_proj"},
};

/* clang-format off */
static const layer_step attend_alone[] = {NORM(W_ATTN_NORM, X, A), ATTEND(A, A), ADD(A, X), END};
static const layer_step mlp_alone[] = {NORM(W_ATTN_NORM, X, A), MLP(A, A), ADD(A, X), END};
static const layer_step moe_alone[] = {NORM(W_ATTN_NORM, X, A), MOE(A, A), ADD(A, X), END};
/* clang-format on */

/* The kind of a layer by its name, as a letter of "hybrid_override_pattern". 0:
 * unknown. */
static char kind_of_name(str name) {
    static const struct {
        const char *name;
        char kind;
    } kinds[] = {{"linear_attention", 'M'}, {"mamba", 'M'}, {"full_attention", '*'},
                 {"attention", '*'},        {"mlp", '-'},   {"moe", 'E'}};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        if (str_is(name, kinds[i].name)) {
            return kinds[i].kind;
        }
    }
    return 0;
}

/* The kinds of config.json's layers as letters, from a text of letters or a list of
 * names; *n 0: neither is present. */
static quire_err read_kinds(const config *c, char kinds[DESC_MAX_LAYERS], int32_t *n) {
    str pattern = {0}, name;
    *n = 0;
    TRY(config_str(c, NULL, "hybrid_override_pattern", &pattern));
    for (size_t i = 0; i <= DESC_MAX_LAYERS; i++, (*n)++) {
        TRY(config_str_at(c, "layers_block_type", i, &name));
        const bool is_letter = i < pattern.n, is_name = pattern.n == 0 && name.n > 0;
        if (!is_letter && !is_name) {
            return QUIRE_OK;
        }
        const char kind = is_letter ? pattern.p[i] : kind_of_name(name);
        if (i == DESC_MAX_LAYERS || kind == 0 || memchr("M*-E", kind, 4) == NULL) {
            return config_bad(c, is_letter ? "hybrid_override_pattern" : "layers_block_type",
                              "must have one of M, *, -, E (mamba, attention, mlp, moe) for each layer");
        }
        kinds[i] = kind;
    }
    return QUIRE_OK;
}

/* The kind of a layer by its tensors, for GGUF files. */
static char kind_of_tensors(const config *c, const model_desc *d, int32_t layer) {
    if (config_has_mamba(c, layer)) {
        return 'M';
    }
    return d->caches[layer].n_kv_heads > 0 ? '*' : config_has_experts(c, layer) ? 'E' : '-';
}

static quire_err nemotron_h_read_experts(const config *c, model_desc *d) {
    d->moe = (moe_desc){.score = ROUTE_SIGMOID,
                        .correction_bias = true,
                        .group_by_best_two = true,
                        .n_groups_used = 1,
                        .renormalise = true,
                        .d_shared = c->is_gguf ? 0 : 7688};
    TRY(config_moe(c, d));
    TRY(config_i32(c, NULL, "moe_shared_expert_intermediate_size", &d->moe.d_shared));
    return config_i32_or_none(c, "moe_latent_size", "moe_latent_size", &d->moe.d_latent);
}

static void nemotron_h_set_layers(const char *kinds, int32_t d_ff, state_layers *s, model_desc *d) {
    const int32_t n_experts = d->layers[0].n_experts;
    for (int32_t i = 0; i < d->n_layers; i++) {
        const char kind = kinds[i];
        s->attends[i] = kind == '*';
        s->recurs[i] = kind == 'M';
        d->layers[i].steps = kind == '*'   ? attend_alone
                             : kind == 'M' ? steps_mamba
                             : kind == '-' ? mlp_alone
                                           : moe_alone;
        d->layers[i].d_ff = kind == '-' ? d_ff : 0;
        d->layers[i].n_experts = kind == 'E' ? n_experts : 0;
    }
}

/* Reads the lower limit that transformers applies to time steps, whatever time_step_limit
 * says. */
static quire_err nemotron_h_read_least_step(const config *c, model_desc *d) {
    float least = 0.001f;
    TRY(config_f32(c, NULL, "time_step_min|mamba_dt_min", &least));
    if (!(least >= 0.0f)) {
        return config_bad_at(c, NULL, "time_step_min|mamba_dt_min", "must be 0 or more");
    }
    d->mamba.step_least = c->is_gguf ? d->mamba.step_least : least;
    d->mamba.step_most = c->is_gguf ? d->mamba.step_most : INFINITY;
    return QUIRE_OK;
}

static quire_err describe_nemotron_h(const config *c, model_desc *d) {
    char kinds[DESC_MAX_LAYERS];
    state_layers s = {0};
    decoder_shape shape = {.lacks_ff = c->is_gguf};
    int32_t n_kinds;
    TRY(read_kinds(c, kinds, &n_kinds));
    shape.n_layers = n_kinds;
    d->activation = ACT_RELU2;
    TRY(config_decoder(c, &shape, d));
    TRY(config_activation(c, "mlp_hidden_act", d));
    d->ungated = true;
    for (int32_t i = 0; i < d->n_layers && c->is_gguf; i++) {
        kinds[i] = kind_of_tensors(c, d, i);
    }
    if (!c->is_gguf && n_kinds != d->n_layers) {
        return config_bad(c, "hybrid_override_pattern",
                          "(or layers_block_type) must have one kind for each layer");
    }
    const int32_t rows = config_tensor_rows(c, d, "ffn_up"), d_ff = rows > 0 ? rows : d->layers[0].d_ff;
    TRY(nemotron_h_read_experts(c, d));
    d->mamba = (mamba_desc){.n_heads = 128, .n_groups = 8, .n_states = 128};
    TRY(config_mamba2(c, 0.0f, 64, d, &s));
    d->mamba.n_norm_groups = d->mamba.n_groups;
    d->mamba.inner_eps = d->norm_eps;
    TRY(nemotron_h_read_least_step(c, d));
    nemotron_h_set_layers(kinds, d_ff, &s, d);
    return config_set_states(c, &s, d);
}

const arch nemotron_archs[] = {
    {{"nemotron"}, {"NemotronForCausalLM"}, .describe = describe_nemotron},
    {{"stablelm"},
     {"StableLmForCausalLM", "StableLMEpochForCausalLM"},
     &stablelm_names,
     .describe = describe_stablelm},
    {{"smollm3"}, {"SmolLM3ForCausalLM"}, .describe = describe_smollm3},
    {{"seed_oss"}, {"SeedOssForCausalLM"}, &seed_names, .describe = describe_seed},
    {{"nemotron_h", "nemotron_h_moe"},
     {"NemotronHForCausalLM"},
     &nemotron_h_names,
     .describe = describe_nemotron_h},
    {.describe = NULL},
};
