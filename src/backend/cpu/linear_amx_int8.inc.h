/* Products of INT8 weights with AMX tiles. Part of linear_amx.inc.h. A pass multiplies up
 * to 32 rows with two blocks. Tiles 0 and 1 hold the sums of its first 16 rows with each
 * block, tiles 2 and 3 those of the others; 4 and 5 hold rows, 6 and 7 weights. Each pass
 * also prefetches its results, and its share of the next blocks if they are not near. */
#define AMX_PASS_ROWS (2 * AMX_ROWS)
#define AMX_STEP      AMX_BYTES          /* values of k per step */
#define STEP_BYTES    (AMX_STEP * LANES) /* weight bytes per block */

typedef struct int8_pass {
    row_view x;
    int32_t n_rows[2]; /* rows in each tile; the second may be 0 */
    int32_t n_blocks;  /* 1 or 2 */
    const uint8_t *blocks;
    size_t block_bytes;
    /* If k_padded is not a multiple of AMX_STEP: each block's last 32 of k, then 32
     * zeros */
    const uint8_t *ends;
    const uint8_t *next;  /* the blocks to prefetch, or NULL */
    int32_t line0, line1; /* the lines of each block to prefetch per step */
} int8_pass;

INLINE void int8_step(const int8_pass *p, int32_t k, const uint8_t *w, size_t block_bytes) {
    const uint8_t *x = p->x.data + k;
    amx_load_once(4, x, p->x.stride);
    amx_load(6, w, AMX_BYTES);
    amx_dot(0, 4, 6);
    if (p->n_blocks > 1) {
        amx_load(7, w + block_bytes, AMX_BYTES);
        amx_dot(1, 4, 7);
    }
    if (p->n_rows[1] > 0) {
        amx_load_once(5, x + (size_t)p->n_rows[0] * p->x.stride, p->x.stride);
        amx_dot(2, 5, 6);
        if (p->n_blocks > 1) {
            amx_dot(3, 5, 7);
        }
    }
}

INLINE void int8_prefetch(const int8_pass *p, int32_t k) {
    for (int32_t i = 0; i < p->n_blocks && p->next != NULL; i++) {
        for (int32_t line = p->line0; line < p->line1; line++) {
            __builtin_prefetch(p->next + (size_t)i * p->block_bytes + (size_t)k * LANES + line * 64, 0, 2);
        }
    }
}

INLINE void int8_prefetch_results(int32_t n_rows, int32_t n_blocks, const float *y, int32_t y_stride) {
    for (int32_t r = 0; r < n_rows; r++) {
        for (int32_t i = 0; i < n_blocks; i++) {
            __builtin_prefetch(y + r * y_stride + i * LANES, 1);
        }
    }
}

/* Computes the sums of a pass, [rows][2 blocks][16], over all of k. */
static void int8_sums(const int8_pass *p, int32_t k_padded, int32_t *sums) {
    const size_t stride = 2 * LANES * sizeof *sums;
    const int32_t whole = k_padded / AMX_STEP * AMX_STEP;
    amx_zero(0);
    if (p->n_blocks > 1) {
        amx_zero(1);
    }
    if (p->n_rows[1] > 0) {
        amx_zero(2);
        amx_zero(3);
    }
    for (int32_t k = 0; k < whole; k += AMX_STEP) {
        int8_prefetch(p, k);
        int8_step(p, k, p->blocks + (size_t)k * LANES, p->block_bytes);
    }
    /* The row's scale and sum follow its numbers; they are multiplied by 0. */
    if (whole < k_padded) {
        int8_step(p, whole, p->ends, STEP_BYTES);
    }
    amx_store(0, sums, stride);
    if (p->n_blocks > 1) {
        amx_store(1, sums + LANES, stride);
    }
    if (p->n_rows[1] > 0) {
        amx_store(2, sums + p->n_rows[0] * 2 * LANES, stride);
        amx_store(3, sums + p->n_rows[0] * 2 * LANES + LANES, stride);
    }
}

static void int8_configure(const int8_pass *p) {
    amx_config c = {0};
    for (int i = 0; i < 2; i++) {
        amx_shape(&c, 2 * i, p->n_rows[i], AMX_BYTES);
        amx_shape(&c, 2 * i + 1, p->n_rows[i], AMX_BYTES);
        amx_shape(&c, 4 + i, p->n_rows[i], AMX_STEP);
        amx_shape(&c, 6 + i, AMX_STEP / 4, AMX_BYTES);
    }
    amx_configure(&c);
}

