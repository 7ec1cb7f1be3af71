/* Products of floats with scales: E4M3, and codes of a table of floats. Part of
 * linear_kernels.inc.h and linear_avx512bf16.c, after linear_floats.inc.h, whose tiles
 * they use.
 *
 *   Few rows   widen the codes while they multiply, with a stretch's sums in registers.
 *              The total over earlier stretches is in y, read and written once per
 *              stretch.
 *   Many rows  work by stretches, or by chunks of a stretch that is the whole row. Codes
 *              are widened once for all rows to f32, or to pairs for the dot instruction.
 *              The last chunk of a stretch applies the scale when it stores the sums.
 * linear_avx512bf16.c defines LINEAR_PAIR_E4M3. kind is PACK_E4M3 for all kinds of E4M3,
 * which differ only in where a stretch's scale is stored. */
#define SCALED_STEP     8 /* elements of k that few rows widen at a time: one word of 4-bit codes */
#define SCALED_CHUNK(f) (CHUNK_BYTES / MANY_BLOCKS / LANES / (DOTS(f) ? 2 : 4))

#ifndef LINEAR_PAIR_E4M3
#define LINEAR_PAIR_E4M3(codes) ((void)(codes), i_set1(0))
#endif

_Static_assert(PACK_MOST_STRETCH *MANY_BLOCKS *LANES * 4 <= LINEAR_SCRATCH_BYTES,
               "the longest stretch fits when it is widened");

/* The operands of few rows; sums go to y. */
typedef struct scaled_tile {
    const linear *of;
    const uint8_t *w, *x[N_FLOAT_ROWS];
    f32x16 table;
    float *y;
    int32_t y_stride, n_k;
} scaled_tile;

/* Bytes of the codes of 16 columns at one k. */
INLINE int32_t code_bytes(pack_kind kind) {
    return kind == PACK_T4_FLOAT ? LANES / 2 : LANES;
}

/* The numbers at k + i; k is even, and a multiple of SCALED_STEP for 4-bit codes. */
INLINE f32x16 load_number(pack_kind kind, const uint8_t *block, int32_t k, int32_t i, f32x16 table) {
    if (kind == PACK_T4_FLOAT) {
        return f_lookup(table,
                        i_shr(i_load((const int32_t *)(const void *)(block + k * code_bytes(kind))), 4 * i));
    }
    return f_load_e4m3_pairs(block + (k + i / 2 * 2) * code_bytes(kind), i % 2 != 0);
}

/* Two numbers as the dot instruction takes them. */
INLINE i32x16 load_number_pair(const uint8_t *block, int32_t k) {
    return LINEAR_PAIR_E4M3(block + k * code_bytes(PACK_E4M3));
}

INLINE f32x16 load_table(pack_kind kind, const linear *w) {
    return kind == PACK_T4_FLOAT ? f_load(w->numbers) : f_zero();
}

INLINE f32x16 load_starts(pack_kind kind, const pack_layout *l, const uint8_t *block) {
    return kind == PACK_T4_FLOAT ? f_zero() : f_load((const float *)(const void *)(block + l->supers_at));
}

INLINE f32x16 nested_scale(const linear *w, const uint8_t *block, int32_t stretch) {
    const float *supers = (const float *)(const void *)(block + w->layout.supers_at),
                *numbers = w->numbers + 16;
    const i32x16 codes =
        i_and(i_load_i8((const int8_t *)block + w->layout.scales_at + stretch * LANES), i_set1(255));
    const f32x16 place = f_load(supers);
    f32x16 outer = f_load(supers + LANES);
    for (int32_t i = 1; i < w->layout.n_outer; i++) {
        const mask16 is_behind = m_lt(f_set1((float)(i * NESTED_BLOCK - 1 - stretch)), place);
        outer = f_select(is_behind, f_load(supers + (1 + i) * LANES), outer);
    }
    return f_add(f_mul(f_lookup_256(numbers, codes), outer), f_set1(numbers[256]));
}

