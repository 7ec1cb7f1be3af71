/* Quire's KV cache alone: pages and slots of many sequences, which pages they share, and
 * what a new prompt can reuse. It keeps host integers only; the caller owns the KV memory
 * and everything that writes to it.
 *
 *   quire_kv_open
 *     quire_kv_seq_open    a prompt: its cached prefix is shared, the rest gets new slots
 *       quire_kv_copies    ... do these copies, compute the slots ...
 *       quire_kv_seq_commit
 *       quire_kv_seq_append -> copies, compute, commit, token by token
 *     quire_kv_seq_close   what was committed stays cached
 *   quire_kv_close         (examples/kv.c is a whole program)
 *
 * Memory is n_pages equal pages of page_tokens slots, one slot per token.
 * quire_kv_seq_slot gives the slot of a position. Sequences share pages by reference
 * count, and a shared page is copied before it is written: quire_kv_copies lists the
 * copies to make. A page that a sequence holds is never evicted; a cached page keeps its
 * content until the eviction policy takes it.
 *
 * Groups are sets of layers with pages of their own; a plain model has one. In a group
 * with a window, pages before the window are released as a sequence grows. A group of
 * recurrent states holds no tokens: each sequence has a fixed number of pages there,
 * which hold its state after all tokens computed so far. Earlier states exist only as
 * snapshots (quire_kv_seq_next_snapshot), so with such a group a prefix can only be
 * reused up to a snapshot. Latents are kept like keys and values.
 *
 * Threads: one at a time per cache. A failed call changes nothing, except that cached
 * pages may have been evicted to make room. */
#ifndef QUIRE_KV_H
#define QUIRE_KV_H

#include <stddef.h>
#include <stdint.h>

#include "quire_err.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The library exports the declarations below and nothing else. */
#ifdef __GNUC__
#pragma GCC visibility push(default)
#endif

typedef struct quire_kv quire_kv;
typedef struct quire_kv_seq quire_kv_seq;

#define QUIRE_KV_MAX_GROUPS 64

/* Order of eviction; within a branch of the prefix tree, the end is always evicted first.
 * LRU: least recently used. LFU: least often used. GDSF: lowest uses x cost of
 * recomputing, with old uses decaying. LEARNED: least likely to be used again by an
 * online model. */
typedef enum quire_kv_policy { QUIRE_KV_LRU, QUIRE_KV_LFU, QUIRE_KV_GDSF, QUIRE_KV_LEARNED } quire_kv_policy;

/* Granularity of reuse. TOKEN: single tokens; the page in which a prompt stops matching
 * is copied. PAGE: whole pages only. */
typedef enum quire_kv_granularity { QUIRE_KV_TOKEN, QUIRE_KV_PAGE } quire_kv_granularity;

typedef struct quire_kv_options {
    int32_t n_pages;
    int32_t page_tokens; /* power of two, 1..256 */
    int32_t n_groups;    /* 1..QUIRE_KV_MAX_GROUPS */
    /* tokens that a group's layers attend to, including the current one; 0: all */
    int32_t windows[QUIRE_KV_MAX_GROUPS];
    int32_t max_seqs; /* most open sequences */
    /* most namespaces in use, by open sequences and cached pages */
    int32_t max_namespaces;
    quire_kv_policy policy; /* order of eviction */
    quire_kv_granularity granularity;
    uint64_t seed;    /* breaks ties; 0: a random seed, so that clients cannot predict the choice */
    int32_t n_events; /* events kept for quire_kv_look; 0: none */
    /* pages of a sequence's state in a group of recurrent states; 0: a group that holds
     * tokens. State groups come last; all groups may be state groups */
    int32_t state_pages[QUIRE_KV_MAX_GROUPS];
    /* take a snapshot every so many tokens; 0: only at the ends of prompts, at branches
     * and at the end */
    int32_t snapshot_tokens;
    /* most pages in snapshots, at least those of one; beyond it the least valuable is
     * dropped. 0: limited by n_pages only */
    int32_t snapshot_pages;
} quire_kv_options;

/* Sets the defaults: 1 group, pages of 16 tokens, 256 sequences, 1,024 namespaces, all
 * else 0. The caller sets n_pages. */
void quire_kv_options_init(quire_kv_options *o);

/* Opens a cache. QUIRE_INVALID: an option is out of range. */
quire_err quire_kv_open(const quire_kv_options *o, quire_kv **out);
/* Closes the cache and its open sequences. */
void quire_kv_close(quire_kv *kv);

/* Opens a sequence with a prompt of n >= 1 tokens. It starts with the longest prefix of
 * tokens[0..n - 1) that was committed under the same namespace: the slots of its first
 * *n_cached tokens are already computed; the caller computes the others. The namespace
 * name, at most 255 bytes, must include everything on which the values depend: tenant,
 * model, adapter, KV type. QUIRE_NO_ROOM: too few pages, sequences or namespaces. */
quire_err quire_kv_seq_open(quire_kv *kv, const void *ns, size_t n_ns, const int32_t *tokens, int32_t n,
                            quire_kv_seq **out, int32_t *n_cached);
