/* The ops over loaded weights. Rows are quantised once for all products that read them;
 * then the workers share the column blocks. */
#include "backend/cpu/linear_ops.h"

#include <assert.h>
#include <string.h>

#include "backend/cpu/math.h"
#include "base/clock.h"

#define MAX_PART_BLOCKS 64
#define TASKS_A_WORKER  4
#define TASK_ROWS       LINEAR_TILE_ROWS
#define LINE_FLOATS     16 /* floats in a cache line */
#define GROUPS_AT_ONCE  4
#define STREAMED_FLOATS (1 << 20) /* more logits bypass the caches: they would not stay until sampling */
/* in a ROWS_GROUPS row: a row_group holds 32 columns in the space of 16 floats */
#define COLUMNS_A_FLOAT 2

_Static_assert(PACK_GROUP * sizeof(float) == COLUMNS_A_FLOAT * sizeof(row_group),
               "groups take half of what floats do");

/* ---- quantising rows ---- */

/* The input rows of an op, and the formats in which its weights read them. */
typedef struct rows_job {
    cpu_backend *b;
    float *x; /* rows of `width` floats */
    int32_t width, n_rows;
    const int32_t *rows; /* row indices in x; NULL: 0..n_rows */
    bool is_quantised;   /* x already has the format of its only reader */
    const norm *nm;      /* may be NULL */
    float *kept;         /* where adapted rows are kept after the norm, by row of the batch; NULL: not kept */
    bool wanted[N_ROW_FORMATS];
    row_view views[N_ROW_FORMATS];
    int32_t n_ordered;
    /* weights with input orders, one per distinct order; their rows are in the state's
     * ordered[] */
    const linear *ordered[LINEAR_MAX_USES];
} rows_job;

void linear_input(const cpu_backend *b, const linear *w, const float *x, int32_t worker, void *row) {
    const cpu_linear_state *s = b->linear_state;
    const int32_t n = w->layout.n_in;
    if (w->order != NULL) {
        float *placed = s->placed + (size_t)worker * (size_t)s->widest_ordered;
        for (int32_t i = 0; i < n; i++) {
            placed[i] = x[w->order[i]];
        }
        x = placed;
    }
    b->linear->quantise[w->format](x, n, row);
}

static void quantise_row(void *context, int32_t i, int32_t worker) {
    rows_job *job = context;
    cpu_backend *b = job->b;
    cpu_linear_state *s = b->linear_state;
    const int32_t row = job->rows != NULL ? job->rows[i] : i;
    float *x = job->x + (int64_t)row * job->width;
    if (job->nm != NULL) {
        float *normed = cpu_norm_replaces(job->nm) ? x : cpu_scratch_row(b, worker);
        cpu_norm_row(b, adapter_norm_of(b, job->nm, row), x, job->width, normed);
        x = normed;
    }
    if (job->kept != NULL && b->batch->row_adapters[row] >= 0) {
        memcpy(job->kept + (int64_t)row * b->adapter_state->kept_stride, x, sizeof *x * (size_t)job->width);
    }
    for (int f = 0; f < N_ROW_FORMATS; f++) {
        if (job->wanted[f]) {
            b->linear->quantise[f](x, job->width, s->rows[f] + (size_t)i * job->views[f].stride);
        }
    }
    for (int32_t o = 0; o < job->n_ordered; o++) {
        linear_input(b, job->ordered[o], x, worker,
                     s->ordered[o] + (size_t)i * linear_row_bytes(job->ordered[o]->format, job->width));
    }
}

/* The rows permuted to w's input order. */
static row_view ordered_view(rows_job *job, const linear *w) {
    const cpu_linear_state *s = job->b->linear_state;
    int32_t o = 0;
    while (o < job->n_ordered && job->ordered[o]->order != w->order) {
        o++;
    }
    if (o == job->n_ordered) {
        job->ordered[job->n_ordered++] = w;
    }
    return (row_view){s->ordered[o], linear_row_bytes(w->format, job->width)};
}

/* out[i] = the rows as weights[i] reads them. f32 rows without a norm are read in
 * place. */
