/* `quire bench quality`: divergence, perplexity, equal choices and percentiles compared
 * with their definitions, and that copies of a sequence decode as it does. */
#include <string.h>

#include <math.h>
#include <stdio.h>
#include <time.h>

#include "base/rng.h"
#include "lab/bench/logprob_scorer.h"
#include "test.h"

enum { MOST_VOCAB = 5000, N_ROWS = 250 };

static uint64_t begin_seed(void) {
    uint64_t seed = (uint64_t)time(NULL);
    printf("seed %llu\n", (unsigned long long)seed);
    return seed;
}

static float draw(uint64_t *seed, float scale) {
    return scale * ((float)(rng_next(seed) % 2000001) / 1000000.0f - 1.0f);
}

/* Probabilities by their definition, in long double. */
static void softmax(const float *row, int n, long double *out) {
    long double max = -INFINITY, sum = 0;
    for (int i = 0; i < n; i++) {
        max = row[i] > max ? row[i] : max;
    }
    for (int i = 0; i < n; i++) {
        out[i] = expl((long double)row[i] - max);
        sum += out[i];
    }
    for (int i = 0; i < n; i++) {
        out[i] /= sum;
    }
}

static double divergence(const long double *p, const long double *q, int n) {
    long double sum = 0;
    for (int i = 0; i < n; i++) {
        sum += p[i] > 0 ? p[i] * logl(p[i] / q[i]) : 0;
    }
    return (double)sum;
}

TEST(divergence_and_losses_are_those_of_the_definition) {
    static float p[MOST_VOCAB], q[MOST_VOCAB];
    static long double as[MOST_VOCAB], bs[MOST_VOCAB];
    uint64_t seed = begin_seed();
    for (int round = 0; round < 200; round++) {
        int n = round == 0 ? 1 : 1 + (int)(rng_next(&seed) % MOST_VOCAB),
            target = (int)(rng_next(&seed) % (uint64_t)n);
        float scale = round % 2 ? 20.0f : 1.0f, apart = round % 5 ? 3.0f : 1e-3f,
              offset = round % 3 ? 0 : 500.0f;
        for (int i = 0; i < n; i++) {
            p[i] = draw(&seed, scale);
            q[i] = p[i] + offset + draw(&seed, apart);
        }
        softmax(p, n, as);
        softmax(q, n, bs);
        quality_row r = quality_compare(p, q, n, target);
        double expected = divergence(as, bs, n);
        assert_true(fabs(r.kl - expected) < 1e-11 + 1e-10 * expected);
        assert_true(fabs(r.loss[0] + (double)logl(as[target])) < 1e-9 &&
                    fabs(r.loss[1] + (double)logl(bs[target])) < 1e-9);
    }
}

TEST(a_row_compared_with_itself_is_no_distance_apart) {
    float p[300];
    uint64_t seed = begin_seed();
    for (int i = 0; i < 300; i++) {
        p[i] = draw(&seed, 30.0f);
    }
    quality_row r = quality_compare(p, p, 300, 7);
    assert_true(r.kl == 0 && r.loss[0] == r.loss[1] && r.is_same);
}

TEST(choices_are_of_the_lowest_id_of_equal_logits) {
    const float p[] = {1, 3, 3, 0}, q[] = {0, 2, 1, -4}, other[] = {0, 2, 2.5f, -4};
    assert_true(quality_compare(p, q, 4, 0).is_same);
    assert_false(quality_compare(p, other, 4, 0).is_same);
}

TEST(masked_tokens_and_broken_logits) {
    const float masked[] = {1, -INFINITY, 2}, all[] = {1, 0, 2}, nan[] = {1, NAN, 2};
    assert_true(quality_compare(masked, masked, 3, 0).kl == 0);
    assert_true(fabs(quality_compare(masked, all, 3, 0).kl - log((exp(1) + exp(2) + 1) / (exp(1) + exp(2)))) <
                1e-12);
    assert_true(!isfinite(quality_compare(all, masked, 3, 0).kl)); /* the reference gives it a probability */
    assert_true(!isfinite(quality_compare(all, nan, 3, 0).kl));
    assert_true(!isfinite(quality_compare(nan, all, 3, 0).kl));
}

