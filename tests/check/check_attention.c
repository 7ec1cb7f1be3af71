/* Attention: the cases of DIR/manifest.json (tests/golden has the format) through the
 * paged kernel, in the form that the layers of models have, and as expressions where the
 * manifest gives some, on every instruction set that is here. One case passes when all
 * its ways do. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "backend/backend.h"
#include "base/mem.h"
#include "check/check.h"
#include "expr/expr.h"
#include "file/npz.h"
#include "json/json.h"

#define KIND "attention"

enum { PAGE_TOKENS = 16, TILE_ROWS = 16, MAX_SEQS = 64, MAX_NUMBERS = 1 << 26 };

/* Queries, keys and values of a case; row-major as the backend takes them. */
typedef struct problem {
    int32_t n_seqs, n_heads, n_kv_heads, n_q, n_kv, d_head, offset;
    float *q, *k, *v;  /* [n_seqs, n_q, n_heads, d_head], [n_seqs, n_kv, n_kv_heads, d_head] */
    const float *want; /* [n_seqs, n_heads, n_q, d_out] */
    int32_t d_out;     /* at most d_head */
} problem;

typedef struct attention_check {
    check_report *r;
    const char *dir, *name; /* of the case */
    json_value *o;
    npz inputs, own;
    problem p;
    attn_mods *mods;
    quire_error err;
} attention_check;

/* ---- reading ---- */

static int32_t int_of(json_value *o, const char *key) {
    json_value *v = json_get(o, key);
    return v != NULL ? (int32_t)json_double(v) : 0;
}

static bool has_kind(const attention_check *c, const char *part) {
    str kind = json_get_str(c->o, "kind");
    size_t n = strlen(part);
    for (size_t i = 0; i + n <= kind.n; i++) {
        bool begins = i == 0 || kind.p[i - 1] == '+', ends = i + n == kind.n || kind.p[i + n] == '+';
        if (begins && ends && memcmp(kind.p + i, part, n) == 0) {
            return true;
        }
    }
    return false;
}

static quire_err bad(attention_check *c, const char *what) {
    return err_set(&c->err, QUIRE_BAD_FILE, -1, "%s", what);
}

/* The named float array with n_dims dimensions, all from 1. */
static quire_err floats_of(attention_check *c, const npz *z, const char *name, int32_t n_dims,
                           const attn_array **out) {
    *out = npz_find(z, name);
    if (*out == NULL || !(*out)->is_float || (*out)->n_dims != n_dims) {
        return err_set(&c->err, QUIRE_BAD_FILE, -1, "there is no array %s of floats with %d dimensions", name,
                       (int)n_dims);
    }
    for (int32_t i = 0; i < n_dims; i++) {
        if ((*out)->dims[i] < 1) {
            return err_set(&c->err, QUIRE_BAD_FILE, -1, "array %s is empty", name);
        }
    }
    return QUIRE_OK;
}

static float *new_floats(int32_t a, int32_t b, int32_t c, int32_t d) {
    int64_t n = (int64_t)a * b;
    return n <= MAX_NUMBERS && n * c <= MAX_NUMBERS && n * c * d <= MAX_NUMBERS
               ? mem_new((size_t)(n * c * d), sizeof(float))
               : NULL;
}

/* [seqs, heads, rows, d] as [seqs, rows, heads, width], zeros after d. */
static quire_err transposed(const attn_array *a, int32_t width, float **out) {
    const int32_t *n = a->dims;
    *out = new_floats(n[0], n[2], n[1], width);
    TRY(mem_check(*out));
    for (int32_t s = 0; s < n[0]; s++) {
        for (int32_t h = 0; h < n[1]; h++) {
            for (int32_t r = 0; r < n[2]; r++) {
                const float *from = (const float *)a->data + (((int64_t)s * n[1] + h) * n[2] + r) * n[3];
                memcpy(*out + (((int64_t)s * n[2] + r) * n[1] + h) * width, from,
                       sizeof **out * (size_t)n[3]);
            }
        }
    }
    return QUIRE_OK;
}

static int32_t larger(int32_t a, int32_t b) {
    return a > b ? a : b;
}

