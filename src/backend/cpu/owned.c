/* Memory blocks that a backend owns until it closes. */
#include "backend/cpu/cpu.h"
#include "base/mem.h"
#include "base/size.h"
#include "base/topology.h"

/* Medium-sized blocks share slabs, so that the many small matrices of a mixture of
 * experts are in huge pages. From small pages they were read 10% slower.
 * Under a sanitizer each block is allocated separately, so that overruns are detected. */
#define SLAB_BYTES ((size_t)64 << 20)
#define SLAB_LEAST ((size_t)64 << 10)
#if defined(__has_feature) /* clang's form */
#if __has_feature(address_sanitizer)
#define WITHOUT_SLABS
#endif
#endif
#if defined(__SANITIZE_ADDRESS__) || defined(WITHOUT_SLABS)
#define SLAB_MOST SLAB_LEAST
#else
#define SLAB_MOST (SLAB_BYTES / 4)
#endif

/* A block of cpu_own. Not a header of its bytes: writing that would have one thread alone
 * clear their first huge page. */
typedef struct cpu_owned {
    struct cpu_owned *next;
    void *bytes;
} cpu_owned;

void *cpu_new_spread(const cpu_backend *b, size_t n_bytes) {
    void *p = mem_new_huge(n_bytes, 1);
    if (p != NULL && b->nodes != 0 && n_bytes >= MEM_HUGE_BYTES) {
        /* fails only out of memory: spread_nodes has tried it */
        (void)numa_interleave(p, n_bytes, b->nodes);
    }
    return p;
}

/* Adds a block of n_bytes to the list; NULL: out of memory. */
static uint8_t *new_owned(cpu_backend *b, size_t n_bytes) {
    cpu_owned *block = mem_new(1, sizeof *block);
    void *bytes = cpu_new_spread(b, n_bytes);
    if (block == NULL || bytes == NULL) {
        mem_free(block);
        mem_free(bytes);
        return NULL;
    }
    *block = (cpu_owned){b->owned, bytes};
    b->owned = block;
    return bytes;
}

/* Takes n_bytes from a slab, or NULL. The first slab is small and each next one twice as
 * large, so that a small model reserves little. */
static uint8_t *new_in_slab(cpu_backend *b, size_t n_bytes) {
    if (b->slab_left < n_bytes) {
        size_t size = b->slab_bytes == 0 ? MEM_HUGE_BYTES : 2 * b->slab_bytes;
        while (size < n_bytes) {
            size *= 2;
        }
        size = size < SLAB_BYTES ? size : SLAB_BYTES;
        uint8_t *slab = new_owned(b, size);
        if (slab == NULL) {
            return NULL;
        }
        b->slab = slab;
        b->slab_left = b->slab_bytes = size;
    }
    uint8_t *p = b->slab;
    b->slab += n_bytes;
    b->slab_left -= n_bytes;
    return p;
}

void *cpu_own(cpu_backend *b, size_t n, size_t size) {
    size_t bytes;
    if (!size_mul(n, size, &bytes)) {
        return NULL;
    }
    bool is_middle = bytes >= SLAB_LEAST && bytes < SLAB_MOST;
    uint8_t *p = is_middle ? new_in_slab(b, size_align(bytes, MEM_ALIGN)) : NULL;
    return p != NULL ? p : new_owned(b, bytes);
}

void cpu_own_free(cpu_backend *b) {
    while (b->owned != NULL) {
        cpu_owned *next = b->owned->next;
        mem_free(b->owned->bytes);
        mem_free(b->owned);
        b->owned = next;
    }
}
