#include "model/architectures.h"

static const arch *const families[] = {
    llama_archs,  qwen_archs,  gemma_archs,    phi_archs,          gpt_archs,      falcon_archs,
    cohere_archs, glm_archs,   olmo_archs,     granite_archs,      nemotron_archs, ernie_archs,
    exaone_archs, bert_archs,  stepfun_archs,  muse_archs,         apertus_archs,  laguna_archs,
    afmoe_archs,  mimo_archs,  deepseek_archs, lfm_archs,          minimax_archs,  kimi_archs,
    mamba_archs,  zamba_archs, griffin_archs,  mistral_large_archs};

/* The k-th name of an architecture in a format; NULL after the last. */
static const char *name_at(const arch *a, model_format format, int k) {
    return k < ARCH_MAX_NAMES ? (format == MODEL_GGUF ? a->gguf : a->hf)[k] : NULL;
}

const arch *arch_at(size_t i) {
    for (size_t f = 0; f < sizeof families / sizeof *families; f++) {
        for (const arch *a = families[f]; a->describe != NULL; a++) {
            if (i-- == 0) {
                return a;
            }
        }
    }
    return NULL;
}

const arch *arch_find(model_format format, str name, nearest *similar) {
    const arch *a;
    for (size_t i = 0; (a = arch_at(i)) != NULL; i++) {
        const char *known;
        for (int k = 0; (known = name_at(a, format, k)) != NULL; k++) {
            if (str_is(name, known)) {
                return a;
            }
            nearest_offer(similar, str_of(known));
        }
    }
    return NULL;
}

/* ---- known but refused ---- */

static const refused_arch refused_table[] = {
    {"DeepseekV4ForCausalLM", "deepseek4",
     "compressed keys beside windows, and hyper-connections of four streams"},
    {"DiffLlamaForCausalLM", NULL, "attention as the difference of two softmaxes over split values"},
    {"DogeForCausalLM", NULL, "a mask that each key makes of its value and adds to the scores"},
    {"DoryForCausalLM", NULL, "a normalised transformer whose middle layers run several times"},
    {"Dots3NoteForCausalLM", NULL,
     "latent attention of two sizes, with windows in some layers and chosen keys in others"},
    {"HYV4ForCausalLM", NULL, "hyper-connections of four streams around latent attention with sinks"},
    {"HrmTextForCausalLM", "hrm_text", "two stacks of layers that run in nested cycles"},
    {"InklingForConditionalGeneration", NULL,
     "relative positions as logits of their own, and short convolutions after every block"},
    {"RwkvForCausalLM", NULL, "RWKV's recurrence over weighted values"},
    {"ZayaForCausalLM", NULL, "convolved queries and keys, and values of which half come a token late"},
};

_Static_assert(sizeof refused_table / sizeof *refused_table <= MOST_REFUSED,
               "more names are refused than may be");

const refused_arch *refused_at(size_t i) {
    return i < sizeof refused_table / sizeof *refused_table ? &refused_table[i] : NULL;
}

const char *refused_reason(model_format format, str name) {
    for (size_t i = 0; i < sizeof refused_table / sizeof *refused_table; i++) {
        const char *known = format == MODEL_GGUF ? refused_table[i].gguf : refused_table[i].hf;
        if (known != NULL && str_is(name, known)) {
            return refused_table[i].reason;
        }
    }
    return NULL;
}
