/* Models beside the main one: loaded when a request names them, unloaded when they are idle,
 * when room is needed and by command; requests that have one are not disturbed. */
#include "server/site.h"

#include <stdatomic.h>

#include "base/rng.h"
#include "server/models.h"

static const quire_options paths[] = {{.model = "a"},      {.model = "b"},      {.model = "c"},
                                      {.model = "broken"}, {.model = "big"},    {.model = "sick"},
                                      {.model = "slow"},   {.model = "endless"}};
static const model_spec others[] = {{"a", &paths[0], false},   {"b", &paths[1], false},
                                    {"c", &paths[2], false},   {"broken", &paths[3], false},
                                    {"big", &paths[4], false}, {"sick", &paths[5], false},
                                    {"slow", &paths[6], false}};
static const model_spec with_endless[] = {{"a", &paths[0], false}, {"endless", &paths[7], false}};
static const model_spec with_pinned[] = {
    {"a", &paths[0], true}, {"b", &paths[1], false}, {"big", &paths[4], false}};

#define MODEL_PATIENCE_US 300000

static site *start_list(const model_spec *list, int32_t n, int32_t max_models, int64_t idle_us) {
    server_options o;
    server_options_init(&o);
    o.other_models = list;
    o.n_other_models = n;
    o.max_models = max_models;
    o.model_idle_us = idle_us;
    o.model_patience_us = MODEL_PATIENCE_US;
    o.operator_key = "boss";
    o.n_loops = 2;
    return start(&o, TICK_US);
}

static site *start_models(int32_t max_models, int64_t idle_us) {
    return start_list(others, sizeof others / sizeof *others, max_models, idle_us);
}

static void stop_models(site *s) {
    stop(s);
    assert_int_equal(fake_beside(), 0);
}

/* Asks by GET what everybody may. */
static const char *get(const site *s, const char *path) {
    char text[200];
    snprintf(text, sizeof text, "GET %s HTTP/1.1\r\nHost: h\r\nAuthorization: Bearer boss\r\n" CLOSE "\r\n",
             path);
    return ask(s, text);
}

/* Asks again until the response has that part. */
static void await_part(const site *s, const char *path, const char *part) {
    for (int64_t end = clock_us() + PATIENCE_US; strstr(get(s, path), part) == NULL;) {
        assert_true(clock_us() < end);
        pause_us(1000);
    }
}

static void await_beside(int32_t n) {
    for (int64_t end = clock_us() + PATIENCE_US; fake_beside() != n;) {
        assert_true(clock_us() < end);
        pause_us(1000);
    }
}

static const char *complete(const site *s, const char *model, int max_tokens, bool stream) {
    char body[200];
    snprintf(body, sizeof body, "{\"model\": \"%s\", \"prompt\": \"x\", \"max_tokens\": %d, \"stream\": %s}",
             model, max_tokens, stream ? "true" : "false");
    return ask(s, post(COMPLETIONS, body, CLOSE));
}

static const char *command(const site *s, const char *path, const char *model) {
    char body[100];
    snprintf(body, sizeof body, "{\"model\": \"%s\"}", model);
    return ask(s, post(path, body, CLOSE "Authorization: Bearer boss\r\n"));
}

