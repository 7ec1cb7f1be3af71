/* A kv_seq is one sequence's memory in a KV cache: its block tables of all groups, its
 * place in the prefix index, and the number of its tokens that are computed.
 *
 *   init --open--> open --admit--> holds cached pages --reserve, advance, publish ..--> release
 *                   ^                  truncate, fork                                     |
 *                   `---------------------------- admit again ----------------------------'
 *   close --> init
 *
 *   open     enters a namespace of the index; if the index has no room for it, the
 *            sequence works without reuse
 *   admit    shares the pages of the longest cached prefix into its empty tables
 *   reserve  takes pages for tokens to come, in all groups or in none
 *   advance  counts tokens whose keys and values are now written
 *   publish  makes full pages findable
 *   forget   releases pages before windows
 *   copy     takes pages for copies of its recurrent states after tokens within the next
 *            rows: where a snapshot is due, which publish makes findable, and before
 *            each draft
 *   settle   keeps the state after its computed tokens, and releases the other copies
 *   release  releases all pages; what was computed stays findable
 *   park     in place of a release: keeps the pages that can be found, but the sequence
 *            is not computed further
 *   swap     before a release: copies pages without other holders to host memory, to be
 *            copied back after the next admission
 *
 * Functions that are called for each sequence in each step are inline.
 *
 * The caller keeps the tokens: every call that compares or publishes them takes the same
 * array, which only grows or is truncated.
 *
 * Owner: the owner of the cache. Invariant: each table of tokens has pages for at least
 * n_computed tokens, PAGE_NONE only before a window; path is at or before their last
 * whole page. */
#ifndef KV_KV_SEQ_H
#define KV_KV_SEQ_H

#include "core/batch.h"
#include "kv/kv_cache.h"
#include "kv/snapshot.h"
#include "kv/table.h"

/* State of a sequence's wait for its pages in the tiers (kv_tiering.h): not begun,
 * waiting, over. */
typedef enum kv_tier_wait { KV_TIER_WAIT_NONE, KV_TIER_WAITS, KV_TIER_WAIT_OVER } kv_tier_wait;

typedef struct kv_seq {
    kv_table *tables; /* [n_tables] one for each group, groups of tokens first */
    int32_t n_tables;
    int32_t n_computed; /* number of tokens whose keys and values the pages hold */
    bool has_path;
    kv_path path; /* valid if has_path */
    /* number of leading tokens that may be published; 0: all. The values of later ones
     * depend on more than the tokens before them */
    int32_t share_limit;
    kv_snapshot_plan snapshots; /* with state groups: positions at which to take snapshots */
    int32_t copies0, n_copies;  /* range of its copies in cache.state_copies, from reservation to settle */
    int32_t n_copied_from;      /* number of computed tokens before the rows that the copies belong to */
    int32_t swap_frames;        /* first of its frames in swap space; 0: it has none */
    /* the frames hold tokens [swap_from, swap_tokens); swap_from is a page's start */
    int32_t swap_from, swap_tokens;
    kv_tier_wait tier_wait;
    int64_t tier_deadline_us; /* deadline of its wait for tiers; 0: the wait has not begun */
} kv_seq;

/* ---- open and close ---- */

/* Makes empty tables for n_groups groups, with room for cap_pages entries, up to which
 * appends allocate nothing. Any thread. QUIRE_NO_MEMORY: *s is empty. */
quire_err kv_seq_init(kv_seq *s, int32_t n_groups, int32_t cap_pages);
/* Frees the tables, whose pages must have been released. Any thread. */
void kv_seq_deinit(kv_seq *s);
/* Gives s a path in the namespace of that name, after the longest public prefix of the
 * scope with which tokens[0..n_tokens) begin. Evicts the least valuable pages if no
 * namespace is free. QUIRE_NO_ROOM: every namespace is in use; QUIRE_INVALID: the name is
 * too long; s then works without reuse. Does nothing without an index. */
quire_err kv_seq_open(kv_cache *c, kv_seq *s, const void *scope, size_t n_scope, const void *name,
                      size_t n_name, const int32_t *tokens, int32_t n_tokens);
/* Leaves its path and frees its swap frames. Its pages must have been released. */
void kv_seq_close(kv_cache *c, kv_seq *s);

/* ---- reuse ---- */

