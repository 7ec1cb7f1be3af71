#include "lab/bench/kv_index.h"

#include <time.h>

#include "base/mem.h"
#include "base/rng.h"
#include "kv/kv_seq.h"

enum {
    MAX_PROMPT = 1 << 16,
    N_COMMON = 64,
    VOCABULARY = 128000,
    N_MATCHES = 1000,
    CLOCK_SAMPLES = 64,
    CHANGED_PART = 8
};

/* A full tree, and the prompts in it: the last n_prompts that were made are there but for
 * what was evicted. */
typedef struct forest {
    kv_cache c;
    int32_t n_pages, page_tokens, prompt_tokens;
    int64_t n_made;
    kv_seq seq;
    kv_copies copies;
    int32_t *tokens; /* [prompt_tokens] */
    uint64_t draw;
    int64_t clock_ns;
} forest;

static int64_t cpu_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static void kv_index_make_prompt(forest *f, int64_t number) {
    uint64_t common = (uint64_t)number % N_COMMON, own = (uint64_t)number + N_COMMON;
    for (int32_t p = 0; p < f->prompt_tokens; p++) {
        f->tokens[p] = (int32_t)(rng_next(p < f->prompt_tokens / 4 ? &common : &own) % VOCABULARY);
    }
}

/* Puts prompt `number` in: finds what is there, takes pages for the rest and publishes
 * them. Adds the time of publishing and its tokens. */
static quire_err kv_index_insert(forest *f, int64_t number, int64_t *took_ns, int64_t *n_tokens) {
    kv_index_make_prompt(f, number);
    f->copies.n = 0;
    TRY(kv_seq_open(&f->c, &f->seq, NULL, 0, "bench", 5, f->tokens, f->prompt_tokens));
    quire_err e = kv_seq_admit(&f->c, &f->seq, f->tokens, f->prompt_tokens - 1);
    int32_t n_new = f->prompt_tokens - f->seq.n_computed;
    e = e == QUIRE_OK ? kv_seq_reserve(&f->c, &f->seq, n_new, &f->copies) : e;
    if (e == QUIRE_OK) {
        kv_seq_advance(&f->seq, n_new);
        int64_t start = cpu_ns();
        kv_seq_publish_tail(&f->c, &f->seq, f->tokens);
        *took_ns += cpu_ns() - start - f->clock_ns;
        *n_tokens += n_new;
    }
    kv_seq_release(&f->c, &f->seq, f->tokens, KV_DROP);
    kv_seq_close(&f->c, &f->seq);
    return e;
}

/* Inserts new prompts while there is room for a whole one. */
static quire_err kv_index_fill(forest *f, int64_t *took_ns, int64_t *n_tokens) {
    while (kv_pool_counts(f->c.pool).n_free >= kv_pages_for(f->prompt_tokens, f->page_tokens)) {
        TRY(kv_index_insert(f, f->n_made, took_ns, n_tokens));
        f->n_made++;
    }
    return QUIRE_OK;
}

/* Finds prompts among the younger half of what was inserted. */
static quire_err match(forest *f, kv_index_times *out) {
    int64_t match_ns = 0, peek_ns = 0, n_tokens = 0,
            n_young = (int64_t)f->n_pages * f->page_tokens / f->prompt_tokens / 2;
    for (int i = 0; i < N_MATCHES; i++) {
        kv_index_make_prompt(f, f->n_made - 1 - (int64_t)(rng_next(&f->draw) % (uint64_t)n_young));
        TRY(kv_seq_open(&f->c, &f->seq, NULL, 0, "bench", 5, f->tokens, f->prompt_tokens));
        int64_t start = cpu_ns();
        quire_err e = kv_seq_admit(&f->c, &f->seq, f->tokens, f->prompt_tokens - 1);
        int64_t matched = cpu_ns();
        int32_t n_found = f->seq.n_computed;
        kv_seq_release(&f->c, &f->seq, f->tokens, KV_DROP);
        int64_t cleared = cpu_ns();
        /* the same again, from the caches */
        int32_t n_peeked = kv_index_peek(f->c.index, &f->seq.path, f->tokens, f->prompt_tokens - 1);
        int64_t peeked = cpu_ns();
        match_ns += matched - start - f->clock_ns;
        peek_ns += peeked - cleared - f->clock_ns;
        n_tokens += n_found;
        kv_seq_close(&f->c, &f->seq);
        TRY(e);
        if (n_found != f->prompt_tokens - 1 || n_peeked != n_found) {
            return QUIRE_INTERNAL;
        }
    }
    out->match_ns = (double)match_ns / (double)n_tokens;
    out->peek_ns = (double)peek_ns / (double)n_tokens;
    return QUIRE_OK;
}

