/* Queues and streams through quire.h: what arrives, in which order, and what is left when
 * streams are cancelled, released or closed at any moment. */
#include <pthread.h>

#include "api/api_world.h"
#include "seed.h"

#define GREEDY "\"temperature\": 0, \"ignore_eos\": true"

static quire_engine *shared; /* for tests that leave it idle */

/* ---- text and tokens ---- */

TEST(deltas_make_up_the_text_of_the_tokens) {
    quire_queue *q = queue_new(shared);
    quire_error err = {0};
    for (int i = 0; i < 8; i++) {
        char body[256], *before, *after;
        size_t n_before, n_after;
        response a;
        snprintf(body, sizeof body,
                 "{\"prompt\": \"The prince went\", \"max_tokens\": 48, \"ignore_eos\": true, "
                 "\"temperature\": %s, \"seed\": %d}",
                 i == 0 ? "0" : "1.2", i);
        complete(shared, q, &a, body);
        outcome *c = &a.choices[0];
        assert_int_equal(c->finish, QUIRE_FINISH_LENGTH);
        assert_int_equal(c->n_tokens, 48);
        assert_int_equal(a.completion_tokens, 48);
        assert_int_equal(a.prompt_tokens, c->n_prompt);
        int32_t *prompt, all[128];
        size_t n_prompt;
        assert_int_equal(quire_tokenize(shared, "The prince went", 15, true, &prompt, &n_prompt, &err),
                         QUIRE_OK);
        assert_int_equal(n_prompt, c->n_prompt);
        memcpy(all, prompt, n_prompt * sizeof *all);
        memcpy(all + n_prompt, c->tokens, 48 * sizeof *all);
        assert_int_equal(quire_detokenize(shared, prompt, n_prompt, true, &before, &n_before, &err),
                         QUIRE_OK);
        assert_int_equal(quire_detokenize(shared, all, n_prompt + 48, true, &after, &n_after, &err),
                         QUIRE_OK);
        assert_true(n_before + c->text.n <= n_after); /* an unfinished character at the end is left out */
        assert_true(n_after - n_before - c->text.n < 16);
        assert_memory_equal(c->text.p, after + n_before, c->text.n);
        quire_free(prompt);
        quire_free(before);
        quire_free(after);
        response_clear(&a);
    }
    quire_queue_close(q);
}

TEST(stop_strings_cut_the_text_wherever_tokens_end) {
    quire_queue *q = queue_new(shared);
    response whole;
    complete(shared, q, &whole, "{\"prompt\": \"The prince went\", \"max_tokens\": 48, " GREEDY "}");
    const strbuf *text = &whole.choices[0].text;
    assert_true(text->n > 60);
    for (int i = 0; i < 40; i++) {
        char stop[16], body[256];
        size_t n = 1 + rng_next(&seed) % 12, at = rng_next(&seed) % (text->n - n);
        memcpy(stop, text->p + at, n);
        stop[n] = 0;
        if (strpbrk(stop, "\"\\\n")) {
            continue;
        }
        at = (size_t)(strstr(text->p, stop) - text->p); /* where it comes first */
        for (int include = 0; include < 2; include++) {
            response a;
            snprintf(body, sizeof body,
                     "{\"prompt\": \"The prince went\", \"max_tokens\": 48, " GREEDY
                     ", \"stop\": [\"no such text\", \"%s\"], \"include_stop_str_in_output\": %s}",
                     stop, include ? "true" : "false");
            complete(shared, q, &a, body);
            outcome *c = &a.choices[0];
            size_t shown = at + (include ? n : 0);
            assert_int_equal(c->finish, QUIRE_FINISH_STOP);
            assert_string_equal(c->stop_string, stop);
            assert_int_equal(c->stop_token, -1);
            assert_int_equal(c->text.n, shown);
            assert_memory_equal(c->text.p ? c->text.p : "", text->p, shown);
            assert_true(c->n_tokens > 0 && c->n_tokens <= 48);
            assert_memory_equal(c->tokens, whole.choices[0].tokens, (size_t)c->n_tokens * sizeof(int32_t));
            response_clear(&a);
        }
    }
    response_clear(&whole);
    quire_queue_close(q);
}