static quire_err read_plain(attention_check *c) {
    const attn_array *q, *k, *v;
    problem *p = &c->p;
    TRY(floats_of(c, &c->inputs, "q", 4, &q));
    TRY(floats_of(c, &c->inputs, "k", 4, &k));
    TRY(floats_of(c, &c->inputs, "v", 4, &v));
    *p = (problem){.n_seqs = q->dims[0],
                   .n_heads = q->dims[1],
                   .n_kv_heads = k->dims[1],
                   .n_q = q->dims[2],
                   .n_kv = k->dims[2]};
    p->d_head = larger(q->dims[3], v->dims[3]);
    p->d_out = v->dims[3];
    if (k->dims[0] != p->n_seqs || v->dims[0] != p->n_seqs || v->dims[1] != p->n_kv_heads ||
        v->dims[2] != p->n_kv || k->dims[3] != q->dims[3] || p->n_heads % p->n_kv_heads != 0) {
        return bad(c, "the shapes of q, k and v do not fit each other");
    }
    TRY(transposed(q, p->d_head, &p->q));
    TRY(transposed(k, p->d_head, &p->k));
    return transposed(v, p->d_head, &p->v);
}

/* Copies n elements. */
static void put(float *to, const attn_array *a, int64_t row, int32_t n) {
    memcpy(to, (const float *)a->data + row * n, sizeof *to * (size_t)n);
}

/* to[0..n_out) = w [n_out, n_in] x. */
static void expand(const float *w, const float *x, int32_t n_out, int32_t n_in, float *to) {
    for (int32_t i = 0; i < n_out; i++) {
        double sum = 0.0;
        for (int32_t j = 0; j < n_in; j++) {
            sum += (double)w[(int64_t)i * n_in + j] * (double)x[j];
        }
        to[i] = (float)sum;
    }
}

/* Multi-head latent attention in expanded form: each head's key is [w_uk c, k_rope] and
 * its value w_uv c. */
static quire_err read_latent(attention_check *c) {
    const attn_array *latent, *k_rope, *q_nope, *q_rope, *w_uk, *w_uv;
    problem *p = &c->p;
    const npz *z = npz_find(&c->own, "c_kv") != NULL ? &c->own : &c->inputs;
    TRY(floats_of(c, z, "c_kv", 2, &latent));
    TRY(floats_of(c, z, "k_rope", 2, &k_rope));
    TRY(floats_of(c, z, "q_nope", 3, &q_nope));
    TRY(floats_of(c, z, "q_rope", 3, &q_rope));
    TRY(floats_of(c, z, "w_uk", 3, &w_uk));
    TRY(floats_of(c, z, "w_uv", 3, &w_uv));
    int32_t heads = q_nope->dims[0], n_q = q_nope->dims[1], dn = q_nope->dims[2], dr = k_rope->dims[1],
            rank = latent->dims[1], dv = w_uv->dims[1], n_kv = latent->dims[0];
    if (k_rope->dims[0] != n_kv || q_rope->dims[0] != heads || q_rope->dims[1] != n_q ||
        q_rope->dims[2] != dr || w_uk->dims[0] != heads || w_uk->dims[1] != dn || w_uk->dims[2] != rank ||
        w_uv->dims[0] != heads || w_uv->dims[2] != rank) {
        return bad(c, "the shapes of the latents do not fit each other");
    }
    *p = (problem){.n_seqs = 1, .n_heads = heads, .n_kv_heads = heads, .n_q = n_q, .n_kv = n_kv};
    p->d_head = larger(dn + dr, dv);
    p->d_out = dv;
    p->q = new_floats(1, n_q, heads, p->d_head);
    p->k = new_floats(1, n_kv, heads, p->d_head);
    p->v = new_floats(1, n_kv, heads, p->d_head);
    if (p->q == NULL || p->k == NULL || p->v == NULL) {
        return QUIRE_NO_MEMORY;
    }
    for (int32_t h = 0; h < heads; h++) {
        for (int32_t i = 0; i < n_q; i++) {
            float *to = p->q + ((int64_t)i * heads + h) * p->d_head;
            put(to, q_nope, (int64_t)h * n_q + i, dn);
            put(to + dn, q_rope, (int64_t)h * n_q + i, dr);
        }
        for (int32_t i = 0; i < n_kv; i++) {
            const float *x = (const float *)latent->data + (int64_t)i * rank;
            int64_t at = ((int64_t)i * heads + h) * p->d_head;
            expand((const float *)w_uk->data + (int64_t)h * dn * rank, x, dn, rank, p->k + at);
            put(p->k + at + dn, k_rope, i, dr);
            expand((const float *)w_uv->data + (int64_t)h * dv * rank, x, dv, rank, p->v + at);
        }
    }
    return QUIRE_OK;
}

