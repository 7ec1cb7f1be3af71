/* Requests that end with their prompts: their events, in order, and nothing of the
 * engine. */
#include "api/api_world.h"

static quire_engine *shared;

static quire_stream *start(quire_queue *q, quire_endpoint endpoint, const char *body) {
    quire_request *r;
    quire_stream *s;
    quire_error err = {0};
    if (quire_request_parse(shared, endpoint, body, strlen(body), &r, &err) != QUIRE_OK ||
        quire_submit(q, r, NULL, &s, &err) != QUIRE_OK) {
        fail_msg("%s: %s", body, err.message);
    }
    return s;
}

static quire_event expect_next(quire_queue *q, quire_event_kind kind, int32_t choice) {
    quire_event ev = event_of(q);
    assert_int_equal(ev.kind, kind);
    assert_int_equal(ev.choice, choice);
    return ev;
}

TEST(a_text_has_its_ids_and_no_tokens) {
    quire_queue *q = queue_new(shared);
    quire_error err;
    int32_t *ids;
    size_t n;
    quire_stream *s = start(q, QUIRE_TOKENIZE, "{\"prompt\": \"The prince went\"}");
    quire_event ev = expect_next(q, QUIRE_EVENT_START, 0);
    assert_int_equal(quire_tokenize(shared, "The prince went", 15, true, &ids, &n, &err), QUIRE_OK);
    assert_int_equal(ev.n_tokens, n);
    assert_memory_equal(ev.tokens, ids, n * sizeof *ids);
    (void)expect_next(q, QUIRE_EVENT_END, 0);
    ev = expect_next(q, QUIRE_EVENT_DONE, 0);
    assert_true(ev.finish == QUIRE_FINISH_STOP && ev.completion_tokens == 0 && ev.error == NULL);
    quire_free(ids);
    quire_stream_release(s);
    quire_queue_close(q);
}

TEST(prompts_end_in_their_order) {
    quire_queue *q = queue_new(shared);
    quire_stream *s = start(q, QUIRE_COMPLETIONS_RENDER, "{\"prompt\": [[1, 2], [3], [4, 5, 6]], \"n\": 2}");
    static const int32_t lengths[] = {2, 1, 3};
    for (int32_t i = 0; i < 3; i++) {
        assert_int_equal(expect_next(q, QUIRE_EVENT_START, i).n_tokens, lengths[i]);
        (void)expect_next(q, QUIRE_EVENT_END, i);
    }
    assert_int_equal(expect_next(q, QUIRE_EVENT_DONE, 0).prompt_tokens, 6);
    quire_stream_release(s);
    quire_queue_close(q);
}

TEST(ids_have_their_text) {
    quire_queue *q = queue_new(shared);
    quire_error err;
    int32_t *ids;
    size_t n;
    char body[512];
    int at = snprintf(body, sizeof body, "{\"tokens\": [");
    assert_int_equal(quire_tokenize(shared, "The prince went", 15, false, &ids, &n, &err), QUIRE_OK);
    for (size_t i = 0; i < n; i++) {
        at += snprintf(body + at, sizeof body - (size_t)at, "%s%d", i > 0 ? "," : "", (int)ids[i]);
    }
    snprintf(body + at, sizeof body - (size_t)at, "]}");
    quire_stream *s = start(q, QUIRE_DETOKENIZE, body);
    quire_event ev = expect_next(q, QUIRE_EVENT_START, 0);
    assert_int_equal(ev.n_text, 15);
    assert_memory_equal(ev.text, "The prince went", 15);
    quire_free(ids);
    quire_stream_release(s);
    quire_queue_close(q);
}

TEST(a_prompt_that_cannot_be_rendered_fails_alone) {
    quire_queue *q = queue_new(shared);
    quire_stream *s =
        start(q, QUIRE_COMPLETIONS_RENDER, "{\"prompt\": \"x\", \"truncate_prompt_tokens\": 0}");
    quire_event ev = event_of(q);
    assert_int_equal(ev.kind, QUIRE_EVENT_DONE);
    assert_int_equal(ev.error->code, QUIRE_BAD_REQUEST);
    quire_stream_release(s);
    s = start(q, QUIRE_COMPLETIONS_RENDER, "{\"prompt\": [[1], [2, 3]]}");
    (void)expect_next(q, QUIRE_EVENT_START, 0);
    quire_stream_release(s); /* between two events */
    quire_queue_close(q);
}

TEST(released_and_closed_at_once_nothing_is_left) {
    for (int i = 0; i < 20; i++) {
        quire_queue *q = queue_new(shared);
        quire_stream *s = start(q, QUIRE_TOKENIZE, "{\"prompt\": \"The prince went\"}");
        if (i % 2 == 0) {
            quire_stream_release(s);
        }
        quire_queue_close(q);
    }
}

int main(void) {
    shared = world_open(64, 4);
    int failed = tests_run(NULL, NULL);
    quire_engine_close(shared);
    return failed;
}
