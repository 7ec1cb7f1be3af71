/* Included by every file of unit tests: cmocka with the headers that it needs, macros
 * that define tests, and the list of the file's tests. */
#ifndef TESTS_TEST_H
#define TESTS_TEST_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

/* The file's tests, in the order of their lines. */
enum { MOST_TESTS = 128 };
static struct CMUnitTest test_list[MOST_TESTS];
static int test_lines[MOST_TESTS], n_tests;

static inline void test_add(struct CMUnitTest test, int line) {
    int at = n_tests++;
    if (n_tests > MOST_TESTS) {
        abort();
    }
    for (; at > 0 && test_lines[at - 1] > line; at--) {
        test_list[at] = test_list[at - 1];
        test_lines[at] = test_lines[at - 1];
    }
    test_list[at] = test;
    test_lines[at] = line;
}

/* Runs all tests of the file. Returns the number that failed, or 1 if there are no tests.
 * Each fixture may be NULL. */
static inline int tests_run(CMFixtureFunction set_up, CMFixtureFunction tear_down) {
    return n_tests == 0 ? 1 : _cmocka_run_group_tests("tests", test_list, (size_t)n_tests, set_up, tear_down);
}

/* TEST_WITHIN(what_is_true, set_up, tear_down) { .. } defines a test and adds it to the
 * list. Each fixture may be NULL. */
#define TEST_WITHIN(name, set_up, tear_down)                                                                 \
    static void name(void **unused);                                                                         \
    __attribute__((constructor)) static void add_##name(void) {                                              \
        test_add((struct CMUnitTest){#name, name, set_up, tear_down, NULL}, __LINE__);                       \
    }                                                                                                        \
    static void name(__attribute__((unused)) void **unused)
#define TEST(name) TEST_WITHIN(name, NULL, NULL)

/* Defines main for a file that needs no preparation before its tests. */
#define TEST_MAIN(set_up, tear_down)                                                                         \
    int main(void) {                                                                                         \
        return tests_run(set_up, tear_down);                                                                 \
    }

#endif
