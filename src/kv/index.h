/* The index of cached prefixes: finds, for a new request, pages that already hold the keys and values of its first tokens (docs/design.md,
 * Pages).
 *
 * A radix tree over token ids in pages. A token may be any int32: rows that are not tokens (images) are given ids by their content, one by
 * one, by the caller. Tokens are compared, never hashes of them. Reuse is token-granular although pages are not: when a request leaves the
 * tree inside a page, it shares the page of the sibling that agrees with it longest, and the first write copies that page
 * (kv_table_append).
 *
 *   enter -> match (once, with empty tables) -> append, compute, publish ... -> publish the tail -> clear tables -> leave
 *
 * Spaces: a prefix is found only in the namespace it was published in. A namespace is named by bytes that hold all that must agree: tenant,
 * model, adapter, numeric configuration. It lives while someone is in it or something is cached in it. An operator may name public
 * prefixes: their whole pages lie in a namespace of all tenants, in which nothing else is ever put, and a tenant's namespace begins where
 * such a prefix ends.
 *
 * Groups: every group of layers has a page of its own for each entry of the tree. A full group needs all pages of a prefix; a window group
 * only those of its last window - 1 tokens, so a match ends at the deepest point that every group can be continued from.
 *
 * A state group has no pages for tokens: what it needs is a snapshot of the sequence's state (kv/snapshot.h) exactly there, so with such
 * groups a match ends on a snapshot.
 *
 * Invariant: an indexed page's pool entry names the tree's entry that names the page; of a snapshot's pages it is the number of entries
 * that the tree could have, plus the snapshot's. Whoever holds a page of a full group holds all before it, and gives them back from the
 * end; so the oldest cached page of a full group is always the last of a branch, and evicting it never cuts a prefix that is still found.
 * What is matched cannot be evicted: tables hold the pages, and a path pins the entry it stands at.
 *
 * Owner: the engine thread. Everything is sized at open; no call allocates but where a table must grow. */
#ifndef KV_INDEX_H
#define KV_INDEX_H

#include "core/kv_layout.h"
#include "kv/events.h"
#include "kv/evict.h"
#include "kv/namespace.h"
#include "kv/table.h"

typedef struct kv_index kv_index;

/* Who must know before something goes: pages that are still cached but will not be any more (evicted, or their entry with them), and
 * entries whose number will stand for something else. Called by the engine thread; must not change the index. */
typedef struct kv_index_watch {
    void *context;
    void (*on_remove)(void *context, int32_t entry, int32_t group); /* the page still holds what it held */
    void (*on_drop)(void *context, int32_t entry);
} kv_index_watch;

/* How finely prefixes are reused. */
typedef enum kv_granularity {
    KV_GRANULARITY_TOKEN, /* to the token, by copying the page in which a request leaves the tree */
    KV_GRANULARITY_PAGE   /* whole pages only, and part-filled tails are not kept: what vLLM does, to compare with */
} kv_granularity;

typedef struct kv_index_options {
    int32_t page_tokens, n_groups;      /* n_groups: those that hold tokens, 1 at least */
    int32_t windows[KV_MAX_GROUPS];     /* 0: a full group; else the window in tokens */
    int32_t n_state_groups;             /* groups of recurrent states: their tables follow the others' */
    int32_t state_pages[KV_MAX_GROUPS]; /* pages of a sequence's state, each state group's */
    int32_t max_snapshots;              /* states kept at once; 0: as many as the pool could hold */
    int32_t max_namespaces;
    int32_t max_entries; /* pages of tokens in the tree; 0: enough for whatever the pool can hold, or, where all groups
                            have windows, for sequences of 16 windows; when they are used up, less is published */
    uint64_t seed; /* of the tree's inner order, which decides between equals; 0: the system's, so that nobody outside can unbalance it */
    kv_granularity granularity;
    kv_policy policy;            /* which cached page goes first */
    kv_events *events;           /* is told what is stored and removed; NULL: nobody. Outlives the index */
    int32_t hash_bits;           /* width of the chained hashes, for tests; 0: 64 */
    const kv_index_watch *watch; /* NULL: nobody. Outlives the index */
} kv_index_options;

/* Where a sequence stands: its namespace and how many of its pages are in the tree. Each enter or fork needs one kv_index_leave. */
typedef struct kv_path {
    int32_t namespace, entry, n_pages;
    int32_t public_namespace, n_public; /* its first n_public pages belong to a public prefix, in another namespace; 0: none do */
    bool retains;                   /* what it matches and publishes is kept as `retention` says */
    kv_retention retention;
} kv_path;

