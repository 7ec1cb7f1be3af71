/* Elementwise kernels, norms and rotation: every instruction set has the bits of the
 * plain C version, which is close to double. */
#include "backend/isas.h"

#include <math.h>
#include <stdlib.h>

#include "core/math_plain.h"

#define MAX_N       100
#define SEED        20240607u
#define STORED_HASH 0x912d4310c3c0fda8u /* the same on every instruction set and compiler */
#define ACTIVATIONS 0x0aad4962c7f4a946u /* that of run_activations */

static const float SPECIALS[] = {0.0f,      -0.0f,   INFINITY, -INFINITY, NAN,    0x1p-149f, -0x1p-149f,
                                 0x1p-126f, 3.4e38f, -3.4e38f, 88.7f,     -87.3f, -103.9f,   -104.1f,
                                 89.1f,     0.625f,  -0.625f,  1.0f,      -1.0f,  4.0f,      -4.0f,
                                 1e-4f,     -1e-4f,  20.0f,    -20.0f,    0.5f,   0.347f,    -0.347f};
#define N_SPECIALS (sizeof SPECIALS / sizeof SPECIALS[0])

/* Kernels of an instruction set, or NULL. */
static const math_kernels *kernels(const char *isa) {
    backend *b = open_isa(isa, 1);
    if (b == NULL) {
        return NULL;
    }
    const math_kernels *k = ((cpu_backend *)b)->math;
    b->ops->close(b);
    return k;
}

/* Specials and numbers of all magnitudes. */
static void fill(float *x, int32_t n, uint64_t *state) {
    for (int32_t i = 0; i < n; i++) {
        uint64_t r = rng_next(state);
        x[i] = r % 8 == 0 ? SPECIALS[(r >> 8) % N_SPECIALS]
                          : ldexpf(random_normal(state), (int)((r >> 8) % 40) - 30);
    }
}

static void fill_normal(float *x, int32_t n, uint64_t *state) {
    for (int32_t i = 0; i < n; i++) {
        x[i] = random_normal(state);
    }
}

static uint64_t hash_floats(uint64_t hash, const float *x, int32_t n) {
    return hash_bytes(hash, x, sizeof *x * (size_t)n);
}

/* Runs every kernel over all lengths up to MAX_N, with the same inputs whatever k is;
 * checks against the plain twin and that nothing past the end is written. Returns a hash
 * of the results of ordinary inputs. */
static uint64_t run_all(const math_kernels *k) {
    uint64_t state = SEED, hash = HASH_START;
    float x[MAX_N], y[MAX_N], w[MAX_N], got[MAX_N + 1], want[MAX_N + 1];
    for (int32_t n = 1; n <= MAX_N; n++) {
        for (int ordinary = 0; ordinary < 2; ordinary++) {
            (ordinary ? fill_normal : fill)(x, n, &state);
            (ordinary ? fill_normal : fill)(y, n, &state);
            fill_normal(w, n, &state);
#define CHECK(call_got, call_want)                                                                           \
    do {                                                                                                     \
        got[n] = want[n] = 7.0f;                                                                             \
        call_got;                                                                                            \
        call_want;                                                                                           \
        assert_true(same_floats(got, want, (size_t)n + 1));                                                  \
        hash = ordinary ? hash_floats(hash, got, n) : hash;                                                  \
    } while (0)
            CHECK(k->exp(x, n, got), math_plain.exp(x, n, want));
            CHECK(k->tanh(x, n, got), math_plain.tanh(x, n, want));
            for (activation f = ACT_SILU; f <= ACT_RELU2; f++) { /* the others: run_activations */
                CHECK(k->gate_up(f, 0.0f, x, y, n, got), math_plain.gate_up(f, 0.0f, x, y, n, want));
            }
            CHECK((memcpy(got, x, sizeof x), k->scale_cap(1.5f, 0.0f, n, got)),
                  (memcpy(want, x, sizeof x), math_plain.scale_cap(1.5f, 0.0f, n, want)));
            CHECK((memcpy(got, x, sizeof x), k->scale_cap(0.5f, 30.0f, n, got)),
                  (memcpy(want, x, sizeof x), math_plain.scale_cap(0.5f, 30.0f, n, want)));
            CHECK((memcpy(got, x, sizeof x), k->add_scaled(0.7f, y, n, got)),
                  (memcpy(want, x, sizeof x), math_plain.add_scaled(0.7f, y, n, want)));
            CHECK(k->norm_rms(x, w, 1e-5f, n, got), math_plain.norm_rms(x, w, 1e-5f, n, want));
            CHECK(k->norm_layer(x, w, y, 1e-5f, n, got), math_plain.norm_layer(x, w, y, 1e-5f, n, want));
            CHECK(k->norm_layer(x, w, NULL, 1e-5f, n, got),
                  math_plain.norm_layer(x, w, NULL, 1e-5f, n, want));
            for (rope_pairs p = ROPE_HALVES; p <= ROPE_NEIGHBOURS; p++) {
                CHECK((memcpy(got, x, sizeof x), k->rotate(p, y, w, n / 2, got)),
                      (memcpy(want, x, sizeof x), math_plain.rotate(p, y, w, n / 2, want)));
            }
#undef CHECK
        }
    }
    return hash;
}