TEST(a_request_loads_the_model_that_it_names) {
    site *s = start_models(0, 0);
    const char *response = ask(s, "GET /v1/models HTTP/1.1\r\nHost: h\r\n" CLOSE "\r\n");
    expect_in(response, "\"id\":\"a\"");
    expect_in(response, "{\"value\":\"unloaded\"}");
    response = complete(s, "a", 3, false);
    expect_in(response, "200 OK");
    expect_in(response, "\"model\":\"a\"");
    assert_int_equal(fake_beside(), 1);
    expect_in(complete(s, "fake", 3, false), "\"model\":\"fake\"");
    response = ask(s, "GET /metrics HTTP/1.1\r\nHost: h\r\n" CLOSE "\r\n");
    assert_int_equal(count(response, "# TYPE vllm:generation_tokens_total"), 1);
    expect_in(response, "vllm:generation_tokens_total{engine=\"0\",model_name=\"fake\"} 3\n"
                        "vllm:generation_tokens_total{engine=\"0\",model_name=\"a\"} 3\n");
    response = ask(s, "GET /api/tags HTTP/1.1\r\nHost: h\r\n" CLOSE "\r\n");
    expect_in(response, "\"model\":\"b\"");
    response = ask(s, "GET /api/ps HTTP/1.1\r\nHost: h\r\n" CLOSE "\r\n");
    expect_in(response, "\"model\":\"a\"");
    assert_null(strstr(response, "\"model\":\"b\""));
    response = ask(s, "GET /v1/models HTTP/1.1\r\nHost: h\r\nanthropic-version: 2023-06-01\r\n" CLOSE "\r\n");
    expect_in(response, "\"id\":\"a\",\"display_name\":\"a\"");
    expect_in(response, "\"last_id\":\"slow\"");
    expect_in(complete(s, "a:latest", 3, false), "\"model\":\"a\"");
    expect_in(ask(s, post(COMPLETIONS, "{\"prompt\": \"x\"}", CLOSE)), "\"model\":\"fake\"");
    assert_int_equal(fake_beside(), 1);
    response = ask(s, "GET /v1/models/a HTTP/1.1\r\nHost: h\r\n" CLOSE "\r\n");
    expect_in(response, "\"max_model_len\":128");
    expect_in(response, "{\"value\":\"loaded\"}");
    response = complete(s, "nobody", 3, false);
    expect_in(response, "404 ");
    expect_in(response, "nobody");
    stop_models(s);
}

TEST(a_model_that_cannot_be_loaded_fails_its_requests_alone) {
    site *s = start_models(0, 0);
    for (int i = 0; i < 2; i++) {
        expect_in(complete(s, "broken", 3, false), "cut short; download it again");
        expect_in(complete(s, "fake", 3, false), "200 OK");
    }
    expect_in(ask(s, "GET /models HTTP/1.1\r\nHost: h\r\nAuthorization: Bearer boss\r\n" CLOSE "\r\n"),
              "\"failed\":true,\"error\":\"broken");
    stop_models(s);
}

TEST(the_least_used_leaves_where_there_is_no_room) {
    site *s = start_models(2, 0);
    expect_in(complete(s, "a", 3, false), "\"model\":\"a\"");
    expect_in(complete(s, "b", 3, false), "\"model\":\"b\"");
    expect_in(complete(s, "a", 3, false), "\"model\":\"a\"");
    expect_in(complete(s, "c", 3, false), "\"model\":\"c\"");
    await_beside(2);
    const char *list = ask(s, "GET /v1/models/b HTTP/1.1\r\nHost: h\r\n" CLOSE "\r\n");
    expect_in(list, "{\"value\":\"unloaded\"}");
    expect_in(complete(s, "b", 3, false), "\"model\":\"b\"");
    stop_models(s);
    s = start_models(0, 0);
    expect_in(complete(s, "a", 3, false), "200 OK");
    expect_in(complete(s, "b", 3, false), "200 OK");
    expect_in(complete(s, "big", 3, false), "\"model\":\"big\""); /* both leave for it */
    assert_int_equal(fake_beside(), 1);
    stop_models(s);
}

TEST(a_model_in_use_does_not_leave) {
    site *s = start_models(1, 0);
    int fd = dial(s);
    say(fd, post(COMPLETIONS, "{\"model\": \"a\", \"prompt\": \"x\", \"max_tokens\": 60, \"stream\": true}",
                 CLOSE));
    hear(fd, "data: ");
    expect_in(complete(s, "b", 3, false), "\"model\":\"b\""); /* once the stream is over */
    expect_in(hear(fd, NULL), "[DONE]");
    close(fd);
    stop_models(s);
    s = start_models(0, 0);
    fd = dial(s);
    static const char pauses[] = "{\"model\": \"a\", \"prompt\": \"x\", \"max_tokens\": 60, \"pause_at\": 2, "
                                 "\"stream\": true}";
    say(fd, post(COMPLETIONS, pauses, CLOSE));
    hear(fd, "data: ");
    const char *full = complete(s, "big", 3, false); /* there is nothing idle */
    expect_in(full, "429 ");
    expect_in(full, "Retry-After: 10");
    expect_in(full, "there is no room for big");
    expect_in(command(s, "/models/unload", "a"), "\"success\":true");
    expect_in(command(s, "/models/unload", "b"), "400 ");
    fake_resume();
    expect_in(hear(fd, NULL), "[DONE]");
    close(fd);
    await_beside(0);
    expect_in(complete(s, "a", 3, false), "200 OK");
    stop_models(s);
}

