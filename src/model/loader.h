/* Loads an architecture's tensors from a file: finds them under either naming, checks their shapes and passes them to the backend.
 *
 * The loader records which tensors were used. An unused tensor means that the file holds another model than the one that would be computed,
 * so loader_finish refuses it. */
#ifndef MODEL_LOADER_H
#define MODEL_LOADER_H

#include "backend/backend.h"
#include "file/model_file.h"
#include "file/packed_image.h"

/* A weight's two names, without ".weight"; %d is the layer. */
typedef struct weight_name {
    const char *gguf, *hf;
} weight_name;

/* A tensor that the architecture has used, and in which form. */
typedef struct used_tensor {
    const tensor_view *view;
    const linear *packed; /* a product's weights were made from it */
    bool as_is;           /* it was read unchanged */
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

/* Finds the tensor name + suffix (".weight", ".bias") and marks it used. *out is NULL when the file has none. QUIRE_UNSUPPORTED when the
 * file has it in a form that cannot be read: without it the result would be another model. */
quire_err loader_find(loader *l, weight_name name, int32_t layer, const char *suffix, const tensor_view **out);

/* A linear layer [n_out, n_in], with its bias [n_out] if the file has one. */
quire_err loader_linear(loader *l, weight_name name, int32_t layer, int64_t n_out, int64_t n_in, linear **out);
/* A norm's weight [width]. */
quire_err loader_norm(loader *l, weight_name name, int32_t layer, norm_kind kind, int64_t width, float eps, norm **out);
/* Token rows [n_vocab, width]. or_name, when not NULL, is a second name to look for (a tied model may store only its head). */
quire_err loader_embedding(loader *l, weight_name name, const weight_name *or_name, int64_t n_vocab, int64_t width, embedding **out);
/* The head [n_vocab, width]; or_name as in loader_embedding. */
quire_err loader_head(loader *l, weight_name name, const weight_name *or_name, int64_t n_vocab, int64_t width, linear **out);

/* Adds all that was loaded to an image: weights as the backend packed them, and the tensors that are used unchanged. */
quire_err loader_image(const loader *l, packed_image *i);

/* Refuses a file with unused weights and names the first. Tensors whose names end in an ignored suffix are derived data, not weights. */
quire_err loader_finish(const loader *l);

#endif
