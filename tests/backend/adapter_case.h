/* A one-layer model with every op that an adapter can change, and random adapters. */
#ifndef TESTS_ADAPTER_CASE_H
#define TESTS_ADAPTER_CASE_H

#include "backend/cpu/math.h"
#include "backend/linear_cases.h"
#include "core/half.h"
#include "test.h"

enum {
    D = 256,
    F = 288,
    V = 300,
    X_F = 64,
    N_X = 4,
    N_USED = 2,
    HEADS = 2,
    HEAD_IN = 64,
    HEAD_OUT = 40,
    KEPT = 8
};
enum { CASE_ROWS = 90, CASE_OUT = 20, CASE_ADAPTERS = 5, CASE_RANK = 40 };

/* Indices of the linears. Each expert has three, each head one. */
enum {
    L_Q,
    L_K,
    L_GATE,
    L_UP,
    L_DOWN,
    L_ROUTER,
    L_HEAD,
    L_X,
    L_HEADS = L_X + 3 * N_X,
    N_LINEARS = L_HEADS + HEADS
};

typedef struct linear_case {
    int32_t n_out, n_in;
    bool has_bias;
} linear_case;

static inline linear_case case_of(int i) {
    static const linear_case first[] = {{HEADS * (HEAD_IN + KEPT), D, true},
                                        {77, D, false},
                                        {F, D, false},
                                        {F, D, true},
                                        {D, F, true},
                                        {N_X, D, false},
                                        {V, D, false}};
    static const linear_case of_expert[] = {{X_F, D, false}, {X_F, D, true}, {D, X_F, false}};
    return i < L_X       ? first[i]
           : i < L_HEADS ? of_expert[(i - L_X) % 3]
                         : (linear_case){HEAD_OUT, HEAD_IN, false};
}

/* What an adapter changes in one linear. */
typedef struct changed_linear {
    int32_t rank; /* rank of the low-rank update; 0: none */
    dtype a_type, b_type;
    float scale, *a, *b; /* a [rank, n_in], b [n_out, rank], rounded to their types */
    float *factors, *bias, *instead;
} changed_linear;

typedef struct adapter_case {
    changed_linear w[N_LINEARS], rows; /* rows: the embedding, a [rank, V], b [D, rank], instead [V, D] */
    float *norms[2];                   /* [D] new weights of n1 and n2; NULL: unchanged */
} adapter_case;

typedef struct case_options {
    compute_mode mode;
    const char *isa;
    int32_t n_threads, max_adapters;
    bool mixed;                 /* weights of quantised and 16-bit types; false: all f32 */
    const adapter_case *merged; /* an adapter to merge into the weights; NULL: none */
} case_options;

typedef struct model_case {
    backend *b;
    linear *w[N_LINEARS];
    norm *n1, *n2;
    embedding *tokens;
    experts *x_w;
    head_linears *heads;
    routing r;
    buffer x, q, k, logits, y, h, out;
} model_case;

static inline float *random_floats(size_t n, float size, uint64_t *seed) {
    float *v = malloc(n * sizeof *v);
    for (size_t i = 0; i < n; i++) {
        v[i] = random_float(seed) * size;
    }
    return v;
}

static inline float rounded_to(dtype t, float f) {
    return t == DTYPE_F16 ? f16_to_f32(f32_to_f16(f)) : t == DTYPE_BF16 ? bf16_to_f32(f32_to_bf16(f)) : f;
}

static inline tensor_view floats_view(const char *name, int32_t rows, int32_t columns, const float *v) {
    tensor_view t = matrix_view(DTYPE_F32, rows, columns, v);
    t.name = name;
    return t;
}

static inline tensor_view vector_view(const char *name, int32_t n, const float *v) {
    return (tensor_view){.name = name,
                         .type = DTYPE_F32,
                         .n_dims = 1,
                         .dims = {n, 1, 1, 1},
                         .data = v,
                         .n_bytes = sizeof *v * (size_t)n};
}

