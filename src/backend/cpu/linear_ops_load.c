/* Loads weights: checks them, packs them on all threads, and allocates the scratch of
 * their products. */
#include <string.h>

#include "backend/cpu/linear_ops.h"
#include "backend/cpu/pack_lanes.h"
#include "backend/cpu/pack_matrix.h"
#include "backend/cpu/pack_read.h"
#include "base/mem.h"
#include "base/size.h"
#include "core/quant.h"

#define POPULATED_BYTES MEM_HUGE_BYTES /* bytes of packed weights mapped at a time */

size_t linear_row_bytes(row_format format, int32_t k) {
    size_t padded = (size_t)linear_pad(k, PACK_GROUP), bytes;
    if (format == ROWS_TOKEN) {
        bytes = padded + 2 * sizeof(float);
    } else if (format == ROWS_GROUPS) {
        bytes = padded / PACK_GROUP * sizeof(row_group);
    } else {
        bytes = padded * sizeof(float);
    }
    /* an odd number of cache lines: rows a power of two apart would map to few cache
     * sets */
    return size_align(bytes, 64) | 64;
}

static quire_err linear_ops_load_state_of(cpu_backend *b, cpu_linear_state **out) {
    if (b->linear_state == NULL) {
        b->linear_state = cpu_own(b, 1, sizeof *b->linear_state);
    }
    *out = b->linear_state;
    return *out != NULL ? QUIRE_OK : QUIRE_NO_MEMORY;
}

/* Checks the shape, and that all bytes are present. */
static quire_err check_weight(const tensor_view *w, quire_error *err) {
    if (w->n_dims != 2 || w->dims[0] < 1 || w->dims[1] < 1 || w->dims[0] > INT32_MAX ||
        w->dims[1] > INT32_MAX) {
        return err_set(err, QUIRE_BAD_FILE, -1, "tensor %s: a linear layer's weight must be a matrix",
                       w->name);
    }
    size_t elements, block = (size_t)dtype_block_elements(w->type), bytes;
    if (!size_mul((size_t)w->dims[0], (size_t)w->dims[1], &elements) || (size_t)w->dims[1] % block != 0 ||
        !size_mul(elements / block, (size_t)dtype_block_bytes(w->type), &bytes) ||
        (w->packing == 0 && w->quant == NULL && bytes > w->n_bytes)) {
        return err_set(err, QUIRE_BAD_FILE, -1, "tensor %s: %zu bytes are not a %s matrix of %lld x %lld",
                       w->name, w->n_bytes, dtype_name(w->type), (long long)w->dims[0],
                       (long long)w->dims[1]);
    }
    return QUIRE_OK;
}

/* Checks the scales of int8 weights: floats, one per row. */
static quire_err check_scale(const tensor_view *w, quire_error *err) {
    const tensor_view *s = w->scale;
    if (w->packing != 0 || (w->type != DTYPE_I8 && s == NULL)) {
        return QUIRE_OK;
    }
    if (w->type != DTYPE_I8) {
        return err_set(err, QUIRE_UNSUPPORTED, -1,
                       "tensor %s: scales beside weights of type %s are not supported", w->name,
                       dtype_name(w->type));
    }
    if (s == NULL) {
        return err_set(err, QUIRE_UNSUPPORTED, -1,
                       "tensor %s: integer weights without scales are not supported", w->name);
    }
    bool rows = s->dims[0] == w->dims[0] && (s->n_dims == 1 || (s->n_dims == 2 && s->dims[1] == 1));
    bool floats = s->type == DTYPE_F32 || s->type == DTYPE_F16 || s->type == DTYPE_BF16;
    if (!rows || !floats || s->n_bytes / (size_t)dtype_block_bytes(s->type) < (size_t)w->dims[0]) {
        return err_set(err, QUIRE_UNSUPPORTED, -1,
                       "tensor %s: scales must be one float for each of the %lld rows of %s", s->name,
                       (long long)w->dims[0], w->name);
    }
    return QUIRE_OK;
}

