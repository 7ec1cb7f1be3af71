/* Gemma: arXiv:2403.08295. Gemma 2: arXiv:2408.00118: windows on every other layer, soft
 * caps, norms after both halves of a layer; VaultGemma lacks these norms. Gemma 3:
 * arXiv:2503.19786: five layers with windows and a separate rotary base for each one
 * without, norms of queries and keys. */
#include <math.h>
#include <stdio.h>

#include "model/architectures.h"

static const arch_names gemma2_names = {
    .gguf = {[W_ATTN_POST_NORM] = "blk.%d.post_attention_norm", [W_FFN_POST_NORM] = "blk.%d.post_ffw_norm"},
    .hf = {SANDWICH_NAMES("model.layers.%d")},
};
static const arch_names vaultgemma_names = {
    .hf = {[W_FFN_NORM] = "model.layers.%d.pre_feedforward_layernorm"}};

/* Reads a cap of attention scores or logits. */
static quire_err read_cap(const config *c, const char *name, float *cap) {
    return config_f32_or_none(c, name, name, cap);
}

/* What all have: norms with 1 + w, embeddings scaled by the root of their width (rounded
 * to BF16 as in training), a tied head. */
static quire_err gemma_describe_common(const config *c, model_desc *d) {
    decoder_shape s = {0};
    d->tied_embeddings = true;
    d->activation = ACT_GELU_TANH;
    TRY(config_decoder(c, &s, d));
    d->norm.add_one = true;
    d->embed.scale = sqrtf((float)d->d_model);
    return QUIRE_OK;
}

/* Reads the scale of scores of Gemma 2 and 3, and the cap of logits. */
static quire_err gemma_read_scales(const config *c, model_desc *d) {
    int32_t n = d->n_layers;
    /* the 27B models scale by another width, which GGUF files do not state */
    bool is_27b = c->is_gguf && (n == 46 || n == 62);
    float scalar = !c->is_gguf ? 256.0f : is_27b ? (float)d->d_model / (float)d->layers[0].n_heads : 0.0f;
    TRY(config_f32(c, NULL, "query_pre_attn_scalar", &scalar));
    if (scalar <= 0.0f && (!c->is_gguf || config_has(c, NULL, "query_pre_attn_scalar"))) {
        return config_bad(c, "query_pre_attn_scalar", "must be over 0");
    }
    d->attention_scale = scalar > 0.0f ? 1.0f / sqrtf(scalar) : d->attention_scale;
    return read_cap(c, "final_logit_softcapping", &d->head.cap);
}

/* Refuses a decoder with two-sided attention. */
static quire_err check_one_sided(const config *c) {
    bool two_sided = false;
    TRY(config_bool(c, NULL, "use_bidirectional_attention", &two_sided));
    return two_sided
               ? config_unsupported(c, "a decoder with use_bidirectional_attention true is not supported")
               : QUIRE_OK;
}

static quire_err describe_gemma(const config *c, model_desc *d) {
    TRY(check_one_sided(c));
    TRY(gemma_describe_common(c, d));
    /* files say gelu but mean its approximation */
    d->activation = d->activation == ACT_GELU ? ACT_GELU_TANH : d->activation;
    return config_rotary(c, d, ROPE_HALVES, ROPE_HALVES, 1.0f);
}

enum { GEMMA2_PERIOD = 2, GEMMA3_PERIOD = 6 };

/* Sets windows on all layers but the last of each `period`. */
static quire_err gemma_read_windows(const config *c, model_desc *d, int32_t period) {
    /* Gemma 3's GGUF files without windows have no key */
    int32_t window = c->is_gguf && period == GEMMA3_PERIOD ? 0 : 4096;
    TRY(config_window(c, &window));
    TRY(config_period(c, NULL, "sliding_window_pattern", &period));
    return config_windows(c, window, period, period - 1, d);
}

static quire_err describe_vaultgemma(const config *c, model_desc *d) {
    d->attend.cap = 50.0f;
    d->head.cap = 30.0f;
    TRY(check_one_sided(c));
    TRY(gemma_describe_common(c, d));
    TRY(gemma_read_scales(c, d));
    TRY(read_cap(c, "attn_logit_softcapping", &d->attend.cap));
    TRY(config_rotary(c, d, ROPE_HALVES, ROPE_HALVES, 1.0f));
    return gemma_read_windows(c, d, GEMMA2_PERIOD);
}