/* Returns v converted to a type, as a tensor. The caller frees *bytes. */
static inline tensor_view typed_view(const char *name, dtype t, int32_t rows, int32_t columns, const float *v,
                                     void **bytes) {
    const size_t n = (size_t)rows * (size_t)columns;
    uint16_t *halves = malloc(n * sizeof(float));
    for (size_t i = 0; i < n; i++) {
        halves[i] = t == DTYPE_F16 ? f32_to_f16(v[i]) : f32_to_bf16(v[i]);
    }
    if (t == DTYPE_F32) {
        memcpy(halves, v, n * sizeof *v);
    }
    *bytes = halves;
    tensor_view view = matrix_view(t, rows, columns, halves);
    view.name = name;
    return view;
}

static inline changed_linear random_change(int32_t n_out, int32_t n_in, uint64_t *seed) {
    static const dtype types[] = {DTYPE_F32, DTYPE_F16, DTYPE_BF16};
    static const int32_t ranks[] = {0, 1, 3, 4, 8, 16, 17, 40};
    changed_linear c = {.rank = ranks[rng_next(seed) % 8],
                        .a_type = types[rng_next(seed) % 3],
                        .b_type = types[rng_next(seed) % 3],
                        .scale = 0.25f + random_float(seed) * 0.2f};
    c.a = random_floats((size_t)c.rank * (size_t)n_in, 0.1f, seed);
    c.b = random_floats((size_t)n_out * (size_t)c.rank, 0.5f, seed);
    for (int32_t i = 0; i < c.rank * n_in; i++) {
        c.a[i] = rounded_to(c.a_type, c.a[i]);
    }
    for (int32_t i = 0; i < n_out * c.rank; i++) {
        c.b[i] = rounded_to(c.b_type, c.b[i]);
    }
    return c;
}

/* Makes a random adapter. */
static inline adapter_case *adapter_case_new(uint64_t seed) {
    adapter_case *c = calloc(1, sizeof *c);
    for (int i = 0; i < N_LINEARS; i++) {
        const linear_case l = case_of(i);
        c->w[i] = random_change(l.n_out, l.n_in, &seed);
        if (rng_next(&seed) % 3 == 0) {
            c->w[i].bias = random_floats((size_t)l.n_out, 0.3f, &seed);
        }
        if (rng_next(&seed) % 3 == 0) {
            c->w[i].factors = random_floats((size_t)l.n_out, 1.0f, &seed);
        }
        if (rng_next(&seed) % 4 == 0) {
            c->w[i].instead = random_floats((size_t)l.n_out * (size_t)l.n_in, 0.1f, &seed);
        }
    }
    c->rows = random_change(D, V, &seed);
    c->rows.instead = rng_next(&seed) % 2 == 0 ? random_floats((size_t)V * D, 1.0f, &seed) : NULL;
    for (int i = 0; i < 2; i++) {
        c->norms[i] = rng_next(&seed) % 2 == 0 ? random_floats(D, 1.0f, &seed) : NULL;
    }
    return c;
}

static inline void change_free(changed_linear *c) {
    free(c->a);
    free(c->b);
    free(c->factors);
    free(c->bias);
    free(c->instead);
}

static inline void adapter_case_free(adapter_case *c) {
    for (int i = 0; i < N_LINEARS; i++) {
        change_free(&c->w[i]);
    }
    change_free(&c->rows);
    free(c->norms[0]);
    free(c->norms[1]);
    free(c);
}

/* Applies a change to w [n_out, n_in], computing in double. */
static inline void merge(const changed_linear *c, int32_t n_out, int32_t n_in, float *w) {
    for (int32_t n = 0; n < n_out; n++) {
        for (int32_t k = 0; k < n_in; k++) {
            double sum = (double)(c->instead != NULL ? c->instead : w)[n * n_in + k];
            for (int32_t r = 0; r < c->rank; r++) {
                sum += (double)c->scale * (double)c->b[n * c->rank + r] * (double)c->a[r * n_in + k];
            }
            w[n * n_in + k] = (float)(sum * (c->factors != NULL ? (double)c->factors[n] : 1.0));
        }
    }
}