/* The factor of a stretch's sum. */
INLINE f32x16 stretch_scale(pack_kind kind, const linear *w, const uint8_t *block, int32_t stretch) {
    const pack_layout *l = &w->layout;
    const uint8_t *scales = block + l->scales_at;
    const float *floats = (const float *)(const void *)scales;
    if (kind == PACK_T4_FLOAT) {
        return l->kind == PACK_T4_NESTED ? nested_scale(w, block, stretch) : f_load(floats + stretch * LANES);
    }
    if (l->kind == PACK_E4M3_TILE) {
        return f_set1(floats[stretch] * 256.0f);
    }
    if (l->kind == PACK_E4M3_E8M0) {
        const i32x16 bits = i_shl(i_load_i8((const int8_t *)scales + stretch * LANES), 23);
        return f_mul(f_max(f_abs(f_of_bits(bits)), f_set1(0x1p-127f)), f_set1(256.0f));
    }
    return f_mul(f_load(floats + stretch * LANES), f_set1(256.0f));
}

/* ---- few rows ---- */

INLINE void add_numbers(pack_kind kind, row_format format, int n_rows, int n_blocks, int step,
                        const scaled_tile *t, int32_t k, int32_t i0, float_sums acc) {
    UNROLL
    for (int i = 0; i < step; i += DOTS(format) ? 2 : 1) {
        UNROLL
        for (int c = 0; c < n_blocks; c++) {
            const uint8_t *block = t->w + (size_t)c * t->of->layout.block_bytes;
            if (DOTS(format)) {
                const i32x16 w = load_number_pair(block, k + i);
                UNROLL
                for (int r = 0; r < n_rows; r++) {
                    acc[r][c] = LINEAR_DOT_BF16(
                        acc[r][c], w, i_set1(((const int32_t *)(const void *)t->x[r])[(k + i) / 2]));
                }
                continue;
            }
            const f32x16 w = load_number(kind, block, k, i0 + i, t->table);
            UNROLL
            for (int r = 0; r < n_rows; r++) {
                acc[r][c] = f_fma(f_set1(((const float *)(const void *)t->x[r])[k + i0 + i]), w, acc[r][c]);
                KEEP(acc[r][c]);
            }
        }
    }
}

INLINE void fetch_codes(pack_kind kind, int n_blocks, const scaled_tile *t, int32_t k) {
    UNROLL
    for (int c = 0; c < n_blocks; c++) {
        const uint8_t *ahead =
            t->w + (size_t)c * t->of->layout.block_bytes + k * code_bytes(kind) + PREFETCH_BYTES;
        UNROLL
        for (int i = 0; i < SCALED_STEP * code_bytes(kind); i += 64) {
            __builtin_prefetch(ahead + i);
        }
    }
}

/* Adds a stretch's sums times its scale to the total. */
INLINE void add_stretch(pack_kind kind, int n_rows, int n_blocks, const scaled_tile *t, int32_t stretch,
                        float_sums sums) {
    UNROLL
    for (int c = 0; c < n_blocks; c++) {
        const uint8_t *block = t->w + (size_t)c * t->of->layout.block_bytes;
        const f32x16 scale = stretch_scale(kind, t->of, block, stretch);
        UNROLL
        for (int r = 0; r < n_rows; r++) {
            float *y = t->y + r * t->y_stride + c * LANES;
            f_store(y, f_fma(sums[r][c], scale,
                             stretch == 0 ? load_starts(kind, &t->of->layout, block) : f_load(y)));
        }
    }
}