TEST(sums_with_rows_are_the_plain_twins) {
    float x[3 * 70], y[70], got[3 * 70], want[3 * 70];
    uint64_t state = 3;
    for (int i = 0; i < N_TEST_ISAS; i++) {
        const math_kernels *k = kernels(ISAS[i]);
        for (int32_t n = 1; k != NULL && n <= 70; n++) {
            fill(x, 3 * 70, &state);
            fill(y, n, &state);
            memcpy(got, x, sizeof x);
            memcpy(want, x, sizeof x);
            k->add_to_rows(y, n, 3, got, 70 - (n <= 35) * 30);
            math_plain.add_to_rows(y, n, 3, want, 70 - (n <= 35) * 30);
            assert_true(same_floats(got, want, 3 * 70));
        }
    }
}

/* Rows that are aligned to 64 bytes and others, of any length; what lies between them is
 * untouched. */
TEST(streamed_rows_are_the_plain_twins) {
    _Alignas(64) float got[3 * 80], want[3 * 80];
    float y[3 * 70];
    uint64_t state = 4;
    for (int i = 0; i < N_TEST_ISAS; i++) {
        const math_kernels *k = kernels(ISAS[i]);
        for (int32_t n = 1; k != NULL && n <= 70; n++) {
            int32_t first = n % 3 == 0 ? 1 : 0;
            fill(y, 3 * 70, &state);
            fill(got, 3 * 80, &state);
            memcpy(want, got, sizeof got);
            k->stream_rows(y, 70, n, 3, got + first, n % 2 == 0 ? 80 : 75 - first);
            math_plain.stream_rows(y, 70, n, 3, want + first, n % 2 == 0 ? 80 : 75 - first);
            assert_true(same_floats(got, want, 3 * 80));
        }
    }
}

TEST(every_instruction_set_gives_the_plain_twins_bits) {
    for (int i = 0; i < N_TEST_ISAS; i++) {
        const math_kernels *k = kernels(ISAS[i]);
        if (k != NULL) {
            uint64_t hash = run_all(k);
            printf("%s: %016llx\n", ISAS[i], (unsigned long long)hash);
            assert_true(hash == STORED_HASH);
        }
    }
}

/* Every activation by itself and with a gate, also onto its own input, over all lengths;
 * the hash of the results of ordinary inputs, of those up to ACT_XIELU. */
