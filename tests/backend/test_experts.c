/* Mixtures of experts: a row has the bits of its experts computed one by one, and is
 * close to a reference in double. */

#include <math.h>

#include "backend/cpu/experts.h"
#include "backend/cpu/math.h"
#include "backend/linear_cases.h"
#include "test.h"

#define MAX_ROWS 200
#define LIMIT    1.5f

/* How rows are spread over experts. */
typedef enum spread { AT_RANDOM, ALL_TO_ONE, TO_THE_FIRST_FEW } spread;

/* A mixture. Odd experts have weights of type `other`. */
typedef struct mixture {
    compute_mode mode;
    dtype type, other;
    int32_t n_experts, n_used, d_in, d_hidden, d_out;
    int32_t n_identity; /* of n_experts the last: they give the row that they read */
    spread spread;
    bool is_gated, has_bias, has_norm, scales_inputs, overwrites, in_place; /* in_place: y is x */
    bool norms_results;
    activation f;
    float scale;
} mixture;

typedef struct fixture {
    mixture c;
    routing r;
    backend *b;
    buffer x, y, logits, one, gate, up, hidden, down;
    norm *nm, *of_results;
    experts *w;
    linear *gates[ROUTE_MAX_EXPERTS], *ups[ROUTE_MAX_EXPERTS], *downs[ROUTE_MAX_EXPERTS];
    float *rows, *before, *scores; /* [MAX_ROWS, d_in], [MAX_ROWS, d_out], [MAX_ROWS, n_experts] */
} fixture;

static linear *load(fixture *f, dtype t, int32_t n_out, int32_t n_in, uint64_t seed) {
    uint8_t *source = random_weights(t, (size_t)n_out * (size_t)n_in, &seed);
    float *bias = malloc(sizeof *bias * (size_t)n_out);
    for (int32_t i = 0; i < n_out; i++) {
        bias[i] = random_float(&seed);
    }
    const tensor_view w = matrix_view(t, n_out, n_in, source);
    const tensor_view v = {.name = "b",
                           .type = DTYPE_F32,
                           .n_dims = 1,
                           .dims = {n_out, 1, 1, 1},
                           .data = bias,
                           .n_bytes = sizeof *bias * (size_t)n_out};
    linear *l = NULL;
    quire_error err;
    if (f->b->ops->linear_load(f->b, &(linear_spec){.weight = &w, .bias = f->c.has_bias ? &v : NULL}, &l,
                               &err) != QUIRE_OK) {
        fail_msg("%s", err.message);
    }
    free(source);
    free(bias);
    return l;
}

static void load_mixture(fixture *f) {
    const mixture *c = &f->c;
    quire_error err;
    for (int32_t e = 0; e < c->n_experts - c->n_identity; e++) {
        dtype t = e % 2 == 1 ? c->other : c->type;
        f->gates[e] = c->is_gated ? load(f, t, c->d_hidden, c->d_in, 1000 + (uint64_t)e) : NULL;
        f->ups[e] = load(f, t, c->d_hidden, c->d_in, 2000 + (uint64_t)e);
        f->downs[e] = load(f, t, c->d_out, c->d_hidden, 3000 + (uint64_t)e);
    }
    const norm_spec bare = {.kind = NORM_RMS, .width = c->d_out, .eps = 1e-4f};
    assert_int_equal(f->b->ops->norm_load(f->b, &bare, &f->of_results, &err), QUIRE_OK);
    const experts_weights w = {.routing = &f->r,
                               .gate = c->is_gated ? f->gates : NULL,
                               .up = f->ups,
                               .down = f->downs,
                               .result_norm = c->norms_results ? f->of_results : NULL};
    if (f->b->ops->experts_load(f->b, &w, &f->w, &err) != QUIRE_OK) {
        fail_msg("%s", err.message);
    }
}