TEST(text_held_for_a_stop_string_comes_out_at_the_end) {
    quire_queue *q = queue_new(shared);
    response whole, a;
    char body[256], stop[16];
    complete(shared, q, &whole, "{\"prompt\": \"The prince went\", \"max_tokens\": 20, " GREEDY "}");
    const strbuf *text = &whole.choices[0].text;
    snprintf(stop, sizeof stop, "%s##", text->p + text->n - 3);
    snprintf(body, sizeof body,
             "{\"prompt\": \"The prince went\", \"max_tokens\": 20, " GREEDY ", \"stop\": \"%s\"}", stop);
    complete(shared, q, &a, body);
    assert_int_equal(a.choices[0].finish, QUIRE_FINISH_LENGTH);
    assert_string_equal(a.choices[0].text.p, text->p);
    assert_int_equal(a.choices[0].n_tokens, 20);
    response_clear(&a);
    response_clear(&whole);
    quire_queue_close(q);
}

TEST(stop_strings_do_not_count_before_min_tokens) {
    quire_queue *q = queue_new(shared);
    response a;
    complete(shared, q, &a,
             "{\"prompt\": \"The prince went\", \"max_tokens\": 20, \"min_tokens\": 10, " GREEDY
             ", \"stop\": [\"e\", \"a\", \"o\", \"t\"]}");
    assert_int_equal(a.choices[0].finish, QUIRE_FINISH_STOP);
    assert_true(a.choices[0].n_tokens > 10);
    response_clear(&a);
    quire_queue_close(q);
}

TEST(a_stop_token_is_named_counted_and_not_shown) {
    quire_queue *q = queue_new(shared);
    response whole, a;
    char body[256], *text;
    size_t n;
    quire_error err = {0};
    complete(shared, q, &whole, "{\"prompt\": \"The prince went\", \"max_tokens\": 30, " GREEDY "}");
    const int32_t *tokens = whole.choices[0].tokens;
    int32_t first = 0, id = tokens[12];
    while (tokens[first] != id) {
        first++;
    }
    for (int include = 0; include < 2; include++) {
        snprintf(body, sizeof body,
                 "{\"prompt\": \"The prince went\", \"max_tokens\": 30, " GREEDY
                 ", \"stop_token_ids\": [%d], "
                 "\"include_stop_str_in_output\": %s}",
                 (int)id, include ? "true" : "false");
        complete(shared, q, &a, body);
        outcome *c = &a.choices[0];
        assert_int_equal(c->finish, QUIRE_FINISH_STOP);
        assert_int_equal(c->stop_token, id);
        assert_string_equal(c->stop_string, "");
        assert_int_equal(c->n_tokens, first + 1);
        assert_memory_equal(c->tokens, tokens, (size_t)c->n_tokens * sizeof *tokens);
        assert_int_equal(quire_detokenize(shared, tokens, (size_t)(first + include), true, &text, &n, &err),
                         QUIRE_OK);
        assert_string_equal(c->text.p, text);
        quire_free(text);
        response_clear(&a);
    }
    response_clear(&whole);
    quire_queue_close(q);
}

TEST(the_models_own_end_stops_without_a_name) {
    quire_queue *q = queue_new(shared);
    int32_t eos = quire_engine_info(shared)->eos;
    bool seen = false;
    assert_true(eos >= 0);
    for (int i = 0; i < 200 && !seen; i++) { /* high temperature finds it soon */
        char body[160];
        response a;
        snprintf(body, sizeof body,
                 "{\"prompt\": \"The end.\", \"max_tokens\": 200, \"temperature\": 2, \"seed\": %d}", i);
        complete(shared, q, &a, body);
        outcome *c = &a.choices[0];
        seen = c->finish == QUIRE_FINISH_STOP;
        assert_int_equal(c->tokens[c->n_tokens - 1] == eos, seen);
        assert_int_equal(c->stop_token, -1);
        response_clear(&a);
    }
    assert_true(seen);
    quire_queue_close(q);
}