INLINE void scaled_sums(pack_kind kind, row_format format, int n_rows, int n_blocks, const scaled_tile *t) {
    const int32_t stretch = pack_stretch(&t->of->layout);
    for (int32_t k = 0, n = 0, end; k < t->n_k; n++) {
        float_sums acc;
        end = t->n_k - k < stretch ? t->n_k : k + stretch;
        UNROLL
        for (int i = 0; i < n_rows * n_blocks; i++) {
            acc[i / n_blocks][i % n_blocks] = f_zero();
        }
        for (; k + SCALED_STEP <= end; k += SCALED_STEP) {
            fetch_codes(kind, n_blocks, t, k);
            add_numbers(kind, format, n_rows, n_blocks, SCALED_STEP, t, k, 0, acc);
        }
        for (int32_t i = 0; i < end - k; i += DOTS(format) ? 2 : 1) {
            add_numbers(kind, format, n_rows, n_blocks, 1, t, DOTS(format) ? k + i : k, i, acc);
        }
        k = end;
        add_stretch(kind, n_rows, n_blocks, t, n, acc);
    }
}

/* Computes the columns of n_blocks blocks for few rows, as many blocks at a time as fit
 * in registers. */
INLINE void scaled_columns(pack_kind kind, row_format format, int n_rows, scaled_tile t, int32_t n_blocks) {
    const int side = TILE_BLOCKS(n_rows);
    int32_t i = 0;
    for (; i + side <= n_blocks; i += side) {
        scaled_sums(kind, format, n_rows, side, &t);
        t.w += (size_t)side * t.of->layout.block_bytes;
        t.y += side * LANES;
    }
    for (; side > 1 && i < n_blocks; i++) {
        scaled_sums(kind, format, n_rows, 1, &t);
        t.w += t.of->layout.block_bytes;
        t.y += LANES;
    }
}

INLINE void scaled_few(pack_kind kind, row_format format, const linear_part *part, row_view x, int32_t n_rows,
                       float *y, int32_t y_stride) {
    const uint8_t *blocks = linear_block(part->w, part->block0);
    scaled_tile t = {.of = part->w, .w = blocks, .y = y, .y_stride = y_stride, .n_k = linear_k_end(part->w)};
    t.table = load_table(kind, t.of);
    for (int32_t r = 0; r < n_rows; r++) {
        t.x[r] = x.data + (size_t)r * x.stride;
    }
    switch (n_rows) {
#define SCALED_CASE(count)                                                                                   \
    case count:                                                                                              \
        scaled_columns(kind, format, count, t, part->n_blocks);                                              \
        break;
        SCALED_CASE(1)
        SCALED_CASE(2)
        SCALED_CASE(3)
        SCALED_CASE(4)
        SCALED_CASE(5)
        SCALED_CASE(6)
#if N_FLOAT_ROWS == 8
        SCALED_CASE(7)
        SCALED_CASE(8)
#endif
#undef SCALED_CASE
    }
}

/* ---- many rows ---- */

/* Widens `step` numbers of a block from k + i0 on; k as for load_number. */
INLINE void widen_step(pack_kind kind, row_format format, int step, const uint8_t *block, int32_t k,
                       int32_t i0, f32x16 table, float *out) {
    UNROLL
    for (int i = 0; i < step; i += DOTS(format) ? 2 : 1) {
        if (DOTS(format)) {
            i_store((int32_t *)(void *)out + i / 2 * LANES, load_number_pair(block, k + i0 + i));
        } else {
            f_store(out + i * LANES, load_number(kind, block, k, i0 + i, table));
        }
    }
}

/* Widens n_k numbers of a block from k0 on, where a stretch or chunk begins. */
INLINE void widen_numbers(pack_kind kind, row_format format, const uint8_t *block, int32_t k0, int32_t n_k,
                          f32x16 table, float *out) {
    const int32_t step_floats = SCALED_STEP * LANES / (DOTS(format) ? 2 : 1);
    int32_t k = k0;
    for (; k + SCALED_STEP <= k0 + n_k; k += SCALED_STEP, out += step_floats) {
        widen_step(kind, format, SCALED_STEP, block, k, 0, table, out);
    }
    for (int32_t i = 0; i < k0 + n_k - k; i += DOTS(format) ? 2 : 1) {
        widen_step(kind, format, 1, block, k, i, table, out + (DOTS(format) ? i / 2 : i) * LANES);
    }
}

