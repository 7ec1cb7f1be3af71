/* Computes a step's rows through a mixture of experts. Rows are sorted by expert; then
 * the workers share the column tiles of all experts.
 *
 * Barriers: one for gate and up of all experts, one for down, which also sums; more only
 * with many rows, or if down's input format needs the whole hidden row for its scale.
 * Bytes: an expert's weights once for every LINEAR_TILE_ROWS of its rows, after the first
 * time from cache. Order of a row's sum: s = 0; s = fma(weight, down, s) over its
 * experts, ascending; y = fma(scale, s, y), or scale * s. */
#include "backend/cpu/experts.h"

#include <string.h>

#include "backend/cpu/linear_ops.h"
#include "backend/cpu/math.h"
#include "base/clock.h"

#define SERIAL_ROWS     4     /* most rows that the caller gathers itself */
#define SERIAL_ELEMENTS 32768 /* most hidden elements that the caller converts itself */
#define HIDDEN_BLOCKS   16    /* gate and up: most column blocks per task */
/* gate and up: tasks are wider than a tile only if each worker still gets so many */
#define HIDDEN_TASKS   8
#define SUM_TASKS      4 /* down: likewise; its tasks have at most EXPERTS_SUM_BLOCKS */
#define TILE_FLOATS    (LINEAR_TILE_ROWS * LINEAR_TILE_COLUMNS)
#define SUM_FLOATS     (2 * TILE_FLOATS) /* down does not use the second tile */
#define GROUPS_AT_ONCE 4

typedef struct experts_job {
    cpu_backend *b;
    cpu_experts_state *s;
    const experts_use *use;
    const experts *w;
    const float *x; /* [n_rows, x_width] */
    float *y;       /* [n_rows, y_width] */
    int32_t x_width, y_width, n_rows;
    int32_t most_rows;                 /* most rows of one expert */
    int32_t hidden_blocks, sum_blocks; /* column blocks per task */
    size_t hidden_bytes;               /* stride of hidden rows */
    /* adapters of the batch change a gate or up, or a down, of experts with rows: rows
     * stay f32 until t is computed */
    bool changes_hidden, changes_sums;
} experts_job;

/* ---- sorting ---- */

/* Gives every assignment its place, with a counting sort by expert. Returns the most rows
 * of an expert with weights. */
static int32_t sort_by_expert(cpu_experts_state *s, int32_t n_experts, int32_t n_weighed, int32_t n) {
    int32_t *first = s->first, most = 0;
    memset(first, 0, sizeof *first * ((size_t)n_experts + 1));
    for (int32_t i = 0; i < n; i++) {
        first[s->chosen[i] + 1]++;
    }
    s->n_active = 0;
    for (int32_t e = 0; e < n_experts; e++) {
        if (first[e + 1] > 0 && e < n_weighed) {
            s->active[s->n_active++] = e;
            most = first[e + 1] > most ? first[e + 1] : most;
        }
        first[e + 1] += first[e];
    }
    for (int32_t i = 0; i < n; i++) {
        s->places[i] = first[s->chosen[i]]++;
        s->sources[s->places[i]] = i;
    }
    /* first[e] is now first[e + 1]: shift back */
    memmove(first + 1, first, sizeof *first * (size_t)n_experts);
    first[0] = 0;
    return most;
}

/* ---- input rows of experts ---- */

static float *worker_row(const cpu_experts_state *s, int32_t worker) {
    return s->rows + (size_t)worker * (size_t)s->row_width;
}

/* Writes x times the weight to the worker's scratch row. */
static const float *scaled_input(const experts_job *job, const float *x, float weight, int32_t worker) {
    float *scaled = worker_row(job->s, worker);
    for (int32_t k = 0; k < job->w->d_in; k++) {
        scaled[k] = x[k] * weight;
    }
    return scaled;
}

