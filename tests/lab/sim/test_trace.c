/* Reading request traces: the three formats, and files that are not traces. */
#include <stdio.h>
#include <stdlib.h>

#include "lab/sim/trace_read.h"
#include "test.h"

static trace parse(const char *text, int32_t limit) {
    trace t = {0};
    quire_error err = {.message = ""};
    if (trace_parse(str_of(text), "t", limit, &t, &err) != QUIRE_OK) {
        fail_msg("refused: %s", err.message);
    }
    return t;
}

/* The tokens of request i, in a block that is the caller's to free. */
static int32_t *tokens_of(const trace *t, int32_t i) {
    int32_t *out = calloc((size_t)(t->requests[i].n_prompt + t->requests[i].n_output), sizeof *out);
    assert_non_null(out);
    trace_tokens(t, &t->requests[i], out);
    return out;
}

/* How many tokens two requests begin with that are the same. */
static int32_t common(const trace *t, int32_t a, int32_t b) {
    int32_t *x = tokens_of(t, a), *y = tokens_of(t, b), n = 0;
    int32_t nx = t->requests[a].n_prompt + t->requests[a].n_output,
            ny = t->requests[b].n_prompt + t->requests[b].n_output;
    while (n < nx && n < ny && x[n] == y[n]) {
        n++;
    }
    free(x);
    free(y);
    return n;
}

TEST(mooncake_blocks_of_the_same_hash_are_the_same_512_tokens) {
    trace t =
        parse("{\"timestamp\": 5, \"input_length\": 1100, \"output_length\": 7, \"hash_ids\": [9, 4, 5]}\n"
              "{\"timestamp\": 27, \"input_length\": 1030, \"output_length\": 0, \"hash_ids\": [9, 4, 6]}\r\n"
              "\n"
              "{\"timestamp\": 30.5, \"input_length\": 513, \"output_length\": 1, \"hash_ids\": [4, 9]}",
              0);
    assert_int_equal(t.n_requests, 3);
    assert_int_equal(t.n_tenants, 1);
    assert_int_equal(t.n_prompt_tokens, 1100 + 1030 + 513);
    assert_int_equal(t.n_output_tokens, 8);
    assert_int_equal(t.longest, 1107);
    assert_int_equal(t.requests[0].n_prompt, 1100);
    assert_int_equal(t.requests[0].n_output, 7);
    assert_int_equal(t.requests[1].arrival_us, 27000);
    assert_int_equal(t.requests[2].arrival_us, 30500);
    assert_int_equal(common(&t, 0, 1), 1024);
    assert_int_equal(common(&t, 0, 2), 0);
    trace_deinit(&t);
}

TEST(a_partial_last_block_begins_like_the_whole_one) {
    trace t =
        parse("{\"timestamp\": 0, \"input_length\": 600, \"output_length\": 100, \"hash_ids\": [1, 2]}\n"
              "{\"timestamp\": 0, \"input_length\": 1024, \"output_length\": 0, \"hash_ids\": [1, 2]}\n",
              0);
    assert_int_equal(common(&t, 0, 1), 600);
    trace_deinit(&t);
}

TEST(azure_requests_share_nothing) {
    trace t = parse("TIMESTAMP,ContextTokens,GeneratedTokens\r\n"
                    "2023-11-16 18:17:03.9799600,4808,10\r\n"
                    "2023-11-16 18:17:04.0319600,3180,8\r\n"
                    "2024-03-01 00:00:00,20,0\r\n",
                    0);
    assert_int_equal(t.n_requests, 3);
    assert_int_equal(t.requests[1].n_prompt, 3180);
    assert_int_equal(t.requests[1].n_output, 8);
    assert_int_equal(t.requests[0].arrival_us, INT64_C(1700158623979960));
    assert_int_equal(t.requests[1].arrival_us - t.requests[0].arrival_us, 52000);
    assert_int_equal(t.requests[2].arrival_us, INT64_C(1709251200000000)); /* the day after a leap day */
    assert_int_equal(common(&t, 0, 1), 0);
    trace_deinit(&t);
}