static void quantise_rows(rows_job *job, const linear *const *weights, int32_t n, row_view *out) {
    cpu_linear_state *s = job->b->linear_state;
    bool quantise = false;
    for (int32_t i = 0; i < n; i++) {
        row_format f = weights[i]->format;
        assert(weights[i]->layout.n_in == job->width && job->width <= s->widest[f]);
        if (weights[i]->order != NULL) {
            assert(!job->is_quantised);
            out[i] = ordered_view(job, weights[i]);
            quantise = true;
            continue;
        }
        assert(!job->is_quantised || (f == ROWS_GROUPS && job->nm == NULL && job->rows == NULL));
        if (job->is_quantised) {
            job->views[f] =
                (row_view){(const uint8_t *)(const void *)job->x, linear_row_bytes(f, job->width)};
        } else if (f == ROWS_F32 && job->nm == NULL && job->rows == NULL) {
            job->views[f] =
                (row_view){(const uint8_t *)(const void *)job->x, (size_t)job->width * sizeof(float)};
        } else {
            job->views[f] = (row_view){s->rows[f], linear_row_bytes(f, job->width)};
            job->wanted[f] = quantise = true;
        }
        out[i] = job->views[f];
    }
    if (quantise) {
        cpu_run_rows(job->b, quantise_row, job, job->n_rows);
    }
}

/* ---- products ---- */

typedef enum product_end { END_STORE, END_ADD, END_ACTIVATE, END_GATE_UP, END_LOGITS } product_end;

/* The products of one op. Tasks are column tiles: those of weights[0], then of
 * weights[1], and so on. For END_GATE_UP both weights have the same columns, and a task
 * computes both. */
typedef struct product_job {
    cpu_backend *b;
    row_view views[LINEAR_MAX_USES]; /* rows for each of weights */
    /* adapted rows of each of weights; w NULL: no adapter changes it */
    adapter_rows changed[LINEAR_MAX_USES];
    shrink_job shrink; /* computes t of the adapted rows */
    int32_t n_rows, n;
    int32_t task_blocks;            /* column blocks per task */
    int32_t tail_from, tail_blocks; /* the last weights' blocks from tail_from on have tasks of tail_blocks */
    /* tasks with the same columns, TASK_ROWS rows each: adjacent, while the weights are
     * still cached */
    int32_t n_parts;
    const linear *weights[LINEAR_MAX_USES];
    float *out[LINEAR_MAX_USES];     /* [n_rows, width] */
    int32_t widths[LINEAR_MAX_USES]; /* stride of out, in floats */
    product_end end;
    activation f;
    float limit;             /* parameter of f */
    const xielu_desc *xielu; /* parameters of f */
    /* END_ACTIVATE, END_GATE_UP: quantise the results to ROWS_GROUPS while they are in
     * cache, instead of storing f32 */
    bool to_groups;
    float scale, cap;
    bool is_streamed; /* END_LOGITS: results bypass the caches */
} product_job;

/* Number of weights whose columns are cut into tasks. */
static int32_t n_cut(const product_job *job) {
    return job->end == END_GATE_UP ? 1 : job->n;
}

static int32_t linear_ops_divide_up(int32_t n, int32_t by) {
    return (n + by - 1) / by;
}

/* Blocks of weights[use] in full-width tasks; the rest are in narrow tasks. */
static int32_t n_wide_blocks(const product_job *job, int32_t use) {
    return use == n_cut(job) - 1 ? job->tail_from : job->weights[use]->layout.n_blocks;
}

static int32_t n_tasks_of(const product_job *job, int32_t use) {
    int32_t n_wide = n_wide_blocks(job, use);
    return linear_ops_divide_up(n_wide, job->task_blocks) +
           linear_ops_divide_up(job->weights[use]->layout.n_blocks - n_wide, job->tail_blocks);
}

/* The columns of a task, and the weights that they belong to. n_blocks 0: no such
 * task. */
static linear_part part_of_task(const product_job *job, int32_t task, int32_t *use) {
    *use = 0;
    while (*use < n_cut(job) && task >= n_tasks_of(job, *use)) {
        task -= n_tasks_of(job, (*use)++);
    }
    if (*use == n_cut(job)) {
        return (linear_part){.n_blocks = 0};
    }
    const int32_t n_wide = n_wide_blocks(job, *use), n_tasks = linear_ops_divide_up(n_wide, job->task_blocks);
    const bool is_wide = task < n_tasks;
    const int32_t width = is_wide ? job->task_blocks : job->tail_blocks,
                  end = is_wide ? n_wide : job->weights[*use]->layout.n_blocks;
    const int32_t block0 = is_wide ? task * width : n_wide + (task - n_tasks) * width;
    return (linear_part){
        .w = job->weights[*use], .block0 = block0, .n_blocks = end - block0 < width ? end - block0 : width};
}

