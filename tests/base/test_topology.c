#define _DEFAULT_SOURCE

#include "test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/topology.h"

/* ---- lists ---- */

static cpu_mask mask_of(const char *list) {
    cpu_mask m;
    quire_error err;
    assert_int_equal(cpu_mask_parse(list, &m, &err), QUIRE_OK);
    return m;
}

TEST(a_list_is_read_and_written_the_same) {
    static const struct {
        const char *in, *out;
        int32_t n;
    } cases[] = {
        {"0", "0", 1},         {"0-3,8", "0-3,8", 5},    {"8,0-3", "0-3,8", 5},      {"5,4,3", "3-5", 3},
        {"0-3,2-6", "0-6", 7}, {"63,64", "63-64", 2},    {"0-2047", "0-2047", 2048}, {"7-7", "7", 1},
        {"2047", "2047", 1},   {"0,2,4,6", "0,2,4,6", 4}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[64];
        cpu_mask m = mask_of(cases[i].in);
        cpu_mask_print(&m, text, sizeof text);
        assert_string_equal(text, cases[i].out);
        assert_int_equal(cpu_mask_count(&m), cases[i].n);
    }
}

TEST(malformed_lists_are_refused_with_the_position) {
    static const struct {
        const char *text;
        int64_t position;
    } cases[] = {{"", 0},       {",", 0},       {"0,", 2},  {"0-3,x", 4},         {"3-1", 0},
                 {"0,5-", 2},   {"0,,1", 2},    {"-1", 0},  {"0 1", 0},           {"2048", 0},
                 {"0-2048", 0}, {"0,1-2-3", 2}, {"0x1", 0}, {"0,99999999999", 2}, {"1,0-3:2", 2},
                 {"0\n", 0},    {"+1", 0}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        cpu_mask m = mask_of("5");
        quire_error err;
        assert_int_equal(cpu_mask_parse(cases[i].text, &m, &err), QUIRE_INVALID);
        assert_int_equal(err.position, cases[i].position);
        assert_non_null(strstr(err.message, "0-3,8"));
        assert_true(cpu_mask_has(&m, 5) && cpu_mask_count(&m) == 1);
    }
}

TEST(a_list_too_long_to_write_ends_in_dots) {
    cpu_mask m = mask_of("0,2,4,6,8,10-20,30");
    for (size_t n = 3; n < 24; n++) {
        char text[32];
        memset(text, 'x', sizeof text);
        cpu_mask_print(&m, text, n);
        assert_true(strlen(text) < n && text[n] == 'x');
        size_t k = strlen(text);
        assert_true(strcmp(text, "0,2,4,6,8,10-20,30") == 0 || strcmp(text + k - 2, "..") == 0);
    }
}

/* ---- made-up machines ---- */

static char root[64];

static int make_root(void **state) {
    (void)state;
    (void)snprintf(root, sizeof root, "quire_topology_XXXXXX");
    return mkdtemp(root) == NULL;
}

static int remove_root(void **state) {
    (void)state;
    char command[128];
    (void)snprintf(command, sizeof command, "rm -r '%s'", root);
    return system(command);
}

/* The file root/devices/system/<path>, and the directories on its way. */
static void put(const char *path, const char *text) {
    char full[256];
    (void)snprintf(full, sizeof full, "%s/devices/system/%s", root, path);
    for (char *slash = strchr(full + strlen(root) + 1, '/'); slash != NULL; slash = strchr(slash + 1, '/')) {
        *slash = 0;
        (void)mkdir(full, 0700);
        *slash = '/';
    }
    FILE *f = fopen(full, "w");
    assert_non_null(f);
    assert_true(fputs(text, f) >= 0);
    fclose(f);
}

static void put_siblings(int32_t cpu, const char *text) {
    char path[128];
    (void)snprintf(path, sizeof path, "cpu/cpu%d/topology/thread_siblings_list", cpu);
    put(path, text);
}

/* The machine that the files describe, of what is allowed, in order: "0 1 | 4 5 @1". A
 * bar before the second hyperthreads, a node before its processors where it is not 0. */
static void check_machine(const char *allowed, int32_t n_cores, const char *expected) {
    static topology t;
    char text[256] = "";
    size_t n = 0;
    cpu_mask m = mask_of(allowed);
    topology_read(root, &m, &t);
    int32_t sibling = 0, node = 0;
    for (int32_t i = 0; i < t.n_cpus; i++) {
        if (t.cpus[i].sibling != sibling) {
            n += (size_t)snprintf(text + n, sizeof text - n, "| ");
            sibling = t.cpus[i].sibling;
            node = 0;
        }
        if (t.cpus[i].node != node) {
            node = t.cpus[i].node;
            n += (size_t)snprintf(text + n, sizeof text - n, "@%d ", node);
        }
        n += (size_t)snprintf(text + n, sizeof text - n, "%d ", t.cpus[i].cpu);
    }
    text[n ? n - 1 : 0] = 0;
    assert_string_equal(text, expected);
    assert_int_equal(t.n_cores, n_cores);
    assert_int_equal(t.n_cpus, cpu_mask_count(&m));
}

