/* Rows of a step that use an adapter: groups them once per step, and computes t = A h for
 * those that a product reads. */
#include "backend/cpu/adapter.h"

#include <string.h>

#include "backend/cpu/experts.h"
#include "backend/cpu/linear_ops.h"

#define SHRINK_TASK_RANKS 16 /* ranks per task, a multiple of ADAPTER_RANKS */

_Static_assert(ADAPTER_TILE_ROWS == LINEAR_TILE_ROWS, "t of a tile's rows");

/* Allocates n * size bytes of scratch, counted in step_bytes. */
static void *adapter_scratch(cpu_backend *b, size_t n, size_t size) {
    void *p = cpu_own(b, n, size);
    b->step_bytes += p != NULL ? (int64_t)(n * size) : 0;
    return p;
}

static quire_err open_groups(cpu_backend *b, int32_t n_rows, adapter_groups *g) {
    g->first = adapter_scratch(b, (size_t)b->limits.max_adapters + 1, sizeof *g->first);
    g->order = adapter_scratch(b, (size_t)n_rows, sizeof *g->order);
    return g->first != NULL && g->order != NULL ? QUIRE_OK : QUIRE_NO_MEMORY;
}

/* The widest row that loaded weights read; 0 without weights. */
static int32_t widest_row(const cpu_backend *b) {
    int32_t widest = 0;
    for (int f = 0; b->linear_state != NULL && f < N_ROW_FORMATS; f++) {
        widest = b->linear_state->widest[f] > widest ? b->linear_state->widest[f] : widest;
    }
    return widest;
}

quire_err cpu_adapter_step_open(cpu_backend *b) {
    const step_limits *l = &b->limits;
    if (l->max_adapters == 0) {
        return QUIRE_OK;
    }
    if (l->max_adapters < 0 || l->max_adapters > INT16_MAX || l->max_rank < 1 ||
        l->max_rank > ADAPTER_MAX_RANK) {
        return QUIRE_INVALID;
    }
    cpu_adapter_state *s = adapter_scratch(b, 1, sizeof *s);
    if (s == NULL) {
        return QUIRE_NO_MEMORY;
    }
    b->adapter_state = s;
    const size_t n_rows = (size_t)(l->max_rows > l->max_out ? l->max_rows : l->max_out),
                 n_places =
                     b->experts_state != NULL ? (size_t)l->max_rows * (size_t)b->experts_state->n_used : 0,
                 workers = (size_t)thread_pool_size(b->thread_pool);
    const bool by_place = b->experts_state != NULL && b->experts_state->scales_inputs;
    const size_t n_t = n_rows * LINEAR_MAX_USES > 2 * n_places ? n_rows * LINEAR_MAX_USES : 2 * n_places;
    s->t_stride = linear_pad(l->max_rank, PACK_LANES);
    s->kept_stride = linear_pad(widest_row(b), PACK_LANES);
    s->instead_bytes = linear_row_bytes(ROWS_F32, widest_row(b));
    s->kept = adapter_scratch(b, by_place && n_places > n_rows ? n_places : n_rows,
                              sizeof(float) * (size_t)s->kept_stride);
    s->t = adapter_scratch(b, n_t, sizeof(float) * (size_t)s->t_stride);
    s->worker_t = adapter_scratch(b, workers * ADAPTER_TILE_ROWS, sizeof(float) * (size_t)s->t_stride);
    s->row_stride = linear_pad((int32_t)b->scratch_stride, PACK_LANES);
    s->worker_rows = adapter_scratch(b, workers, sizeof(float) * (size_t)s->row_stride);
    s->entries = adapter_scratch(b, LINEAR_MAX_USES * (size_t)l->max_adapters, sizeof *s->entries);
    s->instead_rows = adapter_scratch(b, workers * ADAPTER_INSTEAD_ROWS, s->instead_bytes);
    TRY(open_groups(b, l->max_rows, &s->rows));
    TRY(open_groups(b, l->max_out, &s->out));
    const bool is_there = s->kept != NULL && s->t != NULL && s->worker_t != NULL && s->worker_rows != NULL &&
                          s->entries != NULL && s->instead_rows != NULL;
    return is_there ? QUIRE_OK : QUIRE_NO_MEMORY;
}

