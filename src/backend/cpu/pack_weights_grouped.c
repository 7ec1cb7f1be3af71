#include "backend/cpu/pack_weights_grouped.h"

#include <string.h>

#define QUADS       8
#define PLANE_WORDS 16 /* 64 bytes */

static uint16_t read_u16(const uint8_t *p) {
    return (uint16_t)(p[0] | p[1] << 8);
}

/* ---- file blocks to codes: the formats are described in core/quant.c ---- */

/* 16 bytes of nibbles, elements 0..15 in the low ones. */
static void split_nibbles(const uint8_t *b, uint8_t *q) {
    for (int i = 0; i < 16; i++) {
        q[i] = b[i] & 15;
        q[16 + i] = b[i] >> 4;
    }
}

/* 4 bytes of fifth bits, element i at bit i. */
static void add_fifth_bits(const uint8_t *b, uint8_t *q) {
    for (int i = 0; i < 32; i++) {
        q[i] = (uint8_t)(q[i] | (b[i / 8] >> (i % 8) & 1) << 4);
    }
}

/* One block of 32. has_min: a second half follows the first. */
static void split_simple(pack_kind kind, const uint8_t *b, uint8_t *q, uint16_t *d, uint16_t *m) {
    bool has_min = kind == PACK_Q4_1 || kind == PACK_Q5_1;
    bool five = kind == PACK_Q5_0 || kind == PACK_Q5_1;
    *d = read_u16(b);
    b += 2;
    *m = 0;
    if (has_min) {
        *m = read_u16(b);
        b += 2;
    }
    if (kind == PACK_Q8_0) {
        memcpy(q, b, PACK_GROUP);
        return;
    }
    split_nibbles(five ? b + 4 : b, q);
    if (five) {
        add_fifth_bits(b, q);
    }
}

/* Two bits of 256 elements, in halves of 128: 32 bytes hold four rows of 32. */
static void split_pairs(const uint8_t *b, int at_bit, uint8_t *q) {
    for (int row = 0; row < 8; row++) {
        const uint8_t *from = b + 32 * (row / 4);
        for (int i = 0; i < 32; i++) {
            q[32 * row + i] = (uint8_t)(q[32 * row + i] | (from[i] >> (2 * (row % 4)) & 3) << at_bit);
        }
    }
}

/* One bit of 256 elements: bit r of byte i belongs to element i of row r. */
static void split_bits(const uint8_t *b, int at_bit, uint8_t *q) {
    for (int row = 0; row < 8; row++) {
        for (int i = 0; i < 32; i++) {
            q[32 * row + i] = (uint8_t)(q[32 * row + i] | (b[i] >> row & 1) << at_bit);
        }
    }
}

static void split_q2_k(const uint8_t *b, pack_codes *out) {
    for (int i = 0; i < 16; i++) {
        out->scale[i] = b[i] & 15;
        out->min[i] = b[i] >> 4;
    }
    split_pairs(b + 16, 0, out->q);
    out->d[0] = read_u16(b + 80);
    out->m[0] = read_u16(b + 82);
}

static void split_q3_k(const uint8_t *b, pack_codes *out) {
    split_pairs(b + 32, 0, out->q);
    split_bits(b, 2, out->q);
    for (int i = 0; i < 16; i++) {
        int low4 = b[96 + i % 8] >> (4 * (i / 8)) & 15;
        int high2 = b[104 + i % 4] >> (2 * (i / 4)) & 3;
        out->scale[i] = (uint8_t)(low4 | high2 << 4);
    }
    out->d[0] = read_u16(b + 108);
}

