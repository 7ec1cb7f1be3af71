/* Architectures: each finds a model's weights in a file and runs the forward pass over them. One file an architecture; the table is in
 * open_model.c. */
#ifndef MODEL_ARCH_H
#define MODEL_ARCH_H

#include "model/loader.h"
#include "model/model.h"

typedef struct arch {
    const char *gguf_name; /* general.architecture */
    const char *hf_name;   /* config.json: architectures[0] */
    /* Fills the description from the file's metadata. The caller zeroes it and sets architecture and name. */
    quire_err (*describe)(const model_file *f, model_desc *d, quire_error *err);
    /* Loads weights and reserves activations. *weights is freed with mem_free. */
    quire_err (*load)(loader *l, const model_desc *d, void **weights);
    void (*forward)(const model *m, const batch *rows);
    buffer (*hidden)(const model *m);
} arch;

struct model {
    model_desc desc;
    backend *b;
    const arch *arch;
    model_file *file; /* shared while b uses its bytes, else NULL */
    void *weights;
};

extern const arch arch_llama;

/* ---- config.c: the numbers that most decoders share, under GGUF's keys or config.json's ---- */
/* Reads layers, widths, heads, vocabulary, eps, activation, tying, eos and bos. If a required number is missing, err names it. */
quire_err config_transformer(const model_file *f, model_desc *d, quire_error *err);
/* Reads the rotary embedding with its scaling. Call it after config_transformer. An unknown scaling is refused by name. */
quire_err config_rope(const model_file *f, model_desc *d, quire_error *err);

/* ---- quantisation.c ---- */
/* QUIRE_UNSUPPORTED, with err on the first setting of another form. Files without the key, and GGUF files, pass. */
quire_err quantisation_check(const model_file *f, quire_error *err);

#endif
