/* A model: metadata from a file, weights in a backend, and one forward function over ops.
 * It does not depend on the KV cache: the batch holds resolved slots. */
#ifndef MODEL_MODEL_H
#define MODEL_MODEL_H

#include "backend/backend.h"
#include "core/batch.h"
#include "core/model_desc.h"
#include "file/model_file.h"
#include "file/packed_image.h"

typedef struct model model;

/* Reads only the description, for `quire inspect` and to choose the compute mode.
 * QUIRE_UNSUPPORTED: an architecture that this build lacks, which err names. */
quire_err model_describe(const model_file *f, model_desc *out, quire_error *err);

/* Reads the description, checks every tensor's shape, packs the weights into b and
 * reserves its activations. max_positions: length of the rotary tables. The caller may
 * close the file afterwards; if b uses tensors in place, the model keeps the file until
 * model_close. */
quire_err model_open(model_file *f, backend *b, int32_t max_positions, model **out, quire_error *err);
/* Like model_open, and adds the tensors and b's packed weights to an image, which borrows
 * them from f and b. f must not be a packed model. */
quire_err model_open_image(model_file *f, backend *b, int32_t max_positions, packed_image *image, model **out,
                           quire_error *err);
void model_close(model *m);
const model_desc *model_description(const model *m);

/* Replaces the description's end tokens. Call before an engine uses the model. */
void model_set_ends(model *m, const int32_t *ids, int32_t n);

/* Queues one forward pass over the batch. After step_wait the logits of rows->out_rows
 * are ready. */
void model_forward(model *m, const batch *rows);
/* The activation with the last hidden states after model_forward; if the batch wants
 * rows, after the last norm. */
buffer model_hidden(const model *m);

/* ---- pooling.c ---- */
/* Computes what follows pooling: the description's steps, dense modules or head of
 * scores. row: [d_model]; out: [desc_pooled_width]. The last norm and cutting the row are
 * not included. Sums run in a fixed order, wide ones on the compute threads. Allocates
 * nothing. Call on the engine thread between steps. */
void model_pooled(const model *m, const float *row, float *out);
/* Scales a row of n elements to length 1, computing in double. A row of zeros is
 * unchanged. */
void row_divide_by_length(float *row, int32_t n);

#endif
