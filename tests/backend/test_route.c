/* Routing: selected experts and their weights, compared with the published definitions in
 * double. */
#include <math.h>

#include "backend/cpu/experts.h"
#include "backend/isas.h"

#define MAX_E    128
#define MAX_ROWS 40

/* A backend with a mixture of n_experts tiny experts, whose choice can be looked at. */
typedef struct fixture {
    backend *b;
    buffer logits;
    int32_t n_experts;
} fixture;

static linear *tiny_linear(backend *b) {
    static const float zeros[16 * 16];
    const tensor_view w = {.name = "w",
                           .type = DTYPE_F32,
                           .n_dims = 2,
                           .dims = {16, 16, 1, 1},
                           .data = zeros,
                           .n_bytes = sizeof zeros};
    linear *l = NULL;
    quire_error err;
    assert_int_equal(b->ops->linear_load(b, &(linear_spec){.weight = &w}, &l, &err), QUIRE_OK);
    return l;
}

static quire_err load_mixture(backend *b, const routing *r, quire_error *err) {
    linear *all[ROUTE_MAX_EXPERTS], *one = tiny_linear(b);
    experts *w = NULL;
    for (int32_t i = 0; i < ROUTE_MAX_EXPERTS; i++) {
        all[i] = one;
    }
    return b->ops->experts_load(b, &(experts_weights){.routing = r, .up = all, .down = all}, &w, err);
}

static fixture fixture_open(const char *isa, int32_t n_threads, int32_t n_experts) {
    fixture f = {.b = open_isa(isa, n_threads), .n_experts = n_experts};
    quire_error err;
    const routing most = {.n_experts = n_experts,
                          .n_used = n_experts < ROUTE_MAX_USED ? n_experts : ROUTE_MAX_USED};
    assert_int_equal(load_mixture(f.b, &most, &err), QUIRE_OK);
    f.logits = f.b->ops->buffer_reserve(f.b, n_experts);
    const step_limits limits = {.max_rows = MAX_ROWS, .max_seqs = 1};
    assert_int_equal(f.b->ops->step_open(f.b, &limits, NULL, 0, &err), QUIRE_OK);
    return f;
}

static void fixture_close(fixture *f) {
    f->b->ops->close(f->b);
}

/* The experts and weights of rows [n, n_experts], in ascending order of expert: [n,
 * n_used]. */
static void route(fixture *f, const routing *r, const float *logits, int32_t n, int32_t *chosen,
                  float *weights) {
    const batch step = {.n_rows = n};
    const cpu_experts_state *s = ((cpu_backend *)f->b)->experts_state;
    size_t n_choices = (size_t)n * (size_t)r->n_used;
    f->b->ops->step_begin(f->b, &step);
    f->b->ops->buffer_write(f->b, f->logits, 0, n, logits);
    f->b->ops->route(f->b, r, f->logits);
    f->b->ops->step_wait(f->b);
    memcpy(chosen, s->chosen, sizeof *chosen * n_choices);
    memcpy(weights, s->weights, sizeof *weights * n_choices);
}

/* ---- the reference: counts who is better, sorts nothing ---- */

/* Whether i is among the n best of x[0..n_x); of equal ones the lower is better. */
static bool is_among_best(const double *x, int32_t n_x, int32_t n, int32_t i) {
    int32_t n_better = 0;
    for (int32_t j = 0; j < n_x; j++) {
        n_better += x[j] > x[i] || (x[j] == x[i] && j < i);
    }
    return n_better < n;
}

static double best_two(const double *x, int32_t n) {
    double sum = 0.0;
    for (int32_t i = 0; i < n; i++) {
        sum += is_among_best(x, n, 2, i) ? x[i] : 0.0;
    }
    return sum;
}

static double best_one(const double *x, int32_t n) {
    double best = -INFINITY;
    for (int32_t i = 0; i < n; i++) {
        best = fmax(best, x[i]);
    }
    return best;
}

