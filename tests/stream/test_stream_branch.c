/* Forks, rollbacks and steers through quire.h: what is given out, what stands, and what
 * is refused. */
#include "api/api_world.h"

#define PROMPT "\"prompt\": \"The prince went\", \"max_tokens\": 60, \"ignore_eos\": true"

static quire_engine *e;

static void same_response(const outcome *a, const outcome *b) {
    assert_int_equal(a->n_tokens, b->n_tokens);
    assert_memory_equal(a->tokens, b->tokens, (size_t)a->n_tokens * sizeof *a->tokens);
    assert_int_equal(a->text.n, b->text.n);
    assert_memory_equal(a->text.p, b->text.p, a->text.n);
    assert_int_equal(a->finish, b->finish);
}

static void rollback(response *a, int32_t i, int32_t position, const char *fields) {
    quire_error err = {0};
    if (quire_stream_rollback(a->stream, i, position, fields, fields ? strlen(fields) : 0, &err) !=
        QUIRE_OK) {
        fail_msg("%s", err.message);
    }
}

static int32_t prompt_tokens(quire_queue *q, const char *body) {
    response a;
    complete(e, q, &a, body);
    int32_t n = a.prompt_tokens;
    response_clear(&a);
    return n;
}

/* Text, stop strings, penalties, mirostat: all go on as if nothing had been. */
TEST(what_was_rolled_back_is_said_again) {
    static const char *const bodies[] = {
        "{" PROMPT ", \"temperature\": 0}",
        "{" PROMPT ", \"seed\": 4, \"temperature\": 1.2, \"repetition_penalty\": 1.2, \"min_tokens\": 30}",
        "{" PROMPT ", \"seed\": 9, \"mirostat\": 2, \"mirostat_tau\": 4, \"stop\": [\"zqzq\", \"the prince "
        "had never been seen\"]}",
        "{" PROMPT ", \"seed\": 9, \"logprobs\": 2, \"bad_words\": [\"the\"], \"logit_bias\": {\"40\": 3}}",
    };
    for (size_t i = 0; i < sizeof bodies / sizeof *bodies; i++) {
        quire_queue *q = queue_new(e);
        response plain, a;
        complete(e, q, &plain, bodies[i]);
        submit(e, q, &a, bodies[i]);
        for (int32_t n = 40; n > 0; n -= 13) {
            read_to(q, &a, 0, n);
            rollback(&a, 0, plain.prompt_tokens + n / 3, NULL);
            read_command(q, &a, a.n_rollbacks + 1);
            assert_int_equal(a.n_refused, 0);
            assert_int_equal(a.choices[0].n_tokens, n / 3);
        }
        wait_done(q, &a);
        quire_stream_release(a.stream);
        same_response(&a.choices[0], &plain.choices[0]);
        assert_int_equal(a.completion_tokens, plain.completion_tokens);
        assert_int_equal(a.prompt_tokens, plain.prompt_tokens);
        response_clear(&a);
        response_clear(&plain);
        quire_queue_close(q);
    }
    wait_until_idle(e);
}

TEST(a_rollback_with_other_fields_says_what_those_say) {
    quire_queue *q = queue_new(e);
    response plain, a, other;
    complete(e, q, &plain, "{" PROMPT ", \"seed\": 4}");
    complete(e, q, &other,
             "{\"prompt\": \"The prince went\", \"ignore_eos\": true, \"seed\": 5, \"max_tokens\": 50}");
    submit(e, q, &a, "{" PROMPT ", \"seed\": 4}");
    read_to(q, &a, 0, 20);
    rollback(&a, 0, plain.prompt_tokens, "{\"seed\": 5, \"max_tokens\": 50}");
    wait_done(q, &a);
    quire_stream_release(a.stream);
    assert_int_equal(a.n_rollbacks, 1);
    same_response(&a.choices[0], &other.choices[0]);
    assert_memory_not_equal(plain.choices[0].tokens, other.choices[0].tokens, 50 * sizeof(int32_t));
    response_clear(&a);
    response_clear(&plain);
    response_clear(&other);
    quire_queue_close(q);
    wait_until_idle(e);
}

