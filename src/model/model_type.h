/* config.json's model_type, for checkpoints that do not name their class in
 * "architectures". */
#ifndef MODEL_MODEL_TYPE_H
#define MODEL_MODEL_TYPE_H

#include "base/str.h"

/* The class of a model_type, such as Qwen2MoeForCausalLM of "qwen2_moe": of several the
 * one that writes text; of a checkpoint whose text is a part (has_text), the one that
 * holds the parts. Static; empty: this build has none. */
str model_type_class(str type, bool has_text);

#endif
