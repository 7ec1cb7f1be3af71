/* Quire's KV cache alone: where the keys and values of many sequences lie, which pages they share, and what can be reused. Host integers
 * only: the memory itself, and what writes into it, belong to the caller.
 *
 *   quire_kv_open -> quire_kv_seq_open (reuses what is cached) -> append, do the copies, compute, commit ... -> quire_kv_seq_close ->
 * quire_kv_close
 *
 * Memory is n_pages equal pages of page_tokens slots, one slot a token; position p of a sequence lies in slot quire_kv_seq_slot(seq, group,
 * p). Sequences share pages by reference count. Before anything is written to a shared page it is copied: quire_kv_copies says what to copy
 * where. A cached page keeps its content until it is evicted, in the order of a policy; what a sequence holds is never evicted.
 *
 * Groups are sets of layers with pages of their own: one for a plain model; with a window, positions behind it are given back as a sequence
 * grows.
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
    int32_t max_spaces;                   /* name spaces at once, of running sequences and of cached pages */
    quire_kv_policy policy;               /* which cached page goes first when room is needed */
    quire_kv_granularity granularity;
} quire_kv_options;

/* 1 group, pages of 16, 256 sequences, 1,024 spaces; n_pages is left to the caller. */
void quire_kv_options_init(quire_kv_options *o);

/* QUIRE_INVALID for options out of range. */
quire_err quire_kv_open(const quire_kv_options *o, quire_kv **out);
/* Closes the sequences that are open as well. */
void quire_kv_close(quire_kv *kv);

/* A sequence with a prompt of n >= 1 tokens. It starts with the longest prefix of tokens[0..n - 1) that was committed in a space of the
 * same name (at most 255 bytes; put in it all that must agree: tenant, model, adapter, type of the values): *n_cached of its tokens are in
 * their slots. The rest has slots, and is the caller's to compute. QUIRE_NO_ROOM when the pages, sequences or spaces do not suffice. */
quire_err quire_kv_seq_open(quire_kv *kv, const void *space, size_t n_space, const int32_t *tokens, int32_t n, quire_kv_seq **out,
                            int32_t *n_cached);
/* Gives its pages back; those that were committed stay cached. */
void quire_kv_seq_close(quire_kv_seq *seq);

/* n more tokens at the end. QUIRE_NO_ROOM when the pages do not suffice. */
quire_err quire_kv_seq_append(quire_kv_seq *seq, const int32_t *tokens, int32_t n);
typedef enum quire_kv_commit { QUIRE_KV_PAGES, QUIRE_KV_PAGES_AND_TAIL } quire_kv_commit;

/* The slots of the first n tokens are computed and hold finite values: full pages become findable, and the part-filled last one too if
 * asked (for the last commit of a sequence). Pages whose equal is cached already are given back for that one, and pages behind a window are
 * given back: read the page table anew. QUIRE_INVALID when n is more than the sequence's length. */
quire_err quire_kv_seq_commit(quire_kv_seq *seq, int32_t n, quire_kv_commit what);
/* Forgets all tokens from n on. QUIRE_INVALID when n is more than the length, or when what a window sees from there was given back. */
quire_err quire_kv_seq_truncate(quire_kv_seq *seq, int32_t n);
/* A second sequence with the same tokens in the same pages. QUIRE_NO_ROOM when max_seqs are open. */
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
/* The slot of a position: page * page_tokens + offset; -1 behind the group's window. */
int64_t quire_kv_seq_slot(const quire_kv_seq *seq, int32_t group, int32_t position);
/* The page table of a group, *n entries, -1 behind the window. Valid until the sequence changes. */
const int32_t *quire_kv_seq_pages(const quire_kv_seq *seq, int32_t group, int32_t *n);

typedef struct quire_kv_copy {
    int32_t from, to; /* pages */
} quire_kv_copy;

/* Takes the copies that are due, in order, and forgets them. Do them all, in this order, before the slots of the last appends are written.
 * Returns how many; valid until the next call that opens or appends. */
int32_t quire_kv_copies(quire_kv *kv, const quire_kv_copy **out);

typedef struct quire_kv_counts {
    int32_t n_pages, n_free, n_held, n_cached; /* n_free + n_held + n_cached == n_pages */
    int32_t n_seqs, n_spaces;
} quire_kv_counts;

quire_kv_counts quire_kv_count(const quire_kv *kv);
/* Evicts all that no sequence holds. */
void quire_kv_clear(quire_kv *kv);
/* Proves that every count, queue and table agrees; QUIRE_INTERNAL and what does not otherwise. */
quire_err quire_kv_check(const quire_kv *kv, quire_error *err);

#ifdef __cplusplus
}
#endif

#endif