TEST(a_steered_answer_says_the_given_text_and_goes_on) {
    quire_queue *q = queue_new(e);
    response a, fresh;
    quire_error err = {0};
    int32_t n_prompt = prompt_tokens(q, "{\"prompt\": \"The prince went\", \"max_tokens\": 1}");
    submit(e, q, &a, "{" PROMPT ", \"temperature\": 0}");
    read_to(q, &a, 0, 25);
    static const char text[] = " But the old count said nothing, for";
    quire_tail tail = {.text = text, .n_text = sizeof text - 1};
    assert_int_equal(quire_stream_steer(a.stream, 0, n_prompt + 6, &tail, NULL, 0, &err), QUIRE_OK);
    read_command(q, &a, 1);
    size_t at = a.choices[0].text.n;
    assert_int_equal(a.choices[0].n_tokens, 6);
    wait_done(q, &a);
    quire_stream_release(a.stream);
    outcome *c = &a.choices[0];
    assert_int_equal(c->n_tokens, 60);
    assert_memory_equal(c->text.p + at, text, sizeof text - 1);
    /* the same from a fresh request of those ids */
    int32_t ids[128], *prompt, *given;
    size_t n, n_given;
    assert_int_equal(quire_tokenize(e, "The prince went", 15, true, &prompt, &n, &err), QUIRE_OK);
    assert_int_equal(quire_tokenize(e, text, sizeof text - 1, false, &given, &n_given, &err), QUIRE_OK);
    memcpy(ids, prompt, n * sizeof *ids);
    memcpy(ids + n, c->tokens, (6 + n_given) * sizeof *ids);
    assert_memory_equal(c->tokens + 6, given, n_given * sizeof *given);
    quire_request *r;
    char most[16];
    snprintf(most, sizeof most, "%d", (int)(60 - 6 - n_given));
    assert_int_equal(quire_request_ids(e, ids, n + 6 + n_given, &r, &err), QUIRE_OK);
    assert_int_equal(quire_request_set(r, "temperature", "0", &err), QUIRE_OK);
    assert_int_equal(quire_request_set(r, "ignore_eos", "true", &err), QUIRE_OK);
    assert_int_equal(quire_request_set(r, "max_tokens", most, &err), QUIRE_OK);
    submit_request(q, r, &fresh);
    wait_done(q, &fresh);
    quire_stream_release(fresh.stream);
    assert_memory_equal(fresh.choices[0].tokens, c->tokens + 6 + n_given,
                        (size_t)fresh.choices[0].n_tokens * sizeof *ids);
    assert_int_equal(fresh.choices[0].n_tokens, (int32_t)(60 - 6 - n_given));
    quire_free(prompt);
    quire_free(given);
    /* ids, at the place where it stands; a stop string in them ends it */
    response_clear(&a);
    submit(e, q, &a, "{" PROMPT ", \"temperature\": 0, \"stop\": \"old count\"}");
    read_to(q, &a, 0, 3);
    assert_int_equal(quire_stream_steer(a.stream, 0, QUIRE_HERE, &tail, NULL, 0, &err), QUIRE_OK);
    wait_done(q, &a);
    quire_stream_release(a.stream);
    assert_int_equal(a.choices[0].finish, QUIRE_FINISH_STOP);
    assert_string_equal(a.choices[0].stop_string, "old count");
    response_clear(&a);
    response_clear(&fresh);
    quire_queue_close(q);
    wait_until_idle(e);
}

static quire_request *fork_of(response *a, int32_t i, int32_t position) {
    quire_request *r;
    quire_error err = {0};
    if (quire_stream_fork(a->stream, i, position, &r, &err) != QUIRE_OK) {
        fail_msg("%s", err.message);
    }
    return r;
}

