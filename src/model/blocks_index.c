/* Selection of the keys that a row reads, before attention: index keys and queries, and
 * the heads' weights.
 *
 *   k = norm(h Wk^T), of pools: softmax over the pool of (h Wg^T + places) times k, or
 *   the norm of the mean;  q = norm(r Wq^T);  choose(q, k, h Ww^T)
 * h: the row that attention reads; r: the same, or the row from which queries are
 * computed. */
#include <assert.h>
#include <math.h>

#include "base/mem.h"
#include "model/decoder.h"

#define LAYER_NORM_EPS 1e-6f /* of its layer norms; independent of the model's epsilon */

typedef struct index_block {
    linear_use down[4]; /* products of the row: keys, weights, gates, queries */
    int32_t n_down;
    linear_use up; /* product of the queries' latent, or of the row normed again; w NULL: included in down */
    const norm *row_norm;        /* second norm of the row */
    buffer row;                  /* the row, if it is normed twice */
    const norm *q_norm, *k_norm; /* NULL: none */
    bool has_pools, has_means;
    pool_use pool;
    conv_use mean;
    latent_store_use store;
    choose_use choose;
} index_block;

/* ---- load ---- */

static quire_err index_load_norm(binding *b, weight_role role, const norm **out) {
    const index_desc *x = &b->d->index;
    norm_spec spec = {.kind = NORM_LAYER, .width = x->d_head, .eps = LAYER_NORM_EPS};
    norm *nm;
    if (x->rms_norms) {
        spec = (norm_spec){.kind = NORM_RMS, .width = x->d_head, .eps = b->d->norm_eps};
        spec.add_one = b->d->norm.add_one && !binding_is_gguf(b);
    }
    TRY(loader_norm(b->l, binding_name(b, role), b->layer, &spec, x->d_head, &nm));
    *out = nm;
    return QUIRE_OK;
}

/* Loads queries or keys, from one tensor if the file stores them together. */
static quire_err index_load_linear(binding *b, weight_role role, int32_t n_in, int32_t n_out, int32_t first,
                                   linear **out) {
    const index_desc *x = &b->d->index;
    const int32_t n_rows = (x->n_heads + 1) * x->d_head;
    const weight_part part = {.suffix = role == W_INDEX_Q ? "q" : "k",
                              .n_rows = n_rows,
                              .first = first,
                              .block = n_out,
                              .step = n_rows};
    if (binding_has(b, W_INDEX_QK)) {
        return loader_linear(b->l, binding_name(b, W_INDEX_QK), b->layer, &part, n_out, n_in, out);
    }
    return binding_linear(b, role, n_out, n_in, out);
}

static quire_err index_load_queries(binding *b, index_block *to) {
    const index_desc *x = &b->d->index;
    const int32_t width = b->d->d_model, n_out = x->n_heads * x->d_head,
                  n_in = x->source == INDEX_OF_LATENT ? b->d->latent.q_rank : width;
    const norm_spec spec = {.kind = NORM_LAYER, .width = width, .eps = LAYER_NORM_EPS};
    linear *w;
    norm *nm;
    buffer q;
    TRY(index_load_linear(b, W_INDEX_Q, n_in, n_out, 0, &w));
    TRY(binding_buffer(b, BUFFER_INDEX_Q, n_out, &q));
    if (x->source == INDEX_OF_ROW) {
        to->down[to->n_down++] = (linear_use){w, q};
    } else {
        to->up = (linear_use){w, q};
    }
    if (x->source == INDEX_OF_NORMED_ROW) {
        TRY(loader_norm(b->l, binding_name(b, W_INDEX_Q_NORM), b->layer, &spec, width, &nm));
        TRY(binding_buffer(b, BUFFER_PROJECTED, width, &to->row));
        to->row_norm = nm;
    } else if (x->rms_norms) {
        TRY(index_load_norm(b, W_INDEX_Q_NORM, &to->q_norm));
    }
    to->store.q = to->choose.q = q;
    return QUIRE_OK;
}

static quire_err index_load_weights(binding *b, index_block *to) {
    const index_desc *x = &b->d->index;
    linear *w;
    to->choose.weights = BUFFER_NONE;
    if (x->unweighed) {
        return QUIRE_OK;
    }
    TRY(loader_router(b->l, binding_name(b, W_INDEX_WEIGHTS), b->layer, x->n_heads, b->d->d_model, &w));
    TRY(binding_buffer(b, BUFFER_INDEX_WEIGHTS, x->n_heads, &to->choose.weights));
    to->down[to->n_down++] = (linear_use){w, to->choose.weights};
    return QUIRE_OK;
}

/* ---- pools ---- */

/* Keys of pools weighted by gates: products of the row, plus a number per position. */
static quire_err index_load_gates(binding *b, buffer k, index_block *to) {
    const index_desc *x = &b->d->index;
    linear *w;
    buffer gate;
    float *places;
    TRY(binding_exact(b, W_INDEX_GATE, x->d_head, b->d->d_model, &w));
    TRY(binding_buffer(b, BUFFER_INDEX_GATE, x->d_head, &gate));
    TRY(loader_matrix(b->l, binding_name(b, W_INDEX_PLACES), b->layer, binding_is_gguf(b) ? ".weight" : "",
                      x->block, x->d_head, &places));
    TRY(binding_keep(b, places));
    to->down[to->n_down++] = (linear_use){w, gate};
    to->has_pools = true;
    to->pool = (pool_use){.cache = b->d->layers[b->layer].caches[CACHE_CONV],
                          .n = x->block,
                          .x = k,
                          .gate = gate,
                          .bias = places,
                          .out = k};
    return QUIRE_OK;
}

