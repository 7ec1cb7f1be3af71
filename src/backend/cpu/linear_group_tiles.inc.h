/* Products of unpacked groups of 32 by tiles. Part of linear_groups.inc.h, for
 * linear_amx.inc.h.
 *
 * A pass multiplies 16 rows by the columns of a block. A step of a pass handles one group:
 * a tile computes its int32 sums, stores them, and they are added to float sums in
 * registers. Tile instructions run STEPS_AHEAD steps ahead of the additions, across passes
 * too. Tiles alternate between steps: even ones use 0, 2 and 4 for sums, rows and weights,
 * odd ones 1, 3 and 5. */
#define STEP_SUMS   (AMX_ROWS * LANES)
#define STEPS_AHEAD 2
#define STEPS_KEPT  4 /* steps whose sums fit the buffer */

/* Position of the tile instructions. */
typedef struct tiles_at {
    row_view rows;
    int32_t n_rows, n_steps, n_blocks; /* steps of a pass; blocks of the columns */
    int32_t row, block, step;          /* pass and group of the next step */
    int32_t n_left, n_done;            /* steps to do and done */
    const uint8_t *x, *w;
    int32_t *sums; /* [STEPS_KEPT][16][16]; step n is at n % STEPS_KEPT */
} tiles_at;

/* The first row of the pass that begins at `row`. The last pass overlaps the one before it
 * so that it is whole, too. */
INLINE int32_t pass_row(int32_t row, int32_t n_rows) {
    return row + AMX_ROWS <= n_rows ? row : n_rows - AMX_ROWS;
}

/* Moves the tiles to the pass of at->row and at->block. */
INLINE void tiles_pass(group_format f, int n_regs, const group_range *range, tiles_at *at) {
    at->step = 0;
    at->x = at->rows.data + (size_t)pass_row(at->row, at->n_rows) * at->rows.stride;
    at->w = record_quad(f, n_regs, range->records, 0, at->block * N_HALVES);
}

/* Makes the sums of the next step, if there is one. */
INLINE void tiles_step(group_format f, int n_regs, const group_range *range, tiles_at *at) {
    const size_t x_stride = at->rows.stride, w_stride = (size_t)n_regs * sizeof(ni),
                 sums_stride = LANES * sizeof *at->sums;
    int32_t *sums = at->sums + at->n_done % STEPS_KEPT * STEP_SUMS;
    if (at->n_left == 0) {
        return;
    }
    if (at->n_done % 2 == 0) {
        amx_zero(0);
        amx_load(2, at->x, x_stride);
        amx_load(4, at->w, w_stride);
        amx_dot(0, 2, 4);
        amx_store(0, sums, sums_stride);
    } else {
        amx_zero(1);
        amx_load(3, at->x, x_stride);
        amx_load(5, at->w, w_stride);
        amx_dot(1, 3, 5);
        amx_store(1, sums, sums_stride);
    }
    at->n_done++;
    at->n_left--;
    at->x += sizeof(row_group);
    at->w += record_bytes(f, n_regs);
    if (++at->step == at->n_steps) {
        if (++at->block == at->n_blocks) {
            at->block = 0;
            at->row += AMX_ROWS;
        }
        tiles_pass(f, n_regs, range, at);
    }
}

/* Adds a step's sums to acc. x: each row's groups, from the first of the range. */
INLINE void step_add(group_format f, int n_regs, const group_range *range, int first, int32_t step,
                     const int32_t *sums, const row_group *const *x, nf acc[AMX_ROWS][N_HALVES]) {
    const uint8_t *record = range->records + (size_t)step * record_bytes(f, n_regs);
    UNROLL
    for (int h = 0; h < N_HALVES; h++) {
        const nf scale = nf_load(record_scale(f, n_regs, record, 0, 0, first + h));
        UNROLL
        for (int r = 0; r < AMX_ROWS; r++) {
            const nf sum = nf_of(n_load(sums + r * LANES + h * N_LANES));
            acc[r][h] = part_add(f, acc[r][h], sum, scale, scale, x[r] + step, 0);
        }
    }
}

