/* Reads grouped weights for the product kernels: numbers from their planes, scales from their codes (pack_weights.h describes the layout).
 * Part of linear_kernels.inc.h. */
#define GROUPS_A_SUPER (QUANT_SUPER / PACK_GROUP)

/* A grouped format, a compile-time constant. */
typedef struct group_format {
    pack_kind kind;
    int group, bits, zero;
    quant_scale coding;
    bool unpacked; /* numbers and scales lie in records in scratch */
} group_format;

INLINE bool has_mins(group_format f) {
    return f.coding == SCALE_F16_MIN || f.coding == SCALE_FOUR || f.coding == SCALE_SIX_MIN;
}
INLINE bool has_supers(group_format f) {
    return f.coding != SCALE_F16 && f.coding != SCALE_F16_MIN;
}
/* Formats whose numbers and scales cost almost nothing to unpack: Q4_0, Q4_1, Q8_0. */
INLINE bool is_plain(group_format f) {
    return f.bits % 4 == 0 && !has_supers(f) && f.kind != PACK_IQ4_NL;
}
/* Bits of the numbers that are multiplied: 8 are signed; fewer are unsigned, and zero is subtracted from them. */
INLINE int dot_bits(group_format f) {
    return f.kind == PACK_IQ4_NL ? 8 : f.bits;
}

INLINE size_t group_bytes(group_format f) {
    return (size_t)f.bits * PACK_GROUP * LANES / 8;
}

/* Bytes of a group's scales, and its share of the supers, which lie behind them. */
INLINE size_t scale_bytes(group_format f) {
    const size_t supers = has_supers(f) ? (has_mins(f) ? 4 : 2) * LANES / GROUPS_A_SUPER : 0;
    switch (f.coding) {
    case SCALE_F16:
        return 2 * LANES;
    case SCALE_F16_MIN:
        return 4 * LANES;
    case SCALE_SIX:
    case SCALE_SIX_MIN:
        return 3 * LANES / 2 + supers;
    default:
        return 2 * LANES + supers;
    }
}

/* ---- numbers ---- */

/* Moves bits `from`.. of each byte to bits `to`.., and masks them there. */
INLINE ni bits_at(ni plane, int from, int to, int mask) {
    ni moved = to > from ? n_shl(plane, to - from) : to < from ? n_shr(plane, from - to) : plane;
    return n_and(moved, n_set1_bytes(mask));
}

/* Quad t of a group whose planes start at p. */
INLINE ni packed_quad(int bits, const uint8_t *p, int t) {
    ni v = n_set1(0);
    if (bits == 8) {
        return n_load(p + t * 64);
    }
    if (bits >= 4) {
        v = bits_at(n_load(p + t % 4 * 64), t / 4 * 4, 0, 15);
        p += 4 * 64;
    }
    if (bits == 2 || bits == 3 || bits == 6) {
        v = n_or(v, bits_at(n_load(p + t / 4 * 64), t % 4 * 2, bits == 6 ? 4 : 0, bits == 6 ? 0x30 : 3));
        p += 2 * 64;
    }
    if (bits == 3 || bits == 5) {
        v = n_or(v, bits_at(n_load(p), t, bits == 5 ? 4 : 2, bits == 5 ? 16 : 4));
    }
    return v;
}

/* Quad t in the form that is multiplied: unsigned numbers, or signed bytes where dot_bits is 8. */
INLINE ni group_quad(group_format f, const uint8_t *p, int t) {
    ni v = packed_quad(f.bits, p, t);
    return f.kind == PACK_IQ4_NL ? n_lookup(v, quant_iq4_values) : v;
}

/* ---- scales ---- */

/* Number i of the four 6-bit numbers in three rows of bytes. */
INLINE ni load_six(const uint8_t *p, int i) {
    if (i < 3) {
        return n_and(n_load_u8(p + i * LANES), n_set1(63));
    }
    ni a = n_shr(n_load_u8(p), 6), b = n_shr(n_load_u8(p + LANES), 6), c = n_shr(n_load_u8(p + 2 * LANES), 6);
    return n_or(a, n_or(n_shl(b, 2), n_shl(c, 4)));
}

typedef struct group_scales {
    nf scale[2], min[2]; /* of each 16 or of all 32 */
} group_scales;

/* The factors of a super block's scale and min codes. The stored min has its sign flipped. 0 where the coding has none. */
typedef struct group_supers {
    nf scale, min;
} group_supers;

/* The factors of the super block that contains group. */
INLINE group_supers load_supers(group_format f, const uint8_t *supers, int32_t group, int lane) {
    const uint16_t *d = (const uint16_t *)(const void *)supers + (size_t)(group / GROUPS_A_SUPER) * (has_mins(f) ? 2 : 1) * LANES + lane;
    group_supers s = {nf_set1(0.0f), nf_set1(0.0f)};
    if (has_supers(f)) {
        s.scale = nf_load_f16(d);
        s.min = has_mins(f) ? nf_neg(nf_load_f16(d + LANES)) : s.min;
    }
    return s;
}

/* Scales of a group for the N_LANES columns from lane on. odd: the group's number % 2. Two groups share bytes of SCALE_SIX and
 * SCALE_SIX_MIN. The bytes are read once where both groups are computed together and odd is a compile-time constant. */
INLINE void load_scales(quant_scale coding, const uint8_t *scales, const group_supers *d, int32_t group, int odd, int lane,
                        group_scales *out) {
    size_t g = (size_t)group, even = (size_t)(group - odd);
    const uint16_t *halves = (const uint16_t *)(const void *)scales + lane;
    const uint8_t *codes = scales + 2 * g * LANES + lane, *sixes = scales + even / 2 * 3 * LANES + lane;
    switch (coding) {
    case SCALE_F16:
        out->scale[0] = nf_load_f16(halves + g * LANES);
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
        for (int i = 0; i < 2; i++) {
            ni code = odd ? load_six(sixes, 2 + i) : load_six(sixes, i);
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
    default:
        UNROLL
        for (int i = 0; i < 2; i++) {
            out->scale[i] = nf_mul(d->scale, nf_of(n_load_i8(codes + i * LANES)));
        }
    }
}
