/* Reads grouped weights for the product kernels: numbers from their planes, scales from
 * their codes (pack_weights.h describes the layout). Part of linear_groups.inc.h. */
#define GROUPS_A_SUPER (QUANT_SUPER / PACK_GROUP)

typedef struct n_grid n_grid;

/* A weight format. All members except the last five are compile-time constants. */
typedef struct group_format {
    int group, bits;
    bool has_table;
    int zero, dot_bits;
    quant_scale coding;
    int run;
    bool unpacked;       /* numbers and scales are in records in scratch */
    bool unpacks;        /* the numbers are unpacked into records while they are multiplied */
    int lower;           /* subtracted from numbers when they are unpacked */
    const int8_t *table; /* code → the number it is multiplied as: its value plus zero */
    const n_grid *grid;
    float unit;
    int32_t shift, least;
} group_format;

INLINE bool has_mins(group_format f) {
    return f.coding == SCALE_F16_MIN || f.coding == SCALE_FOUR || f.coding == SCALE_SIX_MIN;
}
INLINE bool has_zeros(group_format f) {
    return f.coding == SCALE_F16_ZERO;
}
INLINE bool has_supers(group_format f) {
    return has_mins(f) ? f.coding != SCALE_F16_MIN
                       : f.coding == SCALE_SIX || f.coding == SCALE_EIGHT || f.coding == SCALE_ODD ||
                             f.coding == SCALE_ODD_SPARE;
}
/* Whether numbers and scales cost almost nothing to unpack. */
INLINE bool is_plain(group_format f) {
    return f.bits % 4 == 0 && !has_supers(f) && !f.has_table;
}

/* Whether codes are indices of a grid's rows. Quads of packed groups then mix rows
 * (linear_grid_read.inc.h). */
INLINE bool has_grid(group_format f) {
    return f.run > 1;
}

/* Whether the first pass of rows over a chunk unpacks its groups while it multiplies. For
 * table formats and bytes that would take too many registers. */
INLINE bool unpacks_in_pass(group_format f) {
    return N_WORDS && !LINEAR_BY_TILES && f.bits < 8 && !f.has_table && !has_grid(f);
}

INLINE size_t group_bytes(group_format f) {
    return pack_group_bytes(&(quant_format){.bits = f.bits, .run = f.run});
}

/* The approximate offset of a group's scales in their area, for prefetching. It includes
 * the group's share of the supers, which follow them. */
INLINE size_t group_scales_at(group_format f, size_t g) {
    const size_t n_parts = (size_t)(PACK_GROUP / f.group),
                 supers = has_supers(f) ? (has_mins(f) ? 4 : 2) * LANES / GROUPS_A_SUPER : 0;
    switch (f.coding) {
    case SCALE_F16:
    case SCALE_F16_ZERO:
        return (g >> f.shift) * 2 * LANES;
    case SCALE_F16_MIN:
        return g * 4 * LANES;
    case SCALE_SIX:
        return g * (n_parts * 3 * LANES / 4 + supers);
    case SCALE_SIX_MIN:
        return g * (3 * LANES / 2 + supers);
    case SCALE_ODD:
        return g * (n_parts * LANES / 2 + supers);
    case SCALE_ODD_SPARE:
        return g * supers;
    default:
        return g * (n_parts * LANES + supers);
    }
}

/* The number of groups whose scale codes share bytes. */
INLINE int sharing_groups(group_format f) {
    return f.coding == SCALE_SIX ? 4 * f.group / PACK_GROUP : f.coding == SCALE_SIX_MIN ? 2 : 1;
}

/* ---- numbers ---- */

/* Moves bits `from`.. of each byte to bits `to`.., then applies the mask. */
INLINE ni bits_at(ni plane, int from, int to, int mask) {
    ni moved = to > from ? n_shl(plane, to - from) : to < from ? n_shr(plane, from - to) : plane;
    return n_and(moved, n_set1_bytes(mask));
}

