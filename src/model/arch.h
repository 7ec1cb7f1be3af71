/* Architectures: each defines the names of its numbers and weights and the structure of
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
    /* general.architecture, up to the first NULL; the first is what the model is
     * called */
    const char *gguf[ARCH_MAX_NAMES];
    const char *hf[ARCH_MAX_NAMES]; /* config.json: architectures[0] */
    const arch_names *names;        /* NULL: Llama's */
    /* Fills the description from the file's metadata. The caller zeroes it and sets
     * architecture and name. */
    quire_err (*describe)(const config *c, model_desc *d);
    const score_head *scores; /* heads of its ..ForSequenceClassification; NULL: not supported */
} arch;

struct model {
    model_desc desc;
    backend *b;
    const arch *arch;
    model_file *file; /* shared while b uses its bytes, else NULL */
    struct decoder *decoder;
    pooled_layers *pooling; /* NULL: nothing follows the pooling */
    weight_table weights;   /* the names by which adapters are bound */
    bool from_gguf;         /* the model's own format; for a packed model that of its source */
    head_rows rows;         /* as in config */
};

/* The architecture of a name in general.architecture or in config.json. NULL: this build
 * has none; the known ones are then offered to *similar. */
const arch *arch_find(model_format format, str name, nearest *similar);

/* The i-th architecture, or NULL past the last: for tables. */
const arch *arch_at(size_t i);

/* ---- open_model.c ---- */
/* Refuses a checkpoint whose config.json contradicts its biases. Keys that it leaves out
 * are not checked. */
quire_err biases_check(const config *c, const arch_names *names);

#endif
