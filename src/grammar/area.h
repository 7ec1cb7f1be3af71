/* Areas: reserved address ranges that grow in place, without the allocator. Private to
 * this room.
 *
 * The system supplies memory when a page is first written. Areas start small. area_grow
 * may move one, so it is called between operations, never inside a step or by code with
 * pointers into the area. */
#ifndef GRAMMAR_AREA_H
#define GRAMMAR_AREA_H

#include "base/err.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

typedef struct area {
    void *p;
    size_t reserved, used; /* in bytes */
} area;

/* Bytes that several owners share. An account may grow while it has no more than is free
 * after that. So k accounts that take all they can get equal parts, and an equal part
 * stays free for another one. */
typedef struct area_pool {
    size_t max;
    atomic_size_t used;
} area_pool;
typedef struct area_account {
    area_pool *pool;
    atomic_size_t used;
} area_account;

/* Limit on the bytes of all areas of one owner. They are taken from an account in
 * blocks. */
typedef struct area_budget {
    size_t max, used;
    area_account *account; /* NULL: none */
    size_t taken;          /* bytes taken from the account */
} area_budget;

typedef enum area_result {
    AREA_USED,
    AREA_PAST_RESERVE, /* area_grow first, then retry */
    AREA_PAST_BUDGET,
    AREA_PAST_SHARE /* the account's share is used up */
} area_result;

/* Reserves this many bytes, which read as zero. QUIRE_NO_MEMORY. */
quire_err area_open(area *a, size_t bytes);
void area_close(area *a);
/* Extends the reservation to `bytes`; may move the area. QUIRE_NO_MEMORY: nothing
 * changed. */
quire_err area_grow(area *a, size_t bytes);
/* Makes the first `bytes` usable, or more. A failure changes nothing. */
area_result area_use(area *a, area_budget *budget, size_t bytes);
/* Returns what the budget has taken from its account. */
void area_budget_close(area_budget *budget);

#endif
