/* A block table lists the pages of one sequence's tokens for one group of layers: a
 * growable array of page ids and a length in tokens.
 *
 * Owner: the engine thread. Invariant: n_pages is what n_tokens need (for a recurrent
 * state always the same number, once there are tokens); every entry is held, or PAGE_NONE
 * before a window. A write into a page that others hold or that is indexed
 * (kv_pool_is_shared) copies the page first: kv_table_append adds the pair to a copy
 * list, which the engine gives to the backend before the step. A source may have been
 * released, and may even be the target of a later pair: the pairs are copied in order,
 * before anything is written. */
#ifndef KV_TABLE_H
#define KV_TABLE_H

#include "kv/pool.h"

typedef struct kv_table {
    page_id *pages;
    int32_t n_pages, cap_pages;
    int32_t n_tokens; /* tokens that are written, or will be in this step */
} kv_table;

/* Whole pages to copy, in order, before anything is written. Of fixed capacity: append
 * fails with QUIRE_NO_ROOM when it is full. */
typedef struct kv_copies {
    struct {
        page_id src, dst;
    } * pairs;
    int32_t n, cap;
} kv_copies;

/* Makes a table with room for cap_pages entries, so that appends up to there allocate
 * nothing. */
quire_err kv_table_init(kv_table *t, int32_t cap_pages);
/* Grows the table to n_pages entries in all; QUIRE_NO_MEMORY leaves it unchanged. */
quire_err kv_table_reserve(kv_table *t, int32_t n_pages);
/* Releases every page and the array. */
void kv_table_deinit(kv_pool *pool, kv_table *t);
/* Releases every page and keeps the array; n_tokens becomes 0. */
void kv_table_clear(kv_pool *pool, kv_table *t);

/* Pages that appending n tokens would take from the pool (copies of a shared tail
 * included). */
int32_t kv_table_needs(const kv_pool *pool, const kv_table *t, int32_t n_tokens, int32_t page_tokens);
/* Whether the next token is written into a shared page (kv_pool_is_shared), so that this
 * page is copied first. */
bool kv_table_copies_tail(const kv_pool *pool, const kv_table *t, int32_t page_tokens);
/* Adds slots for n more tokens: reserves pages, and copies the last page if it is shared
 * and would be written. QUIRE_NO_ROOM leaves table, pool and copies unchanged. */
quire_err kv_table_append(kv_pool *pool, kv_table *t, int32_t n_tokens, int32_t page_tokens,
                          kv_copies *copies);
/* The same with ids[0..kv_table_needs) that the caller has reserved, perhaps for all
 * groups at once: it cannot fail. The table (kv_table_reserve, n_pages and what it needs)
 * and copies must have room. */
void kv_table_append_reserved(kv_pool *pool, kv_table *t, int32_t n_tokens, int32_t page_tokens,
                              kv_copies *copies, const page_id *ids);
/* Drops tokens from the end, and releases pages that become empty. */
void kv_table_truncate(kv_pool *pool, kv_table *t, int32_t n_tokens, int32_t page_tokens);
/* The same for a recurrent state, which is written as a whole: an empty table needs
 * state_pages pages, a table with a state needs copies of its shared pages. */
int32_t kv_table_state_needs(const kv_pool *pool, const kv_table *t, int32_t state_pages);
void kv_table_state_append(kv_pool *pool, kv_table *t, int32_t n_tokens, int32_t state_pages,
                           kv_copies *copies, const page_id *ids);
/* Adds entries without a page (PAGE_NONE), for positions before a window, until the table
 * has n_tokens tokens. Old and new length are multiples of page_tokens, and the table has
 * room. */
void kv_table_skip(kv_table *t, int32_t n_tokens, int32_t page_tokens);
/* Releases the pages that hold only positions before `position` (<= n_tokens): those
 * before a window. Their entries become PAGE_NONE. */
void kv_table_forget(kv_pool *pool, kv_table *t, int32_t position, int32_t page_tokens);
/* Shares all of from's pages with *to, which is initialised and empty. */
quire_err kv_table_fork(kv_pool *pool, const kv_table *from, kv_table *to);
/* The same, but only with the pages of from's first n_tokens. */
quire_err kv_table_fork_first(kv_pool *pool, const kv_table *from, int32_t n_tokens, int32_t page_tokens,
                              kv_table *to);

/* Sets entry i, a page that others hold too, to id, which the caller has reserved.
 * Returns the old page, for the caller to copy from. */
page_id kv_table_replace(kv_pool *pool, kv_table *t, int32_t i, page_id id);

/* The slot of position p: page * page_tokens + offset. p < n_tokens. */
static inline int64_t kv_table_slot(const kv_table *t, int32_t p, int32_t page_tokens) {
    return (int64_t)t->pages[p / page_tokens].v * page_tokens + p % page_tokens;
}

#endif
