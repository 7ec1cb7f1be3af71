/* Attention: a layer's queries, keys and values, its cache, and the product after it.
 * Grouped queries: Ainslie et al. 2023, arXiv:2305.13245. */
#include <assert.h>
#include <math.h>

#include "model/decoder.h"

#define LARGEST_KV_SCALE 1e30f

/* A layer's attention, as operands of its ops. */
typedef struct attention {
    linear_use products[4]; /* products for q, k, v and the gate, if they exist */
    int32_t n_products;
    kv_store_use store;
    bool copies_keys;       /* values are the keys after value_norm */
    const norm *value_norm; /* may be NULL */
    const norm *inner_norm; /* norm of the result; NULL: none */
    multiply_use gate;      /* gate of the result, if is_gated */
    bool is_gated;
    float value_scale; /* factor of values; 0 means 1 */
    attn_spec mask;
    buffer rows;
    const index_block *index; /* selects the keys; NULL: all are read */
} attention;

/* A layer's parameters and weights while it is loaded. */
typedef struct attention_parts {
    const layer_desc *layer;
    const cache_desc *cache;
    int32_t q_width, k_width, v_width, out_width, gate_width;
    bool writes_cache; /* false: an earlier layer does */
    linear *q, *k, *v, *o, *gate;
    norm *q_norm, *k_norm, *v_norm, *inner_norm;
    float *k_scales, *v_scales, *sinks;
} attention_parts;

/* Loads q, k and v from one tensor: stacked, or group by group as in some checkpoints. */
static quire_err attention_load_fused(binding *b, attention_parts *w) {
    bool is_gguf = binding_is_gguf(b), grouped = b->d->attend.order == QKV_GROUPED && !is_gguf;
    int64_t e = w->cache->d_key, e_v = w->cache->d_value, n_q = w->q_width, n_k = w->k_width,
            n_v = w->v_width, group = n_q / w->cache->n_kv_heads;
    weight_part q = {.suffix = "q", .n_rows = n_q + n_k + n_v, .block = n_q, .step = n_q};
    q.transposed = b->d->conv1d && !is_gguf;
    weight_part k = q, v = q;
    k.suffix = "k";
    v.suffix = "v";
    k.first = n_q;
    v.first = n_q + n_k;
    k.block = k.step = n_k;
    v.block = v.step = n_v;
    if (grouped) {
        q.step = k.step = v.step = group + e + e_v;
        q.block = group;
        k.block = e;
        v.block = e_v;
        k.first = group;
        v.first = group + e;
    }
    weight_name name = binding_name(b, W_QKV);
    TRY(loader_linear(b->l, name, b->layer, &q, n_q, b->d->d_model, &w->q));
    TRY(loader_linear(b->l, name, b->layer, &k, n_k, b->d->d_model, &w->k));
    return loader_linear(b->l, name, b->layer, &v, n_v, b->d->d_model, &w->v);
}

/* Loads keys and values. If another layer writes the cache, the file may have them
 * anyway, but they are not read. */
static quire_err attention_load_kv(binding *b, attention_parts *w) {
    static const weight_role unread[] = {W_K, W_V, W_K_NORM};
    const tensor_view *t;
    for (size_t i = 0; !w->writes_cache && i < sizeof unread / sizeof *unread; i++) {
        TRY(loader_find(b->l, binding_name(b, unread[i]), b->layer, ".weight", &t));
    }
    if (!w->writes_cache) {
        return QUIRE_OK;
    }
    TRY(binding_linear(b, W_K, w->k_width, b->d->d_model, &w->k));
    /* GGUF files do not say whether there are values */
    bool may_have_v = binding_is_gguf(b) && binding_has(b, W_V);
    if (b->d->attend.values_are_keys && w->layer->window == 0 && !may_have_v) {
        return QUIRE_OK;
    }
    return binding_linear(b, W_V, w->v_width, b->d->d_model, &w->v);
}

