#include <math.h>
#include <string.h>

#include "core/half.h"
#include "core/quant_matrix.h"
#include "test.h"

TEST(every_e4m3_comes_back_and_others_go_to_the_nearest) {
    for (int b = 0; b < 0x7f; b++) {
        float value = e4m3_to_f32((uint8_t)b), next = e4m3_to_f32((uint8_t)(b + 1)),
              middle = (value + next) / 2;
        assert_int_equal(f32_to_e4m3(value), b);
        assert_int_equal(f32_to_e4m3(-value), b | 0x80);
        if (b < 0x7e) {
            assert_int_equal(f32_to_e4m3(middle), b + b % 2); /* ties to the even code */
            assert_int_equal(f32_to_e4m3(nextafterf(middle, 0)), b);
            assert_int_equal(f32_to_e4m3(nextafterf(middle, 1000)), b + 1);
        }
    }
    assert_int_equal(f32_to_e4m3(1e30f), 0x7e);
    assert_int_equal(f32_to_e4m3(-INFINITY), 0xfe);
    assert_int_equal(f32_to_e4m3(NAN) & 0x7f, 0x7f);
}

static void check(row_rounding r, const float *x, const float *want, int n) {
    float got[64];
    memcpy(got, x, (size_t)n * sizeof *x);
    row_round(&r, got, n);
    for (int i = 0; i < n; i++) {
        assert_true(got[i] == want[i] && signbit(got[i]) == signbit(want[i]));
    }
}

TEST(rows_are_rounded_by_each_kind_of_scale) {
    const float ties[] = {0.25f, 0.75f, 1.25f, 1.75f, 2.5f, 3.5f, 5.0f, -5.0f, 100.0f},
                even[] = {0, 1, 1, 2, 2, 4, 4, -4, 6};
    check((row_rounding){.to = ROUND_E2M1, .scale = ROUND_FIXED, .fixed = 1}, ties, even, 9);
    /* 20.6 becomes 20, and 2000 the largest */
    const float fixed[] = {10.3f, 1000.0f, -0.0f}, fixed_want[] = {10.0f, 224.0f, -0.0f};
    check((row_rounding){.to = ROUND_E4M3, .scale = ROUND_FIXED, .fixed = 0.5f}, fixed, fixed_want, 3);
    const float row[] = {448, 17, 1, 0.0f, 672, 17, -3, 0.0f},
                row_want[] = {448, 16, 1, 0.0f, 672, 16.5f, -3, 0.0f};
    check((row_rounding){.to = ROUND_E4M3, .scale = ROUND_LARGEST, .group = 4}, row, row_want,
          8); /* 17 is a tie of the first group, no number of the other */
    /* exponents: of 1.5 * 4 it is 2, of 1.75 * 4 the next one, 3; minus 2 */
    const float power[] = {6, 0.3f, 7, 0.3f}, power_want[] = {6, 0.5f, 8, 0.0f};
    check((row_rounding){.to = ROUND_E2M1, .scale = ROUND_POWER, .group = 2}, power, power_want, 4);
    /* 12 / 6 / 0.5 = 4 is an E4M3 number; of a group whose scale would be 0 the least one
     * is taken */
    const float scaled[] = {12, 1, 1e-9f, 0}, scaled_want[] = {12, 1, 0, 0};
    check((row_rounding){.to = ROUND_E2M1, .scale = ROUND_SCALED, .group = 2, .fixed = 0.5f, .least = 0.125f},
          scaled, scaled_want, 4);
    const float none[] = {1.2345f}, zeros[] = {0, 0};
    check((row_rounding){.to = ROUND_NOTHING}, none, none, 1);
    check((row_rounding){.to = ROUND_E2M1, .scale = ROUND_POWER}, zeros, zeros, 2);
}

TEST(what_is_not_finite_makes_its_group_nan) {
    float x[] = {1, INFINITY, 2, 4, NAN, 1};
    const row_rounding r = {.to = ROUND_E4M3, .scale = ROUND_LARGEST, .group = 2};
    row_round(&r, x, 6);
    assert_true(isnan(x[0]) && isnan(x[1]) && x[2] == 2 && x[3] == 4 && isnan(x[4]) && isnan(x[5]));
}

TEST_MAIN(NULL, NULL)