/* Groups n rows by adapter with a counting sort. rows: their indices in the batch, or
 * NULL. Rows without an adapter are left out. */
static void group_rows(const batch *step, const int32_t *rows, int32_t n, adapter_groups *g) {
    memset(g->first, 0, sizeof *g->first * ((size_t)step->n_adapters + 1));
    for (int32_t i = 0; i < n; i++) {
        const int32_t j = step->row_adapters[rows != NULL ? rows[i] : i];
        g->first[j + 1] += j >= 0;
    }
    for (int32_t j = 0; j < step->n_adapters; j++) {
        g->first[j + 1] += g->first[j];
    }
    for (int32_t i = 0; i < n; i++) {
        const int32_t j = step->row_adapters[rows != NULL ? rows[i] : i];
        if (j >= 0) {
            g->order[g->first[j]++] = i;
        }
    }
    /* first[j] is now first[j + 1]: shift back */
    memmove(g->first + 1, g->first, sizeof *g->first * (size_t)step->n_adapters);
    g->first[0] = 0;
}

void cpu_adapter_begin(cpu_backend *b) {
    const batch *step = b->batch;
    b->has_adapted = false;
    assert(step->n_adapters == 0 || step->n_adapters <= b->limits.max_adapters);
    for (int32_t i = 0; step->n_adapters > 0 && step->row_adapters != NULL && i < step->n_rows; i++) {
        assert(step->row_adapters[i] < step->n_adapters);
        b->has_adapted = b->has_adapted || step->row_adapters[i] >= 0;
    }
    if (b->has_adapted) {
        group_rows(step, NULL, step->n_rows, &b->adapter_state->rows);
        group_rows(step, step->out_rows, step->n_out, &b->adapter_state->out);
    }
}

float *adapter_t(const cpu_backend *b, int32_t n, int32_t n_rows) {
    const cpu_adapter_state *s = b->adapter_state;
    return s->t + (size_t)n * (size_t)n_rows * (size_t)s->t_stride;
}

/* A stretch of a part's ranks: at most SHRINK_TASK_RANKS of one segment. */
typedef struct rank_stretch {
    const adapter_segment *segment;
    int32_t rank0, n_ranks; /* within the segment */
    int32_t t0;             /* first index of its t in the part's t */
} rank_stretch;

static int32_t n_rank_stretches(const adapter_part *part) {
    int32_t n = 0;
    for (int32_t s = 0; s < part->n_segments; s++) {
        n += (part->segments[s].rank + SHRINK_TASK_RANKS - 1) / SHRINK_TASK_RANKS;
    }
    return n;
}

static rank_stretch stretch_of(const adapter_part *part, int32_t i) {
    const adapter_segment *s = part->segments;
    int32_t t0 = 0;
    while (i * SHRINK_TASK_RANKS >= s->rank) {
        i -= (s->rank + SHRINK_TASK_RANKS - 1) / SHRINK_TASK_RANKS;
        t0 += (s++)->rank;
    }
    const int32_t rank0 = i * SHRINK_TASK_RANKS, left = s->rank - rank0;
    return (rank_stretch){s, rank0, left < SHRINK_TASK_RANKS ? left : SHRINK_TASK_RANKS, t0 + rank0};
}

/* Address of A at a stretch. */
static const uint8_t *stretch_a(const adapter_rows *r, const rank_stretch *s) {
    const size_t n_in = (size_t)linear_pad(r->w->layout.n_in, PACK_LANES);
    return s->segment->a + (size_t)s->rank0 * n_in * adapter_number_bytes(s->segment->a_type);
}

/* Computes t of a stretch for n rows, at most ADAPTER_ROWS. next: the next A or NULL. */
static void shrink_stretch(const cpu_backend *b, const adapter_rows *r, const rank_stretch *s,
                           const uint8_t *next, const int32_t *rows, int32_t n) {
    const float *h[ADAPTER_ROWS];
    float *t[ADAPTER_ROWS];
    for (int32_t i = 0; i < n; i++) {
        h[i] = adapter_row_h(r, rows[i]);
        t[i] = r->t + (int64_t)rows[i] * b->adapter_state->t_stride + s->t0;
    }
    b->math->shrink(s->segment->a_type, stretch_a(r, s), next, r->w->layout.n_in, s->n_ranks, h, n, t);
}

