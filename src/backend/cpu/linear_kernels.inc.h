/* Product kernels for AVX2 and AVX-512, written once: included by linear_avx2.c and linear_avx512.c, which name LINEAR_TABLE. The
 * arithmetic and its order are linear.h's; the plain twin has the same bits.
 *
 * Bytes: every weight is read once for the up to LINEAR_TILE_ROWS rows of a call. Floats and int8 keep a tile of rows x 16 columns in
 * registers while k runs; grouped weights keep one group's numbers in registers while the rows pass, with the sums in y. One row streams:
 * it is bound by memory. */
#include <math.h>

#include "backend/cpu/linear.h"
#include "backend/cpu/simd_int.h"
#include "core/half.h"

#define LANES           PACK_LANES
#define FLOAT_CHUNK     512  /* k of a block that stay in L1 while row tiles pass */
#define PREFETCH_BYTES  1024 /* how far one-row kernels look ahead */
#define GROUP_REGISTERS (32 / N_LANES)

/* ---- rows ---- */

static void prepare_f32(const float *x, int32_t k, void *row) {
    memcpy(row, x, (size_t)k * sizeof *x);
}

/* Magnitudes as integers order like the floats, with NaN above infinity. */
INLINE float scale_of(uint32_t largest_bits, float *inverse) {
    float a;
    memcpy(&a, &largest_bits, sizeof a);
    *inverse = 0.0f;
    if (!isfinite(a) || a < ROWS_TINY) {
        return isfinite(a) ? 0.0f : NAN;
    }
    *inverse = 127.0f / a;
    return a / 127.0f;
}

INLINE ni magnitudes32(const float *x) {
    ni largest = n_magnitude_bits(nf_load(x));
    UNROLL
    for (int i = 1; i < GROUP_REGISTERS; i++) {
        largest = n_max(largest, n_magnitude_bits(nf_load(x + i * N_LANES)));
    }
    return largest;
}

/* inverse 0 gives zeros, whatever x is. */
INLINE void quantise32(const float *x, float inverse, int8_t *q, int16_t *wide, int32_t sums[2]) {
    ni v[GROUP_REGISTERS];
    UNROLL
    for (int i = 0; i < GROUP_REGISTERS; i++) {
        v[i] = inverse != 0.0f ? n_of(nf_mul(nf_load(x + i * N_LANES), nf_set1(inverse))) : n_set1(0);
    }
    n_store_bytes(q, v);
    n_widen(q, wide);
    sums[0] = lanes_sum(n_fold(v, 0));
    sums[1] = lanes_sum(n_fold(v, 1));
}

static void prepare_groups(const float *x, int32_t k, void *row) {
    int8_t *q = row;
    float *scales = (float *)(void *)(q + k);
    int32_t *sums = (int32_t *)(void *)(scales + k / PACK_GROUP);
    int16_t *wide = (int16_t *)(void *)(sums + k / 16);
    for (int32_t g = 0; g < k / PACK_GROUP; g++) {
        float inverse;
        scales[g] = scale_of((uint32_t)lanes_max(n_fold_max(magnitudes32(x + g * PACK_GROUP))), &inverse);
        quantise32(x + g * PACK_GROUP, inverse, q + g * PACK_GROUP, wide + g * PACK_GROUP, sums + 2 * g);
    }
}

static void prepare_token(const float *x, int32_t k, void *row) {
    int8_t *q = row;
    int32_t whole = k / PACK_GROUP * PACK_GROUP, padded = linear_pad(k, PACK_GROUP), sum = 0, sums[2];
    float tail[PACK_GROUP] = {0}, inverse;
    int16_t *wide = (int16_t *)(void *)(q + padded + 2 * sizeof(float));
    memcpy(tail, x + whole, (size_t)(k - whole) * sizeof *x);
    ni largest = magnitudes32(tail);
    for (int32_t i = 0; i < whole; i += PACK_GROUP) {
        largest = n_max(largest, magnitudes32(x + i));
    }
    float scale = scale_of((uint32_t)lanes_max(n_fold_max(largest)), &inverse);
    for (int32_t i = 0; i < padded; i += PACK_GROUP) {
        quantise32(i < whole ? x + i : tail, inverse, q + i, wide + i, sums);
        sum += sums[0] + sums[1];
    }
    memcpy(q + padded, &scale, sizeof scale);
    memcpy(q + padded + sizeof scale, &sum, sizeof sum);
}

