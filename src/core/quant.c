#include "core/quant.h"

#include <math.h>
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

static void write_u16(uint8_t *p, uint16_t v) {
    p[0] = (uint8_t)v;
    p[1] = (uint8_t)(v >> 8);
}

/* ---- from blocks ---- */

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

/* ---- to blocks ---- */

/* x cut to an integer in 0..max; NaN gives 0. */
static int whole(float x, int max) {
    if (!(x >= 0.0f)) {
        return 0;
    }
    return x >= (float)max ? max : (int)x;
}

static float inverse(float d) {
    return d != 0.0f ? 1.0f / d : 0.0f;
}

/* The element of greatest magnitude, the first of equals; 0 when all are. */
static float extreme(const float *x) {
    float best = 0.0f;
    for (int i = 0; i < 32; i++) {
        if (fabsf(x[i]) > fabsf(best)) {
            best = x[i];
        }
    }
    return best;
}

static void range(const float *x, float *min, float *max) {
    *min = *max = x[0];
    for (int i = 1; i < 32; i++) {
        *min = x[i] < *min ? x[i] : *min;
        *max = x[i] > *max ? x[i] : *max;
    }
}

static void write_nibbles(uint8_t *p, const int q[32]) {
    for (int i = 0; i < 16; i++) {
        p[i] = (uint8_t)((q[i] & 15) | (q[16 + i] & 15) << 4);
    }
}

static void write_fifth_bits(uint8_t *p, const int q[32]) {
    for (int i = 0; i < 4; i++) {
        p[i] = 0;
        for (int j = 0; j < 8; j++) {
            p[i] = (uint8_t)(p[i] | (q[8 * i + j] >> 4 & 1) << j);
        }
    }
}

static void to_f32(const float *x, uint8_t *b) {
    uint32_t bits;
    memcpy(&bits, x, sizeof bits);
    write_u16(b, (uint16_t)bits);
    write_u16(b + 2, (uint16_t)(bits >> 16));
}

static void to_f16(const float *x, uint8_t *b) {
    write_u16(b, f32_to_f16(*x));
}

static void to_bf16(const float *x, uint8_t *b) {
    write_u16(b, f32_to_bf16(*x));
}

/* The extreme element gets the end of the range that reaches further: -8 of -8..7. */
static void to_q4_0(const float *x, uint8_t *b) {
    float d = extreme(x) / -8.0f, id = inverse(d);
    int q[32];
    for (int i = 0; i < 32; i++) {
        q[i] = whole(x[i] * id + 8.5f, 15);
    }
    write_u16(b, f32_to_f16(d));
    write_nibbles(b + 2, q);
}

static void to_q4_1(const float *x, uint8_t *b) {
    float min, max;
    range(x, &min, &max);
    float d = (max - min) / 15.0f, id = inverse(d);
    int q[32];
    for (int i = 0; i < 32; i++) {
        q[i] = whole((x[i] - min) * id + 0.5f, 15);
    }
    write_u16(b, f32_to_f16(d));
    write_u16(b + 2, f32_to_f16(min));
    write_nibbles(b + 4, q);
}

static void to_q5_0(const float *x, uint8_t *b) {
    float d = extreme(x) / -16.0f, id = inverse(d);
    int q[32];
    for (int i = 0; i < 32; i++) {
        q[i] = whole(x[i] * id + 16.5f, 31);
    }
    write_u16(b, f32_to_f16(d));
    write_fifth_bits(b + 2, q);
    write_nibbles(b + 6, q);
}

static void to_q5_1(const float *x, uint8_t *b) {
    float min, max;
    range(x, &min, &max);
    float d = (max - min) / 31.0f, id = inverse(d);
    int q[32];
    for (int i = 0; i < 32; i++) {
        q[i] = whole((x[i] - min) * id + 0.5f, 31);
    }
    write_u16(b, f32_to_f16(d));
    write_u16(b + 2, f32_to_f16(min));
    write_fifth_bits(b + 4, q);
    write_nibbles(b + 8, q);
}

/* Rounds half away from zero. */
static void to_q8_0(const float *x, uint8_t *b) {
    float d = fabsf(extreme(x)) / 127.0f, id = inverse(d);
    for (int i = 0; i < 32; i++) {
        float scaled = x[i] * id;
        int magnitude = whole(roundf(fabsf(scaled)), 127);
        b[2 + i] = (uint8_t)(scaled < 0.0f ? -magnitude : magnitude);
    }
    write_u16(b, f32_to_f16(d));
}

typedef void (*block_writer)(const float *x, uint8_t *block);

static const block_writer writers[N_DTYPES] = {
    [DTYPE_F32] = to_f32,   [DTYPE_F16] = to_f16,   [DTYPE_BF16] = to_bf16, [DTYPE_Q4_0] = to_q4_0,
    [DTYPE_Q4_1] = to_q4_1, [DTYPE_Q5_0] = to_q5_0, [DTYPE_Q5_1] = to_q5_1, [DTYPE_Q8_0] = to_q8_0,
};

quire_err quant_quantise(dtype t, const float *x, size_t n, void *blocks) {
    if ((unsigned)t >= N_DTYPES || writers[t] == NULL) {
        return QUIRE_UNSUPPORTED;
    }
    size_t elements = (size_t)dtype_block_elements(t), bytes = (size_t)dtype_block_bytes(t);
    if (n % elements != 0) {
        return QUIRE_INVALID;
    }
    uint8_t *b = blocks;
    for (size_t i = 0; i < n; i += elements, b += bytes) {
        writers[t](x + i, b);
    }
    return QUIRE_OK;
}
