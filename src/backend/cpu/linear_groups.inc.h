/* Products of grouped weights: one group's numbers stay in registers while the rows pass, with the sums in y. Part of
 * linear_kernels.inc.h. */
/* The numbers of one group for N_LANES columns, from the planes at p (this half's bytes of the first plane). */
INLINE void unpack_planes(int bits, const uint8_t *p, ni w[QUADS]) {
    if (bits == 8) {
        UNROLL
        for (int t = 0; t < QUADS; t++) {
            w[t] = n_load(p + t * 64);
        }
        return;
    }
    if (bits >= 4) {
        ni mask = n_set1_bytes(15);
        UNROLL
        for (int v = 0; v < 4; v++) {
            ni plane = n_load(p + v * 64);
            w[v] = n_and(plane, mask);
            w[v + 4] = n_and(N_SHR16(plane, 4), mask);
        }
        p += 4 * 64;
    }
    if (bits == 2 || bits == 3 || bits == 6) {
        ni mask = n_set1_bytes(bits == 6 ? 0x30 : 3);
        UNROLL
        for (int v = 0; v < 2; v++) {
            ni plane = n_load(p + v * 64), *to = w + 4 * v;
            if (bits == 6) {
                to[0] = n_or(to[0], n_and(N_SHL16(plane, 4), mask));
                to[1] = n_or(to[1], n_and(N_SHL16(plane, 2), mask));
                to[2] = n_or(to[2], n_and(plane, mask));
                to[3] = n_or(to[3], n_and(N_SHR16(plane, 2), mask));
            } else {
                to[0] = n_and(plane, mask);
                to[1] = n_and(N_SHR16(plane, 2), mask);
                to[2] = n_and(N_SHR16(plane, 4), mask);
                to[3] = n_and(N_SHR16(plane, 6), mask);
            }
        }
        p += 2 * 64;
    }
    if (bits == 3) {
        ni plane = n_load(p), mask = n_set1_bytes(4);
        w[0] = n_or(w[0], n_and(N_SHL16(plane, 2), mask));
        w[1] = n_or(w[1], n_and(N_SHL16(plane, 1), mask));
        w[2] = n_or(w[2], n_and(plane, mask));
        w[3] = n_or(w[3], n_and(N_SHR16(plane, 1), mask));
        w[4] = n_or(w[4], n_and(N_SHR16(plane, 2), mask));
        w[5] = n_or(w[5], n_and(N_SHR16(plane, 3), mask));
        w[6] = n_or(w[6], n_and(N_SHR16(plane, 4), mask));
        w[7] = n_or(w[7], n_and(N_SHR16(plane, 5), mask));
    }
    if (bits == 5) {
        ni plane = n_load(p), mask = n_set1_bytes(16);
        w[0] = n_or(w[0], n_and(N_SHL16(plane, 4), mask));
        w[1] = n_or(w[1], n_and(N_SHL16(plane, 3), mask));
        w[2] = n_or(w[2], n_and(N_SHL16(plane, 2), mask));
        w[3] = n_or(w[3], n_and(N_SHL16(plane, 1), mask));
        w[4] = n_or(w[4], n_and(plane, mask));
        w[5] = n_or(w[5], n_and(N_SHR16(plane, 1), mask));
        w[6] = n_or(w[6], n_and(N_SHR16(plane, 2), mask));
        w[7] = n_or(w[7], n_and(N_SHR16(plane, 3), mask));
    }
}

/* Number i of the four 6-bit numbers in three rows of bytes. */
INLINE ni load_six(const uint8_t *p, int i) {
    if (i < 3) {
        return n_and(n_load_u8(p + i * LANES), n_set1(63));
    }
    ni a = N_SHR16(n_load_u8(p), 6), b = N_SHR16(n_load_u8(p + LANES), 6), c = N_SHR16(n_load_u8(p + 2 * LANES), 6);
    return n_or(a, n_or(N_SHL16(b, 2), N_SHL16(c, 4)));
}

typedef struct group_scales {
    nf scale[2], min[2]; /* of each 16 or of all 32 */
} group_scales;

/* Scales of group g for the N_LANES columns from lane on. */
INLINE void load_scales(pack_scale coding, const uint8_t *scales, const uint8_t *supers, int32_t group, int lane, group_scales *out) {
    size_t g = (size_t)group;
    const uint16_t *halves = (const uint16_t *)(const void *)scales + lane;
    const uint16_t *d =
        (const uint16_t *)(const void *)supers + g / 8 * (coding == SCALE_FOUR || coding == SCALE_SIX_MIN ? 2 : 1) * LANES + lane;
    const uint8_t *codes = scales + 2 * g * LANES + lane, *sixes = scales + g / 2 * 3 * LANES + lane;
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
            out->scale[i] = nf_mul(nf_load_f16(d), nf_of(n_and(code, n_set1(15))));
            out->min[i] = nf_neg(nf_mul(nf_load_f16(d + LANES), nf_of(N_SHR16(code, 4))));
        }
        break;
    case SCALE_SIX:
        UNROLL
        for (int i = 0; i < 2; i++) {
            ni code = group % 2 != 0 ? load_six(sixes, 2 + i) : load_six(sixes, i);
            out->scale[i] = nf_mul(nf_load_f16(d), nf_of(n_add(code, n_set1(-32))));
        }
        break;
    case SCALE_SIX_MIN: {
        ni code = n_and(n_load_u8(sixes + (group % 2) * LANES), n_set1(63));
        ni min = group % 2 != 0 ? load_six(sixes, 3) : load_six(sixes, 2);
        out->scale[0] = nf_mul(nf_load_f16(d), nf_of(code));
        out->min[0] = nf_neg(nf_mul(nf_load_f16(d + LANES), nf_of(min)));
        break;
    }
    default:
        UNROLL
        for (int i = 0; i < 2; i++) {
            out->scale[i] = nf_mul(nf_load_f16(d), nf_of(n_load_i8(codes + i * LANES)));
        }
    }
}