static uint64_t run_activations(const math_kernels *k) {
    uint64_t state = SEED, hash = HASH_START;
    float x[MAX_N], y[MAX_N], got[MAX_N + 1], want[MAX_N + 1];
    for (int32_t i = 0; i < MAX_N * 2 * N_ACTIVATIONS; i++) {
        int32_t n = 1 + i % MAX_N;
        bool ordinary = i / MAX_N % 2 == 1;
        activation f = (activation)(i / MAX_N / 2);
        (ordinary ? fill_normal : fill)(x, n, &state);
        (ordinary ? fill_normal : fill)(y, n, &state);
        got[n] = want[n] = 7.0f;
        for (int way = 0; way < 3; way++) { /* apart, onto the gate, onto the other factor */
            const float *gate = way == 1 ? memcpy(got, x, sizeof *x * (size_t)n) : x,
                        *up = way == 2 ? memcpy(got, y, sizeof *y * (size_t)n) : y;
            k->gate_up(f, 0.75f, gate, up, n, got);
            math_plain.gate_up(f, 0.75f, x, y, n, want);
            assert_true(same_floats(got, want, (size_t)n + 1));
        }
        hash = ordinary && f <= ACT_XIELU ? hash_floats(hash, got, n) : hash;
        for (int way = 0; way < 2 && f < ACT_SWIGLU_CLAMPED; way++) {
            const float *from = way == 1 ? memcpy(got, x, sizeof *x * (size_t)n) : x;
            k->activate(f, from, n, got);
            math_plain.activate(f, x, n, want);
            assert_true(same_floats(got, want, (size_t)n + 1));
        }
        hash = ordinary && f <= ACT_XIELU ? hash_floats(hash, got, n) : hash;
    }
    return hash;
}

TEST(every_activation_is_the_plain_twins) {
    for (int i = 0; i < N_TEST_ISAS; i++) {
        const math_kernels *k = kernels(ISAS[i]);
        if (k != NULL) {
            uint64_t hash = run_activations(k);
            printf("%s: %016llx\n", ISAS[i], (unsigned long long)hash);
            assert_true(hash == ACTIVATIONS);
        }
    }
}

/* What need not be tested again: attention's tests leave these sets out. */
TEST(sets_that_differ_in_products_only_share_the_rest) {
    for (int i = N_MATH_ISAS; i < N_TEST_ISAS; i++) {
        const math_kernels *k = kernels(ISAS[i]);
        if (k != NULL) {
            const bool is_avx2 = strcmp(ISAS[i], "avxvnni") == 0;
            assert_ptr_equal(k, kernels(is_avx2 ? "avx2" : ISAS[N_MATH_ISAS - 1]));
        }
    }
}

/* Exactly half way, at both ends of what a half holds, subnormal and NaN: any bits, and
 * lengths of all kinds. */
TEST(halves_are_those_of_the_plain_twin) {
    enum { N = 4099 };
    float *x = malloc(N * sizeof *x);
    uint16_t *got = malloc((N + 1) * sizeof *got), *want = malloc((N + 1) * sizeof *want);
    uint64_t seed = SEED;
    for (int i = 0; i < N; i++) {
        uint32_t r = (uint32_t)rng_next(&seed), bits = i % 3 == 0   ? r
                                                       : i % 3 == 1 ? r & 0xfffff000u
                                                                    : 0x33000000u + (r & 0x8effffffu);
        memcpy(&x[i], &bits, sizeof bits);
    }
    for (int i = 0; i < N_TEST_ISAS; i++) {
        const math_kernels *k = kernels(ISAS[i]);
        for (int32_t n = N; k != NULL && n > 0; n = n > 40 ? 40 : n - 1) {
            for (dtype t = DTYPE_F16; t <= DTYPE_BF16; t++) {
                got[n] = want[n] = 7;
                k->narrow(t, x, n, got);
                math_plain.narrow(t, x, n, want);
                assert_memory_equal(got, want, ((size_t)n + 1) * sizeof *got);
            }
        }
    }
    free(x);
    free(got);
    free(want);
}

/* Heads of plain numbers, halves between two bytes among them, of next to nothing, huge,
 * and with one that is no number, of all lengths. */