static inline void must(quire_err e, const quire_error *err) {
    if (e != QUIRE_OK) {
        fail_msg("%s", err->message);
    }
}

static inline linear *load_case(model_case *m, const case_options *o, int i) {
    static const dtype types[] = {DTYPE_Q4_K, DTYPE_F32, DTYPE_Q8_0, DTYPE_BF16, DTYPE_Q4_0, DTYPE_F16};
    const linear_case l = case_of(i);
    const dtype t = !o->mixed || i == L_ROUTER ? DTYPE_F32
                    : i == L_DOWN              ? DTYPE_Q4_0
                    : l.n_in % 256 != 0        ? DTYPE_Q8_0
                                               : types[i % 6];
    uint64_t seed = (uint64_t)i + 1;
    void *bytes = t == DTYPE_F32 ? (void *)random_floats((size_t)l.n_out * (size_t)l.n_in, 0.1f, &seed)
                                 : (void *)random_weights(t, (size_t)l.n_out * (size_t)l.n_in, &seed);
    float *bias = random_floats((size_t)l.n_out, 0.3f, &seed);
    bool has_bias = l.has_bias;
    if (o->merged != NULL) {
        merge(&o->merged->w[i], l.n_out, l.n_in, bytes);
        if (o->merged->w[i].bias != NULL) {
            memcpy(bias, o->merged->w[i].bias, sizeof *bias * (size_t)l.n_out);
            has_bias = true;
        }
    }
    const tensor_view w = matrix_view(t, l.n_out, l.n_in, bytes), v = vector_view("b", l.n_out, bias);
    linear *out = NULL;
    quire_error err;
    must(m->b->ops->linear_load(m->b, &(linear_spec){.weight = &w, .bias = has_bias ? &v : NULL}, &out, &err),
         &err);
    free(bytes);
    free(bias);
    return out;
}

static inline norm *load_case_norm(model_case *m, const case_options *o, int i) {
    uint64_t seed = 100 + (uint64_t)i;
    float *w = random_floats(D, 1.0f, &seed);
    const bool is_merged = o->merged != NULL && o->merged->norms[i] != NULL;
    const tensor_view v = vector_view("n", D, is_merged ? o->merged->norms[i] : w);
    norm *out = NULL;
    quire_error err;
    must(m->b->ops->norm_load(m->b, &(norm_spec){.width = D, .eps = 1e-5f, .weight = &v}, &out, &err), &err);
    free(w);
    return out;
}

static inline void load_case_rows(model_case *m, const case_options *o) {
    uint64_t seed = 200;
    quire_error err;
    float *rows = random_floats((size_t)V * D, 1.0f, &seed);
    if (o->merged != NULL) {
        const changed_linear *c = &o->merged->rows;
        for (int32_t i = 0; i < V * D; i++) {
            double sum = (double)(c->instead != NULL ? c->instead : rows)[i];
            for (int32_t r = 0; r < c->rank; r++) {
                sum += (double)c->scale * (double)c->b[i % D * c->rank + r] * (double)c->a[r * V + i / D];
            }
            rows[i] = (float)sum;
        }
    }
    const tensor_view v = matrix_view(DTYPE_F32, V, D, rows);
    must(m->b->ops->embedding_load(m->b, &v, &m->tokens, &err), &err);
    free(rows);
}