static quire_err read_want(attention_check *c) {
    const problem *p = &c->p;
    const attn_array *out = npz_find(&c->own, "out");
    int64_t n = 1;
    for (int32_t i = 0; out != NULL && i < out->n_dims; i++) {
        n *= out->dims[i];
    }
    if (out == NULL || !out->is_float || n != (int64_t)p->n_seqs * p->n_heads * p->n_q * p->d_out ||
        p->n_seqs > MAX_SEQS) {
        return bad(c, "the array out does not fit the inputs");
    }
    c->p.want = out->data;
    return QUIRE_OK;
}

static quire_err open_npz(attention_check *c, const char *key, npz *out) {
    str file = json_get_str(c->o, key);
    if (file.n == 0) {
        return QUIRE_OK;
    }
    char *path = check_path(c->dir, file.p);
    TRY(mem_check(path));
    quire_err e = npz_open(path, out, &c->err);
    mem_free(path);
    return e;
}

static quire_err compile_mods(attention_check *c) {
    json_value *names = json_get(c->o, "arrays");
    attn_array arrays[ATTN_PROGRAM_ARRAYS];
    int32_t n = 0;
    for (size_t i = 0; names != NULL && i < json_length(names) && n < ATTN_PROGRAM_ARRAYS; i++) {
        const attn_array *a = npz_find(&c->own, json_str(json_at(names, i)).p);
        a = a != NULL ? a : npz_find(&c->inputs, json_str(json_at(names, i)).p);
        if (a == NULL) {
            return bad(c, "an array of the expressions is in no file");
        }
        arrays[n++] = *a;
    }
    const expr_mods from = {json_get_str(c->o, "mask_mod"), json_get_str(c->o, "score_mod"), arrays, n};
    return expr_compile_mods(&from, &c->mods, &c->err);
}

static quire_err read_case(attention_check *c) {
    TRY(open_npz(c, "inputs", &c->inputs));
    TRY(open_npz(c, "file", &c->own));
    TRY(has_kind(c, "mla") ? read_latent(c) : read_plain(c));
    c->p.offset = int_of(c->o, "q_offset");
    TRY(read_want(c));
    return compile_mods(c);
}

/* ---- running ---- */

/* One way to compute a case: what is the layer's and what the sequences' own. */
typedef struct way {
    const char *name;
    attn_spec spec;
    const attn_mods *mods;
    const attn_array *parents, *positions; /* of a tree of drafts, or NULL */
} way;

typedef struct stage {
    backend *b;
    kv_layout layout;
    buffer q, k, v, out;
    int32_t *pages, pages_each; /* [n_seqs, pages_each], the last page first */
    int32_t *positions;
    kv_slot *slots;
    attn_item *items;
} stage;

static void stage_close(stage *s) {
    if (s->b != NULL) {
        s->b->ops->close(s->b);
    }
    mem_free(s->pages);
    mem_free(s->positions);
    mem_free(s->slots);
    mem_free(s->items);
}