TEST(bytes_are_those_of_the_plain_twin) {
    enum { N = 300 };
    static const float sizes[] = {1.0f, 3e38f, 1e-30f, 1e-36f, 0.0f};
    float x[N];
    int8_t got[N + 1], want[N + 1];
    uint64_t seed = SEED;
    for (int32_t n = 1; n <= N; n = n < 70 ? n + 1 : n + 115) {
        for (int kind = 0; kind < 8; kind++) {
            for (int32_t i = 0; i < n; i++) {
                float unit = (float)(rng_next(&seed) >> 40) * 0x1p-23f - 1.0f;
                x[i] = kind < 5 ? unit * sizes[kind]
                                : (float)(rng_next(&seed) % 255) - 127.0f + 0.5f * (float)(i % 2);
            }
            x[n / 2] = kind == 6 ? NAN : kind == 7 ? -INFINITY : kind == 5 ? 127.0f : x[n / 2];
            int32_t sum, got_sum, counted = 0;
            want[n] = got[n] = 7;
            float scale = math_plain.narrow_int8(x, n, want, &sum);
            for (int32_t i = 0; i < n; i++) {
                counted += want[i];
                assert_true(isnan(scale) ? want[i] == 0
                                         : fabs((double)want[i] * (double)scale - (double)x[i]) <=
                                               0.5001 * (double)scale + 1e-30);
            }
            assert_true(counted == sum && isnan(scale) == (kind > 5));
            for (int i = 0; i < N_TEST_ISAS; i++) {
                const math_kernels *k = kernels(ISAS[i]);
                if (k != NULL) {
                    float got_scale = k->narrow_int8(x, n, got, &got_sum);
                    assert_memory_equal(&got_scale, &scale, sizeof scale);
                    assert_memory_equal(got, want, (size_t)n + 1);
                    assert_int_equal(got_sum, sum);
                }
            }
        }
    }
}

/* Numbers alone, -0 the largest of them, and each with one that is none, or infinite, at
 * every place. */
TEST(the_largest_is_the_plain_twins) {
    static const float spoils[] = {NAN, -NAN, INFINITY, -INFINITY};
    const math_kernels *here[N_TEST_ISAS];
    float x[MAX_N];
    uint64_t seed = SEED;
    for (int i = 0; i < N_TEST_ISAS; i++) {
        here[i] = kernels(ISAS[i]);
    }
    for (int32_t n = 1; n <= MAX_N; n++) {
        for (int32_t spoilt = -1; spoilt < n; spoilt++) {
            fill_normal(x, n, &seed);
            for (int32_t i = 0; i < n && spoilt % 3 == 1; i++) {
                x[i] = i % 2 == 0 ? -0.0f : -fabsf(x[i]);
            }
            float most = x[0];
            for (int32_t i = 1; i < n; i++) {
                most = fmaxf(most, x[i]);
            }
            if (spoilt >= 0 && spoilt % 2 == 0) {
                x[spoilt] = spoils[spoilt / 2 % 4];
                most = NAN;
            }
            float want = math_plain.largest(x, n);
            assert_true(isnan(most) ? isnan(want) : want == most && !(want == 0.0f && signbit(want)));
            for (int i = 0; i < N_TEST_ISAS; i++) {
                float got = here[i] != NULL ? here[i]->largest(x, n) : want;
                assert_true(same_floats(&got, &want, 1));
            }
        }
    }
}

/* How far got is from want, in units of want's last place. */
static double ulps(float got, double want) {
    float rounded = (float)want;
    if (got == rounded) {
        return 0.0;
    }
    double unit = fabs((double)nextafterf(rounded, INFINITY) - (double)rounded);
    return fabs((double)got - want) / unit;
}

/* The worst of f over floats from low to high, `steps` of them spread evenly over their
 * bit patterns' values. */
static double worst_ulps(float (*f)(float), double (*exact)(double), double low, double high) {
    double worst = 0.0;
    for (int32_t i = 0; i <= 400000; i++) {
        float x = (float)(low + (high - low) * i / 400000);
        double u = ulps(f(x), exact((double)x));
        worst = u > worst ? u : worst;
    }
    return worst;
}

static double exact_silu(double x) {
    return x / (1.0 + exp(-x));
}

static double exact_gelu(double x) {
    return 0.5 * x * erfc(-x / sqrt(2.0));
}

static double exact_gelu_tanh(double x) {
    return 0.5 * x * (1.0 + tanh(sqrt(2.0 / 3.14159265358979323846) * (x + 0.044715 * x * x * x)));
}

static double exact_sigmoid(double x) {
    return 1.0 / (1.0 + exp(-x));
}

static double exact_gelu_quick(double x) {
    return x / (1.0 + exp(-1.702 * x));
}

/* gpt-oss: arXiv:2508.10925. */
static double exact_swiglu_clamped(double limit, double gate, double up) {
    double g = fmin(gate, limit), u = fmax(-limit, fmin(up, limit));
    return exact_gelu_quick(g) * (u + 1.0);
}

