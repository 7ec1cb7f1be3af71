/* Finds the files of a tokenizer and detects their formats. */
#ifndef FILE_VOCAB_FILES_H
#define FILE_VOCAB_FILES_H

#include "file/open_file.h"

/* section of a packed model for a tokenizer file that is not tokenizer.json */
#define VOCAB_MODEL_SECTION "tokenizer.model"

/* Reads a directory's tokenizer; tokenizer_config.json must have been read. Takes
 * tokenizer.json, else a SentencePiece model, else ranks, else tekken.json; of several of
 * a kind the one with the usual name. f->vocab.source stays VOCAB_NONE if there is
 * none. */
quire_err vocab_files_read(model_file *f, quire_error *err);
/* Opens one file as the vocabulary of f. QUIRE_BAD_FILE: its format is unknown. */
quire_err vocab_files_open(model_file *f, const char *path, file_map map, quire_error *err);

#endif
