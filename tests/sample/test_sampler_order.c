/* Sampling stages in an order that a request names, against a plain search over a sorted
 * list; and penalties over the last tokens. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "sample/sampler.h"
#include "test.h"

enum { MOST = 3000 };

typedef struct live {
    int32_t id;
    double logit, weight;
} live;

/* The tokens that are left, the likeliest first. */
typedef struct reference {
    live list[MOST];
    int32_t n;
    double margin; /* how near a decision was to the other one */
} reference;

static int by_logit(const void *a, const void *b) {
    double x = ((const live *)a)->logit, y = ((const live *)b)->logit;
    return x < y ? 1 : x > y ? -1 : 0;
}

static double weigh(reference *r) {
    double sum = 0;
    for (int32_t i = 0; i < r->n; i++) {
        sum += r->list[i].weight = exp(r->list[i].logit - r->list[0].logit);
    }
    for (int32_t i = 0; i < r->n; i++) {
        r->list[i].weight /= sum;
    }
    return sum;
}

/* Notes how near two values are that decide over a token. */
static bool reaches(reference *r, double value, double limit) {
    r->margin = fmin(r->margin, fabs(value - limit) / fmax(fabs(limit), 1e-30));
    return value >= limit;
}

static void keep_best(reference *r, const sampling_params *p, sampling_stage stage) {
    double mean = 0, squares = 0, cumulated = 0;
    int32_t n = 0;
    for (int32_t i = 0; i < r->n; i++) {
        mean += r->list[i].logit / r->n;
    }
    for (int32_t i = 0; i < r->n; i++) {
        squares += (r->list[i].logit - mean) * (r->list[i].logit - mean);
    }
    if (stage == SAMPLING_TOP_N_SIGMA) {
        while (n < r->n && (n == 0 || reaches(r, r->list[n].logit - r->list[0].logit,
                                              -(double)p->top_n_sigma * sqrt(squares / r->n)))) {
            n++;
        }
    } else if (stage == SAMPLING_MIN_P) {
        while (n < r->n && reaches(r, r->list[n].weight, (double)p->min_p * r->list[0].weight)) {
            n++;
        }
    } else if (stage == SAMPLING_TOP_K) {
        n = p->top_k < r->n ? p->top_k : r->n;
    } else {
        while (n < r->n && !reaches(r, cumulated, (double)p->top_p)) {
            cumulated += r->list[n++].weight;
        }
    }
    r->n = n;
}

static double nearness_entropy;
static int by_nearness(const void *a, const void *b) {
    double x = fabs(-log(((const live *)a)->weight) - nearness_entropy),
           y = fabs(-log(((const live *)b)->weight) - nearness_entropy);
    return x < y ? -1 : x > y ? 1 : 0;
}

static void keep_typical(reference *r, double typical_p) {
    double cumulated = 0;
    int32_t n = 0;
    nearness_entropy = 0;
    for (int32_t i = 0; i < r->n; i++) {
        nearness_entropy -= r->list[i].weight > 0 ? r->list[i].weight * log(r->list[i].weight) : 0;
    }
    qsort(r->list, (size_t)r->n, sizeof *r->list, by_nearness);
    while (n < r->n && !reaches(r, cumulated, typical_p)) {
        cumulated += r->list[n++].weight;
    }
    r->n = n;
    qsort(r->list, (size_t)r->n, sizeof *r->list, by_logit);
}

static void drop_top_choices(reference *r, double threshold) {
    int32_t n = 0;
    while (n < r->n && reaches(r, r->list[n].weight, threshold)) {
        n++;
    }
    if (n > 1) {
        r->n -= n - 1;
        memmove(r->list, r->list + n - 1, (size_t)r->n * sizeof *r->list);
    }
}

static void run(reference *r, const float *logits, int32_t n, const sampling_params *p) {
    r->n = n;
    r->margin = INFINITY;
    for (int32_t i = 0; i < n; i++) {
        r->list[i] = (live){.id = i, .logit = (double)logits[i]};
    }
    qsort(r->list, (size_t)n, sizeof *r->list, by_logit);
    for (int32_t i = 0; p->order[i] != SAMPLING_END; i++) {
        (void)weigh(r);
        if (p->order[i] == SAMPLING_TEMPERATURE) {
            for (int32_t k = 0; k < r->n; k++) {
                r->list[k].logit /= (double)p->temperature;
            }
        } else if (p->order[i] == SAMPLING_TYPICAL_P) {
            keep_typical(r, (double)p->typical_p);
        } else if (p->order[i] == SAMPLING_XTC) {
            drop_top_choices(r, (double)p->xtc_threshold);
        } else {
            keep_best(r, p, (sampling_stage)p->order[i]);
        }
    }
    (void)weigh(r);
}

/* About a Gaussian. */
static float bell(uint64_t *seed) {
    float sum = -6.0f;
    for (int i = 0; i < 12; i++) {
        sum += rng_uniform((uint32_t)rng_next(seed));
    }
    return sum;
}

