#include <math.h>
#include <string.h>

#include "core/half.h"
#include "core/quant_matrix.h"
#include "test.h"

/* By the definition: sign, 4 bits of exponent with a bias of 7, 3 of fraction. */
static float e4m3_by_definition(int b) {
    int exponent = b >> 3 & 15, fraction = b & 7;
    float magnitude =
        exponent == 0 ? ldexpf((float)fraction, -9) : ldexpf((float)(8 + fraction), exponent - 10);
    magnitude = (b & 0x7f) == 0x7f ? NAN : magnitude;
    return b & 0x80 ? -magnitude : magnitude;
}

TEST(all_e4m3_and_e8m0_are_their_definition) {
    for (int b = 0; b < 256; b++) {
        float e4m3 = e4m3_to_f32((uint8_t)b), want = e4m3_by_definition(b), e8m0 = e8m0_to_f32((uint8_t)b);
        assert_true(isnan(want) ? isnan(e4m3) != 0 : e4m3 == want && signbit(e4m3) == signbit(want));
        assert_true(b == 255 ? isnan(e8m0) != 0 : e8m0 == ldexpf(1.0f, b - 127));
    }
}

enum { ROWS = 16, INPUTS = 64, MOST_WORDS = ROWS * INPUTS };

static uint32_t seed = 1;

static uint32_t next(void) {
    seed = seed * 1664525u + 1013904223u;
    return seed >> 8;
}

/* Sets bits at..at + n of words, the lowest first. */
static void put_bits(uint8_t *bytes, size_t at, int n, uint32_t value) {
    for (int i = 0; i < n; i++, at++) {
        bytes[at / 8] = (uint8_t)(bytes[at / 8] | (value >> i & 1) << at % 8);
    }
}

/* Writes code (row, i) where a place has it. */
static void put_code(code_place place, int bits, int row, int i, uint32_t code, uint8_t *bytes) {
    static const int awq_order[8] = {0, 2, 4, 6, 1, 3, 5, 7};
    size_t at = (size_t)row * INPUTS + (size_t)i;
    int a_word = 32 / bits, words = (INPUTS + a_word - 1) / a_word, down = i * bits;
    switch (place) {
    case CODES_BYTES:
        bytes[at] = (uint8_t)code;
        break;
    case CODES_NIBBLES:
    case CODES_NIBBLES_HIGH:
        put_bits(bytes, 4 * (place == CODES_NIBBLES ? at : at ^ 1), 4, code);
        break;
    case CODES_BYTES_DOWN:
        bytes[(size_t)i * ROWS + (size_t)row] = (uint8_t)code;
        break;
    case CODES_NIBBLES_DOWN:
        put_bits(bytes, 8 * ((size_t)(i / 2) * ROWS + (size_t)row) + (size_t)(i % 2 * 4), 4, code);
        break;
    case CODES_WORDS:
        put_bits(bytes,
                 32 * ((size_t)row * (size_t)words + (size_t)(i / a_word)) + (size_t)(i % a_word * bits),
                 bits, code);
        break;
    case CODES_WORDS_DOWN:
        for (int b = 0; b < bits; b++) {
            size_t word = (size_t)((down + b) / 32) * ROWS + (size_t)row;
            put_bits(bytes, 32 * word + (size_t)((down + b) % 32), 1, code >> b & 1);
        }
        break;
    case CODES_WORDS_AWQ:
        for (int n = 0; n < 8; n++) {
            if (awq_order[n] == row % 8) {
                put_bits(bytes, 32 * ((size_t)i * (ROWS / 8) + (size_t)(row / 8)) + (size_t)(4 * n), 4, code);
            }
        }
    }
}

static void check_place(code_place place, int bits) {
    static uint8_t bytes[4 * MOST_WORDS];
    static uint32_t codes[ROWS][INPUTS];
    float scales[ROWS * 2], out[INPUTS];
    int16_t zeros[ROWS * 2];
    memset(bytes, 0, sizeof bytes);
    for (int r = 0; r < ROWS; r++) {
        for (int i = 0; i < INPUTS; i++) {
            codes[r][i] = next() & ((1u << bits) - 1);
            put_code(place, bits, r, i, codes[r][i], bytes);
        }
    }
    for (int i = 0; i < ROWS * 2; i++) {
        scales[i] = (float)(next() % 100) / 64.0f;
        zeros[i] = (int16_t)(next() & ((1u << bits) - 1));
    }
    const quant_matrix m = {.place = place,
                            .bits = bits,
                            .codes = bytes,
                            .n_rows = ROWS,
                            .n_in = INPUTS,
                            .scales = scales,
                            .zeros = zeros,
                            .scale_rows = 1,
                            .n_groups = 2,
                            .group = INPUTS / 2,
                            .factor = 0.5f,
                            .first = 1,
                            .block = 1,
                            .step = 2};
    for (int r = 0; r < ROWS / 2; r++) { /* every second row, from the second on */
        int row = 1 + 2 * r;
        quant_matrix_read(&m, r, 3, INPUTS - 3, out);
        for (int i = 3; i < INPUTS; i++) {
            int group = row * 2 + i / (INPUTS / 2);
            assert_true(out[i - 3] == (float)((int)codes[row][i] - zeros[group]) * (scales[group] * 0.5f));
        }
    }
}

TEST(codes_are_found_in_every_place) {
    check_place(CODES_BYTES, 8);
    check_place(CODES_NIBBLES, 4);
    check_place(CODES_NIBBLES_HIGH, 4);
    check_place(CODES_BYTES_DOWN, 8);
    check_place(CODES_NIBBLES_DOWN, 4);
    check_place(CODES_WORDS_AWQ, 4);
    for (int bits = 2; bits <= 8; bits = bits == 4 ? 8 : bits + 1) {
        check_place(CODES_WORDS, bits);
        check_place(CODES_WORDS_DOWN, bits);
    }
}

TEST(groups_by_index_and_groups_that_run_on) {
    static uint8_t codes[4 * 6] = {1, 2, 3, 4, 5, 6, 1, 2, 3, 4, 5, 6};
    static const int32_t index[6] = {1, 0, 1, 0, 0, 1};
    const float scales[8] = {1, 10, 100, 1000, 10000, 100000};
    float out[6];
    quant_matrix m = {.place = CODES_BYTES,
                      .bits = 8,
                      .codes = codes,
                      .n_rows = 4,
                      .n_in = 6,
                      .scales = scales,
                      .scale_rows = 1,
                      .n_groups = 2,
                      .group = 3,
                      .group_of = index,
                      .factor = 1,
                      .block = 4,
                      .step = 4};
    quant_matrix_read(&m, 1, 0, 6, out);
    const float by_index[6] = {1000, 200, 3000, 400, 500, 6000};
    assert_memory_equal(out, by_index, sizeof out);
    m.group_of = NULL;
    m.runs_on = true;
    m.group = 4;
    quant_matrix_read(&m, 1, 0, 6, out); /* elements 6..11 of the whole: groups 1, 1, 2, 2, 2, 2 */
    const float run_on[6] = {10, 20, 300, 400, 500, 600};
    assert_memory_equal(out, run_on, sizeof out);
}

TEST_MAIN(NULL, NULL)
