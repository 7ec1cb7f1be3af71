#include "lab/bench/kv_pool.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <time.h>

#include "base/mem.h"

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

static int64_t now_ns(clockid_t clock) {
    struct timespec t;
    clock_gettime(clock, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* What reading the clock twice shows when nothing lies between: the least of many. */
static int64_t clock_cost(clockid_t clock) {
    int64_t least = INT64_MAX;
    for (int i = 0; i < CLOCK_SAMPLES; i++) {
        int64_t start = now_ns(clock), took = now_ns(clock) - start;
        least = took < least ? took : least;
    }
    return least;
}

/* What all threads of a measurement share. */
typedef struct contest {
    atomic_int n_awaited; /* threads that are not there yet; all start together */
    atomic_bool over;
} contest;

/* A thread of it, in lines of the cache that no other thread has, with those that the
 * processor fetches beside them. */
typedef struct worker {
    _Alignas(LINE_PAIR) contest *c;
    page_store *store;
    pthread_t thread;
    int32_t n_pages, n_tables; /* of its own; tables have TABLE_PAGES each but perhaps the last */
    page_id *ids;              /* [n_pages] */
    kv_table *tables, *forks;  /* [n_tables] */
    int64_t cpu_ns[KV_OP_N], n_done[KV_OP_N];
    int64_t clock_ns;
    double share; /* CPU time for each second of wall time */
    quire_err error;
} worker;

static void note(worker *w, kv_op op, int64_t start, int64_t n) {
    w->cpu_ns[op] += now_ns(CLOCK_THREAD_CPUTIME_ID) - start - w->clock_ns;
    w->n_done[op] += n;
}

/* All own pages, n a call, and back. */
static void reserve_and_release(worker *w, int32_t n, kv_op reserve, kv_op release) {
    page_store *s = w->store;
    int32_t n_pages = w->n_pages - w->n_pages % n;
    int64_t start = now_ns(CLOCK_THREAD_CPUTIME_ID);
    for (int32_t i = 0; i < n_pages && w->error == QUIRE_OK; i += n) {
        w->error = page_store_reserve(s, n, w->ids + i);
    }
    note(w, reserve, start, n_pages);
    if (w->error != QUIRE_OK) {
        return;
    }
    start = now_ns(CLOCK_THREAD_CPUTIME_ID);
    for (int32_t i = 0; i < n_pages; i += n) {
        page_store_release(s, w->ids + i, n);
    }
    note(w, release, start, n_pages);
}

/* Fills the tables page by page side by side, forks each, gives all back. */
static void append_and_fork(worker *w) {
    page_store *s = w->store;
    int32_t n_done = 0;
    int64_t start = now_ns(CLOCK_THREAD_CPUTIME_ID);
    while (n_done < w->n_pages && w->error == QUIRE_OK) {
        for (int32_t t = 0; t < w->n_tables && n_done < w->n_pages && w->error == QUIRE_OK; t++, n_done++) {
            w->error = page_store_append_page(s, &w->tables[t]);
        }
    }
    note(w, KV_OP_APPEND, start, n_done);
    start = now_ns(CLOCK_THREAD_CPUTIME_ID);
    for (int32_t t = 0; t < w->n_tables && w->error == QUIRE_OK; t++) {
        w->error = page_store_fork(s, &w->tables[t], &w->forks[t]);
    }
    note(w, KV_OP_FORK, start, n_done);
    for (int32_t t = 0; t < w->n_tables; t++) {
        page_store_clear(s, &w->forks[t]);
        page_store_clear(s, &w->tables[t]);
    }
}

static void *work(void *argument) {
    worker *w = argument;
    w->clock_ns = clock_cost(CLOCK_THREAD_CPUTIME_ID);
    atomic_fetch_sub(&w->c->n_awaited, 1);
    while (atomic_load(&w->c->n_awaited) > 0 && !atomic_load(&w->c->over)) {
        sched_yield();
    }
    int64_t wall_start = now_ns(CLOCK_MONOTONIC), cpu_start = now_ns(CLOCK_THREAD_CPUTIME_ID);
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
    w->share = (double)(now_ns(CLOCK_THREAD_CPUTIME_ID) - cpu_start) /
               (double)(now_ns(CLOCK_MONOTONIC) - wall_start);
    return NULL;
}

static quire_err make_worker(contest *c, page_store *store, int32_t n_pages, worker *w) {
    int32_t n_tables = (n_pages + TABLE_PAGES - 1) / TABLE_PAGES;
    *w = (worker){.c = c, .store = store, .n_pages = n_pages, .n_tables = n_tables};
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

/* Lets the workers run together for wall_ms. */
static quire_err run_contest(contest *c, worker *workers, int32_t n, int32_t wall_ms) {
    int32_t n_made = 0;
    atomic_store(&c->n_awaited, n);
    while (n_made < n && pthread_create(&workers[n_made].thread, NULL, work, &workers[n_made]) == 0) {
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

/* Of all workers together: CPU time a page of each operation, and the least part of its
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

quire_err kv_bench_ops(page_store *const *stores, int32_t n_stores, int32_t n_pages, int32_t n_threads,
                       int32_t wall_ms, double ns[KV_OP_N], double *share) {
    contest c = {0};
    if (n_threads < 1 || n_threads > MAX_THREADS || n_pages / n_threads < CALL_PAGES) {
        return QUIRE_INVALID;
    }
    worker workers[MAX_THREADS] = {{0}};
    quire_err e = QUIRE_OK;
    for (int32_t i = 0; i < n_threads && e == QUIRE_OK; i++) {
        e = make_worker(&c, stores[i % n_stores], n_pages / n_threads, &workers[i]);
    }
    e = e == QUIRE_OK ? run_contest(&c, workers, n_threads, wall_ms) : e;
    e = e == QUIRE_OK ? sum_up(workers, n_threads, ns, share) : e;
    for (int32_t i = 0; i < n_threads; i++) {
        free_worker(&workers[i]);
    }
    for (int32_t i = 0; i < n_stores && e == QUIRE_OK; i++) {
        e = page_store_is_whole(stores[i]) ? QUIRE_OK : QUIRE_INTERNAL;
    }
    return e;
}

quire_err kv_bench_append_times(page_store *store, int32_t n_seqs, int32_t n_samples, double *ns) {
    contest c = {0};
    worker w;
    quire_err e = make_worker(&c, store, n_seqs * TABLE_PAGES, &w);
    int64_t cost = clock_cost(CLOCK_MONOTONIC);
    /* what is before 0 warms up */
    for (int32_t i = -n_seqs * TABLE_PAGES; i < n_samples && e == QUIRE_OK; i++) {
        kv_table *t = &w.tables[(i + n_seqs * TABLE_PAGES) % n_seqs];
        if (t->n_pages == TABLE_PAGES) {
            page_store_clear(store, t);
        }
        int64_t start = now_ns(CLOCK_MONOTONIC);
        e = page_store_append_page(store, t);
        int64_t took = now_ns(CLOCK_MONOTONIC) - start - cost;
        if (i >= 0) {
            ns[i] = took > 0 ? (double)took : 0;
        }
    }
    for (int32_t t = 0; w.tables != NULL && t < w.n_tables; t++) {
        page_store_clear(store, &w.tables[t]);
    }
    free_worker(&w);
    return e;
}