static void reference_scores(const routing *r, const float *logits, double *scores) {
    double sum = 0.0;
    for (int32_t e = 0; e < r->n_experts; e++) {
        sum += exp((double)logits[e]);
    }
    for (int32_t e = 0; e < r->n_experts; e++) {
        double l = (double)logits[e];
        scores[e] = r->score == ROUTE_SOFTMAX   ? exp(l) / sum
                    : r->score == ROUTE_SIGMOID ? 1.0 / (1.0 + exp(-l))
                                                : l;
    }
}

/* PhiMoE's choice: weights[e] is 0 for the experts that are not chosen. */
static void reference_mixer(const routing *r, const float *logits, double *weights) {
    bool is_taken[MAX_E] = {false};
    for (int pass = 0; pass < 2; pass++) {
        int32_t best = -1;
        for (int32_t e = 0; e < r->n_experts; e++) {
            best = !is_taken[e] && (best < 0 || logits[e] > logits[best]) ? e : best;
        }
        double threshold = (double)logits[best], sum = 0.0;
        for (int32_t e = 0; e < r->n_experts; e++) {
            double l = (double)logits[e], factor = fmax(fabs(l), threshold);
            bool is_masked = (threshold - l) / factor > 2.0 * (double)r->jitter_eps;
            sum += is_taken[e] || is_masked ? 0.0 : exp(l - threshold);
        }
        is_taken[best] = true;
        weights[best] = 1.0 / sum;
    }
}

/* weights[e] of every expert, -1 for those that are not chosen. */
static void reference(const routing *r, const float *logits, double *weights) {
    double scores[MAX_E], choice[MAX_E], groups[MAX_E], sum = 0.0;
    int32_t n = r->n_experts, n_groups = r->n_groups > 1 ? r->n_groups : 1, size = n / n_groups;
    for (int32_t e = 0; e < n; e++) {
        weights[e] = -1.0;
    }
    if (r->score == ROUTE_SPARSE_MIXER) {
        reference_mixer(r, logits, weights);
    } else {
        reference_scores(r, logits, scores);
        for (int32_t e = 0; e < n; e++) {
            choice[e] = scores[e] + (r->bias != NULL ? (double)r->bias[e] : 0.0);
        }
        for (int32_t g = 0; g < n_groups; g++) {
            groups[g] =
                r->group_by_best_two ? best_two(choice + g * size, size) : best_one(choice + g * size, size);
        }
        for (int32_t e = 0; e < n; e++) {
            bool is_open = n_groups == 1 || is_among_best(groups, n_groups, r->n_groups_used, e / size);
            choice[e] = is_open ? choice[e] : -INFINITY;
        }
        for (int32_t e = 0; e < n; e++) {
            if (is_among_best(choice, n, r->n_used, e)) {
                weights[e] = r->score == ROUTE_SOFTMAX_CHOSEN ? exp((double)logits[e]) : scores[e];
                sum += weights[e];
            }
        }
    }
    for (int32_t e = 0; e < n; e++) {
        bool is_divided = r->score == ROUTE_SOFTMAX_CHOSEN || r->renormalise;
        weights[e] /= weights[e] >= 0.0 && is_divided ? sum : 1.0;
        weights[e] *= weights[e] >= 0.0
                          ? (double)r->scale * (r->expert_scales != NULL ? (double)r->expert_scales[e] : 1.0)
                          : 1.0;
    }
}

static void check_rows(fixture *f, const routing *r, const float *logits, int32_t n) {
    int32_t *chosen = malloc(sizeof *chosen * (size_t)(n * r->n_used));
    float *weights = malloc(sizeof *weights * (size_t)(n * r->n_used));
    route(f, r, logits, n, chosen, weights);
    for (int32_t row = 0; row < n; row++) {
        double expected[MAX_E];
        int32_t n_found = 0;
        reference(r, logits + row * r->n_experts, expected);
        for (int32_t e = 0; e < r->n_experts; e++) {
            int32_t at = row * r->n_used + n_found;
            if (expected[e] < 0.0) {
                continue;
            }
            if (n_found == r->n_used || chosen[at] != e ||
                !(fabs((double)weights[at] - expected[e]) <= 2e-6 * fabs(expected[e]) + 1e-7)) {
                fail_msg("score %d, %d of %d experts, %d of %d groups, row %d: choice %d is %d with %g, not "
                         "%d with %g",
                         r->score, r->n_used, r->n_experts, r->n_groups_used, r->n_groups, row, n_found,
                         n_found < r->n_used ? chosen[at] : -1,
                         n_found < r->n_used ? (double)weights[at] : 0.0, e, expected[e]);
            }
            n_found++;
        }
        assert_int_equal(n_found, r->n_used);
    }
    free(chosen);
    free(weights);
}

