/* Composite checkpoints, whose text is a model of another class: config.json names the
 * whole ("LlavaForConditionalGeneration"), and its "text_config" the text ("llama"). */
#ifndef MODEL_COMPOSITE_H
#define MODEL_COMPOSITE_H

#include "base/str.h"
#include "file/model_file.h"

/* Replaces the whole's class in *architecture by that of its text; other architectures
 * are unchanged. QUIRE_UNSUPPORTED: this build knows the whole, but no such text in
 * it. */
quire_err composite_find_text(const model_file *f, str *architecture, quire_error *err);

/* The i-th class of such checkpoints, or NULL past the last: for tables. */
const char *composite_class_at(size_t i);

/* The class for config.json's model_type, for checkpoints without "architectures",
 * such as Qwen2MoeForCausalLM for "qwen2_moe". Of several classes it is the one that
 * generates text or, for a composite checkpoint (has_text), the one that holds the parts.
 * Static; empty: unknown. */
str model_type_class(str type, bool has_text);

#endif