/* Opens a model. Its b is NULL if this processor lacks the instruction set. */
static inline model_case case_open(const case_options *o) {
    model_case m = {.b = open_isa(o->isa, o->mode, o->n_threads)};
    quire_error err;
    if (m.b == NULL) {
        return m;
    }
    const backend_ops *ops = m.b->ops;
    linear *gates[N_X], *ups[N_X], *downs[N_X];
    for (int i = 0; i < N_LINEARS; i++) {
        m.w[i] = load_case(&m, o, i);
    }
    for (int e = 0; e < N_X; e++) {
        gates[e] = m.w[L_X + 3 * e];
        ups[e] = m.w[L_X + 3 * e + 1];
        downs[e] = m.w[L_X + 3 * e + 2];
    }
    m.r = (routing){.n_experts = N_X, .n_used = N_USED, .score = ROUTE_SOFTMAX, .scale = 1.0f};
    must(ops->experts_load(m.b, &(experts_weights){.routing = &m.r, .gate = gates, .up = ups, .down = downs},
                           &m.x_w, &err),
         &err);
    must(ops->head_linears_load(m.b, m.w + L_HEADS, HEADS, &m.heads, &err), &err);
    m.n1 = load_case_norm(&m, o, 0);
    m.n2 = load_case_norm(&m, o, 1);
    load_case_rows(&m, o);
    m.x = ops->buffer_reserve(m.b, D);
    m.q = ops->buffer_reserve(m.b, HEADS * (HEAD_IN + KEPT));
    m.k = ops->buffer_reserve(m.b, 77);
    m.logits = ops->buffer_reserve(m.b, N_X);
    m.y = ops->buffer_reserve(m.b, D);
    m.h = ops->buffer_reserve(m.b, F);
    m.out = ops->buffer_reserve(m.b, HEADS * (HEAD_OUT + KEPT));
    const step_limits limits = {.max_rows = CASE_ROWS,
                                .max_seqs = 1,
                                .max_out = CASE_OUT,
                                .max_adapters = o->max_adapters,
                                .max_rank = CASE_RANK};
    must(ops->step_open(m.b, &limits, NULL, V, &err), &err);
    return m;
}

static inline void case_close(model_case *m) {
    m->b->ops->close(m->b);
}

/* Loads an adapter into the model's backend. */
static inline adapter *case_adapter(const model_case *m, const adapter_case *c) {
    adapter_change changes[N_LINEARS + 3];
    tensor_view a[N_LINEARS + 1], b[N_LINEARS + 1], instead[N_LINEARS + 1], norms[2];
    linear_spec specs[N_LINEARS];
    norm_spec norm_specs[2];
    void *bytes[2 * (N_LINEARS + 1)];
    int32_t n = 0, n_bytes = 0;
    for (int i = 0; i <= N_LINEARS; i++) {
        const changed_linear *w = i < N_LINEARS ? &c->w[i] : &c->rows;
        const linear_case l = i < N_LINEARS ? case_of(i) : (linear_case){D, V, false};
        adapter_change *to = &changes[n++];
        *to = (adapter_change){.w = i < N_LINEARS ? m->w[i] : NULL,
                               .rows = i < N_LINEARS ? NULL : m->tokens,
                               .scale = w->scale,
                               .factors = w->factors,
                               .bias = w->bias};
        if (w->rank > 0) {
            a[i] = typed_view("lora_A", w->a_type, w->rank, l.n_in, w->a, &bytes[n_bytes++]);
            b[i] = typed_view("lora_B", w->b_type, l.n_out, w->rank, w->b, &bytes[n_bytes++]);
            to->a = &a[i];
            to->b = &b[i];
        }
        if (w->instead != NULL && i < N_LINEARS) {
            instead[i] = floats_view("saved", l.n_out, l.n_in, w->instead);
            specs[i] = (linear_spec){.weight = &instead[i]};
            to->instead = &specs[i];
        } else if (w->instead != NULL) {
            instead[i] = floats_view("saved", V, D, w->instead);
            to->weight = &instead[i];
        }
    }
    for (int i = 0; i < 2; i++) {
        if (c->norms[i] != NULL) {
            norms[i] = vector_view("norm", D, c->norms[i]);
            norm_specs[i] = (norm_spec){.width = D, .eps = 1e-5f, .weight = &norms[i]};
            changes[n++] = (adapter_change){.nm = i == 0 ? m->n1 : m->n2, .norm = &norm_specs[i]};
        }
    }
    adapter *out = NULL;
    quire_error err;
    must(m->b->ops->adapter_load(m->b, changes, n, &out, &err), &err);
    for (int32_t i = 0; i < n_bytes; i++) {
        free(bytes[i]);
    }
    return out;
}

