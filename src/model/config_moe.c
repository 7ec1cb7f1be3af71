/* Experts: how many, how wide, and how rows choose them. */
#include <assert.h>
#include <math.h>
#include <stdio.h>

#include "model/config.h"
#include "model/published.h"
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

/* GGUF's expert_gating_func, config.json's scoring_func. */
static quire_err read_score(const config *c, moe_desc *m) {
    int32_t func = 0;
    str name = {0};
    TRY(config_str(c, NULL, "scoring_func", &name));
    if (name.n > 0 && !str_is(name, "softmax") && !str_is(name, "sigmoid")) {
        return err_set(c->err, QUIRE_UNSUPPORTED, -1,
                       "%s: scoring_func \"%.*s\" is not supported: softmax and sigmoid are",
                       model_file_path(c->f), (int)(name.n < 40 ? name.n : 40), name.p);
    }
    if (name.n > 0 && (m->score == ROUTE_SOFTMAX || m->score == ROUTE_SIGMOID)) {
        m->score = str_is(name, "softmax") ? ROUTE_SOFTMAX : ROUTE_SIGMOID;
    }
    TRY(config_i32(c, "expert_gating_func", NULL, &func));
    if (func > 3) {
        return config_unsupported(c, "an expert_gating_func over 3 is not supported: 1 (softmax), 2 "
                                     "(sigmoid) and 3 (softmax of the chosen) are");
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
    int32_t rows = config_tensor_rows(c, d, "ffn_up_shexp"); /* some files say another width than they have */
    m->d_shared = rows > 0 ? rows : m->d_shared;
    return QUIRE_OK;
}

/* Of two widths the second is that of experts for images. */
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

/* A number of groups; null: there are none. */
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
        return config_bad(c, "the experts", "must have a width over 0, and a row must use 1 to all of them");
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
        return config_bad(c, "the groups of experts", "must be 1 or more, of which a row uses 1 to all");
    }
    TRY(read_score(c, m));
    TRY(config_read_shared(c, d, m));
    m->activation = d->activation;
    for (int32_t i = 0; i < d->n_layers; i++) {
        config_set_experts(d, i, n);
    }
    return QUIRE_OK;
}

/* ---- which layers have experts ---- */

static bool has_router(const config *c, int32_t layer) {
    char name[64];
    (void)snprintf(name, sizeof name, "blk.%d.ffn_gate_inp.weight", (int)layer);
    return model_file_find(c->f, name) != NULL;
}

quire_err config_dense_layers(const config *c, const char *hf, int32_t n_dense, int32_t d_ff, model_desc *d) {
    assert(c != NULL);
    bool by_tensors = c->is_gguf && !config_has(c, "leading_dense_block_count", hf);
    bool is_sparse[DESC_MAX_LAYERS];
    TRY(config_i32(c, "leading_dense_block_count", hf, &n_dense));
    for (int32_t i = 0; i < d->n_layers; i++) {
        is_sparse[i] = by_tensors ? has_router(c, i) : i >= n_dense;
    }
    TRY(config_sparse_types(c, d, is_sparse));
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
                          "must be a number, or have one for each layer");
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
    return fits ? QUIRE_OK : config_bad(c, key, "must have one text for each layer");
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
        return config_bad(c, "num_kv_shared_layers", "must leave a layer with keys and values of its own");
    }
    int32_t n_own = d->n_layers - n_shared;
    for (int32_t i = n_own; i < d->n_layers; i++) {
        int32_t from = n_own - 1;
        while (from >= 0 && d->layers[from].window != d->layers[i].window) {
            from--;
        }
        if (from < 0) {
            return config_bad(c, "num_kv_shared_layers",
                              "has a layer read a cache that no earlier layer of its kind writes");
        }
        d->layers[i].caches[0] = d->layers[from].caches[0];
    }
    d->n_caches = n_own;
    return QUIRE_OK;
}

quire_err config_sparse_types(const config *c, const model_desc *d, bool *is_sparse) {
    assert(d != NULL);
    for (int32_t i = 0; i < d->n_layers; i++) {
        str type;
        TRY(config_str_at(c, "mlp_layer_types", (size_t)i, &type));
        if (type.n > 0 && !str_is(type, "sparse") && !str_is(type, "dense")) {
            return err_set(c->err, QUIRE_UNSUPPORTED, -1,
                           "%s: a layer of type \"%.*s\" in mlp_layer_types is not supported: sparse and "
                           "dense are",
                           model_file_path(c->f), (int)(type.n < 40 ? type.n : 40), type.p);
        }
        is_sparse[i] = type.n > 0 ? str_is(type, "sparse") : is_sparse[i];
    }
    return config_check_types(c, d, "mlp_layer_types");
}

quire_err config_check_two_sided(const config *c) {
    bool causal = false;
    TRY(config_bool(c, "attention.causal", NULL, &causal));
    return causal ? config_unsupported(c, "attention.causal true is not supported for an encoder") : QUIRE_OK;
}
