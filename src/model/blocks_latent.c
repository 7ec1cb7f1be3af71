/* Attention to one latent for all heads: DeepSeek-AI 2024, arXiv:2405.04434.
 *
 * The weights that would turn a latent into keys and values are multiplied with the
 * queries and with attention's result instead, so that a cache only keeps a row's
 * latent. */
#include <assert.h>
#include <stdio.h>

#include "model/decoder.h"

typedef struct latent_block {
    linear_use down[3]; /* products to queries or their latent, to the latent, to the gate */
    int32_t n_down;
    const norm *q_norm;
    linear_use up; /* product to queries; w NULL: down computes them */
    /* queries with gates: `up` and the gate are products of `wide`, which holds the
     * latent normed and not */
    linear_use up_gate;
    buffer wide;
    latent_store_use store;
    head_products_use absorb, expand;
    multiply_use gate; /* gate of the result, if is_gated */
    bool is_gated;
    attn_spec mask;
    const struct index_block *index; /* selects the layer's keys; NULL: all are read */
} latent_block;

/* A layer's parameters and weights while it is loaded. */
typedef struct latent_parts {
    const layer_desc *layer;
    latent_desc m; /* the layer's latent_desc */
    int32_t n_heads;
    bool writes_cache; /* false: an earlier layer does */
    linear *q, *q_up, *q_gate, *kv, *o, *gate;
    norm *q_norm, *kv_norm;
    head_linears *keys, *values;
} latent_parts;

static quire_err latent_load_norm(binding *b, weight_role role, int32_t width, norm **out) {
    const norm_spec spec = {.kind = NORM_RMS, .width = width, .eps = b->d->latent.eps};
    return loader_norm(b->l, binding_name(b, role), b->layer, &spec, width, out);
}

/* Loads a head's part of matrices that a GGUF file stores head by head. */
static quire_err latent_load_slab(binding *b, weight_role role, int32_t n_heads, int32_t head, int64_t n_out,
                                  int64_t n_in, linear **out) {
    char suffix[24];
    (void)snprintf(suffix, sizeof suffix, "%d.head", (int)head);
    const weight_part p = {
        .suffix = suffix, .n_rows = n_out, .block = n_out, .step = n_out, .slab = head, .n_slabs = n_heads};
    return loader_linear(b->l, binding_name(b, role), b->layer, &p, n_out, n_in, out);
}

/* Loads a head's rows of keys, transposed for a product with queries, and of values. */
static quire_err latent_load_head(binding *b, const latent_parts *w, int32_t head, linear **key,
                                  linear **value) {
    const latent_desc *m = &w->m;
    char suffix[24];
    if (binding_has(b, W_K_B)) {
        TRY(latent_load_slab(b, W_K_B, w->n_heads, head, m->rank, m->d_nope, key));
        return latent_load_slab(b, W_V_B, w->n_heads, head, m->d_value, m->rank, value);
    }
    const int32_t width = m->d_nope + m->d_value;
    weight_part p = {.suffix = suffix, .n_rows = (int64_t)w->n_heads * width, .first = (int64_t)head * width};
    p.block = p.step = m->d_nope;
    (void)snprintf(suffix, sizeof suffix, "%d.head", (int)head);
    TRY(loader_turned_linear(b->l, binding_name(b, W_KV_B), b->layer, &p, m->rank, m->d_nope, key));
    p.first += m->d_nope;
    p.block = p.step = m->d_value;
    (void)snprintf(suffix, sizeof suffix, "%d.value", (int)head);
    return loader_linear(b->l, binding_name(b, W_KV_B), b->layer, &p, m->d_value, m->rank, value);
}

static quire_err latent_load_heads(binding *b, latent_parts *w) {
    const backend_ops *op = b->l->b->ops;
    linear **keys, **values;
    TRY(binding_new(b, (size_t)w->n_heads, sizeof *keys, &keys));
    TRY(binding_new(b, (size_t)w->n_heads, sizeof *values, &values));
    for (int32_t head = 0; head < w->n_heads; head++) {
        TRY(latent_load_head(b, w, head, &keys[head], &values[head]));
    }
    TRY(op->head_linears_load(b->l->b, keys, w->n_heads, &w->keys, b->l->err));
    return op->head_linears_load(b->l->b, values, w->n_heads, &w->values, b->l->err);
}

