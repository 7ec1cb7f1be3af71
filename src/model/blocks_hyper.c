/* Residual streams that halves of a layer read and write with coefficients computed per
 * row, and n-gram embeddings that are added to all streams.
 *
 * Hyper-connections: Zhu et al. 2024, arXiv:2409.19606, with mixing matrices made nearly
 * doubly stochastic by Sinkhorn's normalisation:
 *   w = coefficients(norm(S) fn^T);  A = sum of read_s S_s
 *   S_t = sum of mix_st S_s + write_t A'
 * A gated residual, with n = norm of each stream:
 *   A = mean of sigmoid(silu(n Wd^T / N) Wu^T) n;  S_t = S_t + 2 sigmoid(n Wi^T / N)_t A'
 * S: [M, N D]; A, A': [M, D]. */
#include <assert.h>
#include <math.h>

#include "base/mem.h"
#include "model/decoder.h"

/* What reads the streams, and what writes them afterwards. */
typedef struct stream_gate {
    buffer streams, normed, low, gates;
    const norm *nm;
    linear_use down[2]; /* products to `low` and to each stream's share; [1].w NULL: nothing is written */
    linear_use up;
    linear_use coefficients; /* for hyper-connections, instead of the above */
    hyper_use hyper;
    streams_read_use read;
} stream_gate;

static quire_err hyper_streams(binding *b, buffer_role role, buffer *out) {
    return binding_buffer(b, role, b->d->streams.n * b->d->d_model, out);
}

/* ---- hyper-connections ---- */

static quire_err hyper_load(binding *b, weight_role first, stream_gate *g) {
    const streams_desc *d = &b->d->streams;
    const int32_t n = d->n, width = n * b->d->d_model, n_weights = n * (n + 2);
    const weight_role scales = (weight_role)(first + 1), bases = (weight_role)(first + 2);
    const norm_spec bare = {.kind = NORM_RMS, .width = width, .eps = b->d->norm_eps};
    float *scale, *base;
    norm *nm;
    linear *w;
    TRY(b->l->b->ops->norm_load(b->l->b, &bare, &nm, b->l->err));
    TRY(binding_exact(b, first, n_weights, width, &w));
    TRY(binding_vector(b, scales, ".weight", "scales of its streams' coefficients", 3, &scale));
    TRY(binding_vector(b, bases, ".weight", "biases of its streams' coefficients", n_weights, &base));
    TRY(binding_buffer(b, BUFFER_STREAM_WEIGHTS, n_weights, &g->read.weights));
    g->nm = nm;
    g->coefficients = (linear_use){w, g->read.weights};
    g->hyper = (hyper_use){
        .x = g->read.weights, .n = n, .n_rounds = d->n_rounds, .eps = d->eps, .scale = scale, .base = base};
    return QUIRE_OK;
}

static void hyper_read_run(const pass *p, const decoder_op *o) {
    const stream_gate *g = o->own;
    p->op->norm_linears(p->b, g->streams, g->nm, &g->coefficients, 1);
    p->op->hyper_weights(p->b, &g->hyper);
    p->op->streams_read(p->b, &g->read);
}

/* ---- a gated residual ---- */

/* first: role of the norm; the products down and up follow and, except after the last
 * layer, the product for what streams take. */
static quire_err gated_load(binding *b, weight_role first, bool writes, stream_gate *g) {
    const streams_desc *d = &b->d->streams;
    const int32_t n = d->n, width = n * b->d->d_model;
    norm_spec spec = {.kind = NORM_RMS, .width = b->d->d_model, .eps = b->d->norm_eps};
    linear *down, *up, *write;
    norm *nm;
    spec.add_one = b->d->norm.add_one && !binding_is_gguf(b);
    TRY(loader_norm(b->l, binding_name(b, first), b->layer, &spec, width, &nm));
    TRY(binding_linear(b, (weight_role)(first + 1), d->rank, width, &down));
    TRY(binding_linear(b, (weight_role)(first + 2), width, d->rank, &up));
    TRY(hyper_streams(b, BUFFER_STREAMS_NORMED, &g->normed));
    TRY(hyper_streams(b, BUFFER_STREAM_GATES, &g->gates));
    TRY(binding_buffer(b, BUFFER_LOW, d->rank, &g->low));
    g->nm = nm;
    g->down[0] = (linear_use){down, g->low};
    g->up = (linear_use){up, g->gates};
    if (writes) {
        TRY(loader_router(b->l, binding_name(b, (weight_role)(first + 3)), b->layer, n, width, &write));
        TRY(binding_buffer(b, BUFFER_STREAM_WEIGHTS, n, &g->down[1].out));
        g->down[1].w = write;
    }
    g->read.streams = g->gates;
    g->read.weights = BUFFER_NONE;
    return QUIRE_OK;
}

