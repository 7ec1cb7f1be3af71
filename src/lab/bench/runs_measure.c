#include "lab/bench/runs_measure.h"

#include <string.h>
#include <time.h>

#include "backend/backend.h"
#include "base/mem.h"
#include "base/rng.h"
#include "kv/table.h"

enum { SHARING = 4, LEAST_US = 20000, MIN_PROMPT = 100, MAX_PROMPT = 4000, MAX_ANSWER = 1000 };

/* ---- runs ---- */

void runs_arrange(int32_t n_pages, int32_t run, uint64_t seed, page_id *pages) {
    int32_t n_whole = n_pages / run * run;
    for (int32_t i = n_whole; i < n_pages; i++) {
        pages[i].v = i;
    }
    for (int32_t r = 0; r < n_whole; r += run) { /* run r goes where another was, which goes to the end */
        int32_t other = (int32_t)(rng_next(&seed) % (uint64_t)(r / run + 1)) * run;
        pages[r] = pages[other];
        pages[other].v = r;
    }
    for (int32_t r = 0; r < n_whole; r += run) {
        for (int32_t i = 1; i < run; i++) {
            pages[r + i].v = pages[r].v + i;
        }
    }
}

int32_t runs_count(const page_id *pages, int32_t n_pages, int32_t run) {
    int32_t n = 0;
    for (int32_t r = 0; r + run <= n_pages; r += run) {
        int32_t i = 1;
        while (i < run && pages[r + i].v == pages[r].v + i) {
            i++;
        }
        n += i == run ? run : 0;
    }
    return n;
}

/* ---- attention ---- */

struct runs_stage {
    backend *b;
    kv_layout layout;
    int32_t n_tokens, n_pages;
    buffer q, out;
    page_id *pages;
};

/* Every page gets numbers between -1 and 1. */
static quire_err fill_pages(runs_stage *s) {
    uint16_t *page = mem_new(1, (size_t)s->layout.page_bytes);
    uint64_t draw = 1;
    if (page == NULL) {
        return QUIRE_NO_MEMORY;
    }
    for (int64_t i = 0; i < s->layout.page_bytes / 2; i++) {
        page[i] = (uint16_t)(rng_next(&draw) % 0x3c00) | (uint16_t)(rng_next(&draw) % 2 << 15);
    }
    for (int32_t i = 0; i < s->n_pages; i++) {
        s->b->ops->kv_write_page(s->b, i, page);
    }
    mem_free(page);
    return QUIRE_OK;
}

static quire_err open_backend(runs_stage *s, const model_desc *d, quire_error *err) {
    const backend_options options = {.compute = COMPUTE_F32, .isa = "auto", .n_threads = 1};
    const step_limits limits = {.max_rows = 1, .max_seqs = 1};
    TRY(backend_cpu_open(&options, &s->b, err));
    s->q = s->b->ops->buffer_reserve(s->b, SHARING * d->n_kv_heads * d->d_head);
    s->out = s->b->ops->buffer_reserve(s->b, SHARING * d->n_kv_heads * d->d_head);
    TRY(s->b->ops->step_open(s->b, &limits, &s->layout, 0, err));
    TRY(s->b->ops->kv_open(s->b, s->n_pages, err));
    TRY(fill_pages(s));
    int32_t width = SHARING * d->n_kv_heads * d->d_head;
    float *q = mem_new((size_t)width, sizeof *q);
    if (q == NULL) {
        return QUIRE_NO_MEMORY;
    }
    for (int32_t i = 0; i < width; i++) {
        q[i] = (float)(i % 17) / 17.0f - 0.5f;
    }
    s->b->ops->buffer_write(s->b, s->q, 0, 1, q);
    mem_free(q);
    return QUIRE_OK;
}

quire_err runs_stage_open(const model_desc *d, int32_t page_tokens, int32_t n_tokens, runs_stage **out, quire_error *err) {
    runs_stage *s = mem_new(1, sizeof *s);
    if (s == NULL) {
        return err_set(err, QUIRE_NO_MEMORY, -1, "out of memory");
    }
    quire_err e = kv_layout_init(d, DTYPE_F16, page_tokens, &s->layout, err);
    if (e == QUIRE_OK) {
        s->n_tokens = n_tokens;
        s->n_pages = (int32_t)kv_pages_for(n_tokens, page_tokens);
        s->pages = mem_new((size_t)s->n_pages, sizeof *s->pages);
        e = s->pages != NULL ? open_backend(s, d, err) : QUIRE_NO_MEMORY;
    }
    if (e != QUIRE_OK) {
        runs_stage_close(s);
        return e == QUIRE_NO_MEMORY ? err_set(err, e, -1, "out of memory for the keys and values of %d tokens", (int)n_tokens) : e;
    }
    *out = s;
    return QUIRE_OK;
}

