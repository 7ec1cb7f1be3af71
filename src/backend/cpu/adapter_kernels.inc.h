/* The two products of an adapter, t = A h and y += scale * (B t) (math.h). Part of
 * math_table.inc.h.
 *
 * Bytes: A and B once for as many rows as a tile has. One row takes a load, a widening
 * and a multiplication per number: it is memory-bound, and several streams are read
 * faster than one. With many rows a tile of sums stays in registers. Sums do not depend
 * on each other, so a tile may have any shape. With 512 bits, 4 ranks x 4 rows and 4
 * blocks x 4 rows are 16 sums for 8 loads; with fewer bits, 2 x 3 and 2 x 2 take 12 and 8
 * registers of 256 bits. */
#ifndef CPU_ADAPTER_KERNELS_INC_H
#define CPU_ADAPTER_KERNELS_INC_H

#include "backend/cpu/math_kernels.inc.h"

#if defined(__AVX512F__) && !defined(SIMD_EMULATE)
#define SHRINK_RANKS  4
#define SHRINK_ROWS   4
#define SHRINK_BLOCKS 4
#define SHRINK_AHEAD  2048 /* bytes that each stream prefetches ahead */
#define EXPAND_BLOCKS 4
#define EXPAND_ROWS   4
#else
#define SHRINK_RANKS  2
#define SHRINK_ROWS   3
#define SHRINK_BLOCKS 1
#define SHRINK_AHEAD  0
#define EXPAND_BLOCKS 2
#define EXPAND_ROWS   2
#endif
#define CACHE_LINE 64

/* Bytes of a number of A or B. */
INLINE size_t adapter_size(dtype type) {
    return type == DTYPE_F32 ? sizeof(float) : sizeof(uint16_t);
}

/* Numbers i..i+16 of A or B as floats. */
INLINE f32x16 adapter_numbers(dtype type, const uint8_t *p, size_t i) {
    const uint16_t *halves = (const uint16_t *)(const void *)p;
    switch (type) {
    case DTYPE_F16:
        return f_load_f16(halves + i);
    case DTYPE_BF16:
        return f_load_bf16(halves + i);
    default:
        return f_load((const float *)(const void *)p + i);
    }
}

/* Adds elements k..k+16 to the sums of n_rows rows and n_ranks ranks, from rank0 within
 * their ADAPTER_RANKS on. */
INLINE void shrink_step(dtype type, const uint8_t *a, int32_t k, int rank0, int n_ranks, const f32x16 *x,
                        int n_rows, f32x16 sums[][SHRINK_ROWS]) {
    UNROLL
    for (int r = 0; r < n_ranks; r++) {
        const f32x16 w = adapter_numbers(type, a, (size_t)k * ADAPTER_RANKS + (size_t)(rank0 + r) * LANES);
        UNROLL
        for (int i = 0; i < n_rows; i++) {
            sums[r][i] = f_fma(w, x[i], sums[r][i]);
        }
    }
}

INLINE void shrink_tile(dtype type, const uint8_t *a, int32_t n_in, int rank0, int n_ranks, int n_kept,
                        const float *const *h, int n_rows, float *const *t) {
    f32x16 sums[ADAPTER_RANKS][SHRINK_ROWS], x[SHRINK_ROWS];
    int32_t k = 0;
    UNROLL
    for (int r = 0; r < n_ranks; r++) {
        UNROLL
        for (int i = 0; i < n_rows; i++) {
            sums[r][i] = f_zero();
        }
    }
    for (; k + LANES <= n_in; k += LANES) {
        UNROLL
        for (int i = 0; i < n_rows; i++) {
            x[i] = f_load(h[i] + k);
        }
        shrink_step(type, a, k, rank0, n_ranks, x, n_rows, sums);
    }
    if (k < n_in) {
        UNROLL
        for (int i = 0; i < n_rows; i++) {
            x[i] = f_load_first(h[i] + k, n_in - k);
        }
        shrink_step(type, a, k, rank0, n_ranks, x, n_rows, sums);
    }
    UNROLL
    for (int r = 0; r < n_ranks; r++) {
        UNROLL
        for (int i = 0; i < n_rows; i++) {
            if (rank0 + r < n_kept) {
                t[i][rank0 + r] = f_tree_sum(sums[r][i]);
            }
        }
    }
}

/* Computes one group of ADAPTER_RANKS ranks, of which n_kept are stored. */
INLINE void shrink_ranks(dtype type, const uint8_t *a, int32_t n_in, int n_kept, const float *const *h,
                         int32_t n_rows, float *const *t) {
    int32_t i = 0;
    for (; i + SHRINK_ROWS <= n_rows; i += SHRINK_ROWS) {
        for (int rank0 = 0; rank0 < n_kept; rank0 += SHRINK_RANKS) {
            shrink_tile(type, a, n_in, rank0, SHRINK_RANKS, n_kept, h + i, SHRINK_ROWS, t + i);
        }
    }
    for (; i < n_rows; i++) {
        shrink_tile(type, a, n_in, 0, ADAPTER_RANKS, n_kept, h + i, 1, t + i);
    }
}

