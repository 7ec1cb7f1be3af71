/* A kv_seq is one sequence's memory in a KV cache: its block tables of every group, its
 * place in the prefix index, and how many of its tokens are computed.
 *
 *   init --open--> open --admit--> holds cached pages --reserve, advance, publish ..--> release
 *                   ^                  truncate, fork                                     |
 *                   `---------------------------- admit again
 *                   ----------------------------'
 *   close --> init
 *
 *   open     it has a path in the index, where the index has room for its namespace; else
 *            it works without reuse
 *   admit    its tables, empty until then, share the pages of the longest cached prefix
 *   reserve  pages for tokens to come, in every group or in none
 *   advance  tokens whose keys and values are written by now
 *   publish full pages can be found
 *   forget   pages before windows are released
 *   copy     pages for its recurrent states as they are after a token within the next
 *            rows: where a snapshot is due, which becomes findable as it is published,
 *            and before each draft
 *   settle   its state is that after its computed tokens; other copies are released
 *   release  all pages are released; what was computed stays findable
 *   park in place of a release: it keeps the pages that can be found, and is not computed
 *   any further
 *   swap     before a release: pages without other holders are kept in host memory, and
 *            come back after the next admission
 *
 * Functions that are called for each sequence in each step are inline.
 *
 * The caller keeps the tokens: every call that compares or publishes them takes the same
 * array, which only grows or is truncated.
 *
 * Owner: the owner of the cache. Invariant: each table of tokens has pages for n_computed
 * tokens at least, PAGE_NONE only before a window; path stands at or before the last
 * whole page of them. */
#ifndef KV_KV_SEQ_H
#define KV_KV_SEQ_H

#include "core/batch.h"
#include "kv/kv_cache.h"
#include "kv/snapshot.h"
#include "kv/table.h"

/* The wait of a sequence for its pages in the tiers (kv_tiering.h): not begun, under way,
 * over. */
typedef enum kv_tier_wait { KV_TIER_WAIT_NONE, KV_TIER_WAITS, KV_TIER_WAIT_OVER } kv_tier_wait;

typedef struct kv_seq {
    kv_table *tables; /* [n_tables] one per group, groups of tokens first */
    int32_t n_tables;
    int32_t n_computed; /* tokens whose keys and values the pages hold */
    bool has_path;
    kv_path path; /* valid with has_path */
    /* only this many leading tokens are published, since the values of later ones depend
     * on more than the tokens before them; 0: all are */
    int32_t share_limit;
    kv_snapshot_plan snapshots; /* with state groups: where to take snapshots */
    int32_t copies0, n_copies;  /* its copies in cache.state_copies, between reservation and settle */
    int32_t n_copied_from;      /* number of tokens before the rows from which the copies are counted */
    int32_t swap_frames;        /* first of its frames in swap space; 0: none */
    /* the tokens in these frames: swap_from..swap_tokens; swap_from is a page's start */
    int32_t swap_from, swap_tokens;
    kv_tier_wait tier_wait;
    int64_t tier_deadline_us; /* end of its wait for tiers; 0: the wait has not begun */
} kv_seq;

/* ---- open and close ---- */

/* Makes empty tables for n_groups groups, with room for cap_pages entries, so that
 * appends up to there allocate nothing. Any thread. QUIRE_NO_MEMORY: *s is empty. */
quire_err kv_seq_init(kv_seq *s, int32_t n_groups, int32_t cap_pages);
/* Frees the tables, whose pages were released before. Any thread. */
void kv_seq_deinit(kv_seq *s);
/* Gives s a path in the namespace of that name, after the longest public prefix of the
 * scope with which tokens[0..n_tokens) begin. If there is no free namespace the least
 * valuable pages are evicted for one. Without an index: nothing. QUIRE_NO_ROOM when
 * every namespace is in use, QUIRE_INVALID for a name that is too long: s works
 * without reuse. */
quire_err kv_seq_open(kv_cache *c, kv_seq *s, const void *scope, size_t n_scope, const void *name,
                      size_t n_name, const int32_t *tokens, int32_t n_tokens);
/* Leaves its path and frees its frames in swap space; its pages were released before. */
void kv_seq_close(kv_cache *c, kv_seq *s);

/* ---- reuse ---- */