/* Makes the whole pages of tokens[0..n) a public prefix, shared by sequences from
 * quire_kv_seq_open_public with the same scope, whatever their namespaces. scope, at most
 * 255 bytes, must include everything else on which the values depend: model, adapter, KV
 * type. The prefix stays until the cache is closed. QUIRE_INVALID: n is less than a
 * page. */
quire_err quire_kv_add_public(quire_kv *kv, const void *scope, size_t n_scope, const int32_t *tokens,
                              int32_t n);
/* Like quire_kv_seq_open, but starts with the longest public prefix of the scope that the
 * tokens begin with; tokens after it are found in the namespace only. A sequence that is
 * truncated inside the prefix and continues with other tokens publishes nothing from
 * there on. */
quire_err quire_kv_seq_open_public(quire_kv *kv, const void *scope, size_t n_scope, const void *ns,
                                   size_t n_ns, const int32_t *tokens, int32_t n, quire_kv_seq **out,
                                   int32_t *n_cached);
/* Closes a sequence and releases its pages; committed pages stay cached. */
void quire_kv_seq_close(quire_kv_seq *seq);

/* Appends n tokens. QUIRE_NO_ROOM: too few pages. */
quire_err quire_kv_seq_append(quire_kv_seq *seq, const int32_t *tokens, int32_t n);
typedef enum quire_kv_commit { QUIRE_KV_PAGES, QUIRE_KV_PAGES_AND_TAIL } quire_kv_commit;

/* Commits the first n tokens, whose slots must be computed and finite. Full pages can
 * then be found by prompts; with QUIRE_KV_PAGES_AND_TAIL, meant for a sequence's last
 * commit, so can the part-filled last page. Read the page table again afterwards: pages
 * may be replaced by equal cached ones, and pages before a window are released.
 * QUIRE_INVALID: n is more than the length.
 *
 * With state groups, the states must be those after exactly n tokens. Where a snapshot is
 * due, and at the end, they are kept as a snapshot and the sequence gets new pages, for
 * which copies may be due at once. Without free pages no snapshot is taken. */
quire_err quire_kv_seq_commit(quire_kv_seq *seq, int32_t n, quire_kv_commit what);
/* The number of tokens at which the next snapshot is due: compute exactly up to it and
 * commit to take it. A commit past it takes the snapshot there instead. INT32_MAX: the
 * cache has no states. */
int32_t quire_kv_seq_next_snapshot(const quire_kv_seq *seq);
/* Drops all tokens from position n on. QUIRE_INVALID: n is more than the length; a page
 * in the window at n was released; or there are states, n is neither 0 nor the length,
 * and no snapshot was taken after n tokens. */
quire_err quire_kv_seq_truncate(quire_kv_seq *seq, int32_t n);
/* Opens a second sequence with the same tokens in the same pages. QUIRE_NO_ROOM: max_seqs
 * are open. QUIRE_INVALID: there are states and not all tokens are committed. */
quire_err quire_kv_seq_fork(quire_kv_seq *seq, quire_kv_seq **out);

typedef struct quire_kv_retention {
    int32_t priority; /* 0..100, 50 by default; a page of higher priority is evicted later under any policy */
    int64_t priority_us; /* time without a holder after which the priority returns to 50; 0: never */
    /* time without a holder after which the page is evicted before all others; 0:
     * never */
    int64_t ttl_us;
} quire_kv_retention;

/* Sets the retention of the cached pages that the sequence started with and of all that
 * it commits, before or after this call, until a sequence with the same prefix sets
 * another. QUIRE_INVALID: a negative value, a priority over 100 or a time over 10
 * years. */
quire_err quire_kv_seq_retain(quire_kv_seq *seq, const quire_kv_retention *retention);
/* Sets the clock for retention, in microseconds since any start, under 2^62; the cache
 * reads no clock itself. A time earlier than the current one is ignored. */
void quire_kv_set_time(quire_kv *kv, int64_t now_us);

int32_t quire_kv_seq_length(const quire_kv_seq *seq);
/* The slot of a position: page * page_tokens + offset; -1 before the group's window, and
 * in a group of states. */
int64_t quire_kv_seq_slot(const quire_kv_seq *seq, int32_t group, int32_t position);
/* The page table of a group: *n entries, -1 before the window. Valid until the sequence
 * changes. */
const int32_t *quire_kv_seq_pages(const quire_kv_seq *seq, int32_t group, int32_t *n);

typedef struct quire_kv_copy {
    int32_t from, to; /* page ids */
} quire_kv_copy;

/* Takes the list of page copies that are due, and returns their number. Make them all, in
 * this order, before writing the slots of the last appends. *out is valid until the next
 * call that opens, appends or, with states, commits. */
int32_t quire_kv_copies(quire_kv *kv, const quire_kv_copy **out);

typedef struct quire_kv_counts {
    int32_t n_pages, n_free, n_held, n_cached; /* n_free + n_held + n_cached == n_pages */
    int32_t n_seqs, n_namespaces, n_snapshots;
} quire_kv_counts;

