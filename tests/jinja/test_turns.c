/* Renders of long texts yield to other jobs. */

#include "base/clock.h"
#include "base/turn.h"
#include "jinja/render.h"
#include "test.h"

#define TEXT_CHARS 2000000
#define GAP_US     50000 /* far more than a slice, far less than a loop over the whole text takes */
#define N_TRIES    8     /* other programs disturb a measurement now and then */

/* A turn that notes how long the render went on without asking, and ends it where it is
 * told to. */
typedef struct watched_turn {
    turn turn; /* first member */
    int64_t last_us, longest_us;
    int n_slices, ends_at; /* ends_at 0: never */
} watched_turn;

static quire_err slice_over(turn *t) {
    watched_turn *w = (watched_turn *)t;
    int64_t now = clock_thread_us();
    w->longest_us = now - w->last_us > w->longest_us ? now - w->last_us : w->longest_us;
    w->last_us = now;
    t->slice_ends_us = 0;
    return ++w->n_slices == w->ends_at ? QUIRE_CANCELLED : QUIRE_OK;
}

static quire_err hold_all(turn *t) {
    t->may_hold = SIZE_MAX;
    return QUIRE_OK;
}

static quire_err render_in_turn(const char *source, const char *variables, watched_turn *w,
                                quire_error *err) {
    strbuf out = {0};
    w->turn = (turn){.over = slice_over, .more = hold_all};
    w->last_us = clock_thread_us();
    turn_begin(&w->turn);
    quire_err e = render(source, variables, &out, err);
    int64_t rest_us = clock_thread_us() - w->last_us;
    w->longest_us = rest_us > w->longest_us ? rest_us : w->longest_us;
    turn_begin(NULL);
    strbuf_deinit(&out);
    return e;
}

/* {"x": a text of many characters of two bytes}. */
static strbuf long_variable(void) {
    strbuf v = {0};
    assert_int_equal(strbuf_add_str(&v, "{\"x\": \""), QUIRE_OK);
    for (int i = 0; i < TEXT_CHARS; i++) {
        assert_int_equal(strbuf_add_str(&v, i % 100 == 99 ? " " : "\xc3\xa4"), QUIRE_OK);
    }
    assert_int_equal(strbuf_add_str(&v, "\"}"), QUIRE_OK);
    return v;
}

TEST(loops_over_a_long_text_let_others_go_on) {
    static const char *const sources[] = {"{{ x.upper() }}",
                                          "{{ x | title }}",
                                          "{{ x.casefold() }}",
                                          "{{ x.swapcase() }}",
                                          "{{ x.islower() }}",
                                          "{{ x.isprintable() }}",
                                          "{{ x.isidentifier() }}",
                                          "{{ x.replace('', '') }}",
                                          "{{ x.expandtabs() }}",
                                          "{{ x | urlencode }}",
                                          "{{ x | tojson }}",
                                          "{{ x | length }}",
                                          "{{ x | e }}",
                                          "{{ x | wordwrap(30) }}",
                                          "{{ x | truncate(1000000) }}",
                                          "{{ x.splitlines() | length }}",
                                          "{{ x.split() | length }}",
                                          "{{ [x] }}",
                                          "{{ '%s' % x }}",
                                          "{{ x.rjust(3000000) }}",
                                          "{{ x[5:] }}",
                                          "{{ x.find('x', 1000000) }}"};
    strbuf variables = long_variable();
    for (size_t i = 0; i < sizeof sources / sizeof *sources; i++) {
        int64_t us = INT64_MAX;
        for (int try = 0; try < N_TRIES && us > GAP_US; try++) {
            watched_turn w = {.ends_at = 0};
            quire_error err = {0};
            if (render_in_turn(sources[i], variables.p, &w, &err) != QUIRE_OK) {
                fail_msg("%s: %s", sources[i], err.message);
            }
            us = w.longest_us;
        }
        print_message("%s: %lld us without a poll\n", sources[i], (long long)us);
        assert_true(us <= GAP_US);
    }
    strbuf_deinit(&variables);
}

TEST(a_cancelled_render_ends_in_the_middle_of_a_loop) {
    strbuf variables = long_variable();
    watched_turn whole = {.ends_at = 0};
    quire_error err = {0};
    assert_int_equal(render_in_turn("{{ x | title }}", variables.p, &whole, &err), QUIRE_OK);
    for (int i = 1; i < 10; i++) {
        watched_turn w = {.ends_at = whole.n_slices * i / 10};
        quire_err e = render_in_turn("{{ x | title }}", variables.p, &w, &err);
        if (e != QUIRE_CANCELLED || w.n_slices > w.ends_at) {
            fail_msg("cancelled at slice %d of %d: %s after %d: %s", w.ends_at, whole.n_slices,
                     quire_err_text(e), w.n_slices, err.message);
        }
    }
    strbuf_deinit(&variables);
}

/* Two values of 40 levels, of 2^40 paths each. */
static const char comparison[] = "{% set n = namespace(a=[1], b=[1]) %}{% for i in range(40) %}{% set n.a = "
                                 "[n.a, n.a] %}{% set n.b = [n.b, n.b] %}{% endfor %}"
                                 "{{ n.a == n.b }}";

TEST(a_cancelled_comparison_ends_in_its_middle) {
    watched_turn w = {.ends_at = 20};
    quire_error err = {0};
    quire_err e = render_in_turn(comparison, "{}", &w, &err);
    if (e != QUIRE_CANCELLED || w.n_slices > w.ends_at) {
        fail_msg("%s after %d slices: %s", quire_err_text(e), w.n_slices, err.message);
    }
    assert_true(w.longest_us <= GAP_US);
}

TEST_MAIN(NULL, NULL)