/* ---- floats: tiles of n_rows rows x n_cols blocks ---- */

typedef struct float_rows {
    const uint8_t *x[N_FLOAT_ROWS];
} float_rows;

/* 16 columns' weights at k, from one block. */
INLINE f32x16 load_f32(const uint8_t *block, int32_t k) {
    return f_load((const float *)(const void *)block + (size_t)k * LANES);
}
INLINE f32x16 load_f16(const uint8_t *block, int32_t k) {
    return f_load_f16((const uint16_t *)(const void *)block + (size_t)k * LANES);
}
/* A pair of bf16 a column: k in the low halves, k + 1 in the high ones. */
INLINE i32x16 load_pair(const uint8_t *block, int32_t k) {
    return i_load((const int32_t *)(const void *)block + (size_t)(k / 2) * LANES);
}

INLINE void add_k(int n_rows, int n_cols, f32x16 acc[N_FLOAT_ROWS][4], const f32x16 w[4], const float_rows *rows, int32_t k) {
    UNROLL
    for (int r = 0; r < n_rows; r++) {
        f32x16 xk = f_set1(((const float *)(const void *)rows->x[r])[k]);
        UNROLL
        for (int c = 0; c < n_cols; c++) {
            acc[r][c] = f_fma(xk, w[c], acc[r][c]);
        }
    }
}

#ifdef LINEAR_DOT_BF16
INLINE void add_pair(int n_rows, int n_cols, f32x16 acc[N_FLOAT_ROWS][4], const i32x16 w[4], const float_rows *rows, int32_t k) {
    UNROLL
    for (int r = 0; r < n_rows; r++) {
        i32x16 xk = i_set1(((const int32_t *)(const void *)rows->x[r])[k / 2]);
        UNROLL
        for (int c = 0; c < n_cols; c++) {
            acc[r][c] = LINEAR_DOT_BF16(acc[r][c], w[c], xk);
        }
    }
}
#endif

/* y[n_rows][..] += over k in k0..k1; begins at 0 when k0 is 0. stride: between blocks, in bytes, and between rows of y, in floats. */
INLINE void float_tile(pack_kind kind, row_format format, int n_rows, int n_cols, const uint8_t *block, size_t block_stride,
                       const float_rows *rows, int32_t k0, int32_t k1, float *y, int32_t y_stride) {
    f32x16 acc[N_FLOAT_ROWS][4], w[4], odd[4];
    (void)format; /* matters where there is a dot instruction */
    UNROLL
    for (int r = 0; r < n_rows; r++) {
        UNROLL
        for (int c = 0; c < n_cols; c++) {
            acc[r][c] = k0 == 0 ? f_zero() : f_load(y + r * y_stride + c * LANES);
        }
    }
    for (int32_t k = k0; k < k1; k += kind == PACK_BF16 ? 2 : 1) {
        i32x16 pairs[4];
        UNROLL
        for (int c = 0; c < n_cols; c++) {
            const uint8_t *from = block + (size_t)c * block_stride;
            if (kind == PACK_BF16) {
                pairs[c] = load_pair(from, k);
                w[c] = f_of_bits(i_shl(pairs[c], 16));
                odd[c] = f_of_bits(i_and(pairs[c], i_set1((int32_t)0xffff0000)));
            } else {
                w[c] = kind == PACK_F16 ? load_f16(from, k) : load_f32(from, k);
            }
        }
#ifdef LINEAR_DOT_BF16
        if (format == ROWS_BF16) {
            add_pair(n_rows, n_cols, acc, pairs, rows, k);
            continue;
        }
#endif
        add_k(n_rows, n_cols, acc, w, rows, k);
        if (kind == PACK_BF16 && k + 1 < k1) {
            add_k(n_rows, n_cols, acc, odd, rows, k + 1);
        }
    }
    UNROLL
    for (int r = 0; r < n_rows; r++) {
        UNROLL
        for (int c = 0; c < n_cols; c++) {
            f_store(y + r * y_stride + c * LANES, acc[r][c]);
        }
    }
}

