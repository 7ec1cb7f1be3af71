/* Reference figures: published bytes and operations per token, the lower of two
 * limits. */
#include <math.h>
#include <string.h>

#include "lab/bench/model_shape.h"
#include "test.h"

static const speed_type *type(const char *name) {
    const speed_type *t = speed_type_find(name, strlen(name));
    assert_non_null(t);
    return t;
}

static void assert_near(double a, double b, double part) {
    if (!(fabs(a - b) <= part * fabs(b))) {
        fail_msg("%.17g is not %.17g", a, b);
    }
}

TEST(a_token_of_the_1b_shape_costs_what_is_published) {
    const llama_shape costs = model_shape_costs(model_shape_llama), *s = &costs;
    assert_int_equal(shape_layer_weights(s) + shape_head_weights(s), 1034420224);
    assert_int_equal(shape_head_weights(s), 65536000);
    assert_near(shape_token_operations(s), 2.07e9, 1e-3);
    assert_near(shape_prompt_operations(s, 512) / 512, 1.94e9, 2e-3);
    assert_near(shape_prompt_operations(s, 1), shape_token_operations(s), 1e-12);
    assert_near(shape_weight_bytes(s, type("q4_0")), 582e6, 1e-3);
    assert_near(shape_weight_bytes(s, type("q4_k")), 582e6, 1e-3);
    assert_near(shape_weight_bytes(s, type("q8_0")), 1099e6, 1e-3);
    assert_near(shape_weight_bytes(s, type("int8")), 1034.4e6, 1e-3);
    assert_near(shape_weight_bytes(s, type("bf16")), 2068.8e6, 1e-3);
    assert_near(shape_kv_bytes(s, DTYPE_F16), 22 * 2 * 4 * 64 * 2, 0);
}

/* The goal machine's rates: what its published limits come from. */
static const roofline zen4 = {
    .n_threads = 2, .read = {38e9}, .f32 = {230e9}, .bf16 = {468e9}, .int8 = {855e9}, .int8_small = {855e9}};

TEST(limits_are_the_lower_of_bytes_and_operations) {
    const llama_shape costs = model_shape_costs(model_shape_llama), *s = &costs;
    speed_limit l = shape_decode_limit(s, type("q4_0"), &zen4, 1, 0, DTYPE_F16);
    assert_string_equal(l.by, "bytes");
    assert_near(l.value, 65.3, 2e-3);
    l = shape_decode_limit(s, type("q4_0"), &zen4, 4, 0, DTYPE_F16);
    assert_string_equal(l.by, "bytes");
    assert_near(0.7 * l.value, 183, 3e-3);
    l = shape_decode_limit(s, type("int8"), &zen4, 32, 0, DTYPE_F16);
    assert_string_equal(l.by, "int8");
    assert_near(l.value, 413, 2e-3);
    l = shape_prefill_limit(s, type("q8_0"), &zen4, 512);
    assert_string_equal(l.by, "int8");
    assert_near(l.value, 441, 2e-3);
    l = shape_prefill_limit(s, type("bf16"), &zen4, 512);
    assert_string_equal(l.by, "bf16");
    assert_near(l.value, 241.5, 2e-3);
    l = shape_prefill_limit(s, type("bf16"), &zen4, 1);
    assert_string_equal(l.by, "bytes");
}

TEST(keys_and_values_count_among_the_bytes_of_a_decode) {
    const llama_shape costs = model_shape_costs(model_shape_llama), *s = &costs;
    const speed_type *t = type("q8_0");
    double bytes = shape_weight_bytes(s, t) + 2 * 1000 * shape_kv_bytes(s, DTYPE_F16);
    assert_near(shape_decode_limit(s, t, &zen4, 2, 1000, DTYPE_F16).value, 2 * zen4.read.best / bytes, 1e-12);
}

static double peak_of_type(const roofline *r, const char *name, const char **by) {
    const speed_type *t = type(name);
    return products_peak(r, t->compute, t->published, by);
}

TEST(four_bit_weights_have_the_rate_of_small_factors) {
    roofline avx2 = {.read = {1e15}, .f32 = {1e9}, .bf16 = {1e9}, .int8 = {2e9}, .int8_small = {4e9}};
    const char *by;
    assert_near(peak_of_type(&avx2, "q4_0", &by), 4e9, 0);
    assert_near(peak_of_type(&avx2, "q4_k", &by), 4e9, 0);
    assert_near(peak_of_type(&avx2, "q8_0", &by), 2e9, 0);
    assert_near(peak_of_type(&avx2, "int8", &by), 2e9, 0);
    assert_near(peak_of_type(&avx2, "bf16", &by), 1e9, 0);
    assert_null(speed_type_find("q4", 2));
}

TEST_MAIN(NULL, NULL)
