/* The table of a model's weights: each product, norm and table of rows that was loaded,
 * under the names that checkpoints and GGUF files have for it. Adapters are bound by
 * it.
 *
 * The loader fills it, weight_table_finish completes it; immutable after that: any thread
 * may read. Of a packed model it is the same as of its source. */
#ifndef MODEL_WEIGHT_TABLE_H
#define MODEL_WEIGHT_TABLE_H

#include "backend/backend.h"
#include "file/tensors.h"
#include "model/find_weight.h"

/* A loaded object; one of w, nm and rows is set. */
typedef struct weight_entry {
    const linear *w;
    const norm *nm;
    const embedding *rows;
    /* of w: outputs and inputs; of rows: rows and their width; of nm: elements, 0 */
    int64_t n_out, n_in;
    /* of w that is a part of a tensor; else n_rows is 0. Its suffix is not kept */
    weight_part part;
    bool turned;    /* w is the transpose of the part, which has n_in rows of n_out */
    bool exact;     /* w is computed in f32 in every mode */
    norm_spec norm; /* of nm, without weight and bias */
    float scale;    /* of nm: its weight is the file's times this; 0: 1 */
    float *weight;  /* [n_out] of nm that has a bias, owned: the file's weight; else NULL */
} weight_entry;

/* One name of an entry, without ".weight". */
typedef struct weight_ref {
    size_t at; /* of the name in names */
    int32_t entry;
    bool of_gguf;
    bool whole; /* the tensor of this name is the entry's matrix, whatever its part says */
} weight_ref;

/* Zero-initialised is empty. */
typedef struct weight_table {
    weight_entry *entries;
    weight_ref *refs;
    size_t n, cap, n_refs, cap_refs;
    strbuf names;
    name_ref *by_name[2]; /* the refs of a checkpoint's and of a GGUF file's names, sorted */
    int32_t n_names[2];
} weight_table;

void weight_table_deinit(weight_table *t);
/* Adds it to the table of a loader that has one; part NULL: the whole tensor. The
 * loader's error is set. */
quire_err loader_note(loader *l, weight_entry entry, const weight_part *part, weight_name name,
                      int32_t layer);
/* Sorts the names. QUIRE_NO_MEMORY: as above. */
quire_err weight_table_finish(weight_table *t);
/* Finds the refs of a name: the index of the first in by_name[of_gguf] to *first; returns
 * how many there are. Names of checkpoints begin with "model." whatever root the file
 * has (find_weight.h). */
int32_t weight_table_find(const weight_table *t, bool of_gguf, str name, int32_t *first);

#endif
