#include "core/quant.h"

#include <string.h>

#include "core/float8.h"
#include "core/half.h"

#define GROUP 32 /* elements of a block of the formats that are not K */
#define PART  16 /* elements of which a group has one or two times as many */

const int8_t quant_iq4_values[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};

/* A block's bytes are read one by one: nothing is aligned, and the formats are little-endian whatever the machine. */
static uint16_t read_u16(const uint8_t *p) {
    return (uint16_t)(p[0] | p[1] << 8);
}

/* ---- blocks to codes ---- */

/* 16 bytes of nibbles, elements 0..15 in the low ones. */
static void split_nibbles(const uint8_t *restrict b, uint8_t *restrict q) {
    for (int i = 0; i < 16; i++) {
        q[i] = b[i] & 15;
        q[16 + i] = b[i] >> 4;
    }
}

/* 4 bytes of fifth bits, element i at bit i: the 8 bits of a byte go to 8 bytes at once, on a little-endian machine. */
static void add_fifth_bits(const uint8_t *restrict b, uint8_t *restrict q) {
    for (int i = 0; i < 4; i++) {
        uint64_t eight, bits = b[i] * 0x0101010101010101u & 0x8040201008040201u;
        memcpy(&eight, q + 8 * i, sizeof eight);
        eight |= ((bits + 0x7f7f7f7f7f7f7f7fu) & 0x8080808080808080u) >> 3;
        memcpy(q + 8 * i, &eight, sizeof eight);
    }
}

/* One block of 32. has_min: a second half follows the first. */
static void split_simple(dtype t, const uint8_t *restrict b, uint8_t *restrict q, uint16_t *d, uint16_t *m) {
    bool has_min = t == DTYPE_Q4_1 || t == DTYPE_Q5_1;
    bool five = t == DTYPE_Q5_0 || t == DTYPE_Q5_1;
    *d = read_u16(b);
    b += 2;
    *m = 0;
    if (has_min) {
        *m = read_u16(b);
        b += 2;
    }
    if (t == DTYPE_Q8_0) {
        memcpy(q, b, GROUP);
        return;
    }
    split_nibbles(five ? b + 4 : b, q);
    if (five) {
        add_fifth_bits(b, q);
    }
}

/* Two bits of 256 elements, in halves of 128: 32 bytes hold four rows of 32. */
static void split_pairs(const uint8_t *restrict b, int at_bit, uint8_t *restrict q) {
    for (int row = 0; row < 8; row++) {
        const uint8_t *from = b + 32 * (row / 4);
        for (int i = 0; i < 32; i++) {
            q[32 * row + i] = (uint8_t)(q[32 * row + i] | (from[i] >> (2 * (row % 4)) & 3) << at_bit);
        }
    }
}

/* One bit of 256 elements: bit r of byte i belongs to element i of row r. */
static void split_bits(const uint8_t *restrict b, int at_bit, uint8_t *restrict q) {
    for (int row = 0; row < 8; row++) {
        for (int i = 0; i < 32; i++) {
            q[32 * row + i] = (uint8_t)(q[32 * row + i] | (b[i] >> row & 1) << at_bit);
        }
    }
}

/* 16 bytes (scale, min: low and high nibble) of 16 elements each, 64 bytes of 2-bit values, d, dmin. The values lie in two halves of 128
 * elements: 32 bytes hold four rows of 32, two bits each. */
static void split_q2_k(const uint8_t *restrict b, quant_codes *out) {
    for (int i = 0; i < 16; i++) {
        out->scale[i] = b[i] & 15;
        out->min[i] = b[i] >> 4;
    }
    split_pairs(b + 16, 0, out->q);
    out->d[0] = read_u16(b + 80);
    out->m[0] = read_u16(b + 82);
}

/* 32 bytes of third bits (0 means: minus 4), 64 bytes of 2-bit values laid out as in Q2_K, 16 scales of 6 bits in 12 bytes, d. */
static void split_q3_k(const uint8_t *restrict b, quant_codes *out) {
    split_pairs(b + 32, 0, out->q);
    split_bits(b, 2, out->q);
    for (int i = 0; i < 16; i++) {
        int low4 = b[96 + i % 8] >> (4 * (i / 8)) & 15;
        int high2 = b[104 + i % 4] >> (2 * (i / 4)) & 3;
        out->scale[i] = (uint8_t)(low4 | high2 << 4);
    }
    out->d[0] = read_u16(b + 108);
}

/* Q4_K and Q5_K: d, dmin, 12 bytes of scales and mins, for Q5_K 32 bytes of fifth bits, 128 of nibbles: 32 bytes hold two rows of 32.
 * 8 scales and 8 mins of 6 bits in 12 bytes: 0..3 in the low bits of bytes 0..3 (mins 4..7); 4..7 in the nibbles of bytes 8..11 with their
 * top two bits in the top bits of bytes 0..3 (mins 4..7). */
static void split_q45_k(bool five, const uint8_t *restrict b, quant_codes *out) {
    const uint8_t *packed = b + 4, *nibbles = five ? b + 48 : b + 16;
    out->d[0] = read_u16(b);
    out->m[0] = read_u16(b + 2);
    for (int i = 0; i < 8; i++) {
        if (i < 4) {
            out->scale[i] = packed[i] & 63;
            out->min[i] = packed[4 + i] & 63;
        } else {
            out->scale[i] = (uint8_t)((packed[4 + i] & 15) | (packed[i - 4] >> 6) << 4);
            out->min[i] = (uint8_t)(packed[4 + i] >> 4 | (packed[i] >> 6) << 4);
        }
    }
    for (int row = 0; row < 8; row++) {
        for (int i = 0; i < 32; i++) {
            out->q[32 * row + i] = nibbles[32 * (row / 2) + i] >> (4 * (row % 2)) & 15;
        }
    }
    if (five) {
        split_bits(b + 16, 4, out->q);
    }
}

