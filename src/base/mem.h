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

#define MEM_HUGE_BYTES     ((size_t)2 << 20) /* bytes of a huge page */
#define MEM_FIRST_CAPACITY 16                /* least capacity of a growing array */
#define MEM_ALIGN          64                /* bytes: a cache line and a 512-bit vector */

/* Returns n * size zeroed bytes (0 gives a block too), aligned to MEM_ALIGN. */
void *mem_new(size_t n, size_t size);
/* As mem_new; a block of 2 MiB or more is aligned to 2 MiB and advised for huge pages. */
void *mem_new_huge(size_t n, size_t size);
/* QUIRE_NO_MEMORY if p is NULL. For the result of an allocation. */
static inline quire_err mem_check(const void *p) {
    return p != NULL ? QUIRE_OK : QUIRE_NO_MEMORY;
}
/* As mem_check; *err (may be NULL) then says "out of memory for WHAT". */
quire_err mem_check_for(const void *p, const char *what, quire_error *err);
/* Grows an array to n or more elements of `size` bytes. p: address of the pointer to the
 * array, which is NULL if *cap, its capacity in elements, is 0. Keeps the content, zeroes
 * the rest; unused parts of a large array take no memory. QUIRE_NO_MEMORY: nothing
 * changed. */
quire_err mem_grow(void *p, size_t *cap, size_t n, size_t size);
void mem_free(void *p);
/* Returns a copy of p[0..n) with a 0 byte after it. NULL: out of memory. */
char *mem_dup(const void *p, size_t n);
/* Copies n bytes between blocks that do not overlap. Either may be NULL if n is 0. */
static inline void mem_copy(void *to, const void *from, size_t n) {
    if (n > 0) {
        memcpy(to, from, n);
    }
}

/* Returns the whole system pages in p[0..n_bytes), a part of a block of mem_new_huge, to
 * the system. They read as zeroes, and take memory (locked if it was) when written again.
 * False: the system refused, as Linux before 5.18 does for locked memory; nothing
 * changed. No other thread may use these bytes during the call. A GB that was in use
 * takes about 5 ms in one call, 0.2 s in calls of a few system pages each. */
bool mem_give_back(void *p, size_t n_bytes);
/* Makes the system map all pages of p[0..n_bytes) now rather than at the first access to
 * each: of zeroed memory that will be written (no effect before Linux 5.14), or of a part
 * of a mapped file that will be read. Any thread. */
void mem_populate_written(void *p, size_t n_bytes);
void mem_populate_read(const void *p, size_t n_bytes);
/* Gives each block of 1 MiB or more, from now on, system pages of its own, which return
 * to the system when it is freed. By default the allocator keeps up to 32 MiB per thread
 * until a trim, during which all threads wait. For a program's main. */
void mem_separate_large(void);

/* In debug builds, an allocation by the calling thread between enter and leave aborts the
 * program. Pairs of calls nest. */
void mem_guard_enter(void);
void mem_guard_leave(void);

#endif