TEST(prompts_of_one_request_are_answered_as_if_alone) {
    static const char *const prompts[] = {"\"The prince went\"", "\"O Romeo\"",
                                          "\"It was late in the evening when\"", "\"a\""};
    quire_queue *q = queue_new(shared);
    response all;
    int32_t n_prompt = 0;
    complete(shared, q, &all,
             "{\"prompt\": [\"The prince went\", \"O Romeo\", \"It was late in the evening when\", \"a\"], "
             "\"echo\": true, "
             "\"max_tokens\": 20, " GREEDY "}");
    assert_int_equal(all.n_choices, 4);
    for (int i = 0; i < 4; i++) {
        char body[200];
        response one;
        snprintf(body, sizeof body, "{\"prompt\": %s, \"max_tokens\": 20, " GREEDY "}", prompts[i]);
        complete(shared, q, &one, body);
        assert_int_equal(all.choices[i].n_tokens, 20);
        assert_memory_equal(all.choices[i].tokens, one.choices[0].tokens, 20 * sizeof(int32_t));
        assert_string_equal(all.choices[i].text.p, one.choices[0].text.p);
        assert_int_equal(one.choices[0].echo.n, 0);
        assert_memory_equal(all.choices[i].echo.p, prompts[i] + 1, all.choices[i].echo.n);
        assert_int_equal(all.choices[i].echo.n, strlen(prompts[i]) - 2);
        n_prompt += one.prompt_tokens;
        response_clear(&one);
    }
    assert_int_equal(all.prompt_tokens, n_prompt);
    assert_int_equal(all.completion_tokens, 80);
    response_clear(&all);
    quire_queue_close(q);
}

TEST(ids_are_answered_as_their_text) {
    quire_queue *q = queue_new(shared);
    response by_text, by_ids;
    quire_error err = {0};
    int32_t *ids;
    size_t n;
    quire_request *r;
    assert_int_equal(quire_tokenize(shared, "It was late", 11, true, &ids, &n, &err), QUIRE_OK);
    assert_int_equal(quire_request_ids(shared, ids, n, &r, &err), QUIRE_OK);
    assert_int_equal(quire_request_set(r, "max_tokens", "24", &err), QUIRE_OK);
    assert_int_equal(quire_request_set(r, "temperature", "0", &err), QUIRE_OK);
    assert_int_equal(quire_request_set(r, "ignore_eos", "true", &err), QUIRE_OK);
    assert_int_equal(quire_request_set(r, "echo", "true", &err), QUIRE_OK);
    submit_request(q, r, &by_ids);
    wait_done(q, &by_ids);
    quire_stream_release(by_ids.stream);
    complete(shared, q, &by_text, "{\"prompt\": \"It was late\", \"max_tokens\": 24, " GREEDY "}");
    assert_string_equal(by_ids.choices[0].text.p, by_text.choices[0].text.p);
    assert_string_equal(by_ids.choices[0].echo.p, "It was late");
    quire_free(ids);
    response_clear(&by_text);
    response_clear(&by_ids);
    quire_queue_close(q);
}

TEST(logits_are_the_same_bytes_every_time) {
    quire_queue *q = queue_new(shared);
    quire_error err = {0};
    int32_t ids[70], n_vocab = quire_engine_info(shared)->n_vocab;
    size_t n_bytes = 70 * (size_t)n_vocab * sizeof(float);
    float *runs[2];
    for (int i = 0; i < 70; i++) {
        ids[i] = (int32_t)(rng_next(&seed) % (uint64_t)n_vocab);
    }
    for (int k = 0; k < 2; k++) {
        quire_request *r;
        response a, noise;
        runs[k] = mem_new(1, n_bytes);
        memset(runs[k], 0xff, n_bytes); /* NaN: a row that is not written is seen */
        assert_int_equal(quire_request_ids(shared, ids, 70, &r, &err), QUIRE_OK);
        assert_int_equal(quire_request_set(r, "max_tokens", "3", &err), QUIRE_OK);
        assert_int_equal(quire_request_set(r, "ignore_eos", "true", &err), QUIRE_OK);
        quire_request_logits(r, runs[k]);
        submit(shared, q, &noise, "{\"prompt\": \"It was\", \"max_tokens\": 30}");
        submit_request(q, r, &a);
        wait_done(q, &a);
        assert_int_equal(a.finish, QUIRE_FINISH_LENGTH);
        wait_done(q, &noise);
        quire_stream_release(a.stream);
        quire_stream_release(noise.stream);
        response_clear(&a);
        response_clear(&noise);
    }
    assert_memory_equal(runs[0], runs[1], n_bytes);
    for (size_t i = 0; i < 70 * (size_t)n_vocab; i++) {
        assert_true(runs[0][i] == runs[0][i]);
    }
    mem_free(runs[0]);
    mem_free(runs[1]);
    quire_queue_close(q);
}

