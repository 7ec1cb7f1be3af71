/* The table of a model's weights: each loaded product, norm and table of rows, under its
 * names in checkpoints and GGUF files. Adapters refer to weights by it.
 *
 * The loader fills it and weight_table_finish completes it. Then it is immutable, and any
 * thread may read it. A packed model has the same table as its source. */
#ifndef MODEL_WEIGHT_TABLE_H
#define MODEL_WEIGHT_TABLE_H

#include "backend/backend.h"
#include "file/tensors.h"
#include "model/find_weight.h"

/* A loaded object; exactly one of w, nm and rows is set. */
typedef struct weight_entry {
    const linear *w;
    const norm *nm;
    const embedding *rows;
    /* w: outputs and inputs; rows: their number and width; nm: elements and 0 */
    int64_t n_out, n_in;
    /* if w is part of a tensor; else n_rows is 0. Its suffix is not kept */
    weight_part part;
    bool turned;    /* w is the transpose of the part, which has n_in rows of n_out */
    bool exact;     /* w is computed in f32 in every mode */
    norm_spec norm; /* nm: its spec, without weight and bias */
    float scale;    /* nm: its weight is the file's times this; 0 means 1 */
    float *weight;  /* nm with bias: [n_out] the file's weight, owned; else NULL */
} weight_entry;

/* One name of an entry, without ".weight". */
typedef struct weight_ref {
    size_t at; /* offset of the name in `names` */
    int32_t entry;
    bool of_gguf;
    bool whole; /* this tensor is the entry's matrix alone: the entry's part does not apply */
} weight_ref;

/* Zero-initialised when empty. */
typedef struct weight_table {
    weight_entry *entries;
    weight_ref *refs;
    size_t n, cap, n_refs, cap_refs;
    strbuf names;
    name_ref *by_name[2]; /* refs by checkpoint names and by GGUF names, sorted */
    int32_t n_names[2];
} weight_table;

void weight_table_deinit(weight_table *t);
/* Adds an entry to the loader's table, if it has one. part NULL: the whole tensor. On
 * failure the loader's error is set. */
quire_err loader_note(loader *l, weight_entry entry, const weight_part *part, weight_name name,
                      int32_t layer);
/* Sorts the names. QUIRE_NO_MEMORY. */
quire_err weight_table_finish(weight_table *t);
/* Finds the refs of a name: returns their number, and the index of the first in
 * by_name[of_gguf]. Checkpoint names begin with "model." whatever root the file has
 * (find_weight.h). */
int32_t weight_table_find(const weight_table *t, bool of_gguf, str name, int32_t *first);

#endif