/* n floats of the standard deviation `size`. */
static void fill(float *x, int32_t n, float size, uint64_t seed) {
    for (int32_t i = 0; i < n; i++) {
        x[i] = random_normal(&seed) * size;
    }
}

/* Every kind of scores; in turn with and without a bias, groups, renormalising and scales
 * of experts. */
TEST(every_routing_chooses_and_weighs_as_published) {
    static const int32_t sizes[] = {4, 8, 16, 64, 128}, used[] = {1, 2, 3, 8},
                         groups[][2] = {{0, 0}, {1, 1}, {4, 2}, {4, 4}};
    float logits[MAX_ROWS * MAX_E], bias[MAX_E], scales[MAX_E];
    fill(bias, MAX_E, 0.3f, 3);
    fill(scales, MAX_E, 1.0f, 4);
    for (int s = 0; s < 5; s++) {
        fixture f = fixture_open("auto", 2, sizes[s]);
        fill(logits, MAX_ROWS * sizes[s], 2.0f, 100 + (uint64_t)s);
        for (int i = 0; i < 3 * 4 * 4 * 8; i++) {
            const int32_t *g = groups[i / 12 % 4];
            int options = i / 48;
            routing r = {.n_experts = sizes[s],
                         .n_used = used[i / 3 % 4],
                         .n_groups = g[0],
                         .n_groups_used = g[1],
                         .score = (route_score)(i % 3),
                         .group_by_best_two = (options & 1) != 0,
                         .bias = (options & 2) != 0 ? bias : NULL,
                         .renormalise = (options & 4) != 0,
                         .scale = (options & 1) != 0 ? 2.5f : 1.0f,
                         .expert_scales = (options & 5) == 5 ? scales : NULL};
            if (r.n_used <= r.n_experts && (g[0] < 2 || g[1] * (sizes[s] / g[0]) >= r.n_used)) {
                for (int32_t e = 0; e < sizes[s]; e++) {
                    scales[e] = fabsf(scales[e]);
                }
                check_rows(&f, &r, logits, MAX_ROWS);
            }
        }
        for (int i = 0; i < 3; i++) {
            const routing r = {.n_experts = sizes[s],
                               .n_used = 2,
                               .score = ROUTE_SPARSE_MIXER,
                               .scale = 1.0f,
                               .jitter_eps = i == 0   ? 0.01f
                                             : i == 1 ? 0.2f
                                                      : 1.5f};
            check_rows(&f, &r, logits, MAX_ROWS);
        }
        fixture_close(&f);
    }
}

/* All equal, or equal in pairs; experts and groups. */
TEST(ties_go_to_the_lower_expert) {
    fixture f = fixture_open("auto", 1, 16);
    float logits[3 * 16];
    for (int32_t e = 0; e < 16; e++) {
        logits[e] = 0.25f;
        logits[16 + e] = (float)(e / 2 % 3);
        logits[32 + e] = -(float)(e % 4);
    }
    for (int score = 0; score < 4; score++) {
        for (int32_t used = 1; used <= 8; used++) {
            routing r = {.n_experts = 16,
                         .n_used = used,
                         .score = (route_score)score,
                         .scale = 1.0f,
                         .jitter_eps = 0.01f};
            r.n_used = score == ROUTE_SPARSE_MIXER ? 2 : used;
            check_rows(&f, &r, logits, 3);
            if (score != ROUTE_SPARSE_MIXER) {
                r.n_groups = 4;
                r.n_groups_used = 2;
                r.group_by_best_two = used % 2 == 0;
                check_rows(&f, &r, logits, 3);
            }
        }
    }
    int32_t chosen[3 * 2];
    float weights[3 * 2];
    const routing two = {.n_experts = 16, .n_used = 2, .scale = 1.0f};
    route(&f, &two, logits, 3, chosen, weights);
    const int32_t expected[] = {0, 1, 4, 5, 0, 4};
    assert_memory_equal(chosen, expected, sizeof expected);
    fixture_close(&f);
}