typedef struct kv_index_counts {
    int32_t n_entries, n_nodes, n_namespaces, n_snapshots;
} kv_index_counts;

/* How many entries such an index over n_pages pages has numbers for, 0 and up. */
int32_t kv_index_cap_entries(const kv_index_options *o, int32_t n_pages);
/* An index over pool's pages; the pool outlives it. QUIRE_INVALID for options no cache has. */
quire_err kv_index_open(kv_pool *pool, const kv_index_options *o, kv_index **out);
/* Takes every mark away: cached pages become free. No path may be in use. */
void kv_index_close(kv_index *ix);

/* *out stands at the root of the namespace of that name, which is made if need be. QUIRE_INVALID for a name of over 255 bytes;
 * QUIRE_NO_ROOM when max_namespaces others live. */
quire_err kv_index_enter(kv_index *ix, const void *name, size_t n, kv_path *out);
/* tokens[0..n), whole pages of them, become a public prefix among those who enter with that scope: bytes that hold what must agree between
 * tenants (model, adapter, numeric configuration). Stays until the index is closed. QUIRE_INVALID when n is less than a page. */
quire_err kv_index_add_public(kv_index *ix, const void *scope, size_t n_scope, const int32_t *tokens, int32_t n);
/* As kv_index_enter, for a sequence whose first tokens are tokens[0..n_tokens): where these begin with a public prefix of that scope, its
 * pages are shared with all who entered so, and what follows them is the named namespace's alone. A sequence that is truncated inside the
 * prefix and goes on with other tokens publishes nothing behind that. What a request says about retention does not count for public pages.
 * Errors as kv_index_enter. O(public prefixes + the longest). */
quire_err kv_index_enter_public(kv_index *ix, const void *scope, size_t n_scope, const void *name, size_t n, const int32_t *tokens,
                                int32_t n_tokens, kv_path *out);
/* A second path where one stands: for a forked sequence. */
kv_path kv_index_fork(kv_index *ix, const kv_path *path);
void kv_index_leave(kv_index *ix, kv_path *path);
/* The pages that path stands behind, and those that it matches and publishes from now on, are kept as r says (kv/evict.h). Forks made
 * later say the same. QUIRE_INVALID when r is out of range. O(pages of the path x log pages). */
quire_err kv_index_retain(kv_index *ix, kv_path *path, const kv_retention *r);

/* How many of tokens[0..n) a match would find. Changes nothing. */
int32_t kv_index_peek(const kv_index *ix, const kv_path *path, const int32_t *tokens, int32_t n);
/* The same, and how many entries of the tables that a match would fill take no page away from others: whole pages that somebody holds
 * already, and holes behind windows. Cached pages, a page that is to be copied and states are not among them. */
int32_t kv_index_peek_held(const kv_index *ix, const kv_path *path, const int32_t *tokens, int32_t n, int32_t *n_held);
/* Shares the pages of the longest cached prefix of tokens[0..n) into tables[n_groups + n_state_groups], which are empty, and says its
 * length. path stands at its root and moves to the last whole page. A request passes n - 1 of its n tokens: the last is computed for its
 * logits. QUIRE_NO_MEMORY when a table cannot grow: nothing changed. O(n + log siblings a branch). */
quire_err kv_index_match(kv_index *ix, kv_path *path, const int32_t *tokens, int32_t n, kv_table *tables, int32_t *n_matched);

typedef enum kv_publish_what { KV_PUBLISH_PAGES, KV_PUBLISH_TAIL } kv_publish_what;

/* Makes the full pages of tokens[0..n), whose keys and values the tables hold, findable; KV_PUBLISH_TAIL the part-filled last one too (when
 * the sequence ends). Where an equal page is in the tree already, the tables take that one and give theirs back. QUIRE_NO_ROOM when the
 * tree is full: what was published before stays. O(pages not published yet). */
quire_err kv_index_publish(kv_index *ix, kv_path *path, const int32_t *tokens, int32_t n, kv_table *tables, kv_publish_what what);
/* A sequence of n tokens writes on into the page of its last ones, where nobody else holds it: what the tree found in that page is found no
 * more, and no copy is needed. True when something changed. */