static quire_err stage_open(const problem *p, const char *isa, stage *s, quire_error *err) {
    const model_desc d = desc_plain(1, p->n_heads, p->n_kv_heads, p->d_head, 0);
    const backend_options options = {.compute = COMPUTE_F32, .isa = isa, .n_threads = 2};
    int32_t n_rows = larger(p->n_kv, p->n_seqs * p->n_q);
    TRY(kv_layout_init(&d, kv_both(DTYPE_F32), PAGE_TOKENS, &s->layout, err));
    TRY(backend_cpu_open(&options, &s->b, err));
    s->q = s->b->ops->buffer_reserve(s->b, p->n_heads * p->d_head);
    s->k = s->b->ops->buffer_reserve(s->b, p->n_kv_heads * p->d_head);
    s->v = s->b->ops->buffer_reserve(s->b, p->n_kv_heads * p->d_head);
    s->out = s->b->ops->buffer_reserve(s->b, p->n_heads * p->d_head);
    s->pages_each = (int32_t)kv_pages_for(p->n_kv, PAGE_TOKENS);
    int32_t n_pages = s->pages_each * p->n_seqs;
    TRY(s->b->ops->step_open(s->b, &(step_limits){.max_rows = n_rows, .max_seqs = p->n_seqs}, &s->layout, 0,
                             err));
    TRY(s->b->ops->kv_open(s->b, n_pages, err));
    s->pages = mem_new((size_t)n_pages, sizeof *s->pages);
    s->positions = mem_new((size_t)n_rows, sizeof *s->positions);
    s->slots = mem_new((size_t)n_rows, sizeof *s->slots);
    s->items = mem_new((size_t)(n_rows + p->n_seqs), sizeof *s->items);
    if (s->pages == NULL || s->positions == NULL || s->slots == NULL || s->items == NULL) {
        return err_set(err, QUIRE_NO_MEMORY, -1, "out of memory for a case");
    }
    for (int32_t i = 0; i < n_pages; i++) {
        s->pages[i] = n_pages - 1 - i;
    }
    return QUIRE_OK;
}

/* Writes the keys and values of every sequence to its pages. */
static void store(const problem *p, stage *s) {
    for (int32_t seq = 0; seq < p->n_seqs; seq++) {
        const int32_t *pages = s->pages + seq * s->pages_each;
        for (int32_t i = 0; i < p->n_kv; i++) {
            s->positions[i] = i;
            s->slots[i] = (kv_slot){(int64_t)pages[i / PAGE_TOKENS] * PAGE_TOKENS + i % PAGE_TOKENS};
        }
        batch step = {.n_rows = p->n_kv, .positions = s->positions, .n_axes = 1, .slots = {s->slots}};
        s->b->ops->step_begin(s->b, &step);
        int64_t first = (int64_t)seq * p->n_kv * p->n_kv_heads * p->d_head;
        s->b->ops->buffer_write(s->b, s->k, 0, p->n_kv, p->k + first);
        s->b->ops->buffer_write(s->b, s->v, 0, p->n_kv, p->v + first);
        s->b->ops->kv_store(s->b, &(kv_store_use){.q = s->q, .k = s->k, .v = s->v});
        s->b->ops->step_wait(s->b);
    }
}

/* The queries of all sequences in one step; out [n_seqs, n_q, n_heads, d_head]. */
static void attend(const problem *p, const way *w, stage *s, float *out) {
    batch_seq seqs[MAX_SEQS];
    int32_t n_items = 0, n_rows = 0;
    for (int32_t seq = 0; seq < p->n_seqs; seq++) {
        seqs[seq] = (batch_seq){.row0 = n_rows,
                                .n_rows = p->n_q,
                                .n_tokens = p->n_kv,
                                .parents = w->parents != NULL ? w->parents->data : NULL,
                                .mods = w->mods,
                                .b = seq,
                                .pages = {s->pages + seq * s->pages_each}};
        for (int32_t i = 0; i < p->n_q; i += TILE_ROWS) {
            s->items[n_items++] = (attn_item){.seq = seq,
                                              .row0 = n_rows + i,
                                              .n_rows = p->n_q - i < TILE_ROWS ? p->n_q - i : TILE_ROWS,
                                              .n_chunks = (p->n_kv + ATTN_CHUNK - 1) / ATTN_CHUNK,
                                              .partial = ATTN_WHOLE};
        }
        for (int32_t i = 0; i < p->n_q; i++) {
            s->positions[n_rows++] =
                w->positions != NULL ? ((const int32_t *)w->positions->data)[i] : p->offset + i;
        }
    }
    batch step = {.n_rows = n_rows, .n_seqs = p->n_seqs, .positions = s->positions, .n_axes = 1};
    step.seqs = seqs;
    step.work = s->items;
    step.n_work = n_items;
    s->b->ops->step_begin(s->b, &step);
    s->b->ops->buffer_write(s->b, s->q, 0, n_rows, p->q);
    s->b->ops->attention(s->b, 0, s->q, &w->spec, s->out);
    s->b->ops->step_wait(s->b);
    s->b->ops->buffer_read(s->b, s->out, 0, n_rows, out);
}

