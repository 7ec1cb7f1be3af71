/* Experts: number, width and routing. */
#include <assert.h>
#include <math.h>
#include <stdio.h>

#include "model/config.h"
#include "model/steps.h"

void config_set_experts(model_desc *d, int32_t layer, int32_t n) {
    assert(layer >= 0 && layer < d->n_layers);
    d->layers[layer].n_experts = n;
    d->layers[layer].d_ff = 0;
    d->layers[layer].steps = steps_pre_norm_moe;
}

void config_set_dense(model_desc *d, int32_t layer, int32_t d_ff) {
    assert(layer >= 0 && layer < d->n_layers);
    d->layers[layer].n_experts = 0;
    d->layers[layer].d_ff = d_ff;
    d->layers[layer].steps = steps_pre_norm;
}

#define SHARED_COUNT "n_shared_experts|num_shared_experts|moe_num_shared_experts|num_shared_expert"

void config_usual_shared(const config *c, int32_t n, model_desc *d) {
    moe_desc *m = &d->moe;
    bool says = config_has(c, "expert_shared_count", SHARED_COUNT) || config_is_null(c, SHARED_COUNT);
    bool counts = n > 0 && !says && m->d_shared == 0 && m->d_expert <= INT32_MAX / n;
    m->d_shared = counts ? n * m->d_expert : m->d_shared;
}

/* Reads GGUF's expert_gating_func or config.json's scoring_func. */
static quire_err read_score(const config *c, moe_desc *m) {
    int32_t func = 0;
    str name = {0};
    TRY(config_str(c, NULL, "scoring_func", &name));
    if (name.n > 0 && !str_is(name, "softmax") && !str_is(name, "sigmoid")) {
        return err_set(c->err, QUIRE_UNSUPPORTED, -1,
                       "%s: scoring_func \"%.*s\" is not supported; it must be softmax or sigmoid",
                       model_file_path(c->f), (int)(name.n < 40 ? name.n : 40), name.p);
    }
    if (name.n > 0 && (m->score == ROUTE_SOFTMAX || m->score == ROUTE_SIGMOID)) {
        m->score = str_is(name, "softmax") ? ROUTE_SOFTMAX : ROUTE_SIGMOID;
    }
    TRY(config_i32(c, "expert_gating_func", NULL, &func));
    if (func > 3) {
        return config_unsupported(c, "an expert_gating_func over 3 is not supported; it must be 1 (softmax), "
                                     "2 (sigmoid) or 3 (softmax of the chosen)");
    }
    m->score = func == 1   ? ROUTE_SOFTMAX
               : func == 2 ? ROUTE_SIGMOID
               : func == 3 ? ROUTE_SOFTMAX_CHOSEN
                           : m->score;
    return QUIRE_OK;
}

static quire_err config_read_shared(const config *c, const model_desc *d, moe_desc *m) {
    int32_t n_shared = m->d_shared > 0 ? 1 : 0;
    TRY(config_same_i32(c, "expert_shared_count", SHARED_COUNT, &n_shared));
    if (n_shared > INT32_MAX / (m->d_expert > 0 ? m->d_expert : 1)) {
        return config_bad(c, "the number of shared experts", "is too large");
    }
    m->d_shared = m->d_shared > 0 ? m->d_shared : n_shared * m->d_expert;
    TRY(config_i32(c, "expert_shared_feed_forward_length",
                   "shared_expert_intermediate_size|moe_shared_expert_intermediate_size|shared_intermediate_"
                   "size|share_expert_dim|"
                   "share_expert_dims",
                   &m->d_shared));
    /* some files state another width than their tensors have */
    int32_t rows = config_tensor_rows(c, d, "ffn_up_shexp");
    m->d_shared = rows > 0 ? rows : m->d_shared;
    return QUIRE_OK;
}