/* The row at a place as w, an expert's gate or up, reads it. */
static uint8_t *gathered_row(const experts_job *job, row_format f, bool is_up, int32_t place) {
    uint8_t *rows = is_up && job->w->has_orders ? job->s->gathered_up : job->s->gathered[f];
    return rows + (size_t)place * linear_row_bytes(f, job->w->d_in);
}

/* Writes the rows at an assignment's place for its expert's gate and up, which may have
 * input orders. */
static void gather_ordered(const experts_job *job, int32_t assignment, const float *input, int32_t worker) {
    const int32_t e = job->s->chosen[assignment], place = job->s->places[assignment];
    const linear *up = job->w->up[e], *gate = job->w->gate != NULL ? job->w->gate[e] : NULL;
    linear_input(job->b, up, input, worker, gathered_row(job, up->format, true, place));
    if (gate != NULL) {
        linear_input(job->b, gate, input, worker, gathered_row(job, gate->format, false, place));
    }
}

/* Address of an expert's input row in f32: by row, or by place if scaled per expert. */
static float *kept_input(const experts_job *job, int32_t i) {
    const cpu_adapter_state *a = job->b->adapter_state;
    return a->kept + (int64_t)i * a->kept_stride;
}

/* Norms a row, converts it once per format, and copies it to its places. */
static void gather_row(void *context, int32_t row, int32_t worker) {
    const experts_job *job = context;
    const cpu_experts_state *s = job->s;
    const float *x = job->x + (int64_t)row * job->x_width;
    const uint8_t *made[N_ROW_FORMATS] = {NULL};
    if (job->use->nm != NULL) {
        float *normed = cpu_scratch_row(job->b, worker);
        cpu_norm_row(job->b, adapter_norm_of(job->b, job->use->nm, row), x, job->w->d_in, normed);
        x = normed;
    }
    if (job->changes_hidden && !s->is_input_scaled) {
        memcpy(kept_input(job, row), x, sizeof *x * (size_t)job->w->d_in);
    }
    if (job->w->n_weighed < job->w->n_experts) {
        memcpy(s->inputs + (size_t)row * (size_t)s->row_width, x, sizeof *x * (size_t)job->w->d_in);
    }
    for (int32_t i = row * job->w->n_used; i < (row + 1) * job->w->n_used; i++) {
        if (s->chosen[i] >= job->w->n_weighed) {
            continue;
        }
        const float *input = s->is_input_scaled ? scaled_input(job, x, s->weights[i], worker) : x;
        if (job->changes_hidden && s->is_input_scaled) {
            memcpy(kept_input(job, s->places[i]), input, sizeof *x * (size_t)job->w->d_in);
        }
        if (job->w->has_orders) {
            gather_ordered(job, i, input, worker);
            continue;
        }
        for (int f = 0; f < N_ROW_FORMATS; f++) {
            if (!job->w->reads[f]) {
                continue;
            }
            uint8_t *to = gathered_row(job, (row_format)f, false, s->places[i]);
            if (made[f] != NULL && !s->is_input_scaled) {
                memcpy(to, made[f], linear_row_bytes((row_format)f, job->w->d_in));
            } else {
                job->b->linear->quantise[f](input, job->w->d_in, to);
                made[f] = to;
            }
        }
    }
}

/* ---- products ---- */

/* A worker's part of the scratch for products. */
typedef struct tile_scratch {
    float *y, *up; /* TILE_FLOATS each */
} tile_scratch;

static tile_scratch scratch_of(const cpu_backend *b, int32_t worker) {
    const cpu_linear_state *l = b->linear_state;
    float *y = l->tiles + (size_t)worker * 2 * TILE_FLOATS;
    return (tile_scratch){y, y + TILE_FLOATS};
}

/* ---- changes by adapters ---- */

/* The input rows of an expert's gate (which = 0) or up (1), by place. */
static adapter_rows hidden_changed(const experts_job *job, const linear *w, int32_t which) {
    const cpu_experts_state *s = job->s;
    return (adapter_rows){.w = w,
                          .rows = s->place_rows,
                          .h = job->b->adapter_state->kept,
                          .h_stride = job->b->adapter_state->kept_stride,
                          .h_rows = s->is_input_scaled ? NULL : s->place_rows,
                          .t = adapter_t(job->b, which, job->n_rows * job->w->n_used)};
}