TEST(a_fork_says_what_follows_its_position) {
    quire_queue *q = queue_new(e), *other = queue_new(e);
    response plain, a, same, own, again;
    quire_error err = {0};
    complete(e, q, &plain, "{" PROMPT ", \"seed\": 4, \"frequency_penalty\": 0.5}");
    submit(e, q, &a, "{" PROMPT ", \"seed\": 4, \"frequency_penalty\": 0.5}");
    read_to(q, &a, 0, 30);
    quire_request *r = fork_of(&a, 0, plain.prompt_tokens + 17),
                  *second = fork_of(&a, 0, plain.prompt_tokens + 17);
    assert_int_equal(quire_request_set(r, "seed", "4", &err), QUIRE_OK);
    submit_request(other, r, &same); /* on another queue */
    submit_request(q, second, &own);
    wait_done(other, &same);
    wait_done(q, &a);
    wait_done(q, &own);
    same_response(&a.choices[0], &plain.choices[0]);
    const outcome *c = &same.choices[0];
    assert_int_equal(same.prompt_tokens, plain.prompt_tokens + 17);
    assert_int_equal(c->n_tokens, 60 - 17);
    assert_memory_equal(c->tokens, plain.choices[0].tokens + 17, (size_t)c->n_tokens * sizeof *c->tokens);
    assert_memory_equal(c->text.p, plain.choices[0].text.p + plain.choices[0].text.n - c->text.n, c->text.n);
    assert_int_equal(own.choices[0].n_tokens, 60 - 17);
    assert_memory_not_equal(own.choices[0].tokens, c->tokens, (size_t)c->n_tokens * sizeof *c->tokens);
    quire_stream_release(same.stream);
    quire_stream_release(own.stream);
    quire_stream_release(a.stream);
    response_clear(&same);
    response_clear(&a);
    /* a fork of a fork, rolled back; and a request that outlives its stream */
    submit(e, q, &a, "{" PROMPT ", \"seed\": 4, \"frequency_penalty\": 0.5}");
    read_to(q, &a, 0, 30);
    submit_request(q, fork_of(&a, 0, QUIRE_HERE), &again);
    read_to(q, &again, 0, 10);
    r = fork_of(&again, 0, plain.prompt_tokens + 30 + 5);
    static const char fields[] = "{\"seed\": 4, \"max_tokens\": 3, \"n\": 2}";
    assert_int_equal(quire_request_set_all(r, fields, sizeof fields - 1, &err), QUIRE_OK);
    rollback(&again, 0, plain.prompt_tokens + 30, "{\"seed\": 4}");
    wait_done(q, &again);
    assert_memory_equal(again.choices[0].tokens, plain.choices[0].tokens + 30, 30 * sizeof(int32_t));
    quire_stream_release(again.stream);
    wait_done(q, &a);
    quire_stream_release(a.stream);
    submit_request(q, r, &same);
    wait_done(q, &same);
    assert_int_equal(same.n_choices, 2);
    assert_int_equal(same.choices[0].n_tokens, 3);
    assert_int_equal(same.choices[1].n_tokens, 3);
    quire_stream_release(same.stream);
    quire_request_free(NULL);
    response_clear(&a);
    response_clear(&again);
    response_clear(&same);
    response_clear(&own);
    response_clear(&plain);
    quire_queue_close(other);
    quire_queue_close(q);
    wait_until_idle(e);
}

/* Token 40 would come first and end the answer; min_tokens holds it back for as many
 * tokens as without a branch. */
TEST(the_least_length_counts_from_where_the_answer_began) {
    static const char body[] =
        "{\"prompt\": \"The prince went\", \"max_tokens\": 60, \"temperature\": 0, \"ignore_eos\": true, "
        "\"min_tokens\": 30, \"stop_token_ids\": [40], \"logit_bias\": {\"40\": 100}}";
    quire_queue *q = queue_new(e);
    response plain, a, forked;
    complete(e, q, &plain, body);
    const outcome *whole = &plain.choices[0];
    assert_int_equal(whole->finish, QUIRE_FINISH_STOP);
    assert_in_range(whole->n_tokens, 30, 31); /* the stop token may be shown */
    submit(e, q, &a, body);
    read_to(q, &a, 0, 12);
    submit_request(q, fork_of(&a, 0, plain.prompt_tokens + 10), &forked);
    read_to(q, &forked, 0, 8);
    rollback(&forked, 0, plain.prompt_tokens + 15, NULL);
    wait_done(q, &forked);
    wait_done(q, &a);
    assert_int_equal(forked.n_rollbacks, 1);
    assert_int_equal(forked.choices[0].n_tokens, whole->n_tokens - 10);
    assert_memory_equal(forked.choices[0].tokens, whole->tokens + 10,
                        (size_t)forked.choices[0].n_tokens * sizeof *whole->tokens);
    same_response(&a.choices[0], whole);
    quire_stream_release(forked.stream);
    /* a fork that nothing rolls back */
    quire_stream_release(a.stream);
    response_clear(&a);
    response_clear(&forked);
    submit(e, q, &a, body);
    read_to(q, &a, 0, 12);
    submit_request(q, fork_of(&a, 0, plain.prompt_tokens + 10), &forked);
    wait_done(q, &forked);
    assert_int_equal(forked.choices[0].n_tokens, whole->n_tokens - 10);
    wait_done(q, &a);
    quire_stream_release(forked.stream);
    quire_stream_release(a.stream);
    response_clear(&a);
    response_clear(&forked);
    response_clear(&plain);
    quire_queue_close(q);
    wait_until_idle(e);
}

