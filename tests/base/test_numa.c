/* get_mempolicy() has no wrapper in the C library, and mmap()'s MAP_ANONYMOUS is outside
 * POSIX. */
#define _DEFAULT_SOURCE

#include <linux/mempolicy.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/numa.h"
#include "test.h"

enum { BYTES = 1 << 20 };

TEST(the_kernel_knows_a_block_as_interleaved_over_its_nodes) {
    uint64_t nodes = numa_nodes();
    if (nodes == 0) {
        print_message("skipped: this system lets no memory be placed\n");
        skip();
    }
    char *p = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(p != MAP_FAILED);
    assert_true(numa_interleave(p, BYTES / 2, nodes));
    memset(p, 1, BYTES);
    for (size_t at = 0; at < BYTES; at += BYTES / 4) {
        int policy = -1;
        unsigned long mask[1024 / (8 * sizeof(unsigned long))] = {0};
        assert_int_equal(
            syscall(SYS_get_mempolicy, &policy, mask, 1024UL, p + at, (unsigned long)MPOL_F_ADDR), 0);
        assert_int_equal(policy, at < BYTES / 2 ? MPOL_INTERLEAVE : MPOL_DEFAULT);
        if (at < BYTES / 2) {
            assert_memory_equal(mask, &nodes, sizeof nodes);
        }
    }
    munmap(p, BYTES);
}

TEST(nodes_that_are_not_there_are_refused) {
    uint64_t nodes = numa_nodes();
    if (nodes == 0 || nodes == UINT64_MAX) {
        print_message("skipped: no node that this system has not\n");
        skip();
    }
    char *p = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(p != MAP_FAILED);
    assert_false(numa_interleave(p, BYTES, ~nodes));
    assert_false(numa_interleave(p, BYTES, 0));
    assert_false(numa_interleave(p + 64, BYTES - 64, nodes)); /* not at a page's beginning */
    memset(p, 1, BYTES);
    munmap(p, BYTES);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_kernel_knows_a_block_as_interleaved_over_its_nodes),
        cmocka_unit_test(nodes_that_are_not_there_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
