/* The index finds cached prefixes: pages that already hold the keys and values of a new
 * request's first tokens (docs/design.md, Pages).
 *
 * It is a radix tree over token ids, in pages. A token may be any int32: for rows that
 * are not tokens (images) the caller makes ids from their content. Tokens are compared,
 * never hashes of them. Reuse has the granularity of a token although pages are larger:
 * when a request leaves the tree inside a page, it shares the sibling's page that agrees
 * with it longest, and the first write copies that page (kv_table_append).
 *
 *   enter -> match (once, with empty tables) -> append, compute, publish ...
 *         -> publish the tail -> clear tables -> leave
 *
 * Namespaces: a prefix is found only in the namespace where it was published. A
 * namespace's name is a string of bytes with everything that must agree: tenant, model,
 * adapter, numeric configuration. A namespace exists while a path is in it or a page is
 * cached in it. An operator may declare public prefixes. Their whole pages lie in a
 * namespace of all tenants, which contains nothing else, and a tenant's namespace begins
 * where such a prefix ends.
 *
 * Groups: every group of layers has its own page for each entry of the tree. A full group
 * needs all pages of a prefix, a window group only those of its last window - 1 tokens.
 * So a match ends at the deepest point from which every group can continue.
 *
 * A state group has no pages for tokens. It needs a snapshot of the sequence's state
 * (kv/snapshot.h) at exactly that point, so with such groups a match ends on a snapshot.
 *
 * Invariant: the pool's entry of an indexed page is the number of the tree's entry that
 * names the page, or, for a page of a snapshot, the tree's capacity plus the snapshot's
 * number. A holder of a page of a full group holds all pages before it, and releases them
 * from the end. So the oldest cached page of a full group is always the last of a branch,
 * and its eviction never cuts a prefix that can be found. Matched pages cannot be
 * evicted: tables hold the pages, and a path pins its entry.
 *
 * Owner: the engine thread. Everything is allocated at open; later calls allocate only to
 * grow a table. */
#ifndef KV_INDEX_H
#define KV_INDEX_H

#include "core/kv_layout.h"
#include "kv/events.h"
#include "kv/evict.h"
#include "kv/namespace.h"
#include "kv/table.h"

typedef struct kv_index kv_index;

/* Callbacks before something is removed: on_remove for a page that will no longer be
 * cached (evicted, or its entry removed), on_drop for an entry whose number may be used
 * again, on_state for a snapshot. The engine thread calls them; they must not change the
 * index. */
typedef struct kv_index_watch {
    void *context;
    void (*on_remove)(void *context, int32_t entry, int32_t group); /* the page still has its content */
    void (*on_drop)(void *context, int32_t entry);
    /* snapshot at the end of a full entry; its pages still have their content */
    void (*on_state)(void *context, int32_t entry, const int32_t *pages);
} kv_index_watch;

/* The granularity of reuse. */
typedef enum kv_granularity {
    KV_GRANULARITY_TOKEN, /* single tokens: copies the page inside which a request leaves the tree */
    /* whole pages only, without part-filled tails, as in vLLM; for comparison */
    KV_GRANULARITY_PAGE
} kv_granularity;

typedef struct kv_index_options {
    int32_t page_tokens, n_groups;  /* n_groups: number of groups with pages of tokens */
    int32_t windows[KV_MAX_GROUPS]; /* 0: a full group; else the window in tokens */
    /* groups of recurrent states, whose tables follow the others; at least one group of
     * either kind is required */
    int32_t n_state_groups;
    int32_t state_pages[KV_MAX_GROUPS]; /* pages of a sequence's state in each state group */
    int32_t max_snapshots;              /* most snapshots at once; 0: as many as the pool could hold */
    int32_t max_namespaces;
    /* most entries in the tree; when they are used up, less is published. 0: enough for
     * all that the pool can hold or, if all groups have windows, for sequences of 16
     * windows */
    int32_t max_entries;
    /* seed of the tree's balancing; 0: from the system, so that no client can unbalance
     * the tree */
    uint64_t seed;
    kv_granularity granularity;
    kv_policy policy;  /* eviction policy */
    kv_events *events; /* receives stored and removed pages; outlives the index; NULL: none */
    int32_t hash_bits; /* width of the chained hashes, for tests; 0: 64 */
} kv_index_options;

