/* Products with separate weights per head. A task is one head and some rows: the worker
 * converts the head's part of the rows in its scratch. */
#include <string.h>

#include "backend/cpu/linear_ops.h"

typedef struct heads_job {
    const cpu_backend *b;
    const head_products_use *use;
    int32_t n_parts; /* parts into which rows are split */
} heads_job;

quire_err cpu_head_linears_load(backend *base, linear *const *w, int32_t n_heads, head_linears **out,
                                quire_error *err) {
    cpu_backend *b = (cpu_backend *)base;
    head_linears *h = cpu_own(b, 1, sizeof *h);
    const linear **all = n_heads > 0 ? cpu_own(b, (size_t)n_heads, sizeof *all) : NULL;
    if (h == NULL || all == NULL) {
        return err_set(err, QUIRE_NO_MEMORY, -1, "products of %d heads: out of memory", (int)n_heads);
    }
    *h = (head_linears){.n_heads = n_heads, .n_out = w[0]->layout.n_out, .n_in = w[0]->layout.n_in, .w = all};
    for (int32_t i = 0; i < n_heads; i++) {
        const size_t bytes = linear_row_bytes(w[i]->format, h->n_in);
        if (w[i]->layout.n_out != h->n_out || w[i]->layout.n_in != h->n_in) {
            return err_set(err, QUIRE_BAD_FILE, -1,
                           "the product of head %d is %d x %d, that of head 0 %d x %d: heads must be alike",
                           (int)i, (int)w[i]->layout.n_out, (int)w[i]->layout.n_in, (int)h->n_out,
                           (int)h->n_in);
        }
        b->linear_state->head_bytes =
            bytes > b->linear_state->head_bytes ? bytes : b->linear_state->head_bytes;
        all[i] = w[i];
    }
    *out = h;
    return QUIRE_OK;
}

/* The input of a head's product for n_rows rows, in place if it reads floats. */
static row_view head_rows(const heads_job *job, int32_t head, int32_t row0, int32_t n_rows, int32_t worker) {
    const cpu_backend *b = job->b;
    const linear *w = job->use->w->w[head];
    const int32_t width = b->buffers[job->use->in.id].width;
    const float *x = cpu_act_row(b, job->use->in, row0) + (int64_t)head * (w->layout.n_in + job->use->n_kept);
    if (w->format == ROWS_F32) {
        return (row_view){(const uint8_t *)x, (size_t)width * sizeof *x};
    }
    const size_t stride = linear_row_bytes(w->format, w->layout.n_in);
    uint8_t *rows =
        b->linear_state->head_rows + (size_t)worker * LINEAR_TILE_ROWS * b->linear_state->head_bytes;
    for (int32_t r = 0; r < n_rows; r++) {
        linear_input(b, w, x + (int64_t)r * width, worker, rows + (size_t)r * stride);
    }
    return (row_view){rows, stride};
}

/* The adapted rows of a head's product, with t in the worker's scratch; w NULL: none. */
static adapter_rows head_changed(const heads_job *job, int32_t head, int32_t row0, int32_t n_rows,
                                 int32_t worker) {
    const cpu_backend *b = job->b;
    const linear *w = job->use->w->w[head];
    if (!adapter_changes(b, w)) {
        return (adapter_rows){.w = NULL};
    }
    const adapter_rows changed = {.w = w,
                                  .row0 = row0,
                                  .h = cpu_act_row(b, job->use->in, row0) +
                                       (int64_t)head * (w->layout.n_in + job->use->n_kept),
                                  .h_stride = b->buffers[job->use->in.id].width,
                                  .t = adapter_worker_t(b, worker)};
    adapter_shrink_rows(b, &changed, 0, n_rows);
    return changed;
}

/* Task: the product of one head for up to LINEAR_TILE_ROWS rows. */
static void head_task(void *context, int32_t task, int32_t worker) {
    const heads_job *job = context;
    const head_products_use *use = job->use;
    const cpu_linear_state *s = job->b->linear_state;
    const int32_t head = task / job->n_parts, row0 = task % job->n_parts * LINEAR_TILE_ROWS,
                  left = job->b->batch->n_rows - row0,
                  n_rows = left < LINEAR_TILE_ROWS ? left : LINEAR_TILE_ROWS, n_out = use->w->n_out,
                  n_in = use->w->n_in;
    const row_view rows = head_rows(job, head, row0, n_rows, worker);
    const adapter_rows changed = head_changed(job, head, row0, n_rows, worker);
    float *y = s->tiles + (size_t)worker * 2 * LINEAR_TILE_FLOATS;
    for (int32_t c = 0; c < n_out; c += LINEAR_TILE_COLUMNS) {
        const int32_t n = n_out - c < LINEAR_TILE_COLUMNS ? n_out - c : LINEAR_TILE_COLUMNS;
        const linear_part part = {
            .w = use->w->w[head], .block0 = c / PACK_LANES, .n_blocks = (n + PACK_LANES - 1) / PACK_LANES};
        if (changed.w != NULL) {
            const linear_tile_use tile = {.b = job->b,
                                          .part = part,
                                          .rows = &changed,
                                          .y_stride = LINEAR_TILE_COLUMNS,
                                          .worker = worker};
            linear_tile_changed(&tile, rows, 0, n_rows, y);
        } else {
            linear_tile(job->b, &part, rows, n_rows, y, LINEAR_TILE_COLUMNS, linear_scratch(job->b, worker));
        }
        for (int32_t r = 0; r < n_rows; r++) {
            memcpy(cpu_act_row(job->b, use->out, row0 + r) + (int64_t)head * (n_out + use->n_kept) + c,
                   y + r * LINEAR_TILE_COLUMNS, sizeof *y * (size_t)n);
        }
    }
    for (int32_t r = 0; r < n_rows && use->n_kept > 0; r++) {
        memcpy(cpu_act_row(job->b, use->out, row0 + r) + (int64_t)head * (n_out + use->n_kept) + n_out,
               cpu_act_row(job->b, use->in, row0 + r) + (int64_t)head * (n_in + use->n_kept) + n_in,
               sizeof(float) * (size_t)use->n_kept);
    }
}

void cpu_head_products(backend *base, const head_products_use *use) {
    cpu_backend *b = (cpu_backend *)base;
    const heads_job job = {b, use, (b->batch->n_rows + LINEAR_TILE_ROWS - 1) / LINEAR_TILE_ROWS};
    assert(use->in.id != use->out.id &&
           b->buffers[use->in.id].width == use->w->n_heads * (use->w->n_in + use->n_kept) &&
           b->buffers[use->out.id].width == use->w->n_heads * (use->w->n_out + use->n_kept));
    b->buffers[use->out.id].is_quantised = false;
    thread_pool_run(b->thread_pool, head_task, (void *)(uintptr_t)&job, use->w->n_heads * job.n_parts);
}
