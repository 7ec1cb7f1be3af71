/* Products of INT8 weights on processors that multiply int8 matrices (ARMv8.6, I8MM).
 * Part of linear_kernels.inc.h.
 *
 * smmla multiplies 2 rows of 8 k with 2 columns of 8 k and adds to 2 x 2 sums: twice the
 * products of sdot per instruction, for operands of the same size. Two consecutive quads
 * of k in a block (pack_weights.h), zipped, are such pairs of columns; 8 bytes each of
 * two rows are a pair of rows. Sums of a tile of up to MM_PAIRS pairs of rows x 16
 * columns stay in registers over a chunk of k, whose weights stay in L1 while all rows
 * are multiplied. Between chunks they are stored in y as int32. Integers are exact, so
 * the bits are those of linear_int8.inc.h. */
#define MM_PAIRS    3
#define MM_FROM     4    /* rows from which zipping pays off */
#define MM_CHUNK    1024 /* elements of k: 16 KB of weights */
#define MM_QUARTERS (LANES / 4)

/* One pass: 2 * n_pairs rows, of which n_rows exist (at most one is missing), over
 * k0..k0+n_k of a block. */
typedef struct mm_pass {
    const linear *w;
    int32_t block, k0, n_k, n_rows;
} mm_pass;

/* Address of row r of the tile; a missing last row repeats the one before. */
INLINE const uint8_t *mm_row(const mm_pass *p, row_view x, int r) {
    return x.data + (size_t)(r < p->n_rows ? r : p->n_rows - 1) * x.stride;
}

/* Load and store the 2 x 2 sums of columns 4i..4i+3 of two rows, as int32 in y. */
INLINE void mm_pair(const float *row0, const float *row1, int32x4_t sums[2]) {
    int64x2_t a = vreinterpretq_s64_s32(n_load(row0)), b = vreinterpretq_s64_s32(n_load(row1));
    sums[0] = vreinterpretq_s32_s64(vzip1q_s64(a, b));
    sums[1] = vreinterpretq_s32_s64(vzip2q_s64(a, b));
}

INLINE int32x4_t mm_unpair(const int32x4_t sums[2], int row) {
    int64x2_t a = vreinterpretq_s64_s32(sums[0]), b = vreinterpretq_s64_s32(sums[1]);
    return vreinterpretq_s32_s64(row == 0 ? vzip1q_s64(a, b) : vzip2q_s64(a, b));
}

INLINE void mm_store(const mm_pass *p, row_view x, int r, const int32x4_t sums[2 * MM_QUARTERS], float *y) {
    const float *scales = p->w->scales + (int64_t)p->block * LANES;
    bool last = p->k0 + p->n_k == p->w->layout.k_padded;
    float32x4_t x_scale = nf_set1(row_scales(mm_row(p, x, r), p->w->layout.n_in)[0]);
    UNROLL
    for (int i = 0; i < MM_QUARTERS; i++) {
        int32x4_t sum = mm_unpair(sums + 2 * i, r % 2);
        if (last) {
            nf_store(y + 4 * i, nf_mul(nf_of(sum), nf_mul(x_scale, nf_load(scales + 4 * i))));
        } else {
            n_store(y + 4 * i, sum);
        }
    }
}

INLINE void mm_tile(int n_pairs, const mm_pass *p, row_view x, float *y, int32_t y_stride) {
    int32x4_t sums[MM_PAIRS][2 * MM_QUARTERS];
    const int8_t *rows[2 * MM_PAIRS],
        *from = (const int8_t *)linear_block(p->w, p->block) + (size_t)p->k0 * LANES;
    UNROLL
    for (int r = 0; r < 2 * n_pairs; r++) {
        rows[r] = (const int8_t *)mm_row(p, x, r) + p->k0;
    }
    UNROLL
    for (int i = 0; i < n_pairs * MM_QUARTERS; i++) {
        int pair = i / MM_QUARTERS, column = i % MM_QUARTERS * 4,
            row1 = 2 * pair + 1 < p->n_rows ? 2 * pair + 1 : 2 * pair;
        int32x4_t *to = sums[pair] + i % MM_QUARTERS * 2;
        if (p->k0 == 0) {
            to[0] = to[1] = n_set1(0);
        } else {
            mm_pair(y + 2 * pair * y_stride + column, y + row1 * y_stride + column, to);
        }
    }
    ROLLED
    for (int32_t k = 0; k < p->n_k; k += 8, from += 8 * LANES) {
        int8x16_t x8[MM_PAIRS];
        UNROLL
        for (int pair = 0; pair < n_pairs; pair++) {
            x8[pair] = vcombine_s8(vld1_s8(rows[2 * pair] + k), vld1_s8(rows[2 * pair + 1] + k));
        }
        UNROLL
        for (int i = 0; i < MM_QUARTERS; i++) {
            /* loading all weights at once would leave too few registers for the sums */
            __asm__ volatile("" ::: "memory");
            int32x4_t first = n_load(from + 16 * i), second = n_load(from + 4 * LANES + 16 * i);
            int8x16_t w0 = vreinterpretq_s8_s32(vzip1q_s32(first, second)),
                      w1 = vreinterpretq_s8_s32(vzip2q_s32(first, second));
            UNROLL
            for (int pair = 0; pair < n_pairs; pair++) {
                sums[pair][2 * i] = vmmlaq_s32(sums[pair][2 * i], x8[pair], w0);
                sums[pair][2 * i + 1] = vmmlaq_s32(sums[pair][2 * i + 1], x8[pair], w1);
            }
        }
    }
    UNROLL
    for (int r = 0; r < 2 * n_pairs; r++) {
        if (r < p->n_rows) {
            mm_store(p, x, r, sums[r / 2], y + r * y_stride);
        }
    }
}

static void product_int8_mm(const linear_part *part, row_view x, int32_t n_rows, float *y, int32_t y_stride,
                            void *scratch) {
    if (n_rows < MM_FROM) {
        product_int8(part, x, n_rows, y, y_stride, scratch);
        return;
    }
    int32_t k_padded = part->w->layout.k_padded;
    mm_pass p = {.w = part->w};
    for (p.k0 = 0; p.k0 < k_padded; p.k0 += p.n_k) {
        p.n_k = k_padded - p.k0 < MM_CHUNK ? k_padded - p.k0 : MM_CHUNK;
        for (int32_t i = 0; i < part->n_blocks; i++) {
            p.block = part->block0 + i;
            for (int32_t row = 0; row < n_rows; row += p.n_rows) {
                int32_t left = n_rows - row;
                row_view rows = {x.data + (size_t)row * x.stride, x.stride};
                float *to = y + row * y_stride + i * LANES;
                p.n_rows = left < 2 * MM_PAIRS ? left : 2 * MM_PAIRS;
                if (left > 4) {
                    mm_tile(3, &p, rows, to, y_stride);
                } else if (left > 2) {
                    mm_tile(2, &p, rows, to, y_stride);
                } else {
                    mm_tile(1, &p, rows, to, y_stride);
                }
            }
        }
    }
}