/* A sequence's position in the index: its namespace, and how many of its pages are in the
 * tree. Each enter and each fork needs one kv_index_leave. */
typedef struct kv_path {
    int32_t namespace, entry, n_pages;
    /* the first n_public pages belong to a public prefix, in namespace
     * public_namespace */
    int32_t public_namespace, n_public;
    bool retains; /* `retention` applies to the pages that the path matches and publishes */
    kv_retention retention;
} kv_path;

typedef struct kv_index_counts {
    int32_t n_entries, n_nodes, n_namespaces, n_snapshots;
    int32_t max_snapshots; /* most snapshots at once; 0: no state groups */
    /* snapshots taken, dropped and restored since the open */
    int64_t snapshots_taken, snapshots_dropped, snapshots_restored;
    int64_t tails_replaced; /* part-filled pages replaced by pages that continue them, since the open */
} kv_index_counts;

/* Opens an index over the pages of a pool, which outlives it. QUIRE_INVALID: invalid
 * options; QUIRE_NO_MEMORY. */
quire_err kv_index_open(kv_pool *pool, const kv_index_options *o, kv_index **out);
/* Sets the callbacks; `watch` outlives the index. NULL: none. */
void kv_index_set_watch(kv_index *ix, const kv_index_watch *watch);
/* Capacity in entries; all entry numbers are below it. */
int32_t kv_index_cap_entries(const kv_index *ix);
/* Unindexes every page, so that cached pages become free, and closes the index. No path
 * may be in use. */
void kv_index_close(kv_index *ix);

/* Sets *out to the root of the namespace with that name, and creates it if needed.
 * QUIRE_INVALID: a name of over 255 bytes; QUIRE_NO_ROOM: max_namespaces others exist. */
quire_err kv_index_enter(kv_index *ix, const void *name, size_t n, kv_path *out);
/* Makes the whole pages of tokens[0..n) a public prefix for all who enter with that
 * scope: bytes with everything that must agree between tenants (model, adapter, numeric
 * configuration). It stays until the index is closed. QUIRE_INVALID: n is less than a
 * page, or the scope is over 255 bytes. */
quire_err kv_index_add_public(kv_index *ix, const void *scope, size_t n_scope, const int32_t *tokens,
                              int32_t n);
/* Like kv_index_enter, for a sequence that begins with tokens[0..n_tokens). If these
 * begin with a public prefix of that scope, its pages are shared with all who entered
 * this way; later pages are in the named namespace only. A sequence that is truncated
 * inside the prefix and continues with other tokens publishes nothing after that point. A
 * request's retention does not apply to public pages. Errors as kv_index_enter. O(public
 * prefixes + length of the longest). */
quire_err kv_index_enter_public(kv_index *ix, const void *scope, size_t n_scope, const void *name, size_t n,
                                const int32_t *tokens, int32_t n_tokens, kv_path *out);
/* Returns a second path at the same position, for a forked sequence. */
kv_path kv_index_fork(kv_index *ix, const kv_path *path);
/* Unpins path's entry and leaves its namespaces; what becomes useless is dropped. */
void kv_index_leave(kv_index *ix, kv_path *path);
/* Sets the retention (kv/evict.h) of the pages before path's position, and of those that
 * it matches and publishes later. Later forks inherit it. QUIRE_INVALID: r is out of
 * range. O(pages of the path x log pages). */
quire_err kv_index_retain(kv_index *ix, kv_path *path, const kv_retention *r);

/* Returns how many of tokens[0..n) a match would find. Changes nothing. */
int32_t kv_index_peek(const kv_index *ix, const kv_path *path, const int32_t *tokens, int32_t n);
/* Like kv_index_peek, as if there were a snapshot of the states at every point. */
int32_t kv_index_peek_pages(const kv_index *ix, const kv_path *path, const int32_t *tokens, int32_t n);
/* Table entries that a match would fill without taking an available page: whole pages
 * that a sequence already holds, and holes before windows. Cached pages, a page to be
 * copied, and states do not count. n_full: those of full groups, which the sequence
 * keeps. */
