/* Embeddings of tokens, positions and token types. Rows stay in the file's format (in
 * place if possible; int8 with F32 scales, one per row), or in the packed form of a head
 * that has the same matrix, and are converted to f32 when read. */
#include <assert.h>
#include <string.h>

#include "backend/cpu/adapter.h"
#include "backend/cpu/cpu.h"
#include "backend/cpu/linear.h"
#include "backend/cpu/pack_read.h"
#include "base/mem.h"
#include "base/size.h"
#include "core/quant.h"

struct embedding {
    int32_t id; /* index among the backend's objects */
    dtype type;
    int32_t width;
    int64_t n_rows;
    size_t row_bytes;
    const uint8_t *rows;
    const float *scales;   /* I8: one per row */
    const linear *weights; /* packed weights that hold the rows, instead of `rows`; or NULL */
};

#define COPIED_BYTES MEM_HUGE_BYTES /* bytes per task: two tasks share few system pages */

typedef struct embedding_copy {
    const uint8_t *from;
    uint8_t *to;
    size_t n;
} embedding_copy;

static void copy_rows_of_task(void *context, int32_t task, int32_t worker) {
    const embedding_copy *c = context;
    const size_t at = (size_t)task * COPIED_BYTES, left = c->n - at;
    (void)worker;
    memcpy(c->to + at, c->from + at, left < COPIED_BYTES ? left : COPIED_BYTES);
}

quire_err cpu_embedding_load(backend *b, const tensor_view *weight, embedding **out, quire_error *err) {
    assert(weight != NULL);
    cpu_backend *c = (cpu_backend *)b;
    int32_t block = dtype_block_elements(weight->type);
    bool floats = weight->type == DTYPE_F32 || weight->type == DTYPE_F16 || weight->type == DTYPE_BF16;
    const tensor_view *scale = weight->type == DTYPE_I8 ? weight->scale : NULL; /* F32 [n_rows] */
    if (!floats && !dtype_is_quantised(weight->type) && scale == NULL) {
        return err_set(err, QUIRE_UNSUPPORTED, -1, "tensor %s: an embedding cannot be of type %s",
                       weight->name, dtype_name(weight->type));
    }
    if (weight->n_dims != 2 || weight->dims[0] < 1 || weight->dims[1] < 1 || weight->dims[1] > INT32_MAX ||
        weight->dims[1] % block != 0) {
        return err_set(err, QUIRE_BAD_FILE, -1,
                       "tensor %s: an embedding must be a matrix whose rows are whole blocks of %d elements",
                       weight->name, block);
    }
    size_t row_bytes = (size_t)(weight->dims[1] / block) * (size_t)dtype_block_bytes(weight->type), bytes;
    if (!size_mul((size_t)weight->dims[0], row_bytes, &bytes) || bytes > weight->n_bytes) {
        return err_set(err, QUIRE_BAD_FILE, -1, "tensor %s: its data is shorter than its shape requires",
                       weight->name);
    }
    embedding *e = cpu_own(c, 1, sizeof *e);
    uint8_t *copy = weight->stays ? NULL : cpu_own(c, bytes, 1);
    const size_t n_scales = scale != NULL ? (size_t)weight->dims[0] : 0;
    float *scales = scale != NULL ? cpu_own(c, n_scales, sizeof *scales) : NULL;
    if (e == NULL || (copy == NULL && !weight->stays) || (scales == NULL && scale != NULL)) {
        return err_set(err, QUIRE_NO_MEMORY, -1, "tensor %s: no memory for %zu bytes", weight->name, bytes);
    }
    if (copy != NULL) {
        thread_pool_run(c->thread_pool, copy_rows_of_task, &(embedding_copy){weight->data, copy, bytes},
                        (int32_t)((bytes - 1) / COPIED_BYTES + 1));
    }
    if (scale != NULL) {
        memcpy(scales, scale->data, n_scales * sizeof *scales);
    }
    *e = (embedding){.id = c->n_objects++,
                     .type = weight->type,
                     .scales = scales,
                     .width = (int32_t)weight->dims[1],
                     .n_rows = weight->dims[0],
                     .row_bytes = row_bytes,
                     .rows = copy != NULL ? copy : weight->data};
    c->weight_bytes += (int64_t)(bytes + n_scales * sizeof *scales);
    *out = e;
    return QUIRE_OK;
}

quire_err cpu_embedding_of(backend *b, const linear *w, dtype type, embedding **out) {
    if (!pack_keeps_values(w->layout.kind, type)) {
        return QUIRE_UNSUPPORTED;
    }
    cpu_backend *c = (cpu_backend *)b;
    embedding *e = cpu_own(c, 1, sizeof *e);
    if (e == NULL) {
        return QUIRE_NO_MEMORY;
    }
    *e = (embedding){
        .id = c->n_objects++, .type = type, .width = w->layout.n_in, .n_rows = w->layout.n_out, .weights = w};
    *out = e;
    return QUIRE_OK;
}

const void *cpu_embedding_rows(const embedding *e, size_t *n_bytes) {
    *n_bytes = (size_t)e->n_rows * e->row_bytes; /* type of the loaded tensor */
    return e->rows;
}

int32_t cpu_embedding_id(const embedding *e) {
    return e->id;
}

