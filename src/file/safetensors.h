/* safetensors: reads the tensor directory of one file in memory.
 *
 *   u64 n, n bytes of JSON {"name": {"dtype", "shape", "data_offsets": [begin, end]}, ..., "__metadata__": {}}, data.
 *
 * Tensors with a dtype, rank or zero dimension that a tensor_view cannot describe are recorded as unread. */
#ifndef FILE_SAFETENSORS_H
#define FILE_SAFETENSORS_H

#include "file/tensors.h"

/* Adds the tensors of the file to *dir as those of part `part`. After a failure *dir may only be deinitialised. */
quire_err safetensors_parse(const void *bytes, size_t n, const char *file, int32_t part, tensor_dir *dir, quire_error *err);

#endif
