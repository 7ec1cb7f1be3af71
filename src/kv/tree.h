/* The radix tree under the index: structure only; index.c counts pages.
 *
 * An entry is one page of tokens at its position: the path up from it spells the whole
 * prefix. A root's first entries may follow an entry under another root, the same for all
 * of them; the prefix then continues there. A node is a run of entries without a branch,
 * so edges lie on page boundaries. Entries and nodes live in slabs allocated at open and
 * are named by number; nothing is allocated later.
 *
 *   namespace root -- node [e0 e1 e2] -+- node [e3]
 *                                      +- node [e4 e5(part-filled)]
 *
 * Invariants (kv_tree_check): a node that is not a root has an entry, and not exactly one
 * child; an entry is full unless it is the last of a leaf; siblings differ within their
 * first page and none is a prefix of another. Siblings form a treap ordered by the tokens
 * of that page, so the sibling that shares most tokens with a given text is next to the
 * text's position in that order. Owner: the engine thread. */
#ifndef KV_TREE_H
#define KV_TREE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

#define TREE_NONE (-1)

typedef struct kv_entry {
    int32_t up;   /* the preceding entry on its path, TREE_NONE for the first; never changes */
    int32_t next; /* the next entry in its node; TREE_NONE: it is the last */
    int32_t node;
    int32_t n_tokens; /* number of tokens, 1..page_tokens; 0: the slot is free */
    int32_t n_pins;   /* number of paths that need it to stay, counted by the user */
    int32_t n_hung;   /* number of entries that follow it under other roots */
    int32_t data[];   /* n_groups page numbers (TREE_NONE: not cached), then page_tokens tokens */
} kv_entry;

typedef struct kv_node {
    int32_t parent;      /* TREE_NONE: a root */
    int32_t first, last; /* entries; in a root: TREE_NONE, and the number that the user gave */
    int32_t key;         /* first token of the node, in which most siblings differ */
    int32_t children;    /* top of the treap of its children */
    int32_t left, right; /* children in the treap of its siblings */
    uint32_t priority;   /* at least the priority of nodes below in the treap; 0: the slot is free */
} kv_node;

typedef struct kv_tree {
    int32_t page_tokens, n_groups;
    int64_t entry_bytes;
    char *entries;
    kv_node *nodes;
    /* slots below made_* were used before; free_*: heads of lists of free slots */
    int32_t cap_entries, made_entries, free_entry, n_entries;
    int32_t cap_nodes, made_nodes, free_node, n_nodes;
    /* state of the random generator for priorities; the user may seed it, because a
     * client that predicts it could unbalance the treaps */
    uint64_t random;
} kv_tree;

/* Opens a tree of at most cap_entries entries and cap_roots roots. */
quire_err kv_tree_open(kv_tree *t, int32_t page_tokens, int32_t n_groups, int32_t cap_entries,
                       int32_t cap_roots);
void kv_tree_close(kv_tree *t);

static inline kv_entry *kv_tree_entry(const kv_tree *t, int32_t e) {
    return (kv_entry *)(void *)(t->entries + e * t->entry_bytes);
}
static inline int32_t *kv_tree_pages(const kv_tree *t, int32_t e) {
    return kv_tree_entry(t, e)->data;
}
static inline int32_t *kv_tree_tokens(const kv_tree *t, int32_t e) {
    return kv_tree_entry(t, e)->data + t->n_groups;
}

/* Adds a root that stores the user's number, and returns its node. At most cap_roots. */
int32_t kv_tree_add_root(kv_tree *t, int32_t number);
/* Removes a root without children. */
void kv_tree_remove_root(kv_tree *t, int32_t root);

/* Returns, of the entries that follow `after` (TREE_NONE: the first ones under root), the
 * one that shares most tokens with tokens[0..n), n <= page_tokens; sets *n_shared.
 * TREE_NONE and 0: none shares any. O(log siblings). */
int32_t kv_tree_best(const kv_tree *t, int32_t root, int32_t after, const int32_t *tokens, int32_t n,
                     int32_t *n_shared);
/* Adds an entry without pages after `after` (TREE_NONE: the first under root), splitting
 * after's node if needed. Neither it nor a prefix of it may exist there. up: the same as
 * `after`; if that is TREE_NONE, the full entry under another root that all entries under
 * this root follow, or TREE_NONE. Returns TREE_NONE if the slab is full; nothing changed.
 * O(entries of the node before the split + log siblings). */
int32_t kv_tree_insert(kv_tree *t, int32_t root, int32_t after, int32_t up, const int32_t *tokens, int32_t n);
/* Whether no entry follows e. */
static inline bool kv_tree_is_last(const kv_tree *t, int32_t e) {
    const kv_entry *entry = kv_tree_entry(t, e);
    return entry->next == TREE_NONE && t->nodes[entry->node].children == TREE_NONE && entry->n_hung == 0;
}
static inline bool kv_tree_has_only_child(const kv_tree *t, int32_t node) {
    int32_t top = t->nodes[node].children;
    return top != TREE_NONE && t->nodes[top].left == TREE_NONE && t->nodes[top].right == TREE_NONE;
}
/* Walk over a root's entries, each after all that follow it in the tree: return the first
 * entry of the walk, and the next one after e; TREE_NONE: the end. Between two calls
 * entries may be removed, e too once the call for it has returned. O(log siblings + depth
 * of nodes). */
int32_t kv_tree_last(const kv_tree *t, int32_t root);
int32_t kv_tree_previous(const kv_tree *t, int32_t e);
/* Removes an entry that no other follows. If its parent keeps a single child, merges the
 * two. O(entries of the parent + log siblings). */
void kv_tree_remove(kv_tree *t, int32_t e);

/* Checks the invariants. QUIRE_INTERNAL: err says what is wrong. O(everything). */
quire_err kv_tree_check(const kv_tree *t, quire_error *err);

#endif