static quire_err load_bias(cpu_backend *b, linear *l, const tensor_view *bias, quire_error *err) {
    size_t n = (size_t)l->layout.n_out;
    if (bias->n_dims != 1 || bias->dims[0] != l->layout.n_out || dtype_is_quantised(bias->type) ||
        n * (size_t)dtype_block_bytes(bias->type) > bias->n_bytes) {
        return err_set(err, QUIRE_BAD_FILE, -1, "tensor %s: this bias must be a float vector of %d elements",
                       bias->name, l->layout.n_out);
    }
    l->bias = cpu_own(b, (size_t)l->layout.n_blocks * PACK_LANES, sizeof *l->bias);
    if (l->bias == NULL) {
        return err_set(err, QUIRE_NO_MEMORY, -1, "tensor %s: out of memory", bias->name);
    }
    if (quant_dequantise(bias->type, bias->data, n, l->bias) != QUIRE_OK) {
        return err_set(err, QUIRE_UNSUPPORTED, -1, "tensor %s: a bias cannot be of type %s", bias->name,
                       dtype_name(bias->type));
    }
    b->weight_bytes += (int64_t)(n * sizeof *l->bias);
    return QUIRE_OK;
}

typedef struct pack_job {
    linear *l;
    const tensor_view *w;
    int32_t n_workers;
    const matrix_plan *plan; /* weights from a quant_matrix whose codes are kept; else NULL */
    uint8_t *codes;          /* plan with an order: [workers][PACK_LANES][n_in] */
} pack_job;

/* Maps the system pages of n packed blocks from `block` on, and those of their rows in
 * the file. */
static void populate_blocks(const pack_job *job, int32_t block, int32_t n) {
    const pack_layout *p = &job->l->layout;
    const tensor_view *w = job->w;
    mem_populate_written(job->l->data + (size_t)block * p->block_bytes, (size_t)n * p->block_bytes);
    if (w->quant == NULL) {
        const int32_t row = block * PACK_LANES, end = row + n * PACK_LANES;
        const uint8_t *from = pack_column(w, p->n_in, row, 0),
                      *to = pack_column(w, p->n_in, end < p->n_out ? end : p->n_out, 0);
        mem_populate_read(from, (size_t)(to - from));
    }
}

/* The block of a task. A worker's tasks (thread_pool_run) are consecutive blocks, whose
 * system pages it maps some megabytes at a time. If workers took blocks in turn, two
 * could fault on one page and both clear it, and a worker still clearing a page at the
 * end would delay the others. */
static int32_t begin_task(const pack_job *job, int32_t task) {
    const int32_t n = job->n_workers, share = task % n, at = task / n;
    const int32_t n_blocks = job->l->layout.n_blocks, more = n_blocks % n;
    const int32_t first = share * (n_blocks / n) + (share < more ? share : more),
                  left = n_blocks / n + (share < more) - at;
    const int32_t some = (int32_t)(POPULATED_BYTES / job->l->layout.block_bytes) + 1;
    if (at % some == 0 && (at == 0 || left >= some)) {
        populate_blocks(job, first + at, left < 2 * some ? left : some);
    }
    return first + at;
}

static void pack_part(void *context, int32_t task, int32_t worker) {
    const pack_job *job = context;
    linear *l = job->l;
    const int32_t block = begin_task(job, task);
    uint8_t *to = l->data + (size_t)block * l->layout.block_bytes;
    if (job->plan != NULL && pack_is_scaled(l->layout.kind)) {
        const scaled_source source = pack_matrix_source(job->plan);
        pack_block_scaled(&l->layout, &source, block, to);
    } else if (job->plan != NULL) {
        const int32_t row0 = block * PACK_LANES, left = l->layout.n_out - row0;
        matrix_reader reader = {.plan = job->plan};
        reader.codes =
            job->codes != NULL ? job->codes + (size_t)worker * PACK_LANES * (size_t)l->layout.n_in : NULL;
        pack_matrix_rows(&reader, row0, left < PACK_LANES ? left : PACK_LANES);
        pack_block_of(&l->layout, &(pack_source){pack_matrix_read, &reader}, block, to);
    } else {
        pack_block(&l->layout, job->w, block, to,
                   l->scales != NULL ? l->scales + (size_t)block * PACK_LANES : NULL);
    }
}

/* ---- trailer of packed weights ---- */

/* The trailer of packed weights: it records how they were packed. */
typedef struct packed_end {
    uint32_t kind, format, table, shift;
    float unit, factor;
    uint32_t has_order;
    int32_t stretch;
    uint32_t least;
    uint8_t zeros[28];
} packed_end;

_Static_assert(sizeof(packed_end) == 64, "packed weights are whole cache lines");