/* Computes SHRINK_BLOCKS groups of ADAPTER_RANKS ranks for one row, since memory is read
 * faster in several streams. The streams are short, so they are prefetched, and towards
 * their ends the next ones. */
INLINE void shrink_row(dtype type, const uint8_t *a, const uint8_t *next, size_t bytes, int32_t n_in,
                       const float *h, float *t) {
    f32x16 sums[SHRINK_BLOCKS][ADAPTER_RANKS];
    UNROLL
    for (int b = 0; b < SHRINK_BLOCKS; b++) {
        UNROLL
        for (int r = 0; r < ADAPTER_RANKS; r++) {
            sums[b][r] = f_zero();
        }
    }
    for (int32_t k = 0; k < n_in; k += LANES) {
        const f32x16 x = k + LANES <= n_in ? f_load(h + k) : f_load_first(h + k, n_in - k);
        const size_t at = (size_t)k * ADAPTER_RANKS * adapter_size(type) + SHRINK_AHEAD;
        const uintptr_t ahead = at < bytes ? (uintptr_t)a + at : (uintptr_t)next + at - bytes;
        UNROLL
        for (int b = 0; b < SHRINK_BLOCKS; b++) {
            UNROLL
            for (size_t line = 0; line < ADAPTER_RANKS * LANES * adapter_size(type); line += CACHE_LINE) {
                __builtin_prefetch((const void *)(ahead + (size_t)b * bytes + line));
            }
            UNROLL
            for (int r = 0; r < ADAPTER_RANKS; r++) {
                sums[b][r] = f_fma(adapter_numbers(type, a + (size_t)b * bytes,
                                                   (size_t)k * ADAPTER_RANKS + (size_t)r * LANES),
                                   x, sums[b][r]);
            }
        }
    }
    UNROLL
    for (int b = 0; b < SHRINK_BLOCKS; b++) {
        UNROLL
        for (int r = 0; r < ADAPTER_RANKS; r++) {
            t[b * ADAPTER_RANKS + r] = f_tree_sum(sums[b][r]);
        }
    }
}

INLINE void shrink_with(dtype type, const uint8_t *a, const uint8_t *next, int32_t n_in, int32_t n_ranks,
                        const float *const *h, int32_t n_rows, float *const *t) {
    const size_t bytes = (size_t)((n_in + LANES - 1) / LANES * LANES) * ADAPTER_RANKS * adapter_size(type);
    float *to[ADAPTER_ROWS];
    int32_t r = 0;
    for (; n_rows == 1 && SHRINK_BLOCKS > 1 && r + SHRINK_BLOCKS * ADAPTER_RANKS <= n_ranks;
         r += SHRINK_BLOCKS * ADAPTER_RANKS, a += SHRINK_BLOCKS * bytes) {
        const bool is_last = r + 2 * SHRINK_BLOCKS * ADAPTER_RANKS > n_ranks;
        shrink_row(type, a, is_last && next != NULL ? next : a + SHRINK_BLOCKS * bytes, bytes, n_in, h[0],
                   t[0] + r);
    }
    for (; r < n_ranks; r += ADAPTER_RANKS, a += bytes) {
        for (int32_t i = 0; i < n_rows; i++) {
            to[i] = t[i] + r;
        }
        shrink_ranks(type, a, n_in, n_ranks - r < ADAPTER_RANKS ? n_ranks - r : ADAPTER_RANKS, h, n_rows, to);
    }
}

static void shrink_kernel(dtype type, const uint8_t *a, const uint8_t *next, int32_t n_in, int32_t n_ranks,
                          const float *const *h, int32_t n_rows, float *const *t) {
    switch (type) {
    case DTYPE_F16:
        shrink_with(DTYPE_F16, a, next, n_in, n_ranks, h, n_rows, t);
        break;
    case DTYPE_BF16:
        shrink_with(DTYPE_BF16, a, next, n_in, n_ranks, h, n_rows, t);
        break;
    default:
        shrink_with(DTYPE_F32, a, next, n_in, n_ranks, h, n_rows, t);
    }
}

INLINE void expand_tile(dtype type, const uint8_t *b, int32_t rank, int n_blocks, float scale, const float *t,
                        int32_t t_stride, int n_rows, float *y, int32_t y_stride) {
    f32x16 sums[EXPAND_ROWS][4];
    UNROLL
    for (int i = 0; i < n_rows; i++) {
        UNROLL
        for (int c = 0; c < n_blocks; c++) {
            sums[i][c] = f_zero();
        }
    }
    for (int32_t r = 0; r < rank; r++) {
        UNROLL
        for (int c = 0; c < n_blocks; c++) {
            const f32x16 w = adapter_numbers(type, b, ((size_t)c * (size_t)rank + (size_t)r) * LANES);
            UNROLL
            for (int i = 0; i < n_rows; i++) {
                sums[i][c] = f_fma(w, f_set1(t[i * t_stride + r]), sums[i][c]);
            }
        }
    }
    UNROLL
    for (int i = 0; i < n_rows; i++) {
        UNROLL
        for (int c = 0; c < n_blocks; c++) {
            float *to = y + (int64_t)i * y_stride + c * LANES;
            f_store(to, f_fma(f_set1(scale), sums[i][c], f_load(to)));
        }
    }
}

