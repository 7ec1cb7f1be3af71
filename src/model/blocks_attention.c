/* Attention: queries, keys and values of a layer, its cache, and what comes behind.
 * Grouped queries: Ainslie et al. 2023, arXiv:2305.13245. */
#include "model/decoder.h"

#include "base/mem.h"

#include <math.h>

#define LARGEST_KV_SCALE 1e30f

/* q, k and v out of one tensor: stacked, or group by group as some checkpoints have
 * them. */
static quire_err load_fused(loader *l, const model_desc *d, const arch_names *names, int32_t i,
                            decoder_layer *to) {
    const layer_desc *layer = &d->layers[i];
    const cache_desc *cache = &d->caches[layer->caches[0]];
    bool is_gguf = model_file_format(l->file) == MODEL_GGUF,
         grouped = d->blocks.order == QKV_GROUPED && !is_gguf;
    int64_t e = cache->d_key, n_q = layer->n_heads * e, n_kv = cache->n_kv_heads * e,
            group = n_q / cache->n_kv_heads;
    weight_part q = {.suffix = "q", .n_rows = n_q + 2 * n_kv, .block = n_q, .step = n_q};
    q.transposed = d->blocks.conv1d && !is_gguf;
    weight_part k = q, v = q;
    k.suffix = "k";
    v.suffix = "v";
    k.first = n_q;
    v.first = n_q + n_kv;
    k.block = v.block = k.step = v.step = n_kv;
    if (grouped) {
        q.step = k.step = v.step = group + 2 * e;
        q.block = group;
        k.block = v.block = e;
        k.first = group;
        v.first = group + e;
    }
    weight_name name = weight_name_of(names, W_QKV);
    TRY(loader_linear(l, name, i, &q, n_q, d->d_model, &to->q));
    TRY(loader_linear(l, name, i, &k, n_kv, d->d_model, &to->k));
    return loader_linear(l, name, i, &v, n_kv, d->d_model, &to->v);
}

/* A norm of n heads of width e. */
static quire_err load_qk_norm(loader *l, const model_desc *d, const arch_names *names, weight_role role,
                              int32_t i, int32_t n, int32_t e, norm **out) {
    const block_desc *blocks = &d->blocks;
    bool row = blocks->qk_norm == QK_NORM_ROW, is_gguf = model_file_format(l->file) == MODEL_GGUF;
    norm_spec spec = {.kind = blocks->qk_norm_type, .width = row ? n * e : e, .eps = d->norm_eps};
    spec.add_one = blocks->norm_add_one && !is_gguf;
    if (blocks->qk_norm_by_head && !is_gguf) {
        return loader_norm_by_head(l, weight_name_of(names, role), i, &spec, n, out);
    }
    return loader_norm(l, weight_name_of(names, role), i, &spec, blocks->qk_norm == QK_NORM_HEAD ? e : n * e,
                       out);
}

/* Norms without weights: of queries and keys where the layer rotates them, of values. */
static quire_err load_bare_norms(loader *l, const model_desc *d, int32_t e, bool rotates, decoder_layer *to) {
    const norm_spec spec = {.kind = NORM_RMS, .width = e, .eps = d->norm_eps};
    if (d->blocks.qk_norm_bare && rotates) {
        TRY(l->b->ops->norm_load(l->b, &spec, &to->q_norm, l->err));
        to->k_norm = to->q_norm;
    }
    return d->blocks.v_norm ? l->b->ops->norm_load(l->b, &spec, &to->v_norm, l->err) : QUIRE_OK;
}

/* Keys and values of a layer. Where another layer writes the cache, files may have them
 * all the same; nothing reads them. */
static quire_err load_kv(loader *l, const model_desc *d, const arch_names *names, int32_t i, int32_t kv_width,
                         decoder_layer *to) {
    const tensor_view *unread;
    if (!to->writes_cache) {
        TRY(loader_find(l, weight_name_of(names, W_K), i, ".weight", &unread));
        TRY(loader_find(l, weight_name_of(names, W_V), i, ".weight", &unread));
        return loader_find(l, weight_name_of(names, W_K_NORM), i, ".weight", &unread);
    }
    TRY(decoder_linear(l, d, names, W_K, i, kv_width, d->d_model, &to->k));
    bool may_have_v =
        /* GGUF files do not say it */
        model_file_format(l->file) == MODEL_GGUF && loader_has(l, weight_name_of(names, W_V), i);
    if (d->blocks.values_are_keys && d->layers[i].window == 0 && !may_have_v) {
        return QUIRE_OK;
    }
    return decoder_linear(l, d, names, W_V, i, kv_width, d->d_model, &to->v);
}

/* The scales of keys or values of a layer, by head: the checkpoint's, one for all heads
 * or one for each. Such as are not above 0, which checkpoints have where nothing was
 * measured, are none. */
static quire_err load_kv_scales(loader *l, const arch_names *names, weight_role role, int32_t i,
                                int32_t n_heads, float **out) {
    const weight_name name = weight_name_of(names, role);
    const tensor_view *t = loader_look(l, name, i, "");
    int64_t n = 1;
    float *read;
    for (int32_t k = 0; t != NULL && k < t->n_dims; k++) {
        n = t->dims[k] == n_heads ? n_heads : n;
    }
    TRY(loader_vector(l, name, i, "", n, &read));
    bool are_some = read != NULL;
    for (int64_t h = 0; are_some && h < n; h++) {
        if (!(fabsf(read[h]) <= LARGEST_KV_SCALE)) {
            quire_err e = err_set(l->err, QUIRE_BAD_FILE, -1,
                                  "%s: tensor %s: scale %g of keys or values is no number that they can have",
                                  model_file_path(l->file), t->name, (double)read[h]);
            mem_free(read);
            return e;
        }
        are_some = read[h] > 0.0f;
    }
    *out = are_some ? mem_new((size_t)n_heads, sizeof **out) : NULL;
    for (int32_t h = 0; *out != NULL && h < n_heads; h++) {
        (*out)[h] = read[n == 1 ? 0 : h];
    }
    mem_free(read);
    return are_some && *out == NULL ? err_set(l->err, QUIRE_NO_MEMORY, -1, "out of memory while loading")
                                    : QUIRE_OK;
}

