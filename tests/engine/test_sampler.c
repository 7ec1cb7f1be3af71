#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <math.h>

#include "base/rng.h"
#include "engine/sampler_parts.h"

static sampling_params params(float temperature) {
    sampling_params p;
    sampling_params_init(&p);
    p.temperature = temperature;
    return p;
}

/* A pick from a copy of logits, with a history of prompt tokens. */
static quire_err pick_with(sampler *s, const float *logits, int32_t n, const sampling_params *p, sample_key key, int32_t *token) {
    float row[64];
    float mu = 2.0f * p->mirostat_tau;
    memcpy(row, logits, (size_t)n * sizeof *row);
    sample_context c = {.params = p, .noise = sample_noise_of(key), .mirostat_mu = &mu};
    return sampler_pick(s, row, &c, token);
}

static int32_t pick(const float *logits, int32_t n, sampling_params p, uint64_t seed, uint32_t position) {
    sampler *s;
    int32_t token = -1;
    assert_int_equal(sampler_open(n, 16, &s), QUIRE_OK);
    assert_int_equal(pick_with(s, logits, n, &p, (sample_key){seed, 0, position}, &token), QUIRE_OK);
    sampler_close(s);
    return token;
}

static void greedy_takes_the_lowest_id_of_equals(void **state) {
    (void)state;
    assert_int_equal(pick((float[]){1, 3, 2, 3}, 4, params(0), 1, 1), 1);
}

static void rows_that_are_no_logits_are_refused(void **state) {
    (void)state;
    float rows[][3] = {{1, NAN, 2}, {1, INFINITY, 2}, {-INFINITY, -INFINITY, -INFINITY}};
    sampler *s;
    int32_t token;
    sampling_params greedy = params(0), warm = params(1);
    assert_int_equal(sampler_open(3, 16, &s), QUIRE_OK);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(pick_with(s, rows[i], 3, &greedy, (sample_key){0}, &token), QUIRE_NUMERIC);
        assert_int_equal(pick_with(s, rows[i], 3, &warm, (sample_key){0}, &token), QUIRE_NUMERIC);
    }
    sampler_close(s);
}

static void before_min_tokens_no_stop_token_is_chosen(void **state) {
    (void)state;
    float logits[] = {5, 4, 3};
    int32_t token;
    sampler *s;
    assert_int_equal(sampler_open(3, 16, &s), QUIRE_OK);
    for (uint32_t i = 0; i < 100; i++) {
        sampling_params p = params(i % 2 ? 1.0f : 0.0f);
        p.top_k = i % 3 ? 2 : 0;
        p.min_tokens = 1;
        p.stop_tokens[0] = p.stop_tokens[1] = 0;
        p.stop_tokens[2] = 2;
        p.n_stop_tokens = 3;
        assert_int_equal(pick_with(s, logits, 3, &p, (sample_key){i, 0, i}, &token), QUIRE_OK);
        assert_int_equal(token, 1);
    }
    sampler_close(s);
}

static void a_seed_fixes_the_token_and_its_position_changes_it(void **state) {
    (void)state;
    float logits[64] = {0};
    int differ = 0;
    for (uint32_t i = 0; i < 64; i++) {
        assert_int_equal(pick(logits, 64, params(1), 7, i), pick(logits, 64, params(1), 7, i));
        differ += pick(logits, 64, params(1), 7, i) != pick(logits, 64, params(1), 8, i);
    }
    assert_true(differ > 48);
}

static void draws_follow_the_distribution(void **state) {
    (void)state;
    float logits[] = {logf(0.5f), logf(0.25f), logf(0.125f), logf(0.125f)};
    double expected[] = {0.5, 0.25, 0.125, 0.125}, chi = 0;
    int32_t counts[4] = {0}, n = 20000, token;
    sampling_params p = params(1);
    sampler *s;
    assert_int_equal(sampler_open(4, 16, &s), QUIRE_OK);
    for (int32_t i = 0; i < n; i++) {
        assert_int_equal(pick_with(s, logits, 4, &p, (sample_key){42, 0, (uint32_t)i}, &token), QUIRE_OK);
        counts[token]++;
    }
    for (int i = 0; i < 4; i++) {
        double d = counts[i] - expected[i] * n;
        chi += d * d / (expected[i] * n);
    }
    assert_true(chi < 16.3); /* three degrees of freedom, p = 0.001; the seed is fixed, so it passes or fails for good */
    sampler_close(s);
}

