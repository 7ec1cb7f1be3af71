/* Packed models: one file with everything that is needed to serve a model, in the form in
 * which it is used.
 *
 * It holds the weights as a backend packed them, the other tensors and the metadata
 * unchanged from the model's own files, and the tokenizer's tables. `quire pack` writes
 * it. It is mapped when it is opened, so a start copies nothing and processes share its
 * memory.
 *
 *   packed_header; data: sections and tensors, each at a multiple of PACKED_ALIGN; at the
 *   end the directory:
 *   u32 n, n sections: string name, u64 offset, u64 bytes
 *   u32 n, n tensors: string name, string type, u32 is packed, u32 n_dims, u64 dims
 *   (row-major), u64 offset, u64 bytes
 *
 * Strings are u64 length and bytes. Little-endian. Offsets count from the file's start.
 * The name of a packed tensor ends with PACKED_SUFFIX. A matrix that is both embedding
 * and head is stored only packed if that form has its values exactly, else unpacked too.
 * The sections are: the metadata, under the names of a Hugging Face directory's files or
 * as "gguf", a GGUF file without tensors; PACKED_TABLES; PACKED_OVERRIDES; and, as the
 * last, PACKED_CHECKSUMS:
 *   u64 end; u64 XXH3 of each PACKED_BLOCK bytes from PACKED_ALIGN to end, the last block
 *   perhaps shorter; u64 XXH3 of all these
 * All tensors and other sections are before `end`.
 *
 * Digests and checksums detect damage, not forgery, so the directory is checked like that
 * of any untrusted file. Opening checks the digests of header and directory. Callers that
 * do not trust the file check the data themselves (packed_block_is_whole). */
#ifndef FILE_PACKED_H
#define FILE_PACKED_H

#include "base/sha256.h"
#include "core/dtype.h"
#include "file/model_file.h"

#define PACKED_MAGIC   "QUIREPCK"
#define PACKED_VERSION 2 /* version of this layout; the backend has its own for weights */
#define PACKED_ALIGN   4096
#define PACKED_BLOCK   ((uint64_t)1 << 20)
#define PACKED_SUFFIX  ".packed"
#define PACKED_GGUF    "gguf"
#define PACKED_TABLES  "tokenizer"
/* overrides in force when it was packed (overrides_text); empty: none */
#define PACKED_OVERRIDES "overrides"
#define PACKED_CHECKSUMS "checksums"
#define PACKED_KEY       "key" /* in entries of the pack cache: the entry's name */
/* in entries of the pack cache: absolute path of the entry's source */
#define PACKED_SOURCE   "source"
#define PACKED_N_TOKENS "quire.n_tokens" /* key of "gguf": length of the lists that PACKED_TABLES replaces */

typedef struct packed_header {
    char magic[8];
    uint32_t version;
    uint32_t format;  /* model_format of the source */
    uint32_t compute; /* compute_mode that the weights are packed for */
    uint32_t packing; /* the backend's version of its layout */
    uint64_t directory_at, directory_bytes, file_bytes;
    uint8_t directory_digest[SHA256_BYTES];
    uint8_t header_digest[SHA256_BYTES]; /* digest of all fields before it */
} packed_header;

/* Number of blocks with checksums in an open packed model; 0: it has no checksums, or
 * they are damaged. */
int32_t packed_n_blocks(const model_file *f);
/* Whether a block has its checksum, so its bytes are undamaged. Reads PACKED_BLOCK bytes.
 * Any thread. */
bool packed_block_is_whole(const model_file *f, int32_t block);

#endif