TEST(a_model_that_is_wanted_while_it_leaves_is_loaded_again_once) {
    site *s = start_models(0, 0);
    const int64_t before = fake_opened();
    int fd = dial(s);
    say(fd,
        post(COMPLETIONS,
             "{\"model\": \"a\", \"prompt\": \"x\", \"max_tokens\": 60, \"pause_at\": 2, \"stream\": true}",
             CLOSE));
    hear(fd, "data: ");
    for (int i = 0; i < 2; i++) { /* an unload takes a load back that has not begun */
        expect_in(command(s, "/models/unload", "a"), "\"success\":true");
        expect_in(command(s, "/models/unload", "a"), "the model is not loaded");
        expect_in(command(s, "/models/load", "a"), "\"success\":true");
        expect_in(command(s, "/models/load", "a"), "the model is already loaded or being loaded");
    }
    fake_resume();
    expect_in(hear(fd, NULL), "[DONE]");
    close(fd);
    await_part(s, "/v1/models/a", "{\"value\":\"loaded\"}");
    assert_int_equal(fake_opened() - before, 2);
    expect_in(command(s, "/models/unload", "a"), "\"success\":true");
    await_beside(0);
    stop_models(s);
}

TEST(an_idle_model_is_unloaded) {
    site *s = start_models(0, 50000);
    expect_in(complete(s, "a", 3, false), "200 OK");
    await_beside(0);
    expect_in(complete(s, "a", 3, false), "200 OK");
    await_beside(0);
    stop_models(s);
}

TEST(a_pinned_model_stays_until_it_is_unloaded_by_command) {
    site *s = start_list(with_pinned, 3, 1, 50000);
    await_beside(1);                                          /* nobody has named it */
    expect_in(complete(s, "b", 3, false), "\"model\":\"b\""); /* it takes no place */
    assert_in_range(fake_beside(), 1, 2);
    await_beside(1); /* b was idle */
    expect_in(complete(s, "big", 3, false), "there is no room for big");
    expect_in(complete(s, "a", 3, false), "\"model\":\"a\"");
    pause_us(100000); /* if it left, it would have by now, or a later run shows it */
    expect_in(ask(s, "GET /v1/models/a HTTP/1.1\r\nHost: h\r\n" CLOSE "\r\n"), "{\"value\":\"loaded\"}");
    expect_in(command(s, "/models/unload", "a"), "\"success\":true");
    await_beside(0);
    expect_in(complete(s, "a", 3, false), "\"model\":\"a\"");
    stop_models(s);
}

TEST(health_is_that_of_every_model) {
    site *s = start_models(0, 0);
    static const char health[] = "GET /health HTTP/1.1\r\nHost: h\r\n" CLOSE "\r\n";
    expect_in(complete(s, "a", 3, false), "200 OK");
    expect_in(ask(s, health), "200 OK");
    expect_in(complete(s, "sick", 3, false), "200 OK");
    expect_in(ask(s, health), "503 ");
    expect_in(ask(s, "GET /ready HTTP/1.1\r\nHost: h\r\n" CLOSE "\r\n"), "503 ");
    expect_in(command(s, "/models/unload", "sick"), "\"success\":true");
    await_beside(1);
    expect_in(ask(s, health), "200 OK");
    stop_models(s);
}

