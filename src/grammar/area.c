/* Reserved areas of addresses. */
#define _GNU_SOURCE /* for MAP_ANONYMOUS, MAP_NORESERVE, mremap */
#include "grammar/area.h"

#include <assert.h>
#include <sys/mman.h>

quire_err area_open(area *a, size_t bytes) {
    *a = (area){0};
    void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED) {
        return QUIRE_NO_MEMORY;
    }
    a->p = p;
    a->reserved = bytes;
    return QUIRE_OK;
}

void area_close(area *a) {
    assert(a != NULL);
    if (a->p != NULL) {
        (void)munmap(a->p, a->reserved);
    }
    *a = (area){0};
}

quire_err area_grow(area *a, size_t bytes) {
    assert(a != NULL);
    if (bytes <= a->reserved) {
        return QUIRE_OK;
    }
    void *p = mremap(a->p, a->reserved, bytes, MREMAP_MAYMOVE);
    if (p == MAP_FAILED) {
        return QUIRE_NO_MEMORY;
    }
    a->p = p;
    a->reserved = bytes;
    return QUIRE_OK;
}

#define ACCOUNT_BLOCK ((size_t)64 << 10)

/* Takes n bytes from the account if its share allows. */
static bool account_take(area_account *a, size_t n) {
    size_t own = atomic_fetch_add(&a->used, n) + n, all = atomic_fetch_add(&a->pool->used, n) + n;
    if (all <= a->pool->max && own <= a->pool->max - all) {
        return true;
    }
    atomic_fetch_sub(&a->pool->used, n);
    atomic_fetch_sub(&a->used, n);
    return false;
}

static bool area_take(area_budget *b, size_t n) {
    if (b->account == NULL || b->used + n <= b->taken) {
        return true;
    }
    size_t more = b->used + n - b->taken, block = more > ACCOUNT_BLOCK ? more : ACCOUNT_BLOCK;
    block = account_take(b->account, block) ? block : account_take(b->account, more) ? more : 0;
    b->taken += block;
    return block > 0;
}

area_result area_use(area *a, area_budget *budget, size_t bytes) {
    assert(a != NULL);
    if (bytes <= a->used) {
        return AREA_USED;
    }
    size_t n = bytes - a->used;
    if (budget->used > budget->max || n > budget->max - budget->used) {
        return AREA_PAST_BUDGET;
    }
    if (bytes > a->reserved) {
        return AREA_PAST_RESERVE;
    }
    if (!area_take(budget, n)) {
        return AREA_PAST_SHARE;
    }
    budget->used += n;
    a->used = bytes;
    return AREA_USED;
}

void area_budget_close(area_budget *b) {
    assert(b != NULL);
    if (b->account != NULL) {
        atomic_fetch_sub(&b->account->pool->used, b->taken);
        atomic_fetch_sub(&b->account->used, b->taken);
    }
    *b = (area_budget){0};
}