/* ---- failures after submit ---- */

TEST(a_prompt_that_is_too_long_fails_without_a_start) {
    quire_queue *q = queue_new(shared);
    strbuf body = {0};
    assert_int_equal(strbuf_add_str(&body, "{\"prompt\": [\"short\", \""), QUIRE_OK);
    for (int i = 0; i < 3000; i++) {
        assert_int_equal(strbuf_add_str(&body, "word "), QUIRE_OK);
    }
    assert_int_equal(strbuf_add_str(&body, "\"]}"), QUIRE_OK);
    response a;
    complete(shared, q, &a, body.p);
    assert_int_equal(a.finish, QUIRE_FINISH_ERROR);
    assert_int_equal(a.error.code, QUIRE_BAD_REQUEST);
    assert_int_equal(a.n_started, 0);
    assert_int_equal(a.completion_tokens, 0);
    response_clear(&a);
    strbuf_deinit(&body);
    wait_until_idle(shared);
    quire_queue_close(q);
}

/* The error of a prompt of n words: at_once, when the body is read, or of its stream. */
static quire_error refusal_of(quire_engine *e, quire_endpoint endpoint, bool at_once, const char *head,
                              const char *word, size_t n, const char *tail) {
    quire_queue *q = queue_new(e);
    quire_error err = {0};
    quire_request *r;
    strbuf body = {0};
    response a;
    assert_int_equal(strbuf_add_str(&body, head), QUIRE_OK);
    for (size_t i = 0; i < n; i++) {
        assert_int_equal(strbuf_add_str(&body, word), QUIRE_OK);
    }
    assert_int_equal(strbuf_add_str(&body, tail), QUIRE_OK);
    bool parsed = quire_request_parse(e, endpoint, body.p, body.n, &r, &err) == QUIRE_OK;
    assert_int_equal(parsed, !at_once);
    if (parsed) {
        submit_request(q, r, &a);
        wait_done(q, &a);
        quire_stream_release(a.stream);
        assert_int_equal(a.finish, QUIRE_FINISH_ERROR);
        err = a.error;
        response_clear(&a);
    }
    assert_int_equal(err.code, endpoint == QUIRE_CHAT ? QUIRE_CONTEXT_LENGTH : QUIRE_BAD_REQUEST);
    strbuf_deinit(&body);
    wait_until_idle(e);
    quire_queue_close(q);
    return err;
}

static void expect_count(quire_error err, const char *param, const char *count) {
    assert_string_equal(err.param, param);
    if (strstr(err.message, count) == NULL) {
        fail_msg("\"%s\" does not say \"%s\"", err.message, count);
    }
}

/* The model has 2,048 positions, and its longest token 13 bytes. */
TEST(a_text_that_cannot_fit_is_refused_by_its_length) {
    expect_count(refusal_of(shared, QUIRE_COMPLETIONS, false, "{\"prompt\":\"", "aaaaa", 10400, "\"}"),
                 "input_tokens", "has at least 4000 tokens");
    expect_count(refusal_of(shared, QUIRE_COMPLETIONS, true, "{\"prompt\":\"", "\\u0061", 39000, "\"}"),
                 "input_tokens", "has at least 3000 tokens");
    expect_count(refusal_of(shared, QUIRE_COMPLETIONS, true, "{\"prompt\":[\"a\",\"", "aaaaa", 52000, "\"]}"),
                 "input_tokens", "has at least 3334 tokens");
    expect_count(refusal_of(shared, QUIRE_COMPLETIONS, false, "{\"prompt\":\"", "1 a ", 5000, "\"}"),
                 "input_tokens", "has at least 2049 tokens");
    expect_count(refusal_of(shared, QUIRE_COMPLETIONS, false, "{\"prompt\":[", "5,", 2999, "5]}"),
                 "input_tokens", "has 3000 tokens");
}

