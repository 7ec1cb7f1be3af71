/* The struct of the index, shared by index.c, index_evict.c and index_view.c. */
#ifndef KV_INDEX_IMPL_H
#define KV_INDEX_IMPL_H

#include <stdbool.h>

#include "kv/index.h"
#include "kv/namespace.h"
#include "kv/snapshot.h"
#include "kv/tree.h"

struct kv_index {
    kv_pool *pool;
    kv_index_options o;
    kv_tree tree;
    kv_namespaces namespaces;
    kv_publics publics;
    uint64_t *hashes; /* [max_entries] chained hash of each full entry, 0 for a part-filled one */
    uint64_t hash_mask;
    kv_evict *evict;
    const kv_index_watch *watch; /* NULL: none */
    kv_snapshots snapshots;      /* empty without state groups */
    bool is_clearing;            /* a clear is under way: one event will replace all removals */
    int64_t n_tails_replaced;
};

/* Namespace of page i of a path's sequence. */
static inline int32_t kv_index_namespace_of(const kv_path *path, int32_t i) {
    return i < path->n_public ? path->public_namespace : path->namespace;
}

/* Predecessor in the tree for page i of a path, where e is the entry before it in the
 * prefix: none at the start of a namespace. */
static inline int32_t kv_index_before(const kv_path *path, int32_t i, int32_t e) {
    return i == path->n_public ? TREE_NONE : e;
}

/* Opens ix->snapshots if there are state groups. The tree must be open. */
quire_err kv_index_open_snapshots(kv_index *ix);
/* Returns the entry that shares most tokens with tokens[0..n), n at most a page, as page
 * i after entry e of a path, and sets *n_shared to how many (kv_tree_best). */
int32_t kv_index_best(const kv_index *ix, const kv_path *path, int32_t i, int32_t e, const int32_t *tokens,
                      int32_t n, int32_t *n_shared);

/* Returns the largest number of tokens after which a state can be restored, among the
 * first n_shared tokens of entry `next`, page i after e; 0: none. Sets *snapshot. */
int32_t kv_index_restorable(const kv_index *ix, const kv_path *path, int32_t i, int32_t e, int32_t next,
                            const int32_t *tokens, int32_t n_shared, int32_t *snapshot);
/* Call it after an entry that follows `after` was removed: drops the snapshots there
 * whose tail is in no entry any more. */
void kv_index_drop_bare_tails(kv_index *ix, int32_t root, int32_t after);

/* Removes e's page of group g, which becomes free unless a sequence holds it. */
void kv_index_remove_page(kv_index *ix, int32_t e, int32_t g);
/* Drops e and the entries before it that are useless, and the namespace with its last
 * entry. */
void kv_index_prune(kv_index *ix, int32_t e);
/* Moves a path's pin to entry e (TREE_NONE: removes it), and prunes at its former
 * entry. */
void kv_index_move_pin(kv_index *ix, kv_path *path, int32_t e);
/* Drops the entries that lead to no state, and namespaces that become empty. True: there
 * were any. */
bool kv_index_drop_stateless(kv_index *ix);
/* Whether no match can end in e or pass through it: nothing follows it, no path is at it,
 * no sequence holds its pages, and some group lacks a page. */
bool kv_index_is_useless(const kv_index *ix, int32_t e);
/* Returns the value that hashes[e] must have, given the hash of the entry before. */
uint64_t kv_index_hash_of(const kv_index *ix, int32_t e);

#endif
