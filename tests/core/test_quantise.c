/* Quantisers without a reference for their bits: how near blocks are to the elements. */

#include <math.h>

#include "base/rng.h"
#include "core/quant.h"
#include "core/quantise.h"
#include "test.h"

#define N      256
#define N_ROWS 400

typedef struct quantiser {
    dtype type;
    int group, codes; /* elements that have a scale, and how many different codes there are */
    bool has_min;
    double bound; /* root mean square error of normally distributed elements, a unit their own */
} quantiser;

static const quantiser all[] = {{DTYPE_Q4_K, 32, 16, true, 0.073},
                                {DTYPE_Q5_K, 32, 32, true, 0.036},
                                {DTYPE_Q6_K, 16, 64, false, 0.0179},
                                {DTYPE_IQ4_NL, 32, 16, false, 0.077},
                                {DTYPE_IQ4_XS, 32, 16, false, 0.078}};

#define N_ALL (sizeof all / sizeof *all)

static float uniform(uint64_t *s) {
    return (float)(rng_next(s) >> 40) * 0x1p-24f;
}

/* Twelve uniform numbers less their mean: close to a normal one. */
static float normal(uint64_t *s) {
    float sum = -6.0f;
    for (int i = 0; i < 12; i++) {
        sum += uniform(s);
    }
    return sum;
}

static double square_error(dtype t, const float *x) {
    uint8_t block[288];
    float back[N];
    double sum = 0.0;
    assert_int_equal(quant_quantise(t, x, N, block), QUIRE_OK);
    assert_int_equal(quant_dequantise(t, block, N, back), QUIRE_OK);
    for (int i = 0; i < N; i++) {
        sum += ((double)back[i] - (double)x[i]) * ((double)back[i] - (double)x[i]);
    }
    return sum;
}

/* The error of the plain way with exact scales: equal steps from the least to the
 * greatest element of a group, or over twice the largest magnitude where there is no
 * min. */
static double plain_error(const quantiser *q, const float *x) {
    double sum = 0.0;
    for (int at = 0; at < N; at += q->group) {
        double least = 0.0, greatest = 0.0;
        for (int i = at; i < at + q->group; i++) {
            least = fmin(least, (double)x[i]);
            greatest = fmax(greatest, (double)x[i]);
        }
        if (!q->has_min) {
            greatest = fmax(greatest, -least);
            least = -greatest;
        }
        const double step = (greatest - least) / (q->codes - 1);
        for (int i = at; i < at + q->group && step > 0.0; i++) {
            const double error = least + round(((double)x[i] - least) / step) * step - (double)x[i];
            sum += error * error;
        }
    }
    return sum;
}

TEST(random_rows_are_nearer_than_by_plain_rounding_and_within_bounds) {
    for (size_t t = 0; t < N_ALL; t++) {
        uint64_t s = 44;
        double error = 0.0, plain = 0.0, squares = 0.0;
        for (int row = 0; row < N_ROWS; row++) {
            float x[N];
            const float unit = ldexpf(0.02f, (int)(rng_next(&s) % 5) - 2);
            for (int i = 0; i < N; i++) {
                x[i] = unit * normal(&s);
                squares += (double)x[i] * (double)x[i];
            }
            error += square_error(all[t].type, x);
            plain += plain_error(&all[t], x);
        }
        const double root = sqrt(error / squares);
        print_message("%s: root mean square error %.4f, %.4f by plain rounding (seed 44)\n",
                      dtype_name(all[t].type), root, sqrt(plain / squares));
        assert_true(error < plain);
        assert_true(root < all[t].bound);
    }
}

/* Each shape of row leaves at most this share of its squares. */
static void check_odd(const float *x, const char *what, double most) {
    double squares = 0.0;
    for (int i = 0; i < N; i++) {
        squares += (double)x[i] * (double)x[i];
    }
    for (size_t t = 0; t < N_ALL; t++) {
        const double error = square_error(all[t].type, x);
        if (!(error <= most * squares)) {
            fail_msg("%s: %s: square error %g of %g", dtype_name(all[t].type), what, error, squares);
        }
    }
}

TEST(odd_rows_keep_what_matters) {
    float x[N] = {0};
    uint64_t s = 7;
    check_odd(x, "zeros", 0.0);
    x[77] = -3.0f;
    check_odd(x, "one outlier among zeros", 3e-3); /* the table of IQ4 has no 0 */
    for (int i = 0; i < N; i++) {
        x[i] = 0.01f * normal(&s);
    }
    x[200] = 5.0f;
    check_odd(x, "one outlier", 3e-3);
    for (int i = 0; i < N; i++) {
        x[i] = -0.25f;
    }
    check_odd(x, "equal elements below 0", 1e-3);
    for (int i = 0; i < N; i++) {
        x[i] = 0.125f;
    }
    check_odd(x, "equal elements over 0", 1e-3);
    for (int i = 0; i < N; i++) {
        x[i] = i % 2 ? QUANTISE_LARGEST : -QUANTISE_LARGEST;
    }
    check_odd(x, "the largest elements of both signs", 0.02);
    for (int i = 0; i < N; i++) {
        x[i] = 3.0f + 0.01f * normal(&s);
    }
    check_odd(x, "elements far from 0", 0.006);
    for (int i = 0; i < N; i++) {
        x[i] = i < 32 ? normal(&s) : 0.0f;
    }
    check_odd(x, "one group", 0.01);
}

TEST(a_row_has_the_same_bits_alone_and_among_others) {
    float x[4 * N];
    uint8_t together[4 * 288], alone[288];
    uint64_t s = 9;
    for (int i = 0; i < 4 * N; i++) {
        x[i] = normal(&s);
    }
    for (size_t t = 0; t < N_ALL; t++) {
        const size_t bytes =
            (size_t)(N / dtype_block_elements(all[t].type)) * (size_t)dtype_block_bytes(all[t].type);
        assert_int_equal(quant_quantise(all[t].type, x, 4 * N, together), QUIRE_OK);
        for (size_t row = 0; row < 4; row++) {
            assert_int_equal(quant_quantise(all[t].type, x + row * N, N, alone), QUIRE_OK);
            assert_memory_equal(alone, together + row * bytes, bytes);
        }
    }
}

TEST_MAIN(NULL, NULL)