/* Runs the pass of the rows from `row` and the columns from register `first`, over a range
 * of groups. Sums start at 0 if the range starts at group 0, else from y. n_done: steps of
 * all earlier passes. */
INLINE void tiles_tile(group_format f, int n_regs, const group_range *range, int32_t row, int first,
                       int32_t y_stride, int32_t n_done, tiles_at *at) {
    const row_group *x[AMX_ROWS];
    nf acc[AMX_ROWS][N_HALVES];
    const int32_t row0 = pass_row(row, at->n_rows);
    float *y = range->columns[first].y + row0 * y_stride;
    UNROLL
    for (int r = 0; r < AMX_ROWS; r++) {
        x[r] = (const row_group *)(const void *)(at->rows.data + (size_t)(row0 + r) * at->rows.stride);
        UNROLL
        for (int h = 0; h < N_HALVES; h++) {
            acc[r][h] = range->g0 == 0 ? nf_set1(0.0f) : nf_load(y + r * y_stride + h * N_LANES);
        }
    }
    for (int32_t step = 0; step < at->n_steps; step++) {
        tiles_step(f, n_regs, range, at);
        if (range->next != NULL) {
            const size_t next = (size_t)(range->next_g + step);
            prefetch_planes(f, range->next[first].planes + next * group_bytes(f));
            __builtin_prefetch(range->next[first].scales + group_scales_at(f, next));
        }
        step_add(f, n_regs, range, first, step, at->sums + (n_done + step) % STEPS_KEPT * STEP_SUMS, x, acc);
    }
    UNROLL
    for (int i = 0; i < AMX_ROWS * N_HALVES; i++) {
        if (row0 + i / N_HALVES >= row) {
            nf_store(y + i / N_HALVES * y_stride + i % N_HALVES * N_LANES, acc[i / N_HALVES][i % N_HALVES]);
        }
    }
}

static void tiles_configure(void) {
    amx_config c = {0};
    for (int i = 0; i < 2; i++) {
        amx_shape(&c, i, AMX_ROWS, AMX_BYTES);
        amx_shape(&c, 2 + i, AMX_ROWS, PACK_GROUP);
        amx_shape(&c, 4 + i, QUADS, AMX_BYTES);
    }
    amx_configure(&c);
}

/* Multiplies all rows, at least 16, by unpacked groups. The first pass also prefetches the
 * next blocks. The last block is skipped if it only repeats another (find_columns), since
 * its sums would be added twice. */
INLINE void chunk_rows(group_format f, int n_regs, group_range range, row_view x, int32_t n_rows,
                       int32_t y_stride) {
    _Alignas(64) int32_t sums[STEPS_KEPT * STEP_SUMS];
    const bool is_one = n_regs == N_HALVES || range.columns[n_regs - N_HALVES].y == range.columns[0].y;
    tiles_at at = {.rows = x,
                   .n_rows = n_rows,
                   .n_steps = range.g1 - range.g0,
                   .n_blocks = is_one ? 1 : n_regs / N_HALVES,
                   .sums = sums};
    int32_t n_done = 0;
    at.n_left = divide_up(n_rows, AMX_ROWS) * at.n_blocks * at.n_steps;
    tiles_configure();
    tiles_pass(f, n_regs, &range, &at);
    for (int i = 0; i < STEPS_AHEAD; i++) {
        tiles_step(f, n_regs, &range, &at);
    }
    for (int32_t row = 0; row < n_rows; row += AMX_ROWS) {
        for (int32_t block = 0; block < at.n_blocks; block++, n_done += at.n_steps) {
            tiles_tile(f, n_regs, &range, row, block * N_HALVES, y_stride, n_done, &at);
        }
        range.next = NULL;
    }
}