/* Rows of one block by tiles of N_FLOAT_ROWS. */
INLINE void float_block(pack_kind kind, row_format format, const uint8_t *block, row_view x, int32_t n_rows, int32_t k0, int32_t k1,
                        float *y, int32_t y_stride) {
    for (int32_t r = 0; r < n_rows; r += N_FLOAT_ROWS) {
        float_rows rows;
        int32_t n = n_rows - r < N_FLOAT_ROWS ? n_rows - r : N_FLOAT_ROWS;
        for (int32_t i = 0; i < n; i++) {
            rows.x[i] = x.data + (size_t)(r + i) * x.stride;
        }
        switch (n) {
#define FLOAT_ROWS(count)                                                                                                                  \
    case count:                                                                                                                            \
        float_tile(kind, format, count, 1, block, 0, &rows, k0, k1, y + r * y_stride, y_stride);                                           \
        break;
            FLOAT_ROWS(1)
            FLOAT_ROWS(2)
            FLOAT_ROWS(3)
            FLOAT_ROWS(4)
            FLOAT_ROWS(5)
            FLOAT_ROWS(6)
#if N_FLOAT_ROWS == 8
            FLOAT_ROWS(7)
            FLOAT_ROWS(8)
#endif
#undef FLOAT_ROWS
        }
    }
}

INLINE void product_floats(pack_kind kind, row_format format, const linear *w, row_view x, int32_t n_rows, int32_t block0, int32_t n_blocks,
                           float *y) {
    int32_t k_end = format == ROWS_BF16 ? w->layout.k_padded : w->layout.n_in, stride = n_blocks * LANES, i = 0;
    size_t block_bytes = w->layout.block_bytes;
    if (n_rows == 1) {
        float_rows row = {{x.data}};
        for (; i + 4 <= n_blocks; i += 4) {
            float_tile(kind, format, 1, 4, linear_block(w, block0 + i), block_bytes, &row, 0, k_end, y + i * LANES, stride);
        }
    }
    for (; i < n_blocks; i++) {
        int32_t chunk = n_rows <= N_FLOAT_ROWS ? k_end : FLOAT_CHUNK;
        for (int32_t k0 = 0; k0 < k_end; k0 += chunk) {
            int32_t k1 = k_end - k0 < chunk ? k_end : k0 + chunk;
            float_block(kind, format, linear_block(w, block0 + i), x, n_rows, k0, k1, y + i * LANES, stride);
        }
    }
}

/* ---- int8 a column ---- */

INLINE void int8_tile(int n_rows, const int8_t *block, const float *scales, const uint8_t *const x[N_INT8_ROWS], int32_t n_in, float *y,
                      int32_t y_stride) {
    ni sums[N_INT8_ROWS][N_HALVES];
    const int16_t *wide[N_INT8_ROWS];
    UNROLL
    for (int r = 0; r < n_rows; r++) {
        wide[r] = row_wide(ROWS_TOKEN, x[r], n_in);
        UNROLL
        for (int h = 0; h < N_HALVES; h++) {
            sums[r][h] = n_quad_start(row_sum(x[r], n_in));
        }
    }
    for (int32_t k = 0; k < n_in; k += PACK_GROUP) {
        const int8_t *from = block + (size_t)k * LANES;
        ROLLED
        for (int t = 0; t < QUADS; t++) {
            n_quad w[N_HALVES];
            if (n_rows == 1) {
                _mm_prefetch((const char *)from + t * 64 + PREFETCH_BYTES, _MM_HINT_T0);
            }
            UNROLL
            for (int h = 0; h < N_HALVES; h++) {
                w[h] = n_quad_load(from + t * 64 + h * 4 * N_LANES);
            }
            UNROLL
            for (int r = 0; r < n_rows; r++) {
                n_quad row = n_quad_row((const int8_t *)x[r] + k, wide[r] + k, t);
                UNROLL
                for (int h = 0; h < N_HALVES; h++) {
                    sums[r][h] = n_quad_add(sums[r][h], w[h], row);
                }
            }
        }
    }
    UNROLL
    for (int r = 0; r < n_rows; r++) {
        nf x_scale = nf_set1(row_scales(x[r], n_in)[0]);
        UNROLL
        for (int h = 0; h < N_HALVES; h++) {
            nf_store(y + r * y_stride + h * N_LANES, nf_mul(nf_of(sums[r][h]), nf_mul(x_scale, nf_load(scales + h * N_LANES))));
        }
    }
}