TEST(a_fork_may_be_dropped_unused) {
    quire_queue *q = queue_new(e);
    response a;
    submit(e, q, &a, "{" PROMPT "}");
    read_to(q, &a, 0, 3);
    quire_request *r = fork_of(&a, 0, QUIRE_HERE);
    quire_stream_release(a.stream);
    quire_queue_close(q);
    wait_until_idle(e);
    quire_request_free(r);
    response_clear(&a);
}

TEST(a_fork_is_refused_by_another_engine) {
    quire_engine *far = world_open(200, 4);
    quire_queue *q = queue_new(e), *far_queue = queue_new(far);
    response a;
    quire_stream *s;
    quire_error err = {0};
    submit(e, q, &a, "{" PROMPT "}");
    read_to(q, &a, 0, 3);
    assert_int_equal(quire_submit(far_queue, fork_of(&a, 0, QUIRE_HERE), NULL, &s, &err), QUIRE_INVALID);
    assert_null(s);
    assert_non_null(strstr(err.message, "another engine"));
    quire_stream_release(a.stream);
    quire_queue_close(q);
    quire_queue_close(far_queue);
    quire_engine_close(far);
    wait_until_idle(e);
    response_clear(&a);
}

TEST(choices_are_named_by_index) {
    quire_queue *q = queue_new(e);
    response plain, a;
    static const char body[] = "{" PROMPT ", \"seed\": 8, \"n\": 3}";
    complete(e, q, &plain, body);
    submit(e, q, &a, body);
    read_to(q, &a, 2, 20);
    rollback(&a, 2, plain.prompt_tokens + 4, NULL);
    read_to(q, &a, 1, 8);
    rollback(&a, 1, plain.prompt_tokens, NULL);
    wait_done(q, &a);
    quire_stream_release(a.stream);
    assert_int_equal(a.n_rollbacks, 2);
    for (int i = 0; i < 3; i++) {
        same_response(&a.choices[i], &plain.choices[i]);
    }
    response_clear(&a);
    response_clear(&plain);
    quire_queue_close(q);
}

/* Samples of one prompt go on by the seed that they were given, where the request has
 * none. */
TEST(samples_without_a_seed_say_again_what_they_said) {
    quire_queue *q = queue_new(e);
    response a;
    int32_t said[20], n_prompt = prompt_tokens(q, "{\"prompt\": \"The prince went\", \"max_tokens\": 1}");
    submit(e, q, &a,
           "{\"prompt\": \"The prince went\", \"max_tokens\": 300, \"ignore_eos\": true, \"n\": 2}");
    read_to(q, &a, 1, 20);
    memcpy(said, a.choices[1].tokens, sizeof said);
    rollback(&a, 1, n_prompt, NULL);
    read_command(q, &a, 1);
    assert_int_equal(a.choices[1].n_tokens, 0);
    read_to(q, &a, 1, 20);
    assert_memory_equal(a.choices[1].tokens, said, sizeof said);
    wait_done(q, &a);
    quire_stream_release(a.stream);
    response_clear(&a);
    quire_queue_close(q);
    wait_until_idle(e);
}