/* Reads the width of experts. If there are two, the second is for images. */
static quire_err config_moe_read_width(const config *c, moe_desc *m) {
    int32_t widths[2];
    size_t n = 0;
    if (m->n_image_experts == 0) {
        return config_same_i32(c, "expert_feed_forward_length", "moe_intermediate_size", &m->d_expert);
    }
    TRY(config_i32s(c, NULL, "moe_intermediate_size", widths, 2, &n));
    m->d_expert = n > 0 ? widths[0] : m->d_expert;
    return QUIRE_OK;
}

/* Reads a number of groups; null: none. */
static quire_err read_groups(const config *c, const char *gguf, const char *hf, int32_t *n) {
    *n = config_is_null(c, hf) ? 0 : *n;
    return config_is_null(c, hf) ? QUIRE_OK : config_i32(c, gguf, hf, n);
}

quire_err config_moe(const config *c, model_desc *d) {
    assert(c != NULL);
    moe_desc *m = &d->moe;
    const published *usual = published_of(c->is_gguf ? "" : d->architecture);
    int32_t n = usual->n_experts;
    m->n_used = usual->n_used;
    m->d_expert = m->d_expert > 0 ? m->d_expert : usual->d_expert;
    TRY(config_same_i32(c, "expert_count", "num_local_experts|num_experts|n_routed_experts|moe_num_experts",
                        &n));
    if (n == 0) {
        return QUIRE_OK;
    }
    TRY(config_same_i32(c, "expert_used_count",
                        "num_experts_per_tok|num_experts_per_token|moe_k|moe_topk|moe_top_k|top_k_experts",
                        &m->n_used));
    m->d_expert = m->d_expert > 0 ? m->d_expert : d->layers[0].d_ff;
    TRY(config_moe_read_width(c, m));
    if (m->d_expert < 1 || m->n_used < 1 || m->n_used > n) {
        return config_bad(c, "the experts",
                          "must have a width over 0, and a row must use from 1 to all of them");
    }
    TRY(read_groups(c, "expert_group_count", "n_group|num_expert_group", &m->n_groups));
    TRY(read_groups(c, "expert_group_used_count", "topk_group", &m->n_groups_used));
    TRY(config_bool(c, "expert_weights_norm", "norm_topk_prob|route_norm", &m->renormalise));
    TRY(config_f32_or_none(c, "expert_weights_scale",
                           "routed_scaling_factor|moe_router_scaling_factor|router_scaling_factor|"
                           "moe_routed_scaling_factor|route_scale",
                           &m->scale));
    bool chooses = m->n_groups > 1 || config_has(c, "expert_group_used_count", "topk_group");
    if (m->n_groups > 0 && chooses && (m->n_groups_used < 1 || m->n_groups_used > m->n_groups)) {
        return config_bad(c, "the groups of experts",
                          "must be 1 or more, and a row must use from 1 to all of them");
    }
    TRY(read_score(c, m));
    TRY(config_read_shared(c, d, m));
    m->activation = d->activation;
    for (int32_t i = 0; i < d->n_layers; i++) {
        config_set_experts(d, i, n);
    }
    return QUIRE_OK;
}

bool config_has_correction(const config *c, const model_desc *d) {
    bool found = false;
    for (int32_t i = 0; i < d->n_layers && !found; i++) {
        char name[64];
        (void)snprintf(name, sizeof name, "blk.%d.exp_probs_b.bias", (int)i);
        found = model_file_find(c->f, name) != NULL;
    }
    return found;
}

/* ---- which layers have experts ---- */

static bool has_router(const config *c, int32_t layer) {
    return config_layer_matrix(c, layer, "ffn_gate_inp") != NULL;
}

/* is_sparse is unchanged if config.json has no "mlp_layer_types". */
static quire_err read_sparse_types(const config *c, const model_desc *d, bool *is_sparse) {
    for (int32_t i = 0; i < d->n_layers; i++) {
        str type;
        TRY(config_str_at(c, "mlp_layer_types", (size_t)i, &type));
        if (type.n > 0 && !str_is(type, "sparse") && !str_is(type, "dense")) {
            return err_set(c->err, QUIRE_UNSUPPORTED, -1,
                           "%s: a layer of type \"%.*s\" in mlp_layer_types is not supported; it must be "
                           "sparse or dense",
                           model_file_path(c->f), (int)(type.n < 40 ? type.n : 40), type.p);
        }
        is_sparse[i] = type.n > 0 ? str_is(type, "sparse") : is_sparse[i];
    }
    return config_check_types(c, d, "mlp_layer_types");
}

