/* Conversion of weights to packed formats keeps their values and codes exactly. */
#include <math.h>
#include <string.h>

#include "backend/cpu/pack_matrix.h"
#include "base/mem.h"
#include "base/rng.h"
#include "core/half.h"
#include "test.h"

enum { ROWS = 8, INPUTS = 320, MOST_GROUPS = INPUTS / 16 };

static const float e2m1[16] = {0.0f,  0.5f,  1.0f,  1.5f,  2.0f,  3.0f,  4.0f,  6.0f,
                               -0.0f, -0.5f, -1.0f, -1.5f, -2.0f, -3.0f, -4.0f, -6.0f};

typedef struct matrix {
    quant_matrix m;
    uint8_t codes[ROWS * INPUTS];
    float scales[ROWS * MOST_GROUPS];
    int16_t zeros[ROWS * MOST_GROUPS];
} matrix;

/* Codes as bytes, whatever their bits; scales are set by the caller. */
static void fill(matrix *x, uint64_t *r, code_kind kind, int bits, int32_t group, bool has_zeros) {
    x->m = (quant_matrix){.place = CODES_BYTES,
                          .kind = kind,
                          .bits = bits,
                          .codes = x->codes,
                          .n_rows = ROWS,
                          .n_in = INPUTS,
                          .table = e2m1};
    x->m.scales = x->scales;
    x->m.zeros = has_zeros ? x->zeros : NULL;
    x->m.zero = 1 << (bits - 1);
    x->m.scale_rows = 1;
    x->m.group = group;
    x->m.n_groups = INPUTS / group;
    x->m.factor = 1.0f;
    x->m.block = x->m.step = ROWS;
    for (int i = 0; i < ROWS * INPUTS; i++) {
        x->codes[i] = (uint8_t)(rng_next(r) & ((1u << bits) - 1));
    }
    for (int i = 0; i < ROWS * MOST_GROUPS; i++) {
        x->zeros[i] = (int16_t)(rng_next(r) & ((1u << bits) - 1));
        x->scales[i] = (float)(rng_next(r) % 2048) * 0x1p-18f * (rng_next(r) % 2 ? 1.0f : -1.0f); /* halves */
    }
}

/* All values by the rule, times the factor, are those of the matrix, up to the rounding
 * of one product where the factor is no power of two. */
static void expect_same_values(const matrix *x, bool exact) {
    matrix_plan plan;
    assert_true(pack_matrix_plan(&x->m, ROWS, INPUTS, &plan));
    for (int32_t row = 0; row < ROWS; row++) {
        for (int32_t k = 0; k < INPUTS; k += QUANT_SUPER) {
            int32_t n = INPUTS - k < QUANT_SUPER ? INPUTS - k : QUANT_SUPER;
            float got[QUANT_SUPER], want[QUANT_SUPER];
            quant_codes codes;
            memset(&codes, 0, sizeof codes);
            pack_matrix_read(&(matrix_reader){.plan = &plan}, row, k, n, &codes);
            quant_values(&plan.rule, &codes, (size_t)n, got);
            quant_matrix_read(&x->m, row, k, n, want);
            for (int32_t i = 0; i < n; i++) {
                float value = got[i] * plan.factor;
                assert_true(exact ? value == want[i] : fabsf(value - want[i]) <= fabsf(want[i]) * 0x1p-22f);
            }
        }
    }
}

TEST(integers_keep_their_values_in_every_form) {
    static const int widths[] = {2, 3, 4, 8};
    static const int32_t groups[] = {32, 64, 160, INPUTS}; /* 5 groups of 32 share one, and all */
    static matrix x;
    uint64_t r = 7;
    for (size_t w = 0; w < 4; w++) {
        for (size_t g = 0; g < 4; g++) {
            for (int zeros = 0; zeros < 2; zeros++) {
                fill(&x, &r, CODE_INTEGER, widths[w], groups[g], zeros);
                expect_same_values(&x, true);
                for (int i = 0; i < ROWS * MOST_GROUPS && zeros; i++) {
                    x.zeros[i]++; /* as GPTQ's: from 1 on, to one more than the bits hold */
                }
                expect_same_values(&x, true);
                for (int i = 0; i < ROWS * MOST_GROUPS; i++) {
                    x.scales[i] *= 0x1p-20f; /* no halves, but a power of two away from them */
                }
                x.m.factor = 0.75f;
                expect_same_values(&x, false);
            }
        }
    }
}

