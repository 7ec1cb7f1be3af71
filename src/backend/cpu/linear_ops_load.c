/* Loads weights: checks them, packs them on all threads, and sizes the scratch of their products. */
#include <string.h>

#include "backend/cpu/linear_ops.h"
#include "base/mem.h"
#include "base/size.h"
#include "core/quant.h"

size_t linear_row_bytes(row_format format, int32_t k) {
    size_t padded = (size_t)linear_pad(k, PACK_GROUP), bytes;
    if (format == ROWS_TOKEN) {
        bytes = padded + 2 * sizeof(float);
    } else if (format == ROWS_GROUPS) {
        bytes = padded / PACK_GROUP * sizeof(row_group);
    } else {
        bytes = padded * sizeof(float);
    }
    return size_align(bytes, 64) | 64; /* an odd number of cache lines: rows of a power of two would map to few sets of a cache */
}

static quire_err state_of(cpu_backend *b, cpu_linear_state **out) {
    if (b->linear_state == NULL) {
        b->linear_state = cpu_own(b, 1, sizeof *b->linear_state);
    }
    *out = b->linear_state;
    return *out != NULL ? QUIRE_OK : QUIRE_NO_MEMORY;
}

/* Checks the shape and that the bytes are all there. */
static quire_err check_weight(const tensor_view *w, quire_error *err) {
    if (w->n_dims != 2 || w->dims[0] < 1 || w->dims[1] < 1 || w->dims[0] > INT32_MAX || w->dims[1] > INT32_MAX) {
        return err_set(err, QUIRE_BAD_FILE, -1, "tensor %s: a linear layer's weight must be a matrix", w->name);
    }
    size_t elements, block = (size_t)dtype_block_elements(w->type), bytes;
    if (!size_mul((size_t)w->dims[0], (size_t)w->dims[1], &elements) || (size_t)w->dims[1] % block != 0 ||
        !size_mul(elements / block, (size_t)dtype_block_bytes(w->type), &bytes) ||
        (w->packing == 0 && w->quant == NULL && bytes > w->n_bytes)) {
        return err_set(err, QUIRE_BAD_FILE, -1, "tensor %s: %zu bytes are not a %s matrix of %lld x %lld", w->name, w->n_bytes,
                       dtype_name(w->type), (long long)w->dims[0], (long long)w->dims[1]);
    }
    return QUIRE_OK;
}

/* Checks the scales of int8 weights: one a row, floats. */
static quire_err check_scale(const tensor_view *w, quire_error *err) {
    const tensor_view *s = w->scale;
    if (w->packing != 0 || (w->type != DTYPE_I8 && s == NULL)) {
        return QUIRE_OK;
    }
    if (w->type != DTYPE_I8) {
        return err_set(err, QUIRE_UNSUPPORTED, -1, "tensor %s: scales beside weights of type %s are not supported", w->name,
                       dtype_name(w->type));
    }
    if (s == NULL) {
        return err_set(err, QUIRE_UNSUPPORTED, -1, "tensor %s: whole numbers without scales are not supported", w->name);
    }
    bool rows = s->dims[0] == w->dims[0] && (s->n_dims == 1 || (s->n_dims == 2 && s->dims[1] == 1));
    bool floats = s->type == DTYPE_F32 || s->type == DTYPE_F16 || s->type == DTYPE_BF16;
    if (!rows || !floats || s->n_bytes / (size_t)dtype_block_bytes(s->type) < (size_t)w->dims[0]) {
        return err_set(err, QUIRE_UNSUPPORTED, -1, "tensor %s: scales must be one float for each of the %lld rows of %s", s->name,
                       (long long)w->dims[0], w->name);
    }
    return QUIRE_OK;
}

static quire_err load_bias(cpu_backend *b, linear *l, const tensor_view *bias, quire_error *err) {
    size_t n = (size_t)l->layout.n_out;
    if (bias->n_dims != 1 || bias->dims[0] != l->layout.n_out || dtype_is_quantised(bias->type) ||
        n * (size_t)dtype_block_bytes(bias->type) > bias->n_bytes) {
        return err_set(err, QUIRE_BAD_FILE, -1, "tensor %s: this bias must be a float vector of %d elements", bias->name, l->layout.n_out);
    }
    l->bias = cpu_own(b, (size_t)l->layout.n_blocks * PACK_LANES, sizeof *l->bias);
    if (l->bias == NULL) {
        return err_set(err, QUIRE_NO_MEMORY, -1, "tensor %s: out of memory", bias->name);
    }
    if (quant_dequantise(bias->type, bias->data, n, l->bias) != QUIRE_OK) {
        return err_set(err, QUIRE_UNSUPPORTED, -1, "tensor %s: a bias cannot be of type %s", bias->name, dtype_name(bias->type));
    }
    b->weight_bytes += (int64_t)(n * sizeof *l->bias);
    return QUIRE_OK;
}

typedef struct pack_job {
    linear *l;
    const tensor_view *w;
} pack_job;

static void pack_part(void *context, int32_t task, int32_t worker) {
    const pack_job *job = context;
    linear *l = job->l;
    (void)worker;
    pack_block(&l->layout, job->w, task, l->data + (size_t)task * l->layout.block_bytes,
               l->scales != NULL ? l->scales + (size_t)task * PACK_LANES : NULL);
}

/* Bytes of packed weights: the blocks, then INT8's scales. false when they are too many. */
static bool packed_bytes(const pack_layout *p, size_t *out) {
    size_t n_blocks = (size_t)p->n_blocks;
    return size_add(n_blocks * p->block_bytes, p->kind == PACK_INT8 ? n_blocks * PACK_LANES * sizeof(float) : 0, out);
}