static quire_err describe_gemma2(const config *c, model_desc *d) {
    TRY(describe_vaultgemma(c, d));
    steps_set(d, steps_sandwich);
    return QUIRE_OK;
}

/* Reads the table of layers with windows: its own base, no scaling. */
static quire_err read_local_rope(const config *c, model_desc *d) {
    rope_desc local = config_plain_rope(c, d);
    local.pairs = ROPE_HALVES;
    local.theta = 1e4f;
    const char *own =
        "rope_parameters.sliding_attention.rope_type|rope_parameters.sliding_attention.rope_theta";
    TRY(config_f32(c, "rope.freq_base_swa", "rope_local_base_freq", &local.theta));
    if (!c->is_gguf && config_has(c, NULL, own)) {
        TRY(config_rope(c, "rope_parameters.sliding_attention", d, &local));
    }
    d->ropes[d->n_ropes] = local;
    for (int32_t i = 0; i < d->n_layers; i++) {
        d->layers[i].rope = (int16_t)(d->layers[i].window > 0 ? d->n_ropes : 0);
    }
    d->n_ropes++;
    return QUIRE_OK;
}

static quire_err describe_gemma3_text(const config *c, model_desc *d) {
    TRY(gemma_describe_common(c, d));
    TRY(gemma_read_scales(c, d));
    rope_desc global = config_plain_rope(c, d);
    const char *own = "rope_parameters.full_attention.rope_type|rope_parameters.full_attention.rope_theta";
    bool by_type = !c->is_gguf && config_has(c, NULL, own);
    global.pairs = ROPE_HALVES;
    global.theta = 1e6f;
    TRY(config_rope(c, by_type ? "rope_parameters.full_attention" : NULL, d, &global));
    TRY(config_add_rope(c, d, &global));
    TRY(gemma_read_windows(c, d, GEMMA3_PERIOD));
    steps_set(d, steps_sandwich);
    d->attend.qk_norm = QK_NORM_HEAD;
    return read_local_rope(c, d);
}

static quire_err describe_gemma3(const config *c, model_desc *d) {
    TRY(check_one_sided(c));
    return describe_gemma3_text(c, d);
}

/* EmbeddingGemma: Gemma 3 without a head and with two-sided attention. A window of n
 * tokens reaches n / 2 to either side. */
static quire_err describe_embedding(const config *c, model_desc *d) {
    bool two_sided = c->is_gguf;
    TRY(describe_gemma3_text(c, d));
    TRY(config_bool(c, NULL, "use_bidirectional_attention", &two_sided));
    if (c->is_gguf && d->n_layers < 6 && !config_has(c, "attention.sliding_window_pattern", NULL)) {
        return config_unsupported(c, "attention.sliding_window_pattern is missing: with fewer than six "
                                     "layers, the usual pattern gives no layer full attention");
    }
    d->no_head = true;
    d->two_sided = two_sided;
    for (int32_t i = 0; i < d->n_layers && two_sided; i++) {
        int32_t window = d->layers[i].window;
        config_set_window(d, i, window > 0 ? window / 2 + 1 : 0);
    }
    return QUIRE_OK;
}

/* Gemma 3n: several residual streams, of which layers compute with one; a low-rank
 * product beside attention; own inputs of layers; first layers that keep only the largest
 * gates of their feed-forward part; last layers that read the cache of an earlier one. */

static const arch_names gemma3n_names = {
    .hf = {[W_INPUT_TABLE] = "model.embed_tokens_per_layer",
           SANDWICH_NAMES("model.layers.%d"),
           [W_INPUT_PROJECTION] = "model.per_layer_model_projection",
           [W_INPUT_PROJECTION_NORM] = "model.per_layer_projection_norm",
           [W_INPUT_GATE] = "model.layers.%d.per_layer_input_gate",
           [W_INPUT_OUT] = "model.layers.%d.per_layer_projection",
           [W_INPUT_POST_NORM] = "model.layers.%d.post_per_layer_input_norm",
           [W_STREAM_IN] = "model.altup_projections.%d",
           [W_STREAM_OUT] = "model.altup_unembed_projections.%d",
           [W_STREAM_NORM] = "model.layers.%d.altup.router_norm.weight",
           [W_STREAM_ROUTER] = "model.layers.%d.altup.modality_router",
           [W_STREAM_PREDICT] = "model.layers.%d.altup.prediction_coefs",
           [W_STREAM_CORRECT] = "model.layers.%d.altup.correction_coefs",
           [W_STREAM_SCALE] = "model.layers.%d.altup.correct_output_scale",
           [W_LAUREL_LEFT] = "model.layers.%d.laurel.linear_left",
           [W_LAUREL_RIGHT] = "model.layers.%d.laurel.linear_right",
           [W_LAUREL_NORM] = "model.layers.%d.laurel.post_laurel_norm"},
};