quire_err config_dense_layers(const config *c, const char *hf, int32_t n_dense, int32_t d_ff, model_desc *d) {
    assert(c != NULL);
    bool by_tensors = c->is_gguf && !config_has(c, "leading_dense_block_count", hf);
    bool is_sparse[DESC_MAX_LAYERS];
    TRY(config_i32(c, "leading_dense_block_count", hf, &n_dense));
    for (int32_t i = 0; i < d->n_layers; i++) {
        is_sparse[i] = by_tensors ? has_router(c, i) : i >= n_dense;
    }
    TRY(read_sparse_types(c, d, is_sparse));
    for (int32_t i = 0; i < d->n_layers; i++) {
        if (!is_sparse[i] && d->layers[i].n_experts > 0) {
            config_set_dense(d, i, d_ff);
        }
    }
    return QUIRE_OK;
}

quire_err config_sparse_layers(const config *c, int32_t n_usual, int32_t d_ff, model_desc *d) {
    int32_t step = 1, only[DESC_MAX_LAYERS];
    size_t n;
    TRY(config_i32(c, NULL, "decoder_sparse_step", &step));
    TRY(config_i32s(c, NULL, "mlp_only_layers", only, DESC_MAX_LAYERS, &n));
    bool is_listed = config_has(c, NULL, "mlp_only_layers");
    for (int32_t i = 0; i < d->n_layers; i++) {
        bool dense = (step > 0 && (i + 1) % step != 0) || (!is_listed && i < n_usual);
        for (size_t k = 0; k < n; k++) {
            dense = dense || only[k] == i;
        }
        if (dense) {
            config_set_dense(d, i, d_ff);
        }
    }
    return QUIRE_OK;
}

/* ---- which layers have windows ---- */

void config_set_window(model_desc *d, int32_t layer, int32_t window) {
    assert(layer >= 0 && layer < d->n_layers);
    cache_desc *c = &d->caches[d->layers[layer].caches[0]];
    d->layers[layer].window = c->window = window;
    c->kind = window > 0 ? LAYER_WINDOW : LAYER_FULL;
}

quire_err config_window(const config *c, int32_t *window) {
    return config_i32_or_none(c, "attention.sliding_window", "sliding_window", window);
}

quire_err config_period(const config *c, const char *gguf, const char *hf, int32_t *period) {
    TRY(config_i32(c, gguf, hf, period));
    return *period > 0 || c->is_gguf ? QUIRE_OK : config_bad_at(c, NULL, hf, "must be at least 1");
}

quire_err config_window_on_all(const config *c, int32_t usual, model_desc *d) {
    assert(c != NULL);
    int32_t window = c->is_gguf ? 0 : usual;
    TRY(config_window(c, &window));
    for (int32_t i = 0; i < d->n_layers; i++) {
        config_set_window(d, i, window);
    }
    return QUIRE_OK;
}

static quire_err read_gguf_pattern(const config *c, const model_desc *d, int32_t *period, int32_t *full_at,
                                   bool *is_window, bool *found) {
    int32_t pattern[DESC_MAX_LAYERS];
    size_t n;
    TRY(config_i32s(c, "attention.sliding_window_pattern", NULL, pattern, DESC_MAX_LAYERS, &n));
    *found = n > 1 || (n == 1 && d->n_layers == 1);
    if (*found && n != (size_t)d->n_layers && n != (size_t)d->n_layers + (size_t)d->n_next_token_layers) {
        return config_bad(c, "attention.sliding_window_pattern",
                          "must be a number, or a list of one for each layer");
    }
    for (int32_t i = 0; *found && i < d->n_layers; i++) {
        is_window[i] = (size_t)i < n && pattern[i] != 0;
    }
    if (n == 1 && !*found) {
        *period = pattern[0];
        *full_at = pattern[0] - 1;
    }
    return QUIRE_OK;
}

