/* Ids of requests, and the log's line for one. */
#include <string.h>
#include <unistd.h>

#include "server/request_log.h"
#include "test.h"

/* A record whose client sent this id. */
static request_record opened(const char *id) {
    static loop l;
    static server s = {.loops = &l, .n_loops = 1};
    request_record r;
    l.server = &s;
    request_record_open(&r, str_of(id), &l);
    return r;
}

/* The line of r; "" where there is none. */
static void logged(const request_record *r, const char *tenant, char *out, size_t cap) {
    int ends[2], saved = dup(STDERR_FILENO);
    assert_int_equal(pipe(ends), 0);
    dup2(ends[1], STDERR_FILENO);
    request_log(r, tenant);
    dup2(saved, STDERR_FILENO);
    close(saved);
    close(ends[1]);
    ssize_t n = read(ends[0], out, cap - 1);
    close(ends[0]);
    out[n > 0 ? n : 0] = '\0';
}

TEST(a_clients_id_is_kept_if_it_is_short_and_visible) {
    char longest[130];
    memset(longest, 'a', sizeof longest);
    longest[128] = '\0';
    assert_string_equal(opened(longest).id, longest);
    assert_string_equal(opened("!~\"\\").id, "!~\"\\");
    longest[128] = 'a';
    longest[129] = '\0';
    const char *const others[] = {longest, "", "a b", "a\x7f", "a\n", "\xc3\xa4"};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        request_record r = opened(others[i]);
        assert_int_equal(strncmp(r.id, "req-", 4), 0);
        assert_int_equal(strlen(r.id), 20);
    }
}

TEST(a_generation_has_its_counts_and_every_way_its_choices_ended) {
    char got[1000];
    request_record r = opened("x");
    r.method = "POST";
    r.endpoint = "/v1/completions";
    r.status = 200;
    r.is_generation = true;
    r.prompt_tokens = 7;
    r.completion_tokens = 9;
    r.cached_tokens = 4;
    r.finishes = 1u << QUIRE_FINISH_LENGTH | 1u << QUIRE_FINISH_STOP;
    request_record_token(&r, 1500);
    request_record_token(&r, 1000);
    logged(&r, "anna", got, sizeof got);
    assert_non_null(strstr(
        got,
        "quire: request id=x tenant=anna method=POST endpoint=/v1/completions status=200 prompt_tokens=7 "
        "completion_tokens=9 cached_tokens=4 queue_ms=1.500 first_token_ms="));
    assert_non_null(strstr(got, " finish_reason=stop,length\n"));
}

TEST(a_refusal_shows_its_field_and_its_reason_without_what_it_quotes_of_the_value) {
    char got[1000];
    request_record r = opened("x");
    r.status = 400;
    request_record_fail(&r, &(api_error){.status = 400,
                                         .param = "messages",
                                         .message = "messages is \"SEC \"RET\"; must be an array"});
    logged(&r, NULL, got, sizeof got);
    assert_non_null(strstr(got, " param=messages error=\"messages is \\\"..\\\"; must be an array\"\n"));
    request_record_fail(&r,
                        &(api_error){.status = 400, .param = "messages", .message = "messages is \"SECRET"});
    logged(&r, NULL, got, sizeof got);
    assert_non_null(strstr(got, " error=\"messages is \\\"..\"\n"));
}

TEST(an_error_of_the_server_shows_its_message) {
    char got[1000];
    request_record r = opened("x");
    r.status = 500;
    request_record_fail(&r, &(api_error){.status = 500, .message = "out of memory"});
    logged(&r, NULL, got, sizeof got);
    assert_non_null(strstr(got, " error=\"out of memory\"\n"));
}

TEST(probes_are_logged_when_they_fail) {
    char got[1000];
    request_record r = opened("x");
    r.is_probe = true;
    r.status = 200;
    logged(&r, NULL, got, sizeof got);
    assert_string_equal(got, "");
    request_record_fail(&r, &(api_error){.status = 503, .message = "stopped"});
    logged(&r, NULL, got, sizeof got);
    assert_non_null(strstr(got, " error=stopped\n"));
}

TEST_MAIN(NULL, NULL)
