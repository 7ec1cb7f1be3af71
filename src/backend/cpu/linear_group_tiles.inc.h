/* Products of unpacked groups of 32 by tiles. Part of linear_groups.inc.h, for
 * linear_amx.inc.h.
 *
 * A pass is up to 16 rows with the columns of a block. A step is a group of it: its sums
 * are made in a tile, stored, and added to the float sums, which stay in registers. Two
 * steps take turns, so that the tiles work on one while the other's sums are added: tiles
 * 0, 2 and 4 hold sums, rows and weights of one, 1, 3 and 5 of the other. */
#define STEP_SUMS (AMX_ROWS * LANES)

/* What a pass multiplies: `n_rows` rows from row0 on, with a block of the tile's columns,
 * whose first register is `first`. */
typedef struct tiles_pass {
    row_view rows;
    int32_t row0, n_rows;
    int first;
} tiles_pass;

/* sums = the products of a step, [n_rows][16]. */
INLINE void step_sums(group_format f, int n_regs, const group_range *range, const tiles_pass *p, int32_t step,
                      int32_t *sums) {
    const size_t x_stride = p->rows.stride, w_stride = (size_t)n_regs * sizeof(ni),
                 sums_stride = LANES * sizeof *sums;
    const row_group *x = (const row_group *)(const void *)(p->rows.data + (size_t)p->row0 * x_stride) + step;
    const uint8_t *w =
        record_quad(f, n_regs, range->records + (size_t)step * record_bytes(f, n_regs), 0, p->first);
    if (step % 2 == 0) {
        amx_zero(0);
        amx_load(2, x->q, x_stride);
        amx_load(4, w, w_stride);
        amx_dot(0, 2, 4);
        amx_store(0, sums, sums_stride);
    } else {
        amx_zero(1);
        amx_load(3, x->q, x_stride);
        amx_load(5, w, w_stride);
        amx_dot(1, 3, 5);
        amx_store(1, sums + STEP_SUMS, sums_stride);
    }
}

/* Adds a step's sums to acc. x: each row's groups from the range's first on. */
INLINE void step_add(group_format f, int n_regs, const group_range *range, const tiles_pass *p, int32_t step,
                     const int32_t *sums, const row_group *const *x, nf acc[AMX_ROWS][N_HALVES]) {
    const uint8_t *record = range->records + (size_t)step * record_bytes(f, n_regs);
    sums += step % 2 * STEP_SUMS;
    UNROLL
    for (int h = 0; h < N_HALVES; h++) {
        const nf scale = nf_load(record_scale(f, n_regs, record, 0, 0, p->first + h));
        const nf second =
            n_factors(f) > 1 ? nf_load(record_scale(f, n_regs, record, 0, 1, p->first + h)) : scale;
        UNROLL
        for (int r = 0; r < AMX_ROWS; r++) {
            const nf sum = float_sum(f, n_load(sums + r * LANES + h * N_LANES), second, x[r] + step);
            acc[r][h] = part_add(f, acc[r][h], sum, scale, second, x[r] + step, 0);
        }
    }
}

/* A pass over a range of groups. Sums start from 0 when the range starts at 0, else
 * from y. Missing rows repeat the pass's last row; their sums are discarded. */
INLINE void tiles_tile(group_format f, int n_regs, const group_range *range, const tiles_pass *p,
                       int32_t y_stride, int32_t *sums) {
    const row_group *x[AMX_ROWS];
    nf acc[AMX_ROWS][N_HALVES];
    const int32_t n_steps = range->g1 - range->g0;
    UNROLL
    for (int r = 0; r < AMX_ROWS; r++) {
        const int32_t row = p->row0 + (r < p->n_rows ? r : p->n_rows - 1);
        x[r] = (const row_group *)(const void *)(p->rows.data + (size_t)row * p->rows.stride);
        UNROLL
        for (int h = 0; h < N_HALVES; h++) {
            acc[r][h] =
                range->g0 == 0 ? nf_set1(0.0f) : nf_load(range->columns[p->first + h].y + row * y_stride);
        }
    }
    step_sums(f, n_regs, range, p, 0, sums);
    for (int32_t step = 0; step < n_steps; step++) {
        if (step + 1 < n_steps) {
            step_sums(f, n_regs, range, p, step + 1, sums);
        }
        if (range->next != NULL) {
            const size_t next = (size_t)(range->next_g + step);
            prefetch_planes(f, range->next[p->first].planes + next * group_bytes(f));
            __builtin_prefetch(range->next[p->first].scales + group_scales_at(f, next));
        }
        step_add(f, n_regs, range, p, step, sums, x, acc);
    }
    UNROLL
    for (int i = 0; i < AMX_ROWS * N_HALVES; i++) {
        if (i / N_HALVES < p->n_rows) {
            nf_store(range->columns[p->first + i % N_HALVES].y + (p->row0 + i / N_HALVES) * y_stride,
                     acc[i / N_HALVES][i % N_HALVES]);
        }
    }
}

static void tiles_configure(int n_rows) {
    amx_config c = {0};
    for (int i = 0; i < 2; i++) {
        amx_shape(&c, i, n_rows, AMX_BYTES);
        amx_shape(&c, 2 + i, n_rows, PACK_GROUP);
        amx_shape(&c, 4 + i, QUADS, AMX_BYTES);
    }
    amx_configure(&c);
}

/* All rows over unpacked groups, in passes of nearly equal numbers of rows. The first
 * also prefetches the blocks that come next. A block that repeats the last (find_columns)
 * is left out: its sums would be added twice. */
INLINE void chunk_rows(group_format f, int n_regs, group_range range, row_view x, int32_t n_rows,
                       int32_t y_stride) {
    _Alignas(64) int32_t sums[2 * STEP_SUMS];
    int32_t n_passes = divide_up(n_rows, AMX_ROWS), n_before = 0;
    for (tiles_pass p = {.rows = x}; n_passes > 0; n_passes--) {
        p.n_rows = divide_up(n_rows - p.row0, n_passes);
        if (p.n_rows != n_before) {
            tiles_configure(p.n_rows);
            n_before = p.n_rows;
        }
        for (p.first = 0;
             p.first < n_regs && (p.first == 0 || range.columns[p.first].y != range.columns[0].y);
             p.first += N_HALVES) {
            tiles_tile(f, n_regs, &range, &p, y_stride, sums);
        }
        range.next = NULL;
        p.row0 += p.n_rows;
    }
}