static void gated_read_run(const pass *p, const decoder_op *o) {
    const stream_gate *g = o->own;
    const float part = 1.0f / (float)g->read.n;
    const bool writes = g->down[1].w != NULL;
    p->op->norm_rows(p->b, g->streams, g->nm, g->normed);
    p->op->norm_linears(p->b, g->normed, NULL, g->down, writes ? 2 : 1);
    p->op->scale_rows(p->b, part, g->low);
    p->op->multiply(p->b, &(multiply_use){.f = ACT_SIGMOID, .gate = g->low, .x = g->low, .out = g->low});
    if (writes) {
        p->op->scale_rows(p->b, part, g->down[1].out);
    }
    p->op->norm_linears(p->b, g->low, NULL, &g->up, 1);
    p->op->multiply(p->b,
                    &(multiply_use){.f = ACT_SIGMOID, .gate = g->gates, .x = g->normed, .out = g->gates});
    p->op->streams_read(p->b, &g->read);
}

/* ---- steps ---- */

/* Emits ops that read the streams into a buffer, with weights from role `first` on. */
static quire_err gather_to(binding *b, weight_role first, bool writes, buffer out) {
    const bool is_mixed = b->d->streams.kind == STREAMS_MIXED;
    stream_gate *g;
    TRY(binding_new(b, 1, sizeof *g, &g));
    TRY(hyper_streams(b, BUFFER_STREAMS, &g->streams));
    g->read = (streams_read_use){.streams = g->streams, .n = b->d->streams.n, .out = out};
    TRY(is_mixed ? hyper_load(b, first, g) : gated_load(b, first, writes, g));
    return binding_emit(b, (decoder_op){.run = is_mixed ? hyper_read_run : gated_read_run, .own = g});
}

quire_err streams_read_bind(binding *b, const layer_step *s) {
    assert(s != NULL);
    buffer out;
    TRY(binding_row(b, s->to, &out));
    TRY(gather_to(b, s->norm, true, out));
    b->rows[s->to] = (row_value){.at = out};
    return QUIRE_OK;
}

static void scatter_run(const pass *p, const decoder_op *o) {
    p->op->streams_write(p->b, o->own);
}

quire_err streams_write_bind(binding *b, const layer_step *s) {
    assert(b != NULL && s != NULL);
    const int32_t n = b->d->streams.n;
    const bool is_mixed = b->d->streams.kind == STREAMS_MIXED;
    streams_write_use *use;
    TRY(binding_settle(b, s->from));
    TRY(binding_new(b, 1, sizeof *use, &use));
    *use = (streams_write_use){.n = n, .y = b->rows[s->from].at, .f = ACT_SIGMOID, .gain = 2.0f};
    if (is_mixed) {
        use->is_mixed = true;
        use->column = n;
        use->mix = 2 * n;
        use->f = ACT_NONE;
        use->gain = 1.0f;
    }
    TRY(hyper_streams(b, BUFFER_STREAMS, &use->streams));
    TRY(binding_buffer(b, BUFFER_STREAM_WEIGHTS, is_mixed ? n * (n + 2) : n, &use->weights));
    return binding_emit(b, (decoder_op){.run = scatter_run, .own = use});
}

/* ---- before the first layer, and after the last ---- */

static void hyper_begin_run(const pass *p, const decoder_op *o) {
    for (int32_t i = 0; i < p->d->streams.n; i++) {
        p->op->place(p->b, o->in, i * p->d->d_model, o->out);
    }
}

quire_err hyper_bind(binding *b) {
    assert(b != NULL);
    const backend_ops *op = b->l->b->ops;
    buffer streams;
    TRY(binding_need_op(b, op->streams_read != NULL && op->streams_write != NULL && op->place != NULL,
                        "residual streams"));
    TRY(hyper_streams(b, BUFFER_STREAMS, &streams));
    return binding_emit(b, (decoder_op){.run = hyper_begin_run, .in = b->w->x, .out = streams});
}

static void hyper_mean_run(const pass *p, const decoder_op *o) {
    p->op->streams_read(p->b, o->own);
}

quire_err hyper_bind_end(binding *b) {
    assert(b != NULL);
    streams_read_use *use;
    if (b->d->streams.kind == STREAMS_GATED) {
        return gather_to(b, W_GATED_END_NORM, false, b->w->x);
    }
    TRY(binding_new(b, 1, sizeof *use, &use));
    *use = (streams_read_use){.n = b->d->streams.n, .weights = BUFFER_NONE, .out = b->w->x};
    TRY(hyper_streams(b, BUFFER_STREAMS, &use->streams));
    return binding_emit(b, (decoder_op){.run = hyper_mean_run, .own = use});
}