/* Returns how many of s's first n tokens may be published. */
static inline int32_t kv_seq_shareable(const kv_seq *s, int32_t n) {
    return s->share_limit > 0 && s->share_limit < n ? s->share_limit : n;
}
/* Returns how many of tokens[0..n) an admission would find, and sets *held to how much of
 * that takes no additional pages. Changes nothing. */
int32_t kv_seq_peek(const kv_cache *c, const kv_seq *s, const int32_t *tokens, int32_t n, kv_held *held);
/* Shares the pages of the longest cached prefix of tokens[0..n) into the empty tables,
 * and sets n_computed to its length. QUIRE_NO_MEMORY: a table cannot grow; nothing
 * changed. */
quire_err kv_seq_admit(kv_cache *c, kv_seq *s, const int32_t *tokens, int32_t n);
/* Shares the pages of s's first n tokens with `to`, which is initialised and empty and
 * has room in its tables, and gives it a path like s's. s must have pages for n tokens;
 * with states, n is 0 or the position of the states. */
void kv_seq_fork(kv_cache *c, const kv_seq *s, int32_t n, kv_seq *to);

/* ---- growth ---- */

/* Pages that n more tokens take from the pool in group g, with copies of shared pages. */
static inline int32_t kv_seq_group_needs(const kv_cache *c, const kv_seq *s, int32_t g, int32_t n) {
    return g < c->n_token_groups ? kv_table_needs(c->pool, &s->tables[g], n, c->page_tokens)
                                 : kv_table_state_needs(c->pool, &s->tables[g], c->state_pages[g]);
}
/* Pages that n more tokens take in all groups. */
static inline int64_t kv_seq_needs(const kv_cache *c, const kv_seq *s, int32_t n) {
    int64_t n_pages = 0;
    for (int32_t g = 0; g < s->n_tables; g++) {
        n_pages += kv_seq_group_needs(c, s, g, n);
    }
    return n_pages;
}
/* kv_seq_reserve for a cache with several groups, or with states. */
quire_err kv_seq_reserve_groups(kv_cache *c, kv_seq *s, int32_t n, kv_copies *copies);
/* Reserves pages for n tokens after those that have pages, in all groups or in none. A
 * shared page that would be written is replaced by a new one, and the pair is added to
 * copies. QUIRE_NO_ROOM (also if copies is full), QUIRE_NO_MEMORY: nothing changed. */
static inline quire_err kv_seq_reserve(kv_cache *c, kv_seq *s, int32_t n, kv_copies *copies) {
    bool is_plain = c->n_groups == 1 && c->n_token_groups == 1;
    return is_plain ? kv_table_append(c->pool, s->tables, n, c->page_tokens, copies)
                    : kv_seq_reserve_groups(c, s, n, copies);
}
/* Counts n more tokens, for which pages were reserved, as computed. */
static inline void kv_seq_advance(kv_seq *s, int32_t n) {
    s->n_computed += n;
}
/* Publishes the full pages of tokens[0..n_computed). If the index is full it omits some,
 * which only costs reuse. */
static inline void kv_seq_publish_pages(kv_cache *c, kv_seq *s, const int32_t *tokens) {
    if (s->has_path) {
        (void)kv_index_publish(c->index, &s->path, tokens, kv_seq_shareable(s, s->n_computed), s->tables,
                               KV_PUBLISH_PAGES);
    }
}
/* Publishes the snapshots that are due among the computed tokens, from copied states or
 * s's own. Needs state groups and a path. */
void kv_seq_publish_states(kv_cache *c, kv_seq *s, const int32_t *tokens);
/* Publishes full pages and the snapshots that are due. */
static inline void kv_seq_publish(kv_cache *c, kv_seq *s, const int32_t *tokens) {
    kv_seq_publish_pages(c, s, tokens);
    if (s->has_path && c->n_state_pages > 0) {
        kv_seq_publish_states(c, s, tokens);
    }
}
/* Publishes all pages, the part-filled last one included. */
void kv_seq_publish_tail(kv_cache *c, kv_seq *s, const int32_t *tokens);
/* Reserves pages for copies of s's states after its first from .. to - 1 tokens, which
 * its next rows compute and do not end with. Evicts pages for them. Returns how many
 * copies have pages; fewer than wanted if pages are short. Needs state groups. The calls
 * for one sequence in a step must follow one another. */