TEST(a_bias_changes_the_choice_but_no_weight) {
    fixture f = fixture_open("auto", 1, 4);
    const float logits[] = {2.0f, 1.0f, 0.0f, -1.0f}, bias[] = {0.0f, 0.0f, 0.0f, 5.0f};
    int32_t chosen[2];
    float weights[2];
    const routing r = {.n_experts = 4, .n_used = 2, .score = ROUTE_SIGMOID, .bias = bias, .scale = 1.0f};
    route(&f, &r, logits, 1, chosen, weights);
    assert_int_equal(chosen[0], 0);
    assert_int_equal(chosen[1], 3);
    assert_float_equal(weights[0], 1.0f / (1.0f + expf(-2.0f)), 1e-6f);
    assert_float_equal(weights[1], 1.0f / (1.0f + expf(1.0f)), 1e-6f);
    fixture_close(&f);
}

/* Their sigmoids are all 1 in f32. */
/* Not even to those after it. */
TEST(an_expert_whose_bias_is_nan_loses_to_every_other) {
    fixture f = fixture_open("auto", 1, 6);
    const float logits[] = {0.0f, 1.0f, 5.0f, 2.0f, 4.0f, 3.0f};
    float bias[] = {0.0f, 0.0f, NAN, 0.0f, 0.0f, 0.0f}, weights[5];
    static const int32_t two[] = {4, 5}, five[] = {0, 1, 3, 4, 5};
    int32_t chosen[5];
    for (int score = ROUTE_SOFTMAX; score <= ROUTE_SOFTMAX_CHOSEN; score++) {
        routing r = {.n_experts = 6, .n_used = 2, .score = (route_score)score, .bias = bias, .scale = 1.0f};
        route(&f, &r, logits, 1, chosen, weights);
        assert_memory_equal(chosen, two, sizeof two);
        r.n_used = 5;
        route(&f, &r, logits, 1, chosen, weights);
        assert_memory_equal(chosen, five, sizeof five);
    }
    fixture_close(&f);
}

TEST(large_logits_of_sigmoids_are_told_apart) {
    fixture f = fixture_open("auto", 1, 4);
    const float logits[] = {30.0f, 31.0f, 40.0f, 39.0f};
    int32_t chosen[1];
    float weights[1];
    const routing r = {.n_experts = 4, .n_used = 1, .score = ROUTE_SIGMOID, .scale = 1.0f};
    route(&f, &r, logits, 1, chosen, weights);
    assert_int_equal(chosen[0], 2);
    assert_float_equal(weights[0], 1.0f, 0.0f);
    fixture_close(&f);
}

/* A bias on logits chooses others than one on their sigmoids, and weights are the
 * sigmoids of what is left of the logits below the cap. */
TEST(a_bias_may_be_one_of_logits_and_logits_may_have_a_cap) {
    fixture f = fixture_open("auto", 1, 4);
    const float logits[] = {6.0f, 4.0f, 1.0f, -1.0f}, bias[] = {0.0f, 0.0f, 0.6f, 3.5f};
    int32_t chosen[2];
    float weights[2];
    routing r = {.n_experts = 4, .n_used = 2, .score = ROUTE_SIGMOID, .bias = bias, .scale = 1.0f};
    route(&f, &r, logits, 1, chosen, weights);
    assert_int_equal(chosen[0], 2);
    assert_int_equal(chosen[1], 3);
    r.by_logits = true;
    route(&f, &r, logits, 1, chosen, weights);
    assert_int_equal(chosen[0], 0);
    assert_int_equal(chosen[1], 1);
    assert_float_equal(weights[1], 1.0f / (1.0f + expf(-4.0f)), 1e-6f);
    r.cap = 2.0f;
    route(&f, &r, logits, 1, chosen, weights);
    assert_float_equal(weights[1], 1.0f / (1.0f + expf(-2.0f * tanhf(4.0f / 2.0f))), 1e-6f);
    fixture_close(&f);
}