TEST(what_cannot_be_is_refused_and_changes_nothing) {
    quire_queue *q = queue_new(e);
    response plain, a;
    quire_error err = {0};
    quire_request *r;
    complete(e, q, &plain, "{" PROMPT ", \"seed\": 4}");
    int32_t n = plain.prompt_tokens;
    submit(e, q, &a, "{" PROMPT ", \"seed\": 4}");
    read_to(q, &a, 0, 5);
    quire_stream *s = a.stream;
    assert_int_equal(quire_stream_fork(s, 1, n, &r, &err), QUIRE_BAD_REQUEST);
    assert_string_equal(err.param, "index");
    assert_int_equal(quire_stream_fork(s, 0, n - 1, &r, &err), QUIRE_BAD_REQUEST);
    assert_string_equal(err.param, "position");
    assert_null(r);
    assert_int_equal(quire_stream_rollback(s, 0, n + 6, NULL, 0, &err), QUIRE_BAD_REQUEST);
    assert_int_equal(quire_stream_rollback(s, 0, -2, NULL, 0, &err), QUIRE_BAD_REQUEST);
    assert_int_equal(quire_stream_rollback(s, 0, n, "{\"stop\": \"x\"}", 13, &err), QUIRE_BAD_REQUEST);
    assert_string_equal(err.param, "stop");
    assert_int_equal(quire_stream_rollback(s, 0, n, "{\"top_p\": 7}", 12, &err), QUIRE_BAD_REQUEST);
    static const char *const bounds[][2] = {{"{\"min_tokens\": 2147483647}", "min_tokens"},
                                            {"{\"max_tokens\": 40, \"min_tokens\": 41}", "min_tokens"}};
    for (size_t i = 0; i < sizeof bounds / sizeof *bounds; i++) {
        assert_int_equal(quire_stream_rollback(s, 0, n, bounds[i][0], strlen(bounds[i][0]), &err),
                         QUIRE_BAD_REQUEST);
        assert_string_equal(err.param, bounds[i][1]);
    }
    assert_int_equal(quire_stream_rollback(s, 0, n, "[]", 2, &err), QUIRE_BAD_REQUEST);
    assert_int_equal(quire_stream_rollback(s, 0, n, "{", 1, &err), QUIRE_BAD_REQUEST);
    int32_t bad = 1 << 30;
    quire_tail tail = {.ids = &bad, .n_ids = 1};
    assert_int_equal(quire_stream_steer(s, 0, n, &tail, NULL, 0, &err), QUIRE_BAD_REQUEST);
    assert_string_equal(err.param, "tokens");
    /* two at once */
    rollback(&a, 0, n + 2, NULL);
    assert_int_equal(quire_stream_rollback(s, 0, n, NULL, 0, &err), QUIRE_BUSY);
    read_command(q, &a, 1);
    /* no room for what is given: known when it is done */
    static int32_t many[3000];
    tail = (quire_tail){.ids = many, .n_ids = 3000};
    read_to(q, &a, 0, 4);
    assert_int_equal(quire_stream_steer(s, 0, n + 3, &tail, NULL, 0, &err), QUIRE_OK);
    wait_done(q, &a);
    assert_int_equal(a.n_refused, 1);
    assert_int_equal(a.n_rollbacks, 1);
    same_response(&a.choices[0], &plain.choices[0]);
    /* whose END was given out */
    assert_int_equal(quire_stream_fork(s, 0, n, &r, &err), QUIRE_NOT_FOUND);
    assert_int_equal(quire_stream_rollback(s, 0, n, NULL, 0, &err), QUIRE_NOT_FOUND);
    quire_stream_release(s);
    response_clear(&a);
    submit(e, q, &a,
           "{\"prompt\": \"The prince went\", \"n\": 1, \"best_of\": 2, \"max_tokens\": 50, \"ignore_eos\": "
           "true}");
    read_to(q, &a, 0, 2);
    assert_int_equal(quire_stream_rollback(a.stream, 0, n, NULL, 0, &err), QUIRE_BAD_REQUEST);
    wait_done(q, &a);
    quire_stream_release(a.stream);
    response_clear(&a);
    submit(e, q, &a,
           "{\"prompt\": \"The prince went\", \"beam_width\": 2, \"max_tokens\": 50, \"ignore_eos\": true}");
    sleep_ms(5);
    quire_event ev;
    next_event(q, &ev);
    take(&ev);
    assert_int_equal(quire_stream_rollback(a.stream, 0, QUIRE_HERE, NULL, 0, &err), QUIRE_BAD_REQUEST);
    assert_string_equal(err.param, "beam_width");
    assert_int_equal(quire_stream_fork(a.stream, 0, QUIRE_HERE, &r, &err), QUIRE_BAD_REQUEST);
    wait_done(q, &a);
    quire_stream_release(a.stream);
    response_clear(&a);
    /* a fork has its prompt already, and samples */
    submit(e, q, &a, "{" PROMPT "}");
    read_to(q, &a, 0, 2);
    r = fork_of(&a, 0, n);
    assert_int_equal(quire_request_set_all(r, "{\"prompt\": \"x\"}", 15, &err), QUIRE_BAD_REQUEST);
    assert_string_equal(err.param, "prompt");
    quire_request_free(r);
    r = fork_of(&a, 0, n);
    assert_int_equal(quire_request_set(r, "beam_width", "2", &err), QUIRE_OK);
    quire_stream *none;
    assert_int_equal(quire_submit(q, r, NULL, &none, &err), QUIRE_BAD_REQUEST);
    assert_string_equal(err.param, "beam_width");
    wait_done(q, &a);
    quire_stream_release(a.stream);
    response_clear(&a);
    response_clear(&plain);
    quire_queue_close(q);
    wait_until_idle(e);
}

