/* The set of a pool's free pages: a bitmap in regions, so that threads that reserve and
 * release at the same time rarely contend.
 *
 *   thread -> its region -> spans of 64 pages, a word of bits each
 *
 * Each region counts its free pages. A take first subtracts n in all from the counts (the
 * claim), then clears bits; a return sets bits first, then adds to the count. So for each
 * page that is claimed but not yet found its region has a free page, and a successful
 * claim finds its pages. A thread claims from one region without a lock: by preference
 * the region where it last took pages, or a nearer one to which it has returned some
 * since. Only if no region has n pages does it gather from all regions, one thread at a
 * time. That fails only if at some moment fewer than n pages were free.
 *
 * Invariant while no thread is inside: a region's count is the number of its free bits,
 * and a span that is marked empty has none. Any thread, unless stated otherwise. */
#ifndef KV_FREE_PAGES_H
#define KV_FREE_PAGES_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

/* A page's number, 0 .. n_pages - 1. */
typedef struct page_id {
    int32_t v;
} page_id;
#define PAGE_NONE ((page_id){-1})

typedef struct free_pages free_pages;

/* Opens a set in which all of n_pages (1 .. 2^31 - 2) are free. The caller closes it. */
quire_err free_pages_open(int32_t n_pages, free_pages **out);
void free_pages_close(free_pages *f);

/* Takes n >= 1 pages into ids[0..n). False: too few are free; the set is unchanged. */
bool free_pages_take(free_pages *f, int32_t n, page_id *ids);
/* Takes the n >= 1 pages from `first` on. False: one of them is not free, and none was
 * taken. Never makes concurrent takes by other threads fail. O(n / 64). */
bool free_pages_take_run(free_pages *f, page_id first, int32_t n);

/* Pages of one span that are being released. All zero: none. */
typedef struct free_batch {
    int32_t span;
    uint64_t bits;
} free_batch;
/* Adds a page, which is not free, to the batch. If the batch has pages of another span,
 * they are returned to the set first. */
void free_pages_add(free_pages *f, free_batch *batch, page_id id);
/* Returns the pages of the batch to the set; the batch is then empty. */
void free_pages_return(free_pages *f, free_batch *batch);

/* Number of free pages; whether a page is free; bytes of memory of the set. */
int32_t free_pages_count(const free_pages *f);
bool free_pages_has(const free_pages *f, page_id id);
int64_t free_pages_bytes(const free_pages *f);

/* Makes the next takes of every thread start at its lowest free pages. No other thread
 * may be inside. */
void free_pages_rewind(free_pages *f);
/* Checks the invariant. QUIRE_INTERNAL: err says what is wrong. No other thread may be
 * inside. O(pages). */
quire_err free_pages_check(const free_pages *f, quire_error *err);

#endif