static void fill_rows(fixture *f) {
    const mixture *c = &f->c;
    uint64_t seed = 31;
    f->rows = malloc(sizeof *f->rows * (size_t)(MAX_ROWS * c->d_in));
    f->before = malloc(sizeof *f->before * (size_t)(MAX_ROWS * c->d_out));
    f->scores = malloc(sizeof *f->scores * (size_t)(MAX_ROWS * c->n_experts));
    for (int32_t i = 0; i < MAX_ROWS * c->d_in; i++) {
        f->rows[i] = random_float(&seed) * 2.0f;
    }
    for (int32_t i = 0; i < MAX_ROWS * c->d_out; i++) {
        f->before[i] = c->in_place ? f->rows[i] : random_float(&seed);
    }
    for (int32_t i = 0; i < MAX_ROWS * c->n_experts; i++) {
        int32_t e = i % c->n_experts, favoured = c->spread == ALL_TO_ONE ? c->n_experts / 2 : 0;
        bool is_favoured = c->spread == ALL_TO_ONE ? e == favoured : e < c->n_used + 2;
        f->scores[i] = random_float(&seed) + (c->spread != AT_RANDOM && is_favoured ? 5.0f : 0.0f);
    }
}

static fixture *fixture_open(const mixture *c, const char *isa, int32_t n_threads) {
    backend *b = open_isa(isa, c->mode, n_threads);
    if (b == NULL) {
        return NULL;
    }
    fixture *f = calloc(1, sizeof *f);
    *f = (fixture){.c = *c, .b = b};
    f->r = (routing){.n_experts = c->n_experts,
                     .n_used = c->n_used,
                     .n_identity = c->n_identity,
                     .score = ROUTE_SIGMOID,
                     .renormalise = !c->scales_inputs,
                     .scale = 1.0f,
                     .scale_inputs = c->scales_inputs};
    uint64_t seed = 7;
    float *weight = malloc(sizeof *weight * (size_t)c->d_in);
    for (int32_t i = 0; i < c->d_in; i++) {
        weight[i] = 1.0f + 0.5f * random_float(&seed);
    }
    const tensor_view nw = {.name = "n",
                            .type = DTYPE_F32,
                            .n_dims = 1,
                            .dims = {c->d_in, 1, 1, 1},
                            .data = weight,
                            .n_bytes = sizeof *weight * (size_t)c->d_in};
    quire_error err;
    assert_int_equal(
        b->ops->norm_load(b, &(norm_spec){.kind = NORM_RMS, .width = c->d_in, .eps = 1e-5f, .weight = &nw},
                          &f->nm, &err),
        QUIRE_OK);
    free(weight);
    load_mixture(f);
    f->x = b->ops->buffer_reserve(b, c->d_in);
    f->y = b->ops->buffer_reserve(b, c->d_out);
    f->logits = b->ops->buffer_reserve(b, c->n_experts);
    f->one = b->ops->buffer_reserve(b, c->d_in);
    f->gate = b->ops->buffer_reserve(b, c->d_hidden);
    f->up = b->ops->buffer_reserve(b, c->d_hidden);
    f->hidden = b->ops->buffer_reserve(b, c->d_hidden);
    f->down = b->ops->buffer_reserve(b, c->d_out);
    const step_limits limits = {.max_rows = MAX_ROWS, .max_seqs = 1};
    assert_int_equal(b->ops->step_open(b, &limits, NULL, 0, &err), QUIRE_OK);
    fill_rows(f);
    return f;
}

static void fixture_close(fixture *f) {
    f->b->ops->close(f->b);
    free(f->rows);
    free(f->before);
    free(f->scores);
    free(f);
}

/* Rows row0..row0+n through the mixture; out [n, d_out]. */
static void run(fixture *f, int32_t row0, int32_t n, float *out) {
    const backend_ops *ops = f->b->ops;
    const batch step = {.n_rows = n};
    buffer y = f->c.in_place ? f->x : f->y;
    ops->step_begin(f->b, &step);
    ops->buffer_write(f->b, f->x, 0, n, f->rows + row0 * f->c.d_in);
    if (!f->c.in_place && !f->c.overwrites) {
        ops->buffer_write(f->b, f->y, 0, n, f->before + row0 * f->c.d_out);
    }
    ops->buffer_write(f->b, f->logits, 0, n, f->scores + row0 * f->c.n_experts);
    ops->route(f->b, &f->r, f->logits);
    ops->experts(f->b, &(experts_use){.x = f->x,
                                      .nm = f->c.has_norm ? f->nm : NULL,
                                      .w = f->w,
                                      .f = f->c.f,
                                      .limit = LIMIT,
                                      .scale = f->c.scale,
                                      .overwrite = f->c.overwrites,
                                      .y = y});
    ops->step_wait(f->b);
    ops->buffer_read(f->b, y, 0, n, out);
}