/* The worker's probable next task: tasks of its share are n_workers apart, until others
 * steal them. */
static linear_part part_after(const product_job *job, int32_t task) {
    int32_t use;
    return part_of_task(job, (task + thread_pool_size(job->b->thread_pool)) / job->n_parts, &use);
}

/* Address of `part` for a thread that has just multiplied weights laid out like w;
 * otherwise NULL. */
static const uint8_t *start_after(const linear *w, const linear_part *part) {
    const bool is_alike = part->n_blocks > 0 && part->w->layout.kind == w->layout.kind &&
                          part->w->layout.block_bytes == w->layout.block_bytes;
    return is_alike ? linear_block(part->w, part->block0) : NULL;
}

/* Column blocks per task. With few rows a task can be wider, as long as its results fit a
 * tile, because memory is read faster in long runs. But there must be enough tasks for
 * the threads to finish together. */
static int32_t widest_task(const product_job *job) {
    int32_t n_blocks = 0, blocks = LINEAR_TILE_BLOCKS,
            enough = TASKS_A_WORKER * thread_pool_size(job->b->thread_pool);
    for (int32_t i = 0; i < n_cut(job); i++) {
        n_blocks += job->weights[i]->layout.n_blocks;
    }
    while (blocks < MAX_PART_BLOCKS && 2 * blocks * job->n_rows <= LINEAR_TILE_BLOCKS * LINEAR_TILE_ROWS &&
           n_blocks >= 2 * blocks * enough) {
        blocks *= 2;
    }
    if (job->b->linear->is_wide && job->n_parts > 1 &&
        n_blocks * job->n_parts >= LINEAR_WIDE_BLOCKS * enough) {
        blocks = LINEAR_WIDE_BLOCKS;
    }
    return blocks;
}

/* Makes the last tasks, about one wide task per worker, a quarter as wide so that the
 * workers finish together. */
static void set_tasks(product_job *job) {
    const int32_t n_blocks = job->weights[n_cut(job) - 1]->layout.n_blocks;
    const int32_t least = job->to_groups ? GROUPS_AT_ONCE * PACK_GROUP / PACK_LANES : LINEAR_TILE_BLOCKS;
    job->task_blocks = widest_task(job);
    job->tail_blocks = job->task_blocks / 4 > least ? job->task_blocks / 4
                       : least < job->task_blocks   ? least
                                                    : job->task_blocks;
    const int32_t left = n_blocks - job->task_blocks * thread_pool_size(job->b->thread_pool);
    job->tail_from = job->tail_blocks == job->task_blocks ? n_blocks
                     : left > 0 ? linear_ops_divide_up(left, job->task_blocks) * job->task_blocks
                                : 0;
}

/* Computes the part's product for the rows of weights[use] from row0 on. after: what the
 * thread will probably compute next. */
static void tile_product(const product_job *job, int32_t use, linear_part part, const linear_part *after,
                         int32_t row0, int32_t n_rows, float *y, int32_t y_stride, int32_t worker) {
    row_view x = job->views[use];
    x.data += (size_t)row0 * x.stride;
    part.next = start_after(part.w, after);
    if (job->changed[use].w != NULL) {
        const linear_tile_use changed = {.b = job->b,
                                         .part = part,
                                         .after = *after,
                                         .rows = &job->changed[use],
                                         .shrink = &job->shrink,
                                         .y_stride = y_stride,
                                         .worker = worker};
        linear_tile_changed(&changed, x, row0, n_rows, y);
    } else {
        linear_tile(job->b, &part, x, n_rows, y, y_stride, linear_scratch(job->b, worker));
    }
}

/* out = f(y) for n elements, for END_ACTIVATE. out may be y. */
static void activate_columns(const product_job *job, const float *y, int32_t n, float *out) {
    if (job->f == ACT_XIELU) {
        job->b->math->xielu(job->xielu, y, n, out);
    } else {
        job->b->math->activate(job->f, y, n, out);
    }
}

/* Finishes n columns of one row of a tile. up: those of the second weights, for
 * END_GATE_UP. */
static void tile_end(const product_job *job, float *y, const float *up, int32_t n, float *out) {
    const math_kernels *math = job->b->math;
    switch (job->end) {
    case END_STORE:
        memcpy(out, y, (size_t)n * sizeof *out);
        break;
    case END_ADD:
        math->add_scaled(job->scale, y, n, out);
        break;
    case END_ACTIVATE:
        activate_columns(job, y, n, out);
        break;
    case END_GATE_UP:
        math->gate_up(job->f, job->limit, y, up, n, out);
        break;
    case END_LOGITS: /* done by end_logits */
        break;
    }
}

