/* Composite checkpoints: config.json names the class of the whole model
 * ("LlavaForConditionalGeneration"), and its "text_config" that of the text model
 * ("llama"). */
#ifndef MODEL_COMPOSITE_H
#define MODEL_COMPOSITE_H

#include "base/str.h"
#include "file/model_file.h"

/* Replaces a composite's class in *architecture by its text model's; other architectures
 * are unchanged. QUIRE_UNSUPPORTED: this build knows the composite but not its text
 * model. */
quire_err composite_find_text(const model_file *f, str *architecture, quire_error *err);

/* The i-th composite class, or NULL after the last; for tables. */
const char *composite_class_at(size_t i);

/* The class for a model_type of config.json, for checkpoints without "architectures":
 * "qwen2_moe" gives Qwen2MoeForCausalLM. If there are several classes, the one that
 * generates text or, for a composite checkpoint (has_text), the composite's. Static;
 * empty: unknown. */
str model_type_class(str type, bool has_text);

#endif
