/* Bodies read on a text thread: PARSED brings the request or the error, and nothing stays
 * of what is not wanted any more. */
#include "api/api_world.h"
#include "base/mem.h"

static quire_engine *shared;

static quire_parse *start(quire_queue *q, const char *body, void *user) {
    quire_parse *p;
    size_t n = strlen(body);
    char *copy = quire_alloc(n);
    memcpy(copy, body, n);
    assert_int_equal(quire_parse_start(q, QUIRE_COMPLETIONS, copy, n, "", user, &p), QUIRE_OK);
    return p;
}

TEST(a_body_comes_back_as_a_request_that_can_be_submitted) {
    quire_queue *q = queue_new(shared);
    int user;
    start(q, "{\"prompt\": \"The prince\", \"max_tokens\": 3, \"ignore_eos\": true, \"n\": 2}", &user);
    quire_event ev = event_of(q);
    assert_int_equal(ev.kind, QUIRE_EVENT_PARSED);
    assert_ptr_equal(ev.user, &user);
    assert_null(ev.error);
    assert_null(ev.stream);
    assert_int_equal(quire_request_describe(ev.request)->n_samples, 2);
    quire_stream *s;
    quire_error err;
    assert_int_equal(quire_submit(q, ev.request, NULL, &s, &err), QUIRE_OK);
    do {
        ev = event_of(q);
    } while (ev.kind != QUIRE_EVENT_DONE);
    assert_int_equal(ev.completion_tokens, 6);
    quire_stream_release(s);
    quire_queue_close(q);
}

TEST(a_wrong_body_comes_back_as_its_error) {
    quire_queue *q = queue_new(shared);
    start(q, "{\"prompt\": \"x\", \"top_p\": 1.5}", NULL);
    quire_event ev = event_of(q);
    assert_int_equal(ev.kind, QUIRE_EVENT_PARSED);
    assert_null(ev.request);
    assert_int_equal(ev.error->code, QUIRE_BAD_REQUEST);
    assert_string_equal(ev.error->param, "top_p");
    quire_queue_close(q);
}

/* The beginning of a body whose rule has n bytes so far, in memory of quire_alloc. */
static char *beginning(size_t n, size_t *n_all) {
    static const char fields[] = "{\"prompt\": \"x\", \"guided_json\": \"";
    char *begin = quire_alloc(n + strlen(fields));
    memcpy(begin, fields, strlen(fields));
    memset(begin + strlen(fields), 'a', n);
    *n_all = n + strlen(fields);
    return begin;
}

TEST(a_look_over_a_beginning_finds_a_field_that_is_too_large_and_nothing_else) {
    static const struct {
        size_t n;
        bool fails;
    } rules[] = {{(1 << 20) + 4096, true}, {1 << 19, false}};
    quire_queue *q = queue_new(shared);
    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++) {
        quire_parse *p;
        size_t n;
        char *begin = beginning(rules[i].n, &n);
        assert_int_equal(quire_look_start(q, QUIRE_COMPLETIONS, begin, n, "", q, &p), QUIRE_OK);
        quire_event ev = event_of(q);
        assert_int_equal(ev.kind, QUIRE_EVENT_LOOKED);
        assert_ptr_equal(ev.user, q);
        assert_ptr_equal(ev.text, begin);
        assert_int_equal(ev.n_text, n);
        if (rules[i].fails) {
            assert_string_equal(ev.error->param, "guided_json");
            assert_int_equal(ev.error->code, QUIRE_BAD_REQUEST);
        } else {
            assert_null(ev.error);
        }
        quire_free(begin);
    }
    quire_queue_close(q);
}

TEST(looks_that_nobody_waits_for_free_what_they_have) {
    for (int round = 0; round < 20; round++) {
        quire_queue *q = queue_new(shared);
        for (int i = 0; i < round; i++) {
            quire_parse *p;
            size_t n;
            char *begin = beginning(1000, &n);
            assert_int_equal(quire_look_start(q, QUIRE_CHAT, begin, n, "", NULL, &p), QUIRE_OK);
            if (i % 2 == 0) {
                quire_parse_cancel(p);
            }
        }
        quire_queue_close(q);
    }
}

static quire_event checked(quire_queue *q, const char *body) {
    quire_parse *p;
    size_t n = strlen(body);
    char *copy = quire_alloc(n);
    memcpy(copy, body, n);
    assert_int_equal(quire_check_start(q, copy, n, "", q, &p), QUIRE_OK);
    quire_event ev = event_of(q);
    assert_int_equal(ev.kind, QUIRE_EVENT_CHECKED);
    assert_ptr_equal(ev.user, q);
    return ev;
}