/* The largest difference from what is wanted. */
static double worst_of(const problem *p, const float *got) {
    double worst = 0.0;
    for (int32_t s = 0; s < p->n_seqs; s++) {
        for (int32_t h = 0; h < p->n_heads; h++) {
            for (int32_t i = 0; i < p->n_q; i++) {
                const float *g = got + (((int64_t)s * p->n_q + i) * p->n_heads + h) * p->d_head;
                const float *want = p->want + (((int64_t)s * p->n_heads + h) * p->n_q + i) * p->d_out;
                for (int32_t e = 0; e < p->d_out; e++) {
                    double d = fabs((double)g[e] - (double)want[e]);
                    worst = d <= worst ? worst : isnan(d) ? INFINITY : d;
                }
            }
        }
    }
    return worst;
}

/* ---- ways ---- */

/* Whether all of the kind is something that a layer can have; then *w. */
static bool layer_way(const attention_check *c, way *w) {
    static const char *const parts[] = {"causal", "full",    "sliding_window", "sinks", "softcap",
                                        "alibi",  "chunked", "tree",           "mla"};
    json_value *params = json_get(c->o, "params");
    const attn_array *sinks = npz_find(&c->own, "sinks"), *slopes = npz_find(&c->own, "slope");
    str kind = json_get_str(c->o, "kind");
    size_t n = 0, n_parts = 1;
    for (size_t i = 0; i < kind.n; i++) {
        n_parts += kind.p[i] == '+';
    }
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        n += has_kind(c, parts[i]);
    }
    *w =
        (way){.name = "layer",
              .spec = {.scale = (float)json_double(json_get(c->o, "scale")), .causal = !has_kind(c, "full")}};
    w->spec.window = params != NULL && has_kind(c, "sliding_window") ? int_of(params, "window") : 0;
    w->spec.chunk = params != NULL && has_kind(c, "chunked") ? int_of(params, "chunk") : 0;
    w->spec.soft_cap =
        params != NULL && has_kind(c, "softcap") ? (float)json_double(json_get(params, "softcap")) : 0.0f;
    w->spec.sinks = has_kind(c, "sinks") && sinks != NULL ? sinks->data : NULL;
    w->spec.alibi_slopes = has_kind(c, "alibi") && slopes != NULL ? slopes->data : NULL;
    return n == n_parts;
}

/* The drafts of a case: rows that follow each other behind one root, and nothing else in
 * the batch's form. False: they are not. */
static bool find_tree(const attention_check *c, way *w) {
    const attn_array *parents = npz_find(&c->own, "parent"), *positions = npz_find(&c->own, "position");
    int32_t n = c->p.n_q;
    if (parents == NULL || positions == NULL || parents->is_float || positions->is_float ||
        parents->dims[0] != n || positions->dims[0] != n || c->p.offset + n != c->p.n_kv) {
        return false;
    }
    const int32_t *parent = parents->data, *position = positions->data;
    for (int32_t i = 0; i < n; i++) {
        bool follows = i > 0 && parent[i] >= 0 && parent[i] < i && position[i] == position[parent[i]] + 1;
        if (!follows && (i > 0 || position[0] != c->p.offset)) {
            return false;
        }
    }
    w->parents = parents;
    w->positions = positions;
    return true;
}

static double limit_of(const attention_check *c) {
    json_value *given = json_get(c->o, "tolerance");
    return given != NULL ? json_double(given) : strstr(c->name, "hot") != NULL ? 2e-4 : 2e-5;
}

