/* mincore() is outside POSIX. */
#define _DEFAULT_SOURCE

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fault.h"
#include "base/mem.h"
#include "test.h"

TEST(a_new_block_is_zeroed_and_aligned) {
    for (size_t n = 0; n < 300; n += 7) {
        unsigned char *p = mem_new(n, 3);
        assert_non_null(p);
        assert_int_equal((uintptr_t)p % MEM_ALIGN, 0);
        for (size_t i = 0; i < 3 * n; i++) {
            assert_int_equal(p[i], 0);
        }
        memset(p, 0xAA, 3 * n);
        mem_free(p);
    }
}

TEST(a_product_that_overflows_gives_null) {
    assert_null(mem_new(SIZE_MAX / 2, 3));
    assert_null(mem_new_huge(SIZE_MAX / 2, 3));
    assert_null(mem_dup("", SIZE_MAX));
}

TEST(a_huge_block_is_zeroed_also_when_the_memory_was_used_before) {
    size_t n = ((size_t)3 << 20) + 4097;
    /* from now on the C library keeps freed blocks of this size instead of unmapping
     * them */
    mem_free(mem_new((size_t)24 << 20, 1));
    for (int round = 0; round < 4; round++) {
        unsigned char *p = mem_new_huge(n, 1);
        assert_non_null(p);
        assert_int_equal((uintptr_t)p % ((size_t)2 << 20), 0);
        for (size_t i = 0; i < n; i++) {
            if (p[i] != 0) {
                fail_msg("byte %zu is %d in round %d", i, p[i], round);
            }
        }
        memset(p, 0xAA, n);
        mem_free(p);
    }
}

/* How many system pages of p[0..n) are in memory; p is at the start of one. */
static size_t n_resident(void *p, size_t n) {
    size_t page = (size_t)sysconf(_SC_PAGESIZE), n_pages = n / page, sum = 0;
    unsigned char *there = malloc(n_pages);
    assert_int_equal(mincore(p, n, there), 0);
    for (size_t i = 0; i < n_pages; i++) {
        sum += there[i] & 1;
    }
    free(there);
    return sum;
}

TEST(a_large_block_is_zeroed_when_it_is_used) {
    const size_t n = ((size_t)3 << 19) + 77;
    mem_free(mem_new((size_t)24 << 20, 1)); /* as above */
    for (int round = 0; round < 4; round++) {
        unsigned char *p = mem_new(n, 1);
        assert_non_null(p);
        assert_int_equal(n_resident(p, n - 77), 0);
        for (size_t i = 0; i < n; i++) {
            assert_int_equal(p[i], 0);
        }
        memset(p, 0xAA, n);
        mem_free(p);
    }
}

TEST(returned_memory_is_whole_pages_that_read_as_zeroes) {
    size_t n = (size_t)8 << 20, page = (size_t)sysconf(_SC_PAGESIZE), from = 3 * page + 1,
           to = n - 5 * page - 1;
    unsigned char *p = mem_new_huge(n, 1);
    assert_non_null(p);
    assert_int_equal(n_resident(p, n), 0); /* not before they are touched */
    memset(p, 0xAA, n);
    assert_int_equal(n_resident(p, n), n / page);
    assert_true(mem_give_back(p + from, page)); /* no whole page lies inside */
    assert_int_equal(n_resident(p, n), n / page);
    assert_true(mem_give_back(p + from, to - from));
    assert_int_equal(n_resident(p, n), 4 + 6);
    for (size_t i = 0; i < n; i++) {
        if (p[i] != (i >= 4 * page && i < n - 6 * page ? 0 : 0xAA)) {
            fail_msg("byte %zu is %d", i, p[i]);
        }
    }
    mem_free(p);
}

/* Whether this is Linux 5.minor or later. */
static bool has_linux_5(int least) {
    struct utsname system;
    int major = 0, minor = 0;
    assert_int_equal(uname(&system), 0);
    return sscanf(system.release, "%d.%d", &major, &minor) == 2 && major * 1000 + minor >= 5000 + least;
}

TEST(locked_memory_is_returned_too) {
    size_t n = (size_t)2 << 20, page = (size_t)sysconf(_SC_PAGESIZE);
    bool can = has_linux_5(18);
    unsigned char *p = mem_new_huge(n, 1);
    assert_non_null(p);
    if (mlock(p, n) != 0) {
        mem_free(p);
        skip();
    }
    memset(p, 0xAA, n);
    assert_int_equal(mem_give_back(p, n), can);
    assert_int_equal(n_resident(p, n), can ? 0 : n / page);
    assert_int_equal(p[n / 2], can ? 0 : 0xAA);
    mem_free(p);
}