void runs_stage_close(runs_stage *s) {
    if (s != NULL) {
        if (s->b != NULL) {
            s->b->ops->close(s->b);
        }
        mem_free(s->pages);
        mem_free(s);
    }
}

static int64_t cpu_us(void) {
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (int64_t)t.tv_sec * 1000000 + t.tv_nsec / 1000;
}

double runs_attention_us(runs_stage *s, int32_t run) {
    runs_arrange(s->n_pages, run < s->n_pages ? run : s->n_pages, 1, s->pages);
    int32_t *table = &s->pages[0].v, position = s->n_tokens - 1, n_layers = s->layout.n_layers, n_done = 0;
    batch_seq seq = {.row0 = 0, .n_rows = 1, .n_tokens = s->n_tokens, .pages = {table}};
    attn_item item;
    batch step = {.n_rows = 1, .n_seqs = 1, .positions = &position, .n_axes = 1, .seqs = &seq, .n_work = 1, .work = &item};
    attn_spec spec = {.scale = 0.125f, .causal = true};
    (void)batch_plan_work(&seq, 1, 1, &item, 1);
    s->b->ops->step_begin(s->b, &step);
    int64_t start = cpu_us(), took = 0;
    for (; took < LEAST_US; took = cpu_us() - start) {
        for (int32_t layer = 0; layer < n_layers; layer++) {
            s->b->ops->attention(s->b, layer, s->q, &spec, s->out);
        }
        n_done += n_layers;
    }
    s->b->ops->step_wait(s->b);
    return (double)took / n_done;
}

/* ---- the pool ---- */

typedef struct crowd {
    const runs_churn *c;
    kv_pool *pool;
    kv_table *tables; /* [n_seqs] */
    int32_t *left;    /* [n_seqs] tokens that its answer still has */
    uint64_t draw;
} crowd;

static int32_t drawn(crowd *w, int32_t low, int32_t high) {
    return low + (int32_t)(rng_next(&w->draw) % (uint64_t)(high - low + 1));
}

static quire_err start(crowd *w, int32_t s) {
    kv_table_clear(w->pool, &w->tables[s]);
    w->left[s] = drawn(w, 1, MAX_ANSWER);
    return kv_table_append(w->pool, &w->tables[s], drawn(w, MIN_PROMPT, MAX_PROMPT), w->c->page_tokens, NULL);
}

static double part_in_runs(const crowd *w, int32_t run) {
    int64_t n = 0, n_pages = 0;
    for (int32_t s = 0; s < w->c->n_seqs; s++) {
        n += runs_count(w->tables[s].pages, w->tables[s].n_pages, run);
        n_pages += w->tables[s].n_pages;
    }
    return (double)n / (double)n_pages;
}

static quire_err live(crowd *w, runs_found *out) {
    int32_t n_ended = 0;
    for (int32_t s = 0; s < w->c->n_seqs; s++) {
        TRY(start(w, s));
    }
    out->new_4 = part_in_runs(w, 4);
    out->new_16 = part_in_runs(w, 16);
    while (n_ended < w->c->n_ended) {
        for (int32_t s = 0; s < w->c->n_seqs; s++) {
            if (w->left[s]-- > 0) {
                TRY(kv_table_append(w->pool, &w->tables[s], 1, w->c->page_tokens, NULL));
            } else {
                TRY(start(w, s));
                n_ended++;
            }
        }
    }
    out->end_4 = part_in_runs(w, 4);
    out->end_16 = part_in_runs(w, 16);
    return QUIRE_OK;
}

quire_err runs_find(const runs_churn *c, runs_found *out) {
    crowd w = {.c = c, .draw = c->seed};
    int32_t most = (int32_t)kv_pages_for(MAX_PROMPT + MAX_ANSWER, c->page_tokens);
    quire_err e = kv_pool_open(c->n_seqs * most, &w.pool);
    w.tables = mem_new((size_t)c->n_seqs, sizeof *w.tables);
    w.left = mem_new((size_t)c->n_seqs, sizeof *w.left);
    if (e == QUIRE_OK) {
        e = w.tables != NULL && w.left != NULL ? live(&w, out) : QUIRE_NO_MEMORY;
    }
    for (int32_t s = 0; w.tables != NULL && s < c->n_seqs; s++) {
        kv_table_deinit(w.pool, &w.tables[s]);
    }
    mem_free(w.tables);
    mem_free(w.left);
    kv_pool_close(w.pool);
    return e;
}
