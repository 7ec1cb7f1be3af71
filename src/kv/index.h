/* The index finds cached prefixes: for a new request, pages that already hold the keys
 * and values of its first tokens (docs/design.md, Pages).
 *
 * It is a radix tree over token ids in pages. A token may be any int32: for rows that are
 * not tokens (images) the caller gives ids by content. Tokens are compared, never hashes
 * of them. Reuse is token-granular although pages are not: when a request leaves the tree
 * inside a page, it shares the page of the sibling that agrees with it longest, and the
 * first write copies that page (kv_table_append).
 *
 *   enter -> match (once, with empty tables) -> append, compute, publish ...
 *         -> publish the tail -> clear tables -> leave
 *
 * Namespaces: a prefix is found only in the namespace where it was published. A
 * namespace's name is a string of bytes that contains everything that must agree: tenant,
 * model, adapter, numeric configuration. A namespace lives while a path is in it or a
 * page is cached in it. An operator may name public prefixes. Their whole pages lie in a
 * namespace of all tenants, which contains nothing else, and a tenant's namespace begins
 * where such a prefix ends.
 *
 * Groups: every group of layers has a page of its own for each entry of the tree. A full
 * group needs all pages of a prefix; a window group only those of its last window - 1
 * tokens. So a match ends at the deepest point from which every group can continue.
 *
 * A state group has no pages for tokens. It needs a snapshot of the sequence's state
 * (kv/snapshot.h) at exactly that point, so with such groups a match ends on a snapshot.
 *
 * Invariant: an indexed page's pool entry names the tree's entry that names the page; for
 * a snapshot's pages it is the tree's capacity of entries plus the snapshot's number. A
 * holder of a page of a full group holds all pages before it, and releases them from the
 * end. So the oldest cached page of a full group is always the last of a branch, and its
 * eviction never cuts a prefix that is still found. What is matched cannot be evicted:
 * tables hold the pages, and a path pins its entry.
 *
 * Owner: the engine thread. Everything is allocated at open; no call allocates unless a
 * table must grow. */
#ifndef KV_INDEX_H
#define KV_INDEX_H

#include "core/kv_layout.h"
#include "kv/events.h"
#include "kv/evict.h"
#include "kv/namespace.h"
#include "kv/table.h"

typedef struct kv_index kv_index;

/* Callbacks that are called before something is removed: on_remove for a page that is
 * still cached but will not be any more (evicted, or its entry removed), on_drop for an
 * entry whose number will be used again, on_state for a snapshot. Called by the engine
 * thread; they must not change the index. */
typedef struct kv_index_watch {
    void *context;
    void (*on_remove)(void *context, int32_t entry, int32_t group); /* the page still has its content */
    void (*on_drop)(void *context, int32_t entry);
    /* the snapshot at a full entry's end, whose pages still have their content */
    void (*on_state)(void *context, int32_t entry, const int32_t *pages);
} kv_index_watch;

/* The granularity of reuse. */
typedef enum kv_granularity {
    KV_GRANULARITY_TOKEN, /* single tokens, by copying the page in which a request leaves the tree */
    /* whole pages only, and part-filled tails are not kept: as in vLLM, for comparison */
    KV_GRANULARITY_PAGE
} kv_granularity;

typedef struct kv_index_options {
    int32_t page_tokens, n_groups;  /* n_groups: groups with pages of tokens */
    int32_t windows[KV_MAX_GROUPS]; /* 0: a full group; else the window in tokens */
    /* groups of recurrent states, whose tables follow the others'; one of both at
     * least */
    int32_t n_state_groups;
    int32_t state_pages[KV_MAX_GROUPS]; /* pages of a sequence's state, for each state group */
    int32_t max_snapshots;              /* states kept at once; 0: as many as the pool could hold */
    int32_t max_namespaces;
    /* pages of tokens in the tree; 0: enough for all that the pool can hold, or, where
     * all groups have windows, for sequences of 16 windows; when they are used up, less
     * is published */
    int32_t max_entries;
    /* of the tree's inner order, which decides between equals; 0: from the system, so
     * that no client can unbalance it */
    uint64_t seed;
    kv_granularity granularity;
    kv_policy policy;  /* order of eviction */
    kv_events *events; /* receives stored and removed pages; NULL: none. Outlives the index */
    int32_t hash_bits; /* width of the chained hashes, for tests; 0: 64 */
} kv_index_options;

