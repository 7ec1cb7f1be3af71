/* Reads the numbers that most decoders share from a file's metadata, under GGUF's keys or config.json's. */
#ifndef MODEL_CONFIG_H
#define MODEL_CONFIG_H

#include "core/model_desc.h"
#include "file/model_file.h"

/* Reads layers, widths, heads, vocabulary, eps, activation, tying, eos and bos. If a required number is missing, err names it. */
quire_err config_transformer(const model_file *f, model_desc *d, quire_error *err);
/* Reads the rotary embedding with its scaling. Call it after config_transformer. An unknown scaling is refused by name. */
quire_err config_rope(const model_file *f, model_desc *d, quire_error *err);

#endif
