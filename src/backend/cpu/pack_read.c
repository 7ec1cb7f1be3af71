#include "backend/cpu/pack_read.h"

#include <string.h>

#include "core/half.h"

bool pack_keeps_values(pack_kind kind, dtype from) {
    const bool is_float = from == DTYPE_F32 || from == DTYPE_F16 || from == DTYPE_BF16;
    switch (kind) {
    case PACK_F32:
        return is_float || dtype_is_quantised(from) || from == DTYPE_I8;
    case PACK_F16:
        return from == DTYPE_F16;
    case PACK_BF16:
        return from == DTYPE_BF16;
    case PACK_INT8:
        return from == DTYPE_I8;
    default: /* codes as in the file */
        return true;
    }
}

/* ---- floats ---- */

static void read_floats(const pack_layout *p, const uint8_t *block, size_t c, float *out) {
    for (size_t k = 0; k < (size_t)p->n_in; k++) {
        uint16_t half;
        if (p->kind == PACK_F32) {
            memcpy(&out[k], block + 4 * (k * PACK_LANES + c), sizeof *out);
            continue;
        }
        memcpy(&half,
               block +
                   2 * (p->kind == PACK_F16 ? k * PACK_LANES + c : k / 2 * 2 * PACK_LANES + 2 * c + k % 2),
               sizeof half);
        out[k] = p->kind == PACK_F16 ? f16_to_f32(half) : bf16_to_f32(half);
    }
}

/* ---- codes: the inverse of join_codes in pack_codes.c ---- */

static uint16_t half_bits(const uint8_t *area, size_t i) {
    uint16_t h;
    memcpy(&h, area + 2 * i, sizeof h);
    return h;
}

/* Reads the f16 scales from group0 on, and their zeros. */
static void read_shared(const quant_rule *rule, const uint8_t *scales, const uint8_t *zeros, size_t c,
                        size_t group0, size_t n, quant_codes *out) {
    const int width = pack_zero_bits(quant_formats[rule->form].bits), a_byte = 8 / width;
    for (size_t g = 0; g < n; g++) {
        const size_t row = (group0 + g) >> rule->shift;
        out->d[g] = half_bits(scales, row * PACK_LANES + c);
        if (quant_formats[rule->form].coding == SCALE_F16_ZERO) {
            const int byte = zeros[row / (size_t)a_byte * PACK_LANES + c];
            out->zero[g] = (uint8_t)(byte >> (width * (int)(row % (size_t)a_byte)) & ((1 << width) - 1));
        }
    }
}

static void read_sixes(const quant_format *f, const uint8_t *scales, int c, size_t k0, quant_codes *out) {
    const size_t n = f->coding == SCALE_SIX ? (size_t)(QUANT_SUPER / f->group / 4) : 4;
    for (size_t p = 0; p < n; p++) {
        const uint8_t *area = scales + (k0 / QUANT_SUPER * n + p) * 3 * PACK_LANES;
        for (size_t i = 0; i < 4; i++) {
            const uint8_t number = (uint8_t)pack_six_at(area, (int)i, c);
            if (f->coding == SCALE_SIX) {
                out->scale[4 * p + i] = number;
            } else {
                (i < 2 ? out->scale : out->min)[2 * p + i % 2] = number;
            }
        }
    }
}

/* The E4M3 of a code with exponent + 3 (pack_e5m3_of). */
static uint8_t e4m3_of(uint8_t e5m3) {
    static const uint8_t least[8] = {0, 8, 16, 20, 24, 26, 28, 30}; /* for numbers with exponent 0 */
    uint8_t code = 0;
    while (code < 7 && least[code] != e5m3) {
        code++;
    }
    return e5m3 >= 32 ? (uint8_t)(e5m3 - 24) : code;
}