static double exact_softplus(double x) {
    return fmax(x, 0.0) + log1p(exp(-fabs(x)));
}

static double exact_xielu(const xielu_desc *d, double x) {
    double below = (double)d->negative * (expm1(fmin(x, (double)d->eps)) - x);
    return (double)d->linear * x + (x > 0.0 ? (double)d->positive * x * x : below);
}

/* Huang and Schlag 2024, arXiv:2411.13010, with numbers such as models have. */
TEST(xielu_agrees_with_double_on_every_instruction_set) {
    static const xielu_desc forms[] = {{0.96f, 1.2f, 0.5f, -1e-6f}, {0.3f, 0.51f, 0.5f, -0.01f}};
    static float x[8001], got[8001], want[8001];
    for (int32_t i = 0; i <= 8000; i++) {
        x[i] = i % 2 == 0 ? (float)(i - 4000) * 0.01f : (float)(i - 4000) * 1e-4f;
    }
    for (size_t f = 0; f < sizeof forms / sizeof *forms; f++) {
        math_plain.xielu(&forms[f], x, 8001, want);
        for (int32_t i = 0; i <= 8000; i++) {
            double exact = exact_xielu(&forms[f], (double)x[i]);
            double size = fabs(exact) + fabs((double)x[i]); /* its terms may cancel */
            assert_true(fabs((double)want[i] - exact) <= 4e-7 * size + 1e-9);
        }
        for (int i = 0; i < N_TEST_ISAS; i++) {
            const math_kernels *k = kernels(ISAS[i]);
            for (int32_t n = 7999; k != NULL && n <= 8001; n++) {
                memcpy(got, x, sizeof got);
                k->xielu(&forms[f], got, n, got);
                assert_true(same_floats(got, want, (size_t)n) && (n == 8001 || got[n] == x[n]));
            }
        }
    }
    float odd[4] = {NAN, INFINITY, 0.0f, -0.0f};
    math_plain.xielu(&forms[0], odd, 4, odd);
    assert_true(isnan(odd[0]) && odd[1] == INFINITY && fabsf(odd[2]) < 1e-5f && fabsf(odd[3]) < 1e-5f);
}

static double exact_activation(activation f, double x) {
    switch (f) {
    case ACT_SILU:
        return exact_silu(x);
    case ACT_GELU:
        return exact_gelu(x);
    case ACT_GELU_TANH:
        return exact_gelu_tanh(x);
    case ACT_RELU:
        return fmax(x, 0.0);
    case ACT_RELU2:
        return fmax(x, 0.0) * fmax(x, 0.0);
    case ACT_GELU_QUICK:
        return exact_gelu_quick(x);
    case ACT_SIGMOID:
        return exact_sigmoid(x);
    case ACT_TANH:
        return tanh(x);
    case ACT_SOFTPLUS:
        return exact_softplus(x);
    default:
        return x;
    }
}

TEST(activations_agree_with_double) {
    double quick = worst_ulps(plain_gelu_quick, exact_gelu_quick, -8.0, 60.0),
           s = worst_ulps(plain_sigmoid, exact_sigmoid, -80.0, 80.0),
           soft = worst_ulps(plain_softplus, exact_softplus, -80.0, 80.0);
    printf("worst, ulp: gelu quick %.2f, sigmoid %.2f, softplus %.2f\n", quick, s, soft);
    assert_true(quick < 16.0 && s < 3.0 && soft < 4.0);
    for (int32_t i = -2000; i <= 2000; i++) {
        float x = (float)i * 0.01f, up = (float)(i * 7 % 301) * 0.1f, got;
        double size = fmax(1.0, fabs((double)x));
        for (activation f = 0; f < ACT_SWIGLU_CLAMPED; f++) {
            math_plain.activate(f, &x, 1, &got);
            assert_true(fabs((double)got - exact_activation(f, (double)x)) < 2e-7 * size * size);
            math_plain.gate_up(f, 0.0f, &x, &up, 1, &got);
            assert_true(fabs((double)got - exact_activation(f, (double)x) * (double)up) < 1e-5 * size * size);
        }
        math_plain.gate_up(ACT_SWIGLU_CLAMPED, 7.0f, &x, &up, 1, &got);
        assert_true(fabs((double)got - exact_swiglu_clamped(7.0, (double)x, (double)up)) < 2e-5);
        math_plain.gate_up(ACT_SILU_CLAMPED, 7.0f, &x, &up, 1, &got);
        const double cut = fmax(-7.0, fmin((double)up, 7.0));
        assert_true(fabs((double)got - fmin(exact_silu((double)x), 7.0) * cut) < 2e-5);
        math_plain.gate_up(ACT_CLAMPED_SILU, 7.0f, &x, &up, 1, &got);
        assert_true(fabs((double)got - exact_silu(fmin((double)x, 7.0)) * cut) < 2e-5);
    }
}

