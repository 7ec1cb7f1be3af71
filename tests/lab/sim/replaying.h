/* Replays of small traces, for the tests of replay and of the offline optimum. Every
 * invariant is checked after every request. */
#ifndef TESTS_LAB_SIM_REPLAYING_H
#define TESTS_LAB_SIM_REPLAYING_H

#include <stdio.h>
#include <stdlib.h>

#include "base/rng.h"
#include "lab/sim/replay.h"
#include "lab/sim/trace_read.h"
#include "test.h"

static inline trace parse(const char *text) {
    trace t = {0};
    quire_error err = {.message = ""};
    if (trace_parse(str_of(text), "t", 0, &t, &err) != QUIRE_OK) {
        fail_msg("refused: %s", err.message);
    }
    return t;
}

static inline replay_result replay(const trace *t, kv_policy policy, int32_t n_pages, int32_t page_tokens,
                                   int32_t concurrency) {
    replay_options o = {.policy = policy,
                        .n_pages = n_pages,
                        .page_tokens = page_tokens,
                        .concurrency = concurrency,
                        .checks = true};
    replay_result r = {0};
    quire_error err = {.message = ""};
    if (replay_run(t, &o, &r, &err) != QUIRE_OK) {
        fail_msg("%s", err.message);
    }
    assert_int_equal(r.n_requests, t->n_requests);
    assert_int_equal(r.prompt_tokens, t->n_prompt_tokens);
    return r;
}

/* The same, of a text. */
static inline replay_result replay_text(const char *text, kv_policy policy, int32_t n_pages,
                                        int32_t page_tokens, int32_t concurrency) {
    trace t = parse(text);
    replay_result r = replay(&t, policy, n_pages, page_tokens, concurrency);
    trace_deinit(&t);
    return r;
}

/* A trace of prompts of 1..47 tokens that fork anywhere from a few texts, with answers
 * that may come back. */
static inline trace random_trace(uint64_t *seed, int32_t n_requests) {
    size_t size = (size_t)n_requests * 96, n = 0;
    char *text = malloc(size);
    assert_non_null(text);
    for (int32_t i = 0; i < n_requests; i++) {
        uint64_t v = rng_next(seed);
        n += (size_t)snprintf(
            text + n, size - n,
            "{\"tenant\": \"%d\", \"prompt\": [[\"s%d\", %d], [\"u%d\", %d]], \"output\": [[\"u%d\", %d]]}\n",
            (int)(v % 2), (int)(v >> 8 & 3), 1 + (int)(v >> 16 & 31), (int)(v >> 24 & 7), (int)(v >> 32 & 15),
            (int)(v >> 40 & 7), (int)(v >> 48 & 7));
    }
    trace t = parse(text);
    free(text);
    return t;
}

#endif