/* Updates a row's argmax with its logits from column0 on. */
static void note_argmax(const math_kernels *math, const float *logits, int32_t n, int32_t column0,
                        row_argmax *to) {
    float value = math->largest(logits, n);
    bool is_it = value > to->value || (value == to->value && column0 < to->id);
    if (isnan(value)) {
        to->value = NAN; /* stays NaN, since no comparison with it is true */
    } else if (is_it) {
        int32_t i = 0;
        while (logits[i] != value) {
            i++;
        }
        *to = (row_argmax){value, column0 + i};
    }
}

/* Finishes a tile of logits. If all rows' logits exceed the caches, they bypass them. */
static void end_logits(const product_job *job, float *y, int32_t stride, int32_t n, int32_t n_rows,
                       int32_t column0, float *out, row_argmax *largest) {
    const math_kernels *math = job->b->math;
    for (int32_t r = 0; r < n_rows; r++) {
        if (job->scale != 1.0f || job->cap != 0.0f) {
            math->scale_cap(job->scale, job->cap, n, y + r * stride);
        }
        note_argmax(math, y + r * stride, n, column0, &largest[r]);
        if (!job->is_streamed) {
            memcpy(out + (int64_t)r * job->widths[0], y + r * stride, (size_t)n * sizeof *out);
        }
    }
    if (job->is_streamed) {
        math->stream_rows(y, stride, n, n_rows, out, job->widths[0]);
    }
}

/* Quantises a tile's activations to groups. Kernels quantise GROUPS_AT_ONCE groups
 * together, so if a row of the tile has fewer, all rows are quantised as one, in the
 * second tile, which is free by then. */
static void linear_ops_store_groups(const product_job *job, int32_t n_rows, int32_t n, float *y, float *up,
                                    float *out) {
    const int32_t n_floats = n / COLUMNS_A_FLOAT;
    const bool is_narrow = n < GROUPS_AT_ONCE * PACK_GROUP;
    if (job->end == END_ACTIVATE) {
        activate_columns(job, y, n_rows * n, y);
    } else {
        job->b->math->gate_up(job->f, job->limit, y, up, n_rows * n, y);
    }
    if (is_narrow) {
        job->b->linear->quantise[ROWS_GROUPS](y, n_rows * n, up);
    }
    for (int32_t r = 0; r < n_rows; r++, out += job->widths[0]) {
        if (is_narrow) {
            memcpy(out, up + r * n_floats, (size_t)n_floats * sizeof *out);
        } else {
            job->b->linear->quantise[ROWS_GROUPS](y + r * n, n, out);
        }
    }
}

static row_argmax *worker_argmax(const cpu_backend *b, int32_t worker) {
    return b->linear_state->largest + (int64_t)worker * b->limits.max_out;
}

/* Prefetches the cache lines of a tile's results while they are computed. */
static void linear_ops_prefetch(const float *out, int32_t n_rows, int32_t n_columns, int32_t width) {
    for (int32_t r = 0; r < n_rows; r++, out += width) {
        for (int32_t c = 0; c < n_columns; c += LINE_FLOATS) {
            __builtin_prefetch(out + c, 1);
        }
    }
}

/* Whether the product of n_rows rows prefetches its results itself. */
static bool product_prefetches(const cpu_backend *b, const linear *w, int32_t n_rows) {
    const int32_t from = b->linear->prefetches_from;
    return w->format == ROWS_TOKEN && from > 0 && n_rows >= from;
}

