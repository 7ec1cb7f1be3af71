/* What every file of unit tests begins with: cmocka, whose header needs four others, and
 * the head of a test. */
#ifndef TESTS_TEST_H
#define TESTS_TEST_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

/* TEST(what_is_true) { .. }: a test, listed as cmocka_unit_test(what_is_true). */
#define TEST(name) static void name(__attribute__((unused)) void **state)

#endif