/* The input rows of an expert's down; they are f32 until convert_hidden. */
static adapter_rows sums_changed(const experts_job *job, const linear *w) {
    return (adapter_rows){.w = w,
                          .rows = job->s->place_rows,
                          .h = (const float *)(const void *)job->s->hidden,
                          .h_stride = (int32_t)(job->hidden_bytes / sizeof(float)),
                          .t = adapter_t(job->b, 0, job->n_rows * job->w->n_used)};
}

/* Finds the adapters' changes to experts that have rows. */
static void note_changes(experts_job *job, int32_t n_places) {
    const cpu_backend *b = job->b;
    const experts *w = job->w;
    cpu_experts_state *s = job->s;
    for (int32_t place = 0; b->has_adapted && place < n_places; place++) {
        const int32_t e = s->chosen[s->sources[place]], row = s->sources[place] / w->n_used;
        s->place_rows[place] = row;
        job->changes_hidden = job->changes_hidden || adapter_part_of(b, w->up[e]->id, row) != NULL ||
                              (w->gate != NULL && adapter_part_of(b, w->gate[e]->id, row) != NULL);
        job->changes_sums = job->changes_sums || adapter_part_of(b, w->down[e]->id, row) != NULL;
    }
    if (job->changes_sums) {
        job->hidden_bytes = linear_row_bytes(ROWS_F32, w->d_hidden);
    }
}

#define SHRINK_PLACES 8 /* places per task */

/* The end of the run of places with the same expert from `place` on, at most `end`. */
static int32_t end_of_expert(const cpu_experts_state *s, int32_t place, int32_t end) {
    const int32_t of_expert = s->first[s->chosen[s->sources[place]] + 1];
    return of_expert < end ? of_expert : end;
}

static int32_t end_of_task(const experts_job *job, int32_t task) {
    const int32_t end = (task + 1) * SHRINK_PLACES, n = job->s->first[job->w->n_weighed];
    return end < n ? end : n;
}

static void shrink_hidden(void *context, int32_t task, int32_t worker) {
    const experts_job *job = context;
    const cpu_experts_state *s = job->s;
    (void)worker;
    for (int32_t place = task * SHRINK_PLACES, all = end_of_task(job, task), end; place < all; place = end) {
        const int32_t e = s->chosen[s->sources[place]];
        end = end_of_expert(s, place, all);
        if (job->w->gate != NULL) {
            const adapter_rows gate = hidden_changed(job, job->w->gate[e], 0);
            adapter_shrink_rows(job->b, &gate, place, end);
        }
        const adapter_rows up = hidden_changed(job, job->w->up[e], 1);
        adapter_shrink_rows(job->b, &up, place, end);
    }
}

static void shrink_sums(void *context, int32_t task, int32_t worker) {
    const experts_job *job = context;
    const cpu_experts_state *s = job->s;
    (void)worker;
    for (int32_t place = task * SHRINK_PLACES, all = end_of_task(job, task), end; place < all; place = end) {
        const adapter_rows down = sums_changed(job, job->w->down[s->chosen[s->sources[place]]]);
        end = end_of_expert(s, place, all);
        adapter_shrink_rows(job->b, &down, place, end);
    }
}

/* Columns of a task, and how many rows' results fit n_floats at once. */
typedef struct tile {
    int32_t block0, n_blocks, column0, n_columns, stride, rows_at_once;
} tile;

