/* The bytes of a packed model before they are a file (packed.h has the layout): pieces of
 * memory at their places, written in any order and by any number of calls.
 *
 *   open, add.., metadata, measure, hash of every block, seal, then write
 *
 * Tensors are borrowed: their bytes stay unchanged until close. One thread, unless a
 * comment names another. */
#ifndef FILE_PACKED_IMAGE_H
#define FILE_PACKED_IMAGE_H

#include "file/packed.h"

typedef struct packed_image packed_image;

quire_err packed_image_open(compute_mode compute, packed_image **out);
/* NULL is allowed. */
void packed_image_close(packed_image *i);

/* Adds one tensor. view->packing 0: its bytes are unchanged. Else they are its packed
 * form, and its name gets PACKED_SUFFIX. The view itself is copied. */
quire_err packed_image_add(packed_image *i, const tensor_view *view);
/* Adds the metadata of f, which must not be a packed model itself. tables: the
 * tokenizer's tables; the vocabulary's own lists are then omitted. json: tokenizer.json
 * without those lists. Both empty: the vocabulary is kept unchanged. All is copied. */
quire_err packed_image_metadata(packed_image *i, const model_file *f, str tables, str json);
/* Adds the name under which the pack cache keeps it, and the path of its source.
 * Copied. */
quire_err packed_image_key(packed_image *i, const char *key, const char *source);

/* Ends the adding: *n_blocks of PACKED_BLOCK bytes need their checksum. */
quire_err packed_image_measure(packed_image *i, int32_t *n_blocks);
/* Computes the checksum of one block. Different blocks on any threads at once. */
void packed_image_hash(packed_image *i, int32_t block);
/* Adds checksums, directory and header after the last hash. */
quire_err packed_image_seal(packed_image *i);
/* What measure, hash and seal do, in one call. */
quire_err packed_image_finish(packed_image *i);

/* Bytes that were added so far, and padding. */
uint64_t packed_image_data_bytes(const packed_image *i);
/* The size of the file, once it is sealed. */
uint64_t packed_image_bytes(const packed_image *i);
/* Writes bytes from..from+n of the file to fd, whose offset is `from`. QUIRE_IO: errno
 * has the reason. Any thread. */
quire_err packed_image_write(const packed_image *i, int fd, uint64_t from, uint64_t n);

/* The file of a packed model while it is written: under a temporary name, until it is
 * complete. */

/* One thread. */
typedef struct packed_writer packed_writer;

/* path: the model's final name. A file there stays until packed_writer_finish.
 * QUIRE_INVALID where that file is neither empty nor a packed model. */
quire_err packed_writer_open(const char *path, packed_writer **out, quire_error *err);
/* Writes a finished image, renames the file to its final name and frees w. A failure
 * frees w too. */
quire_err packed_writer_finish(packed_writer *w, const packed_image *i, quire_error *err);
/* Frees w and deletes its file. NULL is allowed. */
void packed_writer_discard(packed_writer *w);

#endif
