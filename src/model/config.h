/* Reads the numbers that most decoders share out of a file's metadata, under GGUF's keys or config.json's. */
#ifndef MODEL_CONFIG_H
#define MODEL_CONFIG_H

#include "core/model_desc.h"
#include "file/model_file.h"

/* Layers, widths, heads, vocabulary, eps, activation, tying, eos and bos. A number that the file must have and lacks is named in err. */
quire_err config_transformer(const model_file *f, model_desc *d, quire_error *err);
/* Rotary embedding with its scaling; after config_transformer. A scaling that this build does not know is refused by name. */
quire_err config_rope(const model_file *f, model_desc *d, quire_error *err);

#endif