/* Parts that begin and end within pages. */
TEST(populated_memory_is_resident_and_keeps_what_is_there) {
    const size_t n = 3 * MEM_HUGE_BYTES, page = (size_t)sysconf(_SC_PAGESIZE);
    unsigned char *p = mem_new_huge(n, 1);
    assert_non_null(p);
    memset(p + MEM_HUGE_BYTES - 100, 7, 200);
    mem_populate_written(p + 1000, n - 2000);
    mem_populate_read(p + 1000, n - 2000);
    if (has_linux_5(14)) {
        assert_int_equal(n_resident(p, n), n / page);
    }
    for (size_t i = 0; i < n; i++) {
        const size_t at = i + 100;
        assert_int_equal(p[i], at >= MEM_HUGE_BYTES && at < MEM_HUGE_BYTES + 200 ? 7 : 0);
    }
    mem_free(p);
}

TEST(growing_keeps_the_content_and_zeroes_the_rest) {
    void *p = NULL;
    size_t cap = 0;
    assert_int_equal(mem_grow(&p, &cap, 3, sizeof(int)), QUIRE_OK);
    assert_true(cap >= 3);
    int *v = p;
    v[0] = 1, v[1] = 2, v[2] = 3;
    size_t before = cap;
    assert_int_equal(mem_grow(&p, &cap, before + 1, sizeof(int)), QUIRE_OK);
    v = p;
    assert_int_equal(v[0] + v[1] + v[2], 6);
    for (size_t i = 3; i < cap; i++) {
        assert_int_equal(v[i], 0);
    }
    void *same = p;
    before = cap;
    assert_int_equal(mem_grow(&p, &cap, SIZE_MAX / 2, sizeof(int)), QUIRE_NO_MEMORY);
    assert_ptr_equal(p, same);
    assert_int_equal(cap, before);
    mem_free(p);
}

TEST(a_large_array_grows_with_its_content_and_zeroes) {
    char *p = NULL;
    size_t cap = 0;
    assert_int_equal(mem_grow(&p, &cap, MEM_HUGE_BYTES / 2, 1), QUIRE_OK);
    memset(p, 7, cap);
    for (size_t old = cap, n = 3 * MEM_HUGE_BYTES + 5; n < 20 * MEM_HUGE_BYTES; n *= 2, old = cap) {
        assert_int_equal(mem_grow(&p, &cap, n, 1), QUIRE_OK);
        for (size_t i = 0; i < cap; i++) {
            assert_true(p[i] == (i < old ? 7 : 0));
        }
        memset(p, 7, cap);
    }
    mem_free(p);
}

TEST(a_missing_block_is_an_error_that_names_its_purpose) {
    quire_error err = {.message = ""};
    assert_int_equal(mem_check(&err), QUIRE_OK);
    assert_int_equal(mem_check(NULL), QUIRE_NO_MEMORY);
    assert_int_equal(mem_check_for(&err, "a test", &err), QUIRE_OK);
    assert_string_equal(err.message, "");
    assert_int_equal(mem_check_for(NULL, "a test", &err), QUIRE_NO_MEMORY);
    assert_int_equal(err.code, QUIRE_NO_MEMORY);
    assert_string_equal(err.message, "out of memory for a test");
    mem_copy(NULL, NULL, 0);
}

TEST(a_copy_ends_with_a_zero_byte) {
    char *copy = mem_dup("a\0b", 3);
    assert_memory_equal(copy, "a\0b\0", 4);
    mem_free(copy);
    copy = mem_dup(NULL, 0);
    assert_string_equal(copy, "");
    mem_free(copy);
}

/* Whether a child process that does this dies by abort. */
static int aborts(void (*what)(void)) {
    pid_t pid = fork();
    if (pid == 0) {
        close(STDERR_FILENO);
        signal(SIGABRT, SIG_DFL);
        what();
        _exit(0);
    }
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return !(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

static void allocate_in_a_nested_guard(void) {
    mem_guard_enter();
    mem_guard_enter();
    mem_guard_leave();
    mem_free(mem_new(1, 1));
}

static void allocate_after_the_guard(void) {
    mem_guard_enter();
    mem_guard_leave();
    mem_free(mem_new(1, 1));
}

static void grow_within_capacity_in_a_guard(void) {
    void *p = NULL;
    size_t cap = 0;
    (void)mem_grow(&p, &cap, 8, 1);
    mem_guard_enter();
    (void)mem_grow(&p, &cap, 8, 1);
    mem_free(p);
    mem_guard_leave();
}

TEST(an_allocation_inside_the_guard_aborts_in_debug_builds) {
#ifdef QUIRE_DEBUG
    assert_true(aborts(allocate_in_a_nested_guard));
#else
    assert_false(aborts(allocate_in_a_nested_guard));
#endif
    assert_false(aborts(allocate_after_the_guard));
    assert_false(aborts(grow_within_capacity_in_a_guard));
}

TEST(a_chosen_allocation_fails_once_in_debug_builds) {
#ifdef QUIRE_DEBUG
    void *a, *b, *c;
    fault_at(2);
    a = mem_new(1, 1);
    assert_false(fault_happened());
    b = mem_new(1, 1);
    assert_true(fault_happened());
    c = mem_new(1, 1);
    assert_true(a != NULL && b == NULL && c != NULL);
    mem_free(a);
    mem_free(c);
    fault_at(0);
    assert_false(fault_happened());
#else
    assert_false(fault_due());
#endif
}

TEST_MAIN(NULL, NULL)
