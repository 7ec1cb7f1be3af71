/* A block that several layers run with the same weights, on their row and the embeddings'
 * row side by side: Zamba 2. Glorioso et al. 2024, arXiv:2411.15242.
 *
 *   h = norm([x, x0]);  q, k, v = h W^T + h A^T B^T;  a = attend(q, k, v) Wo^T
 *   n = norm(a);  gate, up = n W^T + n A^T B^T;  out = ((f(gate) * up) Wd^T) Wl^T
 * A and B, of low rank, and Wl belong to each layer. h: [M, 2 D]; a, n: [M, D]. */

#include "model/decoder.h"
#include <assert.h>

/* What the layers that share a block have in common. */
typedef struct shared_block {
    int32_t layer; /* the first of them, under whose names the weights are stored */
    norm *attn_norm, *ffn_norm;
    linear *q, *k, *v, *o, *gate, *up, *down;
} shared_block;

/* A low-rank product. */
typedef struct low_rank {
    linear_use first;
    const linear *second[2]; /* one per output buffer; second[1] NULL: only one */
} low_rank;

typedef struct shared_use {
    const shared_block *shared;
    buffer wide, q, k, v, a, row, gate, up, inner;
    low_rank adapters[3], ffn_adapter; /* for q, k, v; first.w NULL: none */
    kv_store_use store;
    attn_spec mask;
} shared_use;

/* ---- load ---- */

static quire_err shared_load_norm(binding *b, weight_role role, int32_t width, norm **out) {
    const norm_spec spec = {.kind = NORM_RMS, .width = width, .eps = b->d->norm_eps};
    return loader_norm(b->l, binding_name(b, role), b->layer, &spec, width, out);
}

static quire_err shared_load_block(binding *b, shared_block **out) {
    const layer_desc *layer = &b->d->layers[b->layer];
    const cache_desc *cache = &b->d->caches[layer->caches[CACHE_ATTENTION]];
    const int64_t width = b->d->d_model, q = (int64_t)layer->n_heads * cache->d_key,
                  kv = (int64_t)cache->n_kv_heads * cache->d_key;
    shared_block *s;
    TRY(binding_new(b, 1, sizeof *s, &s));
    s->layer = b->layer;
    TRY(shared_load_norm(b, W_SHARED_NORM, 2 * b->d->d_model, &s->attn_norm));
    TRY(shared_load_norm(b, W_FFN_NORM, b->d->d_model, &s->ffn_norm));
    TRY(binding_linear(b, W_Q, q, 2 * width, &s->q));
    TRY(binding_linear(b, W_K, kv, 2 * width, &s->k));
    TRY(binding_linear(b, W_V, kv, 2 * width, &s->v));
    TRY(binding_linear(b, W_O, width, q, &s->o));
    TRY(binding_pair(b, W_GATE_UP, layer->d_ff, width, &s->gate, &s->up));
    TRY(binding_linear(b, W_DOWN, width, layer->d_ff, &s->down));
    *out = s;
    return QUIRE_OK;
}

/* Finds a layer's block; the first layer that has it loads it. Files may repeat its
 * weights for the others. */
static quire_err shared_find_block(binding *b, int32_t number, shared_block **out) {
    static const weight_role again[] = {W_SHARED_NORM, W_FFN_NORM, W_Q, W_K, W_V, W_O, W_GATE_UP, W_DOWN};
    shared_block **known = &b->blocks[number % b->d->shared.n_blocks];
    const tensor_view *t;
    if (*known == NULL) {
        TRY(shared_load_block(b, known));
    }
    for (size_t i = 0; i < sizeof again / sizeof *again && (*known)->layer != b->layer; i++) {
        TRY(loader_find(b->l, binding_name(b, again[i]), b->layer, ".weight", &t));
    }
    *out = *known;
    return QUIRE_OK;
}

/* Loads the adapter of hybrid layer number `number`, stored under the names of the
 * block's first layer. n_out: of each of n second products. */
static quire_err shared_load_adapter(binding *b, const shared_block *s, const weight_role roles[2],
                                     int32_t number, int64_t n_in, int64_t n_out, int n, low_rank *to) {
    static const char *const suffixes[2] = {"gate", "up"};
    char memory[WEIGHT_NAME_BYTES];
    const int32_t rank = b->d->shared.adapter_rank;
    linear *first, *second;
    TRY(loader_linear(b->l, weight_name_at(binding_name(b, roles[0]), s->layer, number, memory), s->layer,
                      NULL, rank, n_in, &first));
    TRY(binding_buffer(b, BUFFER_RANK, rank, &to->first.out));
    to->first.w = first;
    for (int i = 0; i < n; i++) {
        weight_part part = {
            .suffix = suffixes[i], .n_rows = n * n_out, .first = i * n_out, .block = n_out, .step = n_out};
        TRY(loader_linear(b->l, weight_name_at(binding_name(b, roles[1]), s->layer, number, memory), s->layer,
                          n > 1 ? &part : NULL, n_out, rank, &second));
        to->second[i] = second;
    }
    return QUIRE_OK;
}

