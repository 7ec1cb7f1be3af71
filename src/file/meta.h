/* A metadata value, one type for GGUF and JSON, from which the accessors of model_file
 * convert. Borrowed from the open file. */
#ifndef FILE_META_H
#define FILE_META_H

#include <stdbool.h>
#include <stdint.h>

#include "base/str.h"

/* The format of a model's metadata. It also decides how keys and tensors are named. */
typedef enum model_format { MODEL_GGUF, MODEL_HF } model_format;

typedef enum meta_kind {
    META_ABSENT, /* missing, or JSON null */
    META_INT,
    META_FLOAT,
    META_BOOL,
    META_STR,
    META_ARRAY,
    META_OTHER /* JSON objects */
} meta_kind;

typedef struct meta_value {
    meta_kind kind;
    int64_t i;        /* META_INT; META_BOOL: 0 or 1 */
    double f;         /* META_FLOAT; META_INT: the same value as a double */
    str s;            /* META_STR */
    size_t n;         /* META_ARRAY: number of elements */
    const void *node; /* META_ARRAY: the elements, a gguf_value or, if in_json, a json_value */
    bool in_json;
} meta_value;

/* Metadata that the operator sets: the texts of --hf-overrides (a JSON object to merge
 * into config.json) and --override-kv (keys of a GGUF file in llama.cpp's form:
 * overrides.h), and of --quantization (model/quantise_load.h), which a packed model does
 * not store, since its tensors' types show it. NULL: not given. */
typedef struct model_overrides {
    const char *hf, *kv, *quantise;
} model_overrides;

/* Watches a load. progress is called with the loaded share of the tensors, from 0 to 1,
 * and returns false to stop; it may be NULL. */
typedef struct load_watch {
    bool (*progress)(void *user, double part);
    void *user;
} load_watch;

#endif