/* Bytes of packed weights before the trailer: the blocks, then INT8's scales, T4's
 * numbers, or the input order. False: too many. */
static bool packed_bytes(const pack_layout *p, bool has_order, size_t *out) {
    size_t n_blocks = (size_t)p->n_blocks, n;
    const size_t n_floats = p->kind == PACK_INT8 ? n_blocks * PACK_LANES : pack_n_numbers(p->kind);
    const size_t behind = has_order ? (size_t)p->n_in * sizeof(int32_t) : n_floats * sizeof(float);
    return size_add(n_blocks * p->block_bytes, behind, &n) && n < SIZE_MAX / 2 &&
           size_add(size_align(n, 64), sizeof(packed_end), out);
}

/* Whether a compute mode multiplies rows of a format with weights of a kind. */
static bool fits_format(pack_kind kind, uint32_t format, compute_mode mode) {
    switch (format) {
    case ROWS_F32:
        return kind == PACK_F32 || kind == PACK_F16 || kind == PACK_BF16 || pack_is_scaled(kind);
    case ROWS_BF16:
        return (kind == PACK_BF16 || (pack_is_scaled(kind) && !pack_is_fours(kind))) && mode == COMPUTE_BF16;
    case ROWS_TOKEN:
        return kind == PACK_INT8 && mode == COMPUTE_INT8;
    default:
        return format == ROWS_GROUPS && pack_is_grouped(kind) && mode == COMPUTE_INT8;
    }
}

static quire_err bad_packed(const tensor_view *w, quire_error *err) {
    return err_set(err, QUIRE_BAD_FILE, -1,
                   "tensor %s: its packed form has the wrong size, %zu bytes; pack the model again", w->name,
                   w->n_bytes);
}

/* Reads how packed weights were packed: kind, rule, format and factor. */
static quire_err read_end(const cpu_backend *b, const tensor_view *w, linear *l, pack_kind *kind,
                          quant_rule *rule, bool *has_order, quire_error *err) {
    packed_end end;
    if (w->packing != PACK_VERSION) {
        return err_set(err, QUIRE_UNSUPPORTED, -1,
                       "tensor %s: packed by another version of quire (layout %u, this one uses %u): pack "
                       "the model again",
                       w->name, (unsigned)w->packing, PACK_VERSION);
    }
    if (!w->stays || w->n_bytes < sizeof end || (uintptr_t)w->data % MEM_ALIGN != 0) {
        return bad_packed(w, err);
    }
    memcpy(&end, (const uint8_t *)w->data + w->n_bytes - sizeof end, sizeof end);
    if (end.kind >= N_PACKS || !fits_format((pack_kind)end.kind, end.format, b->base.compute) ||
        end.table >= N_TABLES || end.shift > 31 || end.has_order > (end.format == ROWS_GROUPS) ||
        end.least > 1 ||
        (end.stretch != 0 && (!pack_is_scaled((pack_kind)end.kind) ||
                              pack_stretch_of((pack_kind)end.kind, end.stretch) != end.stretch))) {
        return bad_packed(w, err);
    }
    *has_order = end.has_order;
    *kind = (pack_kind)end.kind;
    *rule = (quant_rule){.table = (quant_table)end.table,
                         .unit = end.unit,
                         .shift = (int32_t)end.shift,
                         .least = (int32_t)end.least,
                         .stretch = end.stretch};
    rule->form = pack_is_grouped(*kind) ? (quant_form)(end.kind - PACK_INT8 - 1) : 0;
    l->format = (row_format)end.format;
    l->factor = end.factor;
    return QUIRE_OK;
}

/* Called after packing: written before, it would have this thread alone clear the huge
 * page that it lies in, for every matrix. */
static void write_end(const linear *l) {
    const quant_rule *r = &l->layout.rule;
    size_t n_bytes;
    (void)packed_bytes(&l->layout, l->order != NULL, &n_bytes); /* cannot fail: `place` computed it */
    const packed_end end = {.kind = (uint32_t)l->layout.kind,
                            .format = (uint32_t)l->format,
                            .table = (uint32_t)r->table,
                            .shift = (uint32_t)r->shift,
                            .unit = r->unit,
                            .factor = l->factor,
                            .has_order = l->order != NULL,
                            .stretch = r->stretch,
                            .least = (uint32_t)r->least};
    memcpy(l->data + n_bytes - sizeof end, &end, sizeof end);
}

