/* Quire's KV cache alone: the pages and slots of many sequences, which pages they share,
 * and what a prompt can reuse. Host integers only: the memory itself, and what writes
 * into it, belong to the caller.
 *
 *   quire_kv_open
 *     quire_kv_seq_open    a prompt: what is cached of it is shared, the rest has slots
 *       quire_kv_copies    ... do these copies, compute the slots ...
 *       quire_kv_seq_commit
 *       quire_kv_seq_append -> copies, compute, commit, token by token
 *     quire_kv_seq_close   what was committed stays cached
 *   quire_kv_close         (examples/kv.c is a whole program)
 *
 * Memory is n_pages equal pages of page_tokens slots, one slot a token. The slot of
 * position p of a sequence is quire_kv_seq_slot(seq, group, p). Sequences share pages by
 * reference count. A shared page is copied before it is written: quire_kv_copies returns
 * which pages to copy where. A cached page keeps its content until it is evicted, in the
 * order of a policy; a page that a sequence holds is never evicted.
 *
 * Groups are sets of layers with pages of their own: one for a plain model. With a
 * window, pages before it are released as a sequence grows. A group of recurrent states
 * holds no tokens: a sequence has a fixed number of pages there, whose content is its
 * state after all tokens computed so far. An earlier state is known only where a snapshot
 * was taken (quire_kv_seq_next_snapshot), so with such a group a prefix is reused up to a
 * snapshot. Latents are kept like keys and values.
 *
 * Threads: one at a time. A failed call leaves everything unchanged, but cached pages may
 * have been evicted to make room. */
#ifndef QUIRE_KV_H
#define QUIRE_KV_H

#include <stddef.h>
#include <stdint.h>

#include "quire_err.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The library exports what is declared here, and nothing else. */
#ifdef __GNUC__
#pragma GCC visibility push(default)
#endif

typedef struct quire_kv quire_kv;
typedef struct quire_kv_seq quire_kv_seq;

#define QUIRE_KV_MAX_GROUPS 64

/* The order of eviction; always the end of a branch before what comes before it. LRU:
 * longest unused first. LFU: least often used first. GDSF: least uses x cost to compute
 * again first, old uses fading. LEARNED: least likely to be used again first, by a model
 * that learns online. */
typedef enum quire_kv_policy { QUIRE_KV_LRU, QUIRE_KV_LFU, QUIRE_KV_GDSF, QUIRE_KV_LEARNED } quire_kv_policy;

/* The granularity of reuse: single tokens, by copying the page in which a prompt leaves
 * what is cached; or whole pages only. */
typedef enum quire_kv_granularity { QUIRE_KV_TOKEN, QUIRE_KV_PAGE } quire_kv_granularity;

typedef struct quire_kv_options {
    int32_t n_pages;
    int32_t page_tokens; /* power of two, 1..256 */
    int32_t n_groups;    /* 1..QUIRE_KV_MAX_GROUPS */
    /* tokens that a group's layers attend to, the present one included; 0: all */
    int32_t windows[QUIRE_KV_MAX_GROUPS];
    int32_t max_seqs; /* sequences at once */
    /* namespaces at once, of running sequences and of cached pages */
    int32_t max_namespaces;
    quire_kv_policy policy; /* order of eviction */
    quire_kv_granularity granularity;
    uint64_t seed;    /* decides between equals; 0: from the system, so that clients cannot predict it */
    int32_t n_events; /* events that are kept for quire_kv_look; 0: none */
    /* pages of a sequence's state in a group of recurrent states; 0: the group holds
     * tokens. State groups come last; there may be no others */
    int32_t state_pages[QUIRE_KV_MAX_GROUPS];
    /* a snapshot every so many tokens; 0: at prompts' ends, branches and ends only */
    int32_t snapshot_tokens;
    /* most pages of snapshots, at least one snapshot's; else the least valuable is
     * dropped. 0: no limit but n_pages */
    int32_t snapshot_pages;
} quire_kv_options;

/* Sets the defaults: 1 group, pages of 16, 256 sequences, 1,024 namespaces. The caller
 * sets n_pages. All else 0. */
void quire_kv_options_init(quire_kv_options *o);

/* Opens a cache. QUIRE_INVALID for options out of range. */
quire_err quire_kv_open(const quire_kv_options *o, quire_kv **out);
/* Closes the cache and its open sequences. */
void quire_kv_close(quire_kv *kv);

/* Opens a sequence with a prompt of n >= 1 tokens. It starts with the longest prefix of
 * tokens[0..n - 1) that was committed in a namespace of the same name: the slots of its
 * first *n_cached tokens are computed. The rest has slots that the caller computes. The
 * name, of at most 255 bytes, contains everything that must agree: tenant, model,
 * adapter, type of the values. QUIRE_NO_ROOM when there are too few pages, sequences or
 * namespaces. */
quire_err quire_kv_seq_open(quire_kv *kv, const void *ns, size_t n_ns, const int32_t *tokens, int32_t n,
                            quire_kv_seq **out, int32_t *n_cached);
