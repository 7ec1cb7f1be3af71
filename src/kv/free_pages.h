/* The set of a pool's free pages: a bitmap in regions, so that threads that reserve and
 * release at the same time rarely contend.
 *
 *   thread -> its region -> spans of 64 pages, a word of bits each
 *
 * Each region counts its free pages. A take first lowers counts by n in all (the claim),
 * then clears bits; a return sets bits first, then raises the count. So a region always
 * has a free page for each page that is claimed and not yet found, and a claim that
 * succeeded finds its pages. A thread claims from one region without a lock: preferably
 * where it last took pages, or a nearer one to which it has returned some since. Only if
 * no region has n, it gathers from all regions, one thread at a time; it fails only if at
 * some moment fewer than n pages were free.
 *
 * Invariant while no thread is inside: a region's count is the number of its free
 * bits, and a span that is marked empty has none. Threads: any, unless a comment names
 * another. */
#ifndef KV_FREE_PAGES_H
#define KV_FREE_PAGES_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

/* A page's number, 0..n_pages. */
typedef struct page_id {
    int32_t v;
} page_id;
#define PAGE_NONE ((page_id){-1})

typedef struct free_pages free_pages;

/* Opens a set in which all of n_pages (1 .. 2^31 - 2) are free. The caller closes it. */
quire_err free_pages_open(int32_t n_pages, free_pages **out);
void free_pages_close(free_pages *f);

/* Takes n >= 1 pages into ids[0..n), or none: false, and the set is as it was. */
bool free_pages_take(free_pages *f, int32_t n, page_id *ids);
/* Takes the n >= 1 pages from `first` on, or none: false if one of them is not free.
 * Concurrent takes by other threads do not fail because of it. O(n / 64). */
bool free_pages_take_run(free_pages *f, page_id first, int32_t n);

/* Pages being released that lie in one span. Zeroed: none. */
typedef struct free_batch {
    int32_t span;
    uint64_t bits;
} free_batch;
/* Adds a page that is not free. If the batch holds pages of another span, they are
 * returned first. */
void free_pages_add(free_pages *f, free_batch *batch, page_id id);
/* Returns what the batch holds; it is then empty. */
void free_pages_return(free_pages *f, free_batch *batch);

int32_t free_pages_count(const free_pages *f);
bool free_pages_has(const free_pages *f, page_id id);
int64_t free_pages_bytes(const free_pages *f);

/* The next takes of every thread start at its lowest free pages. No other thread may be
 * inside. */
void free_pages_rewind(free_pages *f);
/* Checks the invariant; else QUIRE_INTERNAL and what is wrong. No other thread may be
 * inside. O(pages). */
quire_err free_pages_check(const free_pages *f, quire_error *err);

#endif