quire_err config_check_types(const config *c, const model_desc *d, const char *key) {
    assert(d != NULL);
    str last, behind;
    const size_t n = (size_t)d->n_layers, n_next = (size_t)d->n_next_token_layers;
    TRY(config_str_at(c, key, n - 1, &last));
    TRY(config_str_at(c, key, n, &behind));
    if (n_next > 0 && behind.n > 0) {
        TRY(config_str_at(c, key, n + n_next - 1, &last));
        TRY(config_str_at(c, key, n + n_next, &behind));
    }
    bool fits = !config_has(c, NULL, key) || (last.n > 0 && behind.n == 0);
    return fits ? QUIRE_OK : config_bad(c, key, "must have one string for each layer");
}

quire_err config_window_layers(const config *c, const model_desc *d, int32_t period, int32_t full_at,
                               bool *is_window) {
    bool found = false;
    TRY(read_gguf_pattern(c, d, &period, &full_at, is_window, &found));
    for (int32_t i = 0; !found && i < d->n_layers; i++) {
        str type;
        TRY(config_str_at(c, "layer_types", (size_t)i, &type));
        if (type.n == 0) {
            is_window[i] = period > 0 && i % period != full_at;
        } else if (str_is(type, "sliding_attention") || str_is(type, "full_attention")) {
            is_window[i] = str_is(type, "sliding_attention");
        } else {
            return err_set(c->err, QUIRE_UNSUPPORTED, -1, "%s: a layer of type \"%.*s\" is not supported",
                           model_file_path(c->f), (int)(type.n < 40 ? type.n : 40), type.p);
        }
    }
    return config_check_types(c, d, "layer_types");
}

quire_err config_windows(const config *c, int32_t window, int32_t period, int32_t full_at, model_desc *d) {
    bool is_window[DESC_MAX_LAYERS];
    TRY(config_window_layers(c, d, period, full_at, is_window));
    for (int32_t i = 0; i < d->n_layers; i++) {
        config_set_window(d, i, is_window[i] ? window : 0);
    }
    return QUIRE_OK;
}

quire_err config_share_caches(const config *c, int32_t n_shared, model_desc *d) {
    assert(d != NULL);
    if (n_shared >= d->n_layers) {
        return config_bad(c, "num_kv_shared_layers",
                          "must leave at least one layer with keys and values of its own");
    }
    int32_t n_own = d->n_layers - n_shared;
    for (int32_t i = n_own; i < d->n_layers; i++) {
        int32_t from = n_own - 1;
        while (from >= 0 && d->layers[from].window != d->layers[i].window) {
            from--;
        }
        if (from < 0) {
            return config_bad(c, "num_kv_shared_layers",
                              "makes a layer read a cache that no earlier layer of its kind writes");
        }
        d->layers[i].caches[0] = d->layers[from].caches[0];
    }
    d->n_caches = n_own;
    return QUIRE_OK;
}

quire_err config_sparse_types(const config *c, bool *is_sparse, int32_t d_ff, model_desc *d) {
    TRY(read_sparse_types(c, d, is_sparse));
    for (int32_t i = 0; i < d->n_layers; i++) {
        if (!is_sparse[i]) {
            config_set_dense(d, i, d_ff);
        }
    }
    return QUIRE_OK;
}

quire_err config_check_two_sided(const config *c) {
    bool causal = false;
    TRY(config_bool(c, "attention.causal", NULL, &causal));
    return causal ? config_unsupported(c, "attention.causal true is not supported for an encoder") : QUIRE_OK;
}

/* Latent attention: its widths, its rotary table, and the scale of scores. */

/* Reads the widths of heads, under keys that mean the widths in older files and the
 * latent's in newer ones. */
