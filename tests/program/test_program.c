/* The steps of programs, one by one, in JSON and by calls. */
#include "program_world.h"

static quire_engine *e;
static quire_programs *ps;

static int open_world(void **state) {
    (void)state;
    e = world_open(512, 8);
    return quire_programs_open(e, &ps) == QUIRE_OK ? 0 : -1;
}

static int close_world(void **state) {
    (void)state;
    quire_programs_close(ps);
    wait_until_idle(e);
    quire_engine_close(e);
    return 0;
}

/* The text that a completion of the same text gives. */
static void expect_completion(const char *prompt, const char *fields, const quire_variable *v) {
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

TEST(a_text_and_a_gen_are_a_completion) {
    seen s;
    quire_state *p =
        program_of(ps, "{\"inputs\": {\"who\": \"prince\"}, \"steps\": [\"The {{who}}\", \" looked\", "
                       "{\"gen\": \"x\", \"max_tokens\": 12, \"temperature\": 0}]}");
    run_to_idle(ps, &s);
    assert_int_equal(s.n[QUIRE_PROGRAM_FAILED], 0);
    assert_int_equal(s.n[QUIRE_PROGRAM_VALUE], 1);
    quire_variable v = variable_of(p, "x", -1);
    expect_completion("The prince looked", "{\"max_tokens\": 12, \"temperature\": 0}", &v);
    assert_int_equal(v.n_ids, 12);
    quire_state_close(p);
}

TEST(calls_are_the_same_program) {
    static const char fields[] = "{\"max_tokens\": 6, \"temperature\": 0}";
    quire_state *p, *forks[3];
    quire_error err = {0};
    seen s;
    assert_int_equal(quire_state_open(ps, NULL, &p, &err), QUIRE_OK);
    assert_int_equal(quire_state_text(p, "The prince", 10, &err), QUIRE_OK);
    assert_int_equal(quire_state_fork(p, 3, forks, &err), QUIRE_OK);
    for (int32_t i = 0; i < 3; i++) {
        char text[16];
        snprintf(text, sizeof text, " %d saw", (int)i);
        assert_int_equal(quire_state_text(forks[i], text, strlen(text), &err), QUIRE_OK);
        assert_int_equal(quire_state_gen(forks[i], "x", fields, sizeof fields - 1, &err), QUIRE_OK);
    }
    assert_int_equal(quire_state_join(p, &err), QUIRE_OK);
    assert_int_equal(quire_state_text(p, " then {{x[1]}} and", 18, &err), QUIRE_OK);
    assert_int_equal(quire_state_gen(p, "y", fields, sizeof fields - 1, &err), QUIRE_OK);
    run_to_idle(ps, &s);
    assert_int_equal(s.n[QUIRE_PROGRAM_FAILED], 0);
    assert_int_equal(s.n[QUIRE_PROGRAM_VALUE], 4);
    quire_variable x = variable_of(p, "x", 1), y = variable_of(p, "y", -1);
    expect_completion("The prince 1 saw", fields, &x);
    char prompt[256];
    snprintf(prompt, sizeof prompt, "The prince then %.*s and", (int)x.n_text, x.text);
    expect_completion(prompt, fields, &y);
    quire_state_close(p);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_text_and_a_gen_are_a_completion),
        cmocka_unit_test(calls_are_the_same_program),
    };
    return cmocka_run_group_tests(tests, open_world, close_world);
}
