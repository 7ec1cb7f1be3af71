/* The modules of a sentence-transformers model: what modules.json lists, in order, each
 * with a directory that has its config.json and perhaps weights. The first is the model
 * itself, in the directory "".
 *
 * The file room reads them and checks that they stay inside the model's directory;
 * src/model knows what they mean. A module's tensors are the file's, named
 * "DIRECTORY/NAME" ("2_Dense/linear.weight"). GGUF files have none. Borrowed, as all of
 * an open file. */
#ifndef FILE_MODULES_H
#define FILE_MODULES_H

#include "file/model_file.h"

int32_t model_file_n_modules(const model_file *f);
/* The full name of its class: "sentence_transformers.models.Pooling". */
str model_module_type(const model_file *f, int32_t i);
/* Its directory: "1_Pooling". */
const char *model_module_path(const model_file *f, int32_t i);
/* A value of its config.json, by dotted path; META_ABSENT also if there is no such
 * file. */
meta_value model_module_value(const model_file *f, int32_t i, const char *key);

#endif