static quire_err read_gguf_widths(const config *c, model_desc *d) {
    latent_desc *m = &d->latent;
    int32_t d_key = 0, n_heads = d->layers[0].n_heads, rows = config_tensor_rows(c, d, "attn_kv_b");
    TRY(config_i32(c, "attention.key_length", NULL, &d_key));
    TRY(config_i32(c, "attention.key_length_mla", NULL, &d_key));
    TRY(config_i32(c, "attention.value_length", NULL, &m->d_value));
    TRY(config_i32(c, "attention.value_length_mla", NULL, &m->d_value));
    m->d_nope = d_key - m->d_rope;
    m->d_value = rows > 0 && n_heads > 0 ? rows / n_heads - m->d_nope : m->d_value;
    const tensor_view *out = config_layer_matrix(c, 0, "attn_output");
    if (m->d_value == 0 && out != NULL && out->n_dims == 2 && out->dims[1] <= INT32_MAX && n_heads > 0) {
        m->d_value = (int32_t)out->dims[1] / n_heads; /* a packed model has attn_kv_b in parts */
    }
    return QUIRE_OK;
}

quire_err config_latent(const config *c, model_desc *d) {
    latent_desc *m = &d->latent;
    m->eps = m->eps > 0.0f ? m->eps : 1e-6f; /* not the other norms' epsilon */
    m->q_rank = c->is_gguf ? 0 : m->q_rank;
    TRY(config_i32_or_none(c, "attention.q_lora_rank", "q_lora_rank", &m->q_rank));
    TRY(config_i32(c, "attention.kv_lora_rank", "kv_lora_rank", &m->rank));
    TRY(config_i32(c, "rope.dimension_count", "qk_rope_head_dim", &m->d_rope));
    TRY(config_i32(c, NULL, "qk_nope_head_dim", &m->d_nope));
    TRY(config_i32(c, NULL, "v_head_dim", &m->d_value));
    if (c->is_gguf) {
        TRY(read_gguf_widths(c, d));
    }
    const int32_t least_rope = m->rotary_folds ? 0 : 1;
    if (m->rank < 1 || m->rank > DESC_MAX_LATENT || m->d_rope < least_rope || m->d_rope > DESC_MAX_HEAD ||
        m->d_nope < 1 || m->d_nope > DESC_MAX_HEAD || m->d_value < 1 || m->d_value > DESC_MAX_HEAD) {
        return err_set(c->err, QUIRE_UNSUPPORTED, -1,
                       "%s: a latent of rank %d for heads of %d + %d elements and values of %d; this build "
                       "supports ranks to %d and heads to %d",
                       model_file_path(c->f), (int)m->rank, (int)m->d_nope, (int)m->d_rope, (int)m->d_value,
                       DESC_MAX_LATENT, DESC_MAX_HEAD);
    }
    if (m->rank + m->d_rope > DESC_MAX_LATENT) {
        return config_bad(c, "kv_lora_rank", "and its rotary part are too wide together");
    }
    return QUIRE_OK;
}

void config_set_latent(model_desc *d, int32_t layer) {
    assert(layer >= 0 && layer < d->n_layers);
    layer_desc *l = &d->layers[layer];
    d->caches[l->caches[CACHE_ATTENTION]] =
        (cache_desc){.kind = LAYER_LATENT, .d_latent = d->latent.rank + desc_rotary_part(d, l)};
    l->steps = l->n_experts > 0 ? steps_latent_moe : steps_latent;
}

/* Reads YaRN's factor of all elements of queries and keys, from mscale_all_dim. */
static quire_err read_growth(const config *c, const rope_desc *r, float *growth) {
    float all = 0.0f;
    TRY(config_f32(c, "rope.scaling.yarn_log_multiplier",
                   "rope_parameters.mscale_all_dim|rope_scaling.mscale_all_dim", &all));
    all = c->is_gguf ? 10.0f * all : all; /* GGUF files include the formula's factor 0.1 */
    *growth =
        r->kind > ROPE_PLAIN && all != 0.0f && r->factor > 1.0f ? 0.1f * all * logf(r->factor) + 1.0f : 1.0f;
    return *growth > 0.0f ? QUIRE_OK : config_bad(c, "mscale_all_dim", "must be 0 or more");
}