/* 128 bytes of low nibbles, 64 of two high bits, 16 scales of 8 bits, d. In each half of 128 elements rows 0 and 2 share 32 bytes of
 * nibbles, rows 1 and 3 the next 32; the four rows share 32 bytes of high bits. */
static void split_q6_k(const uint8_t *restrict b, quant_codes *out) {
    for (int row = 0; row < 8; row++) {
        const uint8_t *low = b + 64 * (row / 4) + 32 * (row % 2);
        for (int i = 0; i < 32; i++) {
            out->q[32 * row + i] = low[i] >> (4 * (row % 4 / 2)) & 15;
        }
    }
    split_pairs(b + 128, 4, out->q);
    memcpy(out->scale, b + 192, 16);
    out->d[0] = read_u16(b + 208);
}

void quant_split(dtype t, const uint8_t *blocks, size_t n, quant_codes *out) {
    memset(out, 0, sizeof *out);
    switch (t) {
    case DTYPE_Q2_K:
        split_q2_k(blocks, out);
        break;
    case DTYPE_Q3_K:
        split_q3_k(blocks, out);
        break;
    case DTYPE_Q4_K:
    case DTYPE_Q5_K:
        split_q45_k(t == DTYPE_Q5_K, blocks, out);
        break;
    case DTYPE_Q6_K:
        split_q6_k(blocks, out);
        break;
    default:
        for (size_t g = 0; g < n / GROUP; g++, blocks += dtype_block_bytes(t)) {
            split_simple(t, blocks, out->q + g * GROUP, &out->d[g], &out->m[g]);
        }
    }
}

/* ---- codes to values ---- */

static const quant_format formats[N_DTYPES] = {
#define GROUP_FORMAT(name, group, bits, zero, scale) [DTYPE_##name] = {group, bits, zero, scale},
    QUANT_LIST(GROUP_FORMAT)
#undef GROUP_FORMAT
};

/* The scale and min of group g. */
static void group_scale(const quant_codes *c, quant_scale coding, size_t g, float *scale, float *min) {
    bool halves = coding == SCALE_F16 || coding == SCALE_F16_MIN;
    int code = coding == SCALE_EIGHT ? (int8_t)c->scale[g] : coding == SCALE_SIX ? c->scale[g] - 32 : c->scale[g];
    *scale = f16_to_f32(c->d[halves ? g : 0]) * (halves ? 1.0f : (float)code);
    *min = f16_to_f32(c->m[halves ? g : 0]) * (halves ? 1.0f : (float)c->min[g]);
}

/* Every value is (d * scale) * q - (dmin * min), with each product and difference rounded: the order that gguf-py and ggml's C share.
 * PART elements at a time, so that the compiler vectorises the loops. Changes *c. */
static void values_of(dtype t, quant_codes *c, size_t n, float *restrict out) {
    const quant_format f = formats[t];
    float scale = 0.0f, min = 0.0f;
    for (size_t i = 0; t == DTYPE_IQ4_NL && i < n; i++) {
        c->q[i] = (uint8_t)quant_iq4_values[c->q[i]];
    }
    for (size_t at = 0; at < n; at += PART, out += PART) {
        const uint8_t *q = c->q + at;
        if (at % (size_t)f.group == 0) {
            group_scale(c, f.coding, at / (size_t)f.group, &scale, &min);
        }
        for (int i = 0; i < PART; i++) {
            out[i] = scale * (float)(int8_t)(q[i] - f.zero);
        }
        if (f.coding == SCALE_F16_MIN) {
            for (int i = 0; i < PART; i++) {
                out[i] = out[i] + min;
            }
        } else if (f.coding == SCALE_FOUR || f.coding == SCALE_SIX_MIN) {
            for (int i = 0; i < PART; i++) {
                out[i] = out[i] - min;
            }
        }
    }
}

quire_err quant_dequantise(dtype t, const void *blocks, size_t n, float *out) {
    const uint8_t *b = blocks;
    if (t == DTYPE_F32) {
        memcpy(out, b, n * sizeof *out);
        return QUIRE_OK;
    }
    if (t == DTYPE_F16 || t == DTYPE_BF16) {
        for (size_t i = 0; i < n; i++) {
            out[i] = t == DTYPE_F16 ? f16_to_f32(read_u16(b + 2 * i)) : bf16_to_f32(read_u16(b + 2 * i));
        }
        return QUIRE_OK;
    }
    if (t == DTYPE_F8_E4M3 || t == DTYPE_F8_E8M0) {
        for (size_t i = 0; i < n; i++) {
            out[i] = t == DTYPE_F8_E4M3 ? e4m3_to_f32(b[i]) : e8m0_to_f32(b[i]);
        }
        return QUIRE_OK;
    }
    if ((unsigned)t >= N_DTYPES || !dtype_is_quantised(t)) {
        return QUIRE_UNSUPPORTED;
    }
    size_t elements = (size_t)dtype_block_elements(t), bytes = (size_t)dtype_block_bytes(t);
    if (n % elements != 0) {
        return QUIRE_INVALID;
    }
    for (size_t i = 0; i < n; i += QUANT_SUPER) {
        size_t n_now = n - i < QUANT_SUPER ? n - i : QUANT_SUPER;
        quant_codes codes;
        quant_split(t, b + i / elements * bytes, n_now, &codes);
        values_of(t, &codes, n_now, out + i);
    }
    return QUIRE_OK;
}