TEST(weights_that_are_all_zero_stay_so) {
    fixture f = fixture_open("auto", 1, 4);
    const float logits[] = {-200.0f, -210.0f, -220.0f, -205.0f};
    int32_t chosen[2];
    float weights[2];
    const routing r = {
        .n_experts = 4, .n_used = 2, .score = ROUTE_SIGMOID, .renormalise = true, .scale = 1.0f};
    route(&f, &r, logits, 1, chosen, weights);
    assert_int_equal(chosen[0], 0);
    assert_int_equal(chosen[1], 3);
    assert_true(weights[0] == 0.0f && weights[1] == 0.0f);
    fixture_close(&f);
}

/* Rows of NaNs, infinities and a NaN among numbers: each chooses n_used experts, in
 * ascending order. Their neighbours have the bits that they have alone. */
TEST(a_row_of_nan_chooses_experts_and_changes_no_other_row) {
    enum { E = 16, N = 9 };
    float logits[N * E], bias[E], alone[4], weights[N * 4];
    int32_t chosen[N * 4], expected[4];
    fixture f = fixture_open("auto", 2, E);
    fill(logits, N * E, 1.0f, 8);
    fill(bias, E, 1.0f, 9);
    for (int32_t e = 0; e < E; e++) {
        logits[1 * E + e] = NAN;
        logits[3 * E + e] = e % 2 == 0 ? INFINITY : -INFINITY;
        logits[5 * E + e] = -INFINITY;
    }
    logits[7 * E + 3] = NAN;
    bias[2] = NAN;
    for (int i = 0; i < 4 * 4; i++) {
        routing r = {.n_experts = E,
                     .n_used = 4,
                     .score = (route_score)(i % 4),
                     .scale = 1.0f,
                     .renormalise = i % 2 == 0};
        bool is_mixer = r.score == ROUTE_SPARSE_MIXER;
        r.n_used = is_mixer ? 2 : 4;
        r.jitter_eps = 0.01f;
        r.n_groups = i / 4 % 2 == 1 && !is_mixer ? 4 : 0;
        r.n_groups_used = 2;
        r.group_by_best_two = true;
        r.bias = i / 8 == 1 && !is_mixer ? bias : NULL;
        route(&f, &r, logits, N, chosen, weights);
        for (int32_t row = 0; row < N; row++) {
            for (int32_t k = 0; k < r.n_used; k++) {
                int32_t e = chosen[row * r.n_used + k];
                assert_true(e >= 0 && e < E && (k == 0 || e > chosen[row * r.n_used + k - 1]));
            }
            int32_t all[N * 4];
            float all_weights[N * 4];
            memcpy(all, chosen, sizeof all);
            memcpy(all_weights, weights, sizeof all_weights);
            route(&f, &r, logits + row * E, 1, expected, alone);
            assert_memory_equal(all + row * r.n_used, expected, sizeof *all * (size_t)r.n_used);
            assert_true(same_floats(all_weights + row * r.n_used, alone, (size_t)r.n_used));
            assert_true(row % 2 == 1 || isfinite(alone[0]));
        }
    }
    fixture_close(&f);
}

/* Hashes of choice and weights over all kinds. */
static uint64_t hash_of_all(fixture *f, const float *logits, const float *bias, int32_t n, bool alone) {
    uint64_t hash = HASH_START;
    int32_t chosen[MAX_ROWS * 8];
    float weights[MAX_ROWS * 8];
    for (int score = 0; score < 4; score++) {
        routing r = {.n_experts = f->n_experts,
                     .n_used = 7,
                     .score = (route_score)score,
                     .bias = bias,
                     .renormalise = true,
                     .scale = 1.5f};
        if (r.score == ROUTE_SPARSE_MIXER) {
            r.n_used = 2;
            r.bias = NULL;
            r.jitter_eps = 0.1f;
        }
        for (int32_t row = 0; row < n; row += alone ? 1 : n) {
            size_t at = (size_t)row * (size_t)r.n_used;
            route(f, &r, logits + row * f->n_experts, alone ? 1 : n, chosen + at, weights + at);
        }
        hash = hash_bytes(hash, chosen, sizeof *chosen * (size_t)(n * r.n_used));
        hash = hash_bytes(hash, weights, sizeof *weights * (size_t)(n * r.n_used));
    }
    return hash;
}