/* One row through expert e by the ops of single products: down's row, in `out`. */
static void run_expert(fixture *f, int32_t e, const float *input, float *out) {
    const backend_ops *ops = f->b->ops;
    const mixture *c = &f->c;
    const batch step = {.n_rows = 1};
    float *gate = malloc(sizeof *gate * (size_t)c->d_hidden), *up = malloc(sizeof *up * (size_t)c->d_hidden);
    ops->step_begin(f->b, &step);
    ops->buffer_write(f->b, f->one, 0, 1, input);
    ops->norm_linears(f->b, f->one, NULL, &(linear_use){f->ups[e], f->up}, 1);
    ops->buffer_read(f->b, f->up, 0, 1, up);
    if (c->is_gated) {
        ops->norm_linears(f->b, f->one, NULL, &(linear_use){f->gates[e], f->gate}, 1);
        ops->buffer_read(f->b, f->gate, 0, 1, gate);
    }
    const math_kernels *math = ((cpu_backend *)f->b)->math;
    if (c->is_gated) {
        math->gate_up(c->f, LIMIT, gate, up, c->d_hidden, gate);
    } else {
        math->activate(c->f, up, c->d_hidden, gate);
    }
    ops->buffer_write(f->b, f->hidden, 0, 1, gate);
    ops->norm_linears(f->b, f->hidden, NULL, &(linear_use){f->downs[e], f->down}, 1);
    ops->step_wait(f->b);
    ops->buffer_read(f->b, f->down, 0, 1, out);
    free(gate);
    free(up);
}

/* The mixture's result for one row, expert by expert, in the documented order. */
static void run_apart(fixture *f, int32_t row, float *out) {
    const mixture *c = &f->c;
    const cpu_experts_state *s = ((cpu_backend *)f->b)->experts_state;
    const batch step = {.n_rows = 1};
    int32_t chosen[ROUTE_MAX_USED];
    float weights[ROUTE_MAX_USED], *h = malloc(sizeof *h * (size_t)c->d_in),
                                   *input = malloc(sizeof *input * (size_t)c->d_in);
    float *down = malloc(sizeof *down * (size_t)c->d_out), *sum = calloc((size_t)c->d_out, sizeof *sum);
    f->b->ops->step_begin(f->b, &step);
    f->b->ops->buffer_write(f->b, f->logits, 0, 1, f->scores + row * c->n_experts);
    f->b->ops->route(f->b, &f->r, f->logits);
    f->b->ops->step_wait(f->b);
    memcpy(chosen, s->chosen, sizeof *chosen * (size_t)c->n_used);
    memcpy(weights, s->weights, sizeof *weights * (size_t)c->n_used);
    memcpy(h, f->rows + row * c->d_in, sizeof *h * (size_t)c->d_in);
    if (c->has_norm) {
        cpu_norm_row((cpu_backend *)f->b, f->nm, h, c->d_in, h);
    }
    for (int32_t k = 0; k < c->n_used; k++) {
        for (int32_t i = 0; i < c->d_in; i++) {
            input[i] = c->scales_inputs ? h[i] * weights[k] : h[i];
        }
        if (chosen[k] < c->n_experts - c->n_identity) {
            run_expert(f, chosen[k], input, down);
        } else {
            memcpy(down, h, sizeof *h * (size_t)c->d_in);
        }
        if (c->norms_results) {
            cpu_norm_row((cpu_backend *)f->b, f->of_results, down, c->d_out, down);
        }
        for (int32_t i = 0; i < c->d_out; i++) {
            sum[i] = fmaf(c->scales_inputs ? 1.0f : weights[k], down[i], sum[i]);
        }
    }
    for (int32_t i = 0; i < c->d_out; i++) {
        out[i] = c->overwrites ? c->scale * sum[i] : fmaf(c->scale, sum[i], f->before[row * c->d_out + i]);
    }
    free(h);
    free(input);
    free(down);
    free(sum);
}