/* The 3-bit codes of quads t and t + 1, t even, one per nibble. */
INLINE ni short_codes(const uint8_t *p, int t) {
    if (t < 6) {
        return n_and(n_load(p + t / 2 * 64), n_set1_bytes(0x77));
    }
    return n_or(n_or(bits_at(n_load(p), 3, 0, 0x11), bits_at(n_load(p + 64), 3, 1, 0x22)),
                bits_at(n_load(p + 2 * 64), 3, 2, 0x44));
}

/* Quad t of a group whose planes start at p. */
INLINE ni packed_quad(int bits, const uint8_t *p, int t) {
    ni v = n_set1(0);
    if (bits == 8) {
        return n_load(p + t * 64);
    }
    if (bits == 3) {
        return bits_at(short_codes(p, t / 2 * 2), t % 2 * 4, 0, 7);
    }
    if (bits >= 4) {
        v = bits_at(n_load(p + t % 4 * 64), t / 4 * 4, 0, 15);
        p += 4 * 64;
    }
    if (bits == 2 || bits == 6) {
        v = n_or(v, bits_at(n_load(p + t / 4 * 64), t % 4 * 2, bits == 6 ? 4 : 0, bits == 6 ? 0x30 : 3));
        p += 2 * 64;
    }
    if (bits % 2 == 1) {
        v = n_or(v, bits_at(n_load(p), t, pack_single_bit(bits), 1 << pack_single_bit(bits)));
    }
    return v;
}

/* Quad t as it is multiplied: unsigned numbers, or signed bytes if dot_bits is 8. */
INLINE ni group_quad(group_format f, const uint8_t *p, int t) {
    if (f.has_table && f.bits == 3) { /* bits above a code's nibble do not matter */
        const ni codes = short_codes(p, t / 2 * 2);
        return n_lookup(t % 2 == 0 ? codes : n_shr(codes, 4), f.table);
    }
    const ni v = packed_quad(f.bits, p, t);
    return f.has_table ? n_lookup(v, f.table) : v;
}

/* ---- scales ---- */

/* Number i of four 6-bit numbers that are stored in three rows of bytes. */
INLINE ni load_six(const uint8_t *p, int i) {
    if (i < 3) {
        return n_and(n_load_u8(p + i * LANES), n_set1(63));
    }
    ni a = n_shr(n_load_u8(p), 6), b = n_shr(n_load_u8(p + LANES), 6), c = n_shr(n_load_u8(p + 2 * LANES), 6);
    return n_or(a, n_or(n_shl(b, 2), n_shl(c, 4)));
}

typedef struct group_scales {
    nf scale[2], min[2]; /* per 16 or per 32 of k; min: the zero / 8 if the format has zeros */
} group_scales;

/* The factors of a super block's scale and min codes; 0 where the coding has none. min is
 * the stored factor with its sign flipped. */
typedef struct group_supers {
    nf scale, min;
} group_supers;

/* The factors of the super block that contains `group`. */
INLINE group_supers load_supers(group_format f, const uint8_t *supers, int32_t group, int lane) {
    const uint16_t *d = (const uint16_t *)(const void *)supers +
                        (size_t)(group / GROUPS_A_SUPER) * (has_mins(f) ? 2 : 1) * LANES + lane;
    group_supers s = {nf_set1(0.0f), nf_set1(0.0f)};
    if (has_supers(f)) {
        s.scale = f.coding == SCALE_ODD || f.coding == SCALE_ODD_SPARE
                      ? nf_mul(nf_load_f16(d), nf_set1(f.unit))
                      : nf_load_f16(d);
        s.min = has_mins(f) ? nf_neg(nf_load_f16(d + LANES)) : s.min;
    }
    return s;
}

/* The zeros in row `row`, divided by 8. */
INLINE nf load_zeros(group_format f, const uint8_t *zeros, size_t row, int lane) {
    const int width = pack_zero_bits(f.bits);
    const size_t a_byte = (size_t)(8 / width);
    const uint8_t *p = zeros + row / a_byte * LANES + lane;
    const ni z = width == 8
                     ? n_load_i8(p)
                     : n_and(n_shr(n_load_u8(p), width * (int)(row % a_byte)), n_set1((1 << width) - 1));
    return nf_fma(nf_of(z), nf_set1(0.125f), nf_set1(0.125f * (float)f.least));
}

