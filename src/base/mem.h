/* Allocates aligned, size-checked, zeroed memory, and guards a step against allocation.
 *
 * mem_new returns NULL when n * size overflows or memory is out. All blocks are freed
 * with mem_free. Any thread. */
#ifndef BASE_MEM_H
#define BASE_MEM_H

#include <stdbool.h>
#include <stddef.h>
#include <string.h>

#include "base/err.h"

#define MEM_HUGE_BYTES     ((size_t)2 << 20) /* a huge page */
#define MEM_FIRST_CAPACITY 16                /* elements of a growing array */
#define MEM_ALIGN          64                /* bytes: a cache line and a 512-bit vector */

/* n * size zeroed bytes, aligned to MEM_ALIGN. n * size == 0 gives a block too. */
void *mem_new(size_t n, size_t size);
/* As mem_new; a block of 2 MiB or more is aligned to 2 MiB and advised for huge pages. */
void *mem_new_huge(size_t n, size_t size);
/* QUIRE_NO_MEMORY if p, which one of the calls here returned, is NULL. */
static inline quire_err mem_check(const void *p) {
    return p != NULL ? QUIRE_OK : QUIRE_NO_MEMORY;
}
/* As mem_check, with "out of memory for `what`" in *err (which may be NULL). */
quire_err mem_check_for(const void *p, const char *what, quire_error *err);
/* Grows the array to which the pointer at p points, so that it holds at least n elements
 * of size bytes; *cap is its capacity in elements. Keeps the content, zeroes the rest;
 * unused parts of a large array take no memory. QUIRE_NO_MEMORY: nothing changed. The
 * pointer may be NULL with *cap 0; then it holds MEM_FIRST_CAPACITY at least. */
quire_err mem_grow(void *p, size_t *cap, size_t n, size_t size);
void mem_free(void *p);
/* A copy of n bytes, with a 0 byte after them; NULL when out of memory. */
char *mem_dup(const void *p, size_t n);
/* Copies n bytes between blocks that do not overlap. Either may be NULL if n is 0. */
static inline void mem_copy(void *to, const void *from, size_t n) {
    if (n > 0) {
        memcpy(to, from, n);
    }
}

/* Returns the whole system pages within p[0..n_bytes), part of a block of mem_new_huge,
 * to the system. They then read as zeroes and take memory again when written; locked
 * memory is locked again then. False: the system refused, as Linux before 5.18 does for
 * locked memory; nothing changed. No other thread may use these bytes during the call. A
 * GB that was in use takes about 5 ms in one call, 0.2 s in calls of a few system pages
 * each. */
bool mem_give_back(void *p, size_t n_bytes);
/* Has the system map p[0..n_bytes) at once, where it would do so page by page at the
 * first access to each: cleared memory that will be written (Linux before 5.14 ignores
 * this), or a part of a mapped file. Any thread. */
void mem_populate_written(void *p, size_t n_bytes);
void mem_populate_read(const void *p, size_t n_bytes);
/* From now on blocks of a megabyte or more have their own system pages, which return to
 * the system when the block is freed. Otherwise the allocator keeps up to 32 MiB per
 * thread, and only a trim, during which all threads wait, returns it. For a program's
 * main. */
void mem_separate_large(void);

/* Between enter and leave, an allocation by the calling thread through this header aborts
 * in debug builds. They nest. */
void mem_guard_enter(void);
void mem_guard_leave(void);

#endif
