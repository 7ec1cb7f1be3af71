#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "base/rng.h"
#include "core/quant.h"
#include "core/quantise.h"
#include "golden_quants.h"
#include "test.h"

static void check_dequantise(dtype t) {
    golden_blocks g = golden_blocks_read(t);
    float *out = g.blocks != NULL ? mem_new(g.n, sizeof *out) : NULL;
    if (out != NULL) {
        assert_int_equal(quant_dequantise(t, g.blocks, g.n, out), QUIRE_OK);
    }
    for (size_t i = 0; out != NULL && i < g.n; i++) {
        if (memcmp(&out[i], &g.values[i], sizeof(float)) != 0) {
            fail_msg("%s element %zu is %a, expected %a", dtype_name(t), i, (double)out[i],
                     (double)g.values[i]);
        }
    }
    mem_free(out);
    golden_blocks_free(&g);
}

TEST(dequantised_values_equal_the_references_to_the_bit) {
    for (int t = DTYPE_F16; t < DTYPE_Q2_0; t++) {
        check_dequantise((dtype)t);
    }
}

/* gguf-py has neither: their values are those of ggml's description. */
TEST(blocks_of_one_and_two_bits_have_the_values_their_layout_says) {
    float out[256], d;
    uint8_t blocks[4 * 18];
    uint64_t s = 3;
    for (size_t i = 0; i < sizeof blocks; i++) {
        blocks[i] = (uint8_t)rng_next(&s);
    }
    for (size_t b = 0; b < 4; b++) {
        blocks[18 * b] = (uint8_t)b, blocks[18 * b + 1] = (uint8_t)(b % 2 == 0 ? 0x2c : 0xb1); /* d */
    }
    assert_int_equal(quant_dequantise(DTYPE_Q2_0, blocks, 256, out), QUIRE_OK);
    for (size_t i = 0; i < 256; i++) {
        const uint8_t *b = blocks + i / 64 * 18;
        assert_int_equal(quant_dequantise(DTYPE_F16, b, 1, &d), QUIRE_OK);
        assert_true(out[i] == d * (float)((b[2 + i % 64 / 4] >> 2 * (i % 4) & 3) - 1));
    }
    assert_int_equal(quant_dequantise(DTYPE_Q1_0, blocks, 256, out), QUIRE_OK);
    for (size_t i = 0; i < 256; i++) {
        const uint8_t *b = blocks + i / 128 * 18;
        assert_int_equal(quant_dequantise(DTYPE_F16, b, 1, &d), QUIRE_OK);
        assert_true(out[i] == ((b[2 + i % 128 / 8] >> i % 8 & 1) != 0 ? d : -d));
    }
}

TEST(quantised_blocks_equal_the_references_to_the_bit) {
    static const dtype types[] = {DTYPE_F16,  DTYPE_BF16, DTYPE_Q4_0,  DTYPE_Q4_1,  DTYPE_Q5_0,
                                  DTYPE_Q5_1, DTYPE_Q8_0, DTYPE_MXFP4, DTYPE_TQ1_0, DTYPE_TQ2_0};
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++) {
        size_t n_npy, n_expected, n;
        char *npy = read_golden("quantize/", dtype_name(types[i]), "npy", &n_npy);
        char *expected =
            npy != NULL ? read_golden("quantize/", dtype_name(types[i]), "bin", &n_expected) : NULL;
        if (expected == NULL) {
            mem_free(npy);
            continue;
        }
        const float *x = npy_values(npy, n_npy, &n);
        char *out = mem_new(n_expected, 1);
        assert_int_equal(quant_quantise(types[i], x, n, out), QUIRE_OK);
        if (memcmp(out, expected, n_expected) != 0) {
            fail_msg("%s differs", dtype_name(types[i]));
        }
        mem_free(out);
        mem_free(expected);
        mem_free(npy);
    }
}

TEST(a_block_written_by_hand_has_the_values_its_layout_says) {
    float out[32];
    uint8_t q4[18] = {0};
    q4[0] = 0x00, q4[1] = 0x3c; /* d = 1 */
    q4[2] = 0xf0;               /* element 0: 0 - 8, element 16: 15 - 8 */
    assert_int_equal(quant_dequantise(DTYPE_Q4_0, q4, 32, out), QUIRE_OK);
    assert_true(out[0] == -8.0f && out[16] == 7.0f && out[1] == -8.0f);
    uint8_t q8[34] = {0x00, 0x38, 0x80, 0x7f}; /* d = 0.5 */
    assert_int_equal(quant_dequantise(DTYPE_Q8_0, q8, 32, out), QUIRE_OK);
    assert_true(out[0] == -64.0f && out[1] == 63.5f && out[2] == 0.0f);
}

TEST(hostile_floats_quantise_to_some_block_without_undefined_behaviour) {
    float x[256], back[256];
    uint8_t block[272];
    static const dtype types[] = {DTYPE_Q4_0, DTYPE_Q4_1, DTYPE_Q5_0,   DTYPE_Q5_1,   DTYPE_Q8_0, DTYPE_Q4_K,
                                  DTYPE_Q5_K, DTYPE_Q6_K, DTYPE_IQ4_NL, DTYPE_IQ4_XS, DTYPE_MXFP4};
    static const float odd[] = {NAN, INFINITY, -INFINITY, 3.4e38f, -3.4e38f, 1e-45f, -0.0f, 0.0f, 1.0f};
    uint64_t s = 1;
    for (int round = 0; round < 500; round++) {
        for (int i = 0; i < 256; i++) {
            x[i] = odd[rng_next(&s) % (sizeof odd / sizeof odd[0])];
        }
        for (size_t t = 0; t < sizeof types / sizeof types[0]; t++) {
            assert_int_equal(quant_quantise(types[t], x, 256, block), QUIRE_OK);
            assert_int_equal(quant_dequantise(types[t], block, 256, back), QUIRE_OK);
        }
    }
}

TEST(types_without_a_rule_and_partial_blocks_are_refused) {
    uint8_t block[256] = {0};
    float x[256] = {0};
    assert_int_equal(quant_dequantise(DTYPE_I32, block, 1, x), QUIRE_UNSUPPORTED);
    assert_int_equal(quant_quantise(DTYPE_Q2_K, x, 256, block), QUIRE_UNSUPPORTED);
    assert_int_equal(quant_dequantise(DTYPE_Q4_0, block, 33, x), QUIRE_INVALID);
    assert_int_equal(quant_quantise(DTYPE_Q8_0, x, 31, block), QUIRE_INVALID);
    assert_int_equal(quant_dequantise(DTYPE_Q4_0, block, 0, x), QUIRE_OK);
}

TEST_MAIN(NULL, NULL)
