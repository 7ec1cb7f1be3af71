/* Adapters on the CPU: their packed changes to loaded objects, and the rows of a step
 * that use one.
 *
 * Every linear, norm and embedding has an `id` in its backend, and an adapter lists its
 * changes by these ids, so nothing is installed before a step. In an op with products,
 * the float rows h of adapted rows are kept; the tasks of the products first compute t =
 * A h for all of them (adapter_shrink_some), and each tile adds scale * B t to W h
 * (linear_tile_changed). Rows without an adapter are computed exactly as if no adapters
 * existed.
 *
 * Owner: an adapter is immutable and belongs to the caller of adapter_load. The state
 * belongs to the backend; what cpu_adapter_begin writes is read-only until the next
 * step. */
#ifndef CPU_ADAPTER_H
#define CPU_ADAPTER_H

#include <stdatomic.h>

#include "backend/cpu/cpu.h"
#include "backend/cpu/linear.h"
#include "backend/cpu/math.h"

/* The addend scale * B A. A is packed as [rank / 4][n_in / 16][4][16], both rounded up
 * and padded with zeros; for an embedding as [V][rank]. B is packed as [n_out /
 * 16][rank][16]. */
typedef struct adapter_segment {
    dtype a_type, b_type;
    int32_t rank;
    float scale;
    const uint8_t *a, *b;
} adapter_segment;

static inline size_t adapter_number_bytes(dtype type) {
    return type == DTYPE_F32 ? sizeof(float) : sizeof(uint16_t);
}

/* An adapter's change to one object. */
typedef struct adapter_part {
    int32_t n_segments, rank; /* rank: the sum over segments */
    const adapter_segment *segments;
    const float *factors; /* [n_out rounded up to 16], or NULL */
    const float *bias;    /* same size, replaces the linear's bias; or NULL */
    const linear *instead;
    const norm *nm;
    const embedding *rows; /* replaces the embedding's rows; or NULL */
} adapter_part;

struct adapter {
    int32_t n_objects;
    const adapter_part **parts; /* [n_objects] by id; NULL: unchanged */
    cpu_backend *store;         /* owns what the loading calls made; NULL: nothing */
    int64_t n_bytes;
    /* followed by the arrays, and by the packed numbers of segments that it owns */
};

/* Rows of a batch grouped by adapter: those of adapter j are order[first[j]] ..
 * order[first[j + 1] - 1], ascending. */
typedef struct adapter_groups {
    int32_t *first; /* [max_adapters + 1] */
    int32_t *order;
} adapter_groups;

/* The rows of one product of w, some of which are adapted. Row i is row rows[i] of the
 * batch, or row0 + i if rows is NULL. */
typedef struct adapter_rows {
    const linear *w;
    const int32_t *rows;
    int32_t row0;
    const adapter_groups *groups; /* grouping of these rows; read by adapter_shrink_open */
    /* row i in f32 begins at h + (h_rows[i] or i) * h_stride; others are not read */
    const float *h;
    int32_t h_stride;
    const int32_t *h_rows;
    float *t; /* t of row i is at t + i * t_stride */
} adapter_rows;

/* The rows of one adapter in one product, and the index after the last of their tasks in
 * the shrink_job. */
typedef struct shrink_entry {
    const adapter_rows *rows;
    const adapter_part *part;
    const int32_t *order;
    int32_t n_rows, n_row_parts, end_task;
} shrink_entry;

/* Computes t of all adapted rows of an op's products, in tasks that workers take between
 * the products' own tasks, so that no worker waits for others before its first tile. */
typedef struct shrink_job {
    const cpu_backend *b;
    const shrink_entry *entries;
    int32_t n_tasks;
    _Atomic int32_t n_taken, n_done;
} shrink_job;