/* Q4_K and Q5_K: d, dmin, 12 bytes of scales and mins, for Q5_K 32 bytes of fifth bits, 128 of nibbles: 32 bytes hold two rows of 32. */
static void split_q45_k(bool five, const uint8_t *b, pack_codes *out) {
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

static void split_q6_k(const uint8_t *b, pack_codes *out) {
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

void pack_split(pack_kind kind, const uint8_t *blocks, int32_t n, pack_codes *out) {
    memset(out, 0, sizeof *out);
    switch (kind) {
    case PACK_Q2_K:
        split_q2_k(blocks, out);
        break;
    case PACK_Q3_K:
        split_q3_k(blocks, out);
        break;
    case PACK_Q4_K:
    case PACK_Q5_K:
        split_q45_k(kind == PACK_Q5_K, blocks, out);
        break;
    case PACK_Q6_K:
        split_q6_k(blocks, out);
        break;
    default: {
        size_t bytes = kind == PACK_Q8_0 ? 34 : kind == PACK_Q5_1 ? 24 : kind == PACK_Q5_0 ? 22 : kind == PACK_Q4_1 ? 20 : 18;
        for (int32_t g = 0; g < n / PACK_GROUP; g++) {
            split_simple(kind, blocks + (size_t)g * bytes, out->q + g * PACK_GROUP, &out->d[g], &out->m[g]);
        }
    }
    }
}

/* ---- codes to planes ---- */

static int kind_bits(pack_kind kind) {
    switch (kind) {
#define PACK_BITS(name, group, bits, zero, scale)                                                                                          \
    case PACK_##name:                                                                                                                      \
        return bits;
        PACK_GROUPED_LIST(PACK_BITS)
#undef PACK_BITS
    default:
        return 0;
    }
}

/* Packs the planes of one group. A word holds one column's four bytes of a quad; all its bytes are shifted together. */
static void join_planes(int bits, const pack_codes columns[PACK_LANES], int32_t at, uint8_t *out) {
    uint32_t planes[QUADS * PLANE_WORDS] = {0};
    int n_planes = bits == 8 ? 8 : (bits >= 4 ? 4 : 0) + (bits == 2 || bits == 3 || bits == 6 ? 2 : 0) + (bits == 3 || bits == 5 ? 1 : 0);
    int pairs_at = bits == 6 ? 4 : 0, bits_at = bits == 5 ? 4 : 2;
    for (int c = 0; c < PACK_LANES; c++) {
        uint32_t quads[QUADS];
        memcpy(quads, columns[c].q + at, sizeof quads);
        uint32_t *p = planes + c;
        for (int t = 0; t < QUADS; t++) {
            uint32_t *plane = p;
            if (bits == 8) {
                plane[t * PLANE_WORDS] = quads[t];
                continue;
            }
            if (bits >= 4) {
                plane[t % 4 * PLANE_WORDS] |= (quads[t] & 0x0f0f0f0fu) << (4 * (t / 4));
                plane += 4 * PLANE_WORDS;
            }
            if (bits == 2 || bits == 3 || bits == 6) {
                plane[t / 4 * PLANE_WORDS] |= (quads[t] >> pairs_at & 0x03030303u) << (2 * (t % 4));
                plane += 2 * PLANE_WORDS;
            }
            if (bits == 3 || bits == 5) {
                plane[0] |= (quads[t] >> bits_at & 0x01010101u) << t;
            }
        }
    }
    memcpy(out, planes, (size_t)n_planes * PLANE_WORDS * sizeof planes[0]);
}

static void write_half(uint8_t *area, size_t index, uint16_t value) {
    memcpy(area + 2 * index, &value, sizeof value);
}

/* Writes four numbers of 6 bits for column c into three bytes. */
static void write_six(uint8_t *area, int c, const uint8_t n[4]) {
    for (int i = 0; i < 3; i++) {
        area[i * PACK_LANES + c] = (uint8_t)(n[i] | (n[3] >> (2 * i) & 3) << 6);
    }
}

/* Writes the scales of column c over elements k0..k0+n into the areas for scales and supers. */
static void join_scales(pack_scale coding, const pack_codes *codes, int c, int32_t k0, int32_t n, uint8_t *scales, uint8_t *supers) {
    size_t group0 = (size_t)k0 / PACK_GROUP, super = (size_t)k0 / PACK_SUPER, lane = (size_t)c;
    for (int32_t g = 0; g < n / PACK_GROUP && (coding == SCALE_F16 || coding == SCALE_F16_MIN); g++) {
        size_t row = (group0 + (size_t)g) * (coding == SCALE_F16 ? 1 : 2);
        write_half(scales, row * PACK_LANES + lane, codes->d[g]);
        if (coding == SCALE_F16_MIN) {
            write_half(scales, (row + 1) * PACK_LANES + lane, codes->m[g]);
        }
    }
    for (int p = 0; p < 4 && (coding == SCALE_SIX || coding == SCALE_SIX_MIN); p++) {
        const uint8_t *s = codes->scale, *m = codes->min;
        const uint8_t with_mins[4] = {s[2 * p], s[2 * p + 1], m[2 * p], m[2 * p + 1]};
        write_six(scales + (super * 4 + (size_t)p) * 3 * PACK_LANES, c, coding == SCALE_SIX ? s + 4 * p : with_mins);
    }
    for (size_t i = 0; i < 16 && (coding == SCALE_FOUR || coding == SCALE_EIGHT); i++) {
        uint8_t code = coding == SCALE_FOUR ? (uint8_t)(codes->scale[i] | codes->min[i] << 4) : codes->scale[i];
        scales[(super * 16 + i) * PACK_LANES + lane] = code;
    }
    if (coding == SCALE_FOUR || coding == SCALE_SIX_MIN) {
        write_half(supers, 2 * super * PACK_LANES + lane, codes->d[0]);
        write_half(supers, (2 * super + 1) * PACK_LANES + lane, codes->m[0]);
    } else if (coding == SCALE_SIX || coding == SCALE_EIGHT) {
        write_half(supers, super * PACK_LANES + lane, codes->d[0]);
    }
}

void pack_join(const pack_layout *plan, const pack_codes columns[PACK_LANES], int32_t k0, int32_t n, uint8_t *block) {
    static const pack_scale codings[N_PACKS] = {
#define PACK_CODING(name, group, bits, zero, scale) [PACK_##name] = scale,
        PACK_GROUPED_LIST(PACK_CODING)
#undef PACK_CODING
    };
    int bits = kind_bits(plan->kind);
    size_t group_bytes = (size_t)bits * PACK_GROUP * PACK_LANES / 8;
    for (int32_t at = 0; at < n; at += PACK_GROUP) {
        join_planes(bits, columns, at, block + (size_t)(k0 + at) / PACK_GROUP * group_bytes);
    }
    for (int c = 0; c < PACK_LANES; c++) {
        join_scales(codings[plan->kind], &columns[c], c, k0, n, block + plan->scales_at, block + plan->supers_at);
    }
}
