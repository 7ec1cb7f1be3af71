/* Reserved areas of addresses. */
#define _GNU_SOURCE /* MAP_ANONYMOUS, MAP_NORESERVE, mremap */
#include "grammar/area.h"

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
    if (a->p != NULL) {
        (void)munmap(a->p, a->reserved);
    }
    *a = (area){0};
}

quire_err area_grow(area *a, size_t bytes) {
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

bool area_use(area *a, area_budget *budget, size_t bytes) {
    if (bytes <= a->used) {
        return true;
    }
    if (bytes > a->reserved || bytes - a->used > budget->max - budget->used) {
        return false;
    }
    budget->used += bytes - a->used;
    a->used = bytes;
    return true;
}
