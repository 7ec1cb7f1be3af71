#include "lab/bench/attention_measure.h"

#include <math.h>
#include <string.h>

#include "backend/backend.h"
#include "backend/cpu/pages.h"
#include "base/mem.h"
#include "core/batch.h"
#include "expr/expr.h"
#include "lab/bench/figures.h"
#include "lab/bench/model_runner.h"

enum { LINE = 64, SIDE_BY_SIDE = 4, AHEAD_BYTES = 32768 };

/* Writes the addresses of one layer's pieces to `at`. Returns their number. */
static int32_t list_layer(const cpu_backend *c, int32_t layer, const int32_t *pages, int32_t n_pages,
                          const uint8_t **at) {
    const kv_planes *l = &c->layout.caches[layer];
    int32_t pages_a_chunk = ATTN_CHUNK / l->page_tokens, n = 0;
    for (int32_t from = 0; from < n_pages; from += pages_a_chunk) {
        int32_t end = from + pages_a_chunk < n_pages ? from + pages_a_chunk : n_pages;
        for (int32_t head = 0; head < l->n_heads; head++) {
            for (int v = 0; v < 2; v++) {
                for (int32_t page = from; page < end; page++) {
                    at[n++] = cpu_kv_plane(c, pages[page], layer, v == 1 ? KV_PLANE_V : KV_PLANE_K) +
                              cpu_kv_head(l, v == 1 ? KV_PLANE_V : KV_PLANE_K, head);
                }
            }
        }
    }
    return n;
}

/* Lists the pieces of n_tokens tokens in these pages; all of the backend's layers are
 * alike. Free out->at. */
static quire_err pieces_open(struct backend *b, const int32_t *pages, int32_t n_tokens, pieces *out) {
    const cpu_backend *c = (const cpu_backend *)b;
    const kv_planes *l = &c->layout.caches[0];
    int32_t n_pages = (int32_t)kv_pages_for(n_tokens, l->page_tokens);
    *out = (pieces){.n_layers = c->layout.n_caches,
                    .n = 2 * l->n_heads * n_pages,
                    .bytes = l->page_tokens * (l->key.row_bytes + l->key.scale_bytes)};
    out->at = mem_new((size_t)out->n_layers * (size_t)out->n, sizeof *out->at);
    TRY(mem_check(out->at));
    for (int32_t layer = 0; layer < out->n_layers; layer++) {
        list_layer(c, layer, pages, n_pages, out->at + (int64_t)layer * out->n);
    }
    return QUIRE_OK;
}

static uint64_t read_pieces_load(const uint8_t *p) {
    uint64_t x;
    memcpy(&x, p, sizeof x);
    return x;
}

/* Loads from n_streams pieces side by side and prefetches those `ahead` pieces later into
 * L2, as attention does. */
static inline __attribute__((always_inline)) uint64_t read_together(const pieces *p, const uint8_t *const *at,
                                                                    int n_streams, int32_t ahead) {
    uint64_t sum = 0;
    for (int64_t line = 0; line < p->bytes; line += LINE) {
        for (int s = 0; s < n_streams; s++) {
            if (ahead > 0) {
                __builtin_prefetch(at[s + ahead] + line, 0, 2);
            }
            sum += read_pieces_load(at[s] + line);
        }
    }
    return sum;
}

uint64_t pieces_read(const pieces *p, int32_t layer, int way) {
    const uint8_t *const *at = p->at + (int64_t)layer * p->n;
    int32_t ahead = p->bytes * SIDE_BY_SIDE < AHEAD_BYTES ? (int32_t)(AHEAD_BYTES / p->bytes) : SIDE_BY_SIDE,
            i = 0;
    uint64_t sum = 0;
    for (; way == 1 && i + ahead < p->n; i++) {
        sum += read_together(p, at + i, 1, ahead);
    }
    for (; way == 2 && i + SIDE_BY_SIDE <= p->n; i += SIDE_BY_SIDE) {
        sum += read_together(p, at + i, SIDE_BY_SIDE, 0);
    }
    for (; way == 3 && i + SIDE_BY_SIDE + ahead <= p->n; i += SIDE_BY_SIDE) {
        sum += read_together(p, at + i, SIDE_BY_SIDE, ahead);
    }
    for (; i < p->n; i++) {
        sum += read_together(p, at + i, 1, 0);
    }
    return sum;
}