/* Makes the whole pages of tokens[0..n) a public prefix: sequences opened with
 * quire_kv_seq_open_public share its pages within a scope, whatever their namespaces.
 * scope (at most 255 bytes) contains what must agree besides: model, adapter, type of the
 * values. The prefix stays until the cache is closed. QUIRE_INVALID when n is less than a
 * page. */
quire_err quire_kv_add_public(quire_kv *kv, const void *scope, size_t n_scope, const int32_t *tokens,
                              int32_t n);
/* As quire_kv_seq_open. Where the tokens begin with a public prefix of that scope, the
 * longest one is used; what follows it is in the namespace only. A sequence that is
 * truncated inside the prefix and continues with other tokens publishes nothing after
 * that point. */
quire_err quire_kv_seq_open_public(quire_kv *kv, const void *scope, size_t n_scope, const void *ns,
                                   size_t n_ns, const int32_t *tokens, int32_t n, quire_kv_seq **out,
                                   int32_t *n_cached);
/* Closes a sequence and releases its pages; committed ones stay cached. */
void quire_kv_seq_close(quire_kv_seq *seq);

/* Appends n tokens. QUIRE_NO_ROOM when there are too few pages. */
quire_err quire_kv_seq_append(quire_kv_seq *seq, const int32_t *tokens, int32_t n);
typedef enum quire_kv_commit { QUIRE_KV_PAGES, QUIRE_KV_PAGES_AND_TAIL } quire_kv_commit;

/* Commits the first n tokens, whose slots are computed and hold finite values: full pages
 * can be found by prompts, and with QUIRE_KV_PAGES_AND_TAIL the part-filled last one too
 * (for the last commit of a sequence). Where an equal page is cached already, the
 * sequence gets that one and releases its own; pages before a window are released: read
 * the page table anew. QUIRE_INVALID when n is more than the sequence's length.
 *
 * With state groups: the states are those after exactly n tokens. Where a snapshot is
 * due, and at the end, they are kept as a snapshot; then the sequence has new pages for
 * them, and copies may be due at once. When pages run out no snapshot is taken. */
quire_err quire_kv_seq_commit(quire_kv_seq *seq, int32_t n, quire_kv_commit what);
/* The number of tokens after which a snapshot is due next: computing up to there and
 * committing takes one; INT32_MAX: none is, since there are no states. A later commit
 * takes it then. */
int32_t quire_kv_seq_next_snapshot(const quire_kv_seq *seq);
/* Drops all tokens from n on. QUIRE_INVALID when n is more than the length, if a page
 * that a window sees from there was released, or when there are states and no snapshot
 * after n tokens (n neither 0 nor the length). */
quire_err quire_kv_seq_truncate(quire_kv_seq *seq, int32_t n);
/* Makes a second sequence with the same tokens in the same pages. QUIRE_NO_ROOM when
 * max_seqs are open. QUIRE_INVALID when there are states and not all tokens are
 * committed. */
quire_err quire_kv_seq_fork(quire_kv_seq *seq, quire_kv_seq **out);

typedef struct quire_kv_retention {
    int32_t priority;    /* 0..100, by default 50; higher is evicted later, under any policy */
    int64_t priority_us; /* after this time without a holder it is 50 again; 0: never */
    /* after this time without a holder the page is evicted before all others; 0: never */
    int64_t ttl_us;
} quire_kv_retention;

/* Sets the retention of the cached pages that the sequence started with and of those that
 * it commits, before this call or after. It lasts until another sequence with the same
 * prefix sets another. QUIRE_INVALID when a value is negative, the priority over 100 or a
 * time over 10 years. */
quire_err quire_kv_seq_retain(quire_kv_seq *seq, const quire_kv_retention *retention);
/* Sets the time for retention, in microseconds from any start, under 2^62: the cache
 * reads no clock. An earlier time than before is ignored. */
void quire_kv_set_time(quire_kv *kv, int64_t now_us);

int32_t quire_kv_seq_length(const quire_kv_seq *seq);
/* The slot of a position: page * page_tokens + offset; -1 before the group's window, or
 * in a group of states. */
int64_t quire_kv_seq_slot(const quire_kv_seq *seq, int32_t group, int32_t position);
/* The page table of a group, *n entries, -1 before the window. Valid until the sequence
 * changes. */
const int32_t *quire_kv_seq_pages(const quire_kv_seq *seq, int32_t group, int32_t *n);

typedef struct quire_kv_copy {
    int32_t from, to; /* pages */
} quire_kv_copy;

/* Takes the list of copies that are due. Do all of them, in this order, before the slots
 * of the last appends are written. Returns how many; *out is valid until the next call
 * that opens, appends or, with states, commits. */
int32_t quire_kv_copies(quire_kv *kv, const quire_kv_copy **out);

typedef struct quire_kv_counts {
    int32_t n_pages, n_free, n_held, n_cached; /* n_free + n_held + n_cached == n_pages */
    int32_t n_seqs, n_namespaces, n_snapshots;
} quire_kv_counts;