/* Some of the stages, in any order. */
static sampling_params draw_params(uint64_t *seed, int32_t n) {
    sampling_params p;
    sampling_params_init(&p);
    p.temperature = 0.3f + (float)(rng_next(seed) % 16) * 0.1f;
    p.top_n_sigma = 0.5f + (float)(rng_next(seed) % 20) * 0.1f;
    p.min_p = (float)(1 + rng_next(seed) % 100) * 1e-3f;
    p.top_k = 1 + (int32_t)(rng_next(seed) % (uint64_t)n);
    p.typical_p = 0.2f + (float)(rng_next(seed) % 79) * 0.01f;
    p.top_p = 0.2f + (float)(rng_next(seed) % 79) * 0.01f;
    p.xtc_probability = 1;
    p.xtc_threshold = 0.02f + (float)(rng_next(seed) % 20) * 0.01f;
    int32_t n_stages = 1 + (int32_t)(rng_next(seed) % (SAMPLING_N_STAGES - 1));
    for (int32_t i = 0; i < SAMPLING_N_STAGES - 1; i++) {
        int32_t k = (int32_t)(rng_next(seed) % (uint64_t)(i + 1));
        p.order[i] = p.order[k];
        p.order[k] = (uint8_t)(i + 1);
    }
    p.order[n_stages] = SAMPLING_END;
    return p;
}

TEST(stages_run_in_the_order_that_is_named) {
    static const int32_t sizes[] = {2, 63, 500, MOST};
    static float row[MOST];
    static reference expected;
    uint64_t seed = rng_os_seed();
    int n_compared = 0;
    printf("seed %llu\n", (unsigned long long)seed);
    for (int round = 0; round < 800; round++) {
        int32_t n = sizes[round % 4];
        float *probs, spread = 1.0f + (float)(round / 4 % 5);
        sampler *s;
        sampling_params p = draw_params(&seed, n);
        sample_context c = {.params = &p, .noise = {.token = 0.5f, .xtc = 0.5f}};
        for (int32_t i = 0; i < n; i++) {
            row[i] = spread * bell(&seed);
        }
        run(&expected, row, n, &p);
        if (expected.margin < 1e-4) {
            continue; /* rounding may decide it */
        }
        assert_int_equal(sampler_open(n, 4, &s), QUIRE_OK);
        assert_int_equal(sampler_distribution(s, row, &c, &probs), QUIRE_OK);
        for (int32_t i = 0; i < expected.n; i++) {
            double wanted = expected.list[i].weight;
            if (fabs((double)probs[expected.list[i].id] - wanted) > 1e-4 * wanted + 1e-9) {
                fail_msg("round %d: token %d has %g in place of %g", round, (int)expected.list[i].id,
                         (double)probs[expected.list[i].id], wanted);
            }
            probs[expected.list[i].id] = 0.0f;
        }
        for (int32_t i = 0; i < n; i++) {
            assert_true(probs[i] < 1e-7f);
        }
        n_compared++;
        sampler_close(s);
    }
    assert_true(n_compared > 400);
}

/* The temperature after top-p leaves other tokens than before it. */
TEST(a_temperature_at_the_end_changes_no_cut) {
    float row[3] = {2, 1, 0}, *probs;
    sampler *s;
    sampling_params p;
    sampling_params_init(&p);
    p.temperature = 10;
    p.top_p = 0.6f; /* at temperature 1 the best has 0.67 */
    sample_context c = {.params = &p};
    assert_int_equal(sampler_open(3, 4, &s), QUIRE_OK);
    assert_int_equal(sampler_distribution(s, row, &c, &probs), QUIRE_OK);
    assert_true(probs[1] > 0.1f);
    p.order[0] = SAMPLING_TOP_P;
    p.order[1] = SAMPLING_TEMPERATURE;
    assert_int_equal(sampler_distribution(s, row, &c, &probs), QUIRE_OK);
    assert_float_equal(probs[0], 1, 0);
    p.temperature = 0; /* greedy in any order */
    p.top_p = 1;
    assert_int_equal(sampler_distribution(s, row, &c, &probs), QUIRE_OK);
    assert_float_equal(probs[0], 1, 0);
    sampler_close(s);
}

/* Tokens without a weight that a temperature after the cuts gives one. */
TEST(a_high_temperature_reaches_far_tokens) {
    static const uint8_t orders[][2] = {{SAMPLING_TOP_K, SAMPLING_TEMPERATURE},
                                        {SAMPLING_TEMPERATURE, SAMPLING_TOP_K}};
    sampler *s;
    sampling_params p;
    sampling_params_init(&p);
    p.temperature = 100;
    p.top_k = 2;
    sample_context c = {.params = &p};
    assert_int_equal(sampler_open(4, 4, &s), QUIRE_OK);
    for (int i = 0; i < 2; i++) {
        float row[4] = {-101, -100, 0, -INFINITY}, *probs;
        memcpy(p.order, orders[i], 2);
        assert_int_equal(sampler_distribution(s, row, &c, &probs), QUIRE_OK);
        assert_float_equal(probs[2], 0.731058f, 1e-4); /* 1 / (1 + exp(-1)) */
        assert_float_equal(probs[1], 0.268941f, 1e-4);
        assert_true(probs[0] == 0.0f && probs[3] == 0.0f);
    }
    sampler_close(s);
}