TEST(floats_of_4_bits_keep_their_values) {
    static matrix x;
    uint64_t r = 8;
    fill(&x, &r, CODE_TABLE, 4, 32, false);
    for (int i = 0; i < ROWS * MOST_GROUPS; i++) {
        x.scales[i] = e8m0_to_f32((uint8_t)(60 + rng_next(&r) % 130));
    }
    expect_same_values(&x, true);
    fill(&x, &r, CODE_TABLE, 4, 16, false);
    for (int i = 0; i < ROWS * MOST_GROUPS; i++) {
        x.scales[i] = e4m3_to_f32((uint8_t)(rng_next(&r) % 127));
    }
    x.m.factor = 0.0123f;
    expect_same_values(&x, false);
}

/* A scaled kind's codes and scales are those of the matrix, and so are their values. */
static void expect_scaled(const matrix *x, pack_kind kind) {
    matrix_plan plan;
    pack_layout layout;
    assert_true(pack_matrix_plan(&x->m, ROWS, INPUTS, &plan));
    assert_int_equal(plan.kind, kind);
    assert_int_equal(pack_plan(kind, &plan.rule, ROWS, INPUTS, &layout), QUIRE_OK);
    const scaled_source s = pack_matrix_source(&plan);
    for (int32_t row = 0; row < ROWS; row++) {
        for (int32_t k = 0; k < INPUTS; k++) {
            uint8_t code;
            float want;
            s.codes(s.context, row, k, 1, &code);
            quant_matrix_read(&x->m, row, k, 1, &want);
            const float number = x->m.kind == CODE_E4M3 ? e4m3_to_f32(code) : s.table[code];
            const float scale = s.scale(s.context, row, k - k % pack_stretch(&layout));
            const float value = number * (scale * plan.factor);
            assert_true(value == want || (isnan(value) && isnan(want)));
        }
    }
}

TEST(floats_with_scales_keep_their_codes) {
    static const int32_t groups[] = {32, 64, INPUTS, 40, 160};
    static matrix x;
    uint64_t r = 10;
    for (size_t g = 0; g < sizeof groups / sizeof groups[0]; g++) {
        fill(&x, &r, CODE_E4M3, 8, groups[g], false);
        x.m.factor = 0.75f;
        expect_scaled(&x, PACK_E4M3);
        x.m.scale_rows = ROWS; /* the scales of a block for all its rows */
        expect_scaled(&x, PACK_E4M3_TILE);
        x.m.scale_rows = 3;
        expect_scaled(&x, PACK_E4M3);
        x.m.scale_rows = 1;
        x.m.first = ROWS - 1; /* rows from the last to the first */
        x.m.block = 1;
        x.m.step = -1;
        expect_scaled(&x, PACK_E4M3);
        for (int i = 0; i < ROWS * MOST_GROUPS; i++) {
            x.scales[i] = e8m0_to_f32((uint8_t)(rng_next(&r) % 240));
        }
        expect_scaled(&x, PACK_E4M3_E8M0);
        fill(&x, &r, CODE_TABLE, 4, groups[g], false);
        expect_scaled(&x, PACK_T4_FLOAT);
        x.m.runs_on = true;
        x.m.n_groups = 0;
        expect_scaled(&x, PACK_T4_FLOAT);
    }
}

/* Blocks of 64 that run on, and their scales in codes: kept where a stretch is one
 * block. */
TEST(scales_that_are_quantised_keep_their_codes) {
    static matrix x;
    static uint8_t codes[ROWS * INPUTS / 64];
    static float table[256], outer[1] = {0.037f};
    const nested_scales nested = {codes, table, outer, 0.043f};
    uint64_t r = 12;
    fill(&x, &r, CODE_TABLE, 4, 64, false);
    for (int i = 0; i < 256; i++) {
        table[i] = (float)i / 255.0f;
    }
    for (int i = 0; i < ROWS * INPUTS / 64; i++) {
        codes[i] = (uint8_t)rng_next(&r);
        x.scales[i] = table[codes[i]] * outer[0] + nested.offset;
    }
    x.m.runs_on = true;
    x.m.nested = &nested;
    expect_scaled(&x, PACK_T4_NESTED);
    matrix_plan plan;
    assert_true(pack_matrix_plan(&x.m, ROWS, INPUTS, &plan));
    const scaled_source s = pack_matrix_source(&plan);
    assert_ptr_equal(s.nested, &nested);
    assert_int_equal(s.first(s.context, 3), 3 * INPUTS / 64);
}

static void expect_none(const matrix *x) {
    matrix_plan plan;
    assert_false(pack_matrix_plan(&x->m, ROWS, INPUTS, &plan));
}