/* A grouped format, known while compiling. */
typedef struct group_format {
    pack_kind kind;
    int group, bits, zero;
    pack_scale coding;
} group_format;

/* acc + one group of one row. */
INLINE nf add_group(group_format f, const ni *w, const group_scales *s, const uint8_t *row, int32_t n_in, int32_t g, nf acc) {
    const int8_t *x = (const int8_t *)row + g * PACK_GROUP;
    const int16_t *wide = row_wide(ROWS_GROUPS, row, n_in) + g * PACK_GROUP;
    const int32_t *x_sums = row_sums(row, n_in) + 2 * g;
    float x_scale = row_scales(row, n_in)[g];
    int n_parts = PACK_GROUP / f.group, run = f.bits <= 4 ? 8 : f.bits == 5 ? 4 : 2;
    bool is_signed = f.bits == 8 || f.kind == PACK_IQ4_NL;
    bool has_min = f.coding == SCALE_F16_MIN || f.coding == SCALE_FOUR || f.coding == SCALE_SIX_MIN;
    UNROLL
    for (int i = 0; i < n_parts; i++) {
        int32_t x_sum = n_parts == 2 ? x_sums[i] : x_sums[0] + x_sums[1];
        ni sum = is_signed ? n_dot_signed(w, x, wide, x_sum) : n_dot_unsigned(w + i * 4, x + 16 * i, f.group / 4, run, -f.zero * x_sum);
        acc = nf_fma(nf_of(sum), nf_mul(s->scale[i], nf_set1(x_scale)), acc);
        if (has_min) {
            acc = nf_fma(s->min[i], nf_set1(x_scale * (float)x_sum), acc);
        }
    }
    return acc;
}

/* One block of columns. one_row keeps the sums in registers. */
INLINE void group_block(group_format f, bool one_row, const linear *w, const uint8_t *block, row_view x, int32_t n_rows, float *y,
                        int32_t y_stride) {
    int32_t n_in = w->layout.n_in, n_groups = n_in / PACK_GROUP;
    size_t group_bytes = (size_t)f.bits * PACK_GROUP * LANES / 8;
    const uint8_t *scales = block + w->layout.scales_at, *supers = block + w->layout.supers_at;
    nf one[N_HALVES];
    UNROLL
    for (int h = 0; h < N_HALVES; h++) {
        one[h] = nf_set1(0.0f);
    }
    for (int32_t r = 0; r < n_rows && !one_row; r++) {
        memset(y + r * y_stride, 0, LANES * sizeof *y);
    }
    for (int32_t g = 0; g < n_groups; g++) {
        const uint8_t *planes = block + (size_t)g * group_bytes;
        for (size_t i = 0; i < group_bytes && one_row; i += 64) {
            _mm_prefetch((const char *)planes + PREFETCH_BYTES + i, _MM_HINT_T0);
        }
        UNROLL
        for (int h = 0; h < N_HALVES; h++) {
            ni bytes[QUADS], wide[N_SIGNED];
            group_scales s;
            const ni *numbers = bytes;
            unpack_planes(f.bits, planes + h * 4 * N_LANES, bytes);
            if (f.kind == PACK_IQ4_NL) {
                UNROLL
                for (int t = 0; t < QUADS; t++) {
                    bytes[t] = n_lookup(bytes[t], pack_iq4_values);
                }
            }
            if (f.kind == PACK_IQ4_NL || f.bits == 8) {
                n_ready_signed(bytes, wide);
                numbers = wide;
            }
            load_scales(f.coding, scales, supers, g, h * N_LANES, &s);
            if (one_row) {
                one[h] = add_group(f, numbers, &s, x.data, n_in, g, one[h]);
            }
            for (int32_t r = 0; r < n_rows && !one_row; r++) {
                float *acc = y + r * y_stride + h * N_LANES;
                nf_store(acc, add_group(f, numbers, &s, x.data + (size_t)r * x.stride, n_in, g, nf_load(acc)));
            }
        }
    }
    if (one_row) {
        UNROLL
        for (int h = 0; h < N_HALVES; h++) {
            nf_store(y + h * N_LANES, one[h]);
        }
    }
}

INLINE void product_groups(group_format f, const linear *w, row_view x, int32_t n_rows, int32_t block0, int32_t n_blocks, float *y) {
    int32_t stride = n_blocks * LANES;
    for (int32_t i = 0; i < n_blocks; i++) {
        const uint8_t *block = linear_block(w, block0 + i);
        if (n_rows == 1) {
            group_block(f, true, w, block, x, 1, y + i * LANES, stride);
        } else {
            group_block(f, false, w, block, x, n_rows, y + i * LANES, stride);
        }
    }
}

#define GROUP_PRODUCT(name, group_, bits_, zero_, scale_)                                                                                  \
    static void product_##name(const linear *w, row_view x, int32_t n_rows, int32_t block0, int32_t n_blocks, float *y) {                  \
        const group_format f = {.kind = PACK_##name, .group = group_, .bits = bits_, .zero = zero_, .coding = scale_};                     \
        product_groups(f, w, x, n_rows, block0, n_blocks, y);                                                                              \
    }
PACK_GROUPED_LIST(GROUP_PRODUCT)
#undef GROUP_PRODUCT