void cpu_embedding_shape(const embedding *e, int64_t *n_rows, int32_t *width) {
    *n_rows = e->n_rows;
    *width = e->width;
}

typedef struct embed_job {
    const cpu_backend *b;
    const embed_use *use;
} embed_job;

/* Reads loaded row `id` as f32. */
static void embed_read_row(const cpu_backend *b, const embedding *e, int64_t id, float *out) {
    assert(id >= 0 && id < e->n_rows);
    if (e->weights != NULL) {
        cpu_linear_row(&b->base, e->weights, (int32_t)id, out);
        return;
    }
    if (e->type == DTYPE_I8) {
        const int8_t *codes = (const int8_t *)e->rows + (size_t)id * e->row_bytes;
        for (int32_t i = 0; i < e->width; i++) {
            out[i] = (float)codes[i] * e->scales[id];
        }
        return;
    }
    /* cannot fail: the type was checked at load */
    (void)quant_dequantise(e->type, e->rows + (size_t)id * e->row_bytes, (size_t)e->width, out);
}

void cpu_embedding_row(const cpu_backend *b, const embedding *e, int64_t id, int32_t row, int32_t worker,
                       float *out) {
    const adapter_part *part = adapter_part_of(b, e->id, row);
    const int32_t width = e->width;
    embed_read_row(b, part != NULL && part->rows != NULL ? part->rows : e, id, out);
    if (part == NULL || part->n_segments == 0) {
        return;
    }
    /* y has whole blocks of 16, out may be shorter */
    float *t = adapter_worker_t(b, worker), *y = adapter_worker_row(b, worker);
    memcpy(y, out, sizeof *y * (size_t)width);
    for (int32_t s = 0; s < part->n_segments; s++) {
        const adapter_segment *seg = &part->segments[s];
        const size_t row_bytes = (size_t)seg->rank * adapter_number_bytes(seg->a_type);
        (void)quant_dequantise(seg->a_type, seg->a + (size_t)id * row_bytes, (size_t)seg->rank, t);
        b->math->expand(seg->b_type, seg->b, NULL, seg->rank, (width + PACK_LANES - 1) / PACK_LANES,
                        seg->scale, t, 0, 1, y, 0);
    }
    memcpy(out, y, sizeof *y * (size_t)width);
}

/* out = the token's row or the external row; zeros without tokens. */
static void begin_row(const cpu_backend *b, const embed_use *use, int32_t row, int32_t width, int32_t worker,
                      float *out) {
    if (use->tokens == NULL) {
        memset(out, 0, sizeof *out * (size_t)width);
        return;
    }
    int32_t token = b->batch->tokens[row];
    if (token < 0) {
        memcpy(out, b->batch->embeddings + (int64_t)(-1 - token) * width, sizeof *out * (size_t)width);
        return;
    }
    token = use->n_known > 0 && token >= use->n_known ? 0 : token;
    assert(use->tokens->width == width);
    cpu_embedding_row(b, use->tokens, token, row, worker, out);
    if (use->scale != 1.0f) {
        b->math->scale_cap(use->scale, 0.0f, width, out);
    }
}

static void add_row(const cpu_backend *b, const embedding *e, int64_t id, int32_t width, int32_t row,
                    int32_t worker, float *out) {
    float *scratch = cpu_scratch_row(b, worker);
    assert(e->width == width);
    cpu_embedding_row(b, e, id, row, worker, scratch);
    b->math->add_scaled(1.0f, scratch, width, out);
}

/* A row's position when padding is skipped. */
static int64_t skip_padding(const batch *rows, int32_t padding, int32_t row, int64_t position) {
    assert(row >= position);
    const int32_t *tokens = rows->tokens + row - position; /* tokens of the sequence */
    int64_t n = 0;
    for (int64_t i = 0; i < position; i++) {
        n += tokens[i] == padding;
    }
    return tokens[position] == padding ? -1 : position - n;
}

static void embed_row(void *context, int32_t row, int32_t worker) {
    const embed_job *job = context;
    const cpu_backend *b = job->b;
    const embed_use *use = job->use;
    int32_t width = b->buffers[use->x.id].width;
    float *out = cpu_act_row(b, use->x, row);
    begin_row(b, use, row, width, worker, out);
    if (use->positions != NULL) {
        int64_t position = b->batch->positions[(int64_t)row * b->batch->n_axes];
        position =
            use->skips_padding ? skip_padding(b->batch, use->position_offset - 1, row, position) : position;
        add_row(b, use->positions, position + use->position_offset, width, row, worker, out);
    }
    if (use->types != NULL) {
        add_row(b, use->types, b->batch->types != NULL ? b->batch->types[row] : 0, width, row, worker, out);
    }
    if (use->nm != NULL) {
        cpu_norm_row(b, adapter_norm_of(b, use->nm, row), out, width, out);
    }
}

void cpu_embed(backend *base, const embed_use *use) {
    cpu_backend *b = (cpu_backend *)base;
    assert(use->tokens != NULL || use->positions != NULL || use->types != NULL);
    b->buffers[use->x.id].is_quantised = false;
    cpu_run_rows(b, embed_row, &(embed_job){b, use}, b->batch->n_rows);
}
