/* Architectures. Each defines the names of its metadata and weights, and the structure of
 * its layers. One file per family; the table is in architectures.c. */
#ifndef MODEL_ARCH_H
#define MODEL_ARCH_H

#include "base/str.h"
#include "model/config.h"
#include "model/loader.h"
#include "model/model.h"
#include "model/pooling.h"
#include "model/steps.h"
#include "model/weight_names.h"
#include "model/weight_table.h"

#define ARCH_MAX_NAMES 6

typedef struct arch {
    /* names in general.architecture, up to the first NULL; the first names the model */
    const char *gguf[ARCH_MAX_NAMES];
    const char *hf[ARCH_MAX_NAMES]; /* names in config.json's architectures[0] */
    const arch_names *names;        /* NULL: Llama's */
    /* Fills the description from the file's metadata. The caller has zeroed it and set
     * architecture and name. */
    quire_err (*describe)(const config *c, model_desc *d);
    const score_head *scores; /* head of its ..ForSequenceClassification; NULL: not supported */
} arch;

struct model {
    model_desc desc;
    backend *b;
    const arch *arch;
    model_file *file; /* shared while b uses its bytes; else NULL */
    struct decoder *decoder;
    pooled_layers *pooling; /* NULL: nothing follows pooling */
    weight_table weights;   /* names by which adapters refer to weights */
    bool from_gguf;         /* the model's own format; for a packed model, its source's */
    head_rows rows;         /* as in struct config */
};

/* The architecture of a name in general.architecture or config.json. NULL: unknown; known
 * names are then offered to *similar. */
const arch *arch_find(model_format format, str name, nearest *similar);

/* The i-th architecture, or NULL after the last; for tables. */
const arch *arch_at(size_t i);

/* ---- open_model.c ---- */
/* Refuses a checkpoint whose biases contradict its config.json; keys that are absent are
 * not checked. */
quire_err biases_check(const config *c, const arch_names *names);

#endif