quire_err config_latent_rotary(const config *c, model_desc *d, rope_pairs hf, rope_pairs gguf) {
    assert(c != NULL);
    const latent_desc *m = &d->latent;
    rope_desc r = config_plain_rope(c, d);
    float growth, part = 1.0f;
    r.pairs = c->is_gguf ? gguf : hf;
    config_set_rows(c, hf, gguf);
    r.n_dims = m->d_rope;
    TRY(config_rope(c, NULL, d, &r));
    r.n_dims = m->d_rope; /* partial_rotary_factor may count the whole head */
    TRY(read_growth(c, &r, &growth));
    if (c->is_gguf && r.kind == ROPE_YARN && growth != 1.0f) { /* replaces the rotation's own factor */
        TRY(config_f32(c, "rope.scaling.attn_factor", NULL, &part));
        r.attention_factor = part > 0.0f ? part : 1.0f;
    }
    d->attention_scale = growth * growth / sqrtf((float)(m->d_nope + m->d_rope));
    return config_add_rope(c, d, &r);
}

quire_err config_temperature(const config *c, bool needed, model_desc *d) {
    const char *beta = "rope_parameters.llama_4_scaling_beta|rope_scaling.llama_4_scaling_beta";
    const char *length =
        "rope_parameters.original_max_position_embeddings|rope_scaling.original_max_position_embeddings";
    attend_desc *a = &d->attend;
    TRY(config_f32(c, "attention.temperature_scale", beta, &a->temperature));
    TRY(config_i32(c, "rope.scaling.original_context_length", length, &a->temperature_length));
    if (needed && !config_has(c, "attention.temperature_scale", beta)) {
        return config_bad(c, "rope_parameters.llama_4_scaling_beta", "is missing from the metadata");
    }
    if (a->temperature != 0.0f && a->temperature_length < 1) {
        return c->is_gguf ? config_bad(c, "attention.temperature_scale",
                                       "needs rope.scaling.original_context_length, at least 1")
                          : config_bad(c, "llama_4_scaling_beta",
                                       "also needs original_max_position_embeddings, at least 1");
    }
    a->temperature_on_all = a->temperature != 0.0f;
    return QUIRE_OK;
}

quire_err config_latents(const config *c, const latent_desc *usual, rope_pairs hf, rope_pairs gguf,
                         model_desc *d) {
    decoder_shape s = {.own_heads = true};
    bool neighbours = hf == ROPE_NEIGHBOURS;
    TRY(config_decoder(c, &s, d));
    if (!c->is_gguf) {
        d->latent = *usual;
        d->latent.d_value =
            d->latent.d_value > 0 ? d->latent.d_value : d->d_model / (s.n_heads > 0 ? s.n_heads : 1);
    }
    TRY(config_latent(c, d));
    for (int32_t i = 0; i < d->n_layers; i++) {
        config_set_latent(d, i);
    }
    if (neighbours) {
        TRY(config_bool(c, NULL, "rope_interleave", &neighbours));
    }
    return config_latent_rotary(c, d, neighbours ? ROPE_NEIGHBOURS : ROPE_HALVES, gguf);
}

/* Reads which layers select keys themselves instead of reusing an earlier layer's
 * selection: config.json's "indexer_types", or GGUF's list of selecting layers. */
static quire_err config_index_choosers(const config *c, const model_desc *d, bool *chooses) {
    int32_t listed[DESC_MAX_LAYERS];
    size_t n;
    TRY(config_i32s(c, "attention.indexer.types", NULL, listed, DESC_MAX_LAYERS, &n));
    for (int32_t i = 0; i < d->n_layers; i++) {
        str type;
        TRY(config_str_at(c, "indexer_types", (size_t)i, &type));
        if (type.n > 0 && !str_is(type, "full") && !str_is(type, "shared")) {
            return config_bad(c, "indexer_types", "may name only full and shared");
        }
        chooses[i] = type.n > 0 ? str_is(type, "full") : (size_t)i >= n || listed[i] != 0;
    }
    for (int32_t i = 0; i < d->n_layers; i++) { /* layers without attention do not count */
        if (d->layers[i].caches[CACHE_ATTENTION] >= 0) {
            return chooses[i] ? QUIRE_OK
                              : config_bad(c, "indexer_types",
                                           "must begin with a layer that selects its own keys (full)");
        }
    }
    return QUIRE_OK;
}