static void product_task(void *context, int32_t task, int32_t worker) {
    product_job *job = context;
    adapter_shrink_some(&job->shrink);
    const int32_t first = task % job->n_parts * TASK_ROWS,
                  end = job->n_rows - first < TASK_ROWS ? job->n_rows : first + TASK_ROWS;
    int32_t use;
    linear_part part = part_of_task(job, task / job->n_parts, &use);
    part.is_near = task % job->n_parts >= thread_pool_size(job->b->thread_pool);
    int32_t column0 = part.block0 * PACK_LANES, stride = part.n_blocks * PACK_LANES;
    int32_t n_columns = part.w->layout.n_out - column0 < stride ? part.w->layout.n_out - column0 : stride;
    float *y = job->b->linear_state->tiles + (size_t)worker * 2 * LINEAR_TILE_FLOATS;
    float *up = y + LINEAR_TILE_FLOATS;
    /* the kernel writes the results directly: nothing else is done to them */
    const bool is_direct = job->end == END_STORE && n_columns == stride;
    for (int32_t row0 = first; row0 < end; row0 += LINEAR_TILE_ROWS) {
        int32_t n_rows = end - row0 < LINEAR_TILE_ROWS ? end - row0 : LINEAR_TILE_ROWS;
        int32_t columns_a_float = job->to_groups ? COLUMNS_A_FLOAT : 1, width = job->widths[use];
        float *out = job->out[use] + (int64_t)row0 * width + column0 / columns_a_float;
        if (!job->is_streamed && !(is_direct && product_prefetches(job->b, part.w, n_rows))) {
            linear_ops_prefetch(out, n_rows, n_columns / columns_a_float, width);
        }
        const linear_part after = row0 + n_rows < end ? part : part_after(job, task);
        linear_part second = part;
        second.w = job->weights[1];
        tile_product(job, use, part, job->end == END_GATE_UP ? &second : &after, row0, n_rows,
                     is_direct ? out : y, is_direct ? width : stride, worker);
        if (job->end == END_GATE_UP) {
            tile_product(job, 1, second, &after, row0, n_rows, up, stride, worker);
        }
        if (job->to_groups) {
            linear_ops_store_groups(job, n_rows, n_columns, y, up, out);
        } else if (job->end == END_LOGITS) {
            end_logits(job, y, stride, n_columns, n_rows, column0, out, worker_argmax(job->b, worker) + row0);
        } else {
            for (int32_t r = 0; r < n_rows && !is_direct; r++) {
                tile_end(job, y + r * stride, up + r * stride, n_columns, out + (int64_t)r * width);
            }
        }
    }
}

/* Prepares the rows of weights that adapters of the batch change. Returns whether there
 * are any. */
static bool note_changed(product_job *job, rows_job *rows) {
    const cpu_backend *b = job->b;
    bool some = false;
    for (int32_t i = 0; i < job->n; i++) {
        if (!adapter_changes(b, job->weights[i])) {
            continue;
        }
        const cpu_adapter_state *s = b->adapter_state;
        assert(!rows->is_quantised);
        rows->kept = rows->nm != NULL && !cpu_norm_replaces(rows->nm) ? s->kept : NULL;
        job->changed[i] = (adapter_rows){.w = job->weights[i],
                                         .rows = rows->rows,
                                         .groups = rows->rows != NULL ? &s->out : &s->rows,
                                         .h = rows->kept != NULL ? rows->kept : rows->x,
                                         .h_stride = rows->kept != NULL ? s->kept_stride : rows->width,
                                         .h_rows = rows->rows,
                                         .t = adapter_t(b, i, job->n_rows)};
        some = true;
    }
    return some;
}

static void run_products(product_job *job, rows_job *rows) {
    if (job->n_rows == 0) {
        return;
    }
    const bool some = note_changed(job, rows);
    int64_t start_ns = job->b->trace != NULL ? clock_ns() : 0;
    quantise_rows(rows, job->weights, job->n, job->views);
    if (job->b->trace != NULL) {
        job->b->rows_ns = clock_ns() - start_ns;
    }
    if (some) {
        adapter_shrink_open(&job->shrink, job->b, job->changed, job->n);
    }
    job->n_parts = linear_ops_divide_up(job->n_rows, TASK_ROWS);
    set_tasks(job);
    int32_t n_tasks = 0;
    for (int32_t i = 0; i < n_cut(job); i++) {
        n_tasks += n_tasks_of(job, i);
    }
    thread_pool_run(job->b->thread_pool, product_task, job, n_tasks * job->n_parts);
}

static rows_job rows_of(cpu_backend *b, buffer x, const norm *nm) {
    const cpu_buffer *a = &b->buffers[x.id];
    return (rows_job){.b = b,
                      .x = a->rows,
                      .width = a->width,
                      .n_rows = b->batch->n_rows,
                      .nm = nm,
                      .is_quantised = a->is_quantised};
}

static void add_product(product_job *job, const linear *w, buffer out) {
    cpu_buffer *to = &job->b->buffers[out.id];
    to->is_quantised = false;
    assert(job->n < LINEAR_MAX_USES && to->width >= w->layout.n_out);
    job->weights[job->n] = w;
    job->out[job->n] = to->rows;
    job->widths[job->n] = to->width;
    job->n++;
}