/* Loads a norm of n heads of width e. */
static quire_err attention_load_norm(binding *b, weight_role role, int32_t n, int32_t e, norm **out) {
    const attend_desc *a = &b->d->attend;
    const weight_name name = binding_name(b, role);
    norm_spec spec = {
        .kind = a->qk_norm_type, .width = a->qk_norm == QK_NORM_ROW ? n * e : e, .eps = b->d->norm_eps};
    spec.add_one = b->d->norm.add_one && !binding_is_gguf(b);
    if (weight_name_is_list(name) && !binding_is_gguf(b)) {
        return loader_norm_by_head(b->l, name, b->layer, &spec, n, out);
    }
    return loader_norm(b->l, name, b->layer, &spec, a->qk_norm == QK_NORM_HEAD ? e : n * e, out);
}

/* Loads the norms of queries and keys, and of values. */
static quire_err attention_load_norms(binding *b, attention_parts *w) {
    const qk_norm_kind kind = b->d->attend.qk_norm;
    const int32_t e = w->cache->d_key;
    const norm_spec bare = {.kind = NORM_RMS, .width = e, .eps = b->d->norm_eps};
    const bool is_bare = kind == QK_NORM_BARE || kind == QK_NORM_BARE_ALL;
    if (kind == QK_NORM_BARE_ALL || (kind == QK_NORM_BARE && w->layer->rope >= 0)) {
        TRY(b->l->b->ops->norm_load(b->l->b, &bare, &w->q_norm, b->l->err));
        w->k_norm = w->q_norm;
    } else if (!is_bare && kind != QK_NORM_NONE) {
        TRY(attention_load_norm(b, W_Q_NORM, w->layer->n_heads, e, &w->q_norm));
        if (w->writes_cache) {
            TRY(attention_load_norm(b, W_K_NORM, w->cache->n_kv_heads, e, &w->k_norm));
        }
    }
    const norm_spec of_values = {.kind = NORM_RMS, .width = w->cache->d_value, .eps = b->d->norm_eps};
    return b->d->attend.v_norm ? b->l->b->ops->norm_load(b->l->b, &of_values, &w->v_norm, b->l->err)
                               : QUIRE_OK;
}

/* Loads the scales of keys or values, one for each head or one for all. Scales that are
 * not positive are ignored: checkpoints have them if nothing was calibrated. */
static quire_err attention_load_scales(binding *b, weight_role role, int32_t n_heads, float **out) {
    const weight_name name = binding_name(b, role);
    const tensor_view *t = loader_look(b->l, name, b->layer, "");
    int64_t n = 1;
    float *read;
    for (int32_t k = 0; t != NULL && k < t->n_dims; k++) {
        n = t->dims[k] == n_heads ? n_heads : n;
    }
    TRY(loader_vector(b->l, name, b->layer, "", n, &read));
    if (read == NULL) {
        return QUIRE_OK;
    }
    TRY(binding_keep(b, read));
    for (int64_t h = 0; h < n; h++) {
        if (!(fabsf(read[h]) <= LARGEST_KV_SCALE)) {
            return err_set(b->l->err, QUIRE_BAD_FILE, -1,
                           "%s: tensor %s: scale %g of keys or values is not a valid scale",
                           model_file_path(b->l->file), t->name, (double)read[h]);
        }
        if (read[h] <= 0.0f) {
            return QUIRE_OK;
        }
    }
    TRY(binding_new(b, (size_t)n_heads, sizeof **out, out));
    for (int32_t h = 0; h < n_heads; h++) {
        (*out)[h] = read[n == 1 ? 0 : h];
    }
    return QUIRE_OK;
}

/* Loads queries and gate from one tensor: each head's query, then its gate. */
static quire_err attention_load_gated(binding *b, attention_parts *w) {
    const int32_t e = w->cache->d_key;
    weight_part q = {.suffix = "q", .n_rows = 2 * (int64_t)w->q_width, .block = e, .step = 2 * (int64_t)e};
    weight_part gate = q;
    gate.suffix = "gate";
    gate.first = e;
    w->gate_width = w->q_width;
    TRY(loader_linear(b->l, binding_name(b, W_Q), b->layer, &q, w->q_width, b->d->d_model, &w->q));
    return loader_linear(b->l, binding_name(b, W_Q), b->layer, &gate, w->q_width, b->d->d_model, &w->gate);
}