/* clang-format off */
static const layer_step steps_streams[] = {
    PREDICT(X),
    NORM(W_ATTN_NORM, X, A), LAUREL(A, B), ATTEND(A, A), NORM(W_ATTN_POST_NORM, A, A), ADD(A, X), JOIN(B, X),
    NORM(W_FFN_NORM, X, A), MLP(A, A), NORM(W_FFN_POST_NORM, A, A), ADD(A, X),
    CORRECT(X),
    INPUT(X, A), NORM(W_INPUT_POST_NORM, A, A), SPREAD(A), END};
/* clang-format on */

enum { GEMMA3N_PERIOD = 5, MOST_STREAM_INPUTS = 1 << 20 };

/* How many standard deviations above the mean a normal distribution reaches this part. By
 * bisection, since C has no inverse of erf. */
static float normal_quantile(double part) {
    double low = -40.0, high = 40.0;
    for (int i = 0; i < 200; i++) {
        double at = (low + high) / 2.0;
        if (0.5 * erfc(-at / sqrt(2.0)) < part) {
            low = at;
        } else {
            high = at;
        }
    }
    return (float)((low + high) / 2.0);
}

/* Reads which part of the gates each layer drops; default 0.95 in the first ten
 * layers. */
static quire_err gemma3n_read_sparsity(const config *c, model_desc *d) {
    const char *key = "activation_sparsity_pattern";
    float all = -1.0f;
    if (config_has(c, NULL, key) && !config_is_list(c, key)) {
        TRY(config_f32(c, NULL, key, &all));
    }
    for (int32_t i = 0; i < d->n_layers; i++) {
        float part = config_is_list(c, key)       ? 0.0f
                     : all >= 0.0f                ? all
                     : d->n_layers > 10 && i < 10 ? 0.95f
                                                  : 0.0f;
        TRY(config_f32_at(c, NULL, key, (size_t)i, &part));
        if (!(part >= 0.0f && part < 1.0f)) {
            return config_bad(c, key, "must hold numbers of at least 0 and below 1");
        }
        float cutoff = part > 0.0f ? normal_quantile((double)part) : 0.0f;
        if (part > 0.0f && cutoff <= 0.0f) {
            return config_unsupported(c, "an activation_sparsity_pattern of 0.5 or less is not supported");
        }
        d->layers[i].cutoff = cutoff;
    }
    return QUIRE_OK;
}

static quire_err gemma3n_read_streams(const config *c, model_desc *d) {
    streams_desc *s = &d->streams;
    *s = (streams_desc){.n = 4, .d_laurel = 64, .scales_output = true};
    TRY(config_i32(c, NULL, "altup_num_inputs", &s->n));
    TRY(config_i32(c, NULL, "altup_active_idx", &s->active));
    TRY(config_i32(c, NULL, "laurel_rank", &s->d_laurel));
    TRY(config_bool(c, NULL, "altup_correct_scale", &s->scales_output));
    if (s->n < 2 || s->n > DESC_MAX_STREAMS || s->active >= s->n) {
        return config_bad(c, "altup_num_inputs", "must be from 2 to 8, and greater than altup_active_idx");
    }
    return s->d_laurel >= 1 && s->d_laurel <= d->d_model
               ? QUIRE_OK
               : config_bad(c, "laurel_rank", "must be from 1 to the hidden size");
}

