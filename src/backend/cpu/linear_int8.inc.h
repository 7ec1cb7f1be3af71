/* Products of INT8 weights with one scale per column. Part of linear_kernels.inc.h.
 *
 * A register tile is up to N_INT8_ROWS rows x INT8_BLOCKS blocks of columns. Weights stay
 * in cache while all rows are multiplied: k is cut into chunks of INT8_CHUNK, and the
 * int32 sums are stored in y between chunks. Each pass also prefetches its share of the
 * next chunk. With 256 bits, many rows gain from converted quads in scratch. On AVX2
 * their products are cheaper but take more registers, which leaves a tile of
 * INT8_KEPT_ROWS rows. With AVX-512, units that products leave idle convert quads in each
 * pass. One or two rows need every weight once: they read more blocks side by side,
 * because the processor fetches several streams faster than one. */
#define INT8_FEW_ROWS   2
#define INT8_KEPT_FROM  32  /* rows from which converted quads pay off */
#define INT8_KEPT_CHUNK 512 /* elements of k; 16 KB of converted quads */

/* A range of k of some blocks. */
typedef struct int8_chunk {
    const linear *w;
    int32_t block, k0, n_k;
    const uint8_t *kept; /* converted quads from n_quad_keep, followed by the corrections for their sums */
    /* what this pass prefetches: ahead_step bytes per quad of k, and as many in each
     * following block */
    const int8_t *ahead;
    size_t ahead_step;
} int8_chunk;

INLINE void int8_tile(bool kept, int n_rows, int n_blocks, const int8_chunk *c, row_view x, float *y,
                      int32_t y_stride) {
    enum { MAX_SUMS = INT8_FEW_BLOCKS * N_HALVES };
    const linear *w = c->w;
    n_sum sums[N_INT8_ROWS][MAX_SUMS];
    const int8_t *thirds[(N_INT8_ROWS + 2) / 3]; /* a pointer and three distances address three rows */
    const int n_sums = n_blocks * N_HALVES;
    const uint8_t *lacks = kept ? c->kept + (size_t)(c->n_k / 4 * n_sums) * sizeof(n_quad) : NULL;
    UNROLL
    for (int r = 0; r < n_rows; r++) {
        const uint8_t *row = x.data + (size_t)r * x.stride;
        if (r % 3 == 0) {
            thirds[r / 3] = (const int8_t *)row + c->k0;
        }
        UNROLL
        for (int i = 0; i < n_sums; i++) {
            int32_t times_128 = (int32_t)(-128 * (int64_t)row_sum(row, w->layout.n_in));
            ni from = c->k0 == 0 ? (ni)n_quad_start(times_128) : n_load(y + r * y_stride + i * N_LANES);
            sums[r][i] = (n_sum)(kept ? n_add(from, n_load(lacks + (size_t)i * sizeof(ni))) : from);
        }
    }
    const uint8_t *from = kept ? c->kept : linear_block(w, c->block) + (size_t)c->k0 * LANES;
    const int8_t *ahead = c->ahead;
    size_t block_bytes = w->layout.block_bytes;
    ROLLED
    for (int32_t k = 0; k < c->n_k; k += 4) {
        n_quad q[MAX_SUMS];
        UNROLL
        for (int i = 0; i < n_sums; i++) {
            q[i] = kept ? n_quad_kept(from + (size_t)i * sizeof(n_quad))
                        : n_quad_load((const int8_t *)from + (size_t)(i / N_HALVES) * block_bytes +
                                      i % N_HALVES * 4 * N_LANES);
            if (n_rows > INT8_FEW_ROWS && i % N_HALVES == 0) {
                __builtin_prefetch(ahead + (size_t)(i / N_HALVES) * block_bytes);
            }
        }
        UNROLL
        for (int r = 0; r < n_rows; r++) {
            ni row = n_set1(quad_of(thirds[r / 3] + (size_t)(r % 3) * x.stride + k));
            UNROLL
            for (int i = 0; i < n_sums; i++) {
                sums[r][i] =
                    kept ? n_quad_add_kept(sums[r][i], q[i], row) : n_quad_add(sums[r][i], q[i], row);
            }
        }
        from += kept ? (size_t)n_sums * sizeof(n_quad) : 4 * LANES;
        ahead += c->ahead_step;
    }
    bool last = c->k0 + c->n_k == w->layout.k_padded;
    const float *scales = w->scales + (int64_t)c->block * LANES;
    UNROLL
    for (int r = 0; r < n_rows; r++) {
        nf x_scale = nf_set1(row_scales(x.data + (size_t)r * x.stride, w->layout.n_in)[0]);
        UNROLL
        for (int i = 0; i < n_sums; i++) {
            float *out = y + r * y_stride + i * N_LANES;
            if (last) {
                nf_store(out, nf_mul(nf_of((ni)sums[r][i]), nf_mul(x_scale, nf_load(scales + i * N_LANES))));
            } else {
                n_store(out, (ni)sums[r][i]);
            }
        }
    }
}

INLINE void int8_rows(bool kept, int n_rows, int n_blocks, const int8_chunk *c, row_view x, float *y,
                      int32_t y_stride) {
    switch (n_rows) {
#define INT8_ROWS(count)                                                                                     \
    case count:                                                                                              \
        int8_tile(kept, count, n_blocks, c, x, y, y_stride);                                                 \
        break;
        INT8_ROWS(3)
        INT8_ROWS(4)
        INT8_ROWS(5)
        INT8_ROWS(6)
#if N_INT8_ROWS == 12
        INT8_ROWS(7)
        INT8_ROWS(8)
        INT8_ROWS(9)
        INT8_ROWS(10)
        INT8_ROWS(11)
        INT8_ROWS(12)
#endif
#undef INT8_ROWS
    default:
        break;
    }
}