static void fail_at(const mixture *c, const char *how, int32_t row, int32_t n) {
    fail_msg("%s, %s and %s, %d of %d experts, %d x %d x %d%s%s%s%s: row %d in a batch of %d (%s)",
             compute_name(c->mode), dtype_name(c->type), dtype_name(c->other), c->n_used, c->n_experts,
             c->d_in, c->d_hidden, c->d_out, c->is_gated ? "" : ", not gated", c->has_bias ? ", biases" : "",
             c->scales_inputs ? ", scaled inputs" : "", c->in_place ? ", in place" : "", row, n, how);
}

static void expect_same(const mixture *c, const float *got, const float *expected, int32_t row0, int32_t n,
                        const char *how) {
    for (int32_t r = 0; r < n; r++) {
        if (memcmp(got + r * c->d_out, expected + (row0 + r) * c->d_out, sizeof *got * (size_t)c->d_out) !=
            0) {
            fail_at(c, how, row0 + r, n);
        }
    }
}

/* Compares batches of 1 to 200 rows on 1 and on 4 threads with rows through one expert at
 * a time. */
static void check_bits(const mixture *c, const char *isa, int32_t n_apart) {
    static const int32_t batches[][2] = {{0, 200}, {0, 1},  {7, 1},   {3, 2},
                                         {4, 5},   {9, 33}, {60, 64}, {20, 150}};
    size_t bytes = sizeof(float) * (size_t)(MAX_ROWS * c->d_out);
    float *expected = malloc(bytes), *got = malloc(bytes);
    fixture *f = fixture_open(c, isa, 1);
    if (f == NULL) {
        free(expected);
        free(got);
        return;
    }
    run(f, 0, MAX_ROWS, expected);
    for (int32_t row = 0; row < n_apart; row++) {
        run_apart(f, row, got);
        expect_same(c, got, expected, row, 1, "expert by expert");
    }
    fixture_close(f);
    for (int32_t threads = 1; threads <= 4; threads += 3) {
        f = fixture_open(c, isa, threads);
        for (size_t i = 0; i < sizeof batches / sizeof batches[0]; i++) {
            run(f, batches[i][0], batches[i][1], got);
            expect_same(c, got, expected, batches[i][0], batches[i][1],
                        threads == 1 ? "1 thread" : "4 threads");
        }
        fixture_close(f);
    }
    free(expected);
    free(got);
}

static mixture base_case(compute_mode mode, dtype t) {
    bool is_quantised = dtype_is_quantised(t);
    return (mixture){.mode = mode,
                     .type = t,
                     .other = t,
                     .n_experts = 8,
                     .n_used = 2,
                     .d_in = is_quantised ? 256 : 72,
                     .d_hidden = is_quantised ? 256 : 50,
                     .d_out = is_quantised ? 256 : 72,
                     .is_gated = true,
                     .has_norm = true,
                     .in_place = true,
                     .scale = 1.0f};
}

static const compute_mode modes[] = {COMPUTE_F32, COMPUTE_BF16, COMPUTE_INT8};

TEST(a_mixture_has_the_bits_of_its_experts_one_by_one) {
    static const dtype types[] = {DTYPE_F32,    DTYPE_BF16,  DTYPE_F16,    DTYPE_Q4_0,
                                  DTYPE_Q8_0,   DTYPE_Q4_K,  DTYPE_Q6_K,   DTYPE_MXFP4,
                                  DTYPE_IQ4_XS, DTYPE_NVFP4, DTYPE_IQ2_XXS};
    for (int m = 0; m < 3; m++) {
        for (size_t t = 0; t < sizeof types / sizeof types[0]; t++) {
            mixture c = base_case(modes[m], types[t]);
            check_bits(&c, "auto", 40);
        }
    }
}