static quire_err gemma3n_read_inputs(const config *c, model_desc *d) {
    embed_desc *e = &d->embed;
    int32_t n_rows = 262144;
    e->d_layer_input = 256;
    TRY(config_i32(c, NULL, "hidden_size_per_layer_input", &e->d_layer_input));
    TRY(config_i32(c, NULL, "vocab_size_per_layer_input", &n_rows));
    if (e->d_layer_input < 1 || e->d_layer_input > MOST_STREAM_INPUTS / d->n_layers) {
        return config_bad(c, "hidden_size_per_layer_input", "is below 1 or too large");
    }
    e->n_input_rows = n_rows < d->n_vocab ? n_rows : 0;
    return n_rows >= 1 ? QUIRE_OK : config_bad(c, "vocab_size_per_layer_input", "must be at least 1");
}

/* Adds a table for layers with windows and one for the others. */
static quire_err gemma3n_add_ropes(const config *c, model_desc *d) {
    static const char *const objects[] = {"rope_parameters.full_attention",
                                          "rope_parameters.sliding_attention"};
    for (int k = 0; k < 2; k++) {
        rope_desc r = config_plain_rope(c, d);
        char keys[160];
        (void)snprintf(keys, sizeof keys, "%s.rope_theta|%s.rope_type", objects[k], objects[k]);
        r.pairs = ROPE_HALVES;
        r.theta = k == 0 ? 1e6f : 1e4f;
        if (config_has(c, NULL, keys)) {
            TRY(config_rope(c, objects[k], d, &r));
        } else if (k == 0) {
            TRY(config_rope(c, NULL, d, &r));
        } else {
            TRY(config_f32(c, NULL, "rope_local_base_freq", &r.theta));
        }
        d->ropes[d->n_ropes++] = r;
    }
    for (int32_t i = 0; i < d->n_layers; i++) {
        d->layers[i].rope = d->layers[i].window > 0 ? 1 : 0;
    }
    return QUIRE_OK;
}

static quire_err describe_gemma3n(const config *c, model_desc *d) {
    decoder_shape s = {0};
    int32_t window = 512, n_shared = 15;
    if (c->is_gguf) {
        return config_unsupported(c, "Gemma 3n is not supported as GGUF; use its safetensors checkpoint");
    }
    d->tied_embeddings = true;
    d->activation = ACT_GELU_TANH;
    d->head.cap = 30.0f;
    TRY(config_decoder(c, &s, d));
    d->attention_scale = 1.0f;
    d->attend.qk_norm = QK_NORM_HEAD;
    d->attend.v_norm = true;
    d->embed.scale = sqrtf((float)d->d_model);
    TRY(config_f32_or_none(c, "final_logit_softcapping", "final_logit_softcapping", &d->head.cap));
    TRY(config_window(c, &window));
    TRY(config_windows(c, window, GEMMA3N_PERIOD, GEMMA3N_PERIOD - 1, d));
    TRY(config_i32(c, NULL, "num_kv_shared_layers", &n_shared));
    TRY(config_share_caches(c, n_shared, d));
    TRY(gemma3n_add_ropes(c, d));
    TRY(gemma3n_read_sparsity(c, d));
    TRY(gemma3n_read_streams(c, d));
    TRY(gemma3n_read_inputs(c, d));
    steps_set(d, steps_streams);
    return QUIRE_OK;
}

/* Gemma 4: layers with windows and narrow heads, and every few layers one without a
 * window and with wide heads, whose values may be its keys. The last layers read the
 * cache of an earlier one. In the small models each layer also has an own input computed
 * from the token; in the model with experts these are beside the MLP. */