/* Keys of pools as means of their keys: a convolution with equal taps. */
static quire_err index_make_means(binding *b, buffer k, index_block *to) {
    const index_desc *x = &b->d->index;
    const size_t n = (size_t)x->d_head * (size_t)x->block;
    conv_taps *w;
    float *taps = mem_new(n, sizeof *taps);
    TRY(mem_check(taps));
    for (size_t i = 0; i < n; i++) {
        taps[i] = 1.0f / (float)x->block;
    }
    const tensor_view view = {.name = "the mean of keys",
                              .type = DTYPE_F32,
                              .n_dims = 2,
                              .dims = {x->d_head, x->block, 1, 1},
                              .data = taps,
                              .n_bytes = n * sizeof *taps};
    const quire_err e = b->l->b->ops->conv_load(b->l->b, &view, NULL, &w, b->l->err);
    mem_free(taps);
    TRY(e);
    to->has_means = true;
    to->mean = (conv_use){
        .cache = b->d->layers[b->layer].caches[CACHE_CONV], .w = w, .f = ACT_NONE, .x = k, .out = k};
    return QUIRE_OK;
}

static quire_err index_load_keys(binding *b, index_block *to) {
    const index_desc *x = &b->d->index;
    linear *w;
    buffer k;
    TRY(index_load_linear(b, W_INDEX_K, b->d->d_model, x->d_head, x->n_heads * x->d_head, &w));
    TRY(binding_buffer(b, BUFFER_INDEX_K, x->d_head, &k));
    TRY(index_load_norm(b, W_INDEX_K_NORM, &to->k_norm));
    to->down[to->n_down++] = (linear_use){w, k};
    to->store.latent = k;
    if (x->kind != CHOOSE_POOLS) {
        return QUIRE_OK;
    }
    return x->gated_pools ? index_load_gates(b, k, to) : index_make_means(b, k, to);
}

/* ---- the block ---- */

/* Loads what scales each head's queries by position. */
static quire_err index_load_growth(binding *b, index_block *to) {
    float *slopes, *biases;
    if (!b->d->attend.temperature_by_head) {
        return QUIRE_OK;
    }
    TRY(binding_vector(b, W_INDEX_SLOPE, "", "growth of its queries", b->d->index.n_heads, &slopes));
    TRY(binding_vector(b, W_INDEX_BIAS, "", "growth of its queries", b->d->index.n_heads, &biases));
    to->store.scale = (query_scale){.slopes = slopes, .biases = biases};
    return QUIRE_OK;
}

static const rope *index_rope(const binding *b, int32_t number) {
    return number >= 0 && b->d->layers[b->layer].rope >= 0 ? b->w->ropes[number] : NULL;
}

/* Most keys that a row reads; no row sees more. */
static int32_t index_n_best(const binding *b) {
    const index_desc *x = &b->d->index;
    const int32_t block = x->block > 1 ? x->block : 1,
                  most = (b->l->max_positions + block - 1) / block * block;
    return x->n_best < most ? x->n_best : most;
}

quire_err index_bind(binding *b, index_block **out) {
    assert(b != NULL);
    const index_desc *x = &b->d->index;
    const int cache = b->d->layers[b->layer].caches[CACHE_SECOND];
    index_block *to;
    *out = NULL;
    if (x->n_best == 0 || cache < 0) {
        return QUIRE_OK;
    }
    TRY(binding_need_op(b, b->l->b->ops->choose != NULL && b->l->b->ops->pool != NULL, "choice of keys"));
    TRY(binding_new(b, 1, sizeof *to, &to));
    to->store = (latent_store_use){.cache = cache,
                                   .n_heads = x->n_heads,
                                   .rope = index_rope(b, x->rope),
                                   .key_rope = index_rope(b, x->key_rope),
                                   .latent_scale = 1.0f};
    const float heads = x->unweighed ? 1.0f : (float)x->n_heads;
    to->choose = (choose_use){.kind = x->kind,
                              .cache = cache,
                              .n_heads = x->n_heads,
                              .scale = 1.0f / sqrtf(heads * (float)x->d_head),
                              .n_best = index_n_best(b),
                              .block = x->block,
                              .n_own = x->n_own};
    TRY(index_load_keys(b, to));
    TRY(index_load_weights(b, to));
    TRY(index_load_queries(b, to));
    TRY(index_load_growth(b, to));
    b->l->b->ops->choose_reserve(b->l->b, choose_lists(x->kind, x->n_heads),
                                 choose_room(x->kind, to->choose.n_best, x->block));
    *out = to;
    return QUIRE_OK;
}

linear_use index_of_latent(const index_block *x) {
    return x != NULL && x->row_norm == NULL ? x->up : (linear_use){NULL, BUFFER_NONE};
}

/* Computes index keys as they are stored. */
static void index_run_keys(const pass *p, const index_block *x) {
    const buffer k = x->store.latent;
    if (x->has_means) {
        p->op->conv(p->b, &x->mean);
    }
    p->op->norm_rows(p->b, k, x->k_norm, k);
    if (x->has_pools) {
        p->op->pool(p->b, &x->pool);
    }
}

void index_run(const pass *p, const index_block *x, buffer in, const norm *nm) {
    if (x == NULL) {
        return;
    }
    p->op->norm_linears(p->b, in, nm, x->down, x->n_down);
    if (x->row_norm != NULL) {
        const buffer row = nm != NULL ? x->row : in;
        if (nm != NULL) {
            p->op->norm_rows(p->b, in, nm, row);
        }
        p->op->norm_linears(p->b, row, x->row_norm, &x->up, 1);
    }
    if (x->q_norm != NULL) {
        p->op->norm_rows(p->b, x->store.q, x->q_norm, x->store.q);
    }
    index_run_keys(p, x);
    p->op->latent_store(p->b, &x->store);
    p->op->choose(p->b, &x->choose);
}
