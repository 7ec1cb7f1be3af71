#include "core/quant.h"

#include <string.h>

#include "core/half.h"

/* A block's bytes are read one by one: nothing is aligned, and the formats are little-endian whatever the machine.
 * Every value is (d * scale) * q - (dmin * min), with each product and difference rounded: the order that gguf-py and ggml's C share. */

#define SUPER 256 /* elements of a K block */

static uint16_t read_u16(const uint8_t *p) {
    return (uint16_t)(p[0] | p[1] << 8);
}

static uint32_t read_u32(const uint8_t *p) {
    return (uint32_t)read_u16(p) | (uint32_t)read_u16(p + 2) << 16;
}

static float read_f16(const uint8_t *p) {
    return f16_to_f32(read_u16(p));
}

static void from_f32(const uint8_t *b, float *out) {
    uint32_t bits = read_u32(b);
    memcpy(out, &bits, sizeof *out);
}

static void from_f16(const uint8_t *b, float *out) {
    *out = read_f16(b);
}

static void from_bf16(const uint8_t *b, float *out) {
    *out = bf16_to_f32(read_u16(b));
}

/* d, then 16 bytes: element i in the low nibble of byte i, element 16 + i in the high one. */
static void from_q4_0(const uint8_t *b, float *out) {
    float d = read_f16(b);
    for (int i = 0; i < 16; i++) {
        out[i] = d * (float)((b[2 + i] & 15) - 8);
        out[16 + i] = d * (float)((b[2 + i] >> 4) - 8);
    }
}

static void from_q4_1(const uint8_t *b, float *out) {
    float d = read_f16(b), m = read_f16(b + 2);
    for (int i = 0; i < 16; i++) {
        out[i] = d * (float)(b[4 + i] & 15) + m;
        out[16 + i] = d * (float)(b[4 + i] >> 4) + m;
    }
}

/* As Q4, with the fifth bits of elements 0..31 in a word before the nibbles. */
static void from_q5_0(const uint8_t *b, float *out) {
    float d = read_f16(b);
    uint32_t high = read_u32(b + 2);
    for (int i = 0; i < 16; i++) {
        out[i] = d * (float)((int)((b[6 + i] & 15) | (high >> i & 1) << 4) - 16);
        out[16 + i] = d * (float)((int)((uint32_t)(b[6 + i] >> 4) | (high >> (16 + i) & 1) << 4) - 16);
    }
}

static void from_q5_1(const uint8_t *b, float *out) {
    float d = read_f16(b), m = read_f16(b + 2);
    uint32_t high = read_u32(b + 4);
    for (int i = 0; i < 16; i++) {
        out[i] = d * (float)((b[8 + i] & 15) | (high >> i & 1) << 4) + m;
        out[16 + i] = d * (float)((uint32_t)(b[8 + i] >> 4) | (high >> (16 + i) & 1) << 4) + m;
    }
}

static void from_q8_0(const uint8_t *b, float *out) {
    float d = read_f16(b);
    for (int i = 0; i < 32; i++) {
        out[i] = (float)(int8_t)b[2 + i] * d;
    }
}

/* 16 bytes (scale, min: low and high nibble) of 16 elements each, 64 bytes of 2-bit values, d, dmin. The values lie in two halves of 128
 * elements: 32 bytes hold four rows of 32, two bits each. */
static void from_q2_k(const uint8_t *b, float *out) {
    const uint8_t *scales = b, *q = b + 16;
    float d = read_f16(b + 80), dmin = read_f16(b + 82);
    for (int i = 0; i < SUPER; i++) {
        int half = i / 128, row = i % 128 / 32, column = i % 32;
        float scale = d * (float)(scales[i / 16] & 15), min = dmin * (float)(scales[i / 16] >> 4);
        out[i] = scale * (float)(q[32 * half + column] >> (2 * row) & 3) - min;
    }
}

/* 32 bytes of third bits (0 means: minus 4), 64 bytes of 2-bit values laid out as in Q2_K, 16 scales of 6 bits in 12 bytes, d. */
static void from_q3_k(const uint8_t *b, float *out) {
    const uint8_t *high = b, *q = b + 32, *packed = b + 96;
    float d = read_f16(b + 108), scales[16];
    for (int i = 0; i < 16; i++) {
        int low4 = packed[i % 8] >> (4 * (i / 8)) & 15;
        int high2 = packed[8 + i % 4] >> (2 * (i / 4)) & 3;
        scales[i] = d * (float)((low4 | high2 << 4) - 32);
    }
    for (int i = 0; i < SUPER; i++) {
        int half = i / 128, row = i % 128 / 32, column = i % 32;
        int value = q[32 * half + column] >> (2 * row) & 3;
        int third = high[column] >> (4 * half + row) & 1;
        out[i] = scales[i / 16] * (float)(value - (third != 0 ? 0 : 4));
    }
}

