/* Parked and prepared requests through quire.h: a program of several requests computes
 * each token once, and none of its steps waits. */
#include <pthread.h>

#include "api_world.h"

static quire_engine *e;
ENGINE_FIXTURES(e, 256, 4)

enum { N_PROMPT = 50, N_MORE = 7, MOST = 256 };

/* Ids of a text of its own for each test. */
static void ids_of(int32_t *ids, int32_t n, uint64_t seed) {
    for (int32_t i = 0; i < n; i++) {
        ids[i] = 300 + (int32_t)(rng_next(&seed) % 1500);
    }
}

static quire_request *ids_request(const int32_t *ids, int32_t n, const char *fields) {
    quire_request *r;
    quire_error err = {0};
    assert_int_equal(quire_request_ids(e, ids, (size_t)n, &r, &err), QUIRE_OK);
    if (quire_request_set_all(r, fields, strlen(fields), &err) != QUIRE_OK) {
        fail_msg("%s", err.message);
    }
    return r;
}

static quire_park *park_new(void) {
    quire_park *p;
    assert_int_equal(quire_park_open(e, &p), QUIRE_OK);
    return p;
}

static quire_park_info look(const quire_park *p) {
    quire_park_info i = {.size = sizeof i};
    quire_park_look(p, &i);
    return i;
}

/* Until nothing is parked and no page is held. */
static void nothing_is_parked(void) {
    quire_parked_stats s = {.size = sizeof s};
    for (int i = 0; i < 60000; i++) {
        quire_engine_parked(e, &s);
        if (s.n_parks == 0 && s.n_pages == 0 && stats_of(e).n_pages_held == 0) {
            return;
        }
        sleep_ms(1);
    }
    fail_msg("%lld parks, %lld pages", (long long)s.n_parks, (long long)s.n_pages);
}

/* Reads all events of a; *cached: of its prompt. */
static void read_out(quire_queue *q, response *a, int32_t *cached) {
    while (!a->done) {
        quire_event ev;
        next_event(q, &ev);
        take(&ev);
        *cached = ev.kind == QUIRE_EVENT_DONE ? ev.cached_tokens : *cached;
    }
}

static int32_t run(quire_queue *q, quire_request *r, response *a) {
    int32_t cached = -1;
    submit_request(q, r, a);
    read_out(q, a, &cached);
    quire_stream_release(a->stream);
    return cached;
}

#define GREEDY "\"temperature\": 0, \"ignore_eos\": true, \"logprobs\": null"

TEST(a_choice_parks_when_it_ends_and_what_goes_on_finds_it) {
    quire_queue *q = queue_new(e);
    quire_park *p = park_new();
    int32_t ids[MOST];
    response a, b, c;
    ids_of(ids, N_PROMPT, 1);
    quire_request *r = ids_request(ids, N_PROMPT, "{\"max_tokens\": 9, " GREEDY "}");
    assert_int_equal(quire_request_park(r, 0, p), QUIRE_OK);
    run(q, r, &a);
    assert_int_equal(look(p).n_tokens, N_PROMPT + 8);
    assert_int_equal(look(p).n_parked, 1);
    assert_int_equal(stats_of(e).n_pages_held, look(p).n_pages);
    quire_engine_drop_cache(e);
    memcpy(ids + N_PROMPT, a.choices[0].tokens, 9 * sizeof *ids);
    ids_of(ids + N_PROMPT + 9, N_MORE, 2);
    assert_int_equal(run(q, ids_request(ids, N_PROMPT + 9 + N_MORE, "{\"max_tokens\": 9, " GREEDY "}"), &b),
                     N_PROMPT + 8);
    quire_park_close(p);
    nothing_is_parked();
    quire_engine_drop_cache(e);
    assert_int_equal(run(q, ids_request(ids, N_PROMPT + 9 + N_MORE, "{\"max_tokens\": 9, " GREEDY "}"), &c),
                     0);
    assert_memory_equal(b.choices[0].tokens, c.choices[0].tokens, 9 * sizeof(int32_t));
    response_clear(&a);
    response_clear(&b);
    response_clear(&c);
    quire_queue_close(q);
}