/* Loads queries and gate from one tensor: each head's query, then its gate. */
static quire_err latent_load_gated(binding *b, latent_parts *w) {
    const latent_desc *m = &w->m;
    const int32_t d_query = m->d_nope + m->d_rope, each = d_query + m->d_value;
    const int64_t n_rows = (int64_t)w->n_heads * each, n_in = 2 * (int64_t)m->q_rank;
    const weight_part q = {.suffix = "q", .n_rows = n_rows, .block = d_query, .step = each},
                      gate = {.suffix = "gate",
                              .n_rows = n_rows,
                              .first = d_query,
                              .block = m->d_value,
                              .step = each};
    const weight_name name = binding_name(b, W_Q_B);
    TRY(loader_linear(b->l, name, b->layer, &q, (int64_t)w->n_heads * d_query, n_in, &w->q_up));
    return loader_linear(b->l, name, b->layer, &gate, (int64_t)w->n_heads * m->d_value, n_in, &w->q_gate);
}

static quire_err latent_load(binding *b, latent_parts *w) {
    const latent_desc *m = &w->m;
    const int32_t width = b->d->d_model, q_width = w->n_heads * (m->d_nope + m->d_rope);
    if (m->q_rank > 0) {
        TRY(binding_linear(b, W_Q_A, m->q_rank, width, &w->q));
        TRY(latent_load_norm(b, W_Q_A_NORM, m->q_rank, &w->q_norm));
        TRY(m->q_gates ? latent_load_gated(b, w) : binding_linear(b, W_Q_B, q_width, m->q_rank, &w->q_up));
    } else {
        TRY(binding_linear(b, W_Q, q_width, width, &w->q));
    }
    if (w->writes_cache) {
        TRY(binding_linear(b, W_KV_A, m->rank + m->d_rope, width, &w->kv));
        TRY(latent_load_norm(b, W_KV_A_NORM, m->rank, &w->kv_norm));
    }
    TRY(latent_load_heads(b, w));
    if (b->d->attend.gate == ATTEND_GATE_HEADS) {
        TRY(binding_linear(b, W_ATTN_GATE, w->n_heads, width, &w->gate));
    }
    return binding_linear(b, W_O, width, w->n_heads * m->d_value, &w->o);
}

/* Loads what scales each head's queries by position: slopes and biases. */
static quire_err latent_load_growth(binding *b, weight_role slope, weight_role bias, int32_t n_heads,
                                    query_scale *out) {
    float *slopes, *biases;
    if (!b->d->attend.temperature_by_head) {
        return QUIRE_OK;
    }
    TRY(binding_vector(b, slope, "", "growth of its queries", n_heads, &slopes));
    TRY(binding_vector(b, bias, "", "growth of its queries", n_heads, &biases));
    *out = (query_scale){.slopes = slopes, .biases = biases};
    return QUIRE_OK;
}

static float one_unless(float factor) {
    return factor == 0.0f ? 1.0f : factor;
}

static quire_err latent_fill(binding *b, const latent_parts *w, int cache, latent_block *to) {
    const latent_desc *m = &w->m;
    const attend_desc *a = &b->d->attend;
    const int32_t n = w->n_heads;
    buffer latent, q, q_latent, absorbed, weighed, out;
    TRY(binding_buffer(b, BUFFER_LATENT, m->rank + m->d_rope, &latent));
    TRY(binding_buffer(b, BUFFER_Q, n * (m->d_nope + m->d_rope), &q));
    TRY(binding_buffer(b, BUFFER_ABSORBED, n * (m->rank + m->d_rope), &absorbed));
    TRY(binding_buffer(b, BUFFER_WEIGHED, n * m->rank, &weighed));
    TRY(binding_buffer(b, BUFFER_A, n * m->d_value, &out));
    q_latent = q;
    if (m->q_rank > 0) {
        TRY(binding_buffer(b, BUFFER_Q_LATENT, m->q_rank, &q_latent));
    }
    to->down[0] = (linear_use){w->q, q_latent};
    to->n_down = 1;
    if (w->writes_cache) {
        to->down[to->n_down++] = (linear_use){w->kv, latent};
    }
    if (w->gate != NULL) {
        buffer gate;
        TRY(binding_buffer(b, BUFFER_ATTN_GATE, n, &gate));
        to->down[to->n_down++] = (linear_use){w->gate, gate};
        to->gate = (multiply_use){.f = a->gate_f, .gate = gate, .x = out, .out = out};
        to->is_gated = true;
    }
    to->q_norm = w->q_norm;
    to->up = (linear_use){w->q_up, q};
    if (w->q_gate != NULL) {
        TRY(binding_buffer(b, BUFFER_Q_WIDE, 2 * m->q_rank, &to->wide));
        TRY(binding_buffer(b, BUFFER_ATTN_GATE, n * m->d_value, &to->up_gate.out));
        to->up_gate.w = w->q_gate;
        to->gate = (multiply_use){.f = ACT_SIGMOID, .gate = to->up_gate.out, .x = out, .out = out};
        to->is_gated = true;
    }
    to->store = (latent_store_use){.cache = w->layer->caches[cache],
                                   .latent = w->writes_cache ? latent : BUFFER_NONE,
                                   .rank = m->rank,
                                   .q = q,
                                   .n_heads = n,
                                   .nm = w->kv_norm,
                                   .rope = w->layer->rope >= 0 ? b->w->ropes[w->layer->rope] : NULL,
                                   .latent_scale = one_unless(m->latent_scale)};
    to->store.scale = (query_scale){.slope = a->temperature, .length = a->temperature_length};
    TRY(latent_load_growth(b, W_QUERY_SLOPE, W_QUERY_BIAS, n, &to->store.scale));
    to->absorb = (head_products_use){.w = w->keys, .n_kept = m->d_rope, .in = q, .out = absorbed};
    to->expand = (head_products_use){.w = w->values, .in = weighed, .out = out};
    to->mask = (attn_spec){.scale = b->d->attention_scale * one_unless(m->q_scale),
                           .causal = !b->d->two_sided,
                           .window = w->layer->window,
                           .soft_cap = a->cap,
                           .chosen = b->d->index.n_best > 0};
    return QUIRE_OK;
}