typedef struct kv_held {
    int32_t n_entries, n_full;
} kv_held;

/* Like kv_index_peek; also sets *held for what the match would find. */
int32_t kv_index_peek_held(const kv_index *ix, const kv_path *path, const int32_t *tokens, int32_t n,
                           kv_held *held);
/* Shares the pages of the longest cached prefix of tokens[0..n) into the empty
 * tables[n_groups + n_state_groups], and sets *n_matched to its length. path is at its
 * root and moves to the last whole page. A request of n tokens passes n - 1, because the
 * last one must be computed for its logits. QUIRE_NO_MEMORY: a table cannot grow; nothing
 * changed. O(n + log siblings a branch). */
quire_err kv_index_match(kv_index *ix, kv_path *path, const int32_t *tokens, int32_t n, kv_table *tables,
                         int32_t *n_matched);

/* Like kv_index_match for the groups of tokens only, whether or not there are states;
 * tables has n_groups. */
quire_err kv_index_match_pages(kv_index *ix, kv_path *path, const int32_t *tokens, int32_t n,
                               kv_table *tables, int32_t *n_matched);

typedef enum kv_publish_what { KV_PUBLISH_PAGES, KV_PUBLISH_TAIL } kv_publish_what;

/* Publishes the full pages of tokens[0..n), whose keys and values the tables hold; with
 * KV_PUBLISH_TAIL (when the sequence ends) also the part-filled last page. If an equal
 * page is in the tree already, the tables get that page and release their own (dedup).
 * QUIRE_NO_ROOM: the tree is full; what was published before stays. O(pages not published
 * yet). */
quire_err kv_index_publish(kv_index *ix, kv_path *path, const int32_t *tokens, int32_t n, kv_table *tables,
                           kv_publish_what what);
/* Removes the page of the last of n tokens from the tree if no other sequence holds it,
 * so that its sequence can write to it without a copy. True: something changed. */
bool kv_index_take_over_tail(kv_index *ix, const kv_table *tables, int32_t n);
/* For a sequence that is no longer extended: if the tree has replaced its part-filled
 * page of the last n_tail tokens by a page that continues it, the tables share that page
 * and release their own. So these tokens can be found while the tables hold it. path is
 * at the end of the page before. O(log siblings). */
void kv_index_follow_tail(kv_index *ix, const kv_path *path, const int32_t *tail, int32_t n_tail,
                          kv_table *tables);
/* ---- recurrent states; states[n_state_groups] are a sequence's tables of them ---- */
/* Stores a snapshot of the state after tokens[0..at), 1 <= at <= n, which `states` hold.
 * Publishes tokens[0..n) first, like kv_index_publish, with the tail if `at` lies in it.
 * From then on the state's pages count as shared. QUIRE_NO_ROOM: no snapshot, because the
 * tree is full or may not hold the tokens. */
quire_err kv_index_snapshot(kv_index *ix, kv_path *path, const int32_t *tokens, int32_t n, int32_t at,
                            kv_table *tables, const kv_table *states);
/* Replaces the state in `states` by the snapshot after tokens[0..n), which path's
 * sequence has published. QUIRE_INVALID: there is no such snapshot; nothing changed. */
quire_err kv_index_restore(kv_index *ix, const kv_path *path, const int32_t *tokens, int32_t n,
                           kv_table *states);
/* Returns the pages, of all state groups, of the snapshot at the end of a full entry;
 * NULL: none. */
const int32_t *kv_index_state_at(const kv_index *ix, int32_t entry);
/* Drops the snapshot with which `states` share pages, if no other sequence holds these.
 * The sequence can then write its state in place when there are no pages for a copy.
 * True: something changed. */
bool kv_index_take_over(kv_index *ix, const kv_table *states);
/* Returns how many of tokens[0..n) are in the tree, whether or not a match could end
 * there, that is where a request branches off. O(n). */