TEST(a_chat_that_cannot_fit_names_its_messages) {
    quire_options o;
    quire_engine *e;
    quire_error err = {0};
    quire_options_init(&o);
    o.model = "models/builtin-small.gguf";
    o.chat_template = "{% for m in messages %}{{ m.content }}{% endfor %}";
    o.n_pages = 256;
    o.n_threads = 1;
    assert_int_equal(quire_engine_open(&o, &e, &err), QUIRE_OK);
    const char *head = "{\"messages\":[{\"role\":\"user\",\"content\":\"", *tail = "\"}]}";
    expect_count(refusal_of(e, QUIRE_CHAT, false, head, "aaaaa", 52000, tail), "messages",
                 "has at least 20000 tokens");
    expect_count(refusal_of(e, QUIRE_CHAT, false, head, "1 a ", 5000, tail), "messages",
                 "has at least 2049 tokens");
    quire_engine_close(e);
}

/* Nobody reads until the table of requests is full: then a request of several prompts
 * fails, and nothing that had a place is lost. */
TEST(a_full_engine_is_busy_and_loses_nothing) {
    quire_engine *e = world_open(256, 16); /* 1,024 places */
    quire_queue *q = queue_new(e);
    strbuf body = {0};
    response first, second, third, refused;
    assert_int_equal(strbuf_add_str(&body, "{\"max_tokens\": 1, \"ignore_eos\": true, \"prompt\": [[1]"),
                     QUIRE_OK);
    for (int i = 1; i < 1022; i++) {
        assert_int_equal(strbuf_addf(&body, ", [%d, %d]", i, i), QUIRE_OK);
    }
    assert_int_equal(strbuf_add_str(&body, "]}"), QUIRE_OK);
    submit(e, q, &first, body.p);
    while (stats_of(e).generation_tokens < 1022) {
        sleep_ms(1);
    }
    submit(e, q, &second, "{\"max_tokens\": 200, \"prompt\": [[1], [2], [3], [4]]}");
    while (stats_of(e).generation_tokens < 1024) { /* two of its prompts have the last places */
        sleep_ms(1);
    }
    quire_queue *other = queue_new(e);
    submit(e, other, &refused, "{\"max_tokens\": 2, \"prompt\": [5]}");
    wait_done(other, &refused);
    assert_int_equal(refused.error.code, QUIRE_BUSY);
    wait_done(q, &second);
    submit(e, q, &third, "{\"max_tokens\": 2, \"prompt\": [5]}");
    wait_done(q, &first);
    wait_done(q, &third);
    assert_int_equal(first.finish, QUIRE_FINISH_LENGTH);
    assert_int_equal(first.n_ended, 1022);
    assert_int_equal(first.completion_tokens, 1022);
    assert_int_equal(second.finish, QUIRE_FINISH_ERROR);
    assert_int_equal(second.error.code, QUIRE_BUSY);
    assert_int_equal(second.n_started, 0); /* a server answers with the error's status */
    assert_int_equal(second.n_ended, 2); /* those that found a place ended by themselves, or were cancelled */
    quire_stream_release(first.stream);
    quire_stream_release(second.stream);
    quire_stream_release(third.stream);
    quire_stream_release(refused.stream);
    wait_until_idle(e);
    response_clear(&first);
    response_clear(&second);
    response_clear(&third);
    response_clear(&refused);
    quire_queue_close(other);
    strbuf_deinit(&body);
    quire_queue_close(q);
    quire_engine_close(e);
}

/* ---- progress of prompts ---- */

static quire_progress progress_of(const quire_stream *s, int32_t choice) {
    quire_progress p = {.size = sizeof p};
    assert_int_equal(quire_stream_progress(s, choice, &p), QUIRE_OK);
    return p;
}