/* (2c + 1) * d for each code c. */
INLINE nf odd_scale(nf d, ni codes) {
    return nf_mul(d, nf_fma(nf_of(codes), nf_set1(2.0f), nf_set1(1.0f)));
}

/* Loads the scales of a group for the N_LANES columns from `lane` on. odd: group %
 * sharing_groups. If groups that share bytes are computed together and odd is a
 * compile-time constant, the shared bytes are read once. */
INLINE void load_scales(group_format f, const uint8_t *scales, const uint8_t *supers, const group_supers *d,
                        int32_t group, int odd, int lane, group_scales *out) {
    const size_t g = (size_t)group, row = g >> f.shift, n_parts = (size_t)(PACK_GROUP / f.group);
    const uint16_t *halves = (const uint16_t *)(const void *)scales + lane;
    const uint8_t *codes = scales + n_parts * g * LANES + lane;
    const uint8_t *sixes = scales + (size_t)(group - odd) / (size_t)sharing_groups(f) * 3 * LANES + lane;
    switch (f.coding) {
    case SCALE_F16:
        out->scale[0] = nf_load_f16(halves + row * LANES);
        break;
    case SCALE_F16_ZERO:
        out->scale[0] = nf_load_f16(halves + row * LANES);
        out->min[0] = load_zeros(f, supers, row, lane);
        break;
    case SCALE_F16_MIN:
        out->scale[0] = nf_load_f16(halves + 2 * g * LANES);
        out->min[0] = nf_load_f16(halves + (2 * g + 1) * LANES);
        break;
    case SCALE_FOUR:
        UNROLL
        for (int i = 0; i < 2; i++) {
            ni code = n_load_u8(codes + i * LANES);
            out->scale[i] = nf_mul(d->scale, nf_of(n_and(code, n_set1(15))));
            out->min[i] = nf_mul(d->min, nf_of(n_shr(code, 4)));
        }
        break;
    case SCALE_SIX:
        UNROLL
        for (int i = 0; i < PACK_GROUP / f.group; i++) {
            ni code = load_six(sixes, odd * PACK_GROUP / f.group + i);
            out->scale[i] = nf_mul(d->scale, nf_of(n_add(code, n_set1(-32))));
        }
        break;
    case SCALE_SIX_MIN: {
        ni code = n_and(n_load_u8(sixes + odd * LANES), n_set1(63));
        ni min = odd ? load_six(sixes, 3) : load_six(sixes, 2);
        out->scale[0] = nf_mul(d->scale, nf_of(code));
        out->min[0] = nf_mul(d->min, nf_of(min));
        break;
    }
    case SCALE_ODD:
        UNROLL
        for (int i = 0; i < PACK_GROUP / f.group; i++) {
            const ni pair = f.group == PACK_GROUP
                                ? n_shr(n_load_u8(scales + g / 2 * LANES + lane), group % 2 * 4)
                                : n_shr(n_load_u8(scales + g * LANES + lane), i * 4);
            out->scale[i] = odd_scale(d->scale, n_and(pair, n_set1(15)));
        }
        break;
    case SCALE_E8M0: {
        /* Builds the bits of a float. The second operand of n_max is the larger one for
         * codes 0 and 1, which are subnormal. */
        const ni code = n_load_u8(codes);
        out->scale[0] = nf_bits(n_max(n_shl(n_add(code, n_set1(-1)), 23), n_shl(n_add(code, n_set1(1)), 21)));
        break;
    }
    case SCALE_E4M3:
        UNROLL
        for (int i = 0; i < 2; i++) {
            out->scale[i] = nf_mul(nf_bits(n_shl(n_load_u8(codes + i * LANES), 20)), nf_set1(0x1p116f));
        }
        break;
    default:
        UNROLL
        for (int i = 0; i < 2; i++) {
            out->scale[i] = nf_mul(d->scale, nf_of(n_load_i8(codes + i * LANES)));
        }
    }
}