int32_t kv_seq_copy_states(kv_cache *c, kv_seq *s, int32_t from, int32_t to);
/* Like kv_seq_copy_states, for the positions at which snapshots are due within the next
 * n_rows. */
void kv_seq_copy_due(kv_cache *c, kv_seq *s, int32_t n_rows);
/* Sets the state to that after n_computed tokens: takes the copy made there if rows went
 * further, and releases all other copies. Does nothing without copies. */
void kv_seq_settle(kv_cache *c, kv_seq *s);
/* Fills views[number of state groups] with tables that refer to pages[n_state_pages]. */
void kv_state_views(const kv_cache *c, page_id *pages, kv_table *views);
/* Takes a snapshot of the recurrent states after the computed tokens, if there is room.
 * goes_on: s computes more tokens without another reservation, so it gets new pages for
 * its states here, and their pairs are added to copies, which must have room for
 * n_state_pages more. Needs state groups and a path. */
void kv_seq_snapshot(kv_cache *c, kv_seq *s, const int32_t *tokens, bool goes_on, kv_copies *copies);
/* Releases the pages that no window sees any more from position n_computed on. */
static inline void kv_seq_forget(kv_cache *c, kv_seq *s) {
    for (int32_t g = 0; g < c->n_token_groups; g++) {
        if (c->windows[g] > 0) {
            kv_table_forget(c->pool, &s->tables[g], kv_cache_first_seen(c, g, s->n_computed), c->page_tokens);
        }
    }
}

/* ---- release ---- */

/* Whether s still has every page that a window sees after the first n tokens. */
bool kv_seq_sees_back(const kv_cache *c, const kv_seq *s, int32_t n);
/* Whether s could continue after its first n tokens: windows have all pages that they
 * need, and no state would have to be rolled back. */
bool kv_seq_can_truncate(const kv_cache *c, const kv_seq *s, int32_t n);
/* Truncates s to its first n tokens, for which windows must have all pages, and releases
 * the pages after them. States are unchanged (kv_index_restore replaces them), but n 0
 * releases them. */
void kv_seq_truncate(kv_cache *c, kv_seq *s, int32_t n);
/* Truncates the tables of the groups of tokens to n tokens. */
static inline void kv_seq_keep_pages(kv_cache *c, kv_seq *s, int32_t n) {
    for (int32_t g = 0; g < c->n_token_groups; g++) {
        kv_table_truncate(c->pool, &s->tables[g], n, c->page_tokens);
    }
}
/* Releases the pages that were reserved after the first n >= n_computed tokens, before
 * any of them is written. */
static inline void kv_seq_give_back(kv_cache *c, kv_seq *s, int32_t n) {
    kv_seq_keep_pages(c, s, n);
    for (int32_t g = c->n_token_groups; g < s->n_tables; g++) {
        s->tables[g].n_tokens = n;
    }
}
/* Releases the pages that were reserved after the computed tokens, once the step's rows
 * are computed. */
static inline void kv_seq_trim(kv_cache *c, kv_seq *s) {
    kv_seq_keep_pages(c, s, s->n_computed);
}
/* Whether released pages are published first. */
typedef enum kv_keep {
    /* published, with a snapshot, and with the part-filled last page if no other sequence
     * holds it */
    KV_KEEP,
    KV_DROP /* not published: their values are wrong, or no sequence can reuse them */
} kv_keep;
/* Releases all pages and moves path to its root. tokens: [n_computed]. */
void kv_seq_release(kv_cache *c, kv_seq *s, const int32_t *tokens, kv_keep keep);
/* Publishes tokens[0..n_computed), releases all pages, and shares again the pages that an
 * admission of the same tokens finds; n_computed becomes their number of tokens. After
 * that s may be released but must not grow. QUIRE_NO_MEMORY: it holds nothing. */
quire_err kv_seq_park(kv_cache *c, kv_seq *s, const int32_t *tokens);
/* Removes from the index a part-filled last page, and the snapshot with which s shares
 * its states, so that s can write to them without a copy. True: something changed. */
bool kv_seq_take_over(kv_cache *c, kv_seq *s);

/* ---- swap: pages of a sequence that has to wait are kept in host memory. Without swap
 * space nothing is kept ---- */