TEST(experts_without_weights_return_their_input) {
    for (int m = 0; m < 3; m++) {
        mixture c = base_case(modes[m], DTYPE_F32);
        c.n_experts = 11;
        c.n_used = 4;
        c.n_identity = 5;
        check_bits(&c, "auto", 20);
        c.n_identity = 10; /* rows that choose none of the others */
        c.has_norm = c.in_place = false;
        c.overwrites = true;
        check_bits(&c, "plain", 20);
    }
}

TEST(a_mixture_of_any_number_of_experts_has_their_bits) {
    static const int32_t sizes[][2] = {{1, 1}, {4, 1}, {4, 4}, {5, 3}, {32, 8}, {128, 8}};
    for (size_t i = 0; i < 3 * sizeof sizes / sizeof sizes[0]; i++) {
        mixture c = base_case(modes[i % 3], i % 2 == 0 ? DTYPE_Q4_0 : DTYPE_F32);
        c.n_experts = sizes[i / 3][0];
        c.n_used = sizes[i / 3][1];
        c.d_in = 64;
        c.d_hidden = 96; /* narrower than groups that are converted at once */
        c.d_out = 64;
        check_bits(&c, "auto", 12);
    }
}

TEST(a_mixture_has_the_same_bits_wherever_its_rows_go) {
    for (int i = 0; i < 3 * 3; i++) {
        mixture c = base_case(modes[i % 3], DTYPE_Q8_0);
        c.n_experts = 16;
        c.n_used = i / 3 == 1 ? 1 : 3;
        c.spread = (spread)(i / 3);
        check_bits(&c, "auto", 12);
    }
}

TEST(a_mixture_has_the_bits_of_its_experts_in_every_form) {
    for (int i = 0; i < 3 * 32; i++) {
        int options = i / 3;
        mixture c = base_case(modes[i % 3], options % 3 == 0 ? DTYPE_Q4_0 : DTYPE_F32);
        c.other = options % 2 == 0 ? DTYPE_Q8_0 : DTYPE_F32; /* rows in two formats under int8 */
        c.n_experts = 6;
        c.n_used = 3;
        c.d_in = c.d_hidden = 64;
        c.d_out = (options & 16) != 0 ? 64 : 40;
        c.is_gated = (options & 1) == 0;
        c.has_bias = (options & 2) != 0;
        c.has_norm = (options & 4) != 0;
        c.scales_inputs = (options & 8) != 0;
        c.in_place = (options & 16) != 0;
        c.overwrites = (options & 20) == 4 || (options & 24) == 24;
        c.f = c.is_gated && (options & 2) != 0 ? ACT_SWIGLU_CLAMPED
              : (options & 4) != 0             ? ACT_RELU2
                                               : ACT_SILU;
        c.scale = (options & 1) != 0 ? 0.75f : 1.0f;
        check_bits(&c, "auto", 8);
    }
}

TEST(a_mixture_with_a_norm_of_each_result_has_the_bits_of_its_experts) {
    for (int i = 0; i < 3 * 4; i++) {
        mixture c = base_case(modes[i % 3], i / 3 % 2 == 0 ? DTYPE_Q8_0 : DTYPE_F32);
        c.n_used = 3;
        c.norms_results = true;
        c.scales_inputs = i / 3 >= 2;
        c.overwrites = i / 3 % 2 == 0;
        check_bits(&c, "auto", 12);
        c.d_out = c.d_in = 2080; /* several tiles, wider than the hidden rows */
        c.scale = 0.75f;
        check_bits(&c, "auto", 4);
    }
}

/* Wide enough that one thread takes tasks of more columns than two do. */
TEST(a_mixture_of_wide_tasks_has_the_bits_of_its_experts) {
    mixture c = base_case(COMPUTE_INT8, DTYPE_Q4_0);
    c.n_experts = 4;
    c.n_used = 2;
    c.has_bias = true;
    c.d_in = c.d_out = 2080;
    c.d_hidden = 544;
    check_bits(&c, "auto", 4);
    c.type = c.other = DTYPE_F32;
    c.d_hidden = 530;
    check_bits(&c, "auto", 4);
}