TEST_WITHIN(one_of_each_core_comes_first, make_root, remove_root) {
    put_siblings(0, "0,4\n"), put_siblings(4, "0,4\n"), put_siblings(1, "1,5\n"), put_siblings(5, "1,5\n");
    put_siblings(2, "2,6\n"), put_siblings(6, "2,6\n"), put_siblings(3, "3,7\n"), put_siblings(7, "3,7\n");
    check_machine("0-7", 4, "0 1 2 3 | 4 5 6 7");
}

TEST_WITHIN(adjacent_siblings_are_recognised_too, make_root, remove_root) {
    put_siblings(0, "0-1\n"), put_siblings(1, "0-1\n"), put_siblings(2, "2-3\n"), put_siblings(3, "2-3\n");
    check_machine("0-3", 2, "0 2 | 1 3");
}

TEST_WITHIN(the_cores_of_a_node_are_side_by_side, make_root, remove_root) {
    put("node/node0/cpulist", "0,2,4,6\n"), put("node/node1/cpulist", "1,3,5,7\n");
    put_siblings(0, "0,4\n"), put_siblings(4, "0,4\n"), put_siblings(1, "1,5\n"), put_siblings(5, "1,5\n");
    put_siblings(2, "2,6\n"), put_siblings(6, "2,6\n"), put_siblings(3, "3,7\n"), put_siblings(7, "3,7\n");
    check_machine("0-7", 4, "0 2 @1 1 3 | 4 6 @1 5 7");
}

TEST_WITHIN(processors_that_are_not_allowed_are_left_out, make_root, remove_root) {
    put("node/node0/cpulist", "0-3,8-11\n"), put("node/node1/cpulist", "4-7,12-15\n");
    for (int32_t cpu = 0; cpu < 16; cpu++) {
        char list[16];
        (void)snprintf(list, sizeof list, "%d,%d\n", cpu % 8, cpu % 8 + 8);
        put_siblings(cpu, list);
    }
    /* the second hyperthread counts as a core where the first is not ours */
    check_machine("2-3,8,12", 4, "2 3 8 @1 12");
    check_machine("9", 1, "9");
    check_machine("3,11,7,15", 2, "3 @1 7 | 11 @1 15");
}

TEST_WITHIN(processors_that_are_off_leave_holes, make_root, remove_root) {
    /* 6 and 3 are off */
    put_siblings(0, "0,4\n"), put_siblings(4, "0,4\n"), put_siblings(2, "2\n"), put_siblings(7, "7\n");
    put("node/node0/cpulist", "0,2,4,7\n"), put("node/node1/cpulist", "\n"), put("node/node3/cpulist", "7\n");
    check_machine("0,2,4,7", 3, "0 2 @3 7 | 4");
}

TEST_WITHIN(without_files_every_processor_is_a_core, make_root, remove_root) {
    check_machine("0-3,2047", 5, "0 1 2 3 2047");
}

TEST_WITHIN(malformed_files_are_ignored, make_root, remove_root) {
    static char endless[10000];
    memset(endless, '1', sizeof endless - 1);
    put_siblings(0, "banana\n"), put_siblings(1, "0-99999999\n"), put_siblings(2, ""),
        put_siblings(3, endless), put_siblings(4, "4,\n");
    put("node/node1/cpulist", "0-\n"), put("node/node2/cpulist", endless), put("node/node63/cpulist", "5\n");
    check_machine("0-5", 6, "0 1 2 3 4 @63 5");
}

TEST_WITHIN(files_that_contradict_each_other_still_give_every_processor_once, make_root, remove_root) {
    put_siblings(0, "0-3\n"), put_siblings(1, "5\n"), put_siblings(2, "0-2\n"), put_siblings(3, "4-7\n");
    put("node/node1/cpulist", "0-2\n"), put("node/node2/cpulist", "2-3\n");
    check_machine("0-3", 3, "@1 0 1 @2 3 | @2 2");
}

/* get_mempolicy() has no wrapper in the C library, and mmap()'s MAP_ANONYMOUS is outside
 * POSIX. */

#include <linux/mempolicy.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/topology.h"
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

TEST_MAIN(NULL, NULL)