enum {
    TILE_ROWS = 16, /* rows per tile, as in the engine */
    PAGE_TOKENS = 16,
    N_WAYS = 2,
    MAX_LAYERS = 64,
    CACHES_BYTES = 128 << 20, /* layers cycle through at least this many bytes */
    LEAST_US = 4000           /* least time of a run */
};

/* A backend with pages of one size, all filled. */
typedef struct stage {
    const attention_shape *shape;
    backend *b;
    kv_layout layout;
    buffer q, k, v, out;
    int32_t pages_each; /* pages per sequence */
    int32_t n_pages;    /* pages of all sequences */
    page_id *pages;     /* [n_seqs, pages_each] */
    int32_t *positions; /* [max_rows] */
    kv_slot *slots;     /* [max_rows] */
    batch_seq *seqs;    /* [n_seqs] */
    attn_item *work;    /* [max_work] */
    int32_t max_rows, max_work;
    cascade cascade; /* if pages are shared */
    bool cascades;   /* whether the cascade is used */
    attn_spec spec;
    const attn_mods *mods; /* mask_mod and score_mod of all sequences; NULL: none */
} stage;

/* Describes a model of n_layers layers of this shape. */
static model_desc desc_of(const attention_shape *s, int32_t n_layers) {
    model_desc d = desc_plain(n_layers, s->n_heads, s->n_kv_heads, s->d_head, 0);
    for (int32_t i = 0; i < d.n_caches && s->n_value > 0; i++) {
        d.caches[i] = (cache_desc){.kind = LAYER_LATENT, .d_latent = s->d_head};
    }
    return d;
}

static int32_t value_of(const attention_shape *s) {
    return s->n_value > 0 ? s->n_value : s->d_head;
}

static int32_t rows_of_step(const attention_shape *s) {
    return s->n_rows < ATTENTION_STEP_ROWS ? s->n_rows : ATTENTION_STEP_ROWS;
}

static void stage_close(stage *s) {
    if (s->b != NULL) {
        s->b->ops->close(s->b);
    }
    mem_free(s->pages);
    mem_free(s->positions);
    mem_free(s->slots);
    mem_free(s->seqs);
    mem_free(s->work);
    cascade_close(&s->cascade);
}

/* Fills n rows of an activation with approximately normal numbers. */
static quire_err fill_buffer(backend *b, buffer a, int32_t width, int32_t n) {
    float *x = mem_new((size_t)width * (size_t)n, sizeof *x);
    uint64_t state = (uint64_t)a.id + 1;
    if (x == NULL) {
        return QUIRE_NO_MEMORY;
    }
    for (int64_t i = 0; i < (int64_t)width * n; i++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        x[i] = (float)((state >> 40) & 0xffff) / 16384.0f - 2.0f;
    }
    b->ops->buffer_write(b, a, 0, n, x);
    mem_free(x);
    return QUIRE_OK;
}

/* Writes page 0 in every layer with the op, then copies it to the others. */
static void attention_measure_fill_pages(stage *s) {
    int32_t n = s->layout.page_tokens;
    for (int32_t i = 0; i < n; i++) {
        s->positions[i] = i;
        s->slots[i] = (kv_slot){i};
    }
    batch step = {.n_rows = n,
                  .n_seqs = 1,
                  .positions = s->positions,
                  .n_axes = 1,
                  .slots = {s->slots},
                  .seqs = s->seqs};
    s->b->ops->step_begin(s->b, &step);
    for (int32_t layer = 0; layer < s->layout.n_caches; layer++) {
        if (s->shape->n_value > 0) {
            s->b->ops->latent_store(s->b, &(latent_store_use){.cache = layer,
                                                              .latent = s->k,
                                                              .rank = s->shape->n_value,
                                                              .q = s->q,
                                                              .n_heads = s->shape->n_heads,
                                                              .latent_scale = 1.0f});
        } else {
            s->b->ops->kv_store(s->b, &(kv_store_use){.cache = layer, .q = s->q, .k = s->k, .v = s->v});
        }
    }
    s->b->ops->step_wait(s->b);
    for (int32_t i = 1; i < s->n_pages; i++) {
        s->b->ops->kv_copy(s->b, &(kv_copy_pair){0, i}, 1);
    }
}