/* Tokens too far from the best one to have a weight count for what is over all tokens. */
TEST(far_tokens_count_at_any_place_of_a_stage) {
    static const uint8_t orders[][2] = {{SAMPLING_TOP_N_SIGMA, SAMPLING_XTC},
                                        {SAMPLING_XTC, SAMPLING_TOP_N_SIGMA}};
    sampler *s;
    sampling_params p;
    sampling_params_init(&p);
    sample_context c = {.params = &p};
    float *probs;
    assert_int_equal(sampler_open(4, 4, &s), QUIRE_OK);
    p.top_n_sigma = 1;
    for (int i = 0; i < 2; i++) {
        float row[4] = {100, 98, -10, -10}; /* their deviation is 54; that of the first two 1 */
        memcpy(p.order, orders[i], 2);
        assert_int_equal(sampler_distribution(s, row, &c, &probs), QUIRE_OK);
        assert_float_equal(probs[1], 0.119203f, 1e-5); /* 1 / (1 + exp(2)) */
    }
    p.temperature = 0.5f; /* of an entropy of 0.26 of the most that four have */
    p.dynatemp_range = 0.25f;
    memcpy(p.order, (uint8_t[]){SAMPLING_TEMPERATURE, SAMPLING_END}, 2);
    assert_int_equal(sampler_distribution(s, (float[]){100, 98, -10, -10}, &c, &probs), QUIRE_OK);
    assert_float_equal(probs[1], 0.0052786f, 1e-5);
    p.typical_p = 0.7f; /* the entropy is that of two tokens */
    memcpy(p.order, (uint8_t[]){SAMPLING_TYPICAL_P, SAMPLING_END}, 2);
    assert_int_equal(sampler_distribution(s, (float[]){2, 1, -3e38f, -3e38f}, &c, &probs), QUIRE_OK);
    assert_float_equal(probs[0], 1, 0);
    sampler_close(s);
}

/* A low temperature leaves tokens without a weight: the least likely one is not
 * theirs. */
TEST(the_least_likely_choice_has_a_weight) {
    float row[3] = {2, 1, 0}, *probs;
    sampler *s;
    sampling_params p;
    sampling_params_init(&p);
    p.temperature = 0.01f;
    p.top_p = 0.999f;
    p.xtc_probability = 1;
    p.xtc_threshold = 0;
    sample_context c = {.params = &p};
    assert_int_equal(sampler_open(3, 4, &s), QUIRE_OK);
    memcpy(p.order, (uint8_t[]){SAMPLING_TOP_P, SAMPLING_TEMPERATURE, SAMPLING_XTC}, 3);
    assert_int_equal(sampler_distribution(s, row, &c, &probs), QUIRE_OK);
    assert_true(probs[0] == 1.0f && probs[1] == 0.0f && probs[2] == 0.0f);
    sampler_close(s);
}

/* The row after the penalties, of the tokens 0 0 1 2, of which the last is the output. */
static void expect_row(int32_t last_n, float repetition, float frequency, float presence,
                       const float wanted[4]) {
    static const int32_t tokens[] = {0, 0, 1, 2};
    float row[4] = {1, 1, 1, 1};
    sampler *s;
    sampling_params p;
    sampling_params_init(&p);
    p.penalty_last_n = last_n;
    p.repetition_penalty = repetition;
    p.frequency_penalty = frequency;
    p.presence_penalty = presence;
    sample_context c = {.params = &p, .tokens = tokens, .n_tokens = 4, .n_prompt = 3};
    assert_int_equal(sampler_open(4, 4, &s), QUIRE_OK);
    assert_int_equal(sampler_adjust(s, row, &c), QUIRE_OK);
    for (int i = 0; i < 4; i++) {
        assert_float_equal(row[i], wanted[i], 1e-6);
    }
    sampler_close(s);
}

TEST(penalties_count_the_last_tokens) {
    expect_row(SAMPLING_PENALTIES_USUAL, 2, 0, 0, (float[]){0.5f, 0.5f, 0.5f, 1});
    expect_row(SAMPLING_PENALTIES_USUAL, 1, 0.25f, 0.5f, (float[]){1, 1, 0.25f, 1});
    expect_row(-1, 1, 0.25f, 0.5f, (float[]){0, 0.25f, 0.25f, 1});
    expect_row(3, 2, 0.25f, 0.5f, (float[]){-0.25f, -0.25f, -0.25f, 1});
    expect_row(2, 2, 0, 0, (float[]){1, 0.5f, 0.5f, 1});
    expect_row(99, 2, 0, 0, (float[]){0.5f, 0.5f, 0.5f, 1});
    expect_row(0, 2, 1, 1, (float[]){1, 1, 1, 1});
}

TEST_MAIN(NULL, NULL)
