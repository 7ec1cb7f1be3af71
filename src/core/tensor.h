/* A tensor as it lies in a file: a borrowed view of mapped, read-only bytes. */
#ifndef CORE_TENSOR_H
#define CORE_TENSOR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/dtype.h"

#define TENSOR_MAX_DIMS 4

/* Row-major: the last dimension is contiguous. A linear layer's weight is [n_out, n_in] whatever file it came from
 * (GGUF stores dimensions fastest first; the reader reverses them). Unused dims are 1. */
typedef struct tensor_view {
    const char *name; /* 0-terminated, lives as long as the file is open */
    dtype type;
    int32_t n_dims;
    int64_t dims[TENSOR_MAX_DIMS];
    const void *data; /* no alignment promised */
    size_t n_bytes;
    const struct tensor_view *scale; /* of whole numbers: one a row, by which a row's are multiplied, [rows] or [rows, 1]; NULL: none */
    bool stays;       /* data stay where they are while the model that is made of them is open: a backend need not copy them */
    uint32_t packing; /* 0, or the version of the backend's own layout in which data lie, instead of row by row; at a multiple of 64 then */
} tensor_view;

#endif