/* How many of its first n tokens are published. */
static inline int32_t kv_seq_shareable(const kv_seq *s, int32_t n) {
    return s->share_limit > 0 && s->share_limit < n ? s->share_limit : n;
}
/* How many of tokens[0..n) an admission would find, and how much of that takes no
 * additional pages. Changes nothing. */
int32_t kv_seq_peek(const kv_cache *c, const kv_seq *s, const int32_t *tokens, int32_t n, kv_held *held);
/* Shares the pages of the longest cached prefix of tokens[0..n) into the tables, which
 * are empty; n_computed is its length from now on. QUIRE_NO_MEMORY when a table cannot
 * grow: nothing changed. */
quire_err kv_seq_admit(kv_cache *c, kv_seq *s, const int32_t *tokens, int32_t n);
/* Shares the pages of s's first n tokens with `to`, which is initialised and empty, and
 * gives it a path like s's. n is at most the number of tokens for which s has pages; with
 * states, 0 or the position of the states. The tables of `to` have room for them. */
void kv_seq_fork(kv_cache *c, const kv_seq *s, int32_t n, kv_seq *to);

/* ---- growth ---- */

/* Pages that n more tokens take from the pool in group g, copies of shared pages
 * included. */
static inline int32_t kv_seq_group_needs(const kv_cache *c, const kv_seq *s, int32_t g, int32_t n) {
    return g < c->n_token_groups ? kv_table_needs(c->pool, &s->tables[g], n, c->page_tokens)
                                 : kv_table_state_needs(c->pool, &s->tables[g], c->state_pages[g]);
}
/* The same, summed over all groups. */
static inline int64_t kv_seq_needs(const kv_cache *c, const kv_seq *s, int32_t n) {
    int64_t n_pages = 0;
    for (int32_t g = 0; g < s->n_tables; g++) {
        n_pages += kv_seq_group_needs(c, s, g, n);
    }
    return n_pages;
}
/* kv_seq_reserve of a cache with several groups, or states. */
quire_err kv_seq_reserve_groups(kv_cache *c, kv_seq *s, int32_t n, kv_copies *copies);
/* Reserves pages for n tokens after those that have some, in every group or in none.
 * Shared pages that would be written are copied: the pairs are added to copies.
 * QUIRE_NO_ROOM (also when copies is full) and QUIRE_NO_MEMORY leave everything
 * unchanged. */
static inline quire_err kv_seq_reserve(kv_cache *c, kv_seq *s, int32_t n, kv_copies *copies) {
    bool is_plain = c->n_groups == 1 && c->n_token_groups == 1;
    return is_plain ? kv_table_append(c->pool, s->tables, n, c->page_tokens, copies)
                    : kv_seq_reserve_groups(c, s, n, copies);
}
/* Counts n more tokens as computed, for which pages were reserved. */
static inline void kv_seq_advance(kv_seq *s, int32_t n) {
    s->n_computed += n;
}
/* Publishes the full pages of tokens[0..n_computed). A full index leaves some out: only
 * reuse is lost. */
static inline void kv_seq_publish_pages(kv_cache *c, kv_seq *s, const int32_t *tokens) {
    if (s->has_path) {
        (void)kv_index_publish(c->index, &s->path, tokens, kv_seq_shareable(s, s->n_computed), s->tables,
                               KV_PUBLISH_PAGES);
    }
}
/* Publishes the snapshots that are due among the computed tokens, where states were
 * copied or s has them. Needs state groups and a path. */
void kv_seq_publish_states(kv_cache *c, kv_seq *s, const int32_t *tokens);
/* Publishes both. */
static inline void kv_seq_publish(kv_cache *c, kv_seq *s, const int32_t *tokens) {
    kv_seq_publish_pages(c, s, tokens);
    if (s->has_path && c->n_state_pages > 0) {
        kv_seq_publish_states(c, s, tokens);
    }
}
/* Publishes the pages, including the part-filled last one. */
void kv_seq_publish_tail(kv_cache *c, kv_seq *s, const int32_t *tokens);
/* Reserves pages for copies of s's states after each of its first from .. to - 1 tokens,
 * which its next rows compute and do not end with; evicts for them. Returns how many were
 * reserved: fewer than wanted if pages are short. Needs state groups; the calls for one
 * sequence in a step must follow one another. */
