/* Pooling of a model's rows, and what follows it: modules of sentence-transformers
 * (Reimers and Gurevych 2019, arXiv:1908.10084), or their counterparts in GGUF files.
 * src/engine/row_pooling.h pools the rows; this file reads what the model's files say
 * about it. */
#ifndef MODEL_POOLING_H
#define MODEL_POOLING_H

#include "file/model_file.h"
#include "model/config.h"
#include "model/loader.h"

/* What a server needs to know of a model's rows: whether they can be shortened, and
 * whether the files name the function of scores. */

#define ROW_MAX_WIDTHS 16

typedef struct row_facts {
    /* rows can be shortened (Matryoshka embeddings: Kusupati et al. 2022,
     * arXiv:2205.13147) to one of these widths; n_widths 0: to any */
    bool is_matryoshka;
    int32_t n_widths, widths[ROW_MAX_WIDTHS];
    bool names_function; /* the files name a function for a head's scores */
} row_facts;

/* Reads vLLM's keys of config.json (is_matryoshka, matryoshka_dimensions) and the
 * function that sentence-transformers names. Call before the overrides are checked.
 * QUIRE_BAD_FILE: a value of the wrong type. */
quire_err row_facts_read(const model_file *f, row_facts *out, quire_error *err);

/* The f32 weights of the steps after pooling. */
typedef struct pooled_layers pooled_layers;

/* The head of an architecture's ..ForSequenceClassification: a product with a function, a
 * norm, and the product that gives the scores. Names are those of checkpoints, as in
 * weight_name; NULL: none. */
typedef struct score_head {
    pooling_kind kind, gguf_kind; /* the pooling that it reads */
    const char *dense, *norm, *out;
    row_function f;
    bool gguf_softmax; /* in GGUF files the scores are logits of yes and no */
} score_head;

/* ---- describing ---- */

/* Reads d->pooling; the widths of d must be known. head: the architecture's, or NULL.
 * QUIRE_UNSUPPORTED: a module or kind of pooling that this build does not compute, which
 * err names. QUIRE_BAD_FILE: contradicting numbers. */
quire_err pooling_describe(const config *c, const score_head *head, model_desc *d);

/* Adds the head to d->pooling. QUIRE_UNSUPPORTED: the architecture has none. */
quire_err score_head_describe(const config *c, const score_head *head, model_desc *d);

/* ---- loading and applying ---- */

/* Loads the weights of the steps in d->pooling. *out NULL: there are no steps. */
quire_err pooling_load(loader *l, const model_desc *d, pooled_layers **out);
void pooling_close(pooled_layers *p);
/* Applies the steps to one row of `width` elements, as in model_pooled. p NULL: no
 * steps. */
void pooling_apply(const pooled_layers *p, int32_t width, const float *row, float *out);

#endif