bool kv_index_take_over_tail(kv_index *ix, const kv_table *tables, int32_t n);
/* ---- recurrent states; states[n_state_groups] are a sequence's tables of them ---- */
/* Keeps the state behind tokens[0..n), n >= 1, which states hold, after publishing these tokens as kv_index_publish does, tail and all. The
 * states' pages count as shared from now on. QUIRE_NO_ROOM when the tree is full or may not hold the tokens: no snapshot. */
quire_err kv_index_snapshot(kv_index *ix, kv_path *path, const int32_t *tokens, int32_t n, kv_table *tables);
/* Puts the state behind tokens[0..n), n at most what path's sequence has published, into states in place of what they hold. QUIRE_INVALID
 * when no snapshot of it is kept: nothing changed. */
quire_err kv_index_restore(kv_index *ix, const kv_path *path, const int32_t *tokens, int32_t n, kv_table *states);
/* The snapshot that states share pages with, if they do, is kept no more: when there are no pages for a copy, it is theirs to write. */
void kv_index_take_over(kv_index *ix, const kv_table *states);
/* How many of tokens[0..n) are spelled by the tree, whether or not a match could end there: where a request branches off. O(n). */
int32_t kv_index_agreed(const kv_index *ix, const kv_path *path, const int32_t *tokens, int32_t n);

/* The sequence was truncated to n_tokens: path moves back to the last whole page. What was published stays findable. */
void kv_index_truncate(kv_index *ix, kv_path *path, int32_t n_tokens);

/* What time it is, in microseconds from any start, under 2^62; time that runs back stands still. Retention alone asks for it. */
void kv_index_set_time(kv_index *ix, int64_t now_us);
/* KV_EVICT_CALLER: when the page is used next, in any unit; the latest goes first, and before them pages of which nothing was said. Holds
 * until it is said anew, or the page is evicted. O(log pages). */
void kv_index_set_next_use(kv_index *ix, page_id page, double when);
/* Evicts, what the policy values least first, until n pages are free; QUIRE_NO_ROOM when all others are held (what could go is gone then).
 * O(1) a page for lru without retention, else O(log pages). */
quire_err kv_index_evict(kv_index *ix, int32_t n);
/* Evicts everything that nobody holds. */
void kv_index_clear(kv_index *ix);

kv_index_counts kv_index_count(const kv_index *ix);
/* Memory that tree and namespaces take, used or not. */
int64_t kv_index_bytes(const kv_index *ix);
/* The chained hash (kv/hash.h) of a full page that is indexed; 0 of any other. It stays with the page until that is evicted. */
uint64_t kv_index_page_hash(const kv_index *ix, page_id page);

/* One entry, a page of tokens in its place, as kv_index_visit shows it. Valid during the call. */
typedef struct kv_index_entry {
    int32_t namespace; /* its number; name[n_name] is its name */
    const unsigned char *name;
    size_t n_name;
    int32_t node, parent; /* the run of entries without a branch that it is in, and the run before that; -1: none */
    int32_t entry, up;    /* its number, and that of the one before it on its path; -1: none */
    int32_t n_tokens;
    const int32_t *tokens;
    const int32_t *pages; /* [n_groups], -1: not cached */
    int32_t n_pins;       /* paths that stand here */
    uint64_t hash;        /* 0: part-filled */
} kv_index_entry;

typedef void kv_index_visit_fn(const kv_index_entry *entry, void *context);

/* What kv_index_visit would show of one entry. Valid until the index changes. O(branches before it). */
kv_index_entry kv_index_describe(const kv_index *ix, int32_t entry);
/* A namespace by its number: its name, borrowed, and whether it is one of public prefixes. */
typedef struct kv_index_namespace {
    const unsigned char *name;
    size_t n_name;
    bool is_public;
} kv_index_namespace;

kv_index_namespace kv_index_describe_namespace(const kv_index *ix, int32_t namespace);
/* Shows every entry to fn, which must not change the index: namespace by namespace, what comes before on a path first, siblings in the
 * order of their tokens. QUIRE_NO_MEMORY: nothing was shown. O(everything). */
quire_err kv_index_visit(const kv_index *ix, kv_index_visit_fn *fn, void *context);

/* Proves the tree's invariants and the ones above; QUIRE_INTERNAL and what is wrong otherwise. O(everything). */
quire_err kv_index_check(const kv_index *ix, quire_error *err);

#endif