TEST(every_instruction_set_has_the_bits_of_the_plain_one) {
    for (int m = 0; m < 3; m++) {
        mixture c = base_case(modes[m], DTYPE_Q4_K);
        c.other = DTYPE_F32;
        float *expected = malloc(sizeof(float) * (size_t)(MAX_ROWS * c.d_out)),
              *got = malloc(sizeof(float) * (size_t)(MAX_ROWS * c.d_out));
        fixture *plain = fixture_open(&c, "plain", 1);
        run(plain, 0, 50, expected);
        fixture_close(plain);
        for (int isa = 1; isa < N_ISAS; isa++) {
            fixture *f = modes[m] == COMPUTE_BF16 && isa == ISA_AVX512_BF16
                             ? NULL
                             : fixture_open(&c, isa_names[isa], 2);
            if (f != NULL) { /* that dot instruction has bits of its own */
                run(f, 0, 50, got);
                expect_same(&c, got, expected, 0, 50, isa_names[isa]);
                fixture_close(f);
            }
        }
        free(expected);
        free(got);
    }
}

/* y = sum over experts of weight * down(silu(gate(x)) * up(x)), in double over the f32
 * weights. */
TEST(a_mixture_is_right_to_the_precision_of_f32) {
    mixture c = base_case(COMPUTE_F32, DTYPE_F32);
    c.has_norm = c.in_place = false;
    c.overwrites = true;
    enum { N = 6 };
    fixture *f = fixture_open(&c, "auto", 2);
    float out[N * 72];
    run(f, 0, N, out);
    for (int32_t row = 0; row < N; row++) {
        double y[72] = {0}, weights[8], sum = 0.0;
        const float *x = f->rows + row * c.d_in, *scores = f->scores + row * c.n_experts;
        for (int32_t e = 0; e < c.n_experts; e++) {
            int32_t n_better = 0;
            for (int32_t other = 0; other < c.n_experts; other++) {
                n_better += scores[other] > scores[e];
            }
            weights[e] = n_better < c.n_used ? 1.0 / (1.0 + exp(-(double)scores[e])) : 0.0;
            sum += weights[e];
        }
        for (int32_t e = 0; e < c.n_experts; e++) {
            uint64_t seeds[] = {1000 + (uint64_t)e, 2000 + (uint64_t)e, 3000 + (uint64_t)e};
            size_t n = (size_t)(c.d_in * c.d_hidden);
            float *gate = (float *)(void *)random_weights(DTYPE_F32, n, &seeds[0]),
                  *up = (float *)(void *)random_weights(DTYPE_F32, n, &seeds[1]);
            float *down = (float *)(void *)random_weights(DTYPE_F32, n, &seeds[2]);
            for (int32_t j = 0; j < c.d_hidden; j++) {
                double g = 0.0, u = 0.0;
                for (int32_t k = 0; k < c.d_in; k++) {
                    g += (double)x[k] * (double)gate[j * c.d_in + k];
                    u += (double)x[k] * (double)up[j * c.d_in + k];
                }
                double h = g / (1.0 + exp(-g)) * u;
                for (int32_t i = 0; i < c.d_out; i++) {
                    y[i] += weights[e] / sum * h * (double)down[i * c.d_hidden + j];
                }
            }
            free(gate);
            free(up);
            free(down);
        }
        for (int32_t i = 0; i < c.d_out; i++) {
            assert_true(fabs((double)out[row * c.d_out + i] - y[i]) <= 1e-4);
        }
    }
    fixture_close(f);
}