/* Reads the number of tokens per pool. As many pools are selected as hold the number of
 * tokens to read. */
static quire_err read_pools(const config *c, index_desc *x) {
    bool reads_tail = true;
    TRY(config_i32(c, "attention.indexer.kpool", "index_kpool", &x->block));
    TRY(config_bool(c, "attention.indexer.kpool_select_tail", "index_kpool_always_select_tail", &reads_tail));
    if (x->block < 2 || x->block > CONV_MAX_TAPS || x->n_best < x->block) {
        return config_bad(c, c->is_gguf ? "attention.indexer.kpool" : "index_kpool",
                          "must be from 2 to 16, and at most the number of keys that a row reads");
    }
    x->n_best -= x->n_best % x->block;
    return reads_tail ? QUIRE_OK
                      : config_unsupported(c, "index_kpool_always_select_tail false is not supported: the "
                                              "first rows would read nothing");
}

quire_err config_index(const config *c, index_desc usual, rope_pairs pairs, model_desc *d) {
    assert(c != NULL);
    bool chooses[DESC_MAX_LAYERS];
    index_desc *x = &d->index;
    *x = usual;
    if (c->is_gguf) {
        x->n_heads = x->d_head = x->n_best = x->block = 0;
    }
    TRY(config_i32(c, "attention.indexer.head_count", "index_n_heads", &x->n_heads));
    TRY(config_i32(c, "attention.indexer.key_length", "index_head_dim", &x->d_head));
    TRY(config_i32(c, "attention.indexer.top_k", "index_topk", &x->n_best));
    if (x->kind == CHOOSE_POOLS) {
        TRY(read_pools(c, x));
    }
    if ((d->latent.q_rank == 0 && x->source == INDEX_OF_LATENT) || x->n_best < 1 || x->n_heads < 1 ||
        x->d_head < d->latent.d_rope || x->d_head > DESC_MAX_HEAD) {
        return config_bad(c, c->is_gguf ? "attention.indexer" : "index_topk",
                          "and the index heads must be over 0, heads at least as wide as the rotary part, "
                          "and queries must come from a latent");
    }
    TRY(config_index_choosers(c, d, chooses));
    x->rope = x->key_rope = NO_ROPE;
    if (d->n_ropes == DESC_MAX_ROPES) {
        return config_unsupported(c, "too many rotary tables");
    }
    if (d->n_ropes > 0) {
        x->rope = x->key_rope = d->n_ropes;
        d->ropes[d->n_ropes] = d->ropes[0];
        d->ropes[d->n_ropes++].pairs = pairs;
    }
    return config_add_index(c, chooses, d);
}

quire_err config_add_index(const config *c, const bool *chooses, model_desc *d) {
    const index_desc *x = &d->index;
    const cache_desc keys = {.kind = LAYER_LATENT, .d_latent = x->d_head},
                     pools = x->gated_pools ? pool_cache(x->d_head, x->block)
                                            : conv_cache(conv_units(x->d_head), x->block);
    for (int32_t i = 0; i < d->n_layers; i++) {
        layer_desc *l = &d->layers[i];
        if (d->n_caches + 2 > DESC_MAX_CACHES) {
            return config_unsupported(c, "too many layers with an index");
        }
        const bool is_chooser = chooses[i] && l->caches[CACHE_ATTENTION] >= 0;
        l->caches[CACHE_SECOND] = is_chooser ? desc_add_cache(d, &keys) : NO_CACHE;
        if (is_chooser && x->kind == CHOOSE_POOLS) {
            l->caches[CACHE_CONV] = desc_add_cache(d, &pools);
        }
    }
    return QUIRE_OK;
}
