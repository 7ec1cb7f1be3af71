/* Arrays in an .npz file, as numpy.savez writes it: a zip whose members are stored .npy
 * files. For the arrays that masks and changes of scores name (docs/attention.md).
 *
 * Files are untrusted: every offset and size is checked. Immutable after open; any thread
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
    attn_array *arrays; /* [n]; their data is owned. A number without dimensions has one dimension of 1 */
} npz;

/* Reads all members: integers and bool as int32, floats of 16, 32 and 64 bits as
 * float32. QUIRE_BAD_FILE: no such file, or a member (named in the message) that is
 * compressed, of another type, in Fortran order, of over ATTN_ARRAY_DIMS dimensions,
 * with too long a name, or with an integer beyond 32 bits. QUIRE_NOT_FOUND,
 * QUIRE_TOO_LARGE, QUIRE_IO, QUIRE_NO_MEMORY. On an error *out is empty. */
quire_err npz_open(const char *path, npz *out, quire_error *err);
/* As npz_open, of bytes in memory, which `name` names in messages. */
quire_err npz_parse(const char *name, const void *bytes, size_t n, npz *out, quire_error *err);
void npz_close(npz *z);
/* The array of that name, or NULL. */
const attn_array *npz_find(const npz *z, const char *name);

#endif