TEST(the_functions_are_within_a_few_units_of_the_last_place) {
    double e = worst_ulps(plain_exp, exp, -87.3, 88.7), t = worst_ulps(plain_tanh, tanh, -12.0, 12.0);
    double near = worst_ulps(plain_tanh, tanh, -0.01, 0.01),
           s = worst_ulps(plain_silu, exact_silu, -80.0, 80.0);
    double gelu_near = worst_ulps(plain_gelu, exact_gelu, -1.0, 5.0);
    printf("worst, ulp: exp %.2f, tanh %.2f (near 0 %.2f), silu %.2f, gelu from -1 %.2f\n", e, t, near, s,
           gelu_near);
    assert_true(e < 1.5 && t < 2.5 && near < 1.5 && s < 3.5 && gelu_near < 4.0);
    double gelu = 0.0, gelu_tanh = 0.0;
    for (int32_t i = -100000; i <= 100000; i++) {
        float x = (float)i * 1e-4f;
        double scale = fabs((double)x) > 1.0 ? fabs((double)x) : 1.0;
        gelu = fmax(gelu, fabs((double)plain_gelu(x) - exact_gelu((double)x)) / scale);
        gelu_tanh = fmax(gelu_tanh, fabs((double)plain_gelu_tanh(x) - exact_gelu_tanh((double)x)) / scale);
    }
    printf("worst, absolute: gelu %.2g, gelu tanh %.2g\n", gelu, gelu_tanh);
    assert_true(gelu < 1e-7 && gelu_tanh < 1.5e-7);
}

TEST(the_functions_are_defined_everywhere) {
    assert_true(plain_exp(-INFINITY) == 0.0f && plain_exp(-1e30f) == 0.0f && plain_exp(-104.0f) == 0.0f);
    assert_true(plain_exp(INFINITY) == INFINITY && plain_exp(1e30f) == INFINITY &&
                plain_exp(88.73f) == INFINITY);
    assert_true(plain_exp(0.0f) == 1.0f && plain_exp(-0.0f) == 1.0f);
    assert_true(isnan(plain_exp(NAN)) && isnan(plain_tanh(NAN)) && isnan(plain_silu(NAN)) &&
                isnan(plain_gelu(NAN)));
    assert_true(fabs((double)plain_exp(-100.0f) - exp(-100.0)) <= 0x1p-149); /* subnormal */
    assert_true(plain_tanh(INFINITY) == 1.0f && plain_tanh(-INFINITY) == -1.0f && signbit(plain_tanh(-0.0f)));
    assert_true(plain_gelu(INFINITY) == INFINITY && plain_gelu(-INFINITY) == 0.0f &&
                plain_gelu(-7.0f) == 0.0f && plain_gelu(7.0f) == 7.0f);
    assert_true(signbit(plain_gelu(-0.0f)));
    assert_true(plain_silu(1e30f) == 1e30f && plain_silu(-1e30f) == 0.0f && plain_silu(0.0f) == 0.0f);
    assert_true(plain_sigmoid(INFINITY) == 1.0f && plain_sigmoid(-INFINITY) == 0.0f &&
                isnan(plain_sigmoid(NAN)));
    assert_true(plain_gelu_quick(1e30f) == 1e30f && plain_gelu_quick(-1e30f) == 0.0f &&
                isnan(plain_gelu_quick(NAN)));
    assert_true(isnan(plain_swiglu_clamped(7.0f, NAN, 1.0f)) && isnan(plain_swiglu_clamped(7.0f, 1.0f, NAN)));
    assert_true(plain_swiglu_clamped(7.0f, INFINITY, -INFINITY) == plain_swiglu_clamped(7.0f, 7.0f, -7.0f));
    assert_true(isnan(plain_relu(NAN)) && plain_relu(-3.0f) == 0.0f && plain_relu(3.0f) == 3.0f);
}

