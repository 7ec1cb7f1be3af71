/* A view of a tensor in a file: mapped, read-only bytes that belong to the file. */
#ifndef CORE_TENSOR_H
#define CORE_TENSOR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/dtype.h"
#include "core/quant_matrix.h"

#define TENSOR_MAX_DIMS 4

/* Row-major: the last dimension is contiguous. A linear layer's weight is [n_out, n_in]
 * in every file format (GGUF lists dimensions fastest first; its reader reverses them).
 * Unused dims are 1. */
typedef struct tensor_view {
    const char *name; /* 0-terminated, valid as long as the file is open */
    dtype type;
    int32_t n_dims;
    int64_t dims[TENSOR_MAX_DIMS];
    const void *data; /* any alignment */
    size_t n_bytes;
    /* integer types: one factor per row, [rows] or [rows, 1]; NULL: none */
    const struct tensor_view *scale;
    /* the data stay mapped while the model is open, so backends need not copy them */
    bool stays;
    /* not NULL: this matrix is the source of the elements (type F32); data and n_bytes
     * unused */
    const quant_matrix *quant;
    /* 0: row by row; else the version of the backend's own layout of the data, which are
     * then aligned to 64 */
    uint32_t packing;
} tensor_view;

#endif