TEST(a_nan_in_a_row_stays_in_the_row) {
    for (int m = 0; m < 3; m++) {
        mixture c = base_case(modes[m], DTYPE_Q8_0);
        fixture *f = fixture_open(&c, "auto", 2);
        float *clean = malloc(sizeof *clean * (size_t)(20 * c.d_out)),
              *got = malloc(sizeof *got * (size_t)(20 * c.d_out));
        run(f, 0, 20, clean);
        f->rows[5 * c.d_in + 9] = NAN;
        for (int32_t e = 0; e < c.n_experts; e++) {
            f->scores[11 * c.n_experts + e] = NAN;
        }
        run(f, 0, 20, got);
        for (int32_t row = 0; row < 20; row++) {
            if (row != 5 && row != 11) {
                expect_same(&c, got + row * c.d_out, clean, row, 1, "beside NaN");
            }
        }
        assert_true(isnan(got[5 * c.d_out]) && isnan(got[11 * c.d_out]));
        free(clean);
        free(got);
        fixture_close(f);
    }
}

/* Exact weights keep their numbers in every mode, and so do the rows that they read. */
TEST(an_exact_product_has_the_bits_of_f32_in_every_mode) {
    enum { OUT = 37, IN = 256 };
    static const dtype types[] = {DTYPE_F32, DTYPE_BF16, DTYPE_F16, DTYPE_Q8_0};
    for (size_t t = 0; t < sizeof types / sizeof types[0]; t++) {
        float expected[3 * OUT], got[3 * OUT], x[3 * IN];
        uint64_t seed = 40;
        uint8_t *source = random_weights(types[t], OUT * IN, &seed);
        for (int i = 0; i < 3 * IN; i++) {
            x[i] = random_float(&seed);
        }
        for (int i = 0; i < 6; i++) {
            const bool is_packed = i >= 3;
            backend *b = open_isa("auto", modes[i % 3], 2);
            tensor_view w = matrix_view(types[t], OUT, IN, source);
            linear *l = NULL, *again = NULL;
            quire_error err;
            assert_int_equal(b->ops->linear_load(b, &(linear_spec){.weight = &w, .exact = true}, &l, &err),
                             QUIRE_OK);
            w.stays = true;
            w.data = b->ops->linear_packed(l, &w.n_bytes, &w.packing);
            assert_int_equal(
                b->ops->linear_load(b, &(linear_spec){.weight = &w, .exact = true}, &again, &err), QUIRE_OK);
            buffer from = b->ops->buffer_reserve(b, IN), to = b->ops->buffer_reserve(b, OUT);
            assert_int_equal(
                b->ops->step_open(b, &(step_limits){.max_rows = 3, .max_seqs = 1}, NULL, 0, &err), QUIRE_OK);
            b->ops->step_begin(b, &(batch){.n_rows = 3});
            b->ops->buffer_write(b, from, 0, 3, x);
            b->ops->norm_linears(b, from, NULL, &(linear_use){is_packed ? again : l, to}, 1);
            b->ops->step_wait(b);
            b->ops->buffer_read(b, to, 0, 3, i == 0 ? expected : got);
            assert_true(i == 0 || memcmp(got, expected, sizeof got) == 0);
            b->ops->close(b);
        }
        free(source);
    }
}

TEST(experts_of_different_shapes_are_refused) {
    backend *b = open_isa("auto", COMPUTE_F32, 1);
    fixture f = {.b = b};
    linear *up = load(&f, DTYPE_F32, 48, 32, 1), *longer = load(&f, DTYPE_F32, 48, 33, 1),
           *down = load(&f, DTYPE_F32, 32, 48, 2);
    linear *ups[] = {up, up, longer}, *same[] = {up, up, up}, *downs[] = {down, down, down},
           *wrong[] = {down, down, up};
    const routing r = {.n_experts = 3, .n_used = 1};
    experts *w = NULL;
    quire_error err;
    assert_int_equal(
        b->ops->experts_load(b, &(experts_weights){.routing = &r, .gate = same, .up = ups, .down = downs}, &w,
                             &err),
        QUIRE_BAD_FILE);
    assert_non_null(strstr(err.message, "expert 2: its up weights are 48 x 33"));
    assert_int_equal(
        b->ops->experts_load(b, &(experts_weights){.routing = &r, .gate = downs, .up = same, .down = downs},
                             &w, &err),
        QUIRE_BAD_FILE);
    assert_non_null(strstr(err.message, "expert 0: its gate weights"));
    assert_int_equal(
        b->ops->experts_load(b, &(experts_weights){.routing = &r, .gate = same, .up = same, .down = wrong},
                             &w, &err),
        QUIRE_BAD_FILE);
    assert_non_null(strstr(err.message, "expert 2: its down weights"));
    assert_null(w);
    assert_int_equal(
        b->ops->experts_load(b, &(experts_weights){.routing = &r, .gate = same, .up = same, .down = downs},
                             &w, &err),
        QUIRE_OK);
    b->ops->close(b);
}