/* Loads a gate with a bias per head. */
static quire_err attention_load_biased_gate(binding *b, attention_parts *w) {
    const int32_t n_heads = w->layer->n_heads, width = w->gate_width / n_heads;
    float *by_head, *all;
    TRY(binding_vector(b, W_ATTN_GATE_BIAS, "", "biases of its gate", n_heads, &by_head));
    TRY(binding_new(b, (size_t)w->gate_width, sizeof *all, &all));
    for (int32_t i = 0; i < w->gate_width; i++) {
        all[i] = by_head[i / width];
    }
    return loader_biased_linear(b->l, binding_name(b, W_ATTN_GATE), b->layer, all, w->gate_width,
                                b->d->d_model, &w->gate);
}

/* Loads the norm and gate between the result and the product after it. */
static quire_err attention_load_gate(binding *b, attention_parts *w) {
    const attend_gate gate = b->d->attend.gate;
    if (b->d->norm.inner) {
        const norm_spec spec = {.kind = b->d->norm.kind, .width = w->out_width, .eps = b->d->norm_eps};
        TRY(loader_norm(b->l, binding_name(b, W_ATTN_INNER_NORM), b->layer, &spec, w->out_width,
                        &w->inner_norm));
    }
    if (b->d->attend.result_norm) {
        const norm_spec bare = {.kind = NORM_RMS, .width = w->cache->d_value, .eps = b->d->norm_eps};
        TRY(b->l->b->ops->norm_load(b->l->b, &bare, &w->inner_norm, b->l->err));
    }
    if (gate == ATTEND_NO_GATE || gate == ATTEND_GATE_QUERIES) {
        return QUIRE_OK;
    }
    w->gate_width = gate == ATTEND_GATE_HEADS ? w->layer->n_heads : w->out_width;
    if (b->d->attend.gate_bias) {
        return attention_load_biased_gate(b, w);
    }
    return binding_linear(b, W_ATTN_GATE, w->gate_width, b->d->d_model, &w->gate);
}

static quire_err attention_load(binding *b, attention_parts *w) {
    bool is_fused = !binding_is_gguf(b) && weight_role_is(b->l->names, W_QKV) && !binding_has(b, W_Q);
    /* first, so that errors about a missing weight use its published name */
    if (is_fused || binding_has(b, W_QKV)) {
        TRY(attention_load_fused(b, w));
    } else {
        bool has_gate = b->d->attend.gate == ATTEND_GATE_QUERIES;
        TRY(has_gate ? attention_load_gated(b, w) : binding_linear(b, W_Q, w->q_width, b->d->d_model, &w->q));
        TRY(attention_load_kv(b, w));
    }
    if (w->writes_cache && model_file_format(b->l->file) == MODEL_HF) {
        TRY(attention_load_scales(b, W_K_SCALE, w->cache->n_kv_heads, &w->k_scales));
        TRY(attention_load_scales(b, W_V_SCALE, w->cache->n_kv_heads, &w->v_scales));
    }
    TRY(binding_linear(b, W_O, b->d->d_model, w->out_width, &w->o));
    TRY(attention_load_norms(b, w));
    TRY(attention_load_gate(b, w));
    return b->d->attend.sinks && (!b->d->attend.sinks_in_windows || w->layer->window > 0)
               ? binding_vector(b, W_SINKS, ".weight", "attention sinks", w->layer->n_heads, &w->sinks)
               : QUIRE_OK;
}

static quire_err attention_reserve(binding *b, const attention_parts *w, attention *to) {
    kv_store_use *s = &to->store;
    TRY(binding_buffer(b, BUFFER_Q, w->q_width, &s->q));
    TRY(binding_buffer(b, BUFFER_K, w->k_width, &s->k));
    TRY(binding_buffer(b, BUFFER_V, w->v_width, &s->v));
    TRY(binding_buffer(b, BUFFER_A, w->out_width, &to->rows));
    const linear_use all[] = {{w->q, s->q}, {w->k, s->k}, {w->v, s->v}};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        if (all[i].w != NULL) {
            to->products[to->n_products++] = all[i];
        }
    }
    to->copies_keys = w->k != NULL && w->v == NULL;
    s->k = w->writes_cache ? s->k : BUFFER_NONE;
    if (w->gate == NULL) {
        return QUIRE_OK;
    }
    buffer gate;
    TRY(binding_buffer(b, BUFFER_ATTN_GATE, w->gate_width, &gate));
    to->products[to->n_products++] = (linear_use){w->gate, gate};
    to->gate = (multiply_use){.f = b->d->attend.gate_f, .gate = gate, .x = to->rows, .out = to->rows};
    to->is_gated = true;
    return QUIRE_OK;
}

