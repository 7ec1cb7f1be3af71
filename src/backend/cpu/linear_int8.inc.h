/* Products of INT8 weights, one scale a column: a tile of rows x 16 columns stays in registers while k runs. Part of linear_kernels.inc.h. */
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