TEST(progress_ascends_to_the_whole_prompt_and_comes_before_all_else) {
    quire_options o;
    quire_engine *e;
    quire_error err = {0};
    quire_options_init(&o);
    o.model = "models/builtin-small.gguf";
    o.n_pages = 128;
    o.prefill_chunk = 16;
    assert_int_equal(quire_engine_open(&o, &e, &err), QUIRE_OK);
    quire_queue *q = queue_new(e);
    response a;
    quire_event ev = {0};
    submit(e, q, &a,
           "{\"prompt\": \"The prince had been walking up and down the drawing room for a long time. He "
           "looked at her, and then at the window, and he did not know what he was to say to her now.\", "
           "\"max_tokens\": 3, \"n\": 2, \"ignore_eos\": true, \"return_progress\": true}");
    assert_int_equal(progress_of(a.stream, 1).n_processed, 0);
    for (int32_t last = 0; ev.kind != QUIRE_EVENT_START || last == 0;) {
        next_event(q, &ev);
        take(&ev);
        if (ev.kind == QUIRE_EVENT_PROGRESS) {
            quire_progress p = progress_of(a.stream, 0), of_second = progress_of(a.stream, 1);
            assert_int_equal(ev.choice, 0);
            assert_true(p.n_processed > last && p.n_processed <= p.n_prompt && p.us > 0);
            assert_int_equal(p.n_prompt, ev.prompt_tokens);
            assert_int_equal(p.n_cached, ev.cached_tokens);
            assert_memory_equal(&p, &of_second, sizeof p);
            last = p.n_processed;
        }
    }
    quire_progress p = progress_of(a.stream, 0),
                   small = {.size = offsetof(quire_progress, n_cached), .us = 7};
    assert_int_equal(p.n_processed, p.n_prompt);
    assert_int_equal(quire_stream_progress(a.stream, 0, &small), QUIRE_OK);
    assert_true(small.n_prompt == p.n_prompt && small.us == 7); /* no more than the caller knows */
    assert_int_equal(quire_stream_progress(a.stream, 2, &p), QUIRE_INVALID);
    assert_int_equal(quire_stream_progress(a.stream, -1, &p), QUIRE_INVALID);
    wait_done(q, &a);
    quire_stream_release(a.stream);
    response_clear(&a);
    complete(e, q, &a, "{\"prompt\": \"The prince went\", \"max_tokens\": 2}");
    assert_int_equal(a.n_progress, 0);
    response_clear(&a);
    quire_queue_close(q);
    quire_engine_close(e);
}

/* ---- cancel and release ---- */

TEST(cancel_ends_a_stream_at_every_moment) {
    quire_queue *q = queue_new(shared);
    for (int deltas = -1; deltas < 4; deltas++) {
        response a[12];
        for (int i = 0; i < 12; i++) { /* 8 run at once, the others wait */
            submit(shared, q, &a[i],
                   "{\"prompt\": \"The prince went\", \"max_tokens\": 400, \"ignore_eos\": true}");
            if (deltas < 0) {
                quire_stream_cancel(a[i].stream); /* before it is even tokenised, perhaps */
            }
        }
        while (deltas >= 0 && a[0].n_deltas < deltas) {
            quire_event ev;
            next_event(q, &ev);
            take(&ev);
        }
        for (int i = 0; i < 12; i++) {
            quire_stream_cancel(a[i].stream);
            quire_stream_cancel(a[i].stream); /* twice is once */
        }
        for (int i = 0; i < 12; i++) {
            wait_done(q, &a[i]);
            assert_int_equal(a[i].finish, QUIRE_FINISH_CANCELLED);
            assert_int_equal(a[i].n_started, 1);
            quire_stream_cancel(a[i].stream); /* after the end: nothing */
        }
        wait_until_idle(shared);
        quire_event ev;
        assert_false(quire_queue_next(q, &ev));
        for (int i = 0; i < 12; i++) {
            quire_stream_release(a[i].stream);
            response_clear(&a[i]);
        }
    }
    quire_queue_close(q);
}

static int64_t n_finished(const quire_engine *e) {
    quire_stats s = stats_of(e);
    return s.requests_finished[0] + s.requests_finished[1] + s.requests_finished[2] + s.requests_finished[3];
}

TEST(a_released_stream_is_never_heard_of_again) {
    enum { N = 24 };
    int64_t before = n_finished(shared);
    for (int round = 0; round < 6; round++) {
        quire_queue *q = queue_new(shared);
        response a[N];
        bool released[N] = {false};
        int n_left = N;
        for (int i = 0; i < N; i++) {
            submit(shared, q, &a[i],
                   i % 3 == 0
                       ? "{\"prompt\": [\"The prince\", \"O Romeo\"], \"max_tokens\": 10, \"stop\": [\"e\"]}"
                       : "{\"prompt\": \"The prince went\", \"max_tokens\": 60, \"stop\": [\"o\"]}");
        }
        while (n_left > 0) {
            int k = (int)(rng_next(&seed) % N);
            if (rng_next(&seed) % 6 == 0 && !released[k]) {
                quire_stream_release(a[k].stream);
                released[k] = true;
                n_left--;
                continue;
            }
            quire_event ev;
            if (!quire_queue_next(q, &ev)) {
                quire_queue_wait(q, 1000);
                continue;
            }
            response *mine = ev.user;
            assert_false(released[mine - a]);
            take(&ev);
        }
        quire_queue_close(q); /* waits for those that still run */
        for (int i = 0; i < N; i++) {
            response_clear(&a[i]);
        }
        wait_until_idle(shared);
        /* every choice is counted once, whether its end was heard or not */
        assert_int_equal(n_finished(shared) - before, (round + 1) * (N + N / 3));
    }
}

