#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <float.h>
#include <math.h>

#include "base/rng.h"
#include "sample/sampler_parts.h"
#include "test.h"

static sampling_params params(float temperature) {
    sampling_params p;
    sampling_params_init(&p);
    p.temperature = temperature;
    return p;
}

/* A pick from a copy of logits, with a history of prompt tokens. */
static quire_err pick_with(sampler *s, const float *logits, int32_t n, const sampling_params *p,
                           sample_key key, int32_t *token) {
    float row[64];
    float mu = 2.0f * p->mirostat_tau;
    memcpy(row, logits, (size_t)n * sizeof *row);
    sample_context c = {.params = p, .noise = sample_noise_of(key), .mirostat_mu = &mu};
    return sampler_sample(s, row, &c, token);
}

static int32_t pick(const float *logits, int32_t n, sampling_params p, uint64_t seed, uint32_t position) {
    sampler *s;
    int32_t token = -1;
    assert_int_equal(sampler_open(n, 16, &s), QUIRE_OK);
    assert_int_equal(pick_with(s, logits, n, &p, (sample_key){seed, 0, position}, &token), QUIRE_OK);
    sampler_close(s);
    return token;
}

TEST(greedy_takes_the_lowest_id_of_equals) {
    assert_int_equal(pick((float[]){1, 3, 2, 3}, 4, params(0), 1, 1), 1);
}

