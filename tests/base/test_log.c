#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "test.h"

/* Standard error goes into a pipe from here on. */
typedef struct capture {
    int ends[2], saved;
} capture;

static capture begin_capture(void) {
    capture c;
    assert_int_equal(pipe(c.ends), 0);
    c.saved = dup(STDERR_FILENO);
    dup2(c.ends[1], STDERR_FILENO);
    return c;
}

/* Reads what was written; `out` is a text. */
static size_t end_capture(capture *c, char *out, size_t cap) {
    dup2(c->saved, STDERR_FILENO);
    close(c->saved);
    close(c->ends[1]);
    size_t n = 0;
    for (ssize_t got; (got = read(c->ends[0], out + n, cap - 1 - n)) > 0;) {
        n += (size_t)got;
    }
    close(c->ends[0]);
    out[n] = '\0';
    return n;
}

/* What a call writes to stderr. */
static size_t caught(log_level level, const char *text, char *out, size_t cap) {
    capture c = begin_capture();
    log_line(level, "%s", text);
    return end_capture(&c, out, cap);
}

/* The same for a line with fields. */
static size_t caught_event(log_format format, const log_field *fields, size_t n, char *out, size_t cap) {
    capture c = begin_capture();
    log_set_format(format);
    log_event(LOG_WARN, "an \"event\"\nhere", fields, n);
    log_set_format(LOG_PLAIN);
    return end_capture(&c, out, cap);
}

TEST(a_line_has_the_programs_name_and_ends) {
    char got[4096];
    caught(LOG_INFO, "hello", got, sizeof got);
    assert_string_equal(got, "quire: hello\n");
}

TEST(lines_above_the_level_are_dropped) {
    char got[64];
    assert_int_equal(caught(LOG_DEBUG, "detail", got, sizeof got), 0);
    log_set_level(LOG_ERROR);
    assert_int_equal(caught(LOG_WARN, "careful", got, sizeof got), 0);
    assert_int_not_equal(caught(LOG_ERROR, "bad", got, sizeof got), 0);
    log_set_level(LOG_INFO);
}

TEST(a_long_line_is_cut_and_still_ends) {
    char text[5000], got[8192];
    memset(text, 'x', sizeof text - 1);
    text[sizeof text - 1] = '\0';
    size_t n = caught(LOG_INFO, text, got, sizeof got);
    assert_true(n > 1000 && n <= 2048);
    assert_int_equal(got[n - 1], '\n');
    assert_int_equal(got[n - 2], 'x');
}

/* The text after a time such as 2026-01-31T12:00:00.123Z; NULL where there is none. */
static const char *behind_time(const char *text) {
    static const char picture[] = "0000-00-00T00:00:00.000Z";
    for (size_t i = 0; i < sizeof picture - 1; i++) {
        bool digit = text[i] >= '0' && text[i] <= '9';
        if (picture[i] == '0' ? !digit : text[i] != picture[i]) {
            return NULL;
        }
    }
    return text + sizeof picture - 1;
}

static const log_field some[] = {{"id", "a b\x1b[2J\n\"c\"", false},
                                 {"absent", NULL, false},
                                 {"ms", "1.500", true},
                                 {"tenant", "anna", false}};

TEST(a_text_line_has_time_level_and_fields_and_stays_one_line) {
    char got[1000];
    caught_event(LOG_TEXT, some, 4, got, sizeof got);
    const char *rest = behind_time(got);
    assert_non_null(rest);
    assert_string_equal(
        rest, " warning quire: an \"event\"\\nhere id=\"a b\\\\x1b[2J\\n\\\"c\\\"\" ms=1.500 tenant=anna\n");
}

TEST(a_json_line_is_one_object_whatever_its_texts_hold) {
    char got[1000];
    caught_event(LOG_JSON, some, 4, got, sizeof got);
    assert_int_equal(strncmp(got, "{\"time\":\"", 9), 0);
    const char *rest = behind_time(got + 9);
    assert_non_null(rest);
    assert_string_equal(rest, "\",\"level\":\"warning\",\"message\":\"an \\\"event\\\"\\nhere\",\"id\":\"a "
                              "b\\\\x1b[2J\\n\\\"c\\\"\","
                              "\"ms\":1.500,\"tenant\":\"anna\"}\n");
}

#define N_LINES 3000

static int count(const char *text, const char *part) {
    int n = 0;
    for (const char *p = text; (p = strstr(p, part)) != NULL; p++) {
        n++;
    }
    return n;
}

/* The lost lines that whole lines of the log report. */
static int sum_lost(const char *text) {
    int n = 0;
    for (const char *p = text; (p = strstr(p, " lines=")) != NULL; p++) {
        n += strchr(p, '\n') != NULL ? atoi(p + 7) : 0;
    }
    return n;
}

/* The pipe holds some hundred lines and the queue some thousand, so the rest is lost, and
 * the log says how many. */
TEST(a_reader_that_stops_delays_no_caller_and_lost_lines_are_counted) {
    static char got[N_LINES * 300];
    char padding[200];
    memset(padding, 'x', sizeof padding - 1);
    padding[sizeof padding - 1] = '\0';
    capture c = begin_capture();
    assert_int_equal(log_start(), QUIRE_OK);
    for (int i = 0; i < N_LINES; i++) {
        log_line(LOG_INFO, "%s", padding); /* would not return if it waited for the pipe */
    }
    size_t n = 0;
    int sent = N_LINES;
    while (count(got, "quire: xxx") + count(got, "quire: late\n") + sum_lost(got) < sent) {
        struct pollfd p = {.fd = c.ends[0], .events = POLLIN};
        if (poll(&p, 1, 100) > 0) {
            n += (size_t)read(c.ends[0], got + n, sizeof got - 1 - n);
            got[n] = '\0';
        } else {
            /* all that waited is written: this one brings the report of what was lost */
            log_line(LOG_INFO, "late");
            sent++;
        }
    }
    log_stop();
    n += end_capture(&c, got + n, sizeof got - n);
    assert_int_equal(count(got, "quire: xxx") + count(got, "quire: late\n") + sum_lost(got), sent);
    assert_true(sum_lost(got) > 1000 && count(got, "quire: xxx") > 1000);
    assert_int_equal(got[n - 1], '\n');
}

TEST(the_end_waits_a_second_at_most_for_a_reader_that_stopped) {
    static char got[1 << 20];
    char padding[1000];
    memset(padding, 'x', sizeof padding - 1);
    padding[sizeof padding - 1] = '\0';
    capture c = begin_capture();
    assert_int_equal(log_start(), QUIRE_OK);
    for (int i = 0; i < 200; i++) {
        log_line(LOG_INFO, "%s", padding);
    }
    int64_t from = clock_us();
    log_stop();
    assert_true(clock_us() - from < 30000000);
    end_capture(&c, got, sizeof got);
}

TEST_MAIN(NULL, NULL)
