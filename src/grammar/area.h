/* Reserved areas: address ranges that are reserved once and grow in place, without the
 * allocator. Private to this room.
 *
 * The system gives memory when a page is first written. Areas begin small; area_grow,
 * which may move one, is called between operations, never by code that has pointers into
 * it, nor within a step. */
#ifndef GRAMMAR_AREA_H
#define GRAMMAR_AREA_H

#include "base/err.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

typedef struct area {
    void *p;
    size_t reserved, used; /* bytes */
} area;

/* Bytes that many owners take together. Each account may grow while what it has is at
 * most what is free then: k accounts that take all they can have an equal part each, and
 * as much stays free for another one. */
typedef struct area_pool {
    size_t max;
    atomic_size_t used;
} area_pool;
typedef struct area_account {
    area_pool *pool;
    atomic_size_t used;
} area_account;

/* Bytes that all areas of one owner may use together. What they use is taken from an
 * account in blocks. */
typedef struct area_budget {
    size_t max, used;
    area_account *account; /* NULL: none */
    size_t taken;          /* from it */
} area_budget;

typedef enum area_result {
    AREA_USED,
    AREA_PAST_RESERVE, /* area_grow, then again */
    AREA_PAST_BUDGET,
    AREA_PAST_SHARE /* of the account */
} area_result;

/* Reserves bytes, which read as zero. QUIRE_NO_MEMORY. */
quire_err area_open(area *a, size_t bytes);
void area_close(area *a);
/* Reserves `bytes` in all; what is in use may move. QUIRE_NO_MEMORY: nothing changed. */
quire_err area_grow(area *a, size_t bytes);
/* Makes at least `bytes` usable; on any failure nothing changed. */
area_result area_use(area *a, area_budget *budget, size_t bytes);
/* Gives back what the budget has taken from its account. */
void area_budget_close(area_budget *budget);

#endif
