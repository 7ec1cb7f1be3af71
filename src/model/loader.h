/* Finds an architecture's tensors in a file under either naming, checks their shapes, hands them to the backend, and keeps account of
 * what was used: a tensor that nobody asked for means the file holds another model than we would compute, so loader_finish refuses it. */
#ifndef MODEL_LOADER_H
#define MODEL_LOADER_H

#include "backend/backend.h"
#include "file/model_file.h"
#include "file/packed.h"

/* A weight's two names, without ".weight"; %d is the layer. */
typedef struct weight_name {
    const char *gguf, *hf;
} weight_name;

/* A tensor that was asked for, and what became of it. */
typedef struct used_tensor {
    const tensor_view *view;
    const linear *packed; /* a product's weights were made of it */
    bool as_is;           /* it was read as it is */
} used_tensor;

typedef struct loader {
    const model_file *file;
    backend *b;
    quire_error *err;
    int32_t max_positions;
    int32_t n_used, cap_used;
    used_tensor *used;
} loader;

#define NO_LAYER (-1)

quire_err loader_init(loader *l, const model_file *f, backend *b, int32_t max_positions, quire_error *err);
void loader_deinit(loader *l);

/* The tensor name + suffix (".weight", ".bias") into *out, NULL when the file has none; marks it used. QUIRE_UNSUPPORTED when the file has
 * it in a form that cannot be read: passing over it would compute another model. */
quire_err loader_find(loader *l, weight_name name, int32_t layer, const char *suffix, const tensor_view **out);

/* A linear layer [n_out, n_in], with its bias [n_out] if the file has one. */
quire_err loader_linear(loader *l, weight_name name, int32_t layer, int64_t n_out, int64_t n_in, linear **out);
/* A norm's weight [width]. */
quire_err loader_norm(loader *l, weight_name name, int32_t layer, norm_kind kind, int64_t width, float eps, norm **out);
/* Token rows [n_vocab, width]; or_name, when not NULL, is where they may stand as well (a tied model may store only its head). */
quire_err loader_embedding(loader *l, weight_name name, const weight_name *or_name, int64_t n_vocab, int64_t width, embedding **out);
/* The head, likewise. */
quire_err loader_head(loader *l, weight_name name, const weight_name *or_name, int64_t n_vocab, int64_t width, linear **out);

/* Writes all that was loaded, weights as the backend packed them, and the tensors that stand there for the description alone. */
quire_err loader_write(const loader *l, packed_writer *w);

/* Refuses a file with weights that were not used, naming the first. Tensors whose names end in an ignored suffix are derived data, not
 * weights. */
quire_err loader_finish(const loader *l);

#endif
