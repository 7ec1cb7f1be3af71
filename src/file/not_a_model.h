/* Identifies files and directories that Quire does not read as models, and what to
 * download instead. Any thread. */
#ifndef FILE_NOT_A_MODEL_H
#define FILE_NOT_A_MODEL_H

#include "file/json_doc.h"
#include "file/tensors.h"

#define FOREIGN_BASE_BYTES 194 /* ORG/NAME and a 0 byte */

/* A kind of checkpoint. {.what = NULL}: unknown. */
typedef struct foreign {
    const char *what;    /* "a LoRA adapter, not a model" */
    const char *instead; /* what to do, as an imperative */
} foreign;

/* By the content of a file, which may be truncated. */
foreign foreign_of_content(str content);
/* By the name of a file, alone or in a directory or repository. */
foreign foreign_of_name(str path);
/* The more specific of two kinds, for a directory that has both. */
foreign foreign_stronger(foreign a, foreign b);
/* By the names in a directory. */
foreign foreign_of_directory(const char *dir);
/* The part of a Hugging Face model that a directory without config.json has: weights, or
 * a tokenizer. */
foreign foreign_part_of_directory(const char *dir);
/* By the keys general.type and general.architecture of a GGUF file. */
foreign foreign_of_gguf(str type, str architecture);

/* UNSUPPORTED for a checkpoint whose weights another program has quantised in a form of
 * its own, by its config.json and by the names of its tensors; either may be NULL. where:
 * its path or name, for the message. base: the model that it was made from, as ORG/NAME;
 * empty: unknown. What compressed-tensors has quantised is left to
 * src/model/quant_config.c. */
quire_err foreign_weights_check(const json_value *config, const tensor_dir *tensors, const char *where,
                                const char *base, quire_error *err);
/* "base_model" in the head of a model card (README.md), or empty. */
void foreign_base_of_card(str readme, char out[FOREIGN_BASE_BYTES]);

#endif