TEST(a_queue_may_close_while_its_streams_run) {
    for (int round = 0; round < 12; round++) {
        quire_queue *q = queue_new(shared);
        response a[16];
        for (int i = 0; i < 16; i++) {
            submit(shared, q, &a[i],
                   "{\"prompt\": \"The prince went\", \"max_tokens\": 1000, \"ignore_eos\": true}");
        }
        for (uint64_t n = rng_next(&seed) % 40; n > 0 && round % 3 > 0; n--) {
            quire_event ev;
            next_event(q, &ev);
            take(&ev);
        }
        if (round % 3 == 2) {
            quire_stream_release(a[3].stream);
        }
        quire_queue_close(q);
        wait_until_idle(shared);
        for (int i = 0; i < 16; i++) {
            response_clear(&a[i]);
        }
    }
}

TEST(closing_an_engine_at_once_leaves_nothing_behind) {
    for (int i = 0; i < 4; i++) {
        quire_engine *e = world_open(64, 4);
        if (i > 0) {
            quire_queue *q = queue_new(e);
            response a[8];
            for (int k = 0; k < 8 && i > 1; k++) {
                submit(e, q, &a[k], "{\"prompt\": \"The prince went\", \"max_tokens\": 500}");
            }
            if (i == 3) {
                quire_event ev;
                next_event(q, &ev);
                take(&ev);
            }
            quire_queue_close(q);
            for (int k = 0; k < 8 && i > 1; k++) {
                response_clear(&a[k]);
            }
        }
        quire_engine_close(e);
    }
    quire_engine_close(NULL);
    quire_queue_close(NULL);
}

/* ---- many at once ---- */

TEST(sixty_four_at_once_are_each_as_alone) {
    enum { N = 64 };
    quire_engine *e = world_open(128, 64); /* pages for some 2,000 tokens: not all fit */
    quire_queue *q = queue_new(e);
    static response together[N];
    char body[N][200];
    for (int i = 0; i < N; i++) {
        snprintf(body[i], sizeof body[i],
                 "{\"prompt\": \"The %.*s prince number %d went\", \"max_tokens\": 24, \"temperature\": %s, "
                 "\"seed\": %d}",
                 1 + i % 20, "old good grey young proud", i, i % 2 ? "0.8" : "0", i);
        submit(e, q, &together[i], body[i]);
    }
    for (int i = 0; i < N; i++) {
        wait_done(q, &together[i]);
    }
    for (int i = 0; i < N; i++) {
        response alone;
        complete(e, q, &alone, body[i]);
        assert_int_equal(together[i].choices[0].n_tokens, alone.choices[0].n_tokens);
        assert_memory_equal(together[i].choices[0].tokens, alone.choices[0].tokens,
                            (size_t)alone.choices[0].n_tokens * sizeof(int32_t));
        assert_string_equal(together[i].choices[0].text.p, alone.choices[0].text.p);
        response_clear(&alone);
        quire_stream_release(together[i].stream);
        response_clear(&together[i]);
    }
    wait_until_idle(e);
    quire_queue_close(q);
    quire_engine_close(e);
}

typedef struct client {
    quire_engine *e;
    pthread_t thread;
    uint64_t state;
    int64_t n_choices;
} client;

/* Opens and closes queues, submits, cancels, releases, as chance has it. Assertions are
 * the main thread's: a failure here aborts. */
static void *client_main(void *arg) {
    client *c = arg;
    for (int round = 0; round < 3; round++) {
        quire_queue *q = queue_new(c->e);
        response a[10];
        for (int i = 0; i < 10; i++) {
            submit(c->e, q, &a[i],
                   i % 4 == 0
                       ? "{\"prompt\": [\"The prince\", \"O Romeo\"], \"max_tokens\": 12, \"stop\": [\"th\"]}"
                       : "{\"prompt\": \"It was late\", \"max_tokens\": 20}");
            c->n_choices += a[i].n_choices;
            if (rng_next(&c->state) % 5 == 0) {
                quire_stream_cancel(a[i].stream);
            }
        }
        for (int i = 0; i < 10 && round < 2; i++) {
            wait_done(q, &a[i]);
            quire_stream_release(a[i].stream);
        }
        quire_queue_close(q);
        for (int i = 0; i < 10; i++) {
            response_clear(&a[i]);
        }
    }
    return NULL;
}