/* Computes all blocks for one row, in two halves side by side, since memory is read
 * faster in several streams. A row of a decode batch reads only a few KB of B, less than
 * the hardware prefetcher needs to detect a stream, so the next memory is prefetched
 * meanwhile, line by line, as a burst would delay the loads. */
INLINE void expand_row(dtype type, const uint8_t *b, const uint8_t *next, size_t bytes, int32_t rank,
                       int32_t n_blocks, float scale, const float *t, float *y) {
    const int32_t half = n_blocks / 2;
    uintptr_t ahead = (uintptr_t)(next != NULL ? next : b);
    for (int32_t c = 0; c < half; c++) {
        const uint8_t *low = b + (size_t)c * bytes, *high = low + (size_t)half * bytes;
        f32x16 x = f_zero(), z = f_zero();
        for (int32_t r = 0; r < rank; r++) {
            const f32x16 of_rank = f_set1(t[r]);
            __builtin_prefetch((const void *)ahead);
            ahead += 2 * LANES * adapter_size(type);
            x = f_fma(adapter_numbers(type, low, (size_t)r * LANES), of_rank, x);
            z = f_fma(adapter_numbers(type, high, (size_t)r * LANES), of_rank, z);
        }
        float *to = y + c * LANES, *other = to + half * LANES;
        f_store(to, f_fma(f_set1(scale), x, f_load(to)));
        f_store(other, f_fma(f_set1(scale), z, f_load(other)));
    }
    if (n_blocks % 2 != 0) {
        expand_tile(type, b + (size_t)(n_blocks - 1) * bytes, rank, 1, scale, t, 0, 1,
                    y + (n_blocks - 1) * LANES, 0);
    }
}

/* Computes n_blocks blocks for all rows. */
INLINE void expand_blocks(dtype type, const uint8_t *b, int32_t rank, int n_blocks, float scale,
                          const float *t, int32_t t_stride, int32_t n_rows, float *y, int32_t y_stride) {
    int32_t i = 0;
    for (; i + EXPAND_ROWS <= n_rows; i += EXPAND_ROWS) {
        expand_tile(type, b, rank, n_blocks, scale, t + (int64_t)i * t_stride, t_stride, EXPAND_ROWS,
                    y + (int64_t)i * y_stride, y_stride);
    }
    for (; i < n_rows; i++) {
        expand_tile(type, b, rank, n_blocks, scale, t + (int64_t)i * t_stride, t_stride, 1,
                    y + (int64_t)i * y_stride, y_stride);
    }
}

INLINE void expand_with(dtype type, const uint8_t *b, const uint8_t *next, int32_t rank, int32_t n_blocks,
                        float scale, const float *t, int32_t t_stride, int32_t n_rows, float *y,
                        int32_t y_stride) {
    const size_t bytes = (size_t)rank * LANES * adapter_size(type); /* bytes of a block */
    int32_t c = 0;
    if (n_rows == 1) {
        expand_row(type, b, next, bytes, rank, n_blocks, scale, t, y);
        return;
    }
    for (; c + EXPAND_BLOCKS <= n_blocks; c += EXPAND_BLOCKS) {
        expand_blocks(type, b + (size_t)c * bytes, rank, EXPAND_BLOCKS, scale, t, t_stride, n_rows,
                      y + c * LANES, y_stride);
    }
    for (; c < n_blocks; c++) {
        expand_blocks(type, b + (size_t)c * bytes, rank, 1, scale, t, t_stride, n_rows, y + c * LANES,
                      y_stride);
    }
}

static void expand_kernel(dtype type, const uint8_t *b, const uint8_t *next, int32_t rank, int32_t n_blocks,
                          float scale, const float *t, int32_t t_stride, int32_t n_rows, float *y,
                          int32_t y_stride) {
    switch (type) {
    case DTYPE_F16:
        expand_with(DTYPE_F16, b, next, rank, n_blocks, scale, t, t_stride, n_rows, y, y_stride);
        break;
    case DTYPE_BF16:
        expand_with(DTYPE_BF16, b, next, rank, n_blocks, scale, t, t_stride, n_rows, y, y_stride);
        break;
    default:
        expand_with(DTYPE_F32, b, next, rank, n_blocks, scale, t, t_stride, n_rows, y, y_stride);
    }
}

#endif