int32_t kv_seq_copy_states(kv_cache *c, kv_seq *s, int32_t from, int32_t to);
/* The same, for the points at which snapshots are due within the next n_rows. */
void kv_seq_copy_due(kv_cache *c, kv_seq *s, int32_t n_rows);
/* Settles the state at n_computed tokens: takes the copy made there if rows went further,
 * and releases all other copies. Does nothing without copies. */
void kv_seq_settle(kv_cache *c, kv_seq *s);
/* Fills views[number of state groups] with tables over pages[n_state_pages]. */
void kv_state_views(const kv_cache *c, page_id *pages, kv_table *views);
/* Takes a snapshot of the recurrent states after the computed tokens, if there is room.
 * goes_on: more tokens that have pages are computed without another reservation, so s
 * gets its own states here, whose copies are added to copies. copies must have room for
 * n_state_pages more. Needs state groups and a path. */
void kv_seq_snapshot(kv_cache *c, kv_seq *s, const int32_t *tokens, bool goes_on, kv_copies *copies);
/* Releases the pages that no window of its groups sees from n_computed on. */
static inline void kv_seq_forget(kv_cache *c, kv_seq *s) {
    for (int32_t g = 0; g < c->n_token_groups; g++) {
        if (c->windows[g] > 0) {
            kv_table_forget(c->pool, &s->tables[g], kv_cache_first_seen(c, g, s->n_computed), c->page_tokens);
        }
    }
}

/* ---- release ---- */

/* Whether no page was released that a window sees after the first n tokens. */
bool kv_seq_sees_back(const kv_cache *c, const kv_seq *s, int32_t n);
/* Whether s could continue after its first n tokens: windows have all pages that they
 * need, and no state would have to be rolled back. */
bool kv_seq_can_truncate(const kv_cache *c, const kv_seq *s, int32_t n);
/* Truncates s to its first n tokens, for which windows must have all pages: releases the
 * pages after them. States are unchanged unless n is 0, which releases them;
 * kv_index_restore replaces them. */
void kv_seq_truncate(kv_cache *c, kv_seq *s, int32_t n);
/* Truncates the groups of tokens to n tokens. */
static inline void kv_seq_keep_pages(kv_cache *c, kv_seq *s, int32_t n) {
    for (int32_t g = 0; g < c->n_token_groups; g++) {
        kv_table_truncate(c->pool, &s->tables[g], n, c->page_tokens);
    }
}
/* Releases the pages that were reserved for more than the first n tokens, at least the
 * computed ones, before anything of them is written. */
static inline void kv_seq_give_back(kv_cache *c, kv_seq *s, int32_t n) {
    kv_seq_keep_pages(c, s, n);
    for (int32_t g = c->n_token_groups; g < s->n_tables; g++) {
        s->tables[g].n_tokens = n;
    }
}
/* Releases the pages that were reserved for more than the computed tokens, once the rows
 * are computed. */
static inline void kv_seq_trim(kv_cache *c, kv_seq *s) {
    kv_seq_keep_pages(c, s, s->n_computed);
}
/* What becomes of released pages. */
typedef enum kv_keep {
    /* they can be found; so can a snapshot and the part-filled last page if no other
     * sequence holds it */
    KV_KEEP,
    KV_DROP /* their values are wrong, or no sequence can reuse them */
} kv_keep;
/* Releases all pages, and moves path to its root. tokens: [n_computed]. */
void kv_seq_release(kv_cache *c, kv_seq *s, const int32_t *tokens, kv_keep keep);
/* Publishes all of tokens[0..n_computed), releases all pages, and shares those that an
 * admission of the same tokens then finds; n_computed becomes their number of tokens.
 * Afterwards s may be released, but not grow. QUIRE_NO_MEMORY: it holds nothing. */
quire_err kv_seq_park(kv_cache *c, kv_seq *s, const int32_t *tokens);
/* Removes a part-filled last page, and the snapshot with which s shares its states, from
 * the index, so that s can continue to write without copying what only the index shares
 * with it. True if something changed. */
bool kv_seq_take_over(kv_cache *c, kv_seq *s);

/* ---- swap: pages of a sequence that has to wait are kept in host memory. Without swap
 * space nothing is kept ---- */

/* How many pages kv_seq_swap_out would keep now. *from: the tokens before them, which
 * others hold in every group, so that the index finds them again. O(pages). */
int32_t kv_seq_swap_pages(const kv_cache *c, const kv_seq *s, int32_t *from);
/* What was copied: pages, and how long it took; us -1: the device is not done yet.
 * n_found: tokens that the admission found and s still has. */