/* The entry and stretch of a task; *row0: its first row within the entry's rows. */
static const shrink_entry *entry_of_task(const shrink_job *job, int32_t task, int32_t *row0,
                                         rank_stretch *s) {
    const shrink_entry *e = job->entries;
    int32_t first = 0;
    while (task >= e->end_task) {
        first = (e++)->end_task;
    }
    *row0 = (task - first) % e->n_row_parts * ADAPTER_ROWS;
    *s = stretch_of(e->part, (task - first) / e->n_row_parts);
    return e;
}

static void shrink_task(const shrink_job *job, int32_t task) {
    const int32_t after = task + thread_pool_size(job->b->thread_pool); /* probably the worker's next task */
    int32_t row0, next_row0;
    rank_stretch s, then;
    const uint8_t *next = NULL;
    const shrink_entry *e = entry_of_task(job, task, &row0, &s);
    if (after < job->n_tasks) {
        const shrink_entry *of_next = entry_of_task(job, after, &next_row0, &then);
        next = stretch_a(of_next->rows, &then);
    }
    const int32_t left = e->n_rows - row0;
    shrink_stretch(job->b, e->rows, &s, next, e->order + row0, left < ADAPTER_ROWS ? left : ADAPTER_ROWS);
}

/* Adds an entry for each adapter that changes a product by segments. */
static int32_t add_shrink_entries(const cpu_backend *b, const adapter_rows *r, shrink_entry *entries,
                                  int32_t n, int32_t *n_tasks) {
    for (int32_t j = 0; r->w != NULL && j < b->batch->n_adapters; j++) {
        const adapter_part *part = b->batch->adapters[j]->parts[r->w->id];
        const int32_t first = r->groups->first[j], n_rows = r->groups->first[j + 1] - first;
        if (part == NULL || n_rows == 0 || part->n_segments == 0) {
            continue;
        }
        const int32_t n_row_parts = (n_rows + ADAPTER_ROWS - 1) / ADAPTER_ROWS;
        *n_tasks += n_row_parts * n_rank_stretches(part);
        entries[n++] = (shrink_entry){r, part, r->groups->order + first, n_rows, n_row_parts, *n_tasks};
    }
    return n;
}

void adapter_shrink_open(shrink_job *job, const cpu_backend *b, const adapter_rows *rows, int32_t n) {
    int32_t n_entries = 0;
    *job = (shrink_job){.b = b, .entries = b->adapter_state->entries};
    for (int32_t i = 0; i < n; i++) {
        n_entries = add_shrink_entries(b, &rows[i], b->adapter_state->entries, n_entries, &job->n_tasks);
    }
}

void adapter_shrink_some(shrink_job *job) {
    int32_t n = 0;
    while (atomic_load_explicit(&job->n_taken, memory_order_relaxed) < job->n_tasks) {
        const int32_t task = atomic_fetch_add_explicit(&job->n_taken, 1, memory_order_relaxed);
        if (task < job->n_tasks) {
            shrink_task(job, task);
            n++;
        }
    }
    if (n > 0) {
        atomic_fetch_add_explicit(&job->n_done, n, memory_order_release);
    }
}

void adapter_shrink_wait(const shrink_job *job) {
    for (int32_t i = 0; atomic_load_explicit(&job->n_done, memory_order_acquire) < job->n_tasks; i++) {
        thread_pool_pause(i);
    }
}

void adapter_shrink_rows(const cpu_backend *b, const adapter_rows *r, int32_t from, int32_t end) {
    int32_t rows[ADAPTER_ROWS], n;
    for (int32_t i = from; i < end; i += n) {
        const adapter_part *part = adapter_part_of(b, r->w->id, adapter_batch_row(r, i));
        n = 0;
        while (n < ADAPTER_ROWS && i + n < end &&
               adapter_part_of(b, r->w->id, adapter_batch_row(r, i + n)) == part) {
            rows[n] = i + n;
            n++;
        }
        for (int32_t s = 0, n_all = part != NULL ? n_rank_stretches(part) : 0; s < n_all; s++) {
            const rank_stretch stretch = stretch_of(part, s);
            shrink_stretch(b, r, &stretch, NULL, rows, n);
        }
    }
}