TEST(norms_and_rotation_agree_with_double) {
    uint64_t state = SEED + 1;
    float x[MAX_N], w[MAX_N], bias[MAX_N], got[MAX_N];
    for (int32_t n = 2; n <= MAX_N; n++) {
        fill_normal(x, n, &state);
        fill_normal(w, n, &state);
        fill_normal(bias, n, &state);
        double squares = 0.0, mean = 0.0, variance = 0.0;
        for (int32_t i = 0; i < n; i++) {
            squares += (double)x[i] * (double)x[i] / n;
            mean += (double)x[i] / n;
        }
        for (int32_t i = 0; i < n; i++) {
            variance += ((double)x[i] - mean) * ((double)x[i] - mean) / n;
        }
        math_plain.norm_rms(x, w, 1e-5f, n, got);
        for (int32_t i = 0; i < n; i++) {
            assert_true(fabs((double)got[i] - (double)x[i] / sqrt(squares + 1e-5) * (double)w[i]) < 1e-5);
        }
        math_plain.norm_layer(x, w, bias, 1e-5f, n, got);
        for (int32_t i = 0; i < n; i++) {
            double want = ((double)x[i] - mean) / sqrt(variance + 1e-5) * (double)w[i] + (double)bias[i];
            assert_true(fabs((double)got[i] - want) < 1e-4 * fmax(1.0, fabs(want)));
        }
    }
    float pair[4] = {1.0f, 2.0f, 3.0f, 4.0f}, c[2] = {0.6f, 1.0f}, s[2] = {0.8f, 0.0f};
    math_plain.rotate(ROPE_HALVES, c, s, 2, pair);
    assert_float_equal(pair[0], 0.6f - 3.0f * 0.8f, 1e-6f);
    assert_float_equal(pair[2], 3.0f * 0.6f + 0.8f, 1e-6f);
    assert_true(pair[1] == 2.0f && pair[3] == 4.0f);
    float neighbours[4] = {1.0f, 3.0f, 2.0f, 4.0f};
    math_plain.rotate(ROPE_NEIGHBOURS, c, s, 2, neighbours);
    assert_true(neighbours[0] == pair[0] && neighbours[1] == pair[2] && neighbours[2] == 2.0f &&
                neighbours[3] == 4.0f);
}

TEST(a_name_that_is_no_instruction_set_is_refused) {
    backend *b = NULL;
    quire_error err;
    assert_int_equal(backend_cpu_open(&(backend_options){.isa = "sse9", .n_threads = 1}, &b, &err),
                     QUIRE_INVALID);
    assert_non_null(strstr(err.message, "sse9"));
    assert_null(b);
    assert_int_equal(backend_cpu_open(&(backend_options){.isa = "plain", .n_threads = 1}, &b, &err),
                     QUIRE_OK);
    assert_string_equal(b->ops->describe(b), "cpu, plain, 1 thread");
    b->ops->close(b);
}

#if defined(__x86_64__)
/* Only by its name on Intel's, where vfmadd over widened weights is faster. An emulated
 * one is never taken: there it is AVX2. */
TEST(auto_takes_the_dot_instruction_of_bf16_where_it_is_fast) {
    backend *b = open_isa("auto", 1);
    cpu_isa chosen = ((cpu_backend *)b)->isa;
    printf("auto: %s\n", b->ops->describe(b));
    if (__builtin_cpu_supports("avx512bf16") && !__builtin_cpu_is("intel")) {
        assert_true(chosen == ISA_AVX512_BF16 || chosen == ISA_AVX2);
    } else {
        assert_true(chosen != ISA_AVX512_BF16);
    }
    b->ops->close(b);
}
#endif

TEST_MAIN_ISAS