static void read_bytes(const quant_format *f, const uint8_t *scales, size_t c, size_t k0, size_t n,
                       quant_codes *out) {
    const size_t group = (size_t)f->group, step = f->coding == SCALE_ODD ? 2 : 1;
    for (size_t i = 0; i < n / group; i += step) {
        const uint8_t byte = scales[(k0 / group + i) / step * PACK_LANES + c];
        if (f->coding == SCALE_ODD) {
            out->scale[i] = byte & 15;
            out->scale[i + 1] = byte >> 4;
        } else if (f->coding == SCALE_FOUR) {
            out->scale[i] = byte & 15;
            out->min[i] = byte >> 4;
        } else {
            out->scale[i] = f->coding == SCALE_E4M3 ? e4m3_of(byte) : byte;
        }
    }
}

static void read_scales(const pack_layout *p, const uint8_t *block, int c, size_t k0, size_t n,
                        quant_codes *out) {
    const quant_format *f = pack_format(p->kind);
    const uint8_t *scales = block + p->scales_at, *supers = block + p->supers_at;
    const size_t group0 = k0 / PACK_GROUP, super = k0 / QUANT_SUPER, lane = (size_t)c;
    switch (f->coding) {
    case SCALE_F16:
    case SCALE_F16_ZERO:
        read_shared(&p->rule, scales, supers, lane, group0, n / PACK_GROUP, out);
        break;
    case SCALE_F16_MIN:
        for (size_t g = 0; g < n / PACK_GROUP; g++) {
            out->d[g] = half_bits(scales, (group0 + g) * 2 * PACK_LANES + lane);
            out->m[g] = half_bits(scales, ((group0 + g) * 2 + 1) * PACK_LANES + lane);
        }
        break;
    case SCALE_SIX:
    case SCALE_SIX_MIN:
        read_sixes(f, scales, c, k0, out);
        break;
    case SCALE_ODD_SPARE:
        break;
    default:
        read_bytes(f, scales, lane, k0, n, out);
    }
    if (f->coding == SCALE_FOUR || f->coding == SCALE_SIX_MIN) {
        out->d[0] = half_bits(supers, 2 * super * PACK_LANES + lane);
        out->m[0] = half_bits(supers, (2 * super + 1) * PACK_LANES + lane);
    } else if (f->coding == SCALE_SIX || f->coding == SCALE_EIGHT || f->coding == SCALE_ODD ||
               f->coding == SCALE_ODD_SPARE) {
        out->d[0] = half_bits(supers, super * PACK_LANES + lane);
    }
}

static uint32_t word_at(const uint8_t *planes, int plane, int c) {
    uint32_t word;
    memcpy(&word, planes + 64 * plane + 4 * c, sizeof word);
    return word;
}

/* Reads quad t of column c of 3-bit codes. */
static uint32_t read_three(const uint8_t *p, int c, int t) {
    if (t < 6) {
        return word_at(p, t / 2, c) >> (4 * (t % 2)) & 0x07070707u;
    }
    uint32_t word = 0;
    for (int v = 0; v < 3; v++) {
        word |= (word_at(p, v, c) >> (4 * (t % 2) + 3) & 0x01010101u) << v;
    }
    return word;
}

/* Reads the 32 codes of column c in a group whose planes start at p, as words of four. */
static void read_planes(int bits, const uint8_t *p, int c, uint32_t out[8]) {
    for (int t = 0; t < 8; t++) {
        out[t] = bits == 8   ? word_at(p, t, c)
                 : bits == 3 ? read_three(p, c, t)
                 : bits >= 4 ? word_at(p, t % 4, c) >> (4 * (t / 4)) & 0x0f0f0f0fu
                             : 0;
    }
    p += bits >= 4 ? 4 * 64 : 0;
    if (bits == 2 || bits == 6) {
        for (int t = 0; t < 8; t++) {
            out[t] |= (word_at(p, t / 4, c) >> (2 * (t % 4)) & 0x03030303u) << (bits == 6 ? 4 : 0);
        }
        p += 2 * 64;
    }
    for (int t = 0; t < 8 && bits % 2 == 1 && bits != 3; t++) {
        out[t] |= (word_at(p, 0, c) >> t & 0x01010101u) << pack_single_bit(bits);
    }
}