/* What counts is state: the same history gives the same marks, however often the sampler was used between. */
static void penalties_count_each_row_afresh(void **state) {
    (void)state;
    int32_t history[] = {0, 1, 1, 2}, token;
    float first[4], row[4];
    sampling_params p = params(0);
    p.frequency_penalty = 1.0f;
    p.presence_penalty = 0.5f;
    p.repetition_penalty = 2.0f;
    sampler *s;
    assert_int_equal(sampler_open(4, 16, &s), QUIRE_OK);
    sample_context c = {.params = &p, .tokens = history, .n_tokens = 4, .n_prompt = 1};
    for (int i = 0; i < 5; i++) {
        memcpy(row, (float[]){4, 4, -4, 4}, sizeof row);
        assert_int_equal(sampler_pick(s, row, &c, &token), QUIRE_OK);
        assert_int_equal(token, 3);
        if (i == 0) {
            memcpy(first, row, sizeof first);
            assert_float_equal(row[0], 2.0f, 0);  /* in the prompt: repetition only */
            assert_float_equal(row[1], -0.5f, 0); /* 4 / 2 - 2 * 1 - 0.5 */
            assert_float_equal(row[2], -9.5f, 0); /* -4 * 2 - 1 - 0.5 */
        }
        assert_memory_equal(row, first, sizeof first);
    }
    sampler_close(s);
}

static void a_request_that_rules_out_every_token_is_at_fault_itself(void **state) {
    (void)state;
    sampler *s;
    int32_t token, only[1] = {2};
    sampling_params p = params(0);
    p.lists = sampling_lists_new();
    assert_int_equal(sampling_lists_set_allowed(p.lists, only, 1), QUIRE_OK);
    assert_int_equal(sampler_open(3, 4, &s), QUIRE_OK);
    assert_int_equal(pick_with(s, (float[]){1, 2, 0}, 3, &p, (sample_key){0}, &token), QUIRE_OK);
    assert_int_equal(token, 2);
    assert_int_equal(pick_with(s, (float[]){1, 2, -INFINITY}, 3, &p, (sample_key){0}, &token), QUIRE_BAD_REQUEST);
    sampler_close(s);
    sampling_lists_drop(p.lists);
}

/* Rows of every length around a group's, with tokens that cannot come; what is wrong with one is noticed anywhere. */
static void fast_passes_give_the_bits_of_the_plain_ones(void **state) {
    (void)state;
    enum { MOST = 5 * GROUP };
    uint64_t seed = rng_os_seed();
    printf("seed %llu\n", (unsigned long long)seed);
    for (int32_t n = 1; n <= MOST; n++) {
        float logits[MOST], weights[MOST], largest[8];
        double sums[8], total = 0;
        sampler *s;
        assert_int_equal(sampler_open(n, 1, &s), QUIRE_OK);
        const sampler_rows *sets[2] = {&sampler_rows_plain, s->rows};
        for (int32_t i = 0; i < n; i++) {
            logits[i] = i > 0 && rng_next(&seed) % 20 == 0 ? -INFINITY : (float)((double)(rng_next(&seed) % 20001) - 10000) * (n % 2 ? 1e-3f : 3e-2f);
        }
        for (int k = 0; k < 2; k++) {
            s->rows = sets[k];
            s->temperature = 0.7f;
            assert_true(s->rows->scan(s, logits));
            float max = s->max, largest_logit = s->largest[0];
            s->rows->weigh(s, logits);
            s->rows->drop_below(s, 1e-3f);
            double sum = s->rows->sum(s);
            if (k == 0) {
                memcpy(weights, s->weights, (size_t)n * sizeof *weights);
                memcpy(largest, s->largest, s->n_groups * sizeof *largest);
                memcpy(sums, s->sums, s->n_groups * sizeof *sums);
                total = sum;
            }
            assert_true(max == s->max && largest_logit <= max && sum == total);
            assert_memory_equal(weights, s->weights, (size_t)n * sizeof *weights);
            assert_memory_equal(largest, s->largest, s->n_groups * sizeof *largest);
            assert_memory_equal(sums, s->sums, s->n_groups * sizeof *sums);
            float kept = logits[n / 2];
            const float wrong[3] = {NAN, -NAN, INFINITY};
            logits[n / 2] = wrong[n % 3];
            assert_false(s->rows->scan(s, logits));
            logits[n / 2] = kept;
        }
        sampler_close(s);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(greedy_takes_the_lowest_id_of_equals),
        cmocka_unit_test(rows_that_are_no_logits_are_refused),
        cmocka_unit_test(before_min_tokens_no_stop_token_is_chosen),
        cmocka_unit_test(a_seed_fixes_the_token_and_its_position_changes_it),
        cmocka_unit_test(draws_follow_the_distribution),
        cmocka_unit_test(penalties_count_each_row_afresh),
        cmocka_unit_test(a_request_that_rules_out_every_token_is_at_fault_itself),
        cmocka_unit_test(fast_passes_give_the_bits_of_the_plain_ones),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