quire_kv_counts quire_kv_count(const quire_kv *kv);
/* Evicts every page that no sequence holds. */
void quire_kv_clear(quire_kv *kv);
/* Checks that all counts, queues and tables agree. QUIRE_INTERNAL: they don't; err says
 * where. */
quire_err quire_kv_check(const quire_kv *kv, quire_error *err);

/* ---- a snapshot of the whole cache ---- */

#define QUIRE_KV_VIEW_HOLDERS 6
#define QUIRE_KV_VIEW_LABEL   16

/* A page: free (count 0, no entry), cached (count 0, an entry) or held (a count). */
typedef struct quire_kv_view_page {
    int32_t count;                          /* sequences that hold it */
    int32_t entry;                          /* its entry in the prefix tree, or -1 */
    int32_t holders[QUIRE_KV_VIEW_HOLDERS]; /* the first holders, as indices into seqs; -1: no more */
} quire_kv_view_page;

/* PARKED: the sequence has ended and its pages are held (quire_park in quire.h). */
typedef enum quire_kv_view_state {
    QUIRE_KV_OPEN,
    QUIRE_KV_PREFILL,
    QUIRE_KV_DECODE,
    QUIRE_KV_PARKED
} quire_kv_view_state;

#define QUIRE_KV_VIEW_OWNER 129 /* bytes of a tenant's name, including the terminating 0 */

typedef struct quire_kv_view_seq {
    int64_t id;
    char owner[QUIRE_KV_VIEW_OWNER]; /* the tenant; "": none */
    int32_t n_tokens, n_pages;       /* slots, and pages that contain them, over all groups */
    quire_kv_view_state state;
} quire_kv_view_seq;

/* An entry of the prefix tree: one page of tokens at its position. */
typedef struct quire_kv_view_entry {
    int32_t entry, up; /* its id, and that of the entry before it on its path; -1: none */
    /* the unbranched run of entries that it belongs to, and the run before that; -1:
     * none */
    int32_t node, above;
    int32_t ns, page; /* namespace; page in the first group, -1: not cached there */
    int32_t n_tokens, n_pins;
    uint64_t hash;                      /* 0: a part-filled page */
    int32_t label[QUIRE_KV_VIEW_LABEL]; /* the entry's first tokens */
} quire_kv_view_entry;

typedef enum quire_kv_event_kind {
    QUIRE_KV_STORED = 1,
    QUIRE_KV_REMOVED,
    QUIRE_KV_CLEARED
} quire_kv_event_kind;

/* A change in which full pages prompts can find. */
typedef struct quire_kv_view_event {
    uint64_t number;
    quire_kv_event_kind kind;
    int32_t group, n_tokens;
    uint64_t hash, parent;
} quire_kv_view_event;

/* A snapshot of a cache at one moment. Allocated once and filled any number of times.
 * Arrays hold at most cap_ items; counts include items that did not fit. */
typedef struct quire_kv_view {
    /* set by the caller before filling */
    int32_t page;   /* page whose tokens to return; -1: none */
    uint64_t after; /* return events after this number */
    /* counts over the whole cache */
    int32_t page_tokens, n_groups;
    int32_t n_pages, n_free, n_held, n_cached;
    int32_t n_shared;   /* pages held more than once */
    int64_t n_unshared; /* pages that would be held if sequences shared nothing */
    int32_t n_seqs, n_entries, n_nodes, n_namespaces;
    /* capacities of the arrays, and what they hold */
    int32_t cap_pages, cap_seqs, cap_entries, cap_events;
    /* entries in the array; 0 if there are more than cap_entries: the tree is returned
     * whole or not at all */
    int32_t n_entries_shown;
    int32_t n_events;
    /* newest event; events after `after` that were overwritten or did not fit */
    uint64_t last_event, n_events_lost;
    quire_kv_view_page *pages;
    quire_kv_view_seq *seqs;
    /* each entry before those that follow it; the entries of a node are adjacent */
    quire_kv_view_entry *entries;
    quire_kv_view_event *events;
    int32_t n_page_tokens, page_token[256]; /* the tokens of `page` */
    /* page-table entries visited: holders are given for the first 2^20 */
    int64_t n_walked;
} quire_kv_view;

/* Allocates a view with these capacities, each 1 to 2^20. */
quire_err quire_kv_view_open(int32_t cap_pages, int32_t cap_seqs, int32_t cap_entries, int32_t cap_events,
                             quire_kv_view **out);
void quire_kv_view_close(quire_kv_view *v);
/* Fills a view. */
void quire_kv_look(const quire_kv *kv, quire_kv_view *v);
/* The number of a sequence in views: 1, 2, ... in the order of opening. */
int64_t quire_kv_seq_id(const quire_kv_seq *seq);
/* Evicts pages in the order of the policy until n are free. QUIRE_NO_ROOM: the others are
 * held; everything that could be evicted is gone. */
quire_err quire_kv_evict(quire_kv *kv, int32_t n);

#ifdef __GNUC__
#pragma GCC visibility pop
#endif

#ifdef __cplusplus
}
#endif

#endif