/* A sequence's position in the index: its namespace and how many of its pages are in the
 * tree. Each enter or fork needs one kv_index_leave. */
typedef struct kv_path {
    int32_t namespace, entry, n_pages;
    /* its first n_public pages belong to a public prefix, in another namespace; 0: none
     * do */
    int32_t public_namespace, n_public;
    bool retains; /* `retention` applies to the pages that it matches and publishes */
    kv_retention retention;
} kv_path;

typedef struct kv_index_counts {
    int32_t n_entries, n_nodes, n_namespaces, n_snapshots;
    int32_t max_snapshots; /* most snapshots at once; 0: no state groups */
    /* snapshots taken, dropped and restored since the index was opened */
    int64_t snapshots_taken, snapshots_dropped, snapshots_restored;
    int64_t tails_replaced; /* part-filled pages replaced by pages that continue them, since then */
} kv_index_counts;

/* Opens an index over pool's pages; the pool outlives it. QUIRE_INVALID for invalid
 * options. */
quire_err kv_index_open(kv_pool *pool, const kv_index_options *o, kv_index **out);
/* Sets the callbacks; `watch` outlives the index. NULL: none. */
void kv_index_set_watch(kv_index *ix, const kv_index_watch *watch);
/* The capacity in entries: their numbers are below it. */
int32_t kv_index_cap_entries(const kv_index *ix);
/* Unindexes every page and closes the index: cached pages become free. No path may be in
 * use. */
void kv_index_close(kv_index *ix);

/* Sets *out to the root of the namespace with that name, which is made if need be.
 * QUIRE_INVALID for a name of over 255 bytes; QUIRE_NO_ROOM when max_namespaces others
 * live. */
quire_err kv_index_enter(kv_index *ix, const void *name, size_t n, kv_path *out);
/* Makes the whole pages of tokens[0..n) a public prefix for all who enter with that
 * scope: bytes with everything that must agree between tenants (model, adapter, numeric
 * configuration). It stays until the index is closed. QUIRE_INVALID when n is less than a
 * page. */
quire_err kv_index_add_public(kv_index *ix, const void *scope, size_t n_scope, const int32_t *tokens,
                              int32_t n);
/* As kv_index_enter, for a sequence that begins with tokens[0..n_tokens). Where these
 * begin with a public prefix of that scope, its pages are shared with all who entered so;
 * what follows them is in the named namespace only. A sequence that is truncated inside
 * the prefix and continues with other tokens publishes nothing after that point. A
 * request's retention does not apply to public pages. Errors as kv_index_enter. O(public
 * prefixes + the longest). */
quire_err kv_index_enter_public(kv_index *ix, const void *scope, size_t n_scope, const void *name, size_t n,
                                const int32_t *tokens, int32_t n_tokens, kv_path *out);
/* Makes a second path at the same position, for a forked sequence. */
kv_path kv_index_fork(kv_index *ix, const kv_path *path);
void kv_index_leave(kv_index *ix, kv_path *path);
/* Sets the retention (kv/evict.h) of the pages before path's position, and of those that
 * it matches and publishes later. Later forks of the path inherit it. QUIRE_INVALID when
 * r is out of range. O(pages of the path x log pages). */
quire_err kv_index_retain(kv_index *ix, kv_path *path, const kv_retention *r);

/* How many of tokens[0..n) a match would find. Changes nothing. */
int32_t kv_index_peek(const kv_index *ix, const kv_path *path, const int32_t *tokens, int32_t n);
/* How many a match would find if there were a snapshot of the states at every point. */
int32_t kv_index_peek_pages(const kv_index *ix, const kv_path *path, const int32_t *tokens, int32_t n);
/* How many of the table entries that a match would fill need no available page: whole
 * pages that a sequence already holds, and holes before windows. Cached pages, a page
 * to be copied, and states do not count. n_full: entries of full groups, which the
 * sequence keeps. */