void cpu_norm_linears(backend *base, buffer x, const norm *nm, const linear_use *uses, int32_t n) {
    cpu_backend *b = (cpu_backend *)base;
    rows_job rows = rows_of(b, x, nm);
    product_job job = {.b = b, .n_rows = rows.n_rows, .end = END_STORE};
    for (int32_t i = 0; i < n; i++) {
        assert(uses[i].out.id != x.id);
        add_product(&job, uses[i].w, uses[i].out);
    }
    run_products(&job, &rows);
}

void cpu_linear_add(backend *base, buffer a, const linear_use *w, float scale, buffer x) {
    cpu_backend *b = (cpu_backend *)base;
    assert(a.id != x.id);
    rows_job rows = rows_of(b, a, NULL);
    product_job job = {.b = b, .n_rows = rows.n_rows, .end = END_ADD, .scale = scale};
    add_product(&job, w->w, x);
    run_products(&job, &rows);
}

/* Whether h's rows can be quantised in place: each row must be computed whole by one
 * task. */
static bool can_be_groups(const cpu_buffer *h, const linear *reader) {
    return reader != NULL && reader->format == ROWS_GROUPS && reader->order == NULL &&
           h->width % PACK_GROUP == 0 &&
           linear_row_bytes(ROWS_GROUPS, h->width) <= (size_t)h->width * sizeof *h->rows;
}

void cpu_feed_forward(backend *base, const feed_forward_use *use) {
    cpu_backend *b = (cpu_backend *)base;
    const linear *up = use->up;
    cpu_buffer *h = &b->buffers[use->h.id];
    assert(use->h.id != use->x.id && (use->reader == NULL || use->reader->layout.n_in == up->layout.n_out));
    assert(use->gate == NULL || use->gate->layout.n_out == up->layout.n_out);
    assert(!activation_has_limit(use->f) || (use->gate != NULL && use->limit > 0.0f));
    assert(use->f != ACT_XIELU || (use->gate == NULL && use->xielu != NULL));
    rows_job rows = rows_of(b, use->x, use->nm);
    product_job job = {.b = b,
                       .n_rows = rows.n_rows,
                       .end = use->gate != NULL ? END_GATE_UP : END_ACTIVATE,
                       .f = use->f,
                       .limit = use->limit,
                       .xielu = use->xielu};
    if (use->gate != NULL) {
        add_product(&job, use->gate, use->h);
    }
    add_product(&job, up, use->h);
    /* if adapters change the reader, it reads h in f32 */
    job.to_groups = h->is_quantised = can_be_groups(h, use->reader) && !adapter_changes(b, use->reader);
    if (job.to_groups) {
        job.widths[0] = (int32_t)(linear_row_bytes(ROWS_GROUPS, job.widths[0]) / sizeof(float));
    }
    run_products(&job, &rows);
}

void cpu_head(backend *base, buffer x, const norm *nm, const linear *w, float scale, float soft_cap) {
    cpu_backend *b = (cpu_backend *)base;
    assert(w->layout.n_out == b->n_vocab);
    rows_job rows = rows_of(b, x, nm);
    rows.n_rows = b->batch->n_out;
    rows.rows = b->batch->out_rows;
    product_job job = {
        .b = b, .n_rows = rows.n_rows, .n = 1, .end = END_LOGITS, .scale = scale, .cap = soft_cap};
    job.weights[0] = w;
    job.out[0] = b->logits;
    job.widths[0] = b->n_vocab;
    job.is_streamed = (int64_t)rows.n_rows * b->n_vocab > STREAMED_FLOATS;
    for (int32_t worker = 0; worker < thread_pool_size(b->thread_pool); worker++) {
        for (int32_t i = 0; i < rows.n_rows; i++) {
            worker_argmax(b, worker)[i] = (row_argmax){-INFINITY, INT32_MAX};
        }
    }
    run_products(&job, &rows);
}

int32_t cpu_argmax(const backend *base, int32_t i) {
    const cpu_backend *b = (const cpu_backend *)base;
    row_argmax whole = {-INFINITY, INT32_MAX};
    assert(i >= 0 && i < b->limits.max_out);
    for (int32_t worker = 0; worker < thread_pool_size(b->thread_pool); worker++) {
        const row_argmax *task = &worker_argmax(b, worker)[i];
        if (isnan(task->value)) {
            return -1;
        }
        whole =
            task->value > whole.value || (task->value == whole.value && task->id < whole.id) ? *task : whole;
    }
    return whole.id;
}
