/* A tile of a product: the kernel's sums, changes by adapters, and the bias. */
#include <string.h>

#include "backend/cpu/linear_ops.h"

/* One row at a time, rounded in scratch, by kernels that need no scratch themselves. */
static void rounded_product(const linear_part *part, row_view x, int32_t n_rows, float *y, int32_t y_stride,
                            float *scratch) {
    const int32_t n = part->w->layout.n_in;
    for (int32_t r = 0; r < n_rows; r++) {
        memcpy(scratch, x.data + (size_t)r * x.stride, (size_t)n * sizeof *scratch);
        row_round(&part->w->rounding, scratch, n);
        linear_plain.product(part, (row_view){(const uint8_t *)scratch, 0}, 1, y + r * y_stride, y_stride,
                             NULL);
    }
}

/* The product without bias. */
static void tile_sums(const cpu_backend *b, const linear_part *part, row_view x, int32_t n_rows, float *y,
                      int32_t y_stride, void *scratch) {
    if (part->w->rounding.to != ROUND_NOTHING) {
        rounded_product(part, x, n_rows, y, y_stride, scratch);
    } else {
        b->linear->product(part, x, n_rows, y, y_stride, scratch);
    }
    for (int32_t r = 0; r < n_rows && part->w->factor != 1.0f; r++) {
        b->math->scale_cap(part->w->factor, 0.0f, part->n_blocks * PACK_LANES, y + (int64_t)r * y_stride);
    }
}

static void tile_add_bias(const cpu_backend *b, const linear_part *part, const float *bias, int32_t n_rows,
                          float *y, int32_t y_stride) {
    if (bias != NULL) {
        b->math->add_to_rows(bias + (int64_t)part->block0 * PACK_LANES, part->n_blocks * PACK_LANES, n_rows,
                             y, y_stride);
    }
}

void linear_tile(const cpu_backend *b, const linear_part *part, row_view x, int32_t n_rows, float *y,
                 int32_t y_stride, void *scratch) {
    tile_sums(b, part, x, n_rows, y, y_stride, scratch);
    tile_add_bias(b, part, part->w->bias, n_rows, y, y_stride);
}

/* The product with an adapter's replacement weights, whose input rows are converted
 * here. */
static void instead_sums(const linear_tile_use *use, const linear *w, int32_t row, int32_t n_rows, float *y) {
    const cpu_adapter_state *s = use->b->adapter_state;
    const size_t stride = linear_row_bytes(w->format, w->layout.n_in);
    uint8_t *rows = s->instead_rows + (size_t)use->worker * ADAPTER_INSTEAD_ROWS * s->instead_bytes;
    const linear_part part = {.w = w, .block0 = use->part.block0, .n_blocks = use->part.n_blocks};
    for (int32_t i = 0; i < n_rows; i++) {
        use->b->linear->quantise[w->format](adapter_row_h(use->rows, row + i), w->layout.n_in,
                                            rows + (size_t)i * stride);
    }
    tile_sums(use->b, &part, (row_view){rows, stride}, n_rows, y, use->y_stride,
              linear_scratch(use->b, use->worker));
}

/* ---- changes by adapters ---- */

#define SOON_RUNS  16
#define SOON_BYTES 262144 /* bytes that should still be in L2 when they are read */

/* Address of a segment's B for the columns from a block on. */
static const uint8_t *segment_b(const adapter_segment *s, int32_t block0) {
    return s->b + (size_t)block0 * (size_t)s->rank * PACK_LANES * adapter_number_bytes(s->b_type);
}

/* The same for a part's first segment; NULL: it has none. */
static const uint8_t *part_b(const adapter_part *c, int32_t block0) {
    return c != NULL && c->n_segments > 0 ? segment_b(c->segments, block0) : NULL;
}

/* Applies an adapter's part to the sums of its rows row .. row + n_rows - 1, and adds the
 * bias. next: the B to be read after those of the part, or NULL. */