static const arch_names gemma4_names = {
    .hf = {[W_ROUTER] = "model.layers.%d.router.proj",
           SANDWICH_NAMES("model.layers.%d"),
           [W_EXPERT_GATE_UP] = "model.layers.%d.experts.gate_up_proj",
           [W_EXPERT_DOWN] = "model.layers.%d.experts.down_proj",
           /* if experts are modules, as in files quantised by llm-compressor */
           [W_EXPERT_GATE] = "model.layers.%d.experts.%d.gate_proj",
           [W_EXPERT_UP] = "model.layers.%d.experts.%d.up_proj",
           [W_EXPERTS_DOWN] = "model.layers.%d.experts.%d.down_proj",
           [W_ROUTER_NORM] = "model.layers.%d.router.scale",
           [W_EXPERT_SCALES] = "model.layers.%d.router.per_expert_scale",
           [W_LAYER_SCALE] = "model.layers.%d.layer_scalar",
           [W_MLP_POST_NORM] = "model.layers.%d.post_feedforward_layernorm_1",
           [W_EXPERTS_NORM] = "model.layers.%d.pre_feedforward_layernorm_2",
           [W_EXPERTS_POST_NORM] = "model.layers.%d.post_feedforward_layernorm_2",
           [W_INPUT_TABLE] = "model.embed_tokens_per_layer",
           [W_INPUT_PROJECTION] = "model.per_layer_model_projection",
           [W_INPUT_PROJECTION_NORM] = "model.per_layer_projection_norm",
           [W_INPUT_GATE] = "model.layers.%d.per_layer_input_gate",
           [W_INPUT_OUT] = "model.layers.%d.per_layer_projection",
           [W_INPUT_POST_NORM] = "model.layers.%d.post_per_layer_input_norm"},
};

/* Reads an override of one layer in config.json's "per_layer_config", whose layer numbers
 * are zero-padded ("05"). */
static quire_err read_override(const config *c, int32_t layer, const char *name, int32_t *out) {
    char key[240];
    (void)snprintf(key, sizeof key,
                   "per_layer_config.%d.%s|per_layer_config.%02d.%s|per_layer_config.%03d.%s", (int)layer,
                   name, (int)layer, name, (int)layer, name);
    return config_i32(c, NULL, key, out);
}

/* Checks the width of heads given under a key. */
static quire_err check_width(const config *c, const char *key, int32_t width) {
    bool fits = width >= 1 && width <= DESC_MAX_HEAD;
    return fits ? QUIRE_OK : config_bad(c, key, "must be from 1 to 512, the widest head");
}

/* Reads which layers have windows, and the width and number of the others' heads. */
static quire_err gemma4_read_heads(const config *c, model_desc *d) {
    int32_t window = 512, narrow = d->caches[0].d_key, wide = c->is_gguf ? narrow : 512, n_wide = 0;
    bool is_window[DESC_MAX_LAYERS];
    TRY(config_window(c, &window));
    TRY(config_i32(c, "attention.key_length_swa", NULL, &narrow));
    TRY(check_width(c, "attention.key_length_swa", narrow));
    int32_t narrow_value = narrow;
    TRY(config_i32(c, "attention.value_length_swa", NULL, &narrow_value));
    if (narrow_value != narrow) {
        return config_unsupported(c, "keys and values of different widths are not supported");
    }
    wide = config_has(c, NULL, "per_layer_config") ? narrow : wide; /* it lists layers that differ */
    TRY(config_i32(c, NULL, "global_head_dim", &wide));
    TRY(check_width(c, "global_head_dim", wide));
    if (d->attend.values_are_keys) {
        TRY(config_i32(c, NULL, "num_global_key_value_heads", &n_wide));
    }
    TRY(config_window_layers(c, d, 6, 5, is_window));
    /* a checkpoint's last layer has no window, whatever its type says */
    is_window[d->n_layers - 1] = is_window[d->n_layers - 1] && c->is_gguf;
    for (int32_t i = 0; i < d->n_layers; i++) {
        cache_desc *cache = &d->caches[d->layers[i].caches[0]];
        cache->d_key = is_window[i] ? narrow : wide;
        cache->n_kv_heads = is_window[i] || n_wide == 0 ? cache->n_kv_heads : n_wide;
        TRY(read_override(c, i, "head_dim", &cache->d_key));
        TRY(check_width(c, "per_layer_config.*.head_dim", cache->d_key));
        TRY(read_override(c, i, "num_key_value_heads", &cache->n_kv_heads));
        cache->d_value = cache->d_key;
        config_set_window(d, i, is_window[i] ? window : 0);
    }
    return QUIRE_OK;
}

/* Makes the last layers, which have no keys and values, read earlier caches. Their MLP
 * may be twice as wide. */
