/* What a model's files say about its rows to those who serve them: whether they may be
 * cut, and whether the function of scores is named (pooling_config.c). */
#ifndef MODEL_ROW_FACTS_H
#define MODEL_ROW_FACTS_H

#include "file/model_file.h"

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

#endif
