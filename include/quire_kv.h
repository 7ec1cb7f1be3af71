/* Quire's KV cache alone: where the keys and values of many sequences lie, which pages they share, and what can be reused. Host integers
 * only: the memory itself, and what writes into it, belong to the caller.
 *
 *   quire_kv_open
 *     quire_kv_seq_open    a prompt: what is cached of it is shared, the rest has slots
 *       quire_kv_copies    ... do these copies, compute the slots ...
 *       quire_kv_seq_commit
 *       quire_kv_seq_append -> copies, compute, commit, token by token
 *     quire_kv_seq_close   what was committed stays cached
 *   quire_kv_close         (examples/kv.c is a whole program)
 *
 * Memory is n_pages equal pages of page_tokens slots, one slot a token; position p of a sequence lies in slot quire_kv_seq_slot(seq, group,
 * p). Sequences share pages by reference count. Before anything is written to a shared page it is copied: quire_kv_copies says what to copy
 * where. A cached page keeps its content until it is evicted, in the order of a policy; what a sequence holds is never evicted.
 *
 * Groups are sets of layers with pages of their own: one for a plain model; with a window, positions behind it are given back as a sequence
 * grows. A group of recurrent states holds no tokens: a sequence has a fixed number of pages there, whose content stands for all tokens
 * computed so far. What it was earlier is known only where a snapshot was taken (quire_kv_seq_next_snapshot), so with such a group a prefix
 * is reused up to a snapshot. Latents are kept as keys and values are.
 *
 * Threads: one at a time. A failed call leaves everything as it was, but that cached pages may have been evicted to make room. */
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

/* Always the end of a branch before what comes before it. LRU: longest unused first. LFU: least often used first. GDSF: least uses x cost
 * to compute again first, old uses fading. LEARNED: what a model that learns while it runs finds least likely to be asked for again. */
typedef enum quire_kv_policy { QUIRE_KV_LRU, QUIRE_KV_LFU, QUIRE_KV_GDSF, QUIRE_KV_LEARNED } quire_kv_policy;

/* How finely prefixes are reused: to the token, by copying the page in which a prompt leaves what is cached; or in whole pages only. */
typedef enum quire_kv_granularity { QUIRE_KV_TOKEN, QUIRE_KV_PAGE } quire_kv_granularity;

typedef struct quire_kv_options {
    int32_t n_pages;
    int32_t page_tokens;                  /* power of two, 1..256 */
    int32_t n_groups;                     /* 1..QUIRE_KV_MAX_GROUPS */
    int32_t windows[QUIRE_KV_MAX_GROUPS]; /* tokens that a group's layers look back, the present one included; 0: all */
    int32_t max_seqs;                     /* sequences at once */
    int32_t max_namespaces;                   /* namespaces at once, of running sequences and of cached pages */
    quire_kv_policy policy;               /* which cached page goes first when room is needed */
    quire_kv_granularity granularity;
    uint64_t seed;    /* decides between what is equally good; 0: the system's, so that nobody who sends prompts can foresee it */
    int32_t n_events; /* events that are kept for quire_kv_look; 0: none */
    int32_t state_pages[QUIRE_KV_MAX_GROUPS]; /* pages of a sequence's state in a group of recurrent states; 0: the group holds tokens.
                                                 State groups come last, behind one that holds tokens at least */
    int32_t snapshot_tokens;                  /* a snapshot every so many tokens; 0: at prompts' ends, branches and ends only */
    int32_t snapshot_pages;                   /* most pages of snapshots, room for one at least; then the longest unused goes. 0: no limit
                                                 but n_pages */
} quire_kv_options;

/* 1 group, pages of 16, 256 sequences, 1,024 namespaces; n_pages is left to the caller. All else 0. */
void quire_kv_options_init(quire_kv_options *o);

/* QUIRE_INVALID for options out of range. */
quire_err quire_kv_open(const quire_kv_options *o, quire_kv **out);
/* Closes the sequences that are open as well. */
void quire_kv_close(quire_kv *kv);

/* A sequence with a prompt of n >= 1 tokens. It starts with the longest prefix of tokens[0..n - 1) that was committed in a namespace of the
 * same name (at most 255 bytes; put in it all that must agree: tenant, model, adapter, type of the values): *n_cached of its tokens are in
 * their slots. The rest has slots, and is the caller's to compute. QUIRE_NO_ROOM when the pages, sequences or namespaces do not suffice. */
quire_err quire_kv_seq_open(quire_kv *kv, const void *ns, size_t n_ns, const int32_t *tokens, int32_t n, quire_kv_seq **out,
                            int32_t *n_cached);