/* Submits a fork of a running response, which has the given fields beside PROMPT, with
 * fields of its own; the name of the field it is refused by, or "". */
static void expect_fork(const char *fields, const char *own, const char *refused) {
    quire_queue *q = queue_new(e);
    response a, forked = {.n_choices = 1, .choices = mem_new(1, sizeof(outcome))};
    quire_error err = {0};
    char body[200];
    snprintf(body, sizeof body, "{" PROMPT ", \"seed\": 4%s}", fields);
    submit(e, q, &a, body);
    read_to(q, &a, 0, 2);
    quire_request *r = fork_of(&a, 0, QUIRE_HERE);
    assert_int_equal(quire_request_set_all(r, own, strlen(own), &err), QUIRE_OK);
    assert_int_equal(quire_submit(q, r, &forked, &forked.stream, &err),
                     refused[0] != 0 ? QUIRE_BAD_REQUEST : QUIRE_OK);
    assert_string_equal(err.param, refused);
    if (refused[0] == 0) {
        wait_done(q, &forked);
        assert_int_equal(forked.error.code, QUIRE_OK);
        quire_stream_release(forked.stream);
    }
    response_clear(&forked);
    wait_done(q, &a);
    quire_stream_release(a.stream);
    response_clear(&a);
    quire_queue_close(q);
    wait_until_idle(e);
}

/* A fork does not compute what stands before it, so all that would need it is refused by
 * the name of a field, whether that was asked for or inherited. */
TEST(a_fork_reports_nothing_of_what_stands_before_it) {
    expect_fork("", "{\"echo\": true, \"logprobs\": 1}", "echo");
    expect_fork("", "{\"echo\": true, \"logprobs\": 0, \"max_tokens\": 0}", "echo");
    expect_fork(", \"logprobs\": 2", "{\"echo\": true}", "echo");
    expect_fork("", "{\"prompt_logprobs\": 0}", "prompt_logprobs");
    expect_fork(", \"logprobs\": 2", "{\"echo\": true, \"logprobs\": null}", "");
    expect_fork(", \"echo\": true, \"logprobs\": 2", "{\"logprobs\": 1}", "");
}

