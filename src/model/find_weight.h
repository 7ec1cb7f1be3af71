/* Finds an architecture's tensors in a file, under either naming, and records which ones
 * were used. */
#ifndef MODEL_FIND_WEIGHT_H
#define MODEL_FIND_WEIGHT_H

#include "backend/backend.h"
#include "file/model_file.h"
#include "model/weight_names.h"

/* The location of a weight inside a tensor that holds several: blocks of `block` rows,
 * `step` rows apart, from row `first` on. */
typedef struct weight_part {
    const char *suffix; /* names the part in a packed model: "q" */
    int64_t n_rows;     /* rows of the whole tensor (of one slab) */
    int64_t first, block, step;
    /* the tensor is [n_slabs, n_rows, n_in], and the weight is in this slab; n_slabs 0:
     * it is [n_rows, n_in] */
    int32_t slab, n_slabs;
    bool transposed; /* the tensor (or slab) is stored as [n_in, n_rows] */
} weight_part;

/* How a tensor of the file was used. */
typedef struct used_tensor {
    bool used;
    bool as_is; /* it is read unchanged */
} used_tensor;

/* A product's weights made from a tensor or a part of it. */
typedef struct loaded_linear {
    char name[160]; /* its name in a packed model, without PACKED_SUFFIX */
    dtype type;
    int64_t dims[2];
    const linear *w;
} loaded_linear;

#define NO_LAYER          (-1)
#define LOADER_NAME_BYTES 160

/* A table of embeddings that was quantised at load, or read from a quantised form. */
typedef struct loaded_table {
    char name[LOADER_NAME_BYTES]; /* name of its tensor */
    dtype type;
    int64_t dims[2];
    const embedding *e;
} loaded_table;

#define MAX_LOADED_TABLES 2 /* token embeddings, and those for every layer */

typedef struct loader {
    const model_file *file;
    backend *b;
    quire_error *err;
    int32_t max_positions;
    const arch_names *names;     /* NULL: Llama's */
    const char *root;            /* what "model." stands for in this file */
    dtype quantise_to;           /* model_desc.quantise_to */
    bool is_quantised;           /* the file is quantised: its 16-bit tensors stay so */
    used_tensor *used;           /* [tensors of the file] */
    double n_bytes, n_all_bytes; /* bytes of tensors found so far, and of the file */
    loaded_linear *linears;
    size_t n_linears, cap_linears;
    loaded_table tables[MAX_LOADED_TABLES];
    int32_t n_tables;
    struct weight_table *weights; /* table to which loaded weights are added by name; or NULL */
} loader;

/* What architectures call "model.": the prefix of text model names in this checkpoint. */
const char *loader_root(const model_file *f, const arch_names *names);

/* Finds the tensor name + suffix (".weight", ".bias") and marks it used. *out NULL:
 * absent. QUIRE_UNSUPPORTED: the file has it in a form that cannot be read, and leaving
 * it out would change the model. QUIRE_CANCELLED: model_file_watch's callback stopped the
 * load. */
quire_err loader_find(loader *l, weight_name name, int32_t layer, const char *suffix,
                      const tensor_view **out);
/* The same without marking; NULL: absent. */
const tensor_view *loader_look(const loader *l, weight_name name, int32_t layer, const char *suffix);
/* Marks a tensor of the file as used. */
used_tensor *loader_use(loader *l, const tensor_view *t);
/* The full name under which the file has the tensor; if it has none of the alternatives,
 * the first one. */
void loader_full_name(const loader *l, weight_name name, int32_t layer, const char *suffix,
                      char out[LOADER_NAME_BYTES]);

#define LOADER_SHAPE_BYTES 96
/* Writes a shape of n dimensions, as in "[64, 1, 4]". Returns text. */
const char *loader_shape(const int64_t *dims, int32_t n, char text[LOADER_SHAPE_BYTES]);

#endif