static void change_rows(const linear_tile_use *use, const adapter_part *c, const uint8_t *next, int32_t row,
                        int32_t n_rows, float *y) {
    const cpu_backend *b = use->b;
    const linear_part *part = &use->part;
    const int32_t n = part->n_blocks * PACK_LANES, t_stride = b->adapter_state->t_stride;
    const float *t = use->rows->t + (int64_t)row * t_stride;
    if (c->instead != NULL) {
        instead_sums(use, c->instead, row, n_rows, y);
    }
    for (int32_t s = 0; s < c->n_segments; t += c->segments[s++].rank) {
        const adapter_segment *seg = &c->segments[s];
        b->math->expand(seg->b_type, segment_b(seg, part->block0),
                        s + 1 < c->n_segments ? segment_b(seg + 1, part->block0) : next, seg->rank,
                        part->n_blocks, seg->scale, t, t_stride, n_rows, y, use->y_stride);
    }
    for (int32_t i = 0; i < n_rows && c->factors != NULL; i++) {
        float *to = y + (int64_t)i * use->y_stride;
        b->math->gate_up(ACT_NONE, 0.0f, to, c->factors + (int64_t)part->block0 * PACK_LANES, n, to);
    }
    tile_add_bias(b, part, c->bias != NULL ? c->bias : part->w->bias, n_rows, y, use->y_stride);
}

/* What the adapter of a row changes of the tile's weights; NULL: nothing. */
static const adapter_part *tile_part(const linear_tile_use *use, const linear_part *part, int32_t row) {
    return part->n_blocks > 0 ? adapter_part_of(use->b, part->w->id, adapter_batch_row(use->rows, row))
                              : NULL;
}

/* Number of rows from `row` on, before `end`, that have this part, at most as many as can
 * be changed at once. */
static int32_t rows_alike(const linear_tile_use *use, const adapter_part *part, int32_t row, int32_t end) {
    const int32_t most = part != NULL && row + ADAPTER_INSTEAD_ROWS < end ? row + ADAPTER_INSTEAD_ROWS : end;
    int32_t i = row + 1;
    while (i < most && tile_part(use, &use->part, i) == part) {
        i++;
    }
    return i - row;
}

/* The memory of B that rows row0 .. row0 + n_rows - 1 of the tile will read, if it is
 * little. */
static int32_t soon_runs(const linear_tile_use *use, int32_t row0, int32_t n_rows, linear_run *runs) {
    int32_t n_runs = 0;
    size_t left = SOON_BYTES;
    for (int32_t i = 0, n; i < n_rows && n_runs < SOON_RUNS; i += n) {
        const adapter_part *part = tile_part(use, &use->part, row0 + i);
        n = rows_alike(use, part, row0 + i, row0 + n_rows);
        const adapter_segment *s = part != NULL && part->n_segments > 0 ? part->segments : NULL;
        const uint8_t *b = s != NULL ? segment_b(s, use->part.block0) : NULL;
        const size_t n_bytes =
            s != NULL ? (size_t)(segment_b(s, use->part.block0 + use->part.n_blocks) - b) : 0;
        if (n_bytes > 0 && n_bytes <= left) {
            runs[n_runs++] = (linear_run){b, n_bytes};
            left -= n_bytes;
        }
    }
    return n_runs;
}

void linear_tile_changed(const linear_tile_use *use, row_view x, int32_t row0, int32_t n_rows, float *y) {
    const cpu_backend *b = use->b;
    const linear_part *columns = &use->part;
    linear_run runs[SOON_RUNS];
    linear_part part = *columns;
    part.soon = runs;
    part.n_soon = soon_runs(use, row0, n_rows, runs);
    tile_sums(b, &part, x, n_rows, y, use->y_stride, linear_scratch(b, use->worker));
    if (use->shrink != NULL) {
        adapter_shrink_wait(use->shrink);
    }
    for (int32_t i = 0, n; i < n_rows; i += n) {
        const adapter_part *c = tile_part(use, columns, row0 + i);
        float *to = y + (int64_t)i * use->y_stride;
        n = rows_alike(use, c, row0 + i, row0 + n_rows);
        if (c != NULL) {
            const uint8_t *next = i + n < n_rows
                                      ? part_b(tile_part(use, columns, row0 + i + n), columns->block0)
                                      : part_b(tile_part(use, &use->after, row0), use->after.block0);
            change_rows(use, c, next, row0 + i, n, to);
        } else {
            tile_add_bias(b, columns, columns->w->bias, n, to, use->y_stride);
        }
    }
}
