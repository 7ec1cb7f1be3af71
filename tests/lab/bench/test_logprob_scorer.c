/* Log-probabilities are the same, bit for bit, with pages, a contiguous cache or no
 * cache, however many tokens a pass has. */
#include <stdlib.h>
#include <string.h>

#include "lab/bench/logprob_scorer.h"
#include "test.h"

enum { N_TOKENS = 300, PAGE = 16 }; /* over one chunk of attention */

static quire_err open_scorer(quire_kv_dtype kv_dtype, int32_t step, quire_options *engine, logprob_scorer *s,
                             quire_error *err) {
    quire_options_init(engine);
    engine->model = getenv("QUIRE_TEST_LONG") != NULL ? "builtin" : "builtin-small";
    engine->kv_dtype = kv_dtype;
    engine->n_threads = 2;
    engine->page_tokens = PAGE;
    logprob_scorer_options o = {
        .engine = engine, .step = step, .max_tokens = N_TOKENS, .max_len = N_TOKENS, .recomputes = true};
    return logprob_scorer_open(&o, s, err);
}

static void score(quire_kv_dtype kv_dtype, int32_t step, kv_way way, int32_t n, double *out) {
    int32_t tokens[N_TOKENS];
    quire_options engine;
    quire_error err = {.message = ""};
    logprob_scorer s;
    if (open_scorer(kv_dtype, step, &engine, &s, &err) != QUIRE_OK) {
        fail_msg("%s", err.message);
    }
    model_runner_prompt(&s.b, 5, N_TOKENS, tokens);
    for (int run = 0; run < 2; run++) { /* the second chunk finds nothing of the first */
        memset(out, 0, N_TOKENS * sizeof *out);
        assert_int_equal(logprob_scorer_chunk(&s, way, tokens, n, out, &err), QUIRE_OK);
        assert_int_equal(kv_cache_available(&s.cache), s.cache.n_pages);
    }
    assert_true(s.us[way] > 0);
    logprob_scorer_close(&s);
}

TEST(every_way_and_step_gives_the_same_bits) {
    static const quire_kv_dtype types[] = {QUIRE_KV_F32, QUIRE_KV_F16, QUIRE_KV_BF16};
    static const int32_t steps[] = {1, 37, N_TOKENS};
    double first[N_TOKENS], other[N_TOKENS];
    for (int t = 0; t < 3; t++) {
        score(types[t], 128, KV_WAY_PAGED, N_TOKENS, first);
        /* the last is only predicted */
        assert_true(first[0] < 0 && first[N_TOKENS - 2] < 0 && first[N_TOKENS - 1] == 0);
        for (int i = 0; i < 3; i++) {
            for (kv_way way = KV_WAY_PAGED; way < N_KV_WAYS; way++) {
                if (way == KV_WAY_NONE && steps[i] == 1 && t > 0) {
                    continue; /* 300 passes over up to 300 rows: once is enough */
                }
                score(types[t], steps[i], way, N_TOKENS, other);
                assert_memory_equal(first, other, sizeof first);
            }
        }
        score(types[t], 128, KV_WAY_PAGED, 2, other);
        assert_memory_equal(first, other, sizeof first[0]);
    }
}

TEST(int8_is_paged_only) {
    quire_options engine;
    quire_error err = {.message = ""};
    logprob_scorer s;
    double out[2];
    int32_t tokens[] = {1, 2, 3};
    assert_int_equal(open_scorer(QUIRE_KV_INT8, 8, &engine, &s, &err), QUIRE_OK);
    assert_int_equal(logprob_scorer_chunk(&s, KV_WAY_PAGED, tokens, 3, out, &err), QUIRE_OK);
    assert_int_equal(logprob_scorer_chunk(&s, KV_WAY_CONTIGUOUS, tokens, 3, out, &err), QUIRE_UNSUPPORTED);
    assert_non_null(strstr(err.message, "--kv-dtype"));
    /* the backend has its own ops */
    assert_int_equal(logprob_scorer_chunk(&s, KV_WAY_PAGED, tokens, 3, out, &err), QUIRE_OK);
    logprob_scorer_close(&s);
}

TEST_MAIN(NULL, NULL)