TEST(the_own_format_shares_texts_by_name_and_keeps_token_ids) {
    trace t =
        parse("{\"prompt\": [[\"system\", 40], [\"u1\", 3], 7, 8], \"output\": [[\"a1\", 5]]}\n"
              "{\"t\": 0.25, \"prompt\": [[\"system\", 40], [\"u1\", 3], 7, 8, [\"a1\", 9]], \"output\": 4}\n"
              "{\"t\": 1, \"tenant\": \"b\", \"prompt\": [[\"system\", 10], 2147483647]}\n"
              "{\"t\": 2, \"tenant\": \"b\", \"prompt\": 12}\n",
              0);
    assert_int_equal(t.n_requests, 4);
    assert_int_equal(t.n_tenants, 2);
    assert_int_equal(common(&t, 0, 1), 50);
    assert_int_equal(common(&t, 1, 2), 10);
    assert_int_equal(common(&t, 2, 3), 0);
    assert_int_equal(t.requests[1].n_prompt, 54);
    assert_int_equal(t.requests[1].n_output, 4);
    assert_int_equal(t.requests[1].arrival_us, 250000);
    assert_int_not_equal(t.requests[0].tenant, t.requests[2].tenant);
    int32_t *first = tokens_of(&t, 0), *third = tokens_of(&t, 2);
    assert_int_equal(first[43], 7);
    assert_int_equal(first[44], 8);
    assert_int_equal(third[10], INT32_MAX);
    for (int i = 0; i < 43; i++) {
        assert_true(first[i] < 0); /* no id that a file could give */
    }
    free(first);
    free(third);
    trace_deinit(&t);
}

/* The hash's eight bytes are the name's. */
TEST(a_name_and_a_hash_never_mean_the_same_text) {
    trace t = parse(
        "{\"timestamp\": 0, \"input_length\": 8, \"output_length\": 0, \"hash_ids\": [4702111234474983745]}\n"
        "{\"t\": 1, \"prompt\": [[\"AAAAAAAA\", 8]]}\n",
        0);
    assert_int_equal(common(&t, 0, 1), 0);
    trace_deinit(&t);
}

TEST(a_text_keeps_its_longest_use_to_itself) {
    trace t = parse("{\"prompt\": [[\"a\", 20]]}\n{\"prompt\": [[\"a\", 10]]}\n{\"prompt\": [[\"a\", 10], "
                    "[\"b\", 10]]}\n",
                    0);
    assert_int_equal(common(&t, 0, 1), 10);
    assert_int_equal(common(&t, 0, 2), 10);
    trace_deinit(&t);
}

TEST(requests_come_in_order_of_arrival_and_a_limit_cuts_the_file) {
    static const char text[] =
        "{\"t\": 3, \"prompt\": 30}\n{\"t\": 1, \"prompt\": 10}\n{\"t\": 1, \"prompt\": 11}\nno JSON";
    trace t = parse(text, 3);
    assert_int_equal(t.requests[0].n_prompt, 10);
    assert_int_equal(t.requests[1].n_prompt, 11);
    assert_int_equal(t.requests[2].n_prompt, 30);
    trace_deinit(&t);
    t = parse(text, 1);
    assert_int_equal(t.n_requests, 1);
    assert_int_equal(t.requests[0].n_prompt, 30);
    trace_deinit(&t);
}

TEST(a_malformed_line_is_refused_with_its_number) {
    static const struct {
        const char *line, *word;
        quire_err e;
    } bad[] = {
        {"{\"prompt\": 1", "byte", QUIRE_BAD_FILE},
        {"{\"prompt\": 1} {}", "byte 14", QUIRE_BAD_FILE},
        {"[1, 2]", "", QUIRE_BAD_FILE},
        {"{}", "prompt", QUIRE_BAD_FILE},
        {"{\"prompt\": 0}", "at least one token", QUIRE_BAD_FILE},
        {"{\"prompt\": []}", "at least one token", QUIRE_BAD_FILE},
        {"{\"prompt\": [[\"a\", 0]]}", "at least one token", QUIRE_BAD_FILE},
        {"{\"prompt\": -1}", "prompt", QUIRE_BAD_FILE},
        {"{\"prompt\": 1.5}", "prompt", QUIRE_BAD_FILE},
        {"{\"prompt\": [-1]}", "token ids", QUIRE_BAD_FILE},
        {"{\"prompt\": [2147483648]}", "token ids", QUIRE_BAD_FILE},
        {"{\"prompt\": [[\"a\"]]}", "[\"name\", n]", QUIRE_BAD_FILE},
        {"{\"prompt\": [[5, 5]]}", "[\"name\", n]", QUIRE_BAD_FILE},
        {"{\"prompt\": [[\"a\", -5]]}", "[\"name\", n]", QUIRE_BAD_FILE},
        {"{\"prompt\": [[\"a\", 9223372036854775808]]}", "[\"name\", n]", QUIRE_BAD_FILE},
        {"{\"prompt\": 3, \"output\": \"x\"}", "output", QUIRE_BAD_FILE},
        {"{\"prompt\": 3, \"t\": -1}", "t must be", QUIRE_BAD_FILE},
        {"{\"prompt\": 3, \"t\": 1e300}", "t must be", QUIRE_BAD_FILE},
        {"{\"prompt\": 3, \"t\": NaN}", "NaN and Infinity", QUIRE_BAD_FILE},
        {"{\"prompt\": 3, \"tenant\": 5}", "tenant", QUIRE_BAD_FILE},
        {"{\"prompt\": 16777217}", "16,777,216", QUIRE_TOO_LARGE},
        {"{\"prompt\": [[\"a\", 16777216], [\"a\", 1]]}", "16,777,216", QUIRE_TOO_LARGE},
        {"{\"hash_ids\": 5, \"input_length\": 3, \"output_length\": 3}", "hash_ids", QUIRE_BAD_FILE},
        {"{\"hash_ids\": [5], \"output_length\": 3}", "input_length", QUIRE_BAD_FILE},
        {"{\"hash_ids\": [5], \"input_length\": 3}", "output_length", QUIRE_BAD_FILE},
        {"{\"hash_ids\": [5], \"input_length\": 0, \"output_length\": 3}", "input_length", QUIRE_BAD_FILE},
        {"{\"hash_ids\": [5], \"input_length\": 513, \"output_length\": 3}", "2", QUIRE_BAD_FILE},
        {"{\"hash_ids\": [5, 6], \"input_length\": 512, \"output_length\": 3}", "1", QUIRE_BAD_FILE},
        {"{\"hash_ids\": [\"5\"], \"input_length\": 512, \"output_length\": 3}", "hash_ids", QUIRE_BAD_FILE},
        {"{\"hash_ids\": [-5], \"input_length\": 512, \"output_length\": 3}", "hash_ids", QUIRE_BAD_FILE},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        char text[256];
        trace t = {.n_requests = 77};
        quire_error err = {.message = ""};
        snprintf(text, sizeof text, "{\"prompt\": 1}\n%s", bad[i].line);
        quire_err e = trace_parse(str_of(text), "some.jsonl", 0, &t, &err);
        if (e != bad[i].e || strstr(err.message, "some.jsonl, line 2") == NULL ||
            strstr(err.message, bad[i].word) == NULL) {
            fail_msg("%s: %s: %s", bad[i].line, quire_err_name(e), err.message);
        }
        assert_int_equal(t.n_requests, 77);
    }
}

