/* Reserved areas: address ranges in which use grows without moving and without the allocator. Private to this room.
 *
 * The system gives memory when a page is first written, so growing in a step allocates nothing and a large reserve costs nothing. */
#ifndef GRAMMAR_AREA_H
#define GRAMMAR_AREA_H

#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>

typedef struct area {
    void *p;
    size_t reserved, used; /* bytes */
} area;

/* Bytes that all areas of one owner may use together. */
typedef struct area_budget {
    size_t max, used;
} area_budget;

/* Reserves bytes, which read as zero. QUIRE_NO_MEMORY. */
quire_err area_open(area *a, size_t bytes);
void area_close(area *a);
/* Reserves `bytes` in all; what is in use may move. QUIRE_NO_MEMORY: nothing changed. */
quire_err area_grow(area *a, size_t bytes);
/* Makes at least `bytes` usable; false: past the budget or the reserve, nothing changed. */
bool area_use(area *a, area_budget *budget, size_t bytes);

#endif
