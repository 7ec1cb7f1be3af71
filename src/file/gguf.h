/* GGUF, versions 2 and 3: reads the keys and the tensor directory of one file in memory.
 *
 *   "GGUF", u32 version, u64 n_tensors, u64 n_keys; keys: string, u32 type, value;
 *   tensors: string, u32 n_dims, u64 dims (fastest first),
 *   u32 type, u64 offset; padding to general.alignment; data. Strings are u64 length and
 *   bytes. Little-endian.
 *
 * Everything in a gguf borrows the file's bytes. They are untrusted: each length is
 * checked against the bytes left. */
#ifndef FILE_GGUF_H
#define FILE_GGUF_H

#include "file/meta.h"
#include "file/tensors.h"

typedef enum gguf_type {
    GGUF_U8,
    GGUF_I8,
    GGUF_U16,
    GGUF_I16,
    GGUF_U32,
    GGUF_I32,
    GGUF_F32,
    GGUF_BOOL,
    GGUF_STRING,
    GGUF_ARRAY,
    GGUF_U64,
    GGUF_I64,
    GGUF_F64,
    N_GGUF_TYPES
} gguf_type;

typedef struct gguf_value {
    gguf_type type, item_type; /* item_type: type of an array's elements */
    size_t n;                  /* number of bytes of a string, or elements of an array */
    const uint8_t *data;       /* the value's bytes, unaligned */
    str *strings;              /* [n] elements of an array of strings; owned by the gguf */
} gguf_value;

typedef struct gguf_key {
    str name;
    gguf_value value;
} gguf_key;

/* A zero-initialised gguf is empty. */
typedef struct gguf {
    gguf_key *keys; /* keys in the order of the file */
    int32_t n_keys;
    name_ref *by_name;
} gguf;

/* Parses the n bytes of a file into *g and adds its tensors to *dir as those of part
 * `part`. file: name for messages. dir NULL: reads only the keys. After a failure *g and
 * *dir must only be deinitialised. */
quire_err gguf_parse(gguf *g, const void *bytes, size_t n, const char *file, int32_t part, tensor_dir *dir,
                     quire_error *err);
void gguf_deinit(gguf *g);

/* Returns the value of a key; NULL: the key is absent. */
const gguf_value *gguf_find(const gguf *g, const char *key);
/* Converts a value to metadata; NULL to META_ABSENT. */
meta_value gguf_meta(const gguf_value *v);
/* Returns element i < n of an array; META_OTHER for nested arrays. */
meta_value gguf_item(const gguf_value *array, size_t i);
/* Returns the name of a type: "u32", "string", ... */
const char *gguf_type_name(gguf_type t);
/* Bytes of a value of this type; 0 for strings and arrays. */
size_t gguf_type_bytes(gguf_type t);

#endif
