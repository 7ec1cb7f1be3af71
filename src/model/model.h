/* A model: numbers from a file's metadata, weights in a backend, and one forward function over ops. Never sees the KV room: slots come
 * resolved. */
#ifndef MODEL_MODEL_H
#define MODEL_MODEL_H

#include "backend/backend.h"
#include "core/batch.h"
#include "core/model_desc.h"
#include "file/model_file.h"
#include "file/packed.h"

typedef struct model model;

/* Reads the description only: what `quire inspect` and the choice of compute mode need. QUIRE_UNSUPPORTED names an architecture this build
 * lacks. */
quire_err model_describe(const model_file *f, model_desc *out, quire_error *err);

/* Describes, checks every tensor's shape, packs the weights into b and reserves activations there. max_positions: how far rotary tables
 * reach. The file may be closed afterwards: where b uses tensors in place, the model shares it until model_close. */
quire_err model_open(model_file *f, backend *b, int32_t max_positions, model **out, quire_error *err);
/* Loads into b as model_open does, and writes the tensors to w, the weights as b packed them. f must not be packed itself. */
quire_err model_pack(model_file *f, backend *b, packed_writer *w, quire_error *err);
void model_close(model *m);
const model_desc *model_description(const model *m);

/* One forward pass over the batch, queued on the backend: after step_wait the logits of rows->out_rows are there. */
void model_forward(model *m, const batch *rows);
/* The activation that holds the last hidden states after model_forward. */
buffer model_hidden(const model *m);
/* The last hidden states of chosen rows of the batch, f32 [n, d_model], to host memory, after step_wait: what drafters that learn from them
 * and pooling need. Any order, rows may repeat. */
void model_hidden_rows(const model *m, const int32_t *rows, int32_t n, float *out);

#endif