TEST(a_fork_gives_no_logits_of_its_prompt) {
    quire_queue *q = queue_new(e);
    response a;
    quire_error err = {0};
    float logits;
    quire_stream *none;
    submit(e, q, &a, "{" PROMPT "}");
    read_to(q, &a, 0, 2);
    quire_request *r = fork_of(&a, 0, QUIRE_HERE);
    quire_request_logits(r, &logits);
    assert_int_equal(quire_submit(q, r, NULL, &none, &err), QUIRE_INVALID);
    assert_non_null(strstr(err.message, "fork"));
    wait_done(q, &a);
    quire_stream_release(a.stream);
    response_clear(&a);
    quire_queue_close(q);
    wait_until_idle(e);
}

/* Commands as the stream ends, is cancelled or released: each is done or refused, and
 * what is said is what its fields say. */
TEST(commands_meet_the_end_of_their_stream) {
    quire_queue *q = queue_new(e);
    uint64_t seed = 31;
    print_message("seed 31\n");
    response plain;
    static const char body[] = "{\"prompt\": \"The prince went\", \"max_tokens\": 12, \"ignore_eos\": true, "
                               "\"seed\": 3, \"explain\": true}";
    complete(e, q, &plain, body);
    int32_t n_done = 0, n_refused = 0;
    for (int i = 0; i < 150; i++) {
        response a;
        quire_error err = {0};
        submit(e, q, &a, body);
        read_to(q, &a, 0, 1 + (int32_t)(rng_next(&seed) % 12));
        if (rng_next(&seed) % 2) {
            sleep_ms(2); /* the engine has finished, the reader has not heard */
        }
        int32_t at = plain.prompt_tokens + (int32_t)(rng_next(&seed) % (uint64_t)a.choices[0].n_tokens);
        quire_err r = a.done ? QUIRE_NOT_FOUND : quire_stream_rollback(a.stream, 0, at, NULL, 0, &err);
        assert_true(r == QUIRE_OK || r == QUIRE_NOT_FOUND || r == QUIRE_BUSY);
        bool is_cancelled = false;
        switch (rng_next(&seed) % 4) {
        case 0:
            quire_stream_release(a.stream);
            response_clear(&a);
            continue;
        case 1:
            quire_stream_cancel(a.stream);
            is_cancelled = true;
            break;
        default:
            break;
        }
        wait_done(q, &a);
        n_done += a.n_rollbacks;
        n_refused += a.n_refused;
        assert_true(a.n_rollbacks + a.n_refused <= 1);
        /* what was accepted is done, whatever the engine did meanwhile */
        assert_true(is_cancelled || a.n_rollbacks == (r == QUIRE_OK));
        assert_memory_equal(a.choices[0].tokens, plain.choices[0].tokens,
                            (size_t)a.choices[0].n_tokens * sizeof(int32_t));
        quire_stream_release(a.stream);
        response_clear(&a);
        quire_event ev;
        while (quire_queue_next(q, &ev)) { /* of those released nothing comes */
            fail_msg("an event of a stream that was released");
        }
    }
    print_message("%d done, %d refused\n", (int)n_done, (int)n_refused);
    assert_true(n_done > 0);
    response_clear(&plain);
    quire_queue_close(q);
    wait_until_idle(e);
}

ENGINE_FIXTURES(e, 512, 8)

TEST(a_text_that_cannot_fit_is_not_steered_to) {
    quire_queue *q = queue_new(e);
    static char text[60000];
    quire_error err = {0};
    const size_t sizes[] = {sizeof text, 20000};
    const char *const words[] = {"at least 4616 tokens", "at least 2049 tokens"};
    for (size_t i = 0; i < 2; i++) {
        response a;
        submit(e, q, &a, "{\"prompt\": \"The prince went\", \"max_tokens\": 200, \"ignore_eos\": true}");
        read_to(q, &a, 0, 2);
        memset(text, '1', sizeof text);
        quire_tail tail = {.text = text, .n_text = sizes[i]};
        assert_int_equal(quire_stream_steer(a.stream, 0, QUIRE_HERE, &tail, NULL, 0, &err), QUIRE_OK);
        wait_done(q, &a);
        assert_int_equal(a.n_refused, 1);
        assert_string_equal(a.refusal.param, "text");
        assert_non_null(strstr(a.refusal.message, words[i]));
        quire_stream_release(a.stream);
        response_clear(&a);
    }
    quire_queue_close(q);
}

TEST_MAIN(open_e, close_e)
