/* madvise() and its MADV_ names are outside POSIX. */
#define _DEFAULT_SOURCE

#include "base/mem.h"

#include <errno.h>
#include <malloc.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/fault.h"
#include "base/size.h"

#define LARGE_BYTES     (1 << 20)
#define DONTNEED_LOCKED 24    /* MADV_DONTNEED_LOCKED, of Linux 5.18 on: as MADV_DONTNEED */
#define POPULATE_WRITE  23    /* MADV_POPULATE_WRITE, of Linux 5.14 on */
#define FAULT_AROUND    65536 /* bytes of a file that Linux maps at a page fault, if they are in memory */

#ifdef QUIRE_DEBUG
#include <stdio.h>

static _Thread_local int guard_depth;

static void guard_check(size_t n_bytes) {
    if (guard_depth > 0) {
        fprintf(stderr,
                "quire: %zu bytes are being allocated inside a guarded section (mem_guard_enter): a step "
                "must allocate nothing\n",
                n_bytes);
        abort();
    }
}

void mem_guard_enter(void) {
    guard_depth++;
}

void mem_guard_leave(void) {
    guard_depth--;
}
#else
static void guard_check(size_t n_bytes) {
    (void)n_bytes;
}

void mem_guard_enter(void) {
}

void mem_guard_leave(void) {
}
#endif

static void *new_aligned(size_t align, size_t n_bytes) {
    void *p;
    guard_check(n_bytes);
    if (fault_due()) {
        return NULL;
    }
    return posix_memalign(&p, align, n_bytes != 0 ? n_bytes : 1) == 0 ? p : NULL;
}

static size_t page_bytes(void) {
    return (size_t)sysconf(_SC_PAGESIZE);
}

/* Zeroes by returning the pages: the kernel maps zeroed ones when they are touched, so a
 * large pool costs nothing until it is used. p begins a page. */
static void zero_lazily(void *p, size_t n_bytes) {
    size_t whole = n_bytes & ~(page_bytes() - 1);
    if (madvise(p, whole, MADV_DONTNEED) != 0) {
        whole = 0;
    }
    memset((char *)p + whole, 0, n_bytes - whole);
}

void *mem_new(size_t n, size_t size) {
    size_t n_bytes;
    if (!size_mul(n, size, &n_bytes)) {
        return NULL;
    }
    const bool is_large = n_bytes >= LARGE_BYTES;
    void *p = new_aligned(is_large ? page_bytes() : MEM_ALIGN, n_bytes);
    if (p != NULL && is_large) {
        zero_lazily(p, n_bytes);
    } else if (p != NULL) {
        memset(p, 0, n_bytes);
    }
    return p;
}

void *mem_new_huge(size_t n, size_t size) {
    size_t n_bytes;
    if (!size_mul(n, size, &n_bytes)) {
        return NULL;
    }
    if (n_bytes < MEM_HUGE_BYTES) {
        return mem_new(n, size);
    }
    void *p = new_aligned(MEM_HUGE_BYTES, n_bytes);
    if (p != NULL) {
        zero_lazily(p, n_bytes);
        /* only advice: small pages work as well, but slower */
        (void)madvise(p, n_bytes & ~(MEM_HUGE_BYTES - 1), MADV_HUGEPAGE);
    }
    return p;
}

quire_err mem_check_for(const void *p, const char *what, quire_error *err) {
    return p != NULL ? QUIRE_OK : err_set(err, QUIRE_NO_MEMORY, -1, "out of memory for %s", what);
}

quire_err mem_grow(void *p, size_t *cap, size_t n, size_t size) {
    if (n <= *cap) {
        return QUIRE_OK;
    }
    size_t doubled;
    if (!size_mul(*cap, 2, &doubled) || doubled < n) {
        doubled = n;
    }
    size_t new_cap = doubled < MEM_FIRST_CAPACITY ? MEM_FIRST_CAPACITY : doubled;
    /* mem_new_huge zeroes lazily: clearing megabytes here would delay the thread */
    void *grown = mem_new_huge(new_cap, size);
    TRY(mem_check(grown));
    void *old;
    memcpy(&old, p, sizeof old); /* a pointer of any type */
    mem_copy(grown, old, *cap * size);
    mem_free(old);
    memcpy(p, &grown, sizeof grown);
    *cap = new_cap;
    return QUIRE_OK;
}

void mem_free(void *p) {
    free(p);
}

bool mem_give_back(void *p, size_t n_bytes) {
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), from = (uintptr_t)p + page - 1,
              to = (uintptr_t)p + n_bytes;
    from -= from % page;
    to -= to % page;
    return from >= to || madvise((void *)from, to - from, MADV_DONTNEED) == 0 ||
           (errno == EINVAL && madvise((void *)from, to - from, DONTNEED_LOCKED) == 0);
}

void mem_populate_written(void *p, size_t n_bytes) {
    const uintptr_t at = (uintptr_t)p % (uintptr_t)sysconf(_SC_PAGESIZE);
    (void)madvise((uint8_t *)p - at, at + n_bytes, POPULATE_WRITE);
}

void mem_populate_read(const void *p, size_t n_bytes) {
    const volatile uint8_t *bytes = p;
    for (size_t at = 0; at < n_bytes; at += FAULT_AROUND) {
        (void)bytes[at]; /* one page fault for each FAULT_AROUND bytes; MADV_POPULATE_READ takes longer */
    }
}

void mem_separate_large(void) {
    /* setting the threshold also keeps glibc from raising it, up to 32 MiB */
    (void)mallopt(M_MMAP_THRESHOLD, LARGE_BYTES);
    (void)mallopt(M_TRIM_THRESHOLD, 2 * LARGE_BYTES);
}

char *mem_dup(const void *p, size_t n) {
    size_t n_bytes;
    if (!size_add(n, 1, &n_bytes)) {
        return NULL;
    }
    char *copy = new_aligned(MEM_ALIGN, n_bytes);
    if (copy != NULL) {
        mem_copy(copy, p, n);
        copy[n] = '\0';
    }
    return copy;
}