TEST(rows_that_are_no_logits_are_refused) {
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

TEST(mirostat_replaces_min_p) {
    sampling_params p = params(1), with;
    p.mirostat = MIROSTAT_2;
    p.mirostat_tau = 5;
    p.mirostat_eta = 0.1f;
    with = p;
    with.min_p = 0.9f;
    int others = 0;
    for (uint64_t seed = 0; seed < 100; seed++) {
        int32_t token = pick((float[]){2, 1, 0}, 3, p, seed, 0);
        assert_int_equal(pick((float[]){2, 1, 0}, 3, with, seed, 0), token);
        others += token != 0;
    }
    assert_true(others > 10);
}

/* Its entropy rounds to more than the logarithm of their number. */
TEST(a_dynamic_temperature_is_finite) {
    enum { N = 8192 };
    static float row[N];
    sampling_params p = params(1);
    p.dynatemp_range = 1;
    p.dynatemp_exponent = 1e20f;
    sampler *s;
    assert_int_equal(sampler_open(N, 16, &s), QUIRE_OK);
    for (uint64_t seed = 0; seed < 20; seed++) {
        sample_context c = {.params = &p, .noise = sample_noise_of((sample_key){seed, 0, 0})};
        int32_t token;
        for (int i = 0; i < N; i++) {
            row[i] = i == 5000 ? 0.0f : i == 5001 ? -1.4e-16f : -INFINITY;
        }
        assert_int_equal(sampler_sample(s, row, &c, &token), QUIRE_OK);
        assert_true(token == 5000 || token == 5001);
    }
    sampler_close(s);
}

/* So the one token that is allowed may come, however often it came. */
TEST(penalties_leave_logits_finite) {
    enum { N = 300 };
    int32_t history[N], token;
    sampling_params p = params(0);
    p.dry_multiplier = 1.5f;
    p.dry_base = 1.75f;
    p.dry_allowed_length = 2;
    p.dry_penalty_last_n = -1;
    p.repetition_penalty = 3e38f;
    sampler *s;
    assert_int_equal(sampler_open(4, N + 1, &s), QUIRE_OK);
    for (int i = 0; i < N; i++) {
        history[i] = 2;
    }
    float row[] = {-INFINITY, -INFINITY, -3.0f, -INFINITY};
    sample_context c = {
        .params = &p, .tokens = history, .n_tokens = N, .noise = sample_noise_of((sample_key){0})};
    assert_int_equal(sampler_sample(s, row, &c, &token), QUIRE_OK);
    assert_int_equal(token, 2);
    assert_true(isfinite(row[2]));
    sampler_close(s);
}

/* What followed an earlier copy of the last size - 1 tokens is banned, and nothing
 * else. */
TEST(repeated_n_grams_are_those_of_a_plain_search) {
    enum { MOST = 16 };
    uint64_t seed = 20261127;
    for (int round = 0; round < 2000; round++) {
        int32_t history[MOST], n = (int32_t)(rng_next(&seed) % (MOST + 1));
        sampling_params p = params(1);
        p.no_repeat_ngram_size = 1 + (int32_t)(rng_next(&seed) % (MOST + 2));
        int32_t before = p.no_repeat_ngram_size - 1;
        float row[3] = {1, 2, 3};
        bool banned[3] = {false};
        sampler *s;
        for (int32_t i = 0; i < n; i++) {
            history[i] = (int32_t)(rng_next(&seed) % (round % 2 == 0 ? 2 : 3));
        }
        for (int32_t end = before; end < n; end++) {
            bool same =
                memcmp(history + end - before, history + n - before, (size_t)before * sizeof *history) == 0;
            banned[history[end]] = banned[history[end]] || same;
        }
        sample_context c = {
            .params = &p, .tokens = history, .n_tokens = n, .noise = sample_noise_of((sample_key){0})};
        assert_int_equal(sampler_open(3, n, &s), QUIRE_OK);
        (void)sampler_change(s, row, &c);
        for (int i = 0; i < 3; i++) {
            assert_int_equal(row[i] == -INFINITY, banned[i]);
        }
        sampler_close(s);
    }
}

/* Penalises by DRY with these breakers, the first `turn` of them last. */
static void penalise_between(const int32_t (*breakers)[3], const int32_t *lengths, int n, int turn,
                             float *row) {
    static const int32_t history[] = {1, 2, 3, 4, 1, 2, 5, 6, 1, 2, 3, 7, 1, 2};
    sampling_params p = params(1);
    p.dry_multiplier = 1.0f;
    p.dry_base = 1.75f;
    p.dry_allowed_length = 1;
    p.dry_penalty_last_n = -1;
    p.frequency_penalty = 0.25f; /* its counts are there before */
    p.lists = sampling_lists_new();
    for (int i = 0; i < n; i++) {
        int k = (i + turn) % n;
        assert_int_equal(token_seqs_add(&p.lists->dry_breakers, breakers[k], lengths[k]), QUIRE_OK);
    }
    sampler *s;
    sample_context c = {.params = &p,
                        .tokens = history,
                        .n_tokens = 14,
                        .n_prompt = 3,
                        .noise = sample_noise_of((sample_key){0})};
    assert_int_equal(sampler_open(8, 15, &s), QUIRE_OK);
    (void)sampler_change(s, row, &c);
    sampler_close(s);
    sampling_lists_drop(p.lists);
}

/* Whatever their order; 6 is one by itself and begins another. */
TEST(breakers_count_in_any_order) {
    static const int32_t breakers[][3] = {{6, 1, 4}, {6}, {3, 7}, {5}, {6, 2}}, lengths[] = {3, 1, 2, 1, 2};
    float wanted[8] = {0}, without[8] = {0};
    penalise_between(breakers, lengths, 5, 0, wanted);
    penalise_between(breakers, lengths, 1, 0, without);
    assert_true(memcmp(wanted, without, sizeof wanted) != 0);
    for (int turn = 1; turn < 5; turn++) {
        float row[8] = {0};
        penalise_between(breakers, lengths, 5, turn, row);
        assert_memory_equal(row, wanted, sizeof row);
    }
}

TEST(before_min_tokens_no_stop_token_is_chosen) {
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

TEST(a_seed_fixes_the_token_and_its_position_changes_it) {
    float logits[64] = {0};
    int differ = 0;
    for (uint32_t i = 0; i < 64; i++) {
        assert_int_equal(pick(logits, 64, params(1), 7, i), pick(logits, 64, params(1), 7, i));
        differ += pick(logits, 64, params(1), 7, i) != pick(logits, 64, params(1), 8, i);
    }
    assert_true(differ > 48);
}

TEST(draws_follow_the_distribution) {
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
    /* three degrees of freedom, p = 0.001; the seed is fixed, so it passes or fails for
     * good */
    assert_true(chi < 16.3);
    sampler_close(s);
}

/* What counts is state: the same history gives the same marks, however often the sampler
 * was used between. */
TEST(penalties_count_each_row_afresh) {
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
        assert_int_equal(sampler_sample(s, row, &c, &token), QUIRE_OK);
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

/* The least and the greatest penalty that a request can name give a token, not an error
 * of the model. */
TEST(penalties_at_their_bounds_leave_finite_rows) {
    int32_t history[] = {0, 1, 2}, token;
    const float penalties[] = {FLT_MIN, 1e-30f, FLT_MAX}, temperatures[] = {0.0f, 0.01f, 1.0f, 2.0f};
    sampler *s;
    assert_int_equal(sampler_open(4, 16, &s), QUIRE_OK);
    for (size_t i = 0; i < sizeof penalties / sizeof *penalties; i++) {
        for (size_t k = 0; k < sizeof temperatures / sizeof *temperatures; k++) {
            float row[] = {30, 0, -30, 1};
            sampling_params p = params(temperatures[k]);
            p.repetition_penalty = penalties[i];
            sample_context c = {.params = &p, .tokens = history, .n_tokens = 3, .n_prompt = 1};
            assert_int_equal(sampler_sample(s, row, &c, &token), QUIRE_OK);
            assert_true(penalties[i] < 1.0f ? token == 0 : token != 2);
        }
    }
    sampler_close(s);
}

TEST(a_request_that_rules_out_every_token_is_at_fault_itself) {
    sampler *s;
    int32_t token, only[1] = {2};
    sampling_params p = params(0);
    p.lists = sampling_lists_new();
    assert_int_equal(sampling_lists_set_allowed(p.lists, only, 1), QUIRE_OK);
    assert_int_equal(sampler_open(3, 4, &s), QUIRE_OK);
    assert_int_equal(pick_with(s, (float[]){1, 2, 0}, 3, &p, (sample_key){0}, &token), QUIRE_OK);
    assert_int_equal(token, 2);
    assert_int_equal(pick_with(s, (float[]){1, 2, -INFINITY}, 3, &p, (sample_key){0}, &token),
                     QUIRE_BAD_REQUEST);
    sampler_close(s);
    sampling_lists_drop(p.lists);
}

/* A logit now and then that cannot come. */
static float random_logit(uint64_t *seed, float spread) {
    return rng_next(seed) % 20 == 0 ? -INFINITY
                                    : (float)((double)(rng_next(seed) % 20001) - 10000) * spread * 1e-4f;
}

enum { MOST = BLOCK + 3 * GROUP }; /* tokens of the rows that the passes are compared on */

/* What one set of passes makes of a row. */
typedef struct passed {
    float max, largest[MOST / GROUP], weights[MOST];
    int32_t n_kept, n_inside, ids[MOST];
    double total, sums[MOST / GROUP], kept_total, kept_sums[MOST / GROUP], above;
    candidate inside[MOST];
} passed;

static void pass_over(sampler *s, const sampler_rows *rows, const float *logits, float bound, passed *out) {
    size_t n_blocks = ((size_t)s->n_vocab + BLOCK - 1) / BLOCK;
    memset(out, 0, sizeof *out);
    s->rows = rows;
    assert_true(rows->scan(s, logits));
    out->max = s->max;
    memcpy(out->largest, s->largest, s->n_groups * sizeof *s->largest);
    assert_true(rows->scan_masses(s, logits, 2.0f));
    assert_true(s->max == out->max);
    assert_memory_equal(out->largest, s->largest, s->n_groups * sizeof *s->largest);
    out->total = s->total;
    memcpy(out->sums, s->sums, n_blocks * sizeof *s->sums);
    int32_t n = out->n_kept = s->n_kept = rows->gather(s, logits, bound);
    memcpy(out->ids, s->ids, (size_t)n * sizeof *s->ids);
    rows->weigh(s->weights, n, s->max, 2.0f);
    out->kept_total = rows->sum_blocks(s->weights, n, s->sums);
    memcpy(out->kept_sums, s->sums, ((size_t)n + GROUP - 1) / GROUP * sizeof *s->sums);
    out->above = rows->divide(s, n % 2 ? 0.25f : INFINITY, &out->n_inside);
    memcpy(out->inside, s->inside, (size_t)out->n_inside * sizeof *s->inside);
    rows->drop_after(s->weights, n, s->weights[n / 2], n / 2);
    memcpy(out->weights, s->weights, (size_t)n * sizeof *s->weights);
}

/* Rows of every length around a group's and a block's, some of whose blocks are far above
 * the one before. */
TEST(fast_passes_give_the_bits_of_the_plain_ones) {
    static float logits[MOST];
    static passed plain, fast;
    const float wrong[3] = {NAN, -NAN, INFINITY};
    const sampler_rows *all[SAMPLER_ROWS_MOST];
    int32_t n_all = sampler_rows_here(all);
    uint64_t seed = rng_os_seed();
    printf("seed %llu\n", (unsigned long long)seed);
    if (n_all < SAMPLER_ROWS_MOST) {
        printf("SKIP: %d of %d forms of the passes run here (make test runs AVX-512's through SIMDe)\n",
               (int)n_all, SAMPLER_ROWS_MOST);
    }
    for (int32_t n = 1; n <= MOST; n += n > 3 * GROUP && n < BLOCK - GROUP ? 97 : 1) {
        sampler *s;
        assert_int_equal(sampler_open(n, 1, &s), QUIRE_OK);
        assert_ptr_equal(all[0], &sampler_rows_plain);
        assert_ptr_equal(all[n_all - 1], s->rows);
        for (int32_t i = 0; i < n; i++) {
            logits[i] = i == 0 ? 0.0f : random_logit(&seed, n % 2 ? 10.0f : 300.0f);
        }
        logits[n - 1] = n % 5 == 0 ? 400.0f : logits[n - 1];
        float bound = n % 3 == 0 ? -1e30f : logits[n / 2];
        pass_over(s, &sampler_rows_plain, logits, bound, &plain);
        for (int32_t k = 1; k < n_all; k++) {
            pass_over(s, all[k], logits, bound, &fast);
            assert_memory_equal(&plain, &fast, sizeof plain);
        }
        logits[n / 2] = wrong[n % 3];
        for (int32_t k = 0; k < n_all; k++) {
            assert_false(all[k]->scan(s, logits));
            assert_false(all[k]->scan_masses(s, logits, 2.0f));
        }
        sampler_close(s);
    }
}

/* Whatever the base that a block's weights are taken against, their sum is the one of an
 * own reading. */
TEST(the_mass_of_a_row_does_not_depend_on_where_its_largest_logits_lie) {
    enum { N = 4 * BLOCK + 100 };
    static const float starts[] = {-INFINITY, -1e30f, -200.0f, 0.0f, 20.0f};
    float *logits = test_malloc(N * sizeof *logits);
    uint64_t seed = 3;
    sampler *s;
    assert_int_equal(sampler_open(N, 1, &s), QUIRE_OK);
    for (int round = 0; round < 5 * 4; round++) {
        double expected = 0.0;
        float max = starts[round % 5];
        logits[0] = max;
        for (int32_t i = 1; i < N; i++) {
            /* steps up, and one down */
            logits[i] = random_logit(&seed, 8.0f) + 30.0f * (float)((i / BLOCK + round / 5) % 5);
            max = logits[i] > max ? logits[i] : max;
        }
        for (int32_t i = 0; i < N; i++) {
            expected += exp2(((double)logits[i] - (double)max) * (double)LOG2_E);
        }
        assert_true(s->rows->scan_masses(s, logits, LOG2_E) && s->max == max);
        assert_true(fabs(s->total - expected) <= 1e-6 * expected);
    }
    sampler_close(s);
    test_free(logits);
}

/* ---- an own reading of the usual cuts: everything sorted, in double ---- */

typedef struct ranked {
    double weight;
    int32_t id;
} ranked;

static int by_weight(const void *a, const void *b) {
    const ranked *x = a, *y = b;
    return x->weight != y->weight ? (x->weight < y->weight) - (x->weight > y->weight)
                                  : (x->id > y->id) - (x->id < y->id);
}

/* probs [n] of what stays; *margin: how far the nearest decision was from falling the
 * other way, as a part of the whole. */
static void reference_cut(const float *logits, int32_t n, const sampling_params *p, double *probs,
                          double *margin) {
    ranked *all = test_malloc((size_t)n * sizeof *all);
    double max = -INFINITY, total = 0, before = 0;
    int32_t kept = n;
    for (int32_t i = 0; i < n; i++) {
        max = fmax(max, (double)logits[i]);
    }
    for (int32_t i = 0; i < n; i++) {
        all[i] = (ranked){exp(((double)logits[i] - max) / (double)p->temperature), i};
        probs[i] = 0;
    }
    qsort(all, (size_t)n, sizeof *all, by_weight);
    *margin = 1;
    for (int32_t i = 0; i < n && p->min_p > 0; i++) {
        *margin = fmin(*margin, fabs(all[i].weight - (double)p->min_p));
        kept = i < kept && all[i].weight < (double)p->min_p ? i : kept;
    }
    if (p->top_k > 0 && p->top_k < kept) {
        kept = p->top_k;
        while (kept < n && all[kept].weight == all[kept - 1].weight) {
            kept++;
        }
    }
    for (int32_t i = 0; i < kept; i++) {
        total += all[i].weight;
    }
    for (int32_t i = 0; i < kept && p->top_p < 1; i++) {
        *margin = fmin(*margin, fabs(before / total - (double)p->top_p));
        if (i > 0 && before / total >= (double)p->top_p) {
            kept = i;
        }
        before += all[i].weight;
    }
    total = 0;
    for (int32_t i = 0; i < kept; i++) {
        total += all[i].weight;
    }
    for (int32_t i = 0; i < kept; i++) {
        probs[all[i].id] = all[i].weight / total;
    }
    test_free(all);
}

/* A logit of one of the kinds of rows that the cuts meet: even, like language, all equal,
 * of few values, a single live token, huge, and two that mislead whoever looks at every
 * 48th group. */
static float logit_of_kind(int kind, int32_t i, int32_t n, uint64_t *seed) {
    switch (kind) {
    case 0:
        return i == n / 2 ? 6.0f : random_logit(seed, 6.0f);
    case 1:
        return i == n / 2 ? 6.0f : 5.0f - 1.5f * logf((float)(1 + rng_next(seed) % (uint64_t)n));
    case 2:
        return -3.0f;
    case 3:
        return 0.5f * (float)(rng_next(seed) % 3);
    case 4:
        return i == n / 3 ? 2.0f : -INFINITY;
    case 5:
        return i % 7 == 3 || n < 7 ? 1e30f : -1e30f;
    default:
        return i == n / 2
                   ? 6.0f
                   : random_logit(seed, 4.0f) + (i / GROUP % 48 == 0 ? kind == 6 ? 4.0f : -4.0f : 0.0f);
    }
}

/* Two logits a last bit apart, of one weight in float, on both sides of a cut: the larger
 * one stays, wherever it lies. */
TEST(logits_of_one_weight_are_cut_in_their_order) {
    static const int32_t sizes[] = {8, 5000, 9000};
    static float row[9000];
    const float low = 2.13f, high = nextafterf(low, 3.0f), zero = 0.0f;
    for (int i = 0; i < 3 * 2 * 3; i++) {
        int32_t n = sizes[i % 3], first = n / 3, second = n / 2, larger = i / 3 % 2 == 0 ? first : second,
                other = first + second - larger;
        for (int32_t k = 0; k < n; k++) {
            row[k] = k == n / 5 ? 4.0f : k == larger ? high : k == other ? low : -1000.0f - (float)(k % 16);
        }
        sampling_params p = params(8.0f); /* a last bit of a logit is less than one of a weight */
        sampler *s;
        float *probs;
        p.top_k = (int32_t[]){0, 2, 3}[i / 6];
        p.top_p = i / 6 != 1 ? 0.6f : 1.0f; /* the best has 39%, each of the two 31 */
        assert_int_equal(sampler_open(n, 4, &s), QUIRE_OK);
        sample_context c = {.params = &p, .noise = {.token = 0.5f}};
        assert_int_equal(sampler_distribution(s, row, &c, &probs), QUIRE_OK);
        assert_true(probs[n / 5] > zero && probs[larger] > zero && probs[other] == zero);
        sampler_close(s);
    }
}

/* Rows small and large, flat and peaked: what is kept is what sorting the whole row
 * keeps, and the draw walks it in id order. */
TEST(the_usual_cuts_keep_what_sorting_everything_keeps) {
    static const int32_t sizes[] = {1, 2, 63, 64, 500, 4097, 9000, 40000};
    uint64_t seed = rng_os_seed();
    int n_compared = 0;
    printf("seed %llu\n", (unsigned long long)seed);
    for (int round = 0; round < 640; round++) {
        int32_t n = sizes[round % 8], n_differ = 0;
        float *logits = test_malloc((size_t)n * sizeof *logits), *row = test_malloc((size_t)n * sizeof *row);
        double *expected = test_malloc((size_t)n * sizeof *expected), margin, cumulated = 0;
        sampling_params p = params(0.25f + (float)(rng_next(&seed) % 8) * 0.25f);
        p.top_p = round % 3 == 0 ? 1.0f : 0.05f + (float)(rng_next(&seed) % 95) * 0.01f;
        p.top_k = round % 5 < 3 ? 0 : 1 + (int32_t)(rng_next(&seed) % 300);
        p.min_p = round % 7 < 5 ? 0 : (float)(1 + rng_next(&seed) % 1000) * 1e-4f;
        for (int32_t i = 0; i < n; i++) {
            logits[i] = logit_of_kind(round / 8 % 8, i, n, &seed);
        }
        reference_cut(logits, n, &p, expected, &margin);
        sampler *s;
        float *probs;
        assert_int_equal(sampler_open(n, 4, &s), QUIRE_OK);
        sample_context c = {.params = &p, .noise = {.token = (float)(1 + rng_next(&seed) % 9999) * 1e-4f}};
        memcpy(row, logits, (size_t)n * sizeof *row);
        assert_int_equal(sampler_distribution(s, row, &c, &probs), QUIRE_OK);
        for (int32_t i = 0; i < n; i++) {
            n_differ += fabs((double)probs[i] - expected[i]) > 2e-5 * expected[i] + 1e-9;
        }
        if (margin > 2e-6) {
            assert_int_equal(n_differ, 0);
            int32_t token;
            memcpy(row, logits, (size_t)n * sizeof *row);
            assert_int_equal(sampler_sample(s, row, &c, &token), QUIRE_OK);
            for (int32_t i = 0; i < token; i++) {
                cumulated += expected[i];
            }
            assert_true(cumulated <= (double)c.noise.token + 1e-5 &&
                        cumulated + expected[token] >= (double)c.noise.token - 1e-5 && expected[token] > 0);
            n_compared++;
        }
        sampler_close(s);
        test_free(expected);
        test_free(row);
        test_free(logits);
    }
    assert_true(n_compared > 400);
}

/* ---- what a cut costs ---- */

static const sampler_rows *counted_rows;
static int64_t n_looked_at;

static int32_t count_gathered(sampler *s, const float *logits, float least) {
    int32_t n = counted_rows->gather(s, logits, least);
    n_looked_at += n;
    return n;
}

/* Top-p looks at few tokens of a row whose weight lies in few, wherever those are and
 * however little is asked for. */
TEST(a_row_whose_weight_lies_in_few_tokens_is_not_looked_at_whole) {
    enum { N = 100000 };
    static const float top_p[] = {0.01f, 0.1f, 0.5f, 0.9f, 0.95f};
    float *logits = test_malloc(N * sizeof *logits), *row = test_malloc(N * sizeof *row);
    uint64_t seed = 5;
    sampler *s;
    assert_int_equal(sampler_open(N, 4, &s), QUIRE_OK);
    counted_rows = s->rows;
    sampler_rows rows = *s->rows;
    rows.gather = count_gathered;
    s->rows = &rows;
    for (int i = 0; i < 4 * 5; i++) {
        int32_t token;
        sampling_params p = params(i / 5 == 3 ? 1e-3f : 1.0f);
        p.top_p = top_p[i % 5];
        for (int32_t t = 0; t < N; t++) {
            logits[t] = rng_uniform((uint32_t)rng_next(&seed));
        }
        logits[N - 1000] = 40.0f; /* in no group of the sample */
        logits[i / 5 == 1 ? N - 2000 : 0] = 40.0f;
        logits[i / 5 == 2 ? 64 : N - 3000] = 38.0f;
        sample_context c = {.params = &p, .noise = {.token = 0.5f}};
        memcpy(row, logits, N * sizeof *row);
        n_looked_at = 0;
        assert_int_equal(sampler_sample(s, row, &c, &token), QUIRE_OK);
        assert_in_range(n_looked_at, 1, N / 100);
    }
    s->rows = counted_rows;
    sampler_close(s);
    test_free(row);
    test_free(logits);
}

TEST_MAIN(NULL, NULL)
