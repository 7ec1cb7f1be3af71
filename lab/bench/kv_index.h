/* The index's operations on a full tree: CPU time a token, and the bytes it takes. */
#ifndef LAB_BENCH_KV_INDEX_H
#define LAB_BENCH_KV_INDEX_H

#include <stdint.h>

#include "base/err.h"

/* One run. Match: whole prompts drawn at random, sharing their pages into tables. Insert:
 * what is new of a prompt, every page of it. Nanoseconds of thread CPU time, the reading
 * of the clock taken off. */
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