TEST(models_are_the_operators_to_load) {
    site *s = start_models(0, 0);
    expect_in(ask(s, post("/models/load", "{\"model\": \"a\"}", CLOSE)), "403 ");
    expect_in(command(s, "/models/load", "a"), "\"success\":true");
    await_part(s, "/v1/models/a", "{\"value\":\"loaded\"}");
    expect_in(command(s, "/models/load", "a"), "400 ");
    expect_in(command(s, "/models/load", "nobody"), "404 ");
    expect_in(command(s, "/models/load", "fake"), "stays loaded");
    expect_in(ask(s, post("/models/load", "[1]", CLOSE "Authorization: Bearer boss\r\n")), "400 ");
    expect_in(command(s, "/models/unload", "a"), "\"success\":true");
    await_beside(0);
    stop_models(s);
}

/* Sends a request whose response is heard later. */
static int begin_with(const site *s, const char *path, const char *body) {
    int fd = dial(s);
    say(fd, post(path, body, CLOSE "Authorization: Bearer boss\r\n"));
    return fd;
}

static const char *hear_rest(int fd) {
    const char *response = hear(fd, NULL);
    close(fd);
    return response;
}

TEST(keep_alive_says_how_long_a_model_stays) {
    static const char short_stay[] =
        "{\"model\": \"a\", \"prompt\": \"x\", \"stream\": false, \"keep_alive\": 20}",
                      for_ever[] =
                          "{\"model\": \"b\", \"prompt\": \"x\", \"stream\": false, \"keep_alive\": -1}",
                      long_stay[] =
                          "{\"model\": \"a\", \"prompt\": \"x\", \"stream\": false, \"keep_alive\": 600000}";
    site *s = start_models(0, 0);
    expect_in(hear_rest(begin_with(s, "/api/generate", short_stay)), "200 OK");
    await_beside(0);
    expect_in(hear_rest(begin_with(s, "/api/generate", long_stay)), "200 OK");
    expect_in(hear_rest(begin_with(s, "/api/generate", for_ever)), "200 OK");
    const char *running = get(s, "/api/ps");
    const char *a = strstr(running, "\"model\":\"a\""), *b = strstr(running, "\"model\":\"b\"");
    assert_true(a != NULL && b != NULL);
    assert_non_null(strstr(b, "\"expires_at\":\"3000-"));
    const char *first = strstr(a, "\"expires_at\":\"");
    assert_true(first != NULL && first < b && strncmp(first, "\"expires_at\":\"3000-", 19) != 0);
    expect_in(ask(s, post("/api/generate", short_stay, CLOSE)), "200 OK"); /* not the operator's */
    pause_us(60000); /* it would have left by now, or a later run shows it */
    expect_in(get(s, "/v1/models/a"), "{\"value\":\"loaded\"}");
    expect_in(hear_rest(begin_with(s, "/api/generate", "{\"model\": \"a\", \"keep_alive\": 0}")),
              "\"unload\"");
    await_beside(1);
    static const char nothing[] = "{\"model\": \"c\", \"keep_alive\": 0}";
    expect_in(hear_rest(begin_with(s, "/api/generate", nothing)), "\"unload\"");
    expect_in(get(s, "/v1/models/c"), "{\"value\":\"unloaded\"}"); /* it was not loaded for that */
    stop_models(s);
}

TEST(a_list_shows_how_far_a_load_is) {
    site *s = start_list(with_endless, 2, 0, 0);
    expect_in(command(s, "/models/load", "endless"), "\"success\":true");
    expect_in(command(s, "/models/load", "endless"), "the model is already loaded or being loaded");
    expect_in(command(s, "/models/unload", "endless"), "the model is not loaded");
    await_part(s, "/models", "{\"value\":\"loading\",\"progress\":0.25}");
    int fd = begin_with(s, COMPLETIONS, "{\"model\": \"endless\", \"prompt\": \"x\"}");
    await_part(s, "/debug/requests", "\"state\":\"loading\"");
    close(fd);
    stop_models(s); /* the load is cut short */
}

TEST(a_request_that_waited_for_its_model_is_told_so_in_its_explain) {
    static const char body[] = "{\"model\": \"slow\", \"prompt\": \"x\", \"explain\": true}";
    site *s = start_models(0, 0);
    const char *response = hear_rest(begin_with(s, COMPLETIONS, body));
    expect_in(response, "\"model_load\":{\"found\":\"unloaded\",\"wait_us\":");
    response = hear_rest(begin_with(s, COMPLETIONS, body));
    expect_in(response, "200 OK");
    assert_null(strstr(response, "model_load"));
    stop_models(s);
}