/* 8 scales and 8 mins of 6 bits in 12 bytes: 0..3 in the low bits of bytes 0..3 (mins 4..7); 4..7 in the nibbles of bytes 8..11 with their
 * top two bits in the top bits of bytes 0..3 (mins 4..7). */
static void unpack_k_scale(const uint8_t *packed, int i, int *scale, int *min) {
    if (i < 4) {
        *scale = packed[i] & 63;
        *min = packed[4 + i] & 63;
    } else {
        *scale = (packed[4 + i] & 15) | (packed[i - 4] >> 6) << 4;
        *min = packed[4 + i] >> 4 | (packed[i] >> 6) << 4;
    }
}

/* d, dmin, 12 bytes of scales and mins, 128 bytes of nibbles: 32 bytes hold two rows of 32, low then high. */
static void from_q4_k(const uint8_t *b, float *out) {
    float d = read_f16(b), dmin = read_f16(b + 2);
    for (int row = 0; row < 8; row++) {
        int scale, min;
        unpack_k_scale(b + 4, row, &scale, &min);
        float row_d = d * (float)scale, row_min = dmin * (float)min;
        const uint8_t *q = b + 16 + 32 * (row / 2);
        for (int i = 0; i < 32; i++) {
            out[32 * row + i] = row_d * (float)(q[i] >> (4 * (row % 2)) & 15) - row_min;
        }
    }
}

/* As Q4_K, with 32 bytes of fifth bits (bit r of byte i: element i of row r) before the nibbles. */
static void from_q5_k(const uint8_t *b, float *out) {
    float d = read_f16(b), dmin = read_f16(b + 2);
    const uint8_t *high = b + 16;
    for (int row = 0; row < 8; row++) {
        int scale, min;
        unpack_k_scale(b + 4, row, &scale, &min);
        float row_d = d * (float)scale, row_min = dmin * (float)min;
        const uint8_t *q = b + 48 + 32 * (row / 2);
        for (int i = 0; i < 32; i++) {
            int value = (q[i] >> (4 * (row % 2)) & 15) | (high[i] >> row & 1) << 4;
            out[32 * row + i] = row_d * (float)value - row_min;
        }
    }
}

/* 128 bytes of low nibbles, 64 of two high bits, 16 scales of 8 bits, d. In each half of 128 elements rows 0 and 2 share 32 bytes of
 * nibbles, rows 1 and 3 the next 32; the four rows share 32 bytes of high bits. */
static void from_q6_k(const uint8_t *b, float *out) {
    const uint8_t *low = b, *high = b + 128, *scales = b + 192;
    float d = read_f16(b + 208);
    for (int i = 0; i < SUPER; i++) {
        int half = i / 128, row = i % 128 / 32, column = i % 32;
        int low4 = low[64 * half + 32 * (row % 2) + column] >> (4 * (row / 2)) & 15;
        int high2 = high[32 * half + column] >> (2 * row) & 3;
        float scale = d * (float)(int8_t)scales[i / 16];
        out[i] = scale * (float)((low4 | high2 << 4) - 32);
    }
}

static const int8_t iq4_values[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};

static void from_iq4_nl(const uint8_t *b, float *out) {
    float d = read_f16(b);
    for (int i = 0; i < 16; i++) {
        out[i] = d * (float)iq4_values[b[2 + i] & 15];
        out[16 + i] = d * (float)iq4_values[b[2 + i] >> 4];
    }
}

typedef void (*block_reader)(const uint8_t *block, float *out);

static const block_reader readers[N_DTYPES] = {
    [DTYPE_F32] = from_f32,   [DTYPE_F16] = from_f16,   [DTYPE_BF16] = from_bf16, [DTYPE_Q4_0] = from_q4_0,     [DTYPE_Q4_1] = from_q4_1,
    [DTYPE_Q5_0] = from_q5_0, [DTYPE_Q5_1] = from_q5_1, [DTYPE_Q8_0] = from_q8_0, [DTYPE_Q2_K] = from_q2_k,     [DTYPE_Q3_K] = from_q3_k,
    [DTYPE_Q4_K] = from_q4_k, [DTYPE_Q5_K] = from_q5_k, [DTYPE_Q6_K] = from_q6_k, [DTYPE_IQ4_NL] = from_iq4_nl,
};

quire_err quant_dequantise(dtype t, const void *blocks, size_t n, float *out) {
    if ((unsigned)t >= N_DTYPES || readers[t] == NULL) {
        return QUIRE_UNSUPPORTED;
    }
    size_t elements = (size_t)dtype_block_elements(t), bytes = (size_t)dtype_block_bytes(t);
    if (n % elements != 0) {
        return QUIRE_INVALID;
    }
    const uint8_t *b = blocks;
    for (size_t i = 0; i < n; i += elements, b += bytes) {
        readers[t](b, out + i);
    }
    return QUIRE_OK;
}
