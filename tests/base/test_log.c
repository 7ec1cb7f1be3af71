#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>
#include <unistd.h>

#include "base/log.h"

/* What a call writes to stderr. */
static size_t caught(log_level level, const char *text, char *out, size_t cap) {
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    int saved = dup(STDERR_FILENO);
    dup2(ends[1], STDERR_FILENO);
    log_line(level, "%s", text);
    dup2(saved, STDERR_FILENO);
    close(saved);
    close(ends[1]);
    ssize_t n = read(ends[0], out, cap - 1);
    close(ends[0]);
    assert_true(n >= 0);
    out[n] = '\0';
    return (size_t)n;
}

static void a_line_has_the_programs_name_and_ends(void **state) {
    (void)state;
    char got[4096];
    caught(LOG_INFO, "hello", got, sizeof got);
    assert_string_equal(got, "quire: hello\n");
}

static void lines_above_the_level_are_dropped(void **state) {
    (void)state;
    char got[64];
    assert_int_equal(caught(LOG_DEBUG, "detail", got, sizeof got), 0);
    log_set_level(LOG_ERROR);
    assert_int_equal(caught(LOG_WARN, "careful", got, sizeof got), 0);
    assert_int_not_equal(caught(LOG_ERROR, "bad", got, sizeof got), 0);
    log_set_level(LOG_INFO);
}

static void a_long_line_is_cut_and_still_ends(void **state) {
    (void)state;
    char text[5000], got[8192];
    memset(text, 'x', sizeof text - 1);
    text[sizeof text - 1] = '\0';
    size_t n = caught(LOG_INFO, text, got, sizeof got);
    assert_true(n > 1000 && n <= 2048);
    assert_int_equal(got[n - 1], '\n');
    assert_int_equal(got[n - 2], 'x');
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_line_has_the_programs_name_and_ends),
        cmocka_unit_test(lines_above_the_level_are_dropped),
        cmocka_unit_test(a_long_line_is_cut_and_still_ends),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