TEST(a_model_that_is_not_loaded_is_shown_without_loading_it) {
    site *s = start_models(0, 0);
    const char *response = ask(s, post("/api/show", "{\"model\": \"a\"}", CLOSE));
    expect_in(response, "\"llama.block_count\":7");
    expect_in(response, "[\"completion\",\"tools\"]");
    expect_in(ask(s, post("/api/show", "{\"name\": \"b:latest\"}", CLOSE)), "\"llama.block_count\":7");
    expect_in(ask(s, post("/api/show", "{\"model\": \"broken\"}", CLOSE)), "cut short; download it again");
    expect_in(ask(s, post("/api/show", "{\"model\": \"nobody\"}", CLOSE)), "404 ");
    expect_in(get(s, "/v1/models/a"), "{\"value\":\"unloaded\"}");
    assert_int_equal(fake_beside(), 0);
    stop_models(s);
}

TEST(a_queue_is_not_closed_before_its_streams_are_over) {
    const int32_t before = fake_waits();
    site *s = start_models(0, 0);
    for (int i = 0; i < 20; i++) {
        int fd =
            begin_with(s, COMPLETIONS,
                       "{\"model\": \"a\", \"prompt\": \"x\", \"max_tokens\": 1000000, \"stream\": true}");
        hear(fd, "data: ");
        expect_in(command(s, "/models/unload", "a"), "\"success\":true");
        close(fd); /* its stream is released before its end */
        await_beside(0);
    }
    assert_int_equal(fake_waits(), before);
    stop_models(s);
}

/* ---- sleep ---- */

static const char *sleep_command(const site *s, const char *path) {
    return hear_rest(begin_with(s, path, ""));
}

TEST(a_server_that_sleeps_gives_its_caches_back_and_refuses_what_computes) {
    site *s = start_models(0, 0);
    expect_in(complete(s, "a", 3, false), "200 OK");
    expect_in(ask(s, post("/sleep", "", CLOSE)), "403 ");
    expect_in(sleep_command(s, "/sleep?level=3"), "level must be 1");
    expect_in(sleep_command(s, "/sleep?l%65vel=%33"), "level must be 1");
    expect_in(sleep_command(s, "/sleep?mode=keep"), "mode must be abort");
    expect_in(get(s, "/is_sleeping"), "{\"is_sleeping\":false}");
    const int64_t drops = fake_drops(s->engine);
    expect_in(sleep_command(s, "/sleep"), "200 OK");
    assert_int_equal(fake_drops(s->engine), drops + 1);
    assert_int_equal(fake_beside(), 1);
    expect_in(get(s, "/is_sleeping"), "{\"is_sleeping\":true}");
    expect_in(get(s, "/ready"), "503 ");
    expect_in(get(s, "/health"), "200 OK");
    expect_in(complete(s, "fake", 3, false), "503 ");
    expect_in(complete(s, "a", 3, false), "the operator can wake it with POST /wake_up");
    expect_in(complete(s, "b", 3, false), "503 ");
    expect_in(command(s, "/models/load", "b"), "503 ");
    expect_in(hear_rest(begin_with(s, "/tokenize", "{\"prompt\": \"x\"}")), "200 OK");
    expect_in(sleep_command(s, "/wake_up?tags=weights"), "200 OK");
    expect_in(get(s, "/is_sleeping"), "{\"is_sleeping\":true}");
    expect_in(sleep_command(s, "/wake_up"), "200 OK");
    expect_in(get(s, "/is_sleeping"), "{\"is_sleeping\":false}");
    expect_in(complete(s, "fake", 3, false), "200 OK");
    expect_in(complete(s, "b", 3, false), "200 OK");
    stop_models(s);
}