TEST(a_rows_choice_has_the_same_bits_alone_and_on_every_instruction_set) {
    note_isas();
    static const int32_t sizes[] = {9, 40, 128};
    float logits[MAX_ROWS * MAX_E], bias[MAX_E];
    fill(logits, MAX_ROWS * MAX_E, 3.0f, 21);
    fill(bias, MAX_E, 0.5f, 22);
    for (int s = 0; s < 3; s++) {
        fixture plain = fixture_open("plain", 1, sizes[s]);
        uint64_t expected = hash_of_all(&plain, logits, bias, MAX_ROWS, true);
        fixture_close(&plain);
        for (int i = 0; i < N_TEST_ISAS; i++) {
            for (int32_t threads = 1; threads <= 4 && isa_is_here(ISAS[i]); threads += 3) {
                fixture f = fixture_open(ISAS[i], threads, sizes[s]);
                assert_true(hash_of_all(&f, logits, bias, MAX_ROWS, false) == expected);
                assert_true(hash_of_all(&f, logits, bias, MAX_ROWS, true) == expected);
                fixture_close(&f);
            }
        }
    }
}

TEST(an_impossible_routing_is_refused) {
    static const float bias[8];
    static const struct {
        routing r;
        quire_err e;
        const char *text;
    } cases[] = {
        {{.n_experts = 0, .n_used = 1}, QUIRE_INVALID, "0 experts"},
        {{.n_experts = ROUTE_MAX_EXPERTS + 1, .n_used = 1}, QUIRE_INVALID, "1025 experts"},
        {{.n_experts = 8, .n_used = 0}, QUIRE_INVALID, "0 of 8 experts"},
        {{.n_experts = 8, .n_used = 9}, QUIRE_INVALID, "9 of 8 experts"},
        {{.n_experts = 128, .n_used = 65}, QUIRE_INVALID, "65 of 128 experts"},
        {{.n_experts = 8, .n_used = 2, .n_groups = 3, .n_groups_used = 1}, QUIRE_INVALID, "3 groups"},
        {{.n_experts = 8, .n_used = 2, .n_groups = -1}, QUIRE_INVALID, "-1 groups"},
        {{.n_experts = 8, .n_used = 2, .n_groups = 16, .n_groups_used = 1}, QUIRE_INVALID, "16 groups"},
        {{.n_experts = 8, .n_used = 2, .n_groups = 4, .n_groups_used = 0}, QUIRE_INVALID, "0 of 4 groups"},
        {{.n_experts = 8, .n_used = 2, .n_groups = 4, .n_groups_used = 5}, QUIRE_INVALID, "5 of 4 groups"},
        {{.n_experts = 8, .n_used = 3, .n_groups = 4, .n_groups_used = 1}, QUIRE_INVALID, "1 of 4 groups"},
        {{.n_experts = 8, .n_used = 3, .score = ROUTE_SPARSE_MIXER}, QUIRE_UNSUPPORTED, "wants 3"},
        {{.n_experts = 8, .n_used = 2, .score = ROUTE_SPARSE_MIXER, .bias = bias},
         QUIRE_UNSUPPORTED,
         "sparse-mixer"},
        {{.n_experts = 8, .n_used = 2, .n_groups = 2, .n_groups_used = 1, .score = ROUTE_SPARSE_MIXER},
         QUIRE_UNSUPPORTED,
         "sparse-mixer"},
    };
    backend *b = open_isa("auto", 1);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        quire_error err;
        assert_int_equal(load_mixture(b, &cases[i].r, &err), cases[i].e);
        if (strstr(err.message, cases[i].text) == NULL) {
            fail_msg("\"%s\" does not say \"%s\"", err.message, cases[i].text);
        }
    }
    b->ops->close(b);
}

TEST_MAIN(NULL, NULL)