typedef struct kv_swapped {
    int32_t n_pages, n_found;
    int64_t us;
} kv_swapped;
/* Copies the n_computed tokens from `from` on, a page's start, into frames; s still holds
 * its pages, which may be released at once. It has no frames before. n_pages 0: too few
 * frames are free, and nothing changed. */
kv_swapped kv_seq_swap_out(kv_cache *c, kv_seq *s, int32_t from);
/* How many tokens an admission that finds n_cached in the index would have after
 * kv_seq_swap_in: n_cached if the frames are useless, since tokens before them are
 * missing. */
static inline int32_t kv_seq_swap_peek(const kv_cache *c, const kv_seq *s, int32_t n_cached) {
    bool is_whole = s->swap_frames > 0 && n_cached - n_cached % c->page_tokens >= s->swap_from;
    return is_whole && s->swap_tokens > n_cached ? s->swap_tokens : n_cached;
}
/* Directly after an admission: truncates s to whole pages and copies the swapped pages
 * back, if kv_seq_swap_peek says so and there is room. n_pages 0: nothing was copied
 * back, and s is empty if it cannot continue after its whole pages. Frees its frames in
 * any case. */
kv_swapped kv_seq_swap_in(kv_cache *c, kv_seq *s);
/* Frees its frames. */
static inline void kv_seq_swap_drop(kv_cache *c, kv_seq *s) {
    if (s->swap_frames != 0) {
        kv_swap_drop(&c->swap, &s->swap_frames);
    }
}

/* ---- queries ---- */

/* The number of entries of its tables. */
static inline int32_t kv_seq_pages(const kv_seq *s) {
    int32_t n = 0;
    for (int32_t g = 0; g < s->n_tables; g++) {
        n += s->tables[g].n_pages;
    }
    return n;
}
/* Entries of groups with windows that do not count towards its most pages
 * (most_pages.h): holes, and pages that others hold too, which it leaves to them when
 * its window moves. */
int32_t kv_seq_passed(const kv_cache *c, const kv_seq *s);
/* Pages of its states that are shared. */
int32_t kv_seq_shared_states(const kv_cache *c, const kv_seq *s);
/* Pages that the next reservation takes to copy shared ones (kv_pool_is_shared): those
 * into which the next token is written, and states. */
static inline int32_t kv_seq_copied(const kv_cache *c, const kv_seq *s) {
    int32_t n = 0;
    for (int32_t g = 0; g < c->n_token_groups; g++) {
        n += kv_table_copies_tail(c->pool, &s->tables[g], c->page_tokens);
    }
    return c->n_state_pages == 0 ? n : n + kv_seq_shared_states(c, s);
}
/* The slot of the token at position p in group g. p has a page. */
static inline int64_t kv_seq_slot(const kv_cache *c, const kv_seq *s, int32_t g, int32_t p) {
    return kv_table_slot(&s->tables[g], p, c->page_tokens);
}
/* The slots of positions p0..p0 + n of group g. */
static inline void kv_seq_slots(const kv_cache *c, const kv_seq *s, int32_t g, int32_t p0, int32_t n,
                                kv_slot *out) {
    for (int32_t done = 0; done < n;) {
        int64_t slot = kv_seq_slot(c, s, g, p0 + done);
        int32_t in_page = c->page_tokens - (p0 + done) % c->page_tokens,
                end = done + (in_page < n - done ? in_page : n - done);
        for (; done < end; done++) {
            out[done] = (kv_slot){slot++};
        }
    }
}
/* The number of sequences whose tables name the page of entry i of group g. 0 before a
 * window. */
int32_t kv_seq_holders(const kv_cache *c, const kv_seq *s, int32_t g, int32_t i);

/* ---- audit ---- */

/* Appends its tables to out, which has room for n_tables more; returns how many. */
int32_t kv_seq_list_tables(const kv_seq *s, const kv_table **out);
/* Checks the invariant above. QUIRE_INTERNAL, with what is wrong. */
quire_err kv_seq_check(const kv_cache *c, const kv_seq *s, quire_error *err);
/* Proves that pool, index and tables agree, where tables[0..n) are those of every
 * sequence with pages. Errors and cost as kv_check. */
quire_err kv_cache_check(const kv_cache *c, const kv_table *const *tables, int32_t n, quire_error *err);

#endif
