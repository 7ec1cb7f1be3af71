/* The tensor directory of an open model: views in file order, and an index by name, over
 * all parts or shards of the model.
 *
 * One reader fills it and calls tensor_dir_finish; after that it is immutable. A
 * zero-initialised directory is empty. It owns the names, not the data. */
#ifndef FILE_TENSORS_H
#define FILE_TENSORS_H

#include <stdint.h>

#include "base/str.h"
#include "core/tensor.h"

/* ---- an index of names ---- */

/* A name index finds an entry of an array by its name in O(log n), and finds duplicates
 * when it is built. The names are borrowed. */

typedef struct name_ref {
    str name;
    int32_t i; /* index in the array */
} name_ref;

/* Sorts refs by name, equal names by i. Returns the later index of a duplicate name, or
 * -1. */
int32_t names_sort(name_ref *refs, int32_t n);
/* Returns the index of name, or -1. refs must be sorted by names_sort. */
int32_t names_find(const name_ref *refs, int32_t n, str name);

/* ---- tensors ---- */

/* A tensor of the file that this build cannot read. */
typedef struct unread_tensor {
    size_t name_at;
    char why[40];
} unread_tensor;

typedef struct tensor_dir {
    tensor_view *views;
    int32_t *parts;  /* [n] index of the file that holds each tensor */
    size_t *name_at; /* [n] offset of each name in `names` */
    int32_t n;
    size_t cap_views, cap_parts, cap_name_at;
    unread_tensor *unread;
    size_t n_unread, cap_unread;
    strbuf names;       /* all names, each followed by a 0 byte */
    const char *prefix; /* prefix of the names being added; or NULL */
    name_ref *by_name;  /* [n] sorted index, made by tensor_dir_finish */
} tensor_dir;

void tensor_dir_deinit(tensor_dir *d);
/* Adds a view under a copy of name; ignores the view's own name. QUIRE_NO_MEMORY: the
 * directory is unchanged. */
quire_err tensor_dir_add(tensor_dir *d, str name, const tensor_view *view, int32_t part);
/* Records a tensor that cannot be read, and why (truncated to fit). */
quire_err tensor_dir_add_unread(tensor_dir *d, str name, const char *why);
/* Sets every view's name and builds the index. file: name for messages. QUIRE_BAD_FILE:
 * err names a tensor that occurs twice. */
quire_err tensor_dir_finish(tensor_dir *d, const char *file, quire_error *err);
/* Returns the index of name, or -1. Call it after tensor_dir_finish. */
int32_t tensor_dir_find(const tensor_dir *d, str name);
/* Says why a tensor cannot be read; NULL: it can, or the file has no such tensor. */
const char *tensor_dir_why_unread(const tensor_dir *d, str name);

/* Sets *n_bytes to the size of a tensor of type t and these dims. False: a dimension is
 * below 1, the product overflows, or the contiguous dimension is not a multiple of the
 * type's block. */
bool tensor_bytes(dtype t, const int64_t *dims, int32_t n_dims, size_t *n_bytes);

/* ---- tensors.c ---- */
/* Adds the tensors of a safetensors file in memory to *dir as those of part `part`. file:
 * name for messages. After a failure *dir must only be deinitialised. */
quire_err safetensors_parse(const void *bytes, size_t n, const char *file, int32_t part, tensor_dir *dir,
                            quire_error *err);

#endif