/* The signs of eight j. With 7 stored signs, the last one makes the number of minus signs
 * even, and *spare is the bit in its place. */
static unsigned read_signs(const quant_format *f, uint32_t word, int j, unsigned *spare) {
    unsigned signs = 0, odd = 0;
    for (int i = 0; i < 8; i++) {
        const unsigned bit = word >> pack_sign_at(f, j, i) & 1;
        signs |= bit << i;
        odd ^= i < 7 ? bit : 0;
    }
    *spare = signs >> 7;
    return quant_has_even_signs(f) ? (signs & 127) | odd << 7 : signs;
}

unsigned pack_read_rows(quant_form form, const uint8_t *p, int c, uint8_t q[PACK_GROUP]) {
    const quant_format *f = &quant_formats[form];
    const int n = PACK_GROUP / f->run;
    const uint32_t word = word_at(p + 16 * n, 0, c);
    const unsigned high = quant_has_even_signs(f) ? 0 : p[16 * n + 64 + c];
    unsigned signs[4], spares = 0, spare;
    for (int j = 0; j < 4; j++) {
        signs[j] = read_signs(f, word, j, &spare);
        spares |= spare << j;
    }
    for (int i = 0; i < n; i++) {
        const int u = i % 4, at = i * f->run;
        unsigned row = p[64 * (i / 4) + 16 * (c / 4) + 8 * (u / 2) + 2 * (c % 4) + u % 2] | (high >> i & 1)
                                                                                                << 8;
        row |= f->bits == 10                                       ? (high >> (4 + u) & 1) << 9
               : f->coding == SCALE_ODD && quant_has_even_signs(f) ? (spares >> u & 1) << 8
                                                                   : 0;
        quant_row_codes(form, row, signs[at / 8] >> (at % 8), q + at);
    }
    return spares;
}

/* Reads the codes of elements k0..k0+n of column c. */
static void read_codes(const pack_layout *p, const uint8_t *block, int c, size_t k0, size_t n,
                       quant_codes *out) {
    const quant_format *f = pack_format(p->kind);
    const size_t group_bytes = pack_group_bytes(f);
    memset(out, 0, sizeof *out);
    for (size_t at = 0; at < n; at += PACK_GROUP) {
        const uint8_t *planes = block + (k0 + at) / PACK_GROUP * group_bytes;
        uint32_t words[8];
        if (f->run > 1) {
            out->scale[at / PACK_GROUP] = (uint8_t)pack_read_rows(p->rule.form, planes, c, out->q + at);
            continue;
        }
        read_planes(f->bits, planes, c, words);
        memcpy(out->q + at, words, sizeof words);
    }
    read_scales(p, block, c, k0, n, out);
}

void pack_read_row(const pack_layout *p, const uint8_t *data, int32_t row, const int32_t *order, float *out) {
    const uint8_t *block = data + (size_t)(row / PACK_LANES) * p->block_bytes;
    const int c = row % PACK_LANES;
    if (!pack_is_grouped(p->kind)) {
        read_floats(p, block, (size_t)c, out);
        return;
    }
    for (size_t k0 = 0, n_in = (size_t)p->n_in; k0 < n_in; k0 += QUANT_SUPER) {
        const size_t n = n_in - k0 < QUANT_SUPER ? n_in - k0 : QUANT_SUPER;
        quant_codes codes;
        read_codes(p, block, c, k0, n, &codes);
        float values[QUANT_SUPER];
        quant_values(&p->rule, &codes, n, order != NULL ? values : out + k0);
        for (size_t i = 0; order != NULL && i < n; i++) {
            out[order[k0 + i]] = values[i];
        }
    }
}
