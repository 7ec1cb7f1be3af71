/* The architectures that this build runs. */
#ifndef MODEL_ARCHITECTURES_H
#define MODEL_ARCHITECTURES_H

#include <stddef.h>

#include "base/str.h"
#include "file/model_file.h"
#include "model/arch.h"

/* One table a family; a row without describe ends it. */
extern const arch afmoe_archs[], apertus_archs[], bert_archs[], cohere_archs[], deepseek_archs[],
    ernie_archs[], exaone_archs[], falcon_archs[], gemma_archs[], glm_archs[], gpt_archs[], granite_archs[],
    griffin_archs[], kimi_archs[], laguna_archs[], lfm_archs[], llama_archs[], mamba_archs[], mimo_archs[],
    minimax_archs[], mistral_large_archs[], muse_archs[], nemotron_archs[], olmo_archs[], phi_archs[],
    qwen_archs[], stepfun_archs[], zamba_archs[];

/* Weight names that several families share. */
extern const arch_names mixtral_names;

/* gpt.c: describes the shape of models with layer norms and ungated feed-forward parts.
 * The default feed-forward width is four times the model's; GGUF files always state it.
 * width: the key of the model's width in config.json. */
quire_err gpt_describe_shape(const config *c, const char *width, int32_t n_kv_heads, model_desc *d);

/* ---- known but refused ---- */

/* Architectures that are recognised but refused, because each needs a mechanism that is
 * not implemented. docs/models.md has the same table. */

#define MOST_REFUSED 18

typedef struct refused_arch {
    const char *hf, *gguf; /* class in config.json; general.architecture, or NULL */
    const char *reason;    /* the missing mechanism: "hyper-connections of four streams" */
} refused_arch;

/* The i-th entry, or NULL after the last. */
const refused_arch *refused_at(size_t i);
/* Why an architecture is refused; NULL: it is not. */
const char *refused_reason(model_format format, str name);

#endif
