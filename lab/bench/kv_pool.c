#include "lab/bench/kv_pool.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <time.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/rng.h"
#include "kv/kv_seq.h"

enum { PAGE_TOKENS = 16 };

quire_err kv_bench_pool_open(int32_t n_pages, uint64_t seed, kv_pool **out) {
    if (n_pages < 1 || n_pages > INT32_MAX / 4) {
        return QUIRE_INVALID;
    }
    int32_t n = n_pages * 2;
    TRY(kv_pool_open(n, out));
    page_id *ids = mem_new((size_t)n, sizeof *ids);
    quire_err e = ids != NULL ? kv_pool_reserve(*out, n, ids) : QUIRE_NO_MEMORY;
    for (int32_t i = n - 1; e == QUIRE_OK && i >= n_pages; i--) {
        int32_t other = (int32_t)(rng_next(&seed) % (uint64_t)(i + 1));
        page_id id = ids[other];
        ids[other] = ids[i];
        kv_pool_release_all(*out, &id, 1);
    }
    mem_free(ids);
    if (e != QUIRE_OK) {
        kv_pool_close(*out);
    }
    return e;
}

bool kv_bench_pool_is_whole(const kv_pool *pool) {
    kv_counts c = kv_pool_counts(pool);
    return c.n_free == c.n_pages / 2 && kv_pool_check(pool, NULL) == QUIRE_OK;
}

enum {
    MAX_THREADS = KV_BENCH_MAX_THREADS,
    TABLE_PAGES = 64,
    CALL_PAGES = 16,
    CLOCK_SAMPLES = 64,
    LINE_PAIR = 128
};

const char *kv_op_name(kv_op op) {
    static const char *const names[KV_OP_N] = {"reserve",   "release", "reserve16",
                                               "release16", "append",  "fork"};
    return names[op];
}

static int64_t thread_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* The least time between two readings of the thread's clock. */
static int64_t clock_cost(void) {
    int64_t least = INT64_MAX;
    for (int i = 0; i < CLOCK_SAMPLES; i++) {
        int64_t start = thread_ns(), took = thread_ns() - start;
        least = took < least ? took : least;
    }
    return least;
}

/* State shared by all threads of a measurement. */
typedef struct contest {
    atomic_int n_awaited; /* threads that have not arrived yet; all start together */
    atomic_bool over;
} contest;

/* State of a thread, on cache lines that no other thread uses, including those that the
 * processor fetches along with them. */
typedef struct worker {
    _Alignas(LINE_PAIR) contest *c;
    kv_pool *pool;
    pthread_t thread;
    int32_t n_pages, n_tables; /* its own pages and tables; all tables but the last have TABLE_PAGES pages */
    page_id *ids;              /* [n_pages] */
    kv_table *tables, *forks;  /* [n_tables] */
    int64_t cpu_ns[KV_OP_N], n_done[KV_OP_N];
    int64_t clock_ns;
    double share; /* CPU time per wall time */
    quire_err error;
} worker;

static void kv_pool_note(worker *w, kv_op op, int64_t start, int64_t n) {
    w->cpu_ns[op] += thread_ns() - start - w->clock_ns;
    w->n_done[op] += n;
}

/* Reserves all own pages, n per call, and releases them. */
static void reserve_and_release(worker *w, int32_t n, kv_op reserve, kv_op release) {
    int32_t n_pages = w->n_pages - w->n_pages % n;
    int64_t start = thread_ns();
    for (int32_t i = 0; i < n_pages && w->error == QUIRE_OK; i += n) {
        w->error = kv_pool_reserve(w->pool, n, w->ids + i);
    }
    kv_pool_note(w, reserve, start, n_pages);
    if (w->error != QUIRE_OK) {
        return;
    }
    start = thread_ns();
    for (int32_t i = 0; i < n_pages; i += n) {
        kv_pool_release_all(w->pool, w->ids + i, n);
    }
    kv_pool_note(w, release, start, n_pages);
}

