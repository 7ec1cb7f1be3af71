/* Identifies files and directories that Quire does not read as models, and says what to
 * download instead. Any thread. */
#ifndef FILE_NOT_A_MODEL_H
#define FILE_NOT_A_MODEL_H

#include "file/json_doc.h"
#include "file/tensors.h"

#define FOREIGN_BASE_BYTES 194 /* ORG/NAME and a 0 byte */

/* A kind of checkpoint; `what` is NULL if the kind is unknown. */
typedef struct foreign {
    const char *what;    /* "a LoRA adapter, not a model" */
    const char *instead; /* advice, as an imperative */
} foreign;

/* Identifies a file by its content, which may be truncated. */
foreign foreign_of_content(str content);
/* Identifies a file by its name, alone or in a directory or repository. */
foreign foreign_of_name(str path);
/* Returns the more specific of two kinds, for a directory that has both. */
foreign foreign_stronger(foreign a, foreign b);
/* Identifies a directory by the names of its files. */
foreign foreign_of_directory(const char *dir);
/* Returns which part of a Hugging Face model a directory without config.json has:
 * weights, or a tokenizer. */
foreign foreign_part_of_directory(const char *dir);
/* Identifies a GGUF file by its keys general.type and general.architecture. */
foreign foreign_of_gguf(str type, str architecture);

/* UNSUPPORTED for a checkpoint with weights quantised in a form of another program, by
 * its config.json and the names of its tensors; either may be NULL. where: its path or
 * name, for the message. base: the model that it was made from, as ORG/NAME; empty:
 * unknown. Weights of compressed-tensors are left to src/model/quant_config.c. */
quire_err foreign_weights_check(const json_value *config, const tensor_dir *tensors, const char *where,
                                const char *base, quire_error *err);
/* Copies "base_model" from the front matter of a model card (README.md); empty: none. */
void foreign_base_of_card(str readme, char out[FOREIGN_BASE_BYTES]);

#endif