static quire_err kv_index_run(forest *f, kv_index_times *out) {
    int64_t insert_ns = 0, n_tokens = 0, n_evicted = f->n_pages / CHANGED_PART, start = cpu_ns();
    int32_t n_free = kv_pool_counts(f->c.pool).n_free;
    TRY(kv_index_evict(f->c.index, n_free + (int32_t)n_evicted));
    out->evict_ns = (double)(cpu_ns() - start - f->clock_ns) / (double)n_evicted;
    TRY(kv_index_fill(f, &insert_ns, &n_tokens));
    out->insert_ns = (double)insert_ns / (double)n_tokens;
    return match(f, out);
}

static quire_err open_forest(forest *f) {
    kv_cache_options o = {
        .n_pages = f->n_pages, .page_tokens = f->page_tokens, .n_groups = 1, .max_namespaces = 16, .seed = 1};
    TRY(kv_cache_open(&o, &f->c));
    TRY(kv_seq_init(&f->seq, 1, f->prompt_tokens / f->page_tokens + 1));
    f->copies.pairs = mem_new(1, sizeof *f->copies.pairs);
    f->copies.cap = 1;
    f->clock_ns = INT64_MAX;
    for (int i = 0; i < CLOCK_SAMPLES; i++) {
        int64_t start = cpu_ns(), took = cpu_ns() - start;
        f->clock_ns = took < f->clock_ns ? took : f->clock_ns;
    }
    f->tokens = mem_new((size_t)f->prompt_tokens, sizeof *f->tokens);
    return f->copies.pairs != NULL && f->tokens != NULL ? QUIRE_OK : QUIRE_NO_MEMORY;
}

quire_err kv_bench_index(int32_t n_pages, int32_t page_tokens, int32_t prompt_tokens, int32_t n_runs,
                         kv_index_times *runs, kv_index_sizes *sizes) {
    if (prompt_tokens < 2 || prompt_tokens > MAX_PROMPT ||
        n_pages / 16 < kv_pages_for(prompt_tokens, page_tokens)) {
        return QUIRE_INVALID;
    }
    forest f = {.n_pages = n_pages, .page_tokens = page_tokens, .prompt_tokens = prompt_tokens};
    int64_t ignored_ns = 0, n_ignored = 0;
    quire_err e = open_forest(&f);
    e = e == QUIRE_OK ? kv_index_fill(&f, &ignored_ns, &n_ignored) : e;
    for (int32_t i = 0; i < n_runs && e == QUIRE_OK; i++) {
        e = kv_index_run(&f, &runs[i]);
    }
    if (e == QUIRE_OK) {
        kv_index_counts c = kv_index_count(f.c.index);
        *sizes = (kv_index_sizes){.n_entries = c.n_entries,
                                  .n_nodes = c.n_nodes,
                                  .index_bytes = (double)kv_index_bytes(f.c.index) / n_pages,
                                  .pool_bytes = (double)kv_pool_bytes(f.c.pool) / n_pages,
                                  .table_bytes = (double)f.seq.tables[0].cap_pages * (double)sizeof(page_id) /
                                                 prompt_tokens};
    }
    kv_seq_deinit(&f.seq);
    kv_cache_close(&f.c);
    mem_free(f.copies.pairs);
    mem_free(f.tokens);
    return e;
}