/* Runs one way on one instruction set. QUIRE_UNSUPPORTED: it is not here. */
static quire_err run_way(attention_check *c, const way *w, const char *isa, double *worst) {
    const problem *p = &c->p;
    stage s = {0};
    float *got = new_floats(p->n_seqs, p->n_q, p->n_heads, p->d_head);
    quire_err e = got == NULL ? err_set(&c->err, QUIRE_NO_MEMORY, -1, "out of memory for a case")
                              : stage_open(p, isa, &s, &c->err);
    if (e == QUIRE_OK) {
        store(p, &s);
        attend(p, w, &s, got);
        *worst = worst_of(p, got);
    }
    stage_close(&s);
    mem_free(got);
    return e;
}

/* Runs the ways on all instruction sets. */
static void run_ways(attention_check *c, const way *ways, int n) {
    static const char *const isas[] = {"plain", "avx2", "avx512", "neon"};
    int n_run = 0;
    for (int i = 0; i < n; i++) {
        for (size_t k = 0; k < sizeof isas / sizeof *isas; k++) {
            double worst = 0.0;
            if (c->r->isa != NULL && strcmp(c->r->isa, isas[k]) != 0) {
                continue;
            }
            quire_err e = run_way(c, &ways[i], isas[k], &worst);
            if (e == QUIRE_UNSUPPORTED) {
                continue;
            }
            if (e != QUIRE_OK) {
                check_fail(c->r, KIND, c->name, "%s, %s: %s", ways[i].name, isas[k], c->err.message);
                return;
            }
            if (!(worst <= limit_of(c))) {
                check_fail(c->r, KIND, c->name, "%s, %s: off by %g, over %g", ways[i].name, isas[k], worst,
                           limit_of(c));
                return;
            }
            n_run++;
        }
    }
    if (n_run > 0) {
        check_pass(c->r, KIND, c->name);
    } else {
        check_unsupported(c->r, KIND, c->name,
                          n == 0 ? "an unknown kind, without an expression" : "no such instruction set");
    }
}

static void run_case(attention_check *c) {
    way ways[2];
    int n = 0;
    quire_err e = read_case(c);
    if (e != QUIRE_OK) {
        check_fail(c->r, KIND, c->name, "%s", c->err.message[0] != 0 ? c->err.message : quire_err_text(e));
        return;
    }
    if (layer_way(c, &ways[0]) && (!has_kind(c, "tree") || find_tree(c, &ways[0]))) {
        n = 1;
    }
    if (c->mods != NULL) { /* sinks have no expression */
        const attn_spec spec = {.scale = ways[0].spec.scale, .sinks = ways[0].spec.sinks};
        ways[n++] = (way){.name = "expression", .spec = spec, .mods = c->mods};
    }
    run_ways(c, ways, n);
}

static void case_close(attention_check *c) {
    npz_close(&c->inputs);
    npz_close(&c->own);
    attn_mods_drop(c->mods);
    mem_free(c->p.q);
    mem_free(c->p.k);
    mem_free(c->p.v);
}

int check_attention(const char *dir, const char *root, check_report *r) {
    (void)root;
    size_t n = 0;
    char *path = check_path(dir, "manifest.json"), *bytes = path != NULL ? check_read_file(path, &n) : NULL;
    json_value *manifest = bytes != NULL ? json_document((str){bytes, n}) : NULL;
    mem_free(path);
    mem_free(bytes);
    if (manifest == NULL || !json_is(manifest, JSON_KIND_ARRAY)) {
        json_drop(manifest);
        fprintf(stderr, "quire-check: %s/manifest.json cannot be read as a list of cases\n", dir);
        return 1;
    }
    for (size_t i = 0; i < json_length(manifest); i++) {
        json_value *o = json_at(manifest, i);
        attention_check c = {.r = r, .dir = dir, .name = json_get_str(o, "name").p, .o = o};
        c.name = c.name != NULL ? c.name : "?";
        run_case(&c);
        case_close(&c);
    }
    json_drop(manifest);
    return 0;
}
