/* A block table lists the pages of one sequence's tokens for one group of layers: a
 * growable array of page ids and a length in tokens.
 *
 * Owner: the engine thread. Invariant: n_pages is what n_tokens need (for a recurrent
 * state a fixed number, once there are tokens); every entry is held, or PAGE_NONE before
 * a window. Before a page that others hold or that is indexed (kv_pool_is_shared) is
 * written, it is copied: kv_table_append adds the pair to a copy list, which the engine
 * gives to the backend before the step. A source may have been released already, and may
 * even be the target of a later pair: the pairs are copied in order, before anything is
 * written. */
#ifndef KV_TABLE_H
#define KV_TABLE_H

#include "kv/pool.h"

typedef struct kv_table {
    page_id *pages;
    int32_t n_pages, cap_pages;
    int32_t n_tokens; /* number of tokens that are written, or will be in this step */
} kv_table;

/* Whole pages to copy, in order, before anything is written. The capacity is fixed: an
 * append fails with QUIRE_NO_ROOM if the list is full. */
typedef struct kv_copies {
    struct {
        page_id src, dst;
    } * pairs;
    int32_t n, cap;
} kv_copies;

/* Makes a table with room for cap_pages entries, up to which appends allocate nothing. */
quire_err kv_table_init(kv_table *t, int32_t cap_pages);
/* Grows the capacity to n_pages entries in all. QUIRE_NO_MEMORY: the table is
 * unchanged. */
quire_err kv_table_reserve(kv_table *t, int32_t n_pages);
/* Releases every page and frees the array. */
void kv_table_deinit(kv_pool *pool, kv_table *t);
/* Releases every page and keeps the array; n_tokens becomes 0. */
void kv_table_clear(kv_pool *pool, kv_table *t);

/* Returns how many pages an append of n_tokens would take from the pool, with the copy of
 * a shared tail. */
int32_t kv_table_needs(const kv_pool *pool, const kv_table *t, int32_t n_tokens, int32_t page_tokens);
/* Whether the next token is written into a shared page (kv_pool_is_shared), so that an
 * append copies this page. */
bool kv_table_copies_tail(const kv_pool *pool, const kv_table *t, int32_t page_tokens);
/* Adds slots for n_tokens more tokens: reserves pages, and replaces the last page by a
 * copy if it is shared and would be written. QUIRE_NO_ROOM: table, pool and copies are
 * unchanged. */
quire_err kv_table_append(kv_pool *pool, kv_table *t, int32_t n_tokens, int32_t page_tokens,
                          kv_copies *copies);
/* Like kv_table_append, with ids[0..kv_table_needs) that the caller has reserved, perhaps
 * for all groups at once. Cannot fail: table (kv_table_reserve: n_pages and what it
 * needs) and copies must have room. */
void kv_table_append_reserved(kv_pool *pool, kv_table *t, int32_t n_tokens, int32_t page_tokens,
                              kv_copies *copies, const page_id *ids);
/* Truncates the table to n_tokens tokens, and releases pages that become empty. */
void kv_table_truncate(kv_pool *pool, kv_table *t, int32_t n_tokens, int32_t page_tokens);
/* Like kv_table_needs and kv_table_append_reserved, for a recurrent state, which is
 * written as a whole: an empty table needs state_pages pages, a table with a state needs
 * copies of its shared pages. */
int32_t kv_table_state_needs(const kv_pool *pool, const kv_table *t, int32_t state_pages);
void kv_table_state_append(kv_pool *pool, kv_table *t, int32_t n_tokens, int32_t state_pages,
                           kv_copies *copies, const page_id *ids);
/* Adds entries without a page (PAGE_NONE), for positions before a window, until the table
 * has n_tokens tokens. Old and new length are multiples of page_tokens, and the table
 * must have room. */
void kv_table_skip(kv_table *t, int32_t n_tokens, int32_t page_tokens);
/* Releases the pages that hold only positions before `position` <= n_tokens, which no
 * window sees any more. Their entries become PAGE_NONE. */
void kv_table_forget(kv_pool *pool, kv_table *t, int32_t position, int32_t page_tokens);
/* Shares all of from's pages with *to, which is initialised and empty. QUIRE_NO_MEMORY:
 * *to cannot grow; it stays empty. */
quire_err kv_table_fork(kv_pool *pool, const kv_table *from, kv_table *to);
/* Like kv_table_fork, for the pages of from's first n_tokens. */
quire_err kv_table_fork_first(kv_pool *pool, const kv_table *from, int32_t n_tokens, int32_t page_tokens,
                              kv_table *to);

/* Replaces entry i, a page that others hold too, by id, which the caller has reserved.
 * Returns the old page, from which the caller copies. */
page_id kv_table_replace(kv_pool *pool, kv_table *t, int32_t i, page_id id);

/* Slot of position p < n_tokens: page * page_tokens + offset. */
static inline int64_t kv_table_slot(const kv_table *t, int32_t p, int32_t page_tokens) {
    return (int64_t)t->pages[p / page_tokens].v * page_tokens + p % page_tokens;
}

#endif
