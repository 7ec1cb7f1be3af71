/* Pooling of a model's rows, and what follows it: the modules of sentence-transformers (Reimers and Gurevych 2019, arXiv:1908.10084), or
 * what a GGUF file has in their place. src/engine/row_pooling.h takes the rows; here is what the model's files say of it. */
#ifndef MODEL_POOLING_H
#define MODEL_POOLING_H

#include "model/config.h"
#include "model/loader.h"

/* The weights of the steps behind the pooling, in f32. */
typedef struct pooled_layers pooled_layers;

/* ---- pooling_config.c ---- */
/* Reads d->pooling, once the widths of d are known. QUIRE_UNSUPPORTED names a module, or a kind of pooling, that this build does not
 * compute; QUIRE_BAD_FILE a number that contradicts another. */
quire_err pooling_describe(const config *c, model_desc *d);

/* ---- pooling.c ---- */
/* *out NULL: there are no steps. */
quire_err pooling_load(loader *l, const model_desc *d, pooled_layers **out);
void pooling_close(pooled_layers *p);
/* The steps on one row of width elements, as model_pooled says. p NULL: there are none. */
void pooling_apply(const pooled_layers *p, int32_t width, const float *row, float *out);

#endif