/* Returns how many pages kv_seq_swap_out would keep now. *from: number of leading tokens
 * whose pages others hold in all groups, so that the index will find them again.
 * O(pages). */
int32_t kv_seq_swap_pages(const kv_cache *c, const kv_seq *s, int32_t *from);
/* Result of a swap. us: time of the copies in microseconds; -1: the device is not done
 * yet. n_found: tokens that the admission found and s still has. */
typedef struct kv_swapped {
    int32_t n_pages, n_found;
    int64_t us;
} kv_swapped;
/* Copies the pages of tokens [from, n_computed) into frames; from is a page's start. s
 * still holds its pages, which may be released at once. s must have no frames. n_pages 0:
 * too few frames are free; nothing changed. */
kv_swapped kv_seq_swap_out(kv_cache *c, kv_seq *s, int32_t from);
/* Returns how many tokens s would have after kv_seq_swap_in, if an admission finds
 * n_cached in the index: n_cached if tokens before its frames are missing, so that these
 * are useless. */
static inline int32_t kv_seq_swap_peek(const kv_cache *c, const kv_seq *s, int32_t n_cached) {
    bool is_whole = s->swap_frames > 0 && n_cached - n_cached % c->page_tokens >= s->swap_from;
    return is_whole && s->swap_tokens > n_cached ? s->swap_tokens : n_cached;
}
/* Call it directly after an admission: truncates s to whole pages and copies the swapped
 * pages back, if kv_seq_swap_peek says so and there is room. n_pages 0: nothing was
 * copied back, and s is empty if it cannot continue after its whole pages. Frees its
 * frames in any case. */
kv_swapped kv_seq_swap_in(kv_cache *c, kv_seq *s);
/* Frees its swap frames. */
static inline void kv_seq_swap_drop(kv_cache *c, kv_seq *s) {
    if (s->swap_frames != 0) {
        kv_swap_drop(&c->swap, &s->swap_frames);
    }
}

/* ---- queries ---- */

/* Number of entries in all its tables. */
static inline int32_t kv_seq_pages(const kv_seq *s) {
    int32_t n = 0;
    for (int32_t g = 0; g < s->n_tables; g++) {
        n += s->tables[g].n_pages;
    }
    return n;
}
/* Number of entries in window groups that do not count towards its most pages
 * (most_pages.h): holes, and pages that others hold too, which stay with them when its
 * window moves. */
int32_t kv_seq_passed(const kv_cache *c, const kv_seq *s);
/* Number of shared pages among those of its states. */
int32_t kv_seq_shared_states(const kv_cache *c, const kv_seq *s);
/* Pages that the next reservation takes for copies of shared pages (kv_pool_is_shared):
 * those into which the next token is written, and those of states. */
static inline int32_t kv_seq_copied(const kv_cache *c, const kv_seq *s) {
    int32_t n = 0;
    for (int32_t g = 0; g < c->n_token_groups; g++) {
        n += kv_table_copies_tail(c->pool, &s->tables[g], c->page_tokens);
    }
    return c->n_state_pages == 0 ? n : n + kv_seq_shared_states(c, s);
}
/* Slot of the token at position p in group g; p has a page. */
static inline int64_t kv_seq_slot(const kv_cache *c, const kv_seq *s, int32_t g, int32_t p) {
    return kv_table_slot(&s->tables[g], p, c->page_tokens);
}
/* Writes the slots of positions [p0, p0 + n) of group g to out[n]. */
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
/* Number of holders of the page of entry i of group g; 0 before a window. */
int32_t kv_seq_holders(const kv_cache *c, const kv_seq *s, int32_t g, int32_t i);

/* ---- audit ---- */

/* Appends its tables to out, which has room for n_tables more; returns n_tables. */
int32_t kv_seq_list_tables(const kv_seq *s, const kv_table **out);
/* Checks the invariant above. QUIRE_INTERNAL: err says what is wrong. */
quire_err kv_seq_check(const kv_cache *c, const kv_seq *s, quire_error *err);
/* Checks that pool, index and tables agree. tables[0..n): those of every sequence with
 * pages. Errors and cost as kv_check. */
quire_err kv_cache_check(const kv_cache *c, const kv_table *const *tables, int32_t n, quire_error *err);

#endif