static quire_err share_caches(const config *c, model_desc *d) {
    int32_t n_shared = 0;
    bool is_double = false;
    TRY(config_i32(c, "attention.shared_kv_layers", "num_kv_shared_layers", &n_shared));
    TRY(config_bool(c, NULL, "use_double_wide_mlp", &is_double));
    TRY(config_share_caches(c, n_shared, d));
    for (int32_t i = d->n_caches; i < d->n_layers; i++) {
        layer_desc *layer = &d->layers[i];
        layer->d_ff = is_double && layer->d_ff <= INT32_MAX / 2 ? 2 * layer->d_ff : layer->d_ff;
    }
    return QUIRE_OK;
}

/* The published table of layers without windows: a quarter of each head rotates, with the
 * frequencies of a whole head. */
static void set_published(rope_desc *r) {
    r->has_factors = true;
    for (int32_t i = 0; i < r->n_dims / 2 && i < DESC_MAX_HEAD / 2; i++) {
        r->factors[i] = i < r->n_dims / 8 ? 1.0f : 1e30f;
    }
}

/* Adds the table of layers with windows, or of the others, which rotate only part of each
 * head. */
static quire_err add_rope(const config *c, model_desc *d, bool has_window) {
    const char *object = has_window ? "rope_parameters.sliding_attention" : "rope_parameters.full_attention";
    rope_desc r = config_plain_rope(c, d);
    r.pairs = ROPE_HALVES;
    r.theta = has_window ? 1e4f : 1e6f;
    r.n_dims = 0;
    for (int32_t i = 0; i < d->n_layers; i++) {
        if ((d->layers[i].window > 0) == has_window) {
            r.n_dims = d->caches[d->layers[i].caches[0]].d_key;
            d->layers[i].rope = (int16_t)d->n_ropes;
        }
    }
    if (r.n_dims == 0) {
        return QUIRE_OK;
    }
    if (!c->is_gguf && !config_has(c, NULL, "rope_parameters")) {
        if (!has_window) {
            set_published(&r);
        }
    } else if (c->is_gguf && has_window) {
        TRY(config_f32(c, "rope.freq_base_swa", NULL, &r.theta));
        TRY(config_i32(c, "rope.dimension_count_swa", NULL, &r.n_dims));
    } else {
        int32_t width = r.n_dims;
        TRY(config_rope(c, object, d, &r));
        if (r.n_dims != width && !c->is_gguf) {
            TRY(config_unsupported(
                c, "partial rotation of heads is supported only with rope_type \"proportional\""));
        }
    }
    d->ropes[d->n_ropes++] = r;
    return QUIRE_OK;
}

/* Reads experts beside the MLP, which keeps its width. */
static quire_err gemma4_read_experts(const config *c, model_desc *d) {
    bool has_experts = c->is_gguf;
    int32_t d_ff[DESC_MAX_LAYERS];
    TRY(config_bool(c, NULL, "enable_moe_block", &has_experts));
    if (!has_experts) {
        return QUIRE_OK;
    }
    for (int32_t i = 0; i < d->n_layers; i++) {
        d_ff[i] = d->layers[i].d_ff;
    }
    d->moe = (moe_desc){.score = ROUTE_SOFTMAX, .renormalise = true, .router_norm = true};
    TRY(config_moe(c, d));
    for (int32_t i = 0; i < d->n_layers; i++) {
        d->layers[i].d_ff = d_ff[i];
    }
    return QUIRE_OK;
}

enum { MOST_INPUTS = 1 << 20 }; /* elements of all layers together */

static quire_err read_layer_inputs(const config *c, model_desc *d) {
    int32_t *width = &d->embed.d_layer_input;
    const bool is_unified =
        config_is(c, "Gemma4UnifiedForCausalLM") || config_is(c, "Gemma4UnifiedForConditionalGeneration");
    *width = c->is_gguf || is_unified ? 0 : 256;
    TRY(config_i32(c, "embedding_length_per_layer_input", "hidden_size_per_layer_input", width));
    return *width <= MOST_INPUTS / d->n_layers ? QUIRE_OK
                                               : config_bad(c, "hidden_size_per_layer_input", "is too large");
}

