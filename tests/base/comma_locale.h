/* A locale whose decimal separator is a comma, as a program that embeds Quire may have
 * set. Made here, since a machine may have none. Include this first, as fake_root.h. */
#ifndef TESTS_BASE_COMMA_LOCALE_H
#define TESTS_BASE_COMMA_LOCALE_H

#include "base/fake_root.h"
#include "test.h"

#include <locale.h>

/* Writes glibc's LC_NUMERIC file: magic number, number of strings, offsets, and strings:
 * decimal point, no separators, both as wide characters, encoding. */
static inline void put_numeric(void) {
    char path[256];
    const uint32_t head[] = {0x20031114, 6, 32, 34, 35, 36, 40, 44};
    const char texts[] = ",\0\0\0";
    const uint32_t characters[] = {',', 0};
    snprintf(path, sizeof path, "%s/comma", root);
    assert_int_equal(mkdir(path, 0700), 0);
    snprintf(path, sizeof path, "%s/comma/LC_NUMERIC", root);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    assert_int_equal(fwrite(head, sizeof head, 1, f), 1);
    assert_int_equal(fwrite(texts, 4, 1, f), 1);
    assert_int_equal(fwrite(characters, sizeof characters, 1, f), 1);
    assert_int_equal(fwrite("UTF-8", 6, 1, f), 1);
    assert_int_equal(fclose(f), 0);
}

static inline int make_comma_locale(void **state) {
    char text[8];
    if (make_root(state) != 0) {
        return -1;
    }
    put_numeric();
    setenv("LOCPATH", root, 1);
    assert_non_null(setlocale(LC_NUMERIC, "comma"));
    snprintf(text, sizeof text, "%.1f", 0.5);
    assert_string_equal(text, "0,5");
    return 0;
}

static inline int remove_comma_locale(void **state) {
    setlocale(LC_NUMERIC, "C");
    unsetenv("LOCPATH");
    return remove_root(state);
}

#define COMMA_TEST(name) TEST_WITHIN(name, make_comma_locale, remove_comma_locale)

#endif
