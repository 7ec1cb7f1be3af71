/* A metadata value, the same type for GGUF and JSON: the accessors of model_file convert
 * from it. Borrowed from the open file. */
#ifndef FILE_META_H
#define FILE_META_H

#include <stdbool.h>
#include <stdint.h>

#include "base/str.h"

/* The form of a model's metadata, which also decides how its keys and tensors are
 * named. */
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
    double f;         /* META_FLOAT, and META_INT's value */
    str s;            /* META_STR */
    size_t n;         /* META_ARRAY: elements */
    const void *node; /* META_ARRAY: the elements, as a gguf_value or, in_json, a json_value */
    bool in_json;
} meta_value;

/* What the operator sets in the metadata: the texts of --hf-overrides (a JSON object that
 * is merged into config.json) and --override-kv (a GGUF file's keys, llama.cpp's form:
 * overrides.h). NULL: nothing. In addition the value of --quantization
 * (model/quantise_load.h), which a packed model does not store, since its tensors' types
 * show it. */
typedef struct model_overrides {
    const char *hf, *kv, *quantise;
} model_overrides;

/* Watches a load: called with the part of the tensors that is loaded, from 0 to 1;
 * returns whether to go on. progress may be NULL. */
typedef struct load_watch {
    bool (*progress)(void *user, double part);
    void *user;
} load_watch;

#endif