/* Whether the report on body has a part. */
static void expect_report(quire_queue *q, const char *body, const char *part) {
    quire_event ev = checked(q, body);
    assert_null(ev.error);
    if (!str_contains((str){ev.text, ev.n_text}, str_of(part))) {
        fail_msg("%s: %.*s", part, (int)ev.n_text, ev.text);
    }
}

TEST(a_check_says_of_every_keyword_what_becomes_of_it) {
    quire_queue *q = queue_new(shared);
    static const char schema[] = "{\"schema\": {\"type\": \"object\", \"title\": \"t\", \"properties\": "
                                 "{\"a\": {\"maxLength\": 3}, \"b\": "
                                 "{\"pattern\": \"(?=x)\"}, \"c\": {\"format\": \"regex\"}}}}";
    expect_report(q, schema,
                  "{\"path\":\"/properties/a\",\"keyword\":\"maxLength\",\"status\":\"enforced\",\"how\":");
    expect_report(q, schema, "\"keyword\":\"title\",\"status\":\"annotation\"");
    expect_report(q, schema,
                  "{\"path\":\"/properties/b\",\"keyword\":\"pattern\",\"status\":\"refused\",\"how\":");
    expect_report(q, schema,
                  "{\"path\":\"/properties/c\",\"keyword\":\"format\",\"status\":\"refused\",\"how\":");
    expect_report(
        q, schema,
        "\"accepted\":false,\"reason\":\"format at \\\"/properties/c\\\" cannot be enforced: this format");
    expect_report(q, schema, "\"enforced\":3,\"annotation\":1,\"refused\":2");
    expect_report(q, "{\"schema\": \"{\\\"type\\\": \\\"null\\\"}\", \"model\": \"m\"}",
                  "\"accepted\":true,\"reason\":null");
    expect_report(
        q,
        "{\"response_format\": {\"type\": \"json_schema\", \"json_schema\": {\"schema\": {\"const\": 1}}}}",
        "\"kind\":\"json_schema\",\"accepted\":true,\"reason\":null,\"additional_properties\":\"closed\","
        "\"keywords\":[{\"path\":"
        "\"\",\"keyword\":\"const\"");
    expect_report(q, "{\"structured_outputs\": {\"regex\": \"a(b\"}}",
                  "\"keywords\":[],\"keywords_cut\":false,\"enforced\":0");
    quire_queue_close(q);
}

TEST(a_check_of_no_rule_is_an_error) {
    static const char *const bodies[][2] = {{"{}", "schema"},
                                            {"[1]", "body"},
                                            {"{\"schema\": 1}", "body.json_schema"},
                                            {"{\"prompt\": 1}", "prompt"},
                                            {"{\"schema\": {}", "body.13"}};
    quire_queue *q = queue_new(shared);
    for (size_t i = 0; i < sizeof bodies / sizeof *bodies; i++) {
        quire_event ev = checked(q, bodies[i][0]);
        assert_non_null(ev.error);
        assert_int_equal(ev.error->code, QUIRE_BAD_REQUEST);
        assert_string_equal(ev.error->param, bodies[i][1]);
    }
    quire_queue_close(q);
}

TEST(a_cancelled_parse_is_never_heard_of_again) {
    quire_queue *q = queue_new(shared);
    int wanted;
    for (int i = 0; i < 200; i++) {
        quire_parse *p = start(q, "{\"prompt\": \"x\"}", NULL);
        if (i % 3 == 0) { /* perhaps it is read already */
            quire_queue_wait(q, 100);
        }
        quire_parse_cancel(p);
    }
    start(q, "{\"prompt\": \"x\"}", &wanted);
    quire_event ev = event_of(q);
    assert_ptr_equal(ev.user, &wanted);
    quire_request_free(ev.request);
    quire_queue_close(q);
}

TEST(a_queue_may_close_while_bodies_are_read) {
    for (int round = 0; round < 20; round++) {
        quire_queue *q = queue_new(shared);
        for (int i = 0; i < round; i++) {
            start(q, i % 2 == 0 ? "{\"prompt\": \"x\"}" : "{", NULL);
        }
        quire_queue_close(q);
    }
}

int main(void) {
    shared = world_open(512, 8);
    int failed = tests_run(NULL, NULL);
    quire_engine_close(shared);
    return failed;
}
