/* Products of float weights: F32, F16, BF16. Part of linear_kernels.inc.h, and of
 * linear_avx512bf16.c, which defines LINEAR_DOT_BF16.
 *
 * A tile of rows x blocks of 16 columns stays in registers while k runs.
 *   Few rows   read the packed weights directly, once, and prefetch them: they are
 *              memory-bound.
 *   Many rows  run over chunks of k. The weights of a tile's chunk stay in L1 while all
 *              rows are multiplied. They are first widened to f32, once for up to
 *              LINEAR_TILE_ROWS rows, unless an instruction multiplies them as packed.
 *              The rows of a chunk stay in L2 while the blocks are multiplied. Each tile
 *              prefetches its share of the next weights.
 * A multiplication takes its weights from a register and broadcasts its element of x from
 * memory. With 256 bits, 6 rows x 1 block are 12 sums in flight, where 2 ports x 4 cycles
 * need 8, and take 8 loads for 12 multiplications. With 512 bits, 8 rows x 2 blocks are
 * 16 sums and 10 loads. With 128 bits and 32 registers, 6 rows x 1 block are 24 sums. */
#define CHUNK_BYTES    16384 /* bytes of weights that stay in L1 */
#define PREFETCH_BYTES 1024  /* how far ahead few rows prefetch */

/* With 16 registers and 12 sums, gcc needs hints about what to keep in registers. KEEP
 * (simd.h) keeps a sum in its registers between two multiplications. FORGET makes gcc
 * load a pointer's bytes again instead of keeping them in a register. */
#if N_LANES == 16
#define TILE_BLOCKS(n_rows) ((n_rows) <= 4 ? 4 : 2)
#else
#define TILE_BLOCKS(n_rows) ((n_rows) == 1 ? 4 : (n_rows) == 2 ? 2 : 1)
#endif
#if N_LANES == 8
#define FORGET(pointer) __asm__("" : "+r"(pointer))
#else
#define FORGET(pointer) ((void)0)
#endif
#define MOST_BLOCKS 4
#define MANY_BLOCKS TILE_BLOCKS(N_FLOAT_ROWS)

#ifdef LINEAR_DOT_BF16
#define DOTS(format) ((format) == ROWS_BF16)
#else /* rows of bf16 are widened to f32 and multiplied like all others */
#define DOTS(format)               ((format) == ROWS_BF16 && false)
#define LINEAR_DOT_BF16(sum, w, x) ((void)(w), (void)(x), (sum))
#endif

typedef f32x16 float_sums[N_FLOAT_ROWS][MOST_BLOCKS];

/* The operands of a tile, at its first k; sums go to y. */
typedef struct float_tile {
    const uint8_t *w, *x[N_FLOAT_ROWS];
    size_t w_stride; /* bytes between blocks */
    float *y;
    int32_t y_stride, n_k;
    bool go_on; /* start from the sums in y, not from 0 */
    /* for each block's columns: the sums times scale are added to start, or to y if start
     * is NULL; scale NULL: the sums are stored */
    const float *scale, *start;

    /* for many rows: the next weights, and how many bytes of each block this tile
     * prefetches with each k */
    const uint8_t *next;
    size_t next_stride, next_step;
} float_tile;

/* 16 columns of a block at k. BF16 are pairs: even k in the low halves, odd k in the high
 * halves. */
INLINE i32x16 load_pair(const uint8_t *block, int32_t k) {
    return i_load((const int32_t *)(const void *)block + (size_t)(k / 2) * LANES);
}
INLINE f32x16 load_weights(pack_kind kind, const uint8_t *block, int32_t k, int odd) {
    if (kind == PACK_F32) {
        return f_load((const float *)(const void *)block + (size_t)(k + odd) * LANES);
    }
    if (kind == PACK_F16) {
        return f_load_f16((const uint16_t *)(const void *)block + (size_t)(k + odd) * LANES);
    }
    if (odd) {
        FORGET(block);
        return f_of_bits(i_and(load_pair(block, k), i_set1((int32_t)0xffff0000)));
    }
    return f_of_bits(i_shl(load_pair(block, k), 16));
}

/* Prefetches the weights PREFETCH_BYTES ahead: the hardware prefetcher alone does not
 * reach the full memory bandwidth. */
INLINE void fetch_ahead(pack_kind kind, int n_blocks, const float_tile *t, int32_t k) {
    UNROLL
    for (int c = 0; c < n_blocks; c++) {
        __builtin_prefetch(t->w + (size_t)c * t->w_stride + (size_t)(k * LANES * (kind == PACK_F32 ? 4 : 2)) +
                           PREFETCH_BYTES);
    }
}

/* Prefetches a tile's share of the next weights, for many rows. */
INLINE void fetch_next(int n_blocks, const float_tile *t, int32_t k) {
    UNROLL
    for (int c = 0; c < n_blocks; c++) {
        __builtin_prefetch(t->next + (size_t)c * t->next_stride + (size_t)k * t->next_step);
    }
}