/* Fills the tables side by side, page by page, forks each, and releases everything. */
static void append_and_fork(worker *w) {
    kv_copies none = {0};
    int32_t n_done = 0;
    int64_t start = thread_ns();
    while (n_done < w->n_pages && w->error == QUIRE_OK) {
        for (int32_t t = 0; t < w->n_tables && n_done < w->n_pages && w->error == QUIRE_OK; t++, n_done++) {
            w->error = kv_table_append(w->pool, &w->tables[t], PAGE_TOKENS, PAGE_TOKENS, &none);
        }
    }
    kv_pool_note(w, KV_OP_APPEND, start, n_done);
    start = thread_ns();
    for (int32_t t = 0; t < w->n_tables && w->error == QUIRE_OK; t++) {
        w->error = kv_table_fork(w->pool, &w->tables[t], &w->forks[t]);
    }
    kv_pool_note(w, KV_OP_FORK, start, n_done);
    for (int32_t t = 0; t < w->n_tables; t++) {
        kv_table_clear(w->pool, &w->forks[t]);
        kv_table_clear(w->pool, &w->tables[t]);
    }
}

static void *kv_pool_work(void *argument) {
    worker *w = argument;
    w->clock_ns = clock_cost();
    atomic_fetch_sub(&w->c->n_awaited, 1);
    while (atomic_load(&w->c->n_awaited) > 0 && !atomic_load(&w->c->over)) {
        sched_yield();
    }
    int64_t wall_start = clock_ns(), cpu_start = thread_ns();
    for (int round = 0; w->error == QUIRE_OK; round++) {
        reserve_and_release(w, 1, KV_OP_RESERVE, KV_OP_RELEASE);
        reserve_and_release(w, CALL_PAGES, KV_OP_RESERVE_16, KV_OP_RELEASE_16);
        append_and_fork(w);
        bool over = atomic_load(&w->c->over);
        for (int op = 0; round == 0 && op < KV_OP_N; op++) { /* the first round warms caches and tables */
            w->cpu_ns[op] = w->n_done[op] = 0;
        }
        if (round > 0 && over) {
            break;
        }
    }
    w->share = (double)(thread_ns() - cpu_start) / (double)(clock_ns() - wall_start);
    return NULL;
}

static quire_err kv_pool_make_worker(contest *c, kv_pool *pool, int32_t n_pages, worker *w) {
    int32_t n_tables = (n_pages + TABLE_PAGES - 1) / TABLE_PAGES;
    *w = (worker){.c = c, .pool = pool, .n_pages = n_pages, .n_tables = n_tables};
    w->ids = mem_new((size_t)n_pages, sizeof *w->ids);
    w->tables = mem_new((size_t)n_tables, sizeof *w->tables);
    w->forks = mem_new((size_t)n_tables, sizeof *w->forks);
    if (w->ids == NULL || w->tables == NULL || w->forks == NULL) {
        return QUIRE_NO_MEMORY;
    }
    for (int32_t t = 0; t < n_tables; t++) {
        TRY(kv_table_init(&w->tables[t], TABLE_PAGES));
        TRY(kv_table_init(&w->forks[t], TABLE_PAGES));
    }
    return QUIRE_OK;
}

static void free_worker(worker *w) {
    for (int32_t t = 0; w->tables != NULL && w->forks != NULL && t < w->n_tables; t++) {
        mem_free(w->tables[t].pages);
        mem_free(w->forks[t].pages);
    }
    mem_free(w->tables);
    mem_free(w->forks);
    mem_free(w->ids);
}

/* Runs the workers together for wall_ms. */
static quire_err run_contest(contest *c, worker *workers, int32_t n, int32_t wall_ms) {
    int32_t n_made = 0;
    atomic_store(&c->n_awaited, n);
    while (n_made < n && pthread_create(&workers[n_made].thread, NULL, kv_pool_work, &workers[n_made]) == 0) {
        n_made++;
    }
    if (n_made == n) {
        nanosleep(&(struct timespec){wall_ms / 1000, wall_ms % 1000 * 1000000L}, NULL);
    }
    atomic_store(&c->over, true);
    for (int32_t i = 0; i < n_made; i++) {
        pthread_join(workers[i].thread, NULL);
    }
    return n_made == n ? QUIRE_OK : QUIRE_NO_MEMORY;
}