static quire_err attention_measure_open_arrays(stage *s) {
    size_t n_seqs = (size_t)s->shape->n_seqs, rows = (size_t)s->max_rows;
    s->pages = mem_new(n_seqs * (size_t)s->pages_each, sizeof *s->pages);
    s->positions = mem_new(rows, sizeof *s->positions);
    s->slots = mem_new(rows, sizeof *s->slots);
    s->seqs = mem_new(n_seqs, sizeof *s->seqs);
    s->work = mem_new((size_t)s->max_work, sizeof *s->work);
    return s->pages && s->positions && s->slots && s->seqs && s->work ? QUIRE_OK : QUIRE_NO_MEMORY;
}

static quire_err stage_open_all(const attention_shape *shape, const attention_machine *m, int32_t page_tokens,
                                stage *s, quire_error *err) {
    int64_t bytes = attention_bytes(shape),
            n_layers = shape->n_rows > 1 || bytes == 0 ? 1 : CACHES_BYTES / bytes + 1;
    const model_desc d = desc_of(shape, n_layers < MAX_LAYERS ? (int32_t)n_layers : MAX_LAYERS);
    *s = (stage){.shape = shape,
                 .pages_each = (int32_t)kv_pages_for(shape->n_tokens, page_tokens),
                 .spec = {.scale = 1.0f / sqrtf((float)shape->d_head), .causal = true}};
    TRY(kv_layout_init(&d, kv_both(shape->type), page_tokens, &s->layout, err));
    int64_t n_shared = shape->n_shared / page_tokens,
            n_pages = n_shared + (s->pages_each - n_shared) * shape->n_seqs,
            rows = (int64_t)shape->n_seqs * rows_of_step(shape);
    if (n_pages > INT32_MAX / 256 || rows > 1 << 20) {
        return err_set(err, QUIRE_INVALID, -1, "%d sequences of %d tokens: too many", (int)shape->n_seqs,
                       (int)shape->n_tokens);
    }
    s->n_pages = (int32_t)n_pages;
    s->max_rows = (int32_t)rows > page_tokens ? (int32_t)rows : page_tokens;
    s->max_work = s->max_rows / TILE_ROWS + shape->n_seqs + 1;
    const backend_options options = {.compute = m->compute, .isa = m->isa, .n_threads = m->n_threads};
    const step_limits limits = {.max_rows = s->max_rows, .max_seqs = shape->n_seqs};
    TRY(backend_cpu_open(&options, &s->b, err));
    int32_t q_width = shape->n_heads * shape->d_head, k_width = shape->n_kv_heads * shape->d_head;
    s->q = s->b->ops->buffer_reserve(s->b, q_width);
    s->k = s->b->ops->buffer_reserve(s->b, k_width);
    s->v = s->b->ops->buffer_reserve(s->b, k_width);
    s->out = s->b->ops->buffer_reserve(s->b, shape->n_heads * value_of(shape));
    TRY(s->b->ops->step_open(s->b, &limits, &s->layout, 0, err));
    TRY(s->b->ops->kv_open(s->b, s->n_pages, err));
    TRY(attention_measure_open_arrays(s));
    TRY(fill_buffer(s->b, s->q, q_width, s->max_rows));
    TRY(fill_buffer(s->b, s->k, k_width, s->max_rows));
    TRY(fill_buffer(s->b, s->v, k_width, s->max_rows));
    attention_measure_fill_pages(s);
    return shape->n_shared > 0 ? cascade_open(&s->layout,
                                              &(cascade_limits){s->max_rows, shape->n_seqs, TILE_ROWS,
                                                                s->b->ops->n_workers(s->b)},
                                              &s->cascade)
                               : QUIRE_OK;
}