/* ---- n-grams ---- */

/* Embeddings of the last tokens give a value, and for each stream a key that gates it:
 *   v_s = gate(norm(key_s) . norm(S_s)) value;  S = S + v + silu(conv(norm(v))) */
typedef struct ngram_block {
    ngram_use rows;
    linear_use products[2]; /* products to keys and to the value */
    const norm *key_norm, *query_norm, *conv_norm;
    buffer streams, normed;
    stream_gates_use gates;
    multiply_use values;
    conv_use conv;
} ngram_block;

static void ngrams_run(const pass *p, const decoder_op *o) {
    const ngram_block *g = o->own;
    const buffer keys = g->products[0].out;
    p->op->ngrams(p->b, &g->rows);
    p->op->norm_linears(p->b, g->rows.out, NULL, g->products, 2);
    p->op->norm_rows(p->b, keys, g->key_norm, keys);
    p->op->norm_rows(p->b, g->streams, g->query_norm, g->normed);
    p->op->stream_gates(p->b, &g->gates);
    for (int32_t i = 0; i < p->d->streams.n; i++) {
        p->op->place(p->b, g->products[1].out, i * p->d->d_model, keys);
    }
    p->op->multiply(p->b, &g->values);
    p->op->norm_rows(p->b, keys, g->conv_norm, g->normed);
    p->op->conv(p->b, &g->conv);
    p->op->norm_add(p->b, keys, NULL, 1.0f, g->streams);
    p->op->norm_add(p->b, g->normed, NULL, 1.0f, g->streams);
}

static quire_err ngrams_load_norm(binding *b, weight_role role, const norm **out) {
    norm_spec spec = {.kind = NORM_RMS, .width = b->d->d_model, .eps = b->d->norm_eps};
    norm *nm;
    spec.add_one = b->d->norm.add_one && !binding_is_gguf(b);
    TRY(loader_norm(b->l, binding_name(b, role), b->layer, &spec, b->d->streams.n * b->d->d_model, &nm));
    *out = nm;
    return QUIRE_OK;
}

/* Loads a convolution over every n-th token as one over all, with zero taps between. */
static quire_err ngrams_load_conv(binding *b, ngram_block *g) {
    const ngram_desc *d = &b->d->ngrams;
    const weight_name name = binding_name(b, W_NGRAM_CONV);
    const int32_t n_channels = b->d->streams.n * b->d->d_model, n_taps = (d->n_taps - 1) * d->n + 1;
    conv_taps *w = NULL;
    float *some;
    TRY(loader_taps(b->l, &name, 1, b->layer, n_channels, d->n_taps, &some));
    float *taps = mem_new((size_t)n_channels, (size_t)n_taps * sizeof *taps);
    quire_err e = mem_check(taps);
    for (int32_t i = 0; e == QUIRE_OK && i < n_channels * d->n_taps; i++) {
        taps[(int64_t)(i / d->n_taps) * n_taps + (int64_t)(i % d->n_taps) * d->n] = some[i];
    }
    const tensor_view view = {.name = "taps of n-grams",
                              .type = DTYPE_F32,
                              .n_dims = 2,
                              .dims = {n_channels, n_taps, 1, 1},
                              .data = taps,
                              .n_bytes = (size_t)n_channels * (size_t)n_taps * sizeof *taps};
    TRY_DONE(e, b->l->b->ops->conv_load(b->l->b, &view, NULL, &w, b->l->err));
done:
    mem_free(some);
    mem_free(taps);
    g->conv = (conv_use){.cache = b->d->layers[b->layer].caches[CACHE_NGRAM_CONV],
                         .w = w,
                         .f = ACT_SILU,
                         .x = g->normed,
                         .out = g->normed};
    return e;
}

/* Loads the table: one tensor, or several, equally long except for the last. */
static quire_err ngrams_load_tables(binding *b, ngram_block *g) {
    const ngram_desc *d = &b->d->ngrams;
    const int32_t n = (int32_t)(((int64_t)d->n_rows + d->rows_each - 1) / d->rows_each);
    embedding **tables;
    TRY(binding_new(b, (size_t)n, sizeof *tables, &tables));
    for (int32_t i = 0; i < n; i++) {
        char memory[WEIGHT_NAME_BYTES];
        const weight_name name = weight_name_at(binding_name(b, W_NGRAM_TABLE), b->layer, i, memory);
        const int32_t left = d->n_rows - i * d->rows_each;
        TRY(loader_rows(b->l, name, left < d->rows_each ? left : d->rows_each, d->d_head, &tables[i]));
    }
    g->rows.tables = (const embedding *const *)tables;
    g->rows.rows_each = d->rows_each;
    return QUIRE_OK;
}

