/* Adapters in ops. A row has the same bits alone or in a batch; a row without an adapter
 * has those of a backend without adapters; adapted rows have the values of merged
 * weights. */
#include <math.h>

#include "backend/adapter_case.h"

static const compute_mode modes[] = {COMPUTE_F32, COMPUTE_BF16, COMPUTE_INT8, COMPUTE_FP8};

typedef struct rows_case {
    int32_t tokens[CASE_ROWS];
    int16_t adapters[CASE_ROWS];
} rows_case;

static rows_case random_rows(uint64_t seed) {
    rows_case r;
    for (int i = 0; i < CASE_ROWS; i++) {
        r.tokens[i] = (int32_t)(rng_next(&seed) % V);
        r.adapters[i] = (int16_t)((int)(rng_next(&seed) % (CASE_ADAPTERS + 2)) - 1);
        r.adapters[i] = r.adapters[i] == CASE_ADAPTERS ? -1 : r.adapters[i];
    }
    for (int i = 20; i < 45; i++) { /* some of a prompt */
        r.adapters[i] = 2;
    }
    return r;
}

static bool same_row(const row_result *a, const row_result *b, bool with_logits) {
    return memcmp(a, b, with_logits ? sizeof *a : offsetof(row_result, logits)) == 0;
}

/* Each row alone, its adapter the only one of the batch. */
static void run_alone(model_case *m, const rows_case *r, adapter *const *all, row_result *out) {
    for (int i = 0; i < CASE_ROWS; i++) {
        const int16_t first = 0, none = -1;
        const bool is_base = r->adapters[i] < 0;
        case_run(m, &r->tokens[i], is_base ? &none : &first, is_base ? all : &all[r->adapters[i]],
                 is_base ? 0 : 1, 1, &out[i]);
    }
}

static void check_batches(model_case *m, const rows_case *r, adapter *const *all, const row_result *alone) {
    static const int32_t sizes[] = {1, 2, 3, 7, 8, 19, 33, CASE_ROWS};
    row_result *got = malloc(sizeof *got * CASE_ROWS);
    for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; s++) {
        const int32_t n = sizes[s];
        for (int32_t row0 = 0; row0 + n <= CASE_ROWS; row0 += n) {
            case_run(m, r->tokens + row0, r->adapters + row0, all, CASE_ADAPTERS, n, got);
            for (int32_t i = 0; i < n; i++) {
                if (!same_row(&got[i], &alone[row0 + i], i >= n - CASE_OUT)) {
                    fail_msg("row %d with adapter %d has other bits in a batch of %d from row %d on",
                             row0 + i, r->adapters[row0 + i], n, row0);
                }
            }
        }
    }
    free(got);
}

static void check_mode(const case_options *o, const char *const *isas, int n_isas) {
    const rows_case r = random_rows(7);
    adapter_case *cases[CASE_ADAPTERS];
    adapter *all[CASE_ADAPTERS];
    row_result *alone = malloc(sizeof *alone * CASE_ROWS), *base = malloc(sizeof *base * CASE_ROWS);
    case_options without = *o;
    without.max_adapters = 0;
    for (int i = 0; i < CASE_ADAPTERS; i++) {
        cases[i] = adapter_case_new(1000 + (uint64_t)i);
    }
    for (int isa = 0; isa < n_isas; isa++) {
        case_options these = *o;
        these.isa = without.isa = isas[isa];
        model_case m = case_open(&these), plain = case_open(&without);
        if (m.b == NULL) {
            continue;
        }
        for (int i = 0; i < CASE_ADAPTERS; i++) {
            all[i] = case_adapter(&m, cases[i]);
        }
        run_alone(&m, &r, all, alone);
        check_batches(&m, &r, all, alone);
        case_run(&plain, r.tokens, NULL, NULL, 0, CASE_ROWS, base);
        for (int i = 0; i < CASE_ROWS; i++) {
            if (r.adapters[i] < 0 && !same_row(&base[i], &alone[i], i >= CASE_ROWS - CASE_OUT)) {
                fail_msg("%s: row %d of the base has other bits than without adapters", these.isa, i);
            }
            assert_true(r.adapters[i] < 0 || !same_row(&base[i], &alone[i], false));
        }
        for (int i = 0; i < CASE_ADAPTERS; i++) {
            m.b->ops->adapter_free(m.b, all[i]);
        }
        case_close(&m);
        case_close(&plain);
    }
    for (int i = 0; i < CASE_ADAPTERS; i++) {
        adapter_case_free(cases[i]);
    }
    free(alone);
    free(base);
}