typedef struct kv_held {
    int32_t n_entries, n_full;
} kv_held;

/* The same as kv_index_peek, and how much of it is held. */
int32_t kv_index_peek_held(const kv_index *ix, const kv_path *path, const int32_t *tokens, int32_t n,
                           kv_held *held);
/* Shares the pages of the longest cached prefix of tokens[0..n) into tables[n_groups +
 * n_state_groups], which are empty, and sets *n_matched to its length. path is at its
 * root and moves to the last whole page. A request passes n - 1 of its n tokens: the last
 * is computed for its logits. QUIRE_NO_MEMORY when a table cannot grow: nothing changed.
 * O(n + log siblings a branch). */
quire_err kv_index_match(kv_index *ix, kv_path *path, const int32_t *tokens, int32_t n, kv_table *tables,
                         int32_t *n_matched);

/* The same for the groups of tokens only, with or without states: tables has n_groups. */
quire_err kv_index_match_pages(kv_index *ix, kv_path *path, const int32_t *tokens, int32_t n,
                               kv_table *tables, int32_t *n_matched);

typedef enum kv_publish_what { KV_PUBLISH_PAGES, KV_PUBLISH_TAIL } kv_publish_what;

/* Publishes the full pages of tokens[0..n), whose keys and values the tables hold; with
 * KV_PUBLISH_TAIL the part-filled last one too (when the sequence ends). Where an equal
 * page is in the tree already, the tables get that one and release theirs (dedup).
 * QUIRE_NO_ROOM when the tree is full: what was published before stays. O(pages not
 * published yet). */
quire_err kv_index_publish(kv_index *ix, kv_path *path, const int32_t *tokens, int32_t n, kv_table *tables,
                           kv_publish_what what);
/* Removes the page of the last of n tokens from the tree if no other sequence holds it,
 * so that its sequence can continue to write to it without a copy. True if something
 * changed. */
bool kv_index_take_over_tail(kv_index *ix, const kv_table *tables, int32_t n);
/* For a sequence that is no longer written: if the tree has replaced its part-filled
 * page of the last n_tail tokens by a page that continues it, its tables take that
 * page and release their own, so that these tokens are found as long as the tables
 * hold it. path stands before that page. O(log siblings). */
void kv_index_follow_tail(kv_index *ix, const kv_path *path, const int32_t *tail, int32_t n_tail,
                          kv_table *tables);
/* ---- recurrent states; states[n_state_groups] are a sequence's tables of them ---- */
/* Keeps a snapshot of the state after tokens[0..at), 1 <= at <= n, which `states` hold.
 * Publishes tokens[0..n) first, as kv_index_publish does, with the tail if `at` lies in
 * it. The state's pages count as shared from now on. QUIRE_NO_ROOM when the tree is full
 * or may not hold the tokens: no snapshot. */
quire_err kv_index_snapshot(kv_index *ix, kv_path *path, const int32_t *tokens, int32_t n, int32_t at,
                            kv_table *tables, const kv_table *states);
/* Replaces the state in `states` by the one after tokens[0..n), n at most what path's
 * sequence has published. QUIRE_INVALID when there is no snapshot of it: nothing
 * changed. */
quire_err kv_index_restore(kv_index *ix, const kv_path *path, const int32_t *tokens, int32_t n,
                           kv_table *states);
/* The pages of the snapshot at a full entry's end, of all state groups; NULL: none. */
const int32_t *kv_index_state_at(const kv_index *ix, int32_t entry);
/* Drops the snapshot that states share pages with, where no other sequence holds them.
 * When there are no pages for a copy, the sequence can then write its state in place.
 * True when something changed. */
bool kv_index_take_over(kv_index *ix, const kv_table *states);
/* How many of tokens[0..n) are in the tree, whether or not a match could end there: where
 * a request branches off. O(n). */
