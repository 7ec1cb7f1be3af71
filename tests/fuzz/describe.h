/* For the fuzz targets of config.json and GGUF: describes a model as each architecture of
 * the registry does. */
#ifndef TESTS_FUZZ_DESCRIBE_H
#define TESTS_FUZZ_DESCRIBE_H

#include "fuzz.h"
#include "model/arch.h"

/* A safetensors header, for the tensors beside a config.json, and the bytes of its data:
 * a meaningless tensor, and learnt rotary frequencies, which Mistral Large 4 reads. */
#define DESCRIBE_TENSORS                                                                                     \
    "{\"x\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]},"                                       \
    "\"lerope.alpha\":{\"dtype\":\"F32\",\"shape\":[32],\"data_offsets\":[4,132]}}"
enum { DESCRIBE_BYTES = 132 };

/* Describes f by a row of the registry. False: refused; err has a message. name: the
 * prefix of GGUF keys, or the class in config.json. */
static inline bool describe_by_row(const model_file *f, const arch *a, const char *name, quire_error *err) {
    const config c = config_of(f, name, err);
    model_desc d = {.bos = -1};
    quire_err e = a->describe(&c, &d);
    e = e ? e : desc_check(&d, err);
    fuzz_check(e == QUIRE_OK || err->message[0] != 0);
    return e == QUIRE_OK;
}

/* Describes f by every row, whatever its architecture; a config.json also by every class
 * of a row. prefix: of GGUF keys. Returns the number of rows that accept it. */
static inline int describe_by_every_row(const model_file *f, const char *prefix, int *n_rows) {
    const bool is_gguf = model_file_format(f) == MODEL_GGUF;
    int n_taken = 0;
    *n_rows = 0;
    for (const arch *a; (a = arch_at((size_t)*n_rows)) != NULL; ++*n_rows) {
        bool takes = true;
        for (int k = 0; k < (is_gguf ? 1 : ARCH_MAX_NAMES) && (is_gguf || a->hf[k] != NULL); k++) {
            quire_error err = {0};
            takes = describe_by_row(f, a, is_gguf ? prefix : a->hf[k], &err) && takes;
        }
        n_taken += takes;
    }
    return n_taken;
}

#endif