/* Sums up all workers: CPU time per page of each operation, and the smallest part of its
 * time for which one had a core. */
static quire_err sum_up(const worker *workers, int32_t n, double ns[KV_OP_N], double *share) {
    quire_err e = QUIRE_OK;
    *share = workers[0].share;
    for (int op = 0; op < KV_OP_N; op++) {
        int64_t cpu_ns = 0, n_done = 0;
        for (int32_t i = 0; i < n; i++) {
            cpu_ns += workers[i].cpu_ns[op];
            n_done += workers[i].n_done[op];
            e = workers[i].error != QUIRE_OK ? QUIRE_INTERNAL : e;
            *share = workers[i].share < *share ? workers[i].share : *share;
        }
        ns[op] = (double)cpu_ns / (double)n_done;
    }
    return e;
}

quire_err kv_bench_ops(kv_pool *const *pools, int32_t n_pools, int32_t n_pages, int32_t n_threads,
                       int32_t wall_ms, double ns[KV_OP_N], double *share) {
    contest c = {0};
    if (n_threads < 1 || n_threads > MAX_THREADS || n_pages / n_threads < CALL_PAGES) {
        return QUIRE_INVALID;
    }
    worker workers[MAX_THREADS] = {{0}};
    quire_err e = QUIRE_OK;
    for (int32_t i = 0; i < n_threads && e == QUIRE_OK; i++) {
        e = kv_pool_make_worker(&c, pools[i % n_pools], n_pages / n_threads, &workers[i]);
    }
    TRY_DONE(e, run_contest(&c, workers, n_threads, wall_ms));
    TRY_DONE(e, sum_up(workers, n_threads, ns, share));
done:
    for (int32_t i = 0; i < n_threads; i++) {
        free_worker(&workers[i]);
    }
    for (int32_t i = 0; i < n_pools && e == QUIRE_OK; i++) {
        e = kv_bench_pool_is_whole(pools[i]) ? QUIRE_OK : QUIRE_INTERNAL;
    }
    return e;
}

enum { MAX_PROMPT = 1 << 16, N_COMMON = 64, VOCABULARY = 128000, N_MATCHES = 1000, CHANGED_PART = 8 };

/* A full tree. It contains the last n_prompts prompts, except what was evicted. */
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

static void kv_index_make_prompt(forest *f, int64_t number) {
    uint64_t common = (uint64_t)number % N_COMMON, own = (uint64_t)number + N_COMMON;
    for (int32_t p = 0; p < f->prompt_tokens; p++) {
        f->tokens[p] = (int32_t)(rng_next(p < f->prompt_tokens / 4 ? &common : &own) % VOCABULARY);
    }
}

/* Inserts prompt `number`: matches what is there, takes pages for the rest and publishes
 * them. Adds the time of publishing, and its tokens. */