int32_t kv_index_agreed(const kv_index *ix, const kv_path *path, const int32_t *tokens, int32_t n);

/* Moves path back to the last whole page of a sequence that was truncated to n_tokens.
 * Published pages stay in the tree. */
void kv_index_truncate(kv_index *ix, kv_path *path, int32_t n_tokens);

/* Sets the time for retention, in microseconds from any start, under 2^62. Ignores a time
 * before the current one. */
void kv_index_set_time(kv_index *ix, int64_t now_us);
/* KV_EVICT_CALLER: sets the time of the page's next use, in any unit. Pages without a
 * time are evicted first, then the latest. Valid until it is set again or the page is
 * evicted. O(log pages). */
void kv_index_set_next_use(kv_index *ix, page_id page, double when);
/* Evicts pages, those of least value by the policy first, until n pages are free.
 * QUIRE_NO_ROOM: all other pages are held; everything that could be evicted is gone. O(1)
 * a page for lru without retention, else O(log pages). */
quire_err kv_index_evict(kv_index *ix, int32_t n);
/* Evicts this cached page; in a group that needs all pages of a prefix, first the pages
 * that follow it. A snapshot is evicted as a whole. O(what is evicted). */
void kv_index_evict_page(kv_index *ix, page_id page);
/* Returns the page that kv_index_evict would evict first, or PAGE_NONE. */
page_id kv_index_victim(const kv_index *ix);
/* Return the retention level of a cached page (kv/evict.h), and whether levels may
 * differ. */
int32_t kv_index_level(const kv_index *ix, page_id page);
bool kv_index_has_levels(const kv_index *ix);
/* Evicts every page that no sequence holds. */
void kv_index_clear(kv_index *ix);
/* Evicts every page that no sequence holds in one tenant's namespaces: those whose names
 * are these n bytes, or begin with them and a 0 byte. Returns the number of entries
 * visited, all of them the tenant's. O(namespaces + these entries x log siblings). */
int32_t kv_index_clear_tenant(kv_index *ix, const void *tenant, size_t n);

kv_index_counts kv_index_count(const kv_index *ix);
/* Bytes of tree and namespaces, used or not. */
int64_t kv_index_bytes(const kv_index *ix);

/* Description of an entry: a page of tokens at its position in the tree. */
typedef struct kv_index_entry {
    int32_t namespace; /* number of its namespace; name[n_name] is its name */
    const unsigned char *name;
    size_t n_name;
    /* node of the entry (a run of entries without a branch), and the node before; -1:
     * none */
    int32_t node, parent;
    int32_t entry, up; /* number of the entry, and of the entry before it on its path; -1: none */
    int32_t n_tokens;
    const int32_t *tokens;
    const int32_t *pages; /* [n_groups] page of each group; -1: not cached */
    int32_t n_pins;       /* number of paths whose position is here */
    uint64_t hash;        /* chained hash (namespace.h); 0: the page is part-filled */
} kv_index_entry;

typedef void kv_index_visit_fn(const kv_index_entry *entry, void *context);

/* Describes one entry. Valid until the index changes. O(branches before it). */
kv_index_entry kv_index_describe(const kv_index *ix, int32_t entry);
/* Description of a namespace: its name, which the index owns, and whether it is one of
 * public prefixes. */
typedef struct kv_index_namespace {
    const unsigned char *name;
    size_t n_name;
    bool is_public;
} kv_index_namespace;

kv_index_namespace kv_index_describe_namespace(const kv_index *ix, int32_t namespace);
/* Calls fn for every entry: namespace by namespace, an entry before those that follow it,
 * siblings in the order of their tokens. The description is valid during the call. fn
 * must not change the index. QUIRE_NO_MEMORY: fn was not called. O(everything). */
quire_err kv_index_visit(const kv_index *ix, kv_index_visit_fn *fn, void *context);

/* Checks the invariants of the tree and of the index. QUIRE_INTERNAL: err says what is
 * wrong. O(everything). */
quire_err kv_index_check(const kv_index *ix, quire_error *err);

#endif