static quire_err shared_load_adapters(binding *b, int32_t number, shared_use *to) {
    static const weight_role roles[4][2] = {{W_Q_ADAPTER_A, W_Q_ADAPTER_B},
                                            {W_K_ADAPTER_A, W_K_ADAPTER_B},
                                            {W_V_ADAPTER_A, W_V_ADAPTER_B},
                                            {W_FFN_ADAPTER_A, W_FFN_ADAPTER_B}};
    const layer_desc *layer = &b->d->layers[b->layer];
    const cache_desc *cache = &b->d->caches[layer->caches[CACHE_ATTENTION]];
    const int64_t width = b->d->d_model;
    for (int i = 0; i < 3 && b->d->shared.has_attention_adapters; i++) {
        const int32_t n = i == 0 ? layer->n_heads : cache->n_kv_heads;
        TRY(shared_load_adapter(b, to->shared, roles[i], number, 2 * width, (int64_t)n * cache->d_key, 1,
                                &to->adapters[i]));
    }
    return shared_load_adapter(b, to->shared, roles[3], number, width, layer->d_ff, 2, &to->ffn_adapter);
}

static quire_err shared_reserve(binding *b, shared_use *to) {
    const layer_desc *layer = &b->d->layers[b->layer];
    const cache_desc *cache = &b->d->caches[layer->caches[CACHE_ATTENTION]];
    TRY(binding_buffer(b, BUFFER_WIDE, 2 * b->d->d_model, &to->wide));
    TRY(binding_buffer(b, BUFFER_Q, layer->n_heads * cache->d_key, &to->q));
    TRY(binding_buffer(b, BUFFER_K, cache->n_kv_heads * cache->d_key, &to->k));
    TRY(binding_buffer(b, BUFFER_V, cache->n_kv_heads * cache->d_key, &to->v));
    TRY(binding_buffer(b, BUFFER_A, layer->n_heads * cache->d_key, &to->a));
    TRY(binding_buffer(b, BUFFER_SHARED, b->d->d_model, &to->row));
    TRY(binding_buffer(b, BUFFER_H, layer->d_ff, &to->gate));
    TRY(binding_buffer(b, BUFFER_UP, layer->d_ff, &to->up));
    return binding_buffer(b, BUFFER_INNER, b->d->d_model, &to->inner);
}

/* ---- run ---- */

/* to_i += (rows A^T) B_i^T, with norm(rows). */
static void shared_run_adapter(const pass *p, const low_rank *a, buffer rows, const norm *nm,
                               const buffer *to) {
    if (a->first.w == NULL) {
        return;
    }
    p->op->norm_linears(p->b, rows, nm, &a->first, 1);
    for (int i = 0; i < 2 && a->second[i] != NULL; i++) {
        p->op->linear_add(p->b, a->first.out, &(linear_use){a->second[i], to[i]}, 1.0f, to[i]);
    }
}

static void shared_run(const pass *p, const decoder_op *o) {
    const shared_use *u = o->own;
    const shared_block *s = u->shared;
    const linear_use products[3] = {{s->q, u->q}, {s->k, u->k}, {s->v, u->v}};
    const linear_use halves[2] = {{s->gate, u->gate}, {s->up, u->up}};
    const buffer both[2] = {u->gate, u->up};
    p->op->place(p->b, o->in, 0, u->wide);
    p->op->norm_linears(p->b, u->wide, s->attn_norm, products, 3);
    for (int i = 0; i < 3; i++) {
        shared_run_adapter(p, &u->adapters[i], u->wide, s->attn_norm, &products[i].out);
    }
    p->op->kv_store(p->b, &u->store);
    p->op->attention(p->b, u->store.cache, u->q, &u->mask, u->a);
    p->op->norm_linears(p->b, u->a, NULL, &(linear_use){s->o, u->row}, 1);
    p->op->norm_linears(p->b, u->row, s->ffn_norm, halves, 2);
    shared_run_adapter(p, &u->ffn_adapter, u->row, s->ffn_norm, both);
    p->op->multiply(p->b,
                    &(multiply_use){.f = p->d->activation, .gate = u->gate, .x = u->up, .out = u->gate});
    p->op->norm_linears(p->b, u->gate, NULL, &(linear_use){s->down, u->inner}, 1);
}

/* Number of layers before this one that have a shared block. */
static int32_t shared_number(const binding *b) {
    int32_t n = 0;
    for (int32_t i = 0; i < b->layer; i++) {
        n += b->d->layers[i].n_heads > 0;
    }
    return n;
}

quire_err shared_bind(binding *b, const layer_step *s) {
    assert(b != NULL);
    const layer_desc *layer = &b->d->layers[b->layer];
    const int32_t number = shared_number(b);
    shared_block *block;
    shared_use *to;
    linear *out;
    row_value in;
    TRY(shared_find_block(b, number, &block));
    TRY(binding_new(b, 1, sizeof *to, &to));
    to->shared = block;
    TRY(shared_load_adapters(b, number, to));
    TRY(shared_reserve(b, to));
    TRY(binding_linear(b, W_SHARED_OUT, b->d->d_model, b->d->d_model, &out));
    to->store = (kv_store_use){.cache = layer->caches[CACHE_ATTENTION],
                               .q = to->q,
                               .k = to->k,
                               .v = to->v,
                               .rope = layer->rope >= 0 ? b->w->ropes[layer->rope] : NULL};
    to->mask = (attn_spec){.scale = b->d->attention_scale, .causal = !b->d->two_sided};
    TRY(binding_settle(b, s->from));
    TRY(binding_read(b, s->from, &in));
    b->rows[s->to] = (row_value){.at = to->inner, .product = out};
    return binding_emit(b, (decoder_op){.run = shared_run, .in = in.at, .own = to});
}
