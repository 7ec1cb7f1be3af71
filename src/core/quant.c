#include "core/quant.h"

#include <assert.h>
#include <string.h>

#include "core/half.h"
#include "core/quant_parts.h"

#define PART 16 /* elements per pass: half a group of 32, or a group of 16 */

const quant_format quant_formats[N_FORMS] = {
#define FORM_FORMAT(name, group, bits, table, zero, dot, scale, run)                                         \
    [FORM_##name] = {group, bits, table, zero, dot, scale, run},
    FORM_LIST(FORM_FORMAT)
#undef FORM_FORMAT
};

const int8_t quant_tables[N_TABLES][16] = {
    [TABLE_IQ4] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113},
    [TABLE_E2M1] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12},
    [TABLE_IQ1] = {-7, 1, 9, 0, -9, -1, 7},
    [TABLE_IQ2] = {8, 25, 43, 0, -8, -25, -43},
    [TABLE_IQ3_XXS] = {2, 6, 10, 14, 18, 22, 26, 31, -2, -6, -10, -14, -18, -22, -26, -31},
    [TABLE_IQ3_S] = {1, 3, 5, 7, 9, 11, 13, 15, -1, -3, -5, -7, -9, -11, -13, -15},
};

const quant_rule *quant_rule_of(dtype t) {
    static const quant_rule rules[N_DTYPES] = {
#define TYPE_RULE(type, form_, table_, unit_, shift_)                                                        \
    [DTYPE_##type] = {.form = FORM_##form_, .table = TABLE_##table_, .unit = unit_, .shift = shift_},
        QUANT_LIST(TYPE_RULE)
#undef TYPE_RULE
    };
    return (unsigned)t < N_DTYPES && rules[t].unit > 0.0f ? &rules[t] : NULL;
}

/* ---- blocks to codes ---- */

/* ORs fifth bits into codes: element i at bit i of 4 bytes. Spreads the 8 bits of a byte
 * to 8 bytes at once, on a little-endian machine. */
static void add_fifth_bits(const uint8_t *restrict b, uint8_t *restrict q) {
    for (int i = 0; i < 4; i++) {
        uint64_t eight, bits = b[i] * 0x0101010101010101u & 0x8040201008040201u;
        memcpy(&eight, q + 8 * i, sizeof eight);
        eight |= ((bits + 0x7f7f7f7f7f7f7f7fu) & 0x8080808080808080u) >> 3;
        memcpy(q + 8 * i, &eight, sizeof eight);
    }
}

/* A block of 32 elements: scale, min if it has one (16-bit floats), fifth bits,
 * nibbles. */
static inline void split_simple(bool has_min, bool five, const uint8_t *restrict b, int at,
                                quant_codes *restrict out) {
    out->d[at / QUANT_GROUP] = quant_u16(b);
    if (has_min) {
        out->m[at / QUANT_GROUP] = quant_u16(b + 2);
    }
    b += has_min ? 4 : 2;
    quant_split_nibbles(five ? b + 4 : b, 16, out->q + at);
    if (five) {
        add_fifth_bits(b, out->q + at);
    }
}

void quant_split_q4_0(const uint8_t *b, int at, quant_codes *out) {
    split_simple(false, false, b, at, out);
}

void quant_split_q4_1(const uint8_t *b, int at, quant_codes *out) {
    split_simple(true, false, b, at, out);
}

void quant_split_q5_0(const uint8_t *b, int at, quant_codes *out) {
    split_simple(false, true, b, at, out);
}

void quant_split_q5_1(const uint8_t *b, int at, quant_codes *out) {
    split_simple(true, true, b, at, out);
}

void quant_split_q8_0(const uint8_t *b, int at, quant_codes *out) {
    assert(out != NULL);
    out->d[at / QUANT_GROUP] = quant_u16(b);
    memcpy(out->q + at, b + 2, QUANT_GROUP);
}

void quant_split(dtype t, const uint8_t *blocks, size_t n, quant_codes *out) {
    assert(n <= QUANT_SUPER);
    static quant_splitter *const splitters[N_DTYPES] = {
        [DTYPE_Q4_0] = quant_split_q4_0,       [DTYPE_Q4_1] = quant_split_q4_1,
        [DTYPE_Q5_0] = quant_split_q5_0,       [DTYPE_Q5_1] = quant_split_q5_1,
        [DTYPE_Q8_0] = quant_split_q8_0,       [DTYPE_IQ4_NL] = quant_split_q4_0,
        [DTYPE_Q2_K] = quant_split_q2_k,       [DTYPE_Q3_K] = quant_split_q3_k,
        [DTYPE_Q4_K] = quant_split_q4_k,       [DTYPE_Q5_K] = quant_split_q5_k,
        [DTYPE_Q6_K] = quant_split_q6_k,       [DTYPE_IQ4_XS] = quant_split_iq4_xs,
        [DTYPE_MXFP4] = quant_split_mxfp4,     [DTYPE_NVFP4] = quant_split_nvfp4,
        [DTYPE_TQ1_0] = quant_split_tq1_0,     [DTYPE_TQ2_0] = quant_split_tq2_0,
        [DTYPE_IQ3_S] = quant_split_iq3_s,     [DTYPE_IQ3_XXS] = quant_split_iq3_xxs,
        [DTYPE_IQ2_S] = quant_split_iq2_s,     [DTYPE_IQ2_XS] = quant_split_iq2_xs,
        [DTYPE_IQ2_XXS] = quant_split_iq2_xxs, [DTYPE_IQ1_M] = quant_split_iq1_m,
        [DTYPE_IQ1_S] = quant_split_iq1_s,     [DTYPE_Q2_0] = quant_split_q2_0,
        [DTYPE_Q1_0] = quant_split_q1_0,
    };
    memset(out, 0, sizeof *out);
    for (size_t at = 0; at < n; at += (size_t)dtype_block_elements(t), blocks += dtype_block_bytes(t)) {
        splitters[t](blocks, (int)at, out);
    }
}

/* ---- codes to values ---- */

/* The scale of the group that begins at element `at`. */
static float scale_at(const quant_rule *rule, const quant_codes *c, size_t at) {
    const quant_format *f = &quant_formats[rule->form];
    const uint8_t code = c->scale[at / (size_t)f->group];
    switch (f->coding) {
    case SCALE_FOUR:
    case SCALE_SIX_MIN:
        return f16_to_f32(c->d[0]) * (float)code;
    case SCALE_SIX:
        return f16_to_f32(c->d[0]) * (float)(code - 32);
    case SCALE_EIGHT:
        return f16_to_f32(c->d[0]) * (float)(int8_t)code;
    case SCALE_ODD:
    case SCALE_ODD_SPARE:
        return f16_to_f32(c->d[0]) * rule->unit * (float)(2 * code + 1);
    case SCALE_E8M0:
        return float_of_bits(code < 2 ? 0x00200000u << code : (uint32_t)(code - 1) << 23);
    case SCALE_E4M3:
        return float_of_bits((uint32_t)code << 20) * 0x1p119f;
    default:
        return f16_to_f32(c->d[at / QUANT_GROUP]);
    }
}

/* The group's min, signed as it is added; *is_there: whether the form has mins. */
static float min_at(const quant_rule *rule, const quant_codes *c, size_t at, bool *is_there) {
    const quant_format *f = &quant_formats[rule->form];
    *is_there = f->coding == SCALE_F16_MIN || f->coding == SCALE_FOUR || f->coding == SCALE_SIX_MIN;
    if (f->coding == SCALE_F16_MIN) {
        return f16_to_f32(c->m[at / QUANT_GROUP]);
    }
    return -(f16_to_f32(c->m[0]) * (float)c->min[at / (size_t)f->group]);
}

/* The numbers (code - zero, or the table's) of PART codes. */
static inline void numbers_at(const quant_rule *rule, const quant_codes *c, size_t at, int16_t out[PART]) {
    const quant_format *f = &quant_formats[rule->form];
    const uint8_t *q = c->q + at;
    const int8_t *table = quant_tables[rule->table];
    const uint8_t stored = c->zero[at / QUANT_GROUP];
    const int zero =
        f->coding == SCALE_F16_ZERO ? (f->bits == 8 ? (int8_t)stored : stored) + rule->least : f->zero;
    if (f->has_table) {
        for (int i = 0; i < PART; i++) {
            out[i] = table[q[i] & 15];
        }
    } else if (f->bits == 8) {
        for (int i = 0; i < PART; i++) {
            out[i] = (int16_t)((int8_t)q[i] - zero);
        }
    } else {
        for (int i = 0; i < PART; i++) {
            out[i] = (int16_t)(q[i] - zero);
        }
    }
}

/* Every value is (d * scale) * number - (dmin * min), with each product and the
 * difference rounded, in the order of gguf-py and ggml's C. PART elements per pass, so
 * that the compiler vectorises the loops. */
void quant_values(const quant_rule *rule, const quant_codes *c, size_t n, float *restrict out) {
    assert(n % 16 == 0 && n <= QUANT_SUPER);
    for (size_t at = 0; at < n; at += PART, out += PART) {
        int16_t numbers[PART];
        bool has_min;
        const float scale = scale_at(rule, c, at), min = min_at(rule, c, at, &has_min);
        numbers_at(rule, c, at, numbers);
        for (int i = 0; i < PART; i++) {
            out[i] = scale * (float)numbers[i];
        }
        for (int i = 0; i < PART && has_min; i++) {
            out[i] = out[i] + min;
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
            out[i] = t == DTYPE_F16 ? f16_to_f32(quant_u16(b + 2 * i)) : bf16_to_f32(quant_u16(b + 2 * i));
        }
        return QUIRE_OK;
    }
    if (t == DTYPE_F8_E4M3 || t == DTYPE_F8_E8M0) {
        for (size_t i = 0; i < n; i++) {
            out[i] = t == DTYPE_F8_E4M3 ? e4m3_to_f32(b[i]) : e8m0_to_f32(b[i]);
        }
        return QUIRE_OK;
    }
    const quant_rule *rule = quant_rule_of(t);
    if (rule == NULL) {
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
        quant_values(rule, &codes, n_now, out + i);
    }
    return QUIRE_OK;
}

void quant_words_read(const quant_words *w, size_t i, size_t n, uint8_t *out) {
    assert(w != NULL);
    size_t at = i * w->bits, index = at / w->used;
    uint32_t skipped = (uint32_t)(at % w->used), left = 0, bits = w->bits, mask = (1u << bits) - 1;
    uint64_t have = 0;
    for (size_t k = 0; k < n; k++) {
        while (left < bits) { /* twice if the first code straddles two words */
            uint64_t word = quant_word(w->words, index * w->stride) & UINT32_MAX >> (32 - w->used);
            have |= word >> skipped << left;
            left += w->used - skipped;
            skipped = 0;
            index++;
        }
        out[k] = (uint8_t)(have & mask);
        have >>= bits;
        left -= bits;
    }
}

/* Splits blocks of E2M1 numbers (MXFP4, NVFP4) and of codes of up to two bits (TQ, Q2_0,
 * Q1_0). */

/* A block of 32 elements: 1 byte of scale, 16 of nibbles. */
void quant_split_mxfp4(const uint8_t *b, int at, quant_codes *out) {
    assert(out != NULL);
    out->scale[at / QUANT_GROUP] = b[0];
    quant_split_nibbles(b + 1, 16, out->q + at);
}

/* A block of 64 elements: 4 bytes of scales, then 8 bytes of nibbles for every 16
 * elements. A scale's top bit is ignored; a scale of all ones means 0. */
void quant_split_nvfp4(const uint8_t *b, int at, quant_codes *out) {
    for (int g = 0; g < 4; g++) {
        out->scale[at / 16 + g] = b[g] == 0x7f ? 0 : b[g] & 0x7f;
        quant_split_nibbles(b + 4 + 8 * g, 8, out->q + at + 16 * g);
    }
}

/* Sets the scale d and zero 1 for n elements, whose codes 0..2 then stand for -1..1. */
static void set_half(uint16_t d, int at, int n, quant_codes *out) {
    for (int g = at / QUANT_GROUP; g < (at + n) / QUANT_GROUP; g++) {
        out->d[g] = d;
        out->zero[g] = 1;
    }
}

/* n bytes of `digits` ternary digits: digit r of byte i is element r * n + i. Byte / 256
 * is a fraction whose first digits in base 3 these are, so the carry of three times the
 * byte is the next digit. */
static void split_digits(const uint8_t *restrict b, int n, int digits, uint8_t *restrict q) {
    for (int i = 0; i < n; i++) {
        unsigned fraction = b[i];
        for (int r = 0; r < digits; r++) {
            q[r * n + i] = (uint8_t)(fraction * 3 >> 8);
            fraction = fraction * 3 & 255;
        }
    }
}

/* A block: 32 bytes of 5 digits, 16 of 5, 4 of 4, then d. */
void quant_split_tq1_0(const uint8_t *b, int at, quant_codes *out) {
    assert(out != NULL);
    split_digits(b, 32, 5, out->q);
    split_digits(b + 32, 16, 5, out->q + 160);
    split_digits(b + 48, 4, 4, out->q + 240);
    set_half(quant_u16(b + 52), at, QUANT_SUPER, out);
}

/* Two bits for each of 256 elements, ORed into q at bit at_bit. The block has halves of
 * 128 elements; its 32 bytes hold four rows of 32. */
static void quant_split_pairs(const uint8_t *restrict b, int at_bit, uint8_t *restrict q) {
    for (int row = 0; row < 8; row++) {
        const uint8_t *from = b + 32 * (row / 4);
        for (int i = 0; i < 32; i++) {
            q[32 * row + i] = (uint8_t)(q[32 * row + i] | (from[i] >> (2 * (row % 4)) & 3) << at_bit);
        }
    }
}

/* A block: 64 bytes of 2-bit codes, then d. Code 3, never written, means 2. */
void quant_split_tq2_0(const uint8_t *b, int at, quant_codes *out) {
    assert(out != NULL);
    quant_split_pairs(b, 0, out->q);
    set_half(quant_u16(b + 64), at, QUANT_SUPER, out);
}

/* A block of 64 elements: d, 16 bytes of 2-bit codes for -1..2, lowest first. */
void quant_split_q2_0(const uint8_t *b, int at, quant_codes *out) {
    for (int i = 0; i < 64; i++) {
        out->q[at + i] = b[2 + i / 4] >> 2 * (i % 4) & 3;
    }
    set_half(quant_u16(b), at, 64, out);
}

/* A block of 128 elements: d, 16 bytes of bits, lowest first, that stand for -1 and 1. */
void quant_split_q1_0(const uint8_t *b, int at, quant_codes *out) {
    for (int i = 0; i < 128; i++) {
        out->q[at + i] = (uint8_t)(2 * (b[2 + i / 8] >> i % 8 & 1));
    }
    set_half(quant_u16(b), at, 128, out);
}

/* ---- K types, and IQ4_XS ---- */

/* Splits the types of 256 elements without a grid: K types and IQ4_XS. */

/* One bit for each of 256 elements, ORed into q at bit at_bit: bit r of byte i belongs to
 * element i of row r. */
static void split_bits(const uint8_t *restrict b, int at_bit, uint8_t *restrict q) {
    for (int row = 0; row < 8; row++) {
        for (int i = 0; i < 32; i++) {
            q[32 * row + i] = (uint8_t)(q[32 * row + i] | (b[i] >> row & 1) << at_bit);
        }
    }
}

/* A block: 16 bytes, each with the scale (low nibble) and min (high) of 16 elements; 64
 * bytes of 2-bit codes; d, dmin. The codes are in two halves of 128 elements, whose 32
 * bytes hold four rows of 32. */
void quant_split_q2_k(const uint8_t *b, int at, quant_codes *out) {
    (void)at;
    for (int i = 0; i < 16; i++) {
        out->scale[i] = b[i] & 15;
        out->min[i] = b[i] >> 4;
    }
    quant_split_pairs(b + 16, 0, out->q);
    out->d[0] = quant_u16(b + 80);
    out->m[0] = quant_u16(b + 82);
}

/* A block: 32 bytes of third bits (0 means minus 4), 64 bytes of 2-bit codes laid out as
 * in Q2_K, 16 scales of 6 bits in 12 bytes, d. */
void quant_split_q3_k(const uint8_t *b, int at, quant_codes *out) {
    assert(out != NULL);
    (void)at;
    quant_split_pairs(b + 32, 0, out->q);
    split_bits(b, 2, out->q);
    for (int i = 0; i < 16; i++) {
        int low4 = b[96 + i % 8] >> (4 * (i / 8)) & 15;
        int high2 = b[104 + i % 4] >> (2 * (i / 4)) & 3;
        out->scale[i] = (uint8_t)(low4 | high2 << 4);
    }
    out->d[0] = quant_u16(b + 108);
}

/* A block of Q4_K or Q5_K: d, dmin, 12 bytes of scales and mins, for Q5_K 32 bytes of
 * fifth bits, 128 bytes of nibbles: 32 bytes hold two rows of 32. The 12 bytes hold 8
 * scales and 8 mins of 6 bits. Scales 0..3 are in the low bits of bytes 0..3, mins 0..3
 * of bytes 4..7. Scales and mins 4..7 are in the nibbles of bytes 8..11, their top two
 * bits in the top bits of bytes 0..3 and 4..7. */
static void split_q45_k(bool five, const uint8_t *restrict b, quant_codes *out) {
    const uint8_t *packed = b + 4, *nibbles = five ? b + 48 : b + 16;
    out->d[0] = quant_u16(b);
    out->m[0] = quant_u16(b + 2);
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

/* A block: 128 bytes of low nibbles, 64 of two high bits, 16 scales of 8 bits, d. In each
 * half of 128 elements, rows 0 and 2 share 32 bytes of nibbles, rows 1 and 3 the next 32;
 * the four rows share 32 bytes of high bits. */
void quant_split_q6_k(const uint8_t *b, int at, quant_codes *out) {
    (void)at;
    for (int row = 0; row < 8; row++) {
        const uint8_t *low = b + 64 * (row / 4) + 32 * (row % 2);
        for (int i = 0; i < 32; i++) {
            out->q[32 * row + i] = low[i] >> (4 * (row % 4 / 2)) & 15;
        }
    }
    quant_split_pairs(b + 128, 4, out->q);
    memcpy(out->scale, b + 192, 16);
    out->d[0] = quant_u16(b + 208);
}

void quant_split_q4_k(const uint8_t *b, int at, quant_codes *out) {
    (void)at;
    split_q45_k(false, b, out);
}

void quant_split_q5_k(const uint8_t *b, int at, quant_codes *out) {
    (void)at;
    split_q45_k(true, b, out);
}

/* A block: d, 2 bytes of the scales' top two bits, 4 of their nibbles, 128 of nibbles: 16
 * bytes hold elements 0..15 and 16..31 of a group. */
void quant_split_iq4_xs(const uint8_t *b, int at, quant_codes *out) {
    assert(out != NULL);
    const int high = quant_u16(b + 2);
    (void)at;
    out->d[0] = quant_u16(b);
    for (int g = 0; g < 8; g++) {
        out->scale[g] = (uint8_t)((b[4 + g / 2] >> (4 * (g % 2)) & 15) | (high >> (2 * g) & 3) << 4);
        quant_split_nibbles(b + 8 + 16 * g, 16, out->q + 32 * g);
    }
}
