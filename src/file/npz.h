/* Reads arrays from an .npz file, as numpy.savez writes it: a zip of stored .npy files.
 * For the arrays that attention masks and score changes name (docs/attention.md).
 *
 * Files are untrusted: every offset and size is checked. Immutable after open: any thread
 * may read. */
#ifndef FILE_NPZ_H
#define FILE_NPZ_H

#include "base/err.h"
#include "base/str.h"
#include "core/attn_program.h"

#define NPZ_MAX_MEMBERS 64
#define NPZ_MAX_BYTES   (256 << 20) /* most bytes of a file */

typedef struct npz {
    int32_t n;
    attn_array *arrays; /* [n]; their data is owned. A scalar has one dimension of 1 */
} npz;

/* Opens a file and reads all members: integers and bool as int32, floats of 16, 32 and 64
 * bits as float32. QUIRE_BAD_FILE: a member (named in the message) that is compressed, of
 * another type, in Fortran order, of over ATTN_ARRAY_DIMS dimensions, with too long a
 * name, or with an integer beyond 32 bits; or no .npz file. QUIRE_NOT_FOUND,
 * QUIRE_TOO_LARGE, QUIRE_IO, QUIRE_NO_MEMORY. After an error *out is empty. */
quire_err npz_open(const char *path, npz *out, quire_error *err);
/* Like npz_open, from bytes in memory, which are copied; messages call them `name`. */
quire_err npz_parse(const char *name, const void *bytes, size_t n, npz *out, quire_error *err);
void npz_close(npz *z);
/* Returns the array of that name, or NULL. Borrowed. */
const attn_array *npz_find(const npz *z, const char *name);

#endif