TEST(a_sleep_of_level_2_unloads_the_other_models) {
    site *s = start_list(with_pinned, 3, 0, 0);
    await_beside(1);
    expect_in(complete(s, "b", 3, false), "200 OK");
    expect_in(sleep_command(s, "/sleep?level=2"), "200 OK");
    assert_int_equal(fake_beside(), 0); /* they are gone as the answer comes */
    expect_in(sleep_command(s, "/wake_up"), "200 OK");
    await_part(s, "/v1/models/a", "{\"value\":\"loaded\"}"); /* the pinned one */
    assert_int_equal(fake_beside(), 1);
    stop_models(s);
    s = start_list(with_endless, 2, 0, 0);
    int fd = begin_with(s, COMPLETIONS, "{\"model\": \"endless\", \"prompt\": \"x\"}");
    await_part(s, "/models", "\"progress\":0.25");
    expect_in(sleep_command(s, "/sleep?level=2"), "200 OK"); /* which ends that load */
    expect_in(hear_rest(fd), "503 ");
    stop_models(s);
}

TEST(a_sleep_ends_running_requests_or_waits_for_them) {
    static const char body[] = "{\"model\": \"a\", \"prompt\": \"x\", \"max_tokens\": 100, \"stream\": true}",
                      endless[] = "{\"prompt\": \"x\", \"max_tokens\": 1000000000, \"stream\": true}";
    site *s = start_models(0, 0);
    int fd = begin_with(s, COMPLETIONS, body);
    hear(fd, "data: ");
    expect_in(sleep_command(s, "/sleep?mode=wait"), "200 OK"); /* after it */
    const char *rest = hear_rest(fd);
    expect_in(rest, "\"finish_reason\":\"length\"");
    expect_in(sleep_command(s, "/wake_up"), "200 OK");
    fd = begin_with(s, COMPLETIONS, endless);
    hear(fd, "data: ");
    int sleeper = begin_with(s, "/sleep?mode=wait", "");
    await_part(s, "/is_sleeping", "true");
    expect_in(complete(s, "fake", 3, false), "503 "); /* it sleeps already for new ones */
    expect_in(sleep_command(s, "/sleep"), "200 OK");
    expect_in(hear_rest(fd), "the operator has put the server to sleep");
    expect_in(hear_rest(sleeper), "200 OK");
    assert_int_equal(fake_running(s->engine), 0);
    stop_models(s);
}

TEST(a_client_that_leaves_while_its_model_loads_leaves_nothing) {
    site *s = start_models(0, 20000);
    const int64_t before = fake_opened();
    for (int i = 0; i < 3; i++) {
        int fd = dial(s);
        say(fd, post(COMPLETIONS, "{\"model\": \"slow\", \"prompt\": \"x\"}", CLOSE));
        pause_us(20000);
        close(fd);
    }
    for (int64_t end = clock_us() + PATIENCE_US; fake_opened() == before;) { /* it soon leaves again */
        assert_true(clock_us() < end);
        pause_us(1000);
    }
    await_beside(0);
    int fd = dial(s);
    say(fd, post(COMPLETIONS, "{\"model\": \"slow\", \"prompt\": \"x\"}", CLOSE));
    pause_us(20000);
    stop_models(s); /* while it loads */
    close(fd);
}

typedef struct crowd {
    const site *s;
    uint64_t seed;
} crowd;

static void *ask_any(void *arg) {
    const crowd *c = arg;
    uint64_t seed = c->seed;
    for (int i = 0; i < 60; i++) {
        static const char *const names[] = {"a", "b", "c", "fake", "slow"};
        char body[200], text[16384], wanted[40], request[400];
        const char *name = names[rng_next(&seed) % 5];
        size_t n = 0;
        snprintf(body, sizeof body, "{\"model\": \"%s\", \"prompt\": \"x\", \"max_tokens\": %d}", name,
                 (int)(1 + rng_next(&seed) % 6));
        snprintf(request, sizeof request,
                 "POST /v1/completions HTTP/1.1\r\nHost: h\r\nContent-Type: application/json\r\n" CLOSE
                 "Content-Length: %zu\r\n\r\n%s",
                 strlen(body), body);
        int fd = dial(c->s);
        say(fd, request);
        const bool leaves = rng_next(&seed) % 8 == 0;
        for (ssize_t got = 1; got > 0 && !leaves && n + 1 < sizeof text;) {
            got = recv(fd, text + n, sizeof text - 1 - n, 0);
            n += got > 0 ? (size_t)got : 0;
        }
        close(fd);
        text[n] = '\0';
        snprintf(wanted, sizeof wanted, "\"model\":\"%s\"", name);
        if (!leaves && strstr(text, wanted) == NULL) {
            fail_msg("wanted %s in: %s", wanted, text);
        }
    }
    return NULL;
}