/* Uses weights that were packed before, in place. */
static quire_err take_packed(linear *l, const tensor_view *w, size_t n_bytes, quire_error *err) {
    if (w->packing != PACK_VERSION) {
        return err_set(err, QUIRE_UNSUPPORTED, -1,
                       "tensor %s: packed by another version of quire (layout %u, this one uses %u): pack the model again", w->name,
                       (unsigned)w->packing, PACK_VERSION);
    }
    if (!w->stays || w->n_bytes != n_bytes || (uintptr_t)w->data % MEM_ALIGN != 0) {
        return err_set(err, QUIRE_BAD_FILE, -1, "tensor %s: %zu bytes are not its packed form; pack the model again", w->name, w->n_bytes);
    }
    l->data = (uint8_t *)(uintptr_t)w->data; /* only this file writes there, while it loads */
    return QUIRE_OK;
}

/* Allocates memory for the weights, or uses the file's bytes in place. */
static quire_err place(cpu_backend *b, linear *l, const tensor_view *w, quire_error *err) {
    size_t n_bytes, in_blocks = (size_t)l->layout.n_blocks * l->layout.block_bytes;
    if (!packed_bytes(&l->layout, &n_bytes)) {
        return err_set(err, QUIRE_TOO_LARGE, -1, "tensor %s: too large", w->name);
    }
    if (w->packing != 0) {
        TRY(take_packed(l, w, n_bytes, err));
    } else {
        l->data = cpu_own(b, n_bytes, 1);
    }
    if (l->data == NULL) {
        return err_set(err, QUIRE_NO_MEMORY, -1, "tensor %s: out of memory", w->name);
    }
    l->scales = n_bytes > in_blocks ? (float *)(void *)(l->data + in_blocks) : NULL;
    b->weight_bytes += (int64_t)n_bytes;
    return QUIRE_OK;
}

const void *cpu_linear_packed(const linear *l, size_t *n_bytes, uint32_t *packing) {
    (void)packed_bytes(&l->layout, n_bytes); /* as when it was loaded */
    *packing = PACK_VERSION;
    return l->data;
}

quire_err cpu_linear_load(backend *base, const linear_spec *spec, linear **out, quire_error *err) {
    cpu_backend *b = (cpu_backend *)base;
    const tensor_view *weight = spec->weight;
    bool is_half = weight->type == DTYPE_F16 || weight->type == DTYPE_BF16,
         stays = spec->left_out && base->compute == COMPUTE_INT8 && is_half;
    compute_mode mode = spec->exact || stays || base->compute == COMPUTE_FP8 ? COMPUTE_F32 : base->compute;
    cpu_linear_state *s;
    pack_kind kind;
    TRY(check_weight(weight, err));
    TRY(check_scale(weight, err));
    if (pack_choose(weight->type, mode, &kind) != QUIRE_OK) {
        return err_set(err, QUIRE_UNSUPPORTED, -1, "tensor %s: weights of type %s are not supported", weight->name,
                       dtype_name(weight->type));
    }
    linear *l = cpu_own(b, 1, sizeof *l);
    if (l == NULL || state_of(b, &s) != QUIRE_OK) {
        return err_set(err, QUIRE_NO_MEMORY, -1, "tensor %s: out of memory", weight->name);
    }
    l->format = linear_format(kind, mode);
    l->rounding = base->compute == COMPUTE_FP8 ? spec->rounding : (row_rounding){.to = ROUND_NOTHING};
    l->factor = 1.0f;
    if (l->rounding.to != ROUND_NOTHING && (size_t)weight->dims[1] * sizeof(float) > LINEAR_SCRATCH_BYTES) {
        return err_set(err, QUIRE_TOO_LARGE, -1, "tensor %s: %lld inputs are too many for --compute fp8", weight->name,
                       (long long)weight->dims[1]);
    }
    quire_err e = pack_plan(kind, quant_rule_of(weight->type), (int32_t)weight->dims[0], (int32_t)weight->dims[1], &l->layout);
    if (e != QUIRE_OK) {
        return err_set(err, e, -1, "tensor %s: %lld x %lld is too large for --compute %s", weight->name, (long long)weight->dims[0],
                       (long long)weight->dims[1], compute_name(mode));
    }
    TRY(place(b, l, weight, err));
    if (spec->bias != NULL) {
        TRY(load_bias(b, l, spec->bias, err));
    }
    if (weight->packing == 0) {
        thread_pool_run(b->thread_pool, pack_part, &(pack_job){l, weight}, l->layout.n_blocks);
    }
    l->next = s->loaded;
    s->loaded = l;
    s->widest[l->format] = l->layout.n_in > s->widest[l->format] ? l->layout.n_in : s->widest[l->format];
    *out = l;
    return QUIRE_OK;
}

void cpu_linear_close(cpu_backend *b) {
    b->linear_state = NULL; /* the backend frees the blocks (cpu_own) */
}

quire_err cpu_linear_step_open(cpu_backend *b) {
    cpu_linear_state *s;
    TRY(state_of(b, &s));
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
    size_t tiles = workers * 2 * LINEAR_TILE_ROWS * LINEAR_TILE_COLUMNS;
    s->tiles = cpu_own(b, tiles, sizeof *s->tiles);
    s->scratch = cpu_own(b, workers, LINEAR_SCRATCH_BYTES);
    s->largest = cpu_own(b, workers * (size_t)b->limits.max_out, sizeof *s->largest);
    b->step_bytes += (int64_t)(tiles * sizeof(float) + workers * (LINEAR_SCRATCH_BYTES + (size_t)b->limits.max_out * sizeof *s->largest));
    bool is_there = s->tiles != NULL && s->scratch != NULL && (s->largest != NULL || b->limits.max_out == 0);
    return is_there ? QUIRE_OK : QUIRE_NO_MEMORY;
}