static tile tile_of(int32_t index, int32_t task_blocks, int32_t width, int32_t n_floats) {
    tile t = {.block0 = index * task_blocks, .column0 = index * task_blocks * PACK_LANES};
    int32_t left = width - t.column0;
    t.n_columns = left < task_blocks * PACK_LANES ? left : task_blocks * PACK_LANES;
    t.n_blocks = (t.n_columns + PACK_LANES - 1) / PACK_LANES;
    t.stride = t.n_blocks * PACK_LANES;
    t.rows_at_once = n_floats / (task_blocks * PACK_LANES);
    t.rows_at_once = t.rows_at_once < LINEAR_TILE_ROWS ? t.rows_at_once : LINEAR_TILE_ROWS;
    return t;
}

static int32_t n_tiles(int32_t width, int32_t task_blocks) {
    return (width + task_blocks * PACK_LANES - 1) / (task_blocks * PACK_LANES);
}

/* Converts a tile's hidden rows to groups. Kernels convert GROUPS_AT_ONCE groups at a
 * time, so shorter rows are converted together as one row, in the second tile. */
static void experts_store_groups(const experts_job *job, int32_t n_rows, int32_t n, float *y, float *spare,
                                 uint8_t *out) {
    const size_t row_bytes = (size_t)n / PACK_GROUP * sizeof(row_group);
    const bool is_narrow = n < GROUPS_AT_ONCE * PACK_GROUP;
    if (is_narrow) {
        job->b->linear->quantise[ROWS_GROUPS](y, n_rows * n, spare);
    }
    for (int32_t r = 0; r < n_rows; r++, out += job->hidden_bytes) {
        if (is_narrow) {
            memcpy(out, (const uint8_t *)spare + (size_t)r * row_bytes, row_bytes);
        } else {
            job->b->linear->quantise[ROWS_GROUPS](y + r * n, n, out);
        }
    }
}

/* out = f(gate) * up; ungated: f of up's product, which is passed as gate. */
static void experts_activate(const experts_job *job, const float *gate, const float *up, int32_t n,
                             float *out) {
    if (job->w->gate != NULL) {
        job->b->math->gate_up(job->use->f, job->use->limit, gate, up, n, out);
    } else {
        job->b->math->activate(job->use->f, gate, n, out);
    }
}

/* Computes a tile of the product for the rows from `place` on. */
static void experts_tile(const experts_job *job, const linear_tile_use *use, row_view rows, int32_t place,
                         int32_t n_rows, float *y) {
    if (use->rows->w != NULL) {
        linear_tile_changed(use, rows, place, n_rows, y);
    } else {
        linear_tile(job->b, &use->part, rows, n_rows, y, use->y_stride, linear_scratch(job->b, use->worker));
    }
}

/* Computes a tile of a down product. */
static void down_tile(const experts_job *job, const linear *down, const tile *t, int32_t place,
                      int32_t n_rows, float *y, int32_t worker) {
    const adapter_rows changed = job->changes_sums ? sums_changed(job, down) : (adapter_rows){.w = NULL};
    const linear_tile_use use = {.b = job->b,
                                 .part = {.w = down, .block0 = t->block0, .n_blocks = t->n_blocks},
                                 .rows = &changed,
                                 .y_stride = t->stride,
                                 .worker = worker};
    const row_view rows = {job->s->hidden + (size_t)place * job->hidden_bytes, job->hidden_bytes};
    experts_tile(job, &use, rows, place, n_rows, y);
}