TEST(a_prompt_alone_is_parked_with_max_tokens_0) {
    quire_queue *q = queue_new(e);
    quire_park *p = park_new(), *second = park_new();
    quire_error err = {0};
    quire_stream *s;
    int32_t ids[MOST];
    response a, b;
    ids_of(ids, N_PROMPT, 3);
    quire_request *r = ids_request(ids, N_PROMPT, "{\"max_tokens\": 0}");
    assert_int_equal(quire_request_park(r, 0, p), QUIRE_OK);
    assert_int_equal(run(q, r, &a), 0);
    assert_int_equal(a.finish, QUIRE_FINISH_LENGTH);
    assert_int_equal(a.completion_tokens, 0);
    assert_int_equal(look(p).n_tokens, N_PROMPT);
    int64_t steps = stats_of(e).steps;
    r = ids_request(ids, N_PROMPT, "{\"max_tokens\": 0}");
    assert_int_equal(quire_request_park(r, 0, second), QUIRE_OK);
    assert_int_equal(run(q, r, &b), N_PROMPT);
    assert_int_equal(look(second).n_tokens, N_PROMPT);
    assert_int_equal(stats_of(e).steps, steps);
    /* without a park there is nothing that it could be for */
    assert_int_equal(quire_submit(q, ids_request(ids, N_PROMPT, "{\"max_tokens\": 0}"), NULL, &s, &err),
                     QUIRE_BAD_REQUEST);
    quire_park_close(p);
    quire_park_close(second);
    nothing_is_parked();
    response_clear(&a);
    response_clear(&b);
    quire_queue_close(q);
}

TEST(each_sample_parks_where_it_is_told_to) {
    quire_queue *q = queue_new(e);
    quire_park *p[2] = {park_new(), park_new()};
    int32_t ids[MOST];
    response a;
    ids_of(ids, N_PROMPT, 4);
    quire_request *r =
        ids_request(ids, N_PROMPT, "{\"max_tokens\": 12, \"n\": 3, \"seed\": 5, \"ignore_eos\": true}");
    assert_int_equal(quire_request_park(r, 2, p[0]), QUIRE_OK);
    assert_int_equal(quire_request_park(r, 0, p[1]), QUIRE_OK);
    assert_int_equal(quire_request_park(r, 1024, p[1]), QUIRE_INVALID);
    run(q, r, &a);
    assert_int_equal(look(p[0]).n_tokens, N_PROMPT + 11);
    assert_int_equal(look(p[1]).n_tokens, N_PROMPT + 11);
    quire_engine_drop_cache(e);
    for (int i = 0; i < 2; i++) {
        response b;
        memcpy(ids + N_PROMPT, a.choices[i == 0 ? 2 : 0].tokens, 12 * sizeof *ids);
        assert_int_equal(run(q, ids_request(ids, N_PROMPT + 12, "{\"max_tokens\": 1}"), &b), N_PROMPT + 11);
        response_clear(&b);
        quire_park_close(p[i]);
    }
    nothing_is_parked();
    response_clear(&a);
    quire_queue_close(q);
}

/* A fork without tokens of its own parks what a running choice has; what is rolled back
 * parks when it ends at last. */
TEST(running_choices_are_parked_and_rolled_back_ones_at_their_end) {
    quire_queue *q = queue_new(e);
    quire_park *p = park_new(), *own = park_new();
    quire_error err = {0};
    int32_t ids[MOST];
    response a, fork;
    ids_of(ids, N_PROMPT, 6);
    quire_request *r = ids_request(ids, N_PROMPT, "{\"max_tokens\": 100, " GREEDY "}"), *f;
    assert_int_equal(quire_request_park(r, 0, own), QUIRE_OK);
    submit_request(q, r, &a);
    while (a.choices[0].n_tokens < 20) {
        quire_event ev;
        next_event(q, &ev);
        take(&ev);
    }
    assert_int_equal(quire_stream_fork(a.stream, 0, N_PROMPT + 11, &f, &err), QUIRE_OK);
    assert_int_equal(quire_request_set(f, "max_tokens", "0", &err), QUIRE_OK);
    assert_int_equal(quire_request_park(f, 0, p), QUIRE_OK);
    submit_request(q, f, &fork);
    assert_int_equal(quire_stream_rollback(a.stream, 0, N_PROMPT + 15, NULL, 0, &err), QUIRE_OK);
    while (!fork.done || !a.done) {
        quire_event ev;
        next_event(q, &ev);
        take(&ev);
    }
    quire_stream_release(a.stream);
    quire_stream_release(fork.stream);
    assert_int_equal(a.n_rollbacks, 1);
    assert_int_equal(look(p).n_tokens, N_PROMPT + 11);
    assert_int_equal(look(own).n_tokens, N_PROMPT + 99);
    quire_engine_drop_cache(e);
    memcpy(ids + N_PROMPT, a.choices[0].tokens, 100 * sizeof *ids);
    response b;
    quire_park_close(own);
    assert_int_equal(run(q, ids_request(ids, N_PROMPT + 12, "{\"max_tokens\": 1}"), &b), N_PROMPT + 11);
    response_clear(&b);
    quire_park_close(p);
    nothing_is_parked();
    response_clear(&a);
    response_clear(&fork);
    quire_queue_close(q);
}

