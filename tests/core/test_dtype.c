#include "core/dtype.h"
#include "test.h"

TEST(ggml_numbers_give_the_type_with_its_block) {
    dtype t;
    assert_true(dtype_from_ggml(12, &t));
    assert_int_equal(t, DTYPE_Q4_K);
    assert_string_equal(dtype_name(t), "Q4_K");
    assert_int_equal(dtype_block_elements(t), 256);
    assert_int_equal(dtype_block_bytes(t), 144);
    assert_true(dtype_from_ggml(30, &t));
    assert_int_equal(t, DTYPE_BF16);
}

TEST(types_this_build_does_not_read_are_refused) {
    dtype t = DTYPE_F32;
    assert_false(dtype_from_ggml(4, &t)); /* Q4_2, removed from ggml */
    assert_false(dtype_from_ggml(UINT32_MAX, &t));
    assert_int_equal(t, DTYPE_F32);
}

TEST(safetensors_names_are_matched_whole) {
    dtype t = DTYPE_F64;
    assert_true(dtype_from_name("BF16", 4, &t));
    assert_int_equal(t, DTYPE_BF16);
    assert_true(dtype_from_name("BOOLxx", 4, &t));
    assert_int_equal(t, DTYPE_BOOL);
    assert_false(dtype_from_name("BF1", 3, &t));
    assert_false(dtype_from_name("bf16", 4, &t));
    assert_false(dtype_from_name("Q4_0", 4, &t));
    assert_false(dtype_from_name("", 0, &t));
}

TEST(flags_have_names_of_their_own) {
    assert_string_equal(dtype_flag_name(DTYPE_Q4_0), "q4_0");
    assert_string_equal(dtype_flag_name(DTYPE_IQ4_NL), "iq4_nl");
    assert_string_equal(dtype_flag_name(DTYPE_BF16), "bf16");
    assert_string_equal(dtype_flag_name(DTYPE_I8), "int8");
    assert_string_equal(dtype_flag_name((dtype)N_DTYPES), "unknown");
}

TEST(only_block_types_are_quantised) {
    for (int t = 0; t < N_DTYPES; t++) {
        assert_int_equal(dtype_is_quantised((dtype)t), (t >= DTYPE_Q4_0 && t < DTYPE_I8) || t == DTYPE_I4);
    }
}

TEST(compute_modes_have_names) {
    assert_string_equal(compute_name(COMPUTE_F32), "f32");
    assert_string_equal(compute_name(COMPUTE_BF16), "bf16");
    assert_string_equal(compute_name(COMPUTE_INT8), "int8");
}

TEST_MAIN(NULL, NULL)
