/* syscall() is outside POSIX; the library with names for these calls is not worth a
 * dependency. */
#define _DEFAULT_SOURCE

#include "base/numa.h"

#include <linux/mempolicy.h>
#include <sys/syscall.h>
#include <unistd.h>

#define KERNEL_NODES 1024 /* the most that a kernel is built for: it refuses to write into less than it has */
#define WORD_BITS    (8 * sizeof(unsigned long))

uint64_t numa_nodes(void) {
    unsigned long words[KERNEL_NODES / WORD_BITS] = {0};
    if (syscall(SYS_get_mempolicy, NULL, words, (unsigned long)KERNEL_NODES, NULL,
                (unsigned long)MPOL_F_MEMS_ALLOWED) != 0) {
        return 0;
    }
    uint64_t nodes = 0;
    for (size_t i = 0; i < 64 / WORD_BITS; i++) {
        nodes |= (uint64_t)words[i] << (i * WORD_BITS);
    }
    return nodes;
}

bool numa_interleave(void *p, size_t n_bytes, uint64_t nodes) {
    unsigned long words[64 / WORD_BITS];
    for (size_t i = 0; i < 64 / WORD_BITS; i++) {
        words[i] = (unsigned long)(nodes >> (i * WORD_BITS));
    }
    /* one more: the kernel subtracts one */
    return syscall(SYS_mbind, p, n_bytes, (unsigned long)MPOL_INTERLEAVE, words, 64UL + 1, 0UL) == 0;
}