TEST(threads_with_queues_of_their_own_share_an_engine) {
    quire_engine *e = world_open(64, 8);
    client clients[4];
    int64_t n = 0;
    for (int i = 0; i < 4; i++) {
        clients[i] = (client){.e = e, .state = rng_next(&seed)};
        assert_int_equal(pthread_create(&clients[i].thread, NULL, client_main, &clients[i]), 0);
    }
    for (int i = 0; i < 4; i++) {
        pthread_join(clients[i].thread, NULL);
        n += clients[i].n_choices;
    }
    wait_until_idle(e);
    assert_int_equal(n_finished(e), n);
    quire_engine_close(e);
}

TEST(the_engines_numbers_add_up) {
    quire_engine *e = world_open(256, 8);
    quire_queue *q = queue_new(e);
    int64_t n_prompt = 0, n_completion = 0;
    for (int i = 0; i < 5; i++) {
        response a;
        complete(e, q, &a,
                 "{\"prompt\": [\"The prince went\", \"O Romeo\"], \"max_tokens\": 10, " GREEDY "}");
        n_prompt += a.prompt_tokens;
        n_completion += a.completion_tokens;
        response_clear(&a);
    }
    wait_until_idle(e);
    quire_stats s = stats_of(e);
    assert_int_equal(s.prompt_tokens, n_prompt);
    assert_int_equal(s.generation_tokens, n_completion);
    assert_int_equal(s.requests_finished[QUIRE_FINISH_LENGTH - 1], 10);
    assert_int_equal(n_finished(e), 10);
    const quire_histogram *h = s.histograms;
    for (int i = 0; i < QUIRE_N_REQUEST_HISTOGRAMS; i++) {
        assert_int_equal(h[i].count, 10);
    }
    assert_int_equal(h[QUIRE_HISTOGRAM_TOKEN_GAP].count, n_completion - 10);
    assert_int_equal(h[QUIRE_HISTOGRAM_STEP_TOKENS].count, s.steps);
    assert_int_equal(h[QUIRE_HISTOGRAM_STEP_TOKENS].sum, s.step_rows);
    assert_int_equal(h[QUIRE_HISTOGRAM_PROMPT_TOKENS].sum, n_prompt);
    assert_int_equal(h[QUIRE_HISTOGRAM_COMPUTED_TOKENS].sum, n_prompt - s.prompt_tokens_cached);
    assert_int_equal(h[QUIRE_HISTOGRAM_COMPLETION_TOKENS].sum, n_completion);
    assert_int_equal(h[QUIRE_HISTOGRAM_MAX_TOKENS].sum, 100);
    assert_int_equal(h[QUIRE_HISTOGRAM_LONGEST].sum, n_completion);
    assert_int_equal(h[QUIRE_HISTOGRAM_SAMPLES].sum, 10);
    assert_int_equal(h[QUIRE_HISTOGRAM_INFERENCE].sum,
                     h[QUIRE_HISTOGRAM_PREFILL].sum + h[QUIRE_HISTOGRAM_DECODE].sum);
    assert_true(h[QUIRE_HISTOGRAM_E2E].sum >=
                h[QUIRE_HISTOGRAM_QUEUE].sum + h[QUIRE_HISTOGRAM_INFERENCE].sum);
    assert_true(h[QUIRE_HISTOGRAM_E2E].sum >= h[QUIRE_HISTOGRAM_FIRST_TOKEN].sum &&
                h[QUIRE_HISTOGRAM_FIRST_TOKEN].sum > 0);
    assert_true(s.prompt_tokens_cached > 0 && s.steps > 0 && s.step_rows >= n_completion && s.step_us > 0);
    assert_true(quire_engine_healthy(e));
    quire_queue_close(q);
    quire_engine_close(e);
}

ENGINE_FIXTURES(shared, 512, 8)
TEST_MAIN_SEEDED(open_shared, close_shared)