static quire_err stage_open(const attention_shape *shape, const attention_machine *m, int32_t page_tokens,
                            stage *s, quire_error *err) {
    quire_err e = stage_open_all(shape, m, page_tokens, s, err);
    return e == QUIRE_NO_MEMORY
               ? err_set(err, e, -1, "out of memory for the keys and values of %d sequences of %d tokens",
                         (int)shape->n_seqs, (int)shape->n_tokens)
               : e;
}

/* Makes the step that computes rows from..from + n of every sequence. */
static void step_of(stage *s, int32_t from, int32_t n, batch *step) {
    int32_t row = 0;
    for (int32_t i = 0; i < s->shape->n_seqs; i++) {
        const int32_t *pages = &s->pages[(int64_t)i * s->pages_each].v;
        s->seqs[i] =
            (batch_seq){.row0 = row, .n_rows = n, .n_tokens = from + n, .mods = s->mods, .pages = {pages}};
        for (int32_t r = 0; r < n; r++) {
            s->positions[row++] = from + r;
        }
    }
    *step = (batch){.n_rows = row,
                    .n_seqs = s->shape->n_seqs,
                    .positions = s->positions,
                    .n_axes = 1,
                    .seqs = s->seqs,
                    .work = s->work};
    if (s->cascades) {
        cascade_plan(&s->cascade, step);
        return;
    }
    step->n_work = batch_plan_work(s->seqs, s->shape->n_seqs, TILE_ROWS, s->work, s->max_work);
}

/* Runs one pass over the layers with all rows of the shape. */
static void attention_measure_pass(stage *s) {
    int32_t most = rows_of_step(s->shape);
    for (int32_t from = s->shape->n_tokens - s->shape->n_rows; from < s->shape->n_tokens; from += most) {
        batch step;
        step_of(s, from, s->shape->n_tokens - from < most ? s->shape->n_tokens - from : most, &step);
        s->b->ops->step_begin(s->b, &step);
        for (int32_t layer = 0; layer < s->layout.n_caches; layer++) {
            s->b->ops->attention(s->b, layer, s->q, &s->spec, s->out);
        }
        s->b->ops->step_wait(s->b);
    }
}

/* Measures the microseconds per layer. */
static double run_us(stage *s, int32_t n_threads) {
    s->b->ops->enter(s->b);
    int64_t start = figures_time_us(n_threads), took = 0;
    int32_t n = 0;
    for (; took < LEAST_US; took = figures_time_us(n_threads) - start) {
        attention_measure_pass(s);
        n += s->layout.n_caches;
    }
    s->b->ops->leave(s->b);
    return (double)took / n;
}

/* Gives the first n entries of the tables all pages in an order drawn with a fixed seed. */
static void scatter(stage *s, int32_t n) {
    model_runner_scatter(1, n, &s->pages->v);
}

static void put_in_order(stage *s, int32_t n) {
    for (int32_t i = 0; i < n; i++) {
        s->pages[i].v = i;
    }
}

/* Opens the two ways of attention_speed: pages of m->page_tokens, and pages of 256. */
static quire_err open_ways(const attention_shape *shape, const attention_machine *m, stage ways[N_WAYS],
                           quire_error *err) {
    const int32_t page_tokens[N_WAYS] = {m->page_tokens > 0 ? m->page_tokens : PAGE_TOKENS, 256};
    quire_err e = QUIRE_OK;
    for (int w = 0; w < N_WAYS && e == QUIRE_OK; w++) {
        e = stage_open(shape, m, page_tokens[w], &ways[w], err);
    }
    if (e == QUIRE_OK) {
        put_in_order(&ways[1], shape->n_seqs * ways[1].pages_each);
        (m->in_order ? put_in_order : scatter)(&ways[0], shape->n_seqs * ways[0].pages_each);
    }
    return e;
}