/* A chunk of k of some blocks. */
typedef struct scaled_chunk {
    int32_t k0, n_k, stretch, block, n_blocks;
    bool is_last; /* last chunk of its stretch */
    float scales[MOST_BLOCKS * LANES], starts[MOST_BLOCKS * LANES];
} scaled_chunk;

/* Widens a chunk and points t to it. */
INLINE void open_chunk(pack_kind kind, row_format format, const linear *w, scaled_chunk *c, float_tile *t,
                       uint8_t *scratch) {
    t->w = scratch;
    t->w_stride = (size_t)(c->n_k * LANES) * (DOTS(format) ? 2 : 4);
    t->n_k = c->n_k;
    t->scale = c->is_last ? c->scales : NULL;
    t->start = c->is_last && c->stretch == 0 ? c->starts : NULL;
    for (int32_t i = 0; i < c->n_blocks; i++) {
        const uint8_t *block = linear_block(w, c->block + i);
        widen_numbers(kind, format, block, c->k0, c->n_k, load_table(kind, w),
                      (float *)(void *)(scratch + (size_t)i * t->w_stride));
        f_store(c->scales + i * LANES, stretch_scale(kind, w, block, c->stretch));
        f_store(c->starts + i * LANES, load_starts(kind, &w->layout, block));
    }
}

INLINE void scaled_many(pack_kind kind, row_format format, const linear_part *part, row_view x,
                        int32_t n_rows, float *y, int32_t y_stride, void *scratch) {
    const linear *w = part->w;
    const int32_t k_end = linear_k_end(w), stretch = pack_stretch(&w->layout), x_bytes = DOTS(format) ? 2 : 4;
    const bool is_one = stretch >= k_end;
    const int32_t step = is_one ? SCALED_CHUNK(format) : stretch;
    float_tile t = {.y_stride = y_stride, .next_stride = w->layout.block_bytes};
    t.next_step = (size_t)((code_bytes(kind) + tiles_of(n_rows) - 1) / tiles_of(n_rows));
    for (int32_t k0 = 0, end; k0 < k_end; k0 = end) {
        end = k_end - k0 < step ? k_end : k0 + step;
        scaled_chunk c = {.k0 = k0,
                          .n_k = end - k0,
                          .stretch = is_one ? 0 : k0 / stretch,
                          .is_last = !is_one || end == k_end};
        const row_view xk = {x.data + (size_t)(k0 * x_bytes), x.stride};
        t.go_on = is_one && k0 > 0;
        for (int32_t i = 0; i < part->n_blocks; i += MANY_BLOCKS) {
            const bool more = i + MANY_BLOCKS < part->n_blocks;
            const int32_t next_k = more ? k0 : end < k_end ? end : 0;
            c.block = part->block0 + i;
            c.n_blocks = more ? MANY_BLOCKS : part->n_blocks - i;
            t.next = linear_block(w, part->block0 + (more ? i + MANY_BLOCKS : 0)) +
                     (size_t)(next_k * code_bytes(kind));
            t.y = y + i * LANES;
            open_chunk(kind, format, w, &c, &t, scratch);
            chunk_rows(DOTS(format) ? PACK_BF16 : PACK_F32, DOTS(format) ? ROWS_BF16 : ROWS_F32, false, xk,
                       n_rows, t, c.n_blocks);
        }
    }
}

INLINE void product_scaled(pack_kind kind, row_format format, const linear_part *part, row_view x,
                           int32_t n_rows, float *y, int32_t y_stride, void *scratch) {
    if (n_rows <= N_FLOAT_ROWS) {
        scaled_few(kind, format, part, x, n_rows, y, y_stride);
    } else {
        scaled_many(kind, format, part, x, n_rows, y, y_stride, scratch);
    }
}