/* tokens[0..n), whole pages of them, become a public prefix: what sequences opened with quire_kv_seq_open_public have of it lies in pages
 * that all of one scope share, whatever their namespaces. scope (at most 255 bytes) holds what must agree all the same: model, adapter,
 * type of the values. Stays until the cache is closed. QUIRE_INVALID when n is less than a page. */
quire_err quire_kv_add_public(quire_kv *kv, const void *scope, size_t n_scope, const int32_t *tokens, int32_t n);
/* As quire_kv_seq_open; where the tokens begin with a public prefix of that scope, the longest counts, and what follows it is the
 * namespace's own. A sequence that is truncated inside the prefix and goes on with other tokens keeps these to itself: nothing behind is
 * findable. */
quire_err quire_kv_seq_open_public(quire_kv *kv, const void *scope, size_t n_scope, const void *ns, size_t n_ns,
                                   const int32_t *tokens, int32_t n, quire_kv_seq **out, int32_t *n_cached);
/* Gives its pages back; those that were committed stay cached. */
void quire_kv_seq_close(quire_kv_seq *seq);

/* n more tokens at the end. QUIRE_NO_ROOM when the pages do not suffice. */
quire_err quire_kv_seq_append(quire_kv_seq *seq, const int32_t *tokens, int32_t n);
typedef enum quire_kv_commit { QUIRE_KV_PAGES, QUIRE_KV_PAGES_AND_TAIL } quire_kv_commit;

/* The slots of the first n tokens are computed and hold finite values: full pages become findable, and the part-filled last one too if
 * asked (for the last commit of a sequence). Pages whose equal is cached already are given back for that one, and pages behind a window are
 * given back: read the page table anew. QUIRE_INVALID when n is more than the sequence's length.
 *
 * With states: theirs are what they are after n tokens, no more. Where a snapshot is due, and at the end, they are kept as they are: then
 * they have new pages, and copies may be due now already. When pages are short nothing is kept. */
quire_err quire_kv_seq_commit(quire_kv_seq *seq, int32_t n, quire_kv_commit what);
/* The number of tokens after which a snapshot is due next: computing up to there and committing leaves one; INT32_MAX: nowhere, there are
 * no states. A commit that comes later takes it then. */
int32_t quire_kv_seq_next_snapshot(const quire_kv_seq *seq);
/* Forgets all tokens from n on. QUIRE_INVALID when n is more than the length, or when what a window sees from there was given back, or
 * there are states and none is kept of n tokens (n neither 0 nor the length). */
quire_err quire_kv_seq_truncate(quire_kv_seq *seq, int32_t n);
/* A second sequence with the same tokens in the same pages. QUIRE_NO_ROOM when max_seqs are open. QUIRE_INVALID when there are states and
 * not all tokens are committed. */
quire_err quire_kv_seq_fork(quire_kv_seq *seq, quire_kv_seq **out);

typedef struct quire_kv_retention {
    int32_t priority;    /* 0..100, 50 if nothing is said; higher goes later, whatever the policy */
    int64_t priority_us; /* after so long unheld it is 50 again; 0: never */
    int64_t ttl_us;      /* after so long unheld the page goes before all others; 0: never */
} quire_kv_retention;

/* The cached pages that the sequence started with and those that it commits, before this call or after, are kept so, until another sequence
 * with the same prefix says otherwise. QUIRE_INVALID when a value is negative, the priority over 100 or a time over 10 years. */
quire_err quire_kv_seq_retain(quire_kv_seq *seq, const quire_kv_retention *retention);
/* What time it is, in microseconds from any start, under 2^62, for retention: nothing here reads a clock. Time that runs back stands
 * still. */
void quire_kv_set_time(quire_kv *kv, int64_t now_us);

int32_t quire_kv_seq_length(const quire_kv_seq *seq);
/* The slot of a position: page * page_tokens + offset; -1 behind the group's window, or in a group of states. */
int64_t quire_kv_seq_slot(const quire_kv_seq *seq, int32_t group, int32_t position);
/* The page table of a group, *n entries, -1 behind the window. Valid until the sequence changes. */
const int32_t *quire_kv_seq_pages(const quire_kv_seq *seq, int32_t group, int32_t *n);

typedef struct quire_kv_copy {
    int32_t from, to; /* pages */
} quire_kv_copy;

/* Takes the copies that are due, in order, and forgets them. Do them all, in this order, before the slots of the last appends are written.
 * Returns how many; valid until the next call that opens, appends or, with states, commits. */
int32_t quire_kv_copies(quire_kv *kv, const quire_kv_copy **out);

typedef struct quire_kv_counts {
    int32_t n_pages, n_free, n_held, n_cached; /* n_free + n_held + n_cached == n_pages */
    int32_t n_seqs, n_namespaces, n_snapshots;
} quire_kv_counts;

