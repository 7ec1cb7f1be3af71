/* A value counts in the first bucket whose bound it does not exceed. */

#include "core/histogram.h"
#include "test.h"

TEST(a_value_counts_in_the_bucket_that_it_fits_in) {
    for (int kind = 0; kind < QUIRE_N_HISTOGRAMS; kind++) {
        int32_t n;
        const int64_t *bounds = quire_histogram_bounds((quire_histogram_kind)kind, &n);
        quire_histogram h = {0};
        int64_t sum = 0;
        assert_true(n > 0 && n < QUIRE_HISTOGRAM_BUCKETS);
        for (int32_t i = 0; i < n; i++) {
            assert_true(bounds[i] > (i > 0 ? bounds[i - 1] : 0));
            histogram_add(&h, (quire_histogram_kind)kind, bounds[i]); /* the bound belongs to its bucket */
            histogram_add(&h, (quire_histogram_kind)kind, bounds[i] + 1);
            sum += 2 * bounds[i] + 1;
        }
        assert_int_equal(h.sum, sum);
        assert_int_equal(h.count, 2 * n);
        int64_t total = 0, up_to = 0;
        for (int32_t i = 0; i < QUIRE_HISTOGRAM_BUCKETS; i++) {
            total += h.buckets[i];
            up_to += i < n ? h.buckets[i] : 0;
            assert_true(i <= n || h.buckets[i] == 0);
        }
        assert_int_equal(total, h.count);
        assert_int_equal(up_to, h.count - 1); /* all but the one over the last bound */
    }
}

TEST(a_negative_value_counts_as_zero) {
    quire_histogram h = {0};
    histogram_add(&h, QUIRE_HISTOGRAM_E2E, -5);
    histogram_add(&h, QUIRE_HISTOGRAM_E2E, INT64_MAX);
    assert_int_equal(h.buckets[0], 1);
    assert_int_equal(h.buckets[21], 1);
    assert_int_equal(h.sum, INT64_MAX);
}

TEST_MAIN(NULL, NULL)
