/* Packs codes from a source, one column after the other, in chunks of QUANT_SUPER of k:
 * any form, from any checkpoint. */
#include "backend/cpu/pack_lanes.h"

/* Packs the planes of one group. */
static void join_planes(int bits, const quant_codes columns[PACK_LANES], int32_t at, uint8_t *out) {
    const uint8_t *q[PACK_LANES];
    pack_row quads[PACK_QUADS];
    PACK_EACH(c) {
        q[c] = columns[c].q + at;
    }
    pack_load_rows(q, 0, PACK_QUADS, quads);
    if (bits == 8) {
        memcpy(out, quads, sizeof quads);
        return;
    }
    if (bits == 3) {
        pack_put_threes(quads, out);
        return;
    }
    if (bits >= 4) {
        pack_put_nibbles(quads, 0, out);
        out += 4 * PACK_PLANE_BYTES;
    }
    if (bits == 2 || bits == 6) {
        pack_put_pairs(quads, bits == 6 ? 4 : 0, out);
    } else if (bits % 2 == 1) {
        pack_put_bits(quads, pack_single_bit(bits), out);
    }
}

static void write_half(uint8_t *area, size_t index, uint16_t value) {
    memcpy(area + 2 * index, &value, sizeof value);
}

/* Writes four 6-bit numbers of column c into three bytes. */
static void write_six(uint8_t *area, int c, const uint8_t n[4]) {
    for (int i = 0; i < 3; i++) {
        area[i * PACK_LANES + c] = (uint8_t)(n[i] | (n[3] >> (2 * i) & 3) << 6);
    }
}

/* Writes the f16 scales of column c from group0 on, and the zeros; groups that share a
 * scale have that of the first one. */
static void join_shared(const quant_rule *rule, const quant_codes *codes, size_t lane, size_t group0,
                        size_t n, uint8_t *scales, uint8_t *zeros) {
    const int width = pack_zero_bits(quant_formats[rule->form].bits), a_byte = 8 / width;
    for (size_t g = 0; g < n; g++) {
        const size_t row = (group0 + g) >> rule->shift;
        if (row << rule->shift != group0 + g) {
            continue;
        }
        write_half(scales, row * PACK_LANES + lane, codes->d[g]);
        if (quant_formats[rule->form].coding == SCALE_F16_ZERO) {
            uint8_t *to = &zeros[row / (size_t)a_byte * PACK_LANES + lane];
            *to = (uint8_t)(*to | codes->zero[g] << (width * (int)(row % (size_t)a_byte)));
        }
    }
}

/* Writes 6-bit codes of scales of column c, from element k0 on. */
static void join_sixes(const quant_format *f, const quant_codes *codes, int c, size_t k0, uint8_t *scales) {
    const uint8_t *s = codes->scale, *m = codes->min;
    const size_t n = f->coding == SCALE_SIX ? (size_t)(QUANT_SUPER / f->group / 4) : 4;
    for (size_t p = 0; p < n; p++) {
        const uint8_t with_mins[4] = {s[2 * p], s[2 * p + 1], m[2 * p], m[2 * p + 1]};
        write_six(scales + (k0 / QUANT_SUPER * n + p) * 3 * PACK_LANES, c,
                  f->coding == SCALE_SIX ? s + 4 * p : with_mins);
    }
}

/* Writes scale codes of whole bytes, and of pairs of nibbles. */
static void join_bytes(const quant_format *f, const quant_codes *codes, size_t lane, size_t k0, size_t n,
                       uint8_t *scales) {
    const size_t group = (size_t)f->group, step = f->coding == SCALE_ODD ? 2 : 1;
    for (size_t i = 0; i < n / group; i += step) {
        const uint8_t second = f->coding == SCALE_FOUR  ? codes->min[i]
                               : f->coding == SCALE_ODD ? codes->scale[i + 1]
                                                        : 0;
        const uint8_t first = f->coding == SCALE_E4M3 ? pack_e5m3_of(codes->scale[i]) : codes->scale[i];
        scales[(k0 / group + i) / step * PACK_LANES + lane] = (uint8_t)(first | second << 4);
    }
}

/* Writes the scales of column c over elements k0..k0+n into the areas for scales and
 * supers. */
static void join_scales(const quant_rule *rule, const quant_codes *codes, int c, int32_t k0, int32_t n,
                        uint8_t *scales, uint8_t *supers) {
    const quant_format *f = &quant_formats[rule->form];
    const size_t group0 = (size_t)k0 / PACK_GROUP, super = (size_t)k0 / QUANT_SUPER, lane = (size_t)c;
    switch (f->coding) {
    case SCALE_F16:
    case SCALE_F16_ZERO:
        join_shared(rule, codes, lane, group0, (size_t)n / PACK_GROUP, scales, supers);
        break;
    case SCALE_F16_MIN:
        for (size_t g = 0; g < (size_t)n / PACK_GROUP; g++) {
            write_half(scales, (group0 + g) * 2 * PACK_LANES + lane, codes->d[g]);
            write_half(scales, ((group0 + g) * 2 + 1) * PACK_LANES + lane, codes->m[g]);
        }
        break;
    case SCALE_SIX:
    case SCALE_SIX_MIN:
        join_sixes(f, codes, c, (size_t)k0, scales);
        break;
    case SCALE_ODD_SPARE:
        break;
    default:
        join_bytes(f, codes, lane, (size_t)k0, (size_t)n, scales);
    }
    if (f->coding == SCALE_FOUR || f->coding == SCALE_SIX_MIN) {
        write_half(supers, 2 * super * PACK_LANES + lane, codes->d[0]);
        write_half(supers, (2 * super + 1) * PACK_LANES + lane, codes->m[0]);
    } else if (f->coding == SCALE_SIX || f->coding == SCALE_EIGHT || f->coding == SCALE_ODD ||
               f->coding == SCALE_ODD_SPARE) {
        write_half(supers, super * PACK_LANES + lane, codes->d[0]);
    }
}

/* Writes the codes of elements k0..k0+n of 16 columns into a block; k0 is a multiple of
 * QUANT_SUPER. */
static void join_codes(const pack_layout *plan, const quant_codes columns[PACK_LANES], int32_t k0, int32_t n,
                       uint8_t *block) {
    const quant_format f = *pack_format(plan->kind);
    const size_t group_bytes = pack_group_bytes(&f);
    for (int32_t at = 0; at < n; at += PACK_GROUP) {
        join_planes(f.bits, columns, at, block + (size_t)(k0 + at) / PACK_GROUP * group_bytes);
    }
    for (int c = 0; c < PACK_LANES; c++) {
        join_scales(&plan->rule, &columns[c], c, k0, n, block + plan->scales_at, block + plan->supers_at);
    }
}

void pack_block_of(const pack_layout *plan, const pack_source *from, int32_t block, uint8_t *out) {
    quant_codes columns[PACK_LANES];
    for (int32_t k0 = 0; k0 < plan->n_in; k0 += QUANT_SUPER) {
        const int32_t n = pack_chunk(plan, k0);
        memset(columns, 0, sizeof columns);
        for (int32_t c = 0; c < PACK_LANES && block * PACK_LANES + c < plan->n_out; c++) {
            from->read(from->context, block * PACK_LANES + c, k0, n, &columns[c]);
        }
        join_codes(plan, columns, k0, n, out);
    }
}
