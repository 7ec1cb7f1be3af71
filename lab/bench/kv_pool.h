/* Measures the pool's operations with one or more threads: CPU time per page, spread. */
#ifndef LAB_BENCH_KV_POOL_H
#define LAB_BENCH_KV_POOL_H

#include <stdint.h>

#include "base/err.h"
#include "kv/table.h"

/* Opens a pool with n_pages free pages among as many held ones, as after long use: which
 * pages are free, and the order in which they became free, is drawn from seed. Close it
 * with kv_pool_close. NO_MEMORY; INVALID: n_pages is out of range. */
quire_err kv_bench_pool_open(int32_t n_pages, uint64_t seed, kv_pool **out);
/* Whether as many pages are free as at the start. */
bool kv_bench_pool_is_whole(const kv_pool *pool);

typedef enum kv_op {
    KV_OP_RESERVE,    /* one page per call */
    KV_OP_RELEASE,    /* one page per call */
    KV_OP_RESERVE_16, /* 16 pages per call */
    KV_OP_RELEASE_16, /* 16 pages per call */
    KV_OP_APPEND,     /* appends a page to a block table, one table after another */
    KV_OP_FORK,       /* forks whole block tables */
    KV_OP_N
} kv_op;

#define KV_BENCH_MAX_THREADS 64

const char *kv_op_name(kv_op op);

/* Runs rounds of all operations on n_threads threads at once, each with its own pages and
 * tables, n_pages in total, until wall_ms have passed and every thread has done a round
 * after its first, which is not counted. ns[op]: nanoseconds of thread CPU time per page,
 * including the loop around the call but not reading the clock. *share: the smallest part
 * of its wall time for which a thread had a core; 1: all cores are free. Thread i uses
 * pools[i % n_pools]: with a pool per thread they share nothing. Afterwards the pools are
 * whole again. NO_MEMORY; INTERNAL: a page was lost. */
quire_err kv_bench_ops(kv_pool *const *pools, int32_t n_pools, int32_t n_pages, int32_t n_threads,
                       int32_t wall_ms, double ns[KV_OP_N], double *share);

/* Measures the prefix index on a full tree: CPU time per token, and its bytes. */

/* Match: random whole prompts, whose pages are shared into tables. Insert: the new pages
 * of a prompt. */
typedef enum kv_index_op {
    KV_INDEX_MATCH,
    KV_INDEX_PEEK,
    KV_INDEX_INSERT,
    KV_INDEX_EVICT,
    KV_INDEX_N
} kv_index_op;
/* One run, in nanoseconds of thread CPU time, without reading the clock: per token; evict:
 * per page. */
typedef double kv_index_times[KV_INDEX_N];

typedef struct kv_index_sizes {
    int64_t n_entries, n_nodes;
    double index_bytes, pool_bytes; /* per page */
    double table_bytes;             /* per prompt token */
} kv_index_sizes;

/* Makes a tree of n_pages pages of page_tokens tokens each: prompts of prompt_tokens (2
 * .. 65,536), whose first quarter is one of 64. Each of n_runs runs evicts an eighth,
 * inserts as many anew, and matches 1,000 prompts. NO_MEMORY; INVALID: there is no room
 * for 16 prompts; INTERNAL: the index does not find what it holds. */
quire_err kv_bench_index(int32_t n_pages, int32_t page_tokens, int32_t prompt_tokens, int32_t n_runs,
                         kv_index_times *runs, kv_index_sizes *sizes);

#endif
