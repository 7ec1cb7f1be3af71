/* The parameters of sampling. */
#include "core/params.h"
#include "test.h"

#include <string.h>

TEST(sampling_starts_with_no_cut_and_no_limit) {
    sampling_params p;
    memset(&p, 0xff, sizeof p);
    sampling_params_init(&p);
    assert_true(p.temperature == 1.0f && p.top_p == 1.0f && p.min_p == 0.0f);
    assert_int_equal(p.top_k, 0);
    assert_int_equal(p.max_tokens, -1);
    assert_int_equal(p.min_tokens, 0);
    assert_false(p.ignore_eos);
    assert_false(p.has_seed);
    assert_int_equal(p.n_stop_tokens, 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(sampling_starts_with_no_cut_and_no_limit)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