/* Scales the sums into y. scales[0] is that of the pass's first column. */
INLINE void int8_scale(const int8_pass *p, int32_t n_in, const float *scales, const int32_t *sums, float *y,
                       int32_t y_stride) {
    for (int32_t r = 0; r < p->n_rows[0] + p->n_rows[1]; r++) {
        const nf x_scale = nf_set1(row_scales(p->x.data + (size_t)r * p->x.stride, n_in)[0]);
        for (int32_t c = 0; c < p->n_blocks * LANES; c += N_LANES) {
            const nf sum = nf_of(n_load(sums + r * 2 * LANES + c));
            nf_store(y + r * y_stride + c, nf_mul(sum, nf_mul(x_scale, nf_load(scales + c))));
        }
    }
}

/* Multiplies all rows with one or two blocks, in passes of nearly equal numbers of rows.
 * *n_before: the number of rows that the tiles are configured for. */
static void int8_passes(int8_pass *p, const linear *w, row_view x, int32_t n_rows, const float *scales,
                        float *y, int32_t y_stride, int32_t *n_before) {
    _Alignas(64) int32_t sums[AMX_PASS_ROWS * 2 * LANES];
    const int32_t n_passes = (n_rows + AMX_PASS_ROWS - 1) / AMX_PASS_ROWS;
    for (int32_t pass = 0, row = 0; pass < n_passes; pass++) {
        const int32_t n = (n_rows - row + n_passes - pass - 1) / (n_passes - pass);
        p->x = (row_view){x.data + (size_t)row * x.stride, x.stride};
        p->n_rows[0] = n > AMX_ROWS ? (n + 1) / 2 : n;
        p->n_rows[1] = n - p->n_rows[0];
        p->line0 = pass * (STEP_BYTES / 64) / n_passes;
        p->line1 = (pass + 1) * (STEP_BYTES / 64) / n_passes;
        if (n != *n_before) {
            int8_configure(p);
            *n_before = n;
        }
        int8_prefetch_results(n, p->n_blocks, y + row * y_stride, y_stride);
        int8_sums(p, w->layout.k_padded, sums);
        int8_scale(p, w->layout.n_in, scales, sums, y + row * y_stride, y_stride);
        row += n;
    }
}

/* Copies the last 32 of k of n_blocks blocks, each followed by 32 zeros. */
static void int8_ends(const linear *w, const uint8_t *blocks, int32_t n_blocks, uint8_t *ends) {
    const size_t half = PACK_GROUP * LANES;
    for (int32_t i = 0; i < n_blocks; i++, ends += STEP_BYTES) {
        memcpy(ends, blocks + (size_t)i * w->layout.block_bytes + (size_t)w->layout.k_padded * LANES - half,
               half);
        memset(ends + half, 0, half);
    }
}

/* The blocks to prefetch while block i and the next one are multiplied; NULL: they are
 * near. */
INLINE const uint8_t *int8_next(const linear_part *part, int32_t i) {
    if (i + 2 < part->n_blocks) {
        return part->is_near ? NULL : linear_block(part->w, part->block0 + i + 2);
    }
    return part->next != linear_block(part->w, part->block0) ? part->next : NULL;
}

static void product_int8_amx(const linear_part *part, row_view x, int32_t n_rows, float *y, int32_t y_stride,
                             void *scratch) {
    const linear *w = part->w;
    int32_t n_before = 0;
    for (int32_t i = 0; i < part->n_blocks; i += 2) {
        int8_pass p = {.n_blocks = part->n_blocks - i < 2 ? 1 : 2,
                       .blocks = linear_block(w, part->block0 + i),
                       .block_bytes = w->layout.block_bytes,
                       .ends = scratch,
                       .next = int8_next(part, i)};
        if (w->layout.k_padded % AMX_STEP != 0) {
            int8_ends(w, p.blocks, p.n_blocks, scratch);
        }
        int8_passes(&p, w, x, n_rows, w->scales + (part->block0 + i) * LANES, y + i * LANES, y_stride,
                    &n_before);
    }
}