int32_t kv_index_agreed(const kv_index *ix, const kv_path *path, const int32_t *tokens, int32_t n);

/* Moves path back to the last whole page of a sequence that was truncated to n_tokens.
 * Published pages stay in the tree. */
void kv_index_truncate(kv_index *ix, kv_path *path, int32_t n_tokens);

/* Sets the time in microseconds from any start, under 2^62; an earlier time than before
 * is ignored. Only retention uses it. */
void kv_index_set_time(kv_index *ix, int64_t now_us);
/* KV_EVICT_CALLER: sets when the page is used next, in any unit. The latest is evicted
 * first, and before it pages without a time. Valid until it is set again or the page is
 * evicted. O(log pages). */
void kv_index_set_next_use(kv_index *ix, page_id page, double when);
/* Evicts pages, those of least value by the policy first, until n pages are free.
 * QUIRE_NO_ROOM when all others are held; all that could be evicted is gone then. O(1) a
 * page for lru without retention, else O(log pages). */
quire_err kv_index_evict(kv_index *ix, int32_t n);
/* Evicts this cached page, and before it all that follows it where its group needs all
 * pages of a prefix. A snapshot is evicted as a whole. O(what is evicted). */
void kv_index_evict_page(kv_index *ix, page_id page);
/* The page that kv_index_evict would evict first, or PAGE_NONE. */
page_id kv_index_victim(const kv_index *ix);
/* The retention level of a cached page (kv/evict.h), and whether levels may differ. */
int32_t kv_index_level(const kv_index *ix, page_id page);
bool kv_index_has_levels(const kv_index *ix);
/* Evicts every page that no sequence holds. */
void kv_index_clear(kv_index *ix);
/* Does the same for one tenant's namespaces: those whose names are these n bytes, or
 * begin with them and a 0 byte. Returns how many entries it looked at: the tenant's, and
 * no others. O(namespaces + these entries x log siblings). */
int32_t kv_index_clear_tenant(kv_index *ix, const void *tenant, size_t n);

kv_index_counts kv_index_count(const kv_index *ix);
/* Memory that tree and namespaces take, used or not. */
int64_t kv_index_bytes(const kv_index *ix);

/* One entry, which is a page of tokens at its position in the tree, as kv_index_visit
 * shows it. Valid during the call. */
typedef struct kv_index_entry {
    int32_t namespace; /* its number; name[n_name] is its name */
    const unsigned char *name;
    size_t n_name;
    int32_t node, parent; /* its run of entries without a branch, and the run before that; -1: none */
    int32_t entry, up;    /* its id, and that of the preceding entry on its path; -1: none */
    int32_t n_tokens;
    const int32_t *tokens;
    const int32_t *pages; /* [n_groups], -1: not cached */
    int32_t n_pins;       /* paths whose position is here */
    uint64_t hash;        /* chained (namespace.h); 0: part-filled */
} kv_index_entry;

typedef void kv_index_visit_fn(const kv_index_entry *entry, void *context);

/* Describes one entry, as kv_index_visit does. Valid until the index changes. O(branches
 * before it). */
kv_index_entry kv_index_describe(const kv_index *ix, int32_t entry);
/* A namespace by its number: its name, which the index owns, and whether it is one of
 * public prefixes. */
typedef struct kv_index_namespace {
    const unsigned char *name;
    size_t n_name;
    bool is_public;
} kv_index_namespace;

kv_index_namespace kv_index_describe_namespace(const kv_index *ix, int32_t namespace);
/* Calls fn for every entry: namespace by namespace, an entry before those that follow it,
 * siblings in the order of their tokens. fn must not change the index. QUIRE_NO_MEMORY:
 * fn was not called. O(everything). */
quire_err kv_index_visit(const kv_index *ix, kv_index_visit_fn *fn, void *context);

/* Checks the tree's invariants and the ones above; else QUIRE_INTERNAL and what is wrong.
 * O(everything). */
quire_err kv_index_check(const kv_index *ix, quire_error *err);

#endif