TEST(what_cannot_park_is_refused) {
    quire_queue *q = queue_new(e);
    quire_park *p = park_new();
    quire_error err = {0};
    quire_stream *s;
    int32_t ids[MOST];
    ids_of(ids, N_PROMPT, 7);
    quire_request *r =
        ids_request(ids, N_PROMPT, "{\"use_beam_search\": true, \"n\": 2, \"temperature\": 0}");
    assert_int_equal(quire_request_park(r, 0, p), QUIRE_OK);
    assert_int_equal(quire_submit(q, r, NULL, &s, &err), QUIRE_INVALID);
    quire_engine *second = world_open(64, 2);
    quire_queue *others = queue_new(second);
    r = ids_request(ids, N_PROMPT, "{}");
    assert_int_equal(quire_request_park(r, 0, p), QUIRE_OK);
    assert_int_equal(quire_submit(others, r, NULL, &s, &err), QUIRE_INVALID);
    r = ids_request(ids, N_PROMPT, "{\"max_tokens\": 4}");
    assert_int_equal(quire_request_park(r, 0, p), QUIRE_OK);
    assert_int_equal(quire_request_park(r, 0, NULL), QUIRE_OK); /* nowhere again */
    response a;
    run(q, r, &a);
    assert_int_equal(look(p).n_parked, 0);
    response_clear(&a);
    quire_queue_close(others);
    quire_engine_close(second);
    quire_park_close(p);
    quire_park_close(NULL);
    quire_queue_close(q);
}

/* One of several threads: its requests go on from each other, park, and are cancelled,
 * and parks are closed before, while and after something ends in them. */
static void *use_parks(void *arg) {
    enum { N_REQUESTS = 24 };
    uint64_t seed = *(const uint64_t *)arg;
    quire_queue *q = queue_new(e);
    int32_t ids[MOST], n = 5 + (int32_t)(rng_next(&seed) % 20), cached;
    ids_of(ids, MOST, 3); /* all begin alike */
    quire_park *p = park_new();
    for (int i = 0; i < N_REQUESTS; i++) {
        response a;
        quire_request *r = ids_request(ids, n, i % 5 == 4 ? "{\"max_tokens\": 0}" : "{\"max_tokens\": 6}");
        assert_int_equal(quire_request_park(r, 0, p), QUIRE_OK);
        uint64_t way = rng_next(&seed) % 4;
        if (way == 0) {
            quire_park_close(p);
        }
        submit_request(q, r, &a);
        if (way == 1) {
            quire_park_close(p);
        }
        if (rng_next(&seed) % 5 == 0) {
            quire_stream_cancel(a.stream);
        }
        read_out(q, &a, &cached);
        quire_stream_release(a.stream);
        p = way < 2 ? park_new() : p;
        (void)look(p);
        n += n < MOST - 20 ? (int32_t)(rng_next(&seed) % 9) : -n / 2;
        response_clear(&a);
    }
    quire_park_close(p);
    quire_queue_close(q);
    return NULL;
}

TEST(threads_park_and_close_beside_each_other) {
    pthread_t threads[3];
    uint64_t seeds[3];
    uint64_t seed = rng_os_seed();
    print_message("seed %llu\n", (unsigned long long)seed);
    for (int i = 0; i < 3; i++) {
        seeds[i] = rng_next(&seed);
        assert_int_equal(pthread_create(&threads[i], NULL, use_parks, &seeds[i]), 0);
    }
    for (int i = 0; i < 3; i++) {
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    }
    nothing_is_parked();
}

/* ---- requests that are prepared ahead ---- */

static void prepare(quire_queue *q, quire_request *r, response *a) {
    quire_error err = {0};
    *a = (response){.n_choices = quire_request_describe(r)->n_choices};
    a->choices = mem_new((size_t)a->n_choices, sizeof *a->choices);
    if (quire_prepare(q, r, a, &a->stream, &err) != QUIRE_OK) {
        fail_msg("%s", err.message);
    }
}

#define RULED "{\"max_tokens\": 20, \"n\": 2, \"seed\": 3, \"regex\": \"[a-z]{3,9} [0-9]+\"}"

/* Prepared requests give what whole ones give, be they started before they are ready or
 * after. */
