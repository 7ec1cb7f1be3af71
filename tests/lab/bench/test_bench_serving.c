/* What `quire bench serving` refuses before it serves anything. */
#include <string.h>

#include "lab/bench/bench_serving.h"
#include "test.h"

/* 2,048 tokens, 2^20 times: one more than 32 bits hold. */
TEST(lengths_that_no_number_holds_before_they_shrink_are_refused) {
    bench_serving_options o;
    quire_error err = {.message = ""};
    bench_serving_options_init(&o);
    o.server.described = "opt-13b,a100-40gb";
    o.server.shrink = 1 << 20;
    assert_int_equal(bench_serving_run(&o, &err), QUIRE_INVALID);
    assert_non_null(strstr(err.message, "--shrink 1048576: "));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lengths_that_no_number_holds_before_they_shrink_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