/* Times run `run` of n_ways alternating ones on s. */
static void time_run(stage *s, const attention_machine *m, int32_t run, int32_t n_ways, double *least) {
    double us = run_us(s, m->n_threads);
    *least = run < n_ways || us < *least ? us : *least;
}

/* Runs the two ways alternately and returns the least time of each. */
static void time_ways(stage ways[N_WAYS], const attention_machine *m, double *const least[N_WAYS]) {
    for (int32_t run = 0; run < N_WAYS * m->n_runs; run++) {
        time_run(&ways[run % N_WAYS], m, run, N_WAYS, least[run % N_WAYS]);
    }
}

static void close_ways(stage ways[N_WAYS]) {
    for (int w = 0; w < N_WAYS; w++) {
        stage_close(&ways[w]);
    }
}

quire_err attention_measure(const attention_shape *shape, const attention_machine *m, attention_speed *out,
                            quire_error *err) {
    double *least[N_WAYS] = {&out->paged_us, &out->contiguous_us};
    stage ways[N_WAYS] = {{0}};
    quire_err e = open_ways(shape, m, ways, err);
    if (e == QUIRE_OK) {
        time_ways(ways, m, least);
    }
    close_ways(ways);
    return e;
}

/* Measures the microseconds to read a layer's pieces. */
static double read_us(const pieces *p, int way) {
    static volatile uint64_t kept; /* keeps the loads from being optimised away */
    int64_t start = figures_time_us(1), took = 0;
    int32_t n = 0;
    for (; took < LEAST_US; took = figures_time_us(1) - start) {
        for (int32_t layer = 0; layer < p->n_layers; layer++, n++) {
            kept = kept + pieces_read(p, layer, way);
        }
    }
    return (double)took / n;
}

quire_err attention_measure_reading(const attention_shape *shape, const attention_machine *m,
                                    attention_speed *out, quire_error *err) {
    double *least[N_WAYS] = {&out->paged_us, &out->contiguous_us};
    stage ways[N_WAYS] = {{0}};
    pieces lists[N_WAYS] = {{0}};
    quire_err e = open_ways(shape, m, ways, err);
    for (int w = 0; w < N_WAYS && e == QUIRE_OK; w++) {
        e = pieces_open(ways[w].b, &ways[w].pages->v, shape->n_tokens, &lists[w]);
        *least[w] = INFINITY;
    }
    for (int32_t run = 0; run < N_WAYS * PIECES_WAYS * m->n_runs && e == QUIRE_OK; run++) {
        int w = run % N_WAYS;
        double us = read_us(&lists[w], run / N_WAYS % PIECES_WAYS);
        *least[w] = us < *least[w] ? us : *least[w];
    }
    for (int w = 0; w < N_WAYS; w++) {
        mem_free(lists[w].at);
    }
    close_ways(ways);
    return e;
}

/* Assigns n_pages consecutive pages to each sequence's table, shared pages to all. */
static void lay_out(stage *s) {
    int32_t n_shared = s->shape->n_shared / s->layout.page_tokens, n_own = s->pages_each - n_shared;
    /* backwards: tables overwrite the data from which they are made */
    for (int32_t i = s->shape->n_seqs - 1; i > 0; i--) {
        page_id *table = s->pages + (int64_t)i * s->pages_each;
        memmove(table + n_shared, s->pages + n_shared + (int64_t)i * n_own, sizeof *table * (size_t)n_own);
        memcpy(table, s->pages, sizeof *table * (size_t)n_shared);
    }
}