/* Chooses how to pack a checkpoint's weights. Under int8, and for floats under bf16 too,
 * a quantised matrix keeps its codes if a kind has them exactly. Otherwise it is rounded
 * to bf16; under int8 it is then multiplied with f32 rows, whose bits no instruction set
 * changes. */
static quire_err linear_ops_load_choose(const cpu_backend *b, const linear_spec *spec, linear *l,
                                        pack_kind *kind, quant_rule *rule, matrix_plan *plan,
                                        quire_error *err) {
    const tensor_view *w = spec->weight;
    const bool is_half = w->type == DTYPE_F16 || w->type == DTYPE_BF16,
               is_int8 = b->base.compute == COMPUTE_INT8 && !spec->exact;
    const bool in_f32 = !is_int8 && b->base.compute != COMPUTE_BF16;
    compute_mode mode =
        spec->exact || in_f32 || (spec->left_out && is_int8 && is_half) ? COMPUTE_F32 : b->base.compute;
    const quant_rule *published = quant_rule_of(w->type);
    *rule = published != NULL ? *published : (quant_rule){.unit = 1.0f};
    const bool may_keep = w->quant != NULL && !spec->exact && !in_f32;
    l->factor = 1.0f;
    if (may_keep && pack_matrix_plan(w->quant, (int32_t)w->dims[0], (int32_t)w->dims[1], plan) &&
        (is_int8 || pack_is_scaled(plan->kind))) {
        *kind = plan->kind;
        *rule = plan->rule;
        l->factor = plan->factor;
    } else if (is_int8 && w->quant != NULL) {
        mode = COMPUTE_F32;
        *kind = PACK_BF16;
    } else if (pack_choose(w->type, mode, kind) != QUIRE_OK) {
        return err_set(err, QUIRE_UNSUPPORTED, -1, "tensor %s: weights of type %s are not supported", w->name,
                       dtype_name(w->type));
    } else if (pack_is_grouped(*kind) && (b->linear->finds_rows == NULL || !b->linear->finds_rows())) {
        rule->form = quant_unpacked(rule->form);
        *kind = pack_kind_of(rule->form);
    }
    l->format = linear_format(*kind, mode);
    return QUIRE_OK;
}

/* Takes the input order after the blocks. If recently loaded weights have the same one it
 * is shared, so that rows are permuted once. */
static quire_err take_order(cpu_linear_state *s, linear *l, const tensor_view *w, const int32_t *order,
                            quire_error *err) {
    const int32_t n = l->layout.n_in;
    bool is_within = true;
    for (int32_t i = 0; i < n; i++) {
        is_within = is_within && order[i] >= 0 && order[i] < n;
    }
    if (!is_within) {
        return bad_packed(w, err);
    }
    const linear *other = s->loaded;
    for (int32_t i = 0; i < LINEAR_MAX_USES && other != NULL && l->order == NULL; i++, other = other->next) {
        const bool is_same = other->order != NULL && other->layout.n_in == n &&
                             memcmp(other->order, order, (size_t)n * sizeof *order) == 0;
        l->order = is_same ? other->order : NULL;
    }
    s->n_orders += l->order == NULL && s->n_orders < LINEAR_MAX_USES;
    s->widest_ordered = n > s->widest_ordered ? n : s->widest_ordered;
    l->order = l->order == NULL ? order : l->order;
    return QUIRE_OK;
}

/* Allocates memory for the weights, or uses the file's bytes in place. order: input order
 * of weights to be packed; or NULL. */
