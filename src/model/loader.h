/* Loads an architecture's tensors from a file: finds them under either naming, checks their shapes and passes them to the backend.
 *
 * The loader records which tensors were used. An unused tensor means that the file holds another model than the one that would be computed,
 * so loader_finish refuses it. */
#ifndef MODEL_LOADER_H
#define MODEL_LOADER_H

#include "backend/backend.h"
#include "file/model_file.h"
#include "file/packed_image.h"
#include "model/weight_names.h"

/* Where a weight lies inside a tensor that holds several. Its rows are blocks of `block` rows of the tensor, `step` rows apart, from row
 * `first` on. */
typedef struct weight_part {
    const char *suffix; /* names the part in a packed model: "q" */
    int64_t n_rows;     /* of the whole tensor (of one slab) */
    int64_t first, block, step;
    int32_t slab, n_slabs; /* the tensor is [n_slabs, n_rows, n_in] and the weight lies in this slab; n_slabs 0: it is [n_rows, n_in] */
    bool transposed;       /* the tensor (or slab) is stored as [n_in, n_rows] */
} weight_part;

/* How the file's tensor has been used. */
typedef struct used_tensor {
    bool used;
    bool as_is; /* it was read unchanged */
} used_tensor;

/* A product's weights that were made from a tensor or a part of it. */
typedef struct loaded_linear {
    char name[160]; /* under which a packed model holds them, without PACKED_SUFFIX */
    dtype type;
    int64_t dims[2];
    const linear *w;
} loaded_linear;

typedef struct loader {
    const model_file *file;
    backend *b;
    quire_error *err;
    int32_t max_positions;
    const arch_names *names; /* NULL: Llama's */
    const char *root;        /* what "model." is in this file */
    used_tensor *used;       /* [tensors of the file] */
    loaded_linear *linears;
    size_t n_linears, cap_linears;
} loader;

#define NO_LAYER (-1)

/* Where the names of a checkpoint begin that architectures call "model.". */
const char *loader_root(const model_file *f, const arch_names *names);

/* names: the architecture's; NULL: Llama's. */
quire_err loader_init(loader *l, const model_file *f, const arch_names *names, backend *b, int32_t max_positions, quire_error *err);
void loader_deinit(loader *l);

/* Finds the tensor name + suffix (".weight", ".bias") and marks it used. *out is NULL when the file has none. QUIRE_UNSUPPORTED when the
 * file has it in a form that cannot be read: without it the result would be another model. */
quire_err loader_find(loader *l, weight_name name, int32_t layer, const char *suffix, const tensor_view **out);
/* The same without marking it, of a tensor of no layer. */
const tensor_view *loader_peek(const loader *l, weight_name name, const char *suffix);
/* Whether the file has the weight, packed or not, whole or in parts. Marks nothing. */
bool loader_has(const loader *l, weight_name name, int32_t layer);

/* A linear layer [n_out, n_in], with its bias [n_out] if the file has one. part NULL: the whole tensor. exact: computed in f32 in every
 * mode. */
quire_err loader_linear(loader *l, weight_name name, int32_t layer, const weight_part *part, int64_t n_out, int64_t n_in, linear **out);
/* A linear layer without bias that is computed in f32 in every mode: a mixture's router. */
quire_err loader_router(loader *l, weight_name name, int32_t layer, int64_t n_out, int64_t n_in, linear **out);
/* A norm over stretches of `width` elements; n: elements of its weight. */
quire_err loader_norm(loader *l, weight_name name, int32_t layer, const norm_spec *spec, int64_t n, norm **out);
/* A norm over n heads of spec->width elements whose weights are a tensor for each head: the second %d of name's hf is the head. */
quire_err loader_norm_by_head(loader *l, weight_name name, int32_t layer, const norm_spec *spec, int32_t n, norm **out);
/* Token rows [n_vocab, width]. or_name, when not NULL, is a second name to look for (a tied model may store only its head). */
quire_err loader_embedding(loader *l, weight_name name, const weight_name *or_name, int64_t n_vocab, int64_t width, embedding **out);
/* The head [n_vocab, width]; or_name as in loader_embedding, for its bias too. */
quire_err loader_head(loader *l, weight_name name, const weight_name *or_name, int64_t n_vocab, int64_t width, linear **out);
/* A vector of n elements as f32 in *out, which is freed with mem_free. NULL when the file has none. */
quire_err loader_vector(loader *l, weight_name name, int32_t layer, const char *suffix, int64_t n, float **out);

/* A vector that must be there. */
quire_err loader_need_vector(loader *l, weight_name name, const char *suffix, int64_t n, float **out);
/* A matrix [n_out, n_in] of any type as f32 in *out, which is freed with mem_free. It must be there. */
quire_err loader_matrix(loader *l, weight_name name, int64_t n_out, int64_t n_in, float **out);

/* Adds all that was loaded to an image: weights as the backend packed them, and the tensors that are used unchanged. */
quire_err loader_image(const loader *l, packed_image *i);

/* Refuses a file with unused weights and names the first. Derived data is no weight, and what lies outside the text model (left_out.h) is
 * not asked for. */
quire_err loader_finish(const loader *l, const model_desc *d);

#endif