/* The value to store at y for a sum. */
INLINE f32x16 tile_result(const float_tile *t, int c, const float *y, f32x16 sum) {
    if (t->scale == NULL) {
        return sum;
    }
    return f_fma(sum, f_load(t->scale + c * LANES), f_load(t->start != NULL ? t->start + c * LANES : y));
}

INLINE void add_k(pack_kind kind, int n_rows, int n_blocks, const float_tile *t, int32_t k, int odd,
                  float_sums acc) {
    UNROLL
    for (int c = 0; c < n_blocks; c++) {
        f32x16 w = load_weights(kind, t->w + (size_t)c * t->w_stride, k, odd);
        UNROLL
        for (int r = 0; r < n_rows; r++) {
            f32x16 x = f_set1(((const float *)(const void *)t->x[r])[k + odd]);
            acc[r][c] = f_fma(x, w, acc[r][c]);
            KEEP(acc[r][c]);
        }
    }
}

INLINE void dot_pair(int n_rows, int n_blocks, const float_tile *t, int32_t k, float_sums acc) {
    i32x16 w[MOST_BLOCKS];
    UNROLL
    for (int c = 0; c < n_blocks; c++) {
        w[c] = load_pair(t->w + (size_t)c * t->w_stride, k);
    }
    UNROLL
    for (int r = 0; r < n_rows; r++) {
        i32x16 x = i_set1(((const int32_t *)(const void *)t->x[r])[k / 2]);
        UNROLL
        for (int c = 0; c < n_blocks; c++) {
            acc[r][c] = LINEAR_DOT_BF16(acc[r][c], w[c], x);
        }
    }
}

INLINE void tile_sums(pack_kind kind, row_format format, bool few, int n_rows, int n_blocks,
                      const float_tile *t) {
    float_sums acc;
    UNROLL
    for (int r = 0; r < n_rows; r++) {
        UNROLL
        for (int c = 0; c < n_blocks; c++) {
            acc[r][c] = t->go_on ? f_load(t->y + r * t->y_stride + c * LANES) : f_zero();
        }
    }
    int32_t k = 0;
    for (; kind == PACK_BF16 && k + 2 <= t->n_k; k += 2) {
        if (few) {
            fetch_ahead(kind, n_blocks, t, k);
        } else {
            fetch_next(n_blocks, t, k);
        }
        if (DOTS(format)) {
            dot_pair(n_rows, n_blocks, t, k, acc);
        } else {
            add_k(kind, n_rows, n_blocks, t, k, 0, acc);
            add_k(kind, n_rows, n_blocks, t, k, 1, acc);
        }
    }
    for (; !DOTS(format) && k < t->n_k; k++) { /* the last k of BF16, if it has no pair */
        if (few) {
            fetch_ahead(kind, n_blocks, t, k);
        } else {
            fetch_next(n_blocks, t, k);
        }
        add_k(kind, n_rows, n_blocks, t, k, 0, acc);
    }
    UNROLL
    for (int r = 0; r < n_rows; r++) {
        UNROLL
        for (int c = 0; c < n_blocks; c++) {
            float *y = t->y + r * t->y_stride + c * LANES;
            f_store(y, tile_result(t, c, y, acc[r][c]));
        }
    }
}

INLINE void pass_blocks(float_tile *t, int n_blocks) {
    t->w += (size_t)n_blocks * t->w_stride;
    t->y += n_blocks * LANES;
    t->scale = t->scale != NULL ? t->scale + n_blocks * LANES : NULL;
    t->start = t->start != NULL ? t->start + n_blocks * LANES : NULL;
}

/* Computes the columns of n_blocks blocks for the rows of one tile, as many blocks at a
 * time as fit in registers. */
INLINE void tile_columns(pack_kind kind, row_format format, bool few, int n_rows, float_tile t,
                         int32_t n_blocks) {
    int32_t i = 0;
    for (; i + TILE_BLOCKS(n_rows) <= n_blocks; i += TILE_BLOCKS(n_rows)) {
        tile_sums(kind, format, few, n_rows, TILE_BLOCKS(n_rows), &t);
        pass_blocks(&t, TILE_BLOCKS(n_rows));
    }
    for (; i < n_blocks; i++) {
        tile_sums(kind, format, few, n_rows, 1, &t);
        pass_blocks(&t, 1);
    }
}

INLINE void tile_rows(pack_kind kind, row_format format, bool few, int32_t n_rows, const float_tile *t,
                      int32_t n_blocks) {
    switch (n_rows) {
#define TILE_CASE(count)                                                                                     \
    case count:                                                                                              \
        tile_columns(kind, format, few, count, *t, n_blocks);                                                \
        break;
        TILE_CASE(1)
        TILE_CASE(2)
        TILE_CASE(3)
        TILE_CASE(4)
        TILE_CASE(5)
        TILE_CASE(6)
#if N_FLOAT_ROWS == 8
        TILE_CASE(7)
        TILE_CASE(8)
#endif
#undef TILE_CASE
    }
}