/* Task: computes a tile of one expert's hidden columns for all its rows. */
static void hidden_task(void *context, int32_t task, int32_t worker) {
    const experts_job *job = context;
    const cpu_experts_state *s = job->s;
    const experts *w = job->w;
    int32_t tiles = n_tiles(w->d_hidden, job->hidden_blocks), e = s->active[task / tiles];
    tile t = tile_of(task % tiles, job->hidden_blocks, w->d_hidden, TILE_FLOATS);
    tile_scratch c = scratch_of(job->b, worker);
    for (int32_t place = s->first[e], end = s->first[e + 1]; place < end; place += t.rows_at_once) {
        int32_t n_rows = end - place < t.rows_at_once ? end - place : t.rows_at_once;
        const linear *parts[] = {w->gate != NULL ? w->gate[e] : w->up[e], w->up[e]};
        float *sums[] = {c.y, c.up};
        for (int i = 0; i < (w->gate != NULL ? 2 : 1); i++) {
            const bool is_up = parts[i] == w->up[e];
            row_view rows = {gathered_row(job, parts[i]->format, is_up, place),
                             linear_row_bytes(parts[i]->format, w->d_in)};
            const adapter_rows changed =
                job->changes_hidden ? hidden_changed(job, parts[i], is_up) : (adapter_rows){.w = NULL};
            experts_tile(
                job,
                &(linear_tile_use){.b = job->b,
                                   .part = {.w = parts[i], .block0 = t.block0, .n_blocks = t.n_blocks},
                                   .rows = &changed,
                                   .y_stride = t.stride,
                                   .worker = worker},
                rows, place, n_rows, sums[i]);
        }
        uint8_t *out = s->hidden + (size_t)place * job->hidden_bytes;
        bool is_groups = w->down[e]->format == ROWS_GROUPS && w->down[e]->order == NULL && !job->changes_sums;
        if (is_groups) {
            experts_activate(job, c.y, c.up, n_rows * t.stride, c.y);
            experts_store_groups(job, n_rows, t.n_columns, c.y, c.up,
                                 out + (size_t)t.column0 / PACK_GROUP * sizeof(row_group));
        }
        for (int32_t r = 0; r < n_rows && !is_groups; r++, out += job->hidden_bytes) {
            experts_activate(job, c.y + r * t.stride, c.up + r * t.stride, t.n_columns,
                             (float *)(void *)out + t.column0);
        }
    }
}

/* Task: converts a hidden row in place to the input format of its expert's down, if that
 * needs the whole row or if t had to be computed from it first. */
static void convert_hidden(void *context, int32_t place, int32_t worker) {
    const experts_job *job = context;
    const int32_t source = job->s->sources[place];
    const linear *down = job->w->down[job->s->chosen[source]];
    const adapter_part *part =
        job->changes_sums ? adapter_part_of(job->b, down->id, source / job->w->n_used) : NULL;
    if (part != NULL && part->instead != NULL) {
        return; /* an adapter replaces down: its sums are not used */
    }
    if (experts_need_whole(down) || (job->changes_sums && down->format != ROWS_F32)) {
        float *copy = worker_row(job->s, worker);
        uint8_t *row = job->s->hidden + (size_t)place * job->hidden_bytes;
        memcpy(copy, row, (size_t)job->w->d_hidden * sizeof *copy);
        linear_input(job->b, down, copy, worker, row);
    }
}

/* Adds one expert's tile of columns to the sums of its rows. */
static void add_expert(const experts_job *job, int32_t e, const tile *t, int32_t worker, float *sums) {
    float *y = scratch_of(job->b, worker).y;
    const cpu_experts_state *s = job->s;
    for (int32_t place = s->first[e], end = s->first[e + 1]; place < end; place += t->rows_at_once) {
        int32_t n_rows = end - place < t->rows_at_once ? end - place : t->rows_at_once;
        down_tile(job, job->w->down[e], t, place, n_rows, y, worker);
        for (int32_t r = 0; r < n_rows; r++) {
            int32_t source = s->sources[place + r];
            float weight = s->is_input_scaled ? 1.0f : s->weights[source];
            job->b->math->add_scaled(weight, y + r * t->stride, t->n_columns,
                                     sums + (int64_t)(source / job->w->n_used) * t->stride);
        }
    }
}

/* Adds the results of experts without weights, which are their inputs. */
static void add_inputs(const experts_job *job, const tile *t, float *sums) {
    const cpu_experts_state *s = job->s;
    for (int32_t i = 0; i < job->n_rows * job->w->n_used && job->w->n_weighed < job->w->n_experts; i++) {
        if (s->chosen[i] >= job->w->n_weighed) {
            const int32_t row = i / job->w->n_used;
            job->b->math->add_scaled(s->weights[i],
                                     s->inputs + (size_t)row * (size_t)s->row_width + t->column0,
                                     t->n_columns, sums + (int64_t)row * t->stride);
        }
    }
}