static void product_int8(const linear *w, row_view x, int32_t n_rows, int32_t block0, int32_t n_blocks, float *y) {
    int32_t stride = n_blocks * LANES;
    for (int32_t i = 0; i < n_blocks; i++) {
        const int8_t *block = (const int8_t *)linear_block(w, block0 + i);
        const float *scales = w->scales + (int64_t)(block0 + i) * LANES;
        for (int32_t r = 0; r < n_rows; r += N_INT8_ROWS) {
            const uint8_t *rows[N_INT8_ROWS];
            int32_t n = n_rows - r < N_INT8_ROWS ? n_rows - r : N_INT8_ROWS;
            for (int32_t j = 0; j < n; j++) {
                rows[j] = x.data + (size_t)(r + j) * x.stride;
            }
            switch (n) {
#define INT8_ROWS(count)                                                                                                                   \
    case count:                                                                                                                            \
        int8_tile(count, block, scales, rows, w->layout.n_in, y + i * LANES + r * stride, stride);                                         \
        break;
                INT8_ROWS(1)
                INT8_ROWS(2)
                INT8_ROWS(3)
                INT8_ROWS(4)
#if N_INT8_ROWS == 8
                INT8_ROWS(5)
                INT8_ROWS(6)
                INT8_ROWS(7)
                INT8_ROWS(8)
#endif
#undef INT8_ROWS
            }
        }
    }
}

/* ---- groups ---- */

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

/* ---- the table ---- */

#define FLOAT_PRODUCT(name, kind, format)                                                                                                  \
    static void name(const linear *w, row_view x, int32_t n_rows, int32_t block0, int32_t n_blocks, float *y) {                            \
        product_floats(kind, format, w, x, n_rows, block0, n_blocks, y);                                                                   \
    }
FLOAT_PRODUCT(product_f32, PACK_F32, ROWS_F32)
FLOAT_PRODUCT(product_f16, PACK_F16, ROWS_F32)
FLOAT_PRODUCT(product_bf16_wide, PACK_BF16, ROWS_F32)
FLOAT_PRODUCT(product_bf16, PACK_BF16, ROWS_BF16)
#undef FLOAT_PRODUCT

static void product(const linear *w, row_view x, int32_t n_rows, int32_t block0, int32_t n_blocks, float *y) {
    switch (w->layout.kind) {
    case PACK_F32:
        product_f32(w, x, n_rows, block0, n_blocks, y);
        break;
    case PACK_F16:
        product_f16(w, x, n_rows, block0, n_blocks, y);
        break;
    case PACK_BF16:
        (w->format == ROWS_BF16 ? product_bf16 : product_bf16_wide)(w, x, n_rows, block0, n_blocks, y);
        break;
    case PACK_INT8:
        product_int8(w, x, n_rows, block0, n_blocks, y);
        break;
#define GROUP_CASE(name, group, bits, zero, scale)                                                                                         \
    case PACK_##name:                                                                                                                      \
        product_##name(w, x, n_rows, block0, n_blocks, y);                                                                                 \
        break;
        PACK_GROUPED_LIST(GROUP_CASE)
#undef GROUP_CASE
    default:
        break;
    }
}

const linear_kernels LINEAR_TABLE = {
    .prepare = {[ROWS_F32] = prepare_f32, [ROWS_BF16] = prepare_bf16, [ROWS_TOKEN] = prepare_token, [ROWS_GROUPS] = prepare_groups},
    .product = product,
};