/* clang-format off */
#define ATTEND_HALF NORM(W_ATTN_NORM, X, A), ATTEND(A, A), NORM(W_ATTN_POST_NORM, A, A), ADD(A, X)
#define MLP_HALF NORM(W_FFN_NORM, X, A), MLP(A, A), NORM(W_FFN_POST_NORM, A, A), ADD(A, X)
/* x += post(mlp_post(mlp(norm(x))) + experts_post(experts(norm(x)))) */
#define MOE_HALF \
    NORM(W_FFN_NORM, X, A), MLP(A, A), NORM(W_MLP_POST_NORM, A, A), \
    NORM(W_EXPERTS_NORM, X, B), MOE(B, B), NORM(W_EXPERTS_POST_NORM, B, B), \
    ADD(B, A), NORM(W_FFN_POST_NORM, A, A), ADD(A, X)
#define OWN_INPUT INPUT(X, A), NORM(W_INPUT_POST_NORM, A, A), ADD(A, X)
/* clang-format on */

/* With or without experts beside the MLP; with or without an own input. */
static const layer_step steps_dense[] = {ATTEND_HALF, MLP_HALF, SCALE(X), END};
static const layer_step steps_dense_input[] = {ATTEND_HALF, MLP_HALF, OWN_INPUT, SCALE(X), END};
static const layer_step steps_moe[] = {ATTEND_HALF, MOE_HALF, SCALE(X), END};
static const layer_step steps_moe_input[] = {ATTEND_HALF, MOE_HALF, OWN_INPUT, SCALE(X), END};

static quire_err describe_gemma4(const config *c, model_desc *d) {
    decoder_shape s = {.d_head = 256};
    str two_sided = {0};
    d->tied_embeddings = true;
    d->activation = ACT_GELU_TANH;
    TRY(config_decoder(c, &s, d));
    d->attention_scale = 1.0f;
    d->attend.qk_norm = QK_NORM_HEAD;
    d->attend.v_norm = true;
    d->attend.values_are_keys = c->is_gguf;
    d->embed.scale = sqrtf((float)d->d_model);
    TRY(config_bool(c, NULL, "attention_k_eq_v", &d->attend.values_are_keys));
    TRY(config_f32_or_none(c, "final_logit_softcapping", "final_logit_softcapping", &d->head.cap));
    TRY(config_str(c, NULL, "use_bidirectional_attention", &two_sided));
    if (two_sided.n > 0 && !str_is(two_sided, "vision")) {
        return config_unsupported(
            c, "use_bidirectional_attention other than \"vision\" is not supported for this architecture");
    }
    if (!c->is_gguf && config_has(c, NULL, "rope_parameters") &&
        !config_has(c, NULL,
                    "rope_parameters.full_attention.rope_type|rope_parameters.full_attention.rope_theta")) {
        return config_bad(c, "rope_parameters", "must have a table for \"full_attention\" layers");
    }
    TRY(gemma4_read_heads(c, d));
    TRY(share_caches(c, d));
    TRY(add_rope(c, d, false));
    TRY(add_rope(c, d, true));
    TRY(gemma4_read_experts(c, d));
    TRY(read_layer_inputs(c, d));
    const bool has_experts = d->layers[0].n_experts > 0, has_input = d->embed.d_layer_input > 0;
    steps_set(d, has_experts ? (has_input ? steps_moe_input : steps_moe)
                             : (has_input ? steps_dense_input : steps_dense));
    return QUIRE_OK;
}

const arch gemma_archs[] = {
    {{"gemma"}, {"GemmaForCausalLM"}, .describe = describe_gemma},
    {{"gemma2"}, {"Gemma2ForCausalLM"}, &gemma2_names, .describe = describe_gemma2},
    {{"vaultgemma"}, {"VaultGemmaForCausalLM"}, &vaultgemma_names, .describe = describe_vaultgemma},
    {{"gemma3"},
     {"Gemma3ForCausalLM", "Gemma3ForConditionalGeneration"},
     &gemma2_names,
     .describe = describe_gemma3},
    {{"gemma-embedding"}, {"Gemma3TextModel"}, &gemma2_names, .describe = describe_embedding},
    {{"gemma3n"},
     {"Gemma3nForCausalLM", "Gemma3nForConditionalGeneration"},
     &gemma3n_names,
     .describe = describe_gemma3n},
    {{"gemma4"},
     {"Gemma4ForCausalLM", "Gemma4ForConditionalGeneration", "Gemma4UnifiedForCausalLM",
      "Gemma4UnifiedForConditionalGeneration"},
     &gemma4_names,
     .describe = describe_gemma4},
    {.describe = NULL},
};