quire_kv_counts quire_kv_count(const quire_kv *kv);
/* Evicts all that no sequence holds. */
void quire_kv_clear(quire_kv *kv);
/* Proves that every count, queue and table agrees; QUIRE_INTERNAL and what does not otherwise. */
quire_err quire_kv_check(const quire_kv *kv, quire_error *err);

/* ---- a look at the whole ---- */

#define QUIRE_KV_VIEW_HOLDERS 6
#define QUIRE_KV_VIEW_LABEL   16

/* A page: free with count 0 and no entry, cached with count 0 and an entry, held with a count. */
typedef struct quire_kv_view_page {
    int32_t count;                          /* sequences that hold it */
    int32_t entry;                          /* of the tree, or -1 */
    int32_t holders[QUIRE_KV_VIEW_HOLDERS]; /* the first of them, as indices of seqs; -1: no more */
} quire_kv_view_page;

typedef enum quire_kv_view_state { QUIRE_KV_OPEN, QUIRE_KV_PREFILL, QUIRE_KV_DECODE } quire_kv_view_state;

#define QUIRE_KV_VIEW_OWNER 129 /* bytes of a tenant's name and its end */

typedef struct quire_kv_view_seq {
    int64_t id;
    char owner[QUIRE_KV_VIEW_OWNER]; /* its tenant; "": none */
    int32_t n_tokens, n_pages; /* slots it has, and the pages that they lie in, in all groups */
    quire_kv_view_state state;
} quire_kv_view_seq;

/* A page of tokens in its place in the tree. */
typedef struct quire_kv_view_entry {
    int32_t entry, up;   /* its number, and that of the one before it on its path; -1: none */
    int32_t node, above; /* the run of entries without a branch that it is in, and the run before that; -1: none */
    int32_t ns, page; /* page of the first group; -1: not cached in that one */
    int32_t n_tokens, n_pins;
    uint64_t hash;                      /* 0: part-filled */
    int32_t label[QUIRE_KV_VIEW_LABEL]; /* the first of its tokens */
} quire_kv_view_entry;

typedef enum quire_kv_event_kind { QUIRE_KV_STORED = 1, QUIRE_KV_REMOVED, QUIRE_KV_CLEARED } quire_kv_event_kind;

/* What can be found from now on and what no more; full pages only. */
typedef struct quire_kv_view_event {
    uint64_t number;
    quire_kv_event_kind kind;
    int32_t group, n_tokens;
    uint64_t hash, parent;
} quire_kv_view_event;

/* What a cache looks like in one moment: made once, filled any number of times. Arrays hold the first cap_ of what there is; the counts
 * count all. */
typedef struct quire_kv_view {
    /* asked for; set before it is filled */
    int32_t page;   /* whose tokens are wanted; -1: none's */
    uint64_t after; /* events behind this number */
    /* what there is */
    int32_t page_tokens, n_groups;
    int32_t n_pages, n_free, n_held, n_cached;
    int32_t n_shared;   /* pages held more than once */
    int64_t n_unshared; /* pages that would be held if sequences shared none */
    int32_t n_seqs, n_entries, n_nodes, n_namespaces;
    /* what is shown of it */
    int32_t cap_pages, cap_seqs, cap_entries, cap_events;
    int32_t n_entries_shown; /* 0 where there are more than cap_entries: a tree is shown whole or not at all */
    int32_t n_events;
    uint64_t last_event, n_events_lost; /* overwritten or too many since `after` */
    quire_kv_view_page *pages;
    quire_kv_view_seq *seqs;
    quire_kv_view_entry *entries; /* what comes before on a path first, a node's entries in a row */
    quire_kv_view_event *events;
    int32_t n_page_tokens, page_token[256]; /* of `page` */
    int64_t n_walked;                       /* entries of tables looked at so far: holders are given for the first 2^20 */
} quire_kv_view;

/* Room for so many of each (at least 1; at most 2^20). */
quire_err quire_kv_view_open(int32_t cap_pages, int32_t cap_seqs, int32_t cap_entries, int32_t cap_events, quire_kv_view **out);
void quire_kv_view_close(quire_kv_view *v);
/* Fills v. */
void quire_kv_look(const quire_kv *kv, quire_kv_view *v);
/* The number that a view calls a sequence by: 1, 2, ... in the order of opening. */
int64_t quire_kv_seq_id(const quire_kv_seq *seq);
/* Evicts, longest unused first, until n pages are free. QUIRE_NO_ROOM when all others are held: what could go is gone then. */
quire_err quire_kv_evict(quire_kv *kv, int32_t n);

#ifdef __GNUC__
#pragma GCC visibility pop
#endif

#ifdef __cplusplus
}
#endif

#endif
