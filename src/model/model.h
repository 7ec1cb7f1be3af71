/* A model: numbers from a file's metadata, weights in a backend, and one forward function
 * over ops. It does not depend on the KV cache: the batch holds resolved slots. */
#ifndef MODEL_MODEL_H
#define MODEL_MODEL_H

#include "backend/backend.h"
#include "core/batch.h"
#include "core/model_desc.h"
#include "file/model_file.h"
#include "file/packed_image.h"

typedef struct model model;

/* Reads only the description, for `quire inspect` and the choice of compute mode.
 * QUIRE_UNSUPPORTED names an architecture that this build lacks. */
quire_err model_describe(const model_file *f, model_desc *out, quire_error *err);

/* Reads the description, checks every tensor's shape, packs the weights into b and
 * reserves activations there. max_positions: the length of the rotary tables. The caller
 * may close the file afterwards: where b uses tensors in place, the model shares the file
 * until
 * model_close. */
quire_err model_open(model_file *f, backend *b, int32_t max_positions, model **out, quire_error *err);
/* As model_open; and adds the tensors to an image, with the weights as b packed them: the
 * image borrows them from f and b. f must not be packed itself. */
quire_err model_open_image(model_file *f, backend *b, int32_t max_positions, packed_image *image, model **out,
                           quire_error *err);
void model_close(model *m);
const model_desc *model_description(const model *m);

/* The description's end tokens, to be completed before an engine uses the model. */
void model_set_ends(model *m, const int32_t *ids, int32_t n);

/* Queues one forward pass over the batch on the backend. After step_wait the logits of
 * rows->out_rows are ready. */
void model_forward(model *m, const batch *rows);
/* The activation that holds the last hidden states after model_forward: after the last
 * norm where the batch wants rows. */
buffer model_hidden(const model *m);

/* ---- pooling.c ---- */
/* Computes what follows pooling: the steps of the description, its dense modules or its
 * head of scores. row: [d_model]; out: [desc_pooled_width]. Neither the last norm nor a
 * cut is done here. Sums run in a fixed order, wide ones on the compute threads.
 * Allocates nothing. The engine thread, between steps. */
void model_pooled(const model *m, const float *row, float *out);
/* Divides a row of n elements by its length, in double; a row of zeros is unchanged. */
void row_divide_by_length(float *row, int32_t n);

#endif
