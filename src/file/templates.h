/* Templates: a model's chat templates besides its default one, by name: "tool_use",
 * "rag".
 *
 * A Hugging Face directory has them as additional_chat_templates/NAME.jinja, or in the
 * list that is tokenizer_config.json's chat_template; a GGUF file as
 * tokenizer.chat_template.NAME. Borrowed, as all of an open file. */
#ifndef FILE_TEMPLATES_H
#define FILE_TEMPLATES_H

#include "file/model_file.h"

size_t model_file_n_templates(const model_file *f);
/* Template i < n: its name, which is never "default", and its text. */
void model_file_template(const model_file *f, size_t i, str *name, str *text);

#endif