/* Computes queries and index queries from the queries' latent, which is normed in place
 * if they have gates. */
static void latent_run_queries(const pass *p, const latent_block *l) {
    const buffer latent = l->down[0].out;
    const linear_use index = index_of_latent(l->index), up[] = {l->up, index}, gated[] = {l->up, l->up_gate};
    if (l->up_gate.w == NULL) {
        p->op->norm_linears(p->b, latent, l->q_norm, up, index.w != NULL ? 2 : 1);
        return;
    }
    p->op->place(p->b, latent, p->d->latent.q_rank, l->wide);
    p->op->norm_rows(p->b, latent, l->q_norm, latent);
    p->op->place(p->b, latent, 0, l->wide);
    p->op->norm_linears(p->b, l->wide, NULL, gated, 2);
    if (index.w != NULL) {
        p->op->norm_linears(p->b, latent, NULL, &index, 1);
    }
}

static void latent_run(const pass *p, const decoder_op *o) {
    const latent_block *l = o->own;
    p->op->norm_linears(p->b, o->in, o->nm, l->down, l->n_down);
    if (l->up.w != NULL) {
        latent_run_queries(p, l);
    }
    index_run(p, l->index, o->in, o->nm);
    p->op->latent_store(p->b, &l->store);
    p->op->head_products(p->b, &l->absorb);
    p->op->attention(p->b, l->store.cache, l->absorb.out, &l->mask, l->expand.in);
    p->op->head_products(p->b, &l->expand);
    if (l->is_gated) {
        p->op->multiply(p->b, &l->gate);
    }
}

/* The widths of a layer's heads. */
static latent_desc latent_of_layer(const model_desc *d, const layer_desc *layer) {
    latent_desc m = d->latent;
    m.d_rope = desc_rotary_part(d, layer);
    m.d_nope += d->latent.d_rope - m.d_rope;
    return m;
}

quire_err latent_bind(binding *b, const layer_step *s) {
    assert(b != NULL);
    const layer_desc *layer = &b->d->layers[b->layer];
    latent_parts w = {.layer = layer,
                      .m = latent_of_layer(b->d, layer),
                      .n_heads = layer->n_heads,
                      .writes_cache = !binding_shares_cache(b)};
    latent_block *to;
    row_value in;
    TRY(binding_new(b, 1, sizeof *to, &to));
    TRY(latent_load(b, &w));
    TRY(latent_fill(b, &w, s->second ? CACHE_SECOND : CACHE_ATTENTION, to));
    index_block *index = NULL;
    if (!s->second) {
        TRY(index_bind(b, &index));
    }
    to->index = index;
    TRY(binding_read(b, s->from, &in));
    b->rows[s->to] = (row_value){.at = to->expand.out, .product = w.o};
    return binding_emit(b, (decoder_op){.run = latent_run, .in = in.at, .nm = in.nm, .own = to});
}