/* Fills the operands of the ops. */
static void attention_fill(const binding *b, const attention_parts *w, attention *to) {
    const attend_desc *a = &b->d->attend;
    const layer_desc *layer = w->layer;
    to->value_norm = w->v_norm;
    to->inner_norm = w->inner_norm;
    to->value_scale = a->value_scale;
    to->store =
        (kv_store_use){.cache = layer->caches[0],
                       .q = to->store.q,
                       .k = to->store.k,
                       .v = to->store.v,
                       .q_norm = w->q_norm,
                       .k_norm = w->k_norm,
                       .v_norm = w->v != NULL ? w->v_norm : NULL,
                       .norm_after_rope = a->norm_after_rope,
                       .rope = layer->rope >= 0 ? b->w->ropes[layer->rope] : NULL,
                       .k_scales = w->k_scales,
                       .v_scales = w->v_scales,
                       .clip = a->clip,
                       .scale = {.slope = layer->rope < 0 || a->temperature_on_all ? a->temperature : 0.0f,
                                 .power = layer->rope < 0 ? a->temperature_power : 0.0f,
                                 .offset = a->temperature_on_all ? 0 : 1,
                                 .length = a->temperature_length}};
    to->mask =
        (attn_spec){.scale = b->d->attention_scale / (a->scale_by_layer ? (float)(b->layer + 1) : 1.0f),
                    .causal = !b->d->two_sided,
                    .window = layer->window,
                    .chunk = layer->chunk,
                    .soft_cap = a->cap,
                    .sinks = w->sinks,
                    .alibi_slopes = b->w->slopes};
}

static void attention_run(const pass *p, const decoder_op *o) {
    const attention *a = o->own;
    p->op->norm_linears(p->b, o->in, o->nm, a->products, a->n_products);
    if (a->copies_keys) {
        p->op->norm_rows(p->b, a->store.k, a->value_norm, a->store.v);
    }
    if (a->value_scale != 0.0f && a->store.k.id != BUFFER_NONE.id) {
        p->op->scale_rows(p->b, a->value_scale, a->store.v);
    }
    index_run(p, a->index, o->in, o->nm);
    p->op->kv_store(p->b, &a->store);
    p->op->attention(p->b, a->store.cache, a->store.q, &a->mask, a->rows);
    if (a->inner_norm != NULL) {
        p->op->norm_rows(p->b, a->rows, a->inner_norm, a->rows);
    }
    if (a->is_gated) {
        p->op->multiply(p->b, &a->gate);
    }
}

quire_err attention_bind(binding *b, const layer_step *s) {
    assert(b != NULL);
    const layer_desc *layer = &b->d->layers[b->layer];
    const cache_desc *cache = &b->d->caches[layer->caches[0]];
    attention_parts w = {.layer = layer, .cache = cache, .writes_cache = !binding_shares_cache(b)};
    attention *to;
    row_value in;
    w.q_width = layer->n_heads * cache->d_key;
    w.k_width = cache->n_kv_heads * cache->d_key;
    w.v_width = cache->n_kv_heads * cache->d_value;
    w.out_width = layer->n_heads * cache->d_value;
    TRY(binding_new(b, 1, sizeof *to, &to));
    TRY(attention_load(b, &w));
    TRY(attention_reserve(b, &w, to));
    attention_fill(b, &w, to);
    index_block *index;
    TRY(index_bind(b, &index));
    to->index = index;
    to->mask.chosen = index != NULL;
    TRY(binding_read(b, s->from, &in));
    b->rows[s->to] = (row_value){.at = to->rows, .product = w.o, .scale = b->d->attend.out_scale};
    return binding_emit(b, (decoder_op){.run = attention_run, .in = in.at, .nm = in.nm, .own = to});
}