quire_err attention_measure_cascade(const attention_shape *shape, const attention_machine *m,
                                    cascade_speed *out, quire_error *err) {
    stage s;
    batch step;
    quire_err e = stage_open(shape, m, PAGE_TOKENS, &s, err);
    if (e == QUIRE_OK) {
        int64_t token_bytes = kv_layout_token_bytes(&s.layout) / s.layout.n_caches;
        scatter(&s, s.n_pages);
        lay_out(&s);
        for (int32_t run = 0; run < 2 * m->n_runs; run++) { /* the two ways alternate */
            s.cascades = run % 2 == 1;
            time_run(&s, m, run, 2, s.cascades ? &out->cascade_us : &out->each_us);
            step_of(&s, shape->n_tokens - 1, 1, &step);
            *(s.cascades ? &out->cascade_bytes : &out->each_bytes) = token_bytes * batch_read_tokens(&step);
        }
    }
    stage_close(&s);
    return e;
}

/* Times the four ways of mods_speed, alternating. mods: causal, window. */
static void run_mods(stage *s, const attention_machine *m, attn_mods *const mods[2], mods_speed *out) {
    double *least[4] = {&out->causal_us, &out->causal_mod_us, &out->window_us, &out->window_mod_us};
    for (int32_t run = 0; run < 4 * m->n_runs; run++) {
        int way = run % 4;
        s->spec.causal = way % 2 == 0;
        s->spec.window = way == 2 ? ATTENTION_WINDOW : 0;
        s->mods = way % 2 == 1 ? mods[way / 2] : NULL;
        time_run(s, m, run, 4, least[way]);
    }
}

quire_err attention_measure_mods(const attention_shape *shape, const attention_machine *m, mods_speed *out,
                                 quire_error *err) {
    static const char *const masks[2] = {"q_idx >= kv_idx", "q_idx >= kv_idx && q_idx - kv_idx < 64"};
    _Static_assert(ATTENTION_WINDOW == 64, "as in the expression");
    attn_mods *mods[2] = {NULL, NULL};
    stage s;
    quire_err e = stage_open(shape, m, PAGE_TOKENS, &s, err);
    for (int i = 0; i < 2 && e == QUIRE_OK; i++) {
        e = expr_compile_mods(&(expr_mods){.mask = str_of(masks[i])}, &mods[i], err);
    }
    if (e == QUIRE_OK) {
        scatter(&s, s.n_pages);
        run_mods(&s, m, mods, out);
    }
    attn_mods_drop(mods[0]);
    attn_mods_drop(mods[1]);
    stage_close(&s);
    return e;
}

quire_err attention_measure_bound(const attention_shape *shape, const attention_machine *m, int32_t window,
                                  float soft_cap, bound_speed *out, quire_error *err) {
    attention_shape plain = *shape;
    plain.n_tokens = window > 0 ? window + (shape->n_rows - 1) / 2 : shape->n_tokens;
    const attention_shape *const shapes[N_WAYS] = {shape, &plain};
    double *least[N_WAYS] = {&out->bound_us, &out->plain_us};
    stage ways[N_WAYS] = {{0}};
    quire_err e = QUIRE_OK;
    for (int w = 0; w < N_WAYS && e == QUIRE_OK; w++) {
        e = stage_open(shapes[w], m, PAGE_TOKENS, &ways[w], err);
    }
    if (e == QUIRE_OK) {
        ways[0].spec.window = window;
        ways[0].spec.soft_cap = soft_cap;
        scatter(&ways[0], ways[0].n_pages);
        scatter(&ways[1], ways[1].n_pages);
        time_ways(ways, m, least);
    }
    close_ways(ways);
    return e;
}

int64_t attention_bytes(const attention_shape *shape) {
    const model_desc d = desc_of(shape, 1);
    kv_layout l;
    return kv_layout_init(&d, kv_both(shape->type), 16, &l, NULL) == QUIRE_OK
               ? kv_layout_token_bytes(&l) *
                     (shape->n_shared + (int64_t)shape->n_seqs * (shape->n_tokens - shape->n_shared))
               : 0;
}

double attention_operations(const attention_shape *shape) {
    /* the last row sees all keys, each earlier row one fewer */
    double rows = shape->n_rows, seen = rows * shape->n_tokens - rows * (rows - 1) / 2;
    return 2.0 * seen * shape->n_heads * (shape->d_head + value_of(shape)) * shape->n_seqs;
}
