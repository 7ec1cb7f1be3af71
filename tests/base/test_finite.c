/* Which arrays count as finite. */
#include <float.h>
#include <math.h>

#include "base/float_bits.h"
#include "test.h"

enum { N = 11 }; /* more than whole groups */

TEST(one_bad_value_is_found_wherever_it_is) {
    static const float bad[] = {NAN, -NAN, INFINITY, -INFINITY},
                       good[] = {0.0f, 3.4028235e38f, -3.4028235e38f, 1e-45f};
    for (int32_t n = 0; n <= N; n++) {
        float v[N];
        for (int32_t i = 0; i < N; i++) {
            v[i] = good[i % 4];
        }
        assert_true(finite_from(v, n, -FLT_MAX) && finite_from(v, n, -INFINITY));
        for (int32_t at = 0; at < n; at++) {
            for (int kind = 0; kind < 4; kind++) {
                v[at] = bad[kind];
                assert_false(finite_from(v, n, -FLT_MAX));
                assert_int_equal(finite_from(v, n, -INFINITY), kind == 3); /* -inf masks a token */
            }
            v[at] = good[at % 4];
        }
    }
}

TEST_MAIN(NULL, NULL)