/* Multiplies all rows, at least 3, with n_blocks blocks of a chunk, in passes of nearly
 * equal numbers of rows. next: the next chunk. */
INLINE void int8_passes(bool kept, int n_blocks, int8_chunk *c, const int8_t *next, row_view x,
                        int32_t n_rows, float *y, int32_t y_stride) {
    int32_t most = kept ? INT8_KEPT_ROWS : N_INT8_ROWS, n_passes = (n_rows + most - 1) / most;
    c->ahead_step = (size_t)((4 * LANES + n_passes - 1) / n_passes);
    for (int32_t pass = 0, row = 0; pass < n_passes; pass++) {
        int32_t n = (n_rows - row + n_passes - pass - 1) / (n_passes - pass);
        c->ahead = next + (size_t)pass * (size_t)c->n_k * LANES / (size_t)n_passes;
        row_view rows = {x.data + (size_t)row * x.stride, x.stride};
        int8_rows(kept, n, n_blocks, c, rows, y + row * y_stride, y_stride);
        row += n;
    }
}

/* Converts the quads of a chunk of n_blocks blocks for many rows. */
INLINE void int8_keep(int n_blocks, int8_chunk *c, uint8_t *scratch) {
    const uint8_t *from = linear_block(c->w, c->block) + (size_t)c->k0 * LANES;
    const int n_sums = n_blocks * N_HALVES;
    ni lacks[INT8_BLOCKS * N_HALVES];
    UNROLL
    for (int i = 0; i < n_sums; i++) {
        lacks[i] = n_set1(0);
    }
    c->kept = scratch;
    for (int32_t k = 0; k < c->n_k; k += 4, from += 4 * LANES) {
        UNROLL
        for (int i = 0; i < n_sums; i++, scratch += sizeof(n_quad)) {
            ni quad =
                n_load(from + (size_t)(i / N_HALVES) * c->w->layout.block_bytes + i % N_HALVES * 4 * N_LANES);
            n_quad_keep(scratch, quad);
            lacks[i] = n_add(lacks[i], n_lack_sum(n_quad_lack(n_set1(0), quad)));
        }
    }
    UNROLL
    for (int i = 0; i < n_sums; i++) {
        n_store(scratch + (size_t)i * sizeof(ni), lacks[i]);
    }
}

/* Multiplies with a chunk of n_blocks blocks. next: the chunk after it. */
INLINE void int8_part(bool kept, int n_blocks, int8_chunk *c, const int8_t *next, row_view x, int32_t n_rows,
                      float *y, int32_t y_stride, uint8_t *scratch) {
    if (kept) {
        int8_keep(n_blocks, c, scratch);
        int8_passes(true, n_blocks, c, next, x, n_rows, y, y_stride);
    } else {
        int8_passes(false, n_blocks, c, next, x, n_rows, y, y_stride);
    }
}

static void int8_few_rows(const linear_part *part, row_view x, int32_t n_rows, float *y, int32_t y_stride) {
    int8_chunk c = {.w = part->w, .n_k = part->w->layout.k_padded};
    for (int32_t i = 0; i < part->n_blocks;) {
        int32_t n = part->n_blocks - i >= INT8_FEW_BLOCKS ? INT8_FEW_BLOCKS : 1;
        c.block = part->block0 + i;
#define FEW_ROWS(rows, blocks)                                                                               \
    if (n_rows == rows && n == blocks) {                                                                     \
        int8_tile(false, rows, blocks, &c, x, y + i * LANES, y_stride);                                      \
    }
        FEW_ROWS(1, INT8_FEW_BLOCKS)
        FEW_ROWS(2, INT8_FEW_BLOCKS)
        FEW_ROWS(1, 1)
        FEW_ROWS(2, 1)
#undef FEW_ROWS
        i += n;
    }
}

static void product_int8(const linear_part *part, row_view x, int32_t n_rows, float *y, int32_t y_stride,
                         void *scratch) {
    if (n_rows <= INT8_FEW_ROWS) {
        int8_few_rows(part, x, n_rows, y, y_stride);
        return;
    }
    const linear *w = part->w;
    const int32_t block0 = part->block0, n_blocks = part->n_blocks;
    const bool kept = INT8_KEPT_ROWS > 0 && n_rows >= INT8_KEPT_FROM;
    int32_t k_padded = w->layout.k_padded, most_k = kept ? INT8_KEPT_CHUNK : INT8_CHUNK;
    int8_chunk c = {.w = w};
    for (c.k0 = 0; c.k0 < k_padded; c.k0 += c.n_k) {
        c.n_k = k_padded - c.k0 < most_k ? k_padded - c.k0 : most_k;
        for (int32_t i = 0; i < n_blocks; i += INT8_BLOCKS) {
            bool more = i + INT8_BLOCKS < n_blocks;
            int32_t next_k = more ? c.k0 : (c.k0 + c.n_k) % k_padded;
            const int8_t *next = (const int8_t *)linear_block(w, more ? block0 + i + INT8_BLOCKS : block0) +
                                 (size_t)next_k * LANES;
            c.block = block0 + i;
            if (n_blocks - i >= INT8_BLOCKS) {
                int8_part(kept, INT8_BLOCKS, &c, next, x, n_rows, y + i * LANES, y_stride, scratch);
            } else {
                int8_part(kept, 1, &c, next, x, n_rows, y + i * LANES, y_stride, scratch);
            }
        }
    }
}
