/* Plans of a device: figures computed by hand beside them. */
#include <math.h>
#include <string.h>

#include "lab/sim/cost.h"
#include "test.h"

static plan_options options_of(const char *model, const char *device) {
    plan_options o;
    plan_options_init(&o);
    o.model = model;
    o.device = device;
    return o;
}

static void assert_near(double a, double b, double part) {
    if (!(fabs(a - b) <= part * fabs(b))) {
        fail_msg("%.17g is not %.17g", a, b);
    }
}

/* Published: about 48 requests of 1,000 tokens on an A100 of 40 GB, and about 12 where
 * 75% of what is reserved is never used. */
TEST(as_many_requests_fit_as_was_published) {
    plan_options o = options_of("llama-2-7b", "a100-40gb");
    cost_model c;
    plan_row rows[PLAN_N_ROWS];
    assert_int_equal(plan_make(&o, &c, rows, NULL), QUIRE_OK);
    assert_int_equal(c.token_bytes, 524288);
    assert_int_equal(c.kv_tokens, (int64_t)((0.9 * 40 * 1073741824.0 - 13.48e9) / 524288));
    assert_int_equal(rows[0].reserved, 1008); /* 63 pages */
    assert_int_equal(rows[0].n_requests, 47);
    assert_int_equal(rows[1].reserved, 1024);
    assert_int_equal(rows[2].reserved, 4096);
    assert_int_equal(rows[3].reserved, 4000);
    assert_int_equal(rows[3].n_requests, 12);
}

TEST(a_step_is_the_weights_or_the_rows_and_what_is_attended_to) {
    plan_options o = options_of("llama-2-7b", "a100-40gb");
    o.n_prompt = o.n_output = 500;
    o.cost_per_hour = 3.6;
    o.n_devices = 10;
    cost_model c;
    plan_row rows[PLAN_N_ROWS];
    assert_int_equal(plan_make(&o, &c, rows, NULL), QUIRE_OK);
    double weights = 13.48e9 / (0.8 * 1.555e12), token = 524288 / (0.8 * 1.555e12); /* seconds */
    double pair = 4.0 * 32 * 4096 / (0.5 * 312e12);
    /* 94 rows: fewer than the weights' traffic hides */
    double step = weights + 47 * 750 * token + 47 * 250 * pair;
    assert_near(rows[0].step_us, step * 1e6, 1e-9);
    assert_near(rows[0].tokens_per_s, 47 / step, 1e-9);
    assert_near(rows[0].per_million, 3.6 / 3600 * step / 47 * 1e6, 1e-9);
    assert_near(rows[0].n_devices, 10, 1e-12);
    assert_near(rows[0].per_year, 10 * 3.6 * 8760, 1e-12);
    assert_near(rows[3].n_devices, 10 * rows[0].tokens_per_s / rows[3].tokens_per_s, 1e-12);
}

/* Published: 100 devices at 2 dollars an hour are 1.752 million a year. */
TEST(the_fleet_as_published_costs_what_was_published) {
    plan_options o = options_of("llama-2-13b", "a100-80gb");
    cost_model c;
    plan_row rows[PLAN_N_ROWS];
    assert_int_equal(plan_make(&o, &c, rows, NULL), QUIRE_OK);
    assert_near(rows[0].per_year, 1752000, 1e-12);
}

TEST(several_devices_are_one_with_all_they_have) {
    cost_model one, four;
    assert_int_equal(cost_describe("llama-7b", "h200-141gb", &one, NULL), QUIRE_OK);
    assert_int_equal(cost_describe("llama-7b", "4xh200-141gb", &four, NULL), QUIRE_OK);
    assert_near((double)four.memory_bytes, 4 * (double)one.memory_bytes, 1e-12);
    assert_near(four.us[0] * 4, one.us[0], 1e-12);
    assert_near(four.prefill_pair_us * 4, one.prefill_pair_us, 1e-12);
    assert_true(four.kv_tokens > 4 * one.kv_tokens);
    assert_string_equal(four.device, "4xh200-141gb");
}

TEST(what_is_not_known_or_does_not_fit_is_refused) {
    static const struct {
        const char *model, *device, *says;
    } wrong[] = {
        {"opt-14b", "t4", "opt-13b"},
        {"opt-13b", "abacus", "h200-141gb"},
        {"opt-13b", "0xt4", "device 0xt4"},
        {"opt-13b", "65xt4", "device 65xt4"},
        {"opt-13b", "4x", "device 4x"},
        {"opt-13b", "t4", "leave no memory"},
        {"opt-175b", "4xa100-80gb", "349.2 GB"},
        {"llama-2-7b", "", "device  is not"},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        cost_model c;
        quire_error err = {.message = ""};
        assert_int_equal(cost_describe(wrong[i].model, wrong[i].device, &c, &err), QUIRE_INVALID);
        if (strstr(err.message, wrong[i].says) == NULL) {
            fail_msg("%s: says not %s", err.message, wrong[i].says);
        }
    }
    plan_options o = options_of("opt-13b", "a100-40gb");
    cost_model c;
    plan_row rows[PLAN_N_ROWS];
    o.n_output = 2000;
    assert_int_equal(plan_make(&o, &c, rows, NULL), QUIRE_INVALID);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(as_many_requests_fit_as_was_published),
        cmocka_unit_test(a_step_is_the_weights_or_the_rows_and_what_is_attended_to),
        cmocka_unit_test(the_fleet_as_published_costs_what_was_published),
        cmocka_unit_test(several_devices_are_one_with_all_they_have),
        cmocka_unit_test(what_is_not_known_or_does_not_fit_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
