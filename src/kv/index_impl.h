/* The index's own struct, shared by index.c and index_view.c. */
#ifndef KV_INDEX_IMPL_H
#define KV_INDEX_IMPL_H

#include <stdbool.h>

#include "kv/index.h"
#include "kv/public.h"
#include "kv/tree.h"

struct kv_index {
    kv_pool *pool;
    kv_index_options o;
    kv_tree tree;
    kv_spaces spaces;
    kv_publics publics;
    uint64_t *hashes; /* [max_entries] chained hash of each full entry, 0 for a part-filled one */
    uint64_t hash_mask;
    kv_evict *evict;
    bool is_clearing; /* one event will stand for all removals */
};

/* Nothing follows it, no path stands there, nobody holds its pages, and some group lacks one: no match can end in it or go through it. */
bool kv_index_is_useless(const kv_index *ix, int32_t e);
/* What hashes[e] has to be, given that of the entry before it. */
uint64_t kv_index_hash_of(const kv_index *ix, int32_t e);

#endif