TEST(many_clients_of_many_models_get_what_they_name) {
    enum { N = 6 };
    const uint64_t seed = 20261130;
    pthread_t threads[N];
    crowd crowds[N];
    print_message("seed %llu\n", (unsigned long long)seed);
    site *s = start_models(2, 3000);
    for (int i = 0; i < N; i++) {
        crowds[i] = (crowd){s, seed + (uint64_t)i};
        assert_int_equal(pthread_create(&threads[i], NULL, ask_any, &crowds[i]), 0);
    }
    for (int i = 0; i < N; i++) {
        pthread_join(threads[i], NULL);
    }
    await_beside(0);
    stop_models(s);
}

/* ---- a place for one of many ---- */

typedef struct model_flood {
    const site *s;
    const char *model;
    atomic_bool stop;
    atomic_int n;
} model_flood;

/* Requests of one model one after the other; two of these overlap without a pause. */
static void *ask_one(void *arg) {
    model_flood *f = arg;
    char body[100], request[400], text[4096];
    snprintf(body, sizeof body, "{\"model\": \"%s\", \"prompt\": \"x\", \"max_tokens\": 20}", f->model);
    snprintf(request, sizeof request,
             "POST /v1/completions HTTP/1.1\r\nHost: h\r\nContent-Type: application/json\r\n" CLOSE
             "Content-Length: %zu\r\n\r\n%s",
             strlen(body), body);
    while (!atomic_load(&f->stop)) {
        int fd = dial(f->s);
        say(fd, request);
        while (recv(fd, text, sizeof text, 0) > 0) {
        }
        close(fd);
        atomic_fetch_add(&f->n, 1);
    }
    return NULL;
}

/* One place: floods of one or two models, and one request of another, which comes to its turn
 * within the time of a load or two beyond the patience. */
static void expect_a_turn(const char *const floods[], int n_floods, const char *wanted) {
    enum { A_FLOOD = 3, MOST = 2 * A_FLOOD };
    pthread_t threads[MOST];
    model_flood f[2] = {{0}};
    site *s = start_models(1, 0);
    for (int i = 0; i < n_floods; i++) {
        f[i].s = s;
        f[i].model = floods[i];
    }
    for (int i = 0; i < n_floods * A_FLOOD; i++) {
        assert_int_equal(pthread_create(&threads[i], NULL, ask_one, &f[i / A_FLOOD]), 0);
    }
    for (int i = 0; i < n_floods; i++) {
        while (atomic_load(&f[i].n) == 0) {
            pause_us(1000);
        }
    }
    for (int i = 0; i < 3; i++) {
        const int64_t began_us = clock_us();
        expect_in(complete(s, wanted, 3, false), "200 OK");
        print_message("after %d ms\n", (int)((clock_us() - began_us) / 1000));
    }
    for (int i = 0; i < n_floods * A_FLOOD; i++) {
        atomic_store(&f[i / A_FLOOD].stop, true);
        pthread_join(threads[i], NULL);
    }
    stop_models(s);
}

/* Sends a request for a stream of "a" that goes on until it is closed. */
static int begin_endless(const site *s) {
    static const char body[] =
        "{\"model\": \"a\", \"prompt\": \"x\", \"max_tokens\": 1000000000, \"stream\": true}";
    char request[400];
    snprintf(request, sizeof request,
             "POST /v1/completions HTTP/1.1\r\nHost: h\r\nContent-Type: application/json\r\n"
             "Content-Length: %zu\r\n\r\n%s",
             strlen(body), body);
    int fd = dial(s);
    say(fd, request);
    return fd;
}

/* Whether a response has begun to come, which is waited for a moment. */
static bool has_begun(int fd) {
    struct pollfd p = {.fd = fd, .events = POLLIN};
    return poll(&p, 1, 5) == 1;
}