TEST(a_row_depends_on_itself_and_its_adapter_alone) {
    static const char *const isas[] = {"auto", "avx2"};
    for (int mixed = 0; mixed < 2; mixed++) {
        for (size_t i = 0; i < sizeof modes / sizeof modes[0]; i++) {
            for (int32_t threads = 1; threads <= 3; threads += 2) {
                check_mode(&(case_options){.mode = modes[i],
                                           .n_threads = threads,
                                           .max_adapters = CASE_ADAPTERS,
                                           .mixed = mixed},
                           isas, 2);
            }
        }
    }
}

TEST(instruction_sets_have_the_bits_of_the_plain_twin) {
    static const compute_mode exact[] = {COMPUTE_F32, COMPUTE_INT8};
    const rows_case r = random_rows(8);
    adapter_case *c = adapter_case_new(77);
    const int16_t with[] = {0, 0, 0, 0, 0, 0, 0, 0, 0};
    for (int i = 0; i < 2; i++) {
        row_result expected[9], got[9];
        for (int isa = 0; isa < N_ISAS; isa++) {
            model_case m = case_open(&(case_options){
                .mode = exact[i], .isa = isa_names[isa], .n_threads = 2, .max_adapters = 1, .mixed = true});
            if (m.b == NULL) {
                continue;
            }
            adapter *a = case_adapter(&m, c);
            case_run(&m, r.tokens, with, &a, 1, 9, isa == 0 ? expected : got);
            for (int row = 0; row < 9 && isa > 0; row++) {
                if (!same_row(&got[row], &expected[row], true)) {
                    fail_msg("%s: row %d has other bits than plain C", isa_names[isa], row);
                }
            }
            m.b->ops->adapter_free(m.b, a);
            case_close(&m);
        }
    }
    adapter_case_free(c);
}

static void expect_near(const float *got, const float *expected, int32_t n, const char *what, int row) {
    double largest = 1e-3;
    for (int32_t i = 0; i < n; i++) {
        largest = fmax(largest, fabs((double)expected[i]));
    }
    for (int32_t i = 0; i < n; i++) {
        if (!(fabs((double)got[i] - (double)expected[i]) <= 1e-4 * largest)) {
            fail_msg("%s of row %d: element %d is %g, of merged weights %g", what, row, i, (double)got[i],
                     (double)expected[i]);
        }
    }
}

TEST(an_adapted_row_is_that_of_merged_weights) {
    const rows_case r = random_rows(9);
    for (uint64_t seed = 1; seed <= 6; seed++) {
        adapter_case *c = adapter_case_new(seed);
        int16_t with[20] = {0};
        row_result expected[20], got[20];
        model_case m = case_open(&(case_options){
                       .mode = COMPUTE_F32, .isa = "auto", .n_threads = 2, .max_adapters = 1}),
                   merged = case_open(
                       &(case_options){.mode = COMPUTE_F32, .isa = "auto", .n_threads = 2, .merged = c});
        adapter *a = case_adapter(&m, c);
        case_run(&m, r.tokens, with, &a, 1, 20, got);
        case_run(&merged, r.tokens, NULL, NULL, 0, 20, expected);
        for (int row = 0; row < 20; row++) {
            expect_near(got[row].q, expected[row].q, HEADS * (HEAD_IN + KEPT), "q", row);
            expect_near(got[row].k, expected[row].k, 77, "k", row);
            expect_near(got[row].router, expected[row].router, N_X, "the router's logits", row);
            expect_near(got[row].out, expected[row].out, HEADS * (HEAD_OUT + KEPT), "heads", row);
            expect_near(got[row].y, expected[row].y, D, "experts", row);
            expect_near(got[row].x, expected[row].x, D, "x", row);
            expect_near(got[row].logits, expected[row].logits, V, "logits", row);
        }
        m.b->ops->adapter_free(m.b, a);
        case_close(&m);
        case_close(&merged);
        adapter_case_free(c);
    }
}

/* ---- the kernels ---- */