static quire_err ngrams_load(binding *b, ngram_block *g) {
    const ngram_desc *d = &b->d->ngrams;
    const int32_t n = b->d->streams.n, width = b->d->d_model, n_in = (d->n - 1) * d->n_heads * d->d_head;
    linear *keys, *value;
    TRY(ngrams_load_tables(b, g));
    TRY(binding_linear(b, W_NGRAM_KEY, n * width, n_in, &keys));
    TRY(binding_linear(b, W_NGRAM_VALUE, width, n_in, &value));
    TRY(ngrams_load_norm(b, W_NGRAM_KEY_NORM, &g->key_norm));
    TRY(ngrams_load_norm(b, W_NGRAM_QUERY_NORM, &g->query_norm));
    TRY(ngrams_load_norm(b, W_NGRAM_CONV_NORM, &g->conv_norm));
    g->products[0].w = keys;
    g->products[1].w = value;
    return ngrams_load_conv(b, g);
}

quire_err ngrams_bind(binding *b, const layer_step *s) {
    assert(b != NULL);
    const ngram_desc *d = &b->d->ngrams;
    const int32_t n = b->d->streams.n;
    ngram_block *g;
    (void)s;
    TRY(binding_need_op(b, b->l->b->ops->ngrams != NULL, "rows of n-grams"));
    TRY(binding_new(b, 1, sizeof *g, &g));
    g->rows = (ngram_use){.cache = b->d->layers[b->layer].caches[CACHE_NGRAMS], .d = d};
    TRY(binding_buffer(b, BUFFER_NGRAMS, (d->n - 1) * d->n_heads * d->d_head, &g->rows.out));
    TRY(hyper_streams(b, BUFFER_STREAM_GATES, &g->products[0].out));
    TRY(binding_buffer(b, BUFFER_NGRAM_VALUES, b->d->d_model, &g->products[1].out));
    TRY(hyper_streams(b, BUFFER_STREAMS, &g->streams));
    TRY(hyper_streams(b, BUFFER_STREAMS_NORMED, &g->normed));
    g->gates = (stream_gates_use){
        .a = g->products[0].out, .b = g->normed, .n = n, .scale = 1.0f / sqrtf((float)b->d->d_model)};
    TRY(binding_buffer(b, BUFFER_STREAM_WEIGHTS, n, &g->gates.out));
    g->values = (multiply_use){
        .f = ACT_NONE, .gate = g->gates.out, .x = g->products[0].out, .out = g->products[0].out};
    TRY(ngrams_load(b, g));
    return binding_emit(b, (decoder_op){.run = ngrams_run, .own = g});
}

/* ---- a low-rank gate on a row ---- */

typedef struct rank_gate {
    buffer row, low, gates;
    linear_use down, up;
} rank_gate;

static void gate_run(const pass *p, const decoder_op *o) {
    const rank_gate *g = o->own;
    p->op->norm_linears(p->b, g->row, NULL, &g->down, 1);
    p->op->multiply(p->b, &(multiply_use){.f = ACT_SIGMOID, .gate = g->low, .x = g->low, .out = g->low});
    p->op->norm_linears(p->b, g->low, NULL, &g->up, 1);
    p->op->multiply(p->b, &(multiply_use){.f = ACT_SIGMOID, .gate = g->gates, .x = g->row, .out = g->row});
}

quire_err gate_bind(binding *b, const layer_step *s) {
    assert(b != NULL && s != NULL);
    const int32_t rank = b->d->norm.gate_rank, width = b->d->d_model;
    rank_gate *g;
    linear *down, *up;
    TRY(binding_settle(b, s->to));
    TRY(binding_new(b, 1, sizeof *g, &g));
    TRY(binding_linear(b, s->norm, rank, width, &down));
    TRY(binding_linear(b, (weight_role)(s->norm + 1), width, rank, &up));
    TRY(binding_buffer(b, BUFFER_LOW, rank, &g->low));
    TRY(binding_buffer(b, BUFFER_PROJECTED, width, &g->gates));
    g->row = b->rows[s->to].at;
    g->down = (linear_use){down, g->low};
    g->up = (linear_use){up, g->gates};
    return binding_emit(b, (decoder_op){.run = gate_run, .own = g});
}
