/* The pool's operations from one or many threads at once: CPU time a page, and how it
 * spreads. */
#ifndef LAB_BENCH_KV_POOL_H
#define LAB_BENCH_KV_POOL_H

#include <stdint.h>

#include "base/err.h"
#include "kv/table.h"

/* Two pools with the same operations, to compare: that of src/kv, and a plain stack of
 * pages under one mutex. Any thread may use either; a table belongs to one thread. */

typedef enum page_store_kind { PAGE_STORE_POOL, PAGE_STORE_MUTEX, PAGE_STORE_N_KINDS } page_store_kind;

typedef struct page_store page_store;

/* n_pages free pages among as many held ones, as after long use: which are free, and in
 * which order they became free, is drawn from seed. NO_MEMORY; INVALID: no pool has so
 * many. */
quire_err page_store_open(page_store_kind kind, int32_t n_pages, uint64_t seed, page_store **out);
void page_store_close(page_store *s);

/* As kv_pool_reserve, kv_pool_release_all, kv_table_append of one page's tokens,
 * kv_table_fork and kv_table_clear. The tables have room. */
quire_err page_store_reserve(page_store *s, int32_t n, page_id *ids);
void page_store_release(page_store *s, const page_id *ids, int32_t n);
quire_err page_store_append_page(page_store *s, kv_table *t);
quire_err page_store_fork(page_store *s, const kv_table *from, kv_table *to);
void page_store_clear(page_store *s, kv_table *t);

/* Whether all pages are free. */
bool page_store_is_whole(const page_store *s);

typedef enum kv_op {
    KV_OP_RESERVE,    /* one page a call */
    KV_OP_RELEASE,    /* one page a call */
    KV_OP_RESERVE_16, /* 16 pages a call */
    KV_OP_RELEASE_16, /* 16 pages a call */
    KV_OP_APPEND,     /* a page at the end of a block table, one table after another */
    KV_OP_FORK,       /* of whole tables */
    KV_OP_N
} kv_op;

#define KV_BENCH_MAX_THREADS 64

const char *kv_op_name(kv_op op);

/* Rounds of all operations by n_threads at once, each with pages and tables of its own,
 * n_pages in all, until wall_ms have passed and every thread has done a round after a
 * first that is not counted. ns[op]: nanoseconds of thread CPU time a page, the loop
 * around the call and the store included, the reading of the clock not. *share: the least
 * part of its wall time for which a thread had a core, 1 where all cores are free. Thread
 * i uses stores[i % n_stores]: with one for each thread they share nothing. Stores are
 * whole again. NO_MEMORY; INTERNAL when a page was lost. */
quire_err kv_bench_ops(page_store *const *stores, int32_t n_stores, int32_t n_pages, int32_t n_threads,
                       int32_t wall_ms, double ns[KV_OP_N], double *share);

/* Appends a page to each of n_seqs sequences in turn, n_samples times in all, each timed
 * alone: ns[i] by the monotonic clock, the clock's own time taken off. The store must
 * have n_seqs * 64 pages. */
quire_err kv_bench_append_times(page_store *store, int32_t n_seqs, int32_t n_samples, double *ns);

/* The index's operations on a full tree: CPU time a token, and the bytes it takes. */

/* One run. Match: random whole prompts, whose pages are shared into tables. Insert:
 * the new pages of a prompt. Nanoseconds of thread CPU time, without the reading of
 * the clock. */
typedef struct kv_index_times {
    double match_ns, peek_ns, insert_ns; /* a token */
    double evict_ns;                     /* a page */
} kv_index_times;

typedef struct kv_index_sizes {
    int64_t n_entries, n_nodes;
    double index_bytes, pool_bytes; /* a page */
    double table_bytes;             /* a token of a prompt */
} kv_index_sizes;

/* A tree of n_pages pages of page_tokens tokens each: prompts of prompt_tokens (2 ..
 * 65,536), the first quarter of which is one of 64. Each of n_runs runs evicts an eighth,
 * inserts as much anew, and matches 1,000 prompts. NO_MEMORY; INVALID when 16 prompts
 * have no room; INTERNAL when the index does not find what is in it. */
quire_err kv_bench_index(int32_t n_pages, int32_t page_tokens, int32_t prompt_tokens, int32_t n_runs,
                         kv_index_times *runs, kv_index_sizes *sizes);

#endif