TEST(figures_of_rows) {
    quality_stats s;
    assert_int_equal(quality_stats_init(&s, N_ROWS), QUIRE_OK);
    double sum = 0;
    for (int i = 0; i < N_ROWS; i++) {
        double kl = (double)((i * 37) % N_ROWS); /* every one of 0 .. 249, in no order */
        sum += kl;
        quality_stats_add(&s, &(quality_row){.kl = kl, .loss = {2, i % 2 ? 1 : 4}, .is_same = i % 5 != 0});
    }
    quality_figures f = quality_stats_figures(&s);
    /* of 250 values 248 are at or under it: ceil(0.99 x 250) */
    assert_true(f.mean_kl == sum / N_ROWS && f.p99_kl == 247);
    assert_true(fabs(f.perplexity[0] - exp(2)) < 1e-12 && fabs(f.perplexity[1] - exp(2.5)) < 1e-12 &&
                f.same_percent == 80);
    quality_stats_deinit(&s);
}

TEST(a_uniform_model_has_the_perplexity_of_its_vocabulary) {
    static float row[MOST_VOCAB];
    quality_stats s;
    assert_int_equal(quality_stats_init(&s, 3), QUIRE_OK);
    for (int i = 0; i < 3; i++) {
        quality_row r = quality_compare(row, row, MOST_VOCAB, i * 1000);
        quality_stats_add(&s, &r);
    }
    quality_figures f = quality_stats_figures(&s);
    assert_true(fabs(f.perplexity[0] - MOST_VOCAB) < 1e-8 && f.perplexity[1] == f.perplexity[0] &&
                f.mean_kl == 0 && f.same_percent == 100);
    quality_stats_deinit(&s);
}

TEST(sizes_are_bounded) {
    quality_stats s;
    assert_int_equal(quality_stats_init(&s, (int64_t)INT32_MAX + 1), QUIRE_TOO_LARGE);
    assert_int_equal(quality_stats_init(&s, 0), QUIRE_TOO_LARGE);
    assert_null(s.kls);
}

/* ---- passes by hand ---- */

static void check(quire_err e, const quire_error *err) {
    if (e != QUIRE_OK) {
        fail_msg("%s: %s", quire_err_text(e), err->message);
    }
}

TEST(copies_of_a_sequence_decode_as_it_does_and_can_be_repeated) {
    enum { N_TOKENS = 90, N_SEQS = 5 };
    int32_t tokens[N_TOKENS], n_vocab;
    float first[4096];
    quire_error err = {.message = ""};
    quire_options engine;
    quire_options_init(&engine);
    engine.model = "builtin-small";
    engine.n_threads = 2;
    logprob_scorer_options o = {
        .engine = &engine, .step = 32, .max_tokens = N_TOKENS, .max_len = N_TOKENS, .n_seqs = N_SEQS};
    logprob_scorer s;
    check(logprob_scorer_open(&o, &s, &err), &err);
    n_vocab = s.b.desc->n_vocab;
    assert_true(n_vocab <= 4096);
    model_runner_prompt(&s.b, 3, N_TOKENS, tokens);
    for (int32_t at = 0; at < N_TOKENS - 1; at += 32) {
        check(logprob_scorer_pass(&s, tokens, N_TOKENS - 1 - at < 32 ? N_TOKENS - 1 - at : 32, 0), &err);
    }
    check(logprob_scorer_copy(&s), &err);
    assert_true(kv_cache_available(&s.cache) == 0 || kv_cache_available(&s.cache) < s.cache.n_pages / N_SEQS);
    for (int repeat = 0; repeat < 2; repeat++) {
        check(logprob_scorer_decode(&s, tokens, N_SEQS), &err);
        for (int32_t i = 0; i < N_SEQS; i++) {
            if (repeat == 0 && i == 0) {
                memcpy(first, model_runner_logits(&s.b, 0), (size_t)n_vocab * sizeof *first);
            }
            assert_memory_equal(first, model_runner_logits(&s.b, i), (size_t)n_vocab * sizeof *first);
        }
    }
    check(logprob_scorer_pass(&s, tokens, 1, 1), &err); /* the first itself goes on */
    assert_memory_equal(first, model_runner_logits(&s.b, 0), (size_t)n_vocab * sizeof *first);
    check(logprob_scorer_end(&s, tokens, &err), &err);
    assert_int_equal(kv_cache_available(&s.cache), s.cache.n_pages);
    logprob_scorer_close(&s);
}

TEST_MAIN(NULL, NULL)