static bool is_leaving(const site *s) {
    char text[4096];
    size_t n = 0;
    int fd = dial(s);
    say(fd, "GET /v1/models/a HTTP/1.1\r\nHost: h\r\n" CLOSE "\r\n");
    for (ssize_t got = 1; got > 0 && n + 1 < sizeof text;) {
        got = recv(fd, text + n, sizeof text - 1 - n, 0);
        n += got > 0 ? (size_t)got : 0;
    }
    close(fd);
    text[n] = '\0';
    return strstr(text, "unloading") != NULL;
}

/* Streams of "a", of which one ends only when the next has begun, or waits since the model is
 * to leave: it is never idle before. */
static void *overlap_streams(void *arg) {
    model_flood *f = arg;
    int running = begin_endless(f->s);
    while (!has_begun(running)) {
    }
    atomic_store(&f->n, 1);
    while (!atomic_load(&f->stop)) {
        int next = begin_endless(f->s);
        while (!has_begun(next) && !is_leaving(f->s) && !atomic_load(&f->stop)) {
        }
        close(running);
        running = next;
    }
    close(running);
    return NULL;
}

TEST(a_model_in_use_without_a_pause_makes_place) {
    pthread_t thread;
    site *s = start_models(1, 0);
    model_flood f = {.s = s, .model = "a"};
    assert_int_equal(pthread_create(&thread, NULL, overlap_streams, &f), 0);
    while (atomic_load(&f.n) == 0) {
        pause_us(1000);
    }
    expect_in(complete(s, "b", 3, false), "\"model\":\"b\"");
    atomic_store(&f.stop, true);
    pthread_join(thread, NULL);
    stop_models(s);
}

TEST(models_are_loaded_in_the_order_in_which_they_were_wanted) {
    const char *const floods[] = {"a", "b"};
    expect_a_turn(floods, 2, "c");
}

/* ---- turns of tenants ---- */

typedef struct load_order {
    models *all;
    int32_t numbers[8], n; /* in the order in which they were loaded */
} load_order;

static void note_loaded(void *context) {
    load_order *o = context;
    for (int32_t i = 1; i < models_count(o->all); i++) {
        bool is_new = models_look(o->all, models_at(o->all, i)).state == MODEL_READY;
        for (int32_t k = 0; k < o->n; k++) {
            is_new = is_new && o->numbers[k] != i;
        }
        if (is_new) {
            o->numbers[o->n++] = i;
        }
        if (is_new && o->n == 1) { /* one that another tenant, whose turn it was, has wanted before */
            model_ticket t;
            assert_false(models_take(o->all, models_at(o->all, 4), "modest", &t));
        }
    }
}

static void take_engine(void *context, quire_engine *e) {
    (void)context, (void)e;
}

TEST(a_tenant_that_wants_many_models_does_not_delay_another) {
    static const model_spec list[] = {{"1", &paths[0], false},
                                      {"2", &paths[1], false},
                                      {"3", &paths[2], false},
                                      {"4", &paths[0], false},
                                      {"5", &paths[1], false}};
    load_order order = {.n = 0};
    const models_options o = {
        .others = list, .n_others = 5, .changed = note_loaded, .opened = take_engine, .context = &order};
    quire_engine *main_engine = fake_open(TICK_US);
    model_ticket t;
    assert_int_equal(models_open(&o, &order.all), QUIRE_OK);
    models_attach(order.all, "fake", main_engine);
    for (int32_t i = 1; i <= 4; i++) {
        assert_false(models_take(order.all, models_at(order.all, i), "greedy", &t));
    }
    assert_false(models_take(order.all, models_at(order.all, 5), "modest", &t));
    assert_int_equal(models_start(order.all), QUIRE_OK);
    await_beside(5);
    models_close(order.all);
    const int32_t expected[] = {1, 4, 2, 5, 3}; /* in turns, each tenant's in the order of its requests */
    for (int32_t i = 0; i < 4; i++) {           /* the last may not have been noted */
        assert_int_equal(order.numbers[i], expected[i]);
    }
    fake_close(main_engine);
}

TEST_MAIN(NULL, NULL)
