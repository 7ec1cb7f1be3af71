/* Runs programs on the small built-in model. Compares their values with the results of
 * plain requests with the same prompt ids. */
#ifndef TESTS_PROGRAM_PROGRAM_WORLD_H
#define TESTS_PROGRAM_PROGRAM_WORLD_H

#include "api/api_world.h"
#include "base/clock.h"
#include "quire_program.h"

/* What the events of a program said, until its root was idle. */
typedef struct seen {
    int32_t n[4];
    quire_error failure; /* error of the first FAILED event */
    strbuf text;         /* concatenation of all TEXT events */
} seen;

static inline void run_to_idle(quire_programs *ps, seen *s) {
    quire_program_event ev;
    *s = (seen){0};
    for (int64_t end_us = clock_us() + 120000000; clock_us() < end_us;) { /* 120 seconds, a generous limit */
        if (!quire_programs_next(ps, &ev)) {
            quire_programs_wait(ps, 1000000);
            continue;
        }
        s->n[ev.kind]++;
        if (ev.kind == QUIRE_PROGRAM_FAILED && s->failure.code == QUIRE_OK) {
            s->failure = *ev.error;
        }
        if (ev.kind == QUIRE_PROGRAM_TEXT) {
            assert_int_equal(strbuf_add(&s->text, ev.text, ev.n_text), QUIRE_OK);
        }
        if (ev.kind == QUIRE_PROGRAM_IDLE) {
            strbuf_deinit(&s->text);
            return;
        }
    }
    fail_msg("the program did not end");
}

static inline quire_state *program_of(quire_programs *ps, const char *json) {
    quire_state *s;
    quire_error err = {0};
    if (quire_program_open(ps, json, strlen(json), NULL, &s, &err) != QUIRE_OK) {
        fail_msg("%s: %s", json, err.message);
    }
    return s;
}

static inline quire_variable variable_of(const quire_state *s, const char *name, int32_t item) {
    quire_variable v = {.size = sizeof v};
    quire_error err = {0};
    if (quire_state_get(s, name, item, &v, &err) != QUIRE_OK) {
        fail_msg("%s: %s", name, err.message);
    }
    return v;
}

/* Waits until no page is parked any more. */
static inline void wait_until_none_is_parked(const quire_engine *e) {
    quire_parked_stats st = {.size = sizeof st};
    for (int i = 0; i < 20000; i++) {
        quire_engine_parked(e, &st);
        if (st.n_parks == 0 && st.n_pages == 0) {
            return;
        }
        sleep_ms(1);
    }
    fail_msg("%lld pages are still parked", (long long)st.n_pages);
}

/* Defines the engine and the programs that a file's tests share, and fixtures that open
 * them and close them once no page is parked and no request runs. */
#define PROGRAM_TESTS(n_pages)                                                                               \
    static quire_engine *e;                                                                                  \
    static quire_programs *ps;                                                                               \
    static int open_both(void **state) {                                                                     \
        (void)state;                                                                                         \
        e = world_open(n_pages, 8);                                                                          \
        return quire_programs_open(e, &ps) == QUIRE_OK ? 0 : -1;                                             \
    }                                                                                                        \
    static int close_both(void **state) {                                                                    \
        (void)state;                                                                                         \
        quire_programs_close(ps);                                                                            \
        wait_until_none_is_parked(e);                                                                        \
        wait_until_idle(e);                                                                                  \
        quire_engine_close(e);                                                                               \
        return 0;                                                                                            \
    }                                                                                                        \
    TEST_MAIN(open_both, close_both)

static inline size_t count_in_report(const quire_state *s, const char *part) {
    char *json;
    size_t n, found = 0;
    assert_int_equal(quire_state_report(s, NULL, true, &json, &n), QUIRE_OK);
    for (const char *at = json; (at = strstr(at, part)) != NULL; at++) {
        found++;
    }
    quire_free(json);
    return found;
}

static inline void expect_report(const quire_state *s, const char *part) {
    char *json;
    size_t n;
    assert_int_equal(quire_state_report(s, NULL, true, &json, &n), QUIRE_OK);
    if (strstr(json, part) == NULL) {
        fail_msg("%s is not in %s", part, json);
    }
    quire_free(json);
}

/* Checks that a completion of the prompt gives the expected text. */
static inline void expect_completion(quire_engine *e, const char *prompt, const char *fields,
                                     const quire_variable *v) {
    quire_request *r;
    quire_error err = {0};
    char *text;
    size_t n;
    assert_int_equal(quire_request_text(e, prompt, strlen(prompt), &r, &err), QUIRE_OK);
    assert_int_equal(quire_request_set_all(r, fields, strlen(fields), &err), QUIRE_OK);
    assert_int_equal(quire_generate(e, r, &text, &n, &err), QUIRE_OK);
    assert_int_equal(n, v->n_text);
    assert_memory_equal(text, v->text, n);
    quire_free(text);
}

#endif
