/* Measures the pool's operations from one or many threads: CPU time per page, and its
 * spread. */
#ifndef LAB_BENCH_KV_POOL_H
#define LAB_BENCH_KV_POOL_H

#include <stdint.h>

#include "base/err.h"
#include "kv/table.h"

/* A pool of n_pages free pages among as many held ones, as after long use: which are
 * free, and in which order they became free, is drawn from seed. kv_pool_close closes it.
 * Errors: NO_MEMORY, INVALID (n_pages is out of range). */
quire_err kv_bench_pool_open(int32_t n_pages, uint64_t seed, kv_pool **out);
/* Whether the same number of pages is free as at the start. */
bool kv_bench_pool_is_whole(const kv_pool *pool);

typedef enum kv_op {
    KV_OP_RESERVE,    /* one page a call */
    KV_OP_RELEASE,    /* one page a call */
    KV_OP_RESERVE_16, /* 16 pages a call */
    KV_OP_RELEASE_16, /* 16 pages a call */
    KV_OP_APPEND,     /* appends a page to a block table, one table after another */
    KV_OP_FORK,       /* of whole tables */
    KV_OP_N
} kv_op;

#define KV_BENCH_MAX_THREADS 64

const char *kv_op_name(kv_op op);

/* Rounds of all operations by n_threads at once, each with pages and tables of its own,
 * n_pages in all, until wall_ms have passed and every thread has done a round after a
 * first that is not counted. ns[op]: nanoseconds of thread CPU time a page, the loop
 * around the call included, the reading of the clock not. *share: the least
 * part of its wall time for which a thread had a core, 1 where all cores are free. Thread
 * i uses pools[i % n_pools]: with one for each thread they share nothing. Pools are
 * whole again. NO_MEMORY; INTERNAL when a page was lost. */
quire_err kv_bench_ops(kv_pool *const *pools, int32_t n_pools, int32_t n_pages, int32_t n_threads,
                       int32_t wall_ms, double ns[KV_OP_N], double *share);

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
