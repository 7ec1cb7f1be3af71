/* Generation from texts and messages, and quire_generate's single call. */
#include "api_world.h"

static quire_engine *e;
ENGINE_FIXTURES(e, 256, 4)

TEST(a_text_goes_on_as_the_same_body_does) {
    quire_queue *q = queue_new(e);
    quire_error err = {0};
    quire_request *r;
    response want;
    char *text;
    size_t n;
    complete(e, q, &want,
             "{\"prompt\": \"The \\\"prince\\\"\\n\", \"max_tokens\": 20, \"temperature\": 0, \"n\": 2}");
    assert_int_equal(quire_request_text(e, "The \"prince\"\n", 13, &r, &err), QUIRE_OK);
    assert_int_equal(quire_request_set(r, "max_tokens", "20", &err), QUIRE_OK);
    assert_int_equal(quire_request_set(r, "temperature", "0", &err), QUIRE_OK);
    assert_int_equal(quire_request_set(r, "n", "2", &err), QUIRE_OK);
    assert_int_equal(quire_generate(e, r, &text, &n, &err), QUIRE_OK);
    assert_int_equal(n, want.choices[0].text.n);
    assert_memory_equal(text, want.choices[0].text.p, n);
    assert_int_equal(text[n], 0);
    quire_free(text);
    response_clear(&want);
    quire_queue_close(q);
}

TEST(a_chat_is_answered) {
    const quire_message messages[] = {{"system", "Be short.", 9}, {"user", "Who went?", 9}};
    quire_error err = {0};
    quire_request *r;
    char *text[2];
    size_t n;
    for (int i = 0; i < 2; i++) {
        assert_int_equal(quire_request_chat(e, messages, 2, &r, &err), QUIRE_OK);
        assert_int_equal(quire_request_set_all(r, "{\"max_tokens\": 12, \"seed\": 3}", 29, &err), QUIRE_OK);
        assert_int_equal(quire_generate(e, r, &text[i], &n, &err), QUIRE_OK);
        assert_true(n > 0);
    }
    assert_string_equal(text[0], text[1]);
    quire_free(text[0]);
    quire_free(text[1]);
}

TEST(an_empty_answer_is_an_empty_text) {
    quire_error err = {0};
    quire_request *r;
    char *text;
    size_t n;
    assert_int_equal(quire_request_text(e, "x", 1, &r, &err), QUIRE_OK);
    assert_int_equal(quire_request_set_all(r, "{\"max_tokens\": 0, \"echo\": true}", 31, &err), QUIRE_OK);
    assert_int_equal(quire_generate(e, r, &text, &n, &err), QUIRE_OK);
    assert_int_equal(n, 0);
    assert_string_equal(text, "");
    quire_free(text);
}

TEST(what_is_wrong_is_the_error) {
    const quire_message broken[] = {{NULL, "x", 1}};
    quire_error err = {0};
    quire_request *r;
    char *text;
    size_t n;
    assert_int_equal(quire_request_chat(e, broken, 1, &r, &err), QUIRE_BAD_REQUEST);
    assert_null(r);
    assert_int_equal(quire_request_chat(e, NULL, 0, &r, &err), QUIRE_BAD_REQUEST);
    assert_int_equal(quire_request_text(e, "x", 1, &r, &err), QUIRE_OK);
    assert_int_equal(quire_request_set(r, "max_tokens", "5", &err), QUIRE_OK);
    assert_int_equal(quire_request_set(r, "min_tokens", "9", &err), QUIRE_OK);
    assert_int_equal(quire_generate(e, r, &text, &n, &err), QUIRE_BAD_REQUEST);
    assert_non_null(strstr(err.message, "min_tokens"));
    assert_null(text);
    assert_int_equal(quire_request_text(e, "x", 1, &r, NULL), QUIRE_OK);
    assert_int_equal(quire_request_set(r, "min_tokens", "900", NULL), QUIRE_OK);
    /* without a place for the message */
    assert_int_not_equal(quire_generate(e, r, &text, &n, NULL), QUIRE_OK);
}

TEST_MAIN(open_e, close_e)
