/* Packed models: one file with all that serving a model takes, in the form in which it is used: weights as a backend packed them, the other
 * tensors and the metadata as the model's own files have them, and the tokenizer's tables. `quire pack` writes it; it is mapped when it is
 * opened, so a start copies nothing and processes share its memory.
 *
 *   packed_header; data: sections and tensors, each at a multiple of PACKED_ALIGN; at the end the directory:
 *   u32 n, n sections: string name, u64 offset, u64 bytes
 *   u32 n, n tensors: string name, string type, u32 is packed, u32 n_dims, u64 dims (row-major), u64 offset, u64 bytes
 *
 * Strings are u64 length and bytes. Little-endian. Offsets count from the file's start. Tensors that are packed have PACKED_SUFFIX behind
 * their names: a matrix that is embedding and head stands there in both forms. The sections are metadata, under the names of a Hugging Face
 * directory's files or as "gguf", a GGUF file without tensors; and PACKED_TABLES.
 *
 * The digests are there to find damage, not forgery: what the directory says is checked as that of any file from outside. */
#ifndef FILE_PACKED_H
#define FILE_PACKED_H

#include "base/sha256.h"
#include "core/dtype.h"
#include "file/model_file.h"

#define PACKED_MAGIC   "QUIREPCK"
#define PACKED_VERSION 1 /* of this layout; that of the weights is the backend's */
#define PACKED_ALIGN   4096
#define PACKED_SUFFIX  ".packed"
#define PACKED_GGUF    "gguf"
#define PACKED_TABLES  "tokenizer"
#define PACKED_N_TOKENS "quire.n_tokens" /* a key of "gguf" beside tables: how long the lists were that are left out */

typedef struct packed_header {
    char magic[8];
    uint32_t version;
    uint32_t format;  /* model_format of the source */
    uint32_t compute; /* compute_mode that the weights are packed for */
    uint32_t packing; /* the backend's version of its layout */
    uint64_t directory_at, directory_bytes, file_bytes;
    uint8_t directory_digest[SHA256_BYTES];
    uint8_t header_digest[SHA256_BYTES]; /* of all before */
} packed_header;

/* A packed model that is being written, under a name of its own until it is complete. One thread. */
typedef struct packed_writer packed_writer;

/* path: where the model will stand; what is there stays until packed_writer_finish. QUIRE_INVALID where that is neither empty nor a packed
 * model. */
quire_err packed_writer_open(const char *path, compute_mode compute, packed_writer **out, quire_error *err);
/* A tensor as it is (view->packing 0), or n bytes of it packed, which is given the suffix. */
quire_err packed_writer_add(packed_writer *w, const tensor_view *view, quire_error *err);
/* The metadata of f, which is no packed model itself. tables: the tokenizer's, with which the vocabulary's own lists are left out; json:
 * tokenizer.json without them. Both empty: the vocabulary is kept as it is. */
quire_err packed_writer_metadata(packed_writer *w, const model_file *f, str tables, str json, quire_error *err);
/* Completes the file, puts it in its place and frees w, as after a failure. *n_bytes: what it takes. */
quire_err packed_writer_finish(packed_writer *w, int64_t *n_bytes, quire_error *err);
/* Frees w and what it had written. NULL is fine. */
void packed_writer_discard(packed_writer *w);

#endif