/* Whether an earlier layer writes the cache. */
static bool is_shared(const model_desc *d, int32_t layer) {
    for (int32_t i = 0; i < layer; i++) {
        if (d->layers[i].caches[0] == d->layers[layer].caches[0]) {
            return true;
        }
    }
    return false;
}

quire_err attention_load(loader *l, const model_desc *d, const arch_names *names, int32_t i, decoder *w) {
    const layer_desc *layer = &d->layers[i];
    const cache_desc *cache = &d->caches[layer->caches[0]];
    decoder_layer *to = &w->layers[i];
    int32_t q_width = layer->n_heads * cache->d_key, kv_width = cache->n_kv_heads * cache->d_key;
    to->writes_cache = !is_shared(d, i);
    if (loader_has(l, weight_name_of(names, W_QKV), i)) {
        TRY(load_fused(l, d, names, i, to));
    } else {
        TRY(decoder_linear(l, d, names, W_Q, i, q_width, d->d_model, &to->q));
        TRY(load_kv(l, d, names, i, kv_width, to));
    }
    if (to->writes_cache && model_file_format(l->file) == MODEL_HF) {
        TRY(load_kv_scales(l, names, W_K_SCALE, i, cache->n_kv_heads, &to->k_scales));
        TRY(load_kv_scales(l, names, W_V_SCALE, i, cache->n_kv_heads, &to->v_scales));
    }
    TRY(decoder_linear(l, d, names, W_O, i, d->d_model, q_width, &to->o));
    if (d->blocks.qk_norm != QK_NORM_NONE) {
        TRY(load_qk_norm(l, d, names, W_Q_NORM, i, layer->n_heads, cache->d_key, &to->q_norm));
        if (to->writes_cache) {
            TRY(load_qk_norm(l, d, names, W_K_NORM, i, cache->n_kv_heads, cache->d_key, &to->k_norm));
        }
    }
    TRY(load_bare_norms(l, d, cache->d_key, layer->rope >= 0, to));
    if (d->blocks.sinks) {
        weight_name name = weight_name_of(names, W_SINKS);
        TRY(loader_vector(l, name, i, model_file_format(l->file) == MODEL_GGUF ? ".weight" : "",
                          layer->n_heads, &to->sinks));
        if (to->sinks == NULL) {
            return err_set(l->err, QUIRE_BAD_FILE, -1,
                           "%s: layer %d has no attention sinks: the file is incomplete",
                           model_file_path(l->file), i);
        }
    }
    TRY(decoder_buffer(l, w, BUFFER_Q, q_width, &to->q_rows));
    TRY(decoder_buffer(l, w, BUFFER_K, kv_width, &to->k_rows));
    TRY(decoder_buffer(l, w, BUFFER_V, kv_width, &to->v_rows));
    return decoder_buffer(l, w, BUFFER_A, q_width, &to->a_rows);
}

void attention_run(const pass *p, int32_t i, buffer in, const norm *nm) {
    const decoder_layer *l = &p->w->layers[i];
    const layer_desc *layer = &p->d->layers[i];
    const block_desc *blocks = &p->d->blocks;
    int32_t n_products = l->k == NULL ? 1 : l->v == NULL ? 2 : 3;
    p->op->norm_linears(p->b, in, nm, (linear_use[]){{l->q, l->q_rows}, {l->k, l->k_rows}, {l->v, l->v_rows}},
                        n_products);
    if (n_products == 2) {
        p->op->norm_rows(p->b, l->k_rows, l->v_norm, l->v_rows);
    }
    p->op->kv_store(p->b, &(kv_store_use){.cache = layer->caches[0],
                                          .q = l->q_rows,
                                          .k = l->writes_cache ? l->k_rows : BUFFER_NONE,
                                          .v = l->v_rows,
                                          .q_norm = l->q_norm,
                                          .k_norm = l->k_norm,
                                          .v_norm = l->v != NULL ? l->v_norm : NULL,
                                          .norm_after_rope = blocks->qk_norm_after_rope,
                                          .rope = layer->rope >= 0 ? p->w->ropes[layer->rope] : NULL,
                                          .k_scales = l->k_scales,
                                          .v_scales = l->v_scales,
                                          .clip = blocks->clip,
                                          .scale_slope = layer->rope < 0 || blocks->temperature_on_all
                                                             ? blocks->temperature
                                                             : 0.0f,
                                          .scale_offset = blocks->temperature_on_all ? 0 : 1,
                                          .scale_length = blocks->temperature_length});
    const attn_spec mask = {.scale = p->d->attention_scale / (blocks->scale_by_layer ? (float)(i + 1) : 1.0f),
                            .causal = !blocks->two_sided,
                            .window = layer->window,
                            .chunk = layer->chunk,
                            .soft_cap = blocks->attention_cap,
                            .sinks = l->sinks,
                            .alibi_slopes = p->w->slopes};
    p->op->attention(p->b, layer->caches[0], l->q_rows, &mask, l->a_rows);
    branch_add(p, l->a_rows, l->o, l->attn_post_norm);
}