/* Allocated by cpu_adapter_step_open; NULL in a backend without adapters. */
typedef struct cpu_adapter_state {
    int32_t t_stride;         /* max_rank rounded up to 16 */
    int32_t kept_stride;      /* floats of the widest row that a product reads, rounded up to 16 */
    float *kept;              /* input rows in f32, by row of the batch or by place (experts.h) */
    float *t;                 /* [n_t_rows][t_stride] */
    float *worker_t;          /* [workers][ADAPTER_TILE_ROWS][t_stride] */
    int32_t row_stride;       /* width of the widest buffer, rounded up to 16 */
    float *worker_rows;       /* [workers][row_stride] */
    adapter_groups rows, out; /* groups of the batch's rows, and of those whose logits are computed */
    shrink_entry *entries;    /* [LINEAR_MAX_USES * max_adapters] */
    size_t instead_bytes;     /* bytes of a row that `instead` weights read */
    uint8_t *instead_rows;    /* [workers][ADAPTER_INSTEAD_ROWS][instead_bytes] */
} cpu_adapter_state;

#define ADAPTER_INSTEAD_ROWS 8
#define ADAPTER_TILE_ROWS    128   /* = LINEAR_TILE_ROWS */
#define ADAPTER_MAX_RANK     65536 /* total of a blend */

/* What the adapter of a row of the batch changes of object `id`; NULL: nothing. */
static inline const adapter_part *adapter_part_of(const cpu_backend *b, int32_t id, int32_t row) {
    if (!b->has_adapted) {
        return NULL;
    }
    const int32_t j = b->batch->row_adapters[row];
    return j >= 0 ? b->batch->adapters[j]->parts[id] : NULL;
}

/* The norm that applies to a row. */
static inline const norm *adapter_norm_of(const cpu_backend *b, const norm *nm, int32_t row) {
    const adapter_part *part = b->has_adapted && nm != NULL ? adapter_part_of(b, cpu_norm_id(nm), row) : NULL;
    return part != NULL ? part->nm : nm;
}

/* Whether any adapter of the batch changes w. */
static inline bool adapter_changes(const cpu_backend *b, const linear *w) {
    for (int32_t j = 0; b->has_adapted && w != NULL && j < b->batch->n_adapters; j++) {
        if (b->batch->adapters[j]->parts[w->id] != NULL) {
            return true;
        }
    }
    return false;
}

static inline const float *adapter_row_h(const adapter_rows *r, int32_t i) {
    return r->h + (int64_t)(r->h_rows != NULL ? r->h_rows[i] : i) * r->h_stride;
}

static inline int32_t adapter_batch_row(const adapter_rows *r, int32_t i) {
    return r->rows != NULL ? r->rows[i] : r->row0 + i;
}

/* The worker's own t for ADAPTER_TILE_ROWS rows. */
static inline float *adapter_worker_t(const cpu_backend *b, int32_t worker) {
    return b->adapter_state->worker_t +
           (size_t)worker * ADAPTER_TILE_ROWS * (size_t)b->adapter_state->t_stride;
}

/* A row of the worker's own, as wide as the widest buffer. */
static inline float *adapter_worker_row(const cpu_backend *b, int32_t worker) {
    return b->adapter_state->worker_rows + (size_t)worker * (size_t)b->adapter_state->row_stride;
}

/* ---- implemented in adapter_rows.c ---- */
/* Sets up the job that computes t of all adapted rows of n products. */
void adapter_shrink_open(shrink_job *job, const cpu_backend *b, const adapter_rows *rows, int32_t n);
/* Runs tasks of the job until none is left to take. */
void adapter_shrink_some(shrink_job *job);
/* Waits for tasks that others have taken. Call adapter_shrink_some first. */
void adapter_shrink_wait(const shrink_job *job);
/* Computes t of rows from .. end - 1 of one product on the calling thread. */
void adapter_shrink_rows(const cpu_backend *b, const adapter_rows *rows, int32_t from, int32_t end);
/* Address of t of row 0 of an op's n-th product; each product has n_rows rows. */
float *adapter_t(const cpu_backend *b, int32_t n, int32_t n_rows);

#endif