TEST(a_malformed_csv_line_is_refused_with_its_number) {
    static const char *const bad[] = {
        "2023-11-16 18:17:03.97,0,10",    "2023-11-16 18:17:03.97,5",          "2023-11-16 18:17:03.97,5,6,7",
        "2023-13-16 18:17:03.97,5,6",     "2023-11-16 24:17:03.97,5,6",        "2023-11-16T18:17:03.97,5,6",
        "2023-11-16 18:17:03.,5,6",       "2023-11-16 18:17:03,-5,6",          "2023-11-16 18:17:03,5,x",
        "2023-00-16 18:17:03,5,6",        "1969-11-16 18:17:03,5,6",           ",,",
        "2023-11-16 18:17:03,16777217,6", "2023-11-16 18:17:03,5,99999999999",
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        char text[256];
        trace t = {0};
        quire_error err = {.message = ""};
        snprintf(text, sizeof text, "TIMESTAMP,ContextTokens,GeneratedTokens\n%s\n", bad[i]);
        quire_err e = trace_parse(str_of(text), "some.csv", 0, &t, &err);
        if ((e != QUIRE_BAD_FILE && e != QUIRE_TOO_LARGE) ||
            strstr(err.message, "some.csv, line 2") == NULL) {
            fail_msg("%s: %s: %s", bad[i], quire_err_name(e), err.message);
        }
    }
}

TEST(what_is_no_trace_is_refused) {
    static const char *const bad[] = {"", "\n \n", "hello\n", "a,b,c\n1,2,3\n",
                                      "TIMESTAMP,ContextTokens,GeneratedTokens\n"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        trace t = {0};
        quire_error err = {.message = ""};
        assert_int_equal(trace_parse(str_of(bad[i]), "t", 0, &t, &err), QUIRE_BAD_FILE);
        assert_true(err.message[0] != 0);
    }
    trace t = {0};
    quire_error err = {.message = ""};
    assert_int_equal(trace_read("/nowhere/trace.jsonl", 0, &t, &err), QUIRE_NOT_FOUND);
    assert_non_null(strstr(err.message, "/nowhere/trace.jsonl"));
}

/* 129 different texts of 2^24 tokens are more than 2^31 ids. */
TEST(a_trace_of_more_tokens_than_ids_is_refused) {
    char text[129 * 24 + 1] = "";
    for (size_t i = 0, n = 0; i < 129; i++) {
        n += (size_t)snprintf(text + n, sizeof text - n, "{\"prompt\": 16777216}\n");
    }
    trace t = {0};
    quire_error err = {.message = ""};
    assert_int_equal(trace_parse(str_of(text), "t", 0, &t, &err), QUIRE_TOO_LARGE);
    assert_non_null(strstr(err.message, "--limit"));
    t = parse(text, 128);
    assert_int_equal(t.runs[t.requests[127].first_run].first + 16777215, -1); /* the last id there is */
    trace_deinit(&t);
}

TEST_MAIN(NULL, NULL)