/* The results of all ops for one row. */
typedef struct row_result {
    float q[HEADS * (HEAD_IN + KEPT)], k[77], router[N_X], y[D], x[D], out[HEADS * (HEAD_OUT + KEPT)],
        logits[V];
    int32_t argmax;
} row_result;

/* Runs n rows of tokens. of_rows: each row's adapter as an index in `all`, -1: none;
 * NULL: no adapters. Only the last CASE_OUT rows get logits; those of others are zero. */
static inline void case_run(model_case *m, const int32_t *tokens, const int16_t *of_rows, adapter *const *all,
                            int32_t n_all, int32_t n, row_result *out) {
    const backend_ops *ops = m->b->ops;
    int32_t out_rows[CASE_OUT], n_out = n < CASE_OUT ? n : CASE_OUT;
    for (int32_t i = 0; i < n_out; i++) {
        out_rows[i] = n - n_out + i;
    }
    const batch step = {.n_rows = n,
                        .n_out = n_out,
                        .out_rows = out_rows,
                        .tokens = tokens,
                        .adapters = (const struct adapter *const *)all,
                        .n_adapters = n_all,
                        .row_adapters = of_rows};
    const linear_use uses[] = {{m->w[L_Q], m->q}, {m->w[L_K], m->k}, {m->w[L_ROUTER], m->logits}};
    ops->step_begin(m->b, &step);
    ops->embed(m->b, &(embed_use){.tokens = m->tokens, .scale = 1.5f, .x = m->x});
    ops->norm_linears(m->b, m->x, m->n1, uses, 3);
    ops->head_products(m->b, &(head_products_use){.w = m->heads, .n_kept = KEPT, .in = m->q, .out = m->out});
    ops->route(m->b, &m->r, m->logits);
    ops->experts(
        m->b,
        &(experts_use){
            .x = m->x, .nm = m->n2, .w = m->x_w, .f = ACT_SILU, .scale = 1.0f, .overwrite = true, .y = m->y});
    ops->norm_add(m->b, m->y, m->n1, 1.0f, m->x);
    ops->feed_forward(m->b, &(feed_forward_use){.x = m->x,
                                                .nm = m->n2,
                                                .gate = m->w[L_GATE],
                                                .up = m->w[L_UP],
                                                .f = ACT_SILU,
                                                .h = m->h,
                                                .reader = m->w[L_DOWN]});
    ops->linear_add(m->b, m->h, &(linear_use){m->w[L_DOWN], m->x}, 0.5f, m->x);
    ops->head(m->b, m->x, m->n1, m->w[L_HEAD], 2.0f, 30.0f);
    ops->step_wait(m->b);
    for (int32_t i = 0; i < n; i++) {
        memset(&out[i], 0, sizeof out[i]);
        ops->buffer_read(m->b, m->q, i, 1, out[i].q);
        ops->buffer_read(m->b, m->k, i, 1, out[i].k);
        ops->buffer_read(m->b, m->logits, i, 1, out[i].router);
        ops->buffer_read(m->b, m->y, i, 1, out[i].y);
        ops->buffer_read(m->b, m->x, i, 1, out[i].x);
        ops->buffer_read(m->b, m->out, i, 1, out[i].out);
        if (i >= n - n_out) {
            memcpy(out[i].logits, ops->logits(m->b, i - (n - n_out)), sizeof out[i].logits);
            out[i].argmax = ops->argmax(m->b, i - (n - n_out));
        }
    }
}

#endif