static quire_err place(cpu_backend *b, linear *l, const tensor_view *w, const int32_t *order, bool has_order,
                       quire_error *err) {
    size_t n_bytes, in_blocks = (size_t)l->layout.n_blocks * l->layout.block_bytes;
    if (!packed_bytes(&l->layout, has_order, &n_bytes)) {
        return err_set(err, QUIRE_TOO_LARGE, -1, "tensor %s: too large", w->name);
    }
    if (w->packing != 0 && w->n_bytes != n_bytes) {
        return bad_packed(w, err);
    }
    /* only this file writes there, and only while loading */
    l->data = w->packing != 0 ? (uint8_t *)(uintptr_t)w->data : cpu_own(b, n_bytes, 1);
    if (l->data == NULL) {
        return err_set(err, QUIRE_NO_MEMORY, -1, "tensor %s: out of memory", w->name);
    }
    if (order != NULL) {
        memcpy(l->data + in_blocks, order, (size_t)l->layout.n_in * sizeof *order);
    }
    if (has_order) {
        TRY(take_order(b->linear_state, l, w, (const int32_t *)(const void *)(l->data + in_blocks), err));
    }
    l->scales = l->layout.kind == PACK_INT8 ? (float *)(void *)(l->data + in_blocks) : NULL;
    l->numbers = pack_is_fours(l->layout.kind) ? (float *)(void *)(l->data + in_blocks) : NULL;
    b->weight_bytes += (int64_t)n_bytes;
    return QUIRE_OK;
}

const void *cpu_linear_packed(const linear *l, size_t *n_bytes, uint32_t *packing) {
    (void)packed_bytes(&l->layout, l->order != NULL, n_bytes); /* cannot fail: computed at load too */
    *packing = PACK_VERSION;
    return l->data;
}

/* out[0..n_in) = row `row` of INT8 weights. */
static void read_int8_row(const linear *w, int32_t row, float *out) {
    const int8_t *q = (const int8_t *)linear_block(w, row / PACK_LANES);
    for (int32_t k = 0; k < w->layout.n_in; k++) {
        const int32_t at = k / 4 * 4 * PACK_LANES + 4 * (row % PACK_LANES) + k % 4;
        out[k] = (float)q[at] * w->scales[row];
    }
}

void cpu_linear_row(const backend *b, const linear *w, int32_t r, float *out) {
    (void)b;
    assert(r >= 0 && r < w->layout.n_out);
    if (pack_is_scaled(w->layout.kind)) {
        linear_scaled_row(w, r, out);
    } else if (w->layout.kind == PACK_INT8) {
        read_int8_row(w, r, out);
    } else {
        pack_read_row(&w->layout, w->data, r, w->order, out);
    }
    for (int32_t k = 0; w->factor != 1.0f && k < w->layout.n_in; k++) {
        out[k] *= w->factor;
    }
}

/* Sets the rounding of rows before they are multiplied, under fp8. */
static quire_err take_rounding(const cpu_backend *b, const linear_spec *spec, linear *l, quire_error *err) {
    l->rounding = b->base.compute == COMPUTE_FP8 ? spec->rounding : (row_rounding){.to = ROUND_NOTHING};
    if (l->rounding.to != ROUND_NOTHING &&
        (size_t)spec->weight->dims[1] * sizeof(float) > LINEAR_SCRATCH_BYTES) {
        return err_set(err, QUIRE_TOO_LARGE, -1, "tensor %s: %lld inputs are too many for --compute fp8",
                       spec->weight->name, (long long)spec->weight->dims[1]);
    }
    return QUIRE_OK;
}

static quire_err load(backend *base, const linear_spec *spec, matrix_plan *plan, linear **out,
                      quire_error *err) {
    cpu_backend *b = (cpu_backend *)base;
    const tensor_view *weight = spec->weight;
    cpu_linear_state *s;
    pack_kind kind;
    quant_rule rule;
    bool has_order = false;
    TRY(check_weight(weight, err));
    TRY(check_scale(weight, err));
    linear *l = cpu_own(b, 1, sizeof *l);
    if (l == NULL || linear_ops_load_state_of(b, &s) != QUIRE_OK) {
        return err_set(err, QUIRE_NO_MEMORY, -1, "tensor %s: out of memory", weight->name);
    }
    TRY(weight->packing != 0 ? read_end(b, weight, l, &kind, &rule, &has_order, err)
                             : linear_ops_load_choose(b, spec, l, &kind, &rule, plan, err));
    TRY(take_rounding(b, spec, l, err));
    quire_err e = pack_plan(kind, &rule, (int32_t)weight->dims[0], (int32_t)weight->dims[1], &l->layout);
    if (e != QUIRE_OK && weight->packing != 0) {
        return bad_packed(weight, err);
    }
    if (e != QUIRE_OK) {
        return err_set(err, e, -1, "tensor %s: %lld x %lld is too large for --compute %s", weight->name,
                       (long long)weight->dims[0], (long long)weight->dims[1], compute_name(base->compute));
    }
    const int32_t *order = l->format == ROWS_GROUPS ? plan->order : NULL;
    TRY(place(b, l, weight, order, has_order || order != NULL, err));
    if (spec->bias != NULL) {
        TRY(load_bias(b, l, spec->bias, err));
    }
    if (weight->packing == 0) {
        uint8_t *codes = NULL;
        const bool keeps_codes = weight->quant != NULL && (pack_is_grouped(kind) || pack_is_scaled(kind));
        if (order != NULL) {
            codes = mem_new((size_t)thread_pool_size(b->thread_pool) * PACK_LANES, (size_t)l->layout.n_in);
            if (codes == NULL) {
                TRY(err_set(err, QUIRE_NO_MEMORY, -1, "tensor %s: out of memory", weight->name));
            }
        }
        const pack_job job = {l, weight, thread_pool_size(b->thread_pool), keeps_codes ? plan : NULL, codes};
        if (l->numbers != NULL) {
            const scaled_source source = pack_matrix_source(plan);
            pack_numbers(kind, &source, l->numbers);
        }
        thread_pool_run(b->thread_pool, pack_part, (void *)(uintptr_t)&job, l->layout.n_blocks);
        write_end(l);
        mem_free(codes);
    }
    l->id = b->n_objects++;
    l->next = s->loaded;
    s->loaded = l;
    s->widest[l->format] = l->layout.n_in > s->widest[l->format] ? l->layout.n_in : s->widest[l->format];
    *out = l;
    return QUIRE_OK;
}

