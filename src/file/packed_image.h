/* Builds the bytes of a packed model (packed.h has the layout): pieces of memory with
 * their places in the file, written in any order and by any number of calls.
 *
 *   open, add.., metadata, measure, hash of every block, seal, then write
 *
 * Tensors are borrowed: their bytes must not change until the close. One thread, unless
 * stated otherwise. */
#ifndef FILE_PACKED_IMAGE_H
#define FILE_PACKED_IMAGE_H

#include "file/packed.h"

typedef struct packed_image packed_image;

quire_err packed_image_open(compute_mode compute, packed_image **out);
/* Frees the image; NULL does nothing. */
void packed_image_close(packed_image *i);

/* Adds one tensor. view->packing 0: its bytes are unpacked; otherwise they are its packed
 * form, and its name gets PACKED_SUFFIX. The view itself is copied. */
quire_err packed_image_add(packed_image *i, const tensor_view *view);
/* Adds the metadata of f, which must not be a packed model itself. tables: the
 * tokenizer's tables, which replace the vocabulary's lists; json: tokenizer.json without
 * those lists. Both empty: the vocabulary is kept unchanged. Everything is copied. */
quire_err packed_image_metadata(packed_image *i, const model_file *f, str tables, str json);
/* Adds the name of this entry in the pack cache, and the path of its source. Both are
 * copied. */
quire_err packed_image_key(packed_image *i, const char *key, const char *source);

/* Ends the adding. *n_blocks blocks of PACKED_BLOCK bytes then need their checksum. */
quire_err packed_image_measure(packed_image *i, int32_t *n_blocks);
/* Computes the checksum of one block. Any thread; different blocks at the same time. */
void packed_image_hash(packed_image *i, int32_t block);
/* Adds checksums, directory and header. Call it after the last packed_image_hash. */
quire_err packed_image_seal(packed_image *i);
/* Does the work of measure, hash and seal in one call. */
quire_err packed_image_finish(packed_image *i);

/* Number of bytes added so far, with padding. */
uint64_t packed_image_data_bytes(const packed_image *i);
/* The size of the file; valid once the image is sealed. */
uint64_t packed_image_bytes(const packed_image *i);
/* Writes bytes [from, from + n) of the file to fd, whose offset is `from`. QUIRE_IO:
 * errno has the reason. Any thread. */
quire_err packed_image_write(const packed_image *i, int fd, uint64_t from, uint64_t n);

/* A packed model's file while it is written, under a temporary name. One thread. */
typedef struct packed_writer packed_writer;

/* Opens a writer. path: the final name; a file there stays until packed_writer_finish.
 * QUIRE_INVALID: that file is neither empty nor a packed model. */
quire_err packed_writer_open(const char *path, packed_writer **out, quire_error *err);
/* Writes a finished image, renames the file to its final name, and frees w even after a
 * failure. */
quire_err packed_writer_finish(packed_writer *w, const packed_image *i, quire_error *err);
/* Frees w and deletes its file; NULL does nothing. */
void packed_writer_discard(packed_writer *w);

#endif