/* Inputs in random groups of one size: at each place lies the input that the order says,
 * with its own scale and zero. */
TEST(groups_in_another_order_are_put_side_by_side) {
    static matrix x;
    int32_t group_of[INPUTS];
    uint64_t r = 11;
    for (int round = 0; round < 6; round++) {
        const int32_t group = round % 2 == 0 ? 32 : 64;
        matrix_plan plan;
        fill(&x, &r, CODE_INTEGER, round < 3 ? 4 : 8, group, round % 3 != 0);
        for (int32_t i = 0; i < INPUTS; i++) {
            group_of[i] = i / group;
        }
        for (int32_t i = INPUTS - 1; i > 0; i--) {
            const int32_t j = (int32_t)(rng_next(&r) % (uint64_t)(i + 1)), other = group_of[j];
            group_of[j] = group_of[i];
            group_of[i] = other;
        }
        x.m.group_of = group_of;
        assert_true(pack_matrix_plan(&x.m, ROWS, INPUTS, &plan));
        static uint8_t room[ROWS * INPUTS];
        matrix_reader reader = {.plan = &plan, .codes = room};
        pack_matrix_rows(&reader, 0, ROWS);
        bool seen[INPUTS] = {false};
        for (int32_t k = 0; k < INPUTS; k++) {
            float got[QUANT_SUPER], want;
            quant_codes codes;
            const int32_t from = k / 32 * 32, input = plan.order[k];
            assert_false(seen[input]);
            seen[input] = true;
            for (int32_t row = 0; row < ROWS; row++) {
                memset(&codes, 0, sizeof codes);
                pack_matrix_read(&reader, row, from, 32, &codes);
                quant_values(&plan.rule, &codes, 32, got);
                quant_matrix_read(&x.m, row, input, 1, &want);
                assert_true(got[k - from] * plan.factor == want);
            }
        }
        mem_free(plan.order);
        group_of[0] = (group_of[0] + 1) % (INPUTS / group); /* one group has more than the others */
        expect_none(&x);
    }
}

TEST(weights_that_no_form_holds_exactly_have_none) {
    static matrix x;
    static const int32_t order[INPUTS];
    uint64_t r = 9;
    fill(&x, &r, CODE_INTEGER, 4, 32, false);
    x.m.zero = 7;
    expect_none(&x);
    fill(&x, &r, CODE_INTEGER, 4, 32, true);
    x.zeros[7] = 0;
    x.zeros[ROWS * INPUTS / 32 - 1] = 16; /* GPTQ's 15 plus 1, beside what GPTQ has not */
    expect_none(&x);
    fill(&x, &r, CODE_INTEGER, 4, 32, true);
    x.zeros[7] = 17;
    expect_none(&x);
    x.zeros[7] = -1;
    expect_none(&x);
    fill(&x, &r, CODE_INTEGER, 4, 32, false);
    x.m.group_of = order;
    expect_none(&x);
    fill(&x, &r, CODE_INTEGER, 4, 16, false);
    expect_none(&x);
    fill(&x, &r, CODE_INTEGER, 4, 32, false);
    x.scales[3] = 1.0f + 0x1p-20f; /* more bits than a half */
    expect_none(&x);
    x.scales[3] = NAN;
    expect_none(&x);
    x.scales[3] = 0x1p-20f;
    x.scales[4] = 0x1p20f; /* no power of two makes halves of both: the first becomes 0 */
    x.scales[5] = 0x1.8p-22f;
    expect_none(&x);
    /* scales that are no E4M3: the form whose scales are floats has them */
    fill(&x, &r, CODE_TABLE, 4, 16, false);
    x.scales[0] = 3.1f;
    expect_scaled(&x, PACK_T4_FLOAT);
    fill(&x, &r, CODE_E4M3, 8, 32, false);
    x.m.group = 33; /* odd */
    expect_none(&x);
    fill(&x, &r, CODE_E4M3, 8, 64, false);
    x.m.group_of = order;
    expect_none(&x);
    fill(&x, &r, CODE_E4M3, 8, 64, false);
    x.scales[7] = 0x1p122f; /* 256 times it is infinite */
    expect_none(&x);
    x.scales[7] = INFINITY;
    expect_scaled(&x, PACK_E4M3);
    fill(&x, &r, CODE_TABLE, 4, 64, false); /* groups that run on, over a part of the inputs */
    x.m.runs_on = true;
    x.m.n_in = INPUTS + 64;
    expect_none(&x);
}

TEST_MAIN(NULL, NULL)
