#include "core/quantise.h"

#include <math.h>
#include <string.h>

#include "core/half.h"

/* ---- types with the bits of ggml's reference quantiser ---- */

/* x truncated to an integer in 0..max; NaN gives 0. */
static int whole(float x, int max) {
    if (!(x >= 0.0f)) {
        return 0;
    }
    return x >= (float)max ? max : (int)x;
}

static float inverse(float d) {
    return d != 0.0f ? 1.0f / d : 0.0f;
}

/* The element of greatest magnitude, the first of several; 0 if all are 0. */
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
    quant_put_u16(b, (uint16_t)bits);
    quant_put_u16(b + 2, (uint16_t)(bits >> 16));
}

static void to_f16(const float *x, uint8_t *b) {
    quant_put_u16(b, f32_to_f16(*x));
}

static void to_bf16(const float *x, uint8_t *b) {
    quant_put_u16(b, f32_to_bf16(*x));
}

/* Blocks of 32 with a scale, and optionally the smallest element and a fifth bit of the
 * codes. Without the former, the extreme element maps to the longer end of the range: -8
 * in -8..7. */
static void to_simple(const float *x, bool has_min, bool has_fifth, uint8_t *b) {
    const int most = has_fifth ? 31 : 15;
    float min = 0.0f, max;
    int q[32];
    if (has_min) {
        range(x, &min, &max);
    }
    const float d = has_min ? (max - min) / (float)most : extreme(x) / -(float)(most / 2 + 1);
    const float id = inverse(d), middle = has_min ? 0.5f : (float)(most / 2) + 1.5f;
    for (int i = 0; i < 32; i++) {
        q[i] = whole((x[i] - min) * id + middle, most);
    }
    quant_put_u16(b, f32_to_f16(d));
    b += 2;
    if (has_min) {
        quant_put_u16(b, f32_to_f16(min));
        b += 2;
    }
    if (has_fifth) {
        write_fifth_bits(b, q);
        b += 4;
    }
    quant_put_nibbles(b, q);
}

static void to_q4_0(const float *x, uint8_t *b) {
    to_simple(x, false, false, b);
}

static void to_q4_1(const float *x, uint8_t *b) {
    to_simple(x, true, false, b);
}

static void to_q5_0(const float *x, uint8_t *b) {
    to_simple(x, false, true, b);
}

static void to_q5_1(const float *x, uint8_t *b) {
    to_simple(x, true, true, b);
}

/* Rounds half away from zero. */
static void to_q8_0(const float *x, uint8_t *b) {
    float d = fabsf(extreme(x)) / 127.0f, id = inverse(d);
    for (int i = 0; i < 32; i++) {
        float scaled = x[i] * id;
        int magnitude = whole(roundf(fabsf(scaled)), 127);
        b[2 + i] = (uint8_t)(scaled < 0.0f ? -magnitude : magnitude);
    }
    quant_put_u16(b, f32_to_f16(d));
}

/* The exponent puts the extreme element between 4 and 8, since E2M1's two largest numbers
 * are 4 and 6. Elements get the nearest code, in a tie the lower one: the code of a
 * magnitude is the number of midpoints below it. */
static void to_mxfp4(const float *x, uint8_t *b) {
    static const float middles[7] = {0.5f, 1.5f, 2.5f, 3.5f, 5.0f, 7.0f, 10.0f};
    const float largest = fabsf(extreme(x));
    const int exponent = largest > 0x1p-125f ? (largest < INFINITY ? ilogbf(largest) : 127) - 2 + 127 : 0;
    const float d = ldexpf(1.0f, exponent - 128);
    int q[32];
    for (int i = 0; i < 32; i++) {
        q[i] = 0;
        for (int c = 0; c < 7; c++) {
            q[i] += fabsf(x[i]) > d * middles[c];
        }
        q[i] |= x[i] < 0.0f && q[i] > 0 ? 8 : 0;
    }
    b[0] = (uint8_t)exponent;
    quant_put_nibbles(b + 1, q);
}

/* Rounds 256 elements to -1..1, halves away from zero, stored as digits 0..2. Returns
 * their scale. */
static uint16_t ternary(const float *x, uint8_t q[256]) {
    float d = 0.0f;
    for (int i = 0; i < 256; i++) {
        d = fabsf(x[i]) > d ? fabsf(x[i]) : d;
    }
    for (int i = 0; i < 256; i++) {
        const int one = whole(roundf(fabsf(x[i] * inverse(d))), 1);
        q[i] = (uint8_t)(x[i] < 0.0f ? 1 - one : 1 + one);
    }
    return f32_to_f16(d);
}

/* Writes n bytes of `digits` ternary digits: each byte is the least fraction of 256 that
 * begins with these digits in base 3. */
static void write_digits(uint8_t *p, const uint8_t *q, int n, int digits) {
    for (int i = 0; i < n; i++) {
        int number = 0;
        for (int r = 0; r < 5; r++) {
            number = 3 * number + (r < digits ? q[r * n + i] : 0);
        }
        p[i] = (uint8_t)((number * 256 + 242) / 243);
    }
}

static void to_tq1_0(const float *x, uint8_t *b) {
    uint8_t q[256];
    quant_put_u16(b + 52, ternary(x, q));
    write_digits(b, q, 32, 5);
    write_digits(b + 32, q + 160, 16, 5);
    write_digits(b + 48, q + 240, 4, 4);
}

static void to_tq2_0(const float *x, uint8_t *b) {
    uint8_t q[256];
    quant_put_u16(b + 64, ternary(x, q));
    for (int i = 0; i < 64; i++) {
        const uint8_t *from = q + i / 32 * 128 + i % 32;
        b[i] = (uint8_t)(from[0] | from[32] << 2 | from[64] << 4 | from[96] << 6);
    }
}

/* ---- all types ---- */

typedef void block_writer(const float *x, uint8_t *block);

static block_writer *const writers[N_DTYPES] = {
    [DTYPE_F32] = to_f32,
    [DTYPE_F16] = to_f16,
    [DTYPE_BF16] = to_bf16,
    [DTYPE_Q4_0] = to_q4_0,
    [DTYPE_Q4_1] = to_q4_1,
    [DTYPE_Q5_0] = to_q5_0,
    [DTYPE_Q5_1] = to_q5_1,
    [DTYPE_Q8_0] = to_q8_0,
    [DTYPE_Q4_K] = quant_to_q4_k,
    [DTYPE_Q5_K] = quant_to_q5_k,
    [DTYPE_Q6_K] = quant_to_q6_k,
    [DTYPE_IQ4_NL] = quant_to_iq4_nl,
    [DTYPE_IQ4_XS] = quant_to_iq4_xs,
    [DTYPE_MXFP4] = to_mxfp4,
    [DTYPE_TQ1_0] = to_tq1_0,
    [DTYPE_TQ2_0] = to_tq2_0,
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