/* Task: computes a tile of columns of y for all rows and experts. */
static void sum_task(void *context, int32_t task, int32_t worker) {
    const experts_job *job = context;
    const math_kernels *math = job->b->math;
    tile t = tile_of(task, job->sum_blocks, job->w->d_out, SUM_FLOATS);
    float *sums = job->s->sums + (size_t)worker * job->s->sums_width;
    memset(sums, 0, sizeof *sums * (size_t)job->n_rows * (size_t)t.stride);
    for (int32_t a = 0; a < job->s->n_active; a++) {
        add_expert(job, job->s->active[a], &t, worker, sums);
    }
    add_inputs(job, &t, sums);
    for (int32_t row = 0; row < job->n_rows; row++, sums += t.stride) {
        float *y = job->y + (int64_t)row * job->y_width + t.column0;
        if (job->use->overwrite) {
            math->scale_cap(job->use->scale, 0.0f, t.n_columns, sums);
            memcpy(y, sums, sizeof *y * (size_t)t.n_columns);
        } else {
            math->add_scaled(job->use->scale, sums, t.n_columns, y);
        }
    }
}

/* ---- results with a norm ---- */

/* Task: computes a tile of one expert's results for all its rows. */
static void result_task(void *context, int32_t task, int32_t worker) {
    const experts_job *job = context;
    const cpu_experts_state *s = job->s;
    int32_t tiles = n_tiles(job->w->d_out, job->sum_blocks), e = s->active[task / tiles];
    tile t = tile_of(task % tiles, job->sum_blocks, job->w->d_out, SUM_FLOATS);
    tile_scratch c = scratch_of(job->b, worker);
    for (int32_t place = s->first[e], end = s->first[e + 1]; place < end; place += t.rows_at_once) {
        int32_t n_rows = end - place < t.rows_at_once ? end - place : t.rows_at_once;
        down_tile(job, job->w->down[e], &t, place, n_rows, c.y, worker);
        for (int32_t r = 0; r < n_rows; r++) {
            memcpy(s->results + (size_t)(place + r) * (size_t)s->result_width + t.column0, c.y + r * t.stride,
                   sizeof *c.y * (size_t)t.n_columns);
        }
    }
}

/* Task: norms a row's results and sums them. */
static void sum_results(void *context, int32_t row, int32_t worker) {
    const experts_job *job = context;
    const cpu_experts_state *s = job->s;
    const math_kernels *math = job->b->math;
    const int32_t width = job->w->d_out;
    float *y = job->y + (int64_t)row * job->y_width, *sum = worker_row(s, worker);
    memset(sum, 0, sizeof *sum * (size_t)width);
    for (int32_t i = row * job->w->n_used; i < (row + 1) * job->w->n_used; i++) {
        float *result = s->results + (size_t)s->places[i] * (size_t)s->result_width;
        cpu_norm_row(job->b, adapter_norm_of(job->b, job->w->result_norm, row), result, width, result);
        math->add_scaled(s->is_input_scaled ? 1.0f : s->weights[i], result, width, sum);
    }
    if (job->use->overwrite) {
        math->scale_cap(job->use->scale, 0.0f, width, sum);
        memcpy(y, sum, sizeof *y * (size_t)width);
    } else {
        math->add_scaled(job->use->scale, sum, width, y);
    }
}

/* Column blocks per task. With few rows a task can be wider, as long as its results fit,
 * because memory is read faster in long runs and an expert's tile is one run. But there
 * must be enough tasks for the threads to finish together. fit: blocks that fit; most:
 * upper limit. */
static int32_t task_blocks(const experts_job *job, int32_t n_blocks, int32_t tasks_a_worker, int32_t fit,
                           int32_t most) {
    int32_t blocks = LINEAR_TILE_BLOCKS, enough = tasks_a_worker * thread_pool_size(job->b->thread_pool);
    while (2 * blocks <= most && 2 * blocks <= fit && n_blocks >= 2 * blocks * enough) {
        blocks *= 2;
    }
    return blocks;
}