quire_err cpu_linear_load(backend *base, const linear_spec *spec, linear **out, quire_error *err) {
    matrix_plan plan = {.m = NULL};
    const quire_err e = load(base, spec, &plan, out, err);
    mem_free(plan.order);
    return e;
}

void cpu_linear_close(cpu_backend *b) {
    b->linear_state = NULL; /* cpu_own frees the blocks */
}

quire_err cpu_linear_step_open(cpu_backend *b) {
    cpu_linear_state *s;
    TRY(linear_ops_load_state_of(b, &s));
    size_t n_rows = (size_t)(b->limits.max_rows > b->limits.max_out ? b->limits.max_rows : b->limits.max_out);
    size_t workers = (size_t)thread_pool_size(b->thread_pool);
    for (int f = 0; f < N_ROW_FORMATS; f++) {
        if (s->widest[f] == 0) {
            continue;
        }
        size_t row = linear_row_bytes((row_format)f, s->widest[f]);
        s->rows[f] = cpu_own(b, n_rows, row);
        TRY(mem_check(s->rows[f]));
        b->step_bytes += (int64_t)(n_rows * row);
    }
    const size_t ordered = linear_row_bytes(ROWS_GROUPS, s->widest_ordered);
    for (int32_t o = 0; o < s->n_orders; o++) {
        s->ordered[o] = cpu_own(b, n_rows, ordered);
        TRY(mem_check(s->ordered[o]));
        b->step_bytes += (int64_t)(n_rows * ordered);
    }
    if (s->n_orders > 0) {
        s->placed = cpu_own(b, workers * (size_t)s->widest_ordered, sizeof *s->placed);
        TRY(mem_check(s->placed));
        b->step_bytes += (int64_t)(workers * (size_t)s->widest_ordered * sizeof *s->placed);
    }
    if (s->head_bytes > 0) {
        s->head_rows = cpu_own(b, workers * LINEAR_TILE_ROWS, s->head_bytes);
        TRY(mem_check(s->head_rows));
        b->step_bytes += (int64_t)(workers * LINEAR_TILE_ROWS * s->head_bytes);
    }
    size_t tiles = workers * 2 * LINEAR_TILE_FLOATS;
    s->tiles = cpu_own(b, tiles, sizeof *s->tiles);
    s->scratch = cpu_own(b, workers, LINEAR_SCRATCH_BYTES);
    s->largest = cpu_own(b, workers * (size_t)b->limits.max_out, sizeof *s->largest);
    b->step_bytes +=
        (int64_t)(tiles * sizeof(float) +
                  workers * (LINEAR_SCRATCH_BYTES + (size_t)b->limits.max_out * sizeof *s->largest));
    bool is_there = s->tiles != NULL && s->scratch != NULL && (s->largest != NULL || b->limits.max_out == 0);
    return is_there ? QUIRE_OK : QUIRE_NO_MEMORY;
}
