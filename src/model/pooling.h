/* Pooling of a model's rows, and what follows it: the modules of sentence-transformers
 * (Reimers and Gurevych 2019, arXiv:1908.10084), or what a GGUF file has in their place.
 * src/engine/row_pooling.h takes the rows; here is what the model's files say about
 * it. */
#ifndef MODEL_POOLING_H
#define MODEL_POOLING_H

#include "file/model_file.h"
#include "model/config.h"
#include "model/loader.h"

/* What a server needs to know of a model's rows: whether they may be cut, and whether the
 * files name the function of its scores. */

#define ROW_MAX_WIDTHS 16

typedef struct row_facts {
    /* rows may be cut (Matryoshka embeddings: Kusupati et al. 2022, arXiv:2205.13147): to
     * one of these widths or, where n_widths is 0, to any */
    bool is_matryoshka;
    int32_t n_widths, widths[ROW_MAX_WIDTHS];
    bool names_function; /* a function for the scores of a head is named */
} row_facts;

/* Reads vLLM's names of config.json: is_matryoshka, matryoshka_dimensions; and those of
 * sentence-transformers for the function. Before the overrides are checked.
 * QUIRE_BAD_FILE: a value is of another type. */
quire_err row_facts_read(const model_file *f, row_facts *out, quire_error *err);

/* The weights of the steps after the pooling, in f32. */
typedef struct pooled_layers pooled_layers;

/* The head of an architecture's ..ForSequenceClassification: a product with a function, a
 * norm, the product that gives the scores. Names as in weight_name, of checkpoints; NULL:
 * there is none. */
typedef struct score_head {
    pooling_kind kind, gguf_kind; /* what it reads */
    const char *dense, *norm, *out;
    row_function f;
    bool gguf_softmax; /* GGUF files have the scores' logits of yes and no */
} score_head;

/* ---- describing ---- */

/* Reads d->pooling, once the widths of d are known. head: the architecture's, or NULL.
 * QUIRE_UNSUPPORTED names a module, or a kind of pooling, that this build does not
 * compute; QUIRE_BAD_FILE a number that contradicts another. */
quire_err pooling_describe(const config *c, const score_head *head, model_desc *d);

/* Adds the head to d->pooling. QUIRE_UNSUPPORTED: the architecture has none. */
quire_err score_head_describe(const config *c, const score_head *head, model_desc *d);

/* ---- loading and applying ---- */

/* Loads the weights of the steps that d->pooling lists. *out NULL: there are no steps. */
quire_err pooling_load(loader *l, const model_desc *d, pooled_layers **out);
void pooling_close(pooled_layers *p);
/* Applies the steps to one row of `width` elements, as model_pooled describes. p NULL:
 * there are none. */
void pooling_apply(const pooled_layers *p, int32_t width, const float *row, float *out);

#endif