/* As in a packed model that is mapped. */
TEST(a_packed_mixture_is_read_where_it_lies) {
    for (int m = 0; m < 3; m++) {
        mixture c = base_case(modes[m], DTYPE_Q8_0);
        fixture *f = fixture_open(&c, "auto", 2), g = {.c = c, .r = f->r, .b = open_isa("auto", c.mode, 2)};
        const backend_ops *ops = g.b->ops;
        quire_error err;
        linear **from[] = {f->gates, f->ups, f->downs}, **to[] = {g.gates, g.ups, g.downs};
        for (int32_t i = 0; i < 3 * c.n_experts; i++) {
            tensor_view w = matrix_view(c.type, 256, 256, NULL);
            w.stays = true;
            w.data = ops->linear_packed(from[i % 3][i / 3], &w.n_bytes, &w.packing);
            assert_int_equal(ops->linear_load(g.b, &(linear_spec){.weight = &w}, &to[i % 3][i / 3], &err),
                             QUIRE_OK);
            assert_ptr_equal(ops->linear_packed(to[i % 3][i / 3], &w.n_bytes, &w.packing), w.data);
        }
        const experts_weights w = {.routing = &g.r, .gate = g.gates, .up = g.ups, .down = g.downs};
        assert_int_equal(ops->experts_load(g.b, &w, &g.w, &err), QUIRE_OK);
        g.c.has_norm = f->c.has_norm = false;
        g.x = ops->buffer_reserve(g.b, c.d_in);
        g.logits = ops->buffer_reserve(g.b, c.n_experts);
        assert_int_equal(ops->step_open(g.b, &(step_limits){.max_rows = 9, .max_seqs = 1}, NULL, 0, &err),
                         QUIRE_OK);
        g.rows = f->rows;
        g.scores = f->scores;
        float expected[9 * 256], got[9 * 256];
        run(f, 0, 9, expected);
        run(&g, 0, 9, got);
        expect_same(&c, got, expected, 0, 9, "packed");
        ops->close(g.b);
        fixture_close(f);
    }
}

TEST(a_trace_counts_the_experts_that_have_rows) {
    mixture c = base_case(COMPUTE_INT8, DTYPE_Q8_0);
    c.n_experts = 16;
    c.n_used = 1;
    c.spread = ALL_TO_ONE;
    fixture *f = fixture_open(&c, "auto", 2);
    float *out = malloc(sizeof *out * (size_t)(MAX_ROWS * c.d_out));
    op_time ops[2];
    op_trace trace = {.ops = ops, .cap = 2};
    size_t bytes = 0, n;
    uint32_t packing;
    for (int i = 0; i < 3; i++) {
        (void)f->b->ops->linear_packed((i == 0 ? f->gates : i == 1 ? f->ups : f->downs)[0], &n, &packing);
        bytes += n - 64; /* what they are packed as, which no product reads */
    }
    f->b->ops->trace(f->b, &trace);
    run(f, 0, 10, out);
    f->b->ops->trace(f->b, NULL);
    assert_int_equal(trace.n, 2);
    assert_int_equal(ops[0].kind, OP_ROUTE);
    assert_int_equal(ops[1].kind, OP_EXPERTS);
    assert_int_equal(ops[1].bytes, bytes);
    assert_int_equal(ops[1].operations, 10 * 2 * 3 * 256 * 256);
    free(out);
    fixture_close(f);
}

TEST_MAIN(NULL, NULL)
