/* Finds an architecture's tensors in a file, under either naming, and records which were
 * used. */
#ifndef MODEL_FIND_WEIGHT_H
#define MODEL_FIND_WEIGHT_H

#include "backend/backend.h"
#include "file/model_file.h"
#include "model/weight_names.h"

/* Where a weight lies inside a tensor that holds several. Its rows are blocks of `block`
 * rows of the tensor, `step` rows apart, from row `first` on. */
typedef struct weight_part {
    const char *suffix; /* names the part in a packed model: "q" */
    int64_t n_rows;     /* of the whole tensor (of one slab) */
    int64_t first, block, step;
    /* the tensor is [n_slabs, n_rows, n_in] and the weight lies in this slab; n_slabs 0:
     * it is [n_rows, n_in] */
    int32_t slab, n_slabs;
    bool transposed; /* the tensor (or slab) is stored as [n_in, n_rows] */
} weight_part;

/* How a tensor of the file was used. */
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

#define NO_LAYER          (-1)
#define LOADER_NAME_BYTES 160

/* A table of embeddings that was quantised while it was loaded, or read from a quantised
 * form. */
typedef struct loaded_table {
    char name[LOADER_NAME_BYTES]; /* of its rows */
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
    const char *root;            /* what "model." is in this file */
    dtype quantise_to;           /* model_desc.quantise_to */
    bool is_quantised;           /* the file is: what it has in 16 bits stays so */
    used_tensor *used;           /* [tensors of the file] */
    double n_bytes, n_all_bytes; /* of tensors that were found, and of the file's */
    loaded_linear *linears;
    size_t n_linears, cap_linears;
    loaded_table tables[MAX_LOADED_TABLES];
    int32_t n_tables;
    struct weight_table *weights; /* gets what is loaded, by name; or NULL */
} loader;

/* Where the names of a checkpoint begin that architectures call "model.". */
const char *loader_root(const model_file *f, const arch_names *names);

/* Finds the tensor name + suffix (".weight", ".bias") and marks it used. *out: NULL if
 * absent. QUIRE_UNSUPPORTED: the file has it in a form that cannot be read, and
 * without it this would be another model. QUIRE_CANCELLED: model_file_watch's callback
 * stopped the load. */
quire_err loader_find(loader *l, weight_name name, int32_t layer, const char *suffix,
                      const tensor_view **out);
/* The same, without marking the tensor; NULL: absent. */
const tensor_view *loader_look(const loader *l, weight_name name, int32_t layer, const char *suffix);
/* Marks a tensor of the file used, by how. */
used_tensor *loader_use(loader *l, const tensor_view *t);
/* The full name under which the file has the tensor; of alternatives of which it has
 * none, the first. */
void loader_full_name(const loader *l, weight_name name, int32_t layer, const char *suffix,
                      char out[LOADER_NAME_BYTES]);

#define LOADER_SHAPE_BYTES 96
/* Writes a shape of n dimensions, as in "[64, 1, 4]"; returns text. */
const char *loader_shape(const int64_t *dims, int32_t n, char text[LOADER_SHAPE_BYTES]);

#endif