static void run(experts_job *job, thread_pool_fn fn, int32_t n, bool is_serial) {
    for (int32_t i = 0; i < n && is_serial; i++) {
        fn(job, i, 0);
    }
    if (!is_serial) {
        thread_pool_run(job->b->thread_pool, fn, job, n);
    }
}

static void run_experts(experts_job *job) {
    const experts *w = job->w;
    int32_t n_places = job->n_rows * w->n_used;
    int64_t start_ns = job->b->trace != NULL ? clock_ns() : 0;
    job->most_rows = sort_by_expert(job->s, w->n_experts, w->n_weighed, n_places);
    n_places = job->s->first[w->n_weighed]; /* only those of experts with weights */
    note_changes(job, n_places);
    const int32_t shrink_tasks = linear_pad(n_places, SHRINK_PLACES) / SHRINK_PLACES;
    run(job, gather_row, job->n_rows, job->n_rows <= SERIAL_ROWS);
    if (job->changes_hidden) {
        run(job, shrink_hidden, shrink_tasks, false);
    }
    if (job->b->trace != NULL) {
        job->b->rows_ns = clock_ns() - start_ns;
    }
    const int32_t most = job->most_rows > 0 ? job->most_rows : 1,
                  hidden_fit = TILE_FLOATS / PACK_LANES / most, sum_fit = SUM_FLOATS / PACK_LANES / most;
    int32_t sums = (int32_t)(job->s->sums_width / PACK_LANES / (size_t)job->n_rows);
    job->hidden_blocks =
        task_blocks(job, job->s->n_active * n_tiles(w->d_hidden, 1), HIDDEN_TASKS, hidden_fit, HIDDEN_BLOCKS);
    run(job, hidden_task, job->s->n_active * n_tiles(w->d_hidden, job->hidden_blocks), false);
    if (job->changes_sums) {
        run(job, shrink_sums, shrink_tasks, false);
    }
    if (w->needs_whole || job->changes_sums) {
        run(job, convert_hidden, n_places, (int64_t)n_places * w->d_hidden <= SERIAL_ELEMENTS);
    }
    job->sum_blocks = task_blocks(job, n_tiles(w->d_out, 1), SUM_TASKS, sum_fit < sums ? sum_fit : sums,
                                  EXPERTS_SUM_BLOCKS);
    if (w->result_norm != NULL) {
        run(job, result_task, job->s->n_active * n_tiles(w->d_out, job->sum_blocks), false);
        run(job, sum_results, job->n_rows, job->n_rows <= SERIAL_ROWS);
        return;
    }
    run(job, sum_task, n_tiles(w->d_out, job->sum_blocks), false);
}

void cpu_experts(backend *base, const experts_use *use) {
    cpu_backend *b = (cpu_backend *)base;
    const cpu_buffer *x = &b->buffers[use->x.id];
    cpu_buffer *y = &b->buffers[use->y.id];
    experts_job job = {.b = b,
                       .s = b->experts_state,
                       .use = use,
                       .w = use->w,
                       .x = x->rows,
                       .y = y->rows,
                       .x_width = x->width,
                       .y_width = y->width,
                       .n_rows = b->batch->n_rows,
                       .hidden_bytes = cpu_experts_hidden_bytes(use->w)};
    assert(!x->is_quantised && (use->overwrite || !y->is_quantised) && x->width == use->w->d_in &&
           y->width == use->w->d_out);
    assert(job.s->step == b->step && job.s->chosen_from == use->w->n_experts &&
           job.s->chosen_used == use->w->n_used);
    assert(!activation_has_limit(use->f) || (use->w->gate != NULL && use->limit > 0.0f));
    y->is_quantised = false;
    if (job.n_rows > 0) {
        run_experts(&job);
    }
}