/* Widens n_k elements of k of n_blocks blocks to f32; n_k is even, except at the end. */
INLINE void widen(pack_kind kind, const uint8_t *blocks, size_t stride, int32_t n_blocks, int32_t n_k,
                  float *out, size_t out_stride) {
    for (int32_t i = 0; i < n_blocks; i++) {
        const uint8_t *block = blocks + (size_t)i * stride;
        float *to = out + (size_t)i * out_stride;
        for (int32_t k = 0; k < n_k; k += 2) {
            f_store(to + k * LANES, load_weights(kind, block, k, 0));
            if (k + 1 < n_k) {
                f_store(to + (k + 1) * LANES, load_weights(kind, block, k, 1));
            }
        }
    }
}

INLINE int32_t tiles_of(int32_t n_rows) {
    return (n_rows + N_FLOAT_ROWS - 1) / N_FLOAT_ROWS;
}

/* Multiplies all rows with one chunk, in tiles of nearly equal numbers of rows, since a
 * tile of one or two would leave the multipliers idle. */
INLINE void chunk_rows(pack_kind kind, row_format format, bool few, row_view x, int32_t n_rows, float_tile t,
                       int32_t n_blocks) {
    int32_t n_tiles = tiles_of(n_rows);
    float *y = t.y;
    for (int32_t i = 0; i < n_tiles; i++) {
        int32_t r0 = n_rows * i / n_tiles, r1 = n_rows * (i + 1) / n_tiles;
        for (int32_t r = r0; r < r1; r++) {
            t.x[r - r0] = x.data + (size_t)r * x.stride;
        }
        t.y = y + r0 * t.y_stride;
        tile_rows(kind, format, few, r1 - r0, &t, n_blocks);
        t.next += t.next_step * (size_t)t.n_k;
    }
}

INLINE void product_floats(pack_kind kind, row_format format, const linear_part *part, row_view x,
                           int32_t n_rows, float *y, int32_t y_stride, void *scratch) {
    const linear *w = part->w;
    const int32_t n_blocks = part->n_blocks;
    const bool widens = kind != PACK_F32 && !DOTS(format);
    const int32_t weight_bytes = kind == PACK_F32 ? 4 : 2, x_bytes = DOTS(format) ? 2 : 4;
    int32_t k_end = linear_k_end(w);
    const uint8_t *blocks = linear_block(w, part->block0);
    size_t stride = w->layout.block_bytes;
    float_tile t = {.w = blocks,
                    .w_stride = stride,
                    .next = blocks,
                    .next_stride = stride,
                    .y = y,
                    .y_stride = y_stride,
                    .n_k = k_end};
    if (n_rows <= N_FLOAT_ROWS) {
        chunk_rows(kind, format, true, x, n_rows, t, n_blocks);
        return;
    }
    const int32_t chunk = CHUNK_BYTES / MANY_BLOCKS / LANES / (widens ? 4 : weight_bytes);
    const int32_t row_bytes = LANES * weight_bytes; /* bytes of a block at one k */
    t.next_step = (size_t)((row_bytes + tiles_of(n_rows) - 1) / tiles_of(n_rows));
    for (int32_t k0 = 0; k0 < k_end; k0 += chunk) {
        row_view xk = {x.data + (size_t)(k0 * x_bytes), x.stride};
        t.n_k = k_end - k0 < chunk ? k_end - k0 : chunk;
        t.go_on = k0 > 0;
        for (int32_t i = 0; i < n_blocks; i += MANY_BLOCKS) {
            int32_t n = n_blocks - i < MANY_BLOCKS ? n_blocks - i : MANY_BLOCKS;
            const uint8_t *from = blocks + (size_t)i * stride + (size_t)(k0 * row_bytes);
            bool more = i + MANY_BLOCKS < n_blocks;
            /* 0 for the next rows, which start over */
            int32_t next_k = more ? k0 : k0 + chunk < k_end ? k0 + chunk : 0;
            t.next = blocks + (size_t)(more ? i + MANY_BLOCKS : 0) * stride + (size_t)(next_k * row_bytes);
            t.y = y + i * LANES;
            if (widens) {
                t.w = scratch;
                t.w_stride = (size_t)(chunk * LANES) * sizeof(float);
                widen(kind, from, stride, n, t.n_k, scratch, (size_t)(chunk * LANES));
                chunk_rows(PACK_F32, ROWS_F32, false, xk, n_rows, t, n);
            } else {
                t.w = from;
                chunk_rows(kind, format, false, xk, n_rows, t, n);
            }
        }
    }
}