TEST(a_prepared_request_answers_as_a_whole_one) {
    quire_queue *q = queue_new(e);
    quire_error err = {0};
    int32_t ids[MOST], cached;
    ids_of(ids, N_PROMPT + N_MORE, 8);
    response whole, started[3];
    run(q, ids_request(ids, N_PROMPT + N_MORE, RULED), &whole);
    for (int i = 0; i < 3; i++) {
        quire_event ev;
        int32_t n_first = i == 2 ? 0 : N_PROMPT; /* no first tokens: the request's own are all */
        prepare(q, ids_request(ids + n_first, N_PROMPT + N_MORE - n_first, RULED), &started[i]);
        if (i > 0) { /* it is ready by then, almost always: both ways are right */
            quire_queue_wait(q, 1000000);
            assert_false(quire_queue_next(q, &ev));
        }
        assert_int_equal(quire_stream_start(started[i].stream, ids, (size_t)n_first, &err), QUIRE_OK);
        assert_int_equal(quire_stream_start(started[i].stream, ids, (size_t)n_first, &err), QUIRE_INVALID);
        read_out(q, &started[i], &cached);
        quire_stream_release(started[i].stream);
        assert_int_equal(started[i].prompt_tokens, N_PROMPT + N_MORE);
        for (int k = 0; k < 2; k++) {
            assert_int_equal(started[i].choices[k].n_tokens, whole.choices[k].n_tokens);
            assert_memory_equal(started[i].choices[k].tokens, whole.choices[k].tokens,
                                (size_t)whole.choices[k].n_tokens * sizeof(int32_t));
        }
        response_clear(&started[i]);
    }
    response_clear(&whole);
    quire_queue_close(q);
}

TEST(a_prepared_request_is_cancelled_released_and_refused) {
    quire_queue *q = queue_new(e);
    quire_error err = {0};
    quire_stream *s;
    int32_t ids[MOST], cached;
    response a;
    ids_of(ids, N_PROMPT, 9);
    for (int i = 0; i < 4; i++) { /* at once, and when it is ready */
        prepare(q, ids_request(ids, N_PROMPT, RULED), &a);
        if (i % 2 == 1) {
            quire_event ev;
            quire_queue_wait(q, 1000000);
            assert_false(quire_queue_next(q, &ev));
        }
        if (i < 2) {
            quire_stream_cancel(a.stream);
            read_out(q, &a, &cached);
            assert_int_equal(a.error.code, QUIRE_CANCELLED);
        }
        quire_stream_release(a.stream);
        response_clear(&a);
    }
    prepare(q, ids_request(ids, N_PROMPT, "{\"max_tokens\": 4}"), &a);
    ids[0] = 1 << 20; /* out of the vocabulary */
    assert_int_equal(quire_stream_start(a.stream, ids, 1, &err), QUIRE_OK);
    read_out(q, &a, &cached);
    assert_int_equal(a.error.code, QUIRE_BAD_REQUEST);
    quire_stream_release(a.stream);
    response_clear(&a);
    assert_int_equal(quire_prepare(q, request_of(e, "{\"prompt\": \"text\"}"), NULL, &s, &err),
                     QUIRE_INVALID);
    submit_request(q, ids_request(ids + 1, 4, "{\"max_tokens\": 1}"), &a);
    assert_int_equal(quire_stream_start(a.stream, ids + 1, 1, &err), QUIRE_INVALID);
    read_out(q, &a, &cached);
    quire_stream_release(a.stream);
    response_clear(&a);
    prepare(q, ids_request(ids + 1, 4, "{}"), &a); /* the queue closes with it */
    quire_queue_close(q);
    response_clear(&a);
}

/* The first token of what goes on comes in the step after the one that gave the last
 * token of what it goes on from: nothing else runs here. Beside others it is the next
 * step that is planned (tests/engine/test_park.c). */
TEST(what_goes_on_is_in_the_next_step) {
    enum { N_OUT = 12, N_ROUNDS = 8 };
    static const char fields[] = "{\"max_tokens\": 12, \"explain\": true, " GREEDY "}";
    quire_queue *q = queue_new(e);
    quire_error err = {0};
    int32_t ids[MOST], n = N_PROMPT, cached;
    int64_t last = -1;
    response a[2];
    ids_of(ids, MOST, 10);
    prepare(q, ids_request(ids + MOST - 2, 2, fields), &a[0]);
    for (int i = 0; i < N_ROUNDS; i++) {
        response *now = &a[i % 2], *next = &a[(i + 1) % 2];
        assert_int_equal(quire_stream_start(now->stream, ids, (size_t)n, &err), QUIRE_OK);
        prepare(q, ids_request(ids + MOST - 2, 2, fields), next);
        read_out(q, now, &cached);
        assert_int_equal(cached, i == 0 ? 0 : n - 1);
        const quire_explain_more *x = quire_stream_explain(now->stream, 0);
        assert_non_null(x);
        assert_int_equal(x->last_token_step - x->first_token_step, N_OUT - 1);
        assert_true(i == 0 || x->first_token_step == last + 1);
        last = x->last_token_step;
        memcpy(ids + n, ids + MOST - 2, 2 * sizeof *ids);
        memcpy(ids + n + 2, now->choices[0].tokens, N_OUT * sizeof *ids);
        n += 2 + N_OUT;
        quire_stream_release(now->stream);
        response_clear(now);
    }
    quire_stream_release(a[N_ROUNDS % 2].stream);
    response_clear(&a[N_ROUNDS % 2]);
    quire_queue_close(q);
}

TEST_MAIN(open_e, close_e)