quire_kv_counts quire_kv_count(const quire_kv *kv);
/* Evicts every page that no sequence holds. */
void quire_kv_clear(quire_kv *kv);
/* Checks that all counts, queues and tables agree; else QUIRE_INTERNAL and what is
 * wrong. */
quire_err quire_kv_check(const quire_kv *kv, quire_error *err);

/* ---- a snapshot of the whole cache ---- */

#define QUIRE_KV_VIEW_HOLDERS 6
#define QUIRE_KV_VIEW_LABEL   16

/* A page: free with count 0 and no entry, cached with count 0 and an entry, held with a
 * count. */
typedef struct quire_kv_view_page {
    int32_t count;                          /* sequences that hold it */
    int32_t entry;                          /* its entry in the tree, or -1 */
    int32_t holders[QUIRE_KV_VIEW_HOLDERS]; /* the first of them, as indices of seqs; -1: no more */
} quire_kv_view_page;

/* PARKED: the sequence has ended, and its pages are held (quire.h). */
typedef enum quire_kv_view_state {
    QUIRE_KV_OPEN,
    QUIRE_KV_PREFILL,
    QUIRE_KV_DECODE,
    QUIRE_KV_PARKED
} quire_kv_view_state;

#define QUIRE_KV_VIEW_OWNER 129 /* bytes of a tenant's name, with its terminating 0 */

typedef struct quire_kv_view_seq {
    int64_t id;
    char owner[QUIRE_KV_VIEW_OWNER]; /* its tenant; "": none */
    int32_t n_tokens, n_pages;       /* its slots, and the pages that contain them, in all groups */
    quire_kv_view_state state;
} quire_kv_view_seq;

/* A page of tokens at its position in the tree. */
typedef struct quire_kv_view_entry {
    int32_t entry, up;   /* its id, and that of the preceding entry on its path; -1: none */
    int32_t node, above; /* its run of entries without a branch, and the run before that; -1: none */
    int32_t ns, page;    /* page of the first group; -1: not cached in that one */
    int32_t n_tokens, n_pins;
    uint64_t hash;                      /* 0: part-filled */
    int32_t label[QUIRE_KV_VIEW_LABEL]; /* the first of its tokens */
} quire_kv_view_entry;

typedef enum quire_kv_event_kind {
    QUIRE_KV_STORED = 1,
    QUIRE_KV_REMOVED,
    QUIRE_KV_CLEARED
} quire_kv_event_kind;

/* Which pages a prompt can find from now on, and which it cannot any more; full pages
 * only. */
typedef struct quire_kv_view_event {
    uint64_t number;
    quire_kv_event_kind kind;
    int32_t group, n_tokens;
    uint64_t hash, parent;
} quire_kv_view_event;

/* A snapshot of a cache at one moment: allocated once, filled any number of times. Arrays
 * have the first cap_ items; counts count all. */
typedef struct quire_kv_view {
    /* set by the caller before it is filled */
    int32_t page;   /* page whose tokens are wanted; -1: none */
    uint64_t after; /* events after this number */
    /* the state of the cache */
    int32_t page_tokens, n_groups;
    int32_t n_pages, n_free, n_held, n_cached;
    int32_t n_shared;   /* pages held more than once */
    int64_t n_unshared; /* pages that would be held if sequences shared none */
    int32_t n_seqs, n_entries, n_nodes, n_namespaces;
    /* the part of it that is shown */
    int32_t cap_pages, cap_seqs, cap_entries, cap_events;
    /* 0 where there are more than cap_entries: a tree is shown whole or not at all */
    int32_t n_entries_shown;
    int32_t n_events;
    uint64_t last_event, n_events_lost; /* overwritten or too many since `after` */
    quire_kv_view_page *pages;
    quire_kv_view_seq *seqs;
    quire_kv_view_entry *entries; /* each entry before those that follow it; a node's entries in a row */
    quire_kv_view_event *events;
    int32_t n_page_tokens, page_token[256]; /* of `page` */
    /* table entries read so far: holders are given for the first 2^20 */
    int64_t n_walked;
} quire_kv_view;

/* Allocates a view with these capacities (at least 1; at most 2^20). */
quire_err quire_kv_view_open(int32_t cap_pages, int32_t cap_seqs, int32_t cap_entries, int32_t cap_events,
                             quire_kv_view **out);
void quire_kv_view_close(quire_kv_view *v);
/* Fills v. */
void quire_kv_look(const quire_kv *kv, quire_kv_view *v);
/* The number of a sequence in a view: 1, 2, ... in the order of opening. */
int64_t quire_kv_seq_id(const quire_kv_seq *seq);
/* Evicts pages, in the order of the policy, until n are free. QUIRE_NO_ROOM when all
 * others are held; all that could be evicted is gone then. */
quire_err quire_kv_evict(quire_kv *kv, int32_t n);

#ifdef __GNUC__
#pragma GCC visibility pop
#endif

#ifdef __cplusplus
}
#endif

#endif