static void check_kernels(const char *isa, dtype a_type, int32_t n_in, int32_t n_out, int32_t rank,
                          int32_t n_rows) {
    backend *b = open_isa(isa, COMPUTE_F32, 1);
    if (b == NULL) {
        return;
    }
    const math_kernels *math = ((const cpu_backend *)b)->math;
    const int32_t n_pad = (n_in + 15) / 16 * 16, n_blocks = (n_out + 15) / 16, y_stride = n_blocks * 16;
    const size_t a_n = (size_t)(rank + 3) / 4 * 4 * (size_t)n_pad, b_n = (size_t)n_blocks * (size_t)rank * 16;
    uint64_t seed = (uint64_t)(n_in * 1000 + rank);
    uint8_t *a = random_weights(a_type, a_n, &seed), *to = random_weights(a_type, b_n, &seed);
    float *h = random_floats((size_t)n_rows * (size_t)n_in, 1.0f, &seed);
    float *y = random_floats((size_t)n_rows * (size_t)y_stride, 1.0f, &seed),
          *expected_y = malloc(sizeof *y * (size_t)(n_rows * y_stride));
    float *t = malloc(sizeof *t * (size_t)(n_rows * rank)),
          *expected_t = malloc(sizeof *t * (size_t)(n_rows * rank));
    const float *hs[ADAPTER_ROWS];
    float *ts[ADAPTER_ROWS], *expected_ts[ADAPTER_ROWS];
    for (int32_t i = 0; i < n_rows; i++) {
        hs[i] = h + i * n_in;
        ts[i] = t + i * rank;
        expected_ts[i] = expected_t + i * rank;
    }
    h[n_in / 2] = INFINITY; /* of row 0 alone */
    memcpy(expected_y, y, sizeof *y * (size_t)(n_rows * y_stride));
    math->shrink(a_type, a, n_rows % 2 == 0 ? a : NULL, n_in, rank, hs, n_rows, ts);
    math_plain.shrink(a_type, a, NULL, n_in, rank, hs, n_rows, expected_ts);
    math->expand(a_type, to, n_rows % 2 == 0 ? to : NULL, rank, n_blocks, 0.7f, t, rank, n_rows, y, y_stride);
    math_plain.expand(a_type, to, NULL, rank, n_blocks, 0.7f, expected_t, rank, n_rows, expected_y, y_stride);
    for (int32_t i = 0; i < n_rows * rank; i++) {
        if (memcmp(&t[i], &expected_t[i], sizeof *t) != 0 && !(isnan(t[i]) && isnan(expected_t[i]))) {
            fail_msg("%s: t %d of %d rows, %d inputs, rank %d: %a, not %a", isa, i, n_rows, n_in, rank,
                     (double)t[i], (double)expected_t[i]);
        }
        assert_true(i < rank || isfinite(t[i]));
    }
    for (int32_t i = 0; i < n_rows * y_stride; i++) {
        if (memcmp(&y[i], &expected_y[i], sizeof *y) != 0 && !(isnan(y[i]) && isnan(expected_y[i]))) {
            fail_msg("%s: y %d of %d rows, %d outputs, rank %d: %a, not %a", isa, i, n_rows, n_out, rank,
                     (double)y[i], (double)expected_y[i]);
        }
    }
    free(a);
    free(to);
    free(h);
    free(y);
    free(expected_y);
    free(t);
    free(expected_t);
    b->ops->close(b);
}

TEST(kernels_have_the_bits_of_their_plain_twins) {
    static const dtype types[] = {DTYPE_F32, DTYPE_F16, DTYPE_BF16};
    static const int32_t ranks[] = {1, 2, 3, 4, 5, 8, 15, 16, 17, 64, 256},
                         widths[] = {1, 15, 16, 17, 64, 333};
    for (int isa = 1; isa < N_ISAS; isa++) {
        for (int t = 0; t < 3; t++) {
            for (size_t r = 0; r < sizeof ranks / sizeof ranks[0]; r++) {
                for (size_t w = 0; w < sizeof widths / sizeof widths[0]; w++) {
                    const int32_t n_rows = (int32_t)(1 + (r * 7 + w * 3) % ADAPTER_ROWS);
                    check_kernels(isa_names[isa], types[t], widths[w], widths[5 - w], ranks[r], n_rows);
                }
            }
        }
    }
}

TEST_MAIN(NULL, NULL)