static quire_err kv_index_insert(forest *f, int64_t number, int64_t *took_ns, int64_t *n_tokens) {
    kv_index_make_prompt(f, number);
    f->copies.n = 0;
    TRY(kv_seq_open(&f->c, &f->seq, NULL, 0, "bench", 5, f->tokens, f->prompt_tokens));
    quire_err e = kv_seq_admit(&f->c, &f->seq, f->tokens, f->prompt_tokens - 1);
    int32_t n_new = f->prompt_tokens - f->seq.n_computed;
    TRY_DONE(e, kv_seq_reserve(&f->c, &f->seq, n_new, &f->copies));
    kv_seq_advance(&f->seq, n_new);
    int64_t start = thread_ns();
    kv_seq_publish_tail(&f->c, &f->seq, f->tokens);
    *took_ns += thread_ns() - start - f->clock_ns;
    *n_tokens += n_new;
done:
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

/* Matches prompts among the younger half of those inserted. */
static quire_err match(forest *f, kv_index_times out) {
    int64_t match_ns = 0, peek_ns = 0, n_tokens = 0,
            n_young = (int64_t)f->n_pages * f->page_tokens / f->prompt_tokens / 2;
    for (int i = 0; i < N_MATCHES; i++) {
        kv_index_make_prompt(f, f->n_made - 1 - (int64_t)(rng_next(&f->draw) % (uint64_t)n_young));
        TRY(kv_seq_open(&f->c, &f->seq, NULL, 0, "bench", 5, f->tokens, f->prompt_tokens));
        int64_t start = thread_ns();
        quire_err e = kv_seq_admit(&f->c, &f->seq, f->tokens, f->prompt_tokens - 1);
        int64_t matched = thread_ns();
        int32_t n_found = f->seq.n_computed;
        kv_seq_release(&f->c, &f->seq, f->tokens, KV_DROP);
        int64_t cleared = thread_ns();
        /* the same again, now cached */
        int32_t n_peeked = kv_index_peek(f->c.index, &f->seq.path, f->tokens, f->prompt_tokens - 1);
        int64_t peeked = thread_ns();
        match_ns += matched - start - f->clock_ns;
        peek_ns += peeked - cleared - f->clock_ns;
        n_tokens += n_found;
        kv_seq_close(&f->c, &f->seq);
        TRY(e);
        if (n_found != f->prompt_tokens - 1 || n_peeked != n_found) {
            return QUIRE_INTERNAL;
        }
    }
    out[KV_INDEX_MATCH] = (double)match_ns / (double)n_tokens;
    out[KV_INDEX_PEEK] = (double)peek_ns / (double)n_tokens;
    return QUIRE_OK;
}

static quire_err kv_index_run(forest *f, kv_index_times out) {
    int64_t insert_ns = 0, n_tokens = 0, n_evicted = f->n_pages / CHANGED_PART, start = thread_ns();
    int32_t n_free = kv_pool_counts(f->c.pool).n_free;
    TRY(kv_index_evict(f->c.index, n_free + (int32_t)n_evicted));
    out[KV_INDEX_EVICT] = (double)(thread_ns() - start - f->clock_ns) / (double)n_evicted;
    TRY(kv_index_fill(f, &insert_ns, &n_tokens));
    out[KV_INDEX_INSERT] = (double)insert_ns / (double)n_tokens;
    return match(f, out);
}

static quire_err open_forest(forest *f) {
    kv_cache_options o = {
        .n_pages = f->n_pages, .page_tokens = f->page_tokens, .n_groups = 1, .max_namespaces = 16, .seed = 1};
    TRY(kv_cache_open(&o, &f->c));
    TRY(kv_seq_init(&f->seq, 1, f->prompt_tokens / f->page_tokens + 1));
    f->copies.pairs = mem_new(1, sizeof *f->copies.pairs);
    f->copies.cap = 1;
    f->clock_ns = clock_cost();
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
    TRY_DONE(e, kv_index_fill(&f, &ignored_ns, &n_ignored));
    for (int32_t i = 0; i < n_runs; i++) {
        TRY_DONE(e, kv_index_run(&f, runs[i]));
    }
    kv_index_counts c = kv_index_count(f.c.index);
    *sizes = (kv_index_sizes){.n_entries = c.n_entries,
                              .n_nodes = c.n_nodes,
                              .index_bytes = (double)kv_index_bytes(f.c.index) / n_pages,
                              .pool_bytes = (double)kv_pool_bytes(f.c.pool) / n_pages,
                              .table_bytes = (double)f.seq.tables[0].cap_pages * (double)sizeof(page_id) /
                                             prompt_tokens};
done:
    kv_seq_deinit(&f.seq);
    kv_cache_close(&f.c);
    mem_free(f.copies.pairs);
    mem_free(f.tokens);
    return e;
}
