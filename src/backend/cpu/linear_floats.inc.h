/* Products of float weights: F32, F16, BF16. A tile of rows x 16 columns stays in registers while k runs; the weights of FLOAT_CHUNK k stay in
 * L1 while the tiles of rows pass. Part of linear_kernels.inc.h. */
#define FLOAT_CHUNK 512 /* k of a block that stay in L1 while row tiles pass */

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
