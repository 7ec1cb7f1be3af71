/* Token embeddings: rows stay in the file's format (in place where possible) and are converted to f32 when they are read. */
#include <assert.h>
#include <string.h>

#include "backend/cpu/cpu.h"
#include "base/mem.h"
#include "base/size.h"
#include "core/quant.h"

struct embedding {
    dtype type;
    int32_t width;
    int64_t n_rows;
    size_t row_bytes;
    const uint8_t *rows;
};

quire_err cpu_embedding_load(backend *b, const tensor_view *weight, embedding **out, quire_error *err) {
    cpu_backend *c = (cpu_backend *)b;
    int32_t block = dtype_block_elements(weight->type);
    bool floats = weight->type == DTYPE_F32 || weight->type == DTYPE_F16 || weight->type == DTYPE_BF16;
    if (!floats && !dtype_is_quantised(weight->type)) {
        return err_set(err, QUIRE_UNSUPPORTED, -1, "tensor %s: an embedding cannot be of type %s", weight->name, dtype_name(weight->type));
    }
    if (weight->n_dims != 2 || weight->dims[0] < 1 || weight->dims[1] < 1 || weight->dims[1] > INT32_MAX || weight->dims[1] % block != 0) {
        return err_set(err, QUIRE_BAD_FILE, -1, "tensor %s: an embedding must be a matrix whose rows are whole blocks of %d elements",
                       weight->name, block);
    }
    size_t row_bytes = (size_t)(weight->dims[1] / block) * (size_t)dtype_block_bytes(weight->type), bytes;
    if (!size_mul((size_t)weight->dims[0], row_bytes, &bytes) || bytes > weight->n_bytes) {
        return err_set(err, QUIRE_BAD_FILE, -1, "tensor %s: its data is shorter than its shape says", weight->name);
    }
    embedding *e = cpu_own(c, 1, sizeof *e);
    uint8_t *copy = weight->stays ? NULL : cpu_own(c, bytes, 1);
    if (e == NULL || (copy == NULL && !weight->stays)) {
        return err_set(err, QUIRE_NO_MEMORY, -1, "tensor %s: no memory for %zu bytes", weight->name, bytes);
    }
    if (copy != NULL) {
        memcpy(copy, weight->data, bytes);
    }
    *e = (embedding){.type = weight->type,
                     .width = (int32_t)weight->dims[1],
                     .n_rows = weight->dims[0],
                     .row_bytes = row_bytes,
                     .rows = copy != NULL ? copy : weight->data};
    c->weight_bytes += (int64_t)bytes;
    *out = e;
    return QUIRE_OK;
}

typedef struct embed_job {
    const cpu_backend *b;
    const embedding *e;
    float scale;
    buffer x;
} embed_job;

static void embed_row(void *context, int32_t row, int32_t worker) {
    const embed_job *job = context;
    const batch *step = job->b->batch;
    int32_t width = job->b->buffers[job->x.id].width;
    float *out = cpu_act_row(job->b, job->x, row);
    int32_t token = step->tokens[row];
    (void)worker;
    if (token < 0) {
        memcpy(out, step->embeddings + (int64_t)(-1 - token) * width, sizeof *out * (size_t)width);
        return;
    }
    assert(token < job->e->n_rows && width == job->e->width);
    (void)quant_dequantise(job->e->type, job->e->rows + (size_t)token * job->e->row_bytes, (size_t)width,
                           out); /* the type was checked at load */
    for (int32_t i = 0; job->scale != 1.0f && i < width; i++) {
        out[i] *= job->scale;
    }
}

void cpu_embed(backend *b, const embedding *e, float scale, buffer x) {
    cpu_backend *c = (cpu_backend *)b;
    thread_pool_run(c->thread_pool, embed_row, &(embed_job){c, e, scale, x}, c->batch->n_rows);
}
