#include "model/refused.h"

static const refused_arch all[] = {
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
     "relative positions as logits of their own, and short convolutions behind every block"},
    {"RwkvForCausalLM", NULL, "RWKV's recurrence over weighted values"},
    {"ZayaForCausalLM", NULL, "convolved queries and keys, and values of which half come a token late"},
};

_Static_assert(sizeof all / sizeof *all <= MOST_REFUSED, "more names are refused than may be");

const refused_arch *refused_at(size_t i) {
    return i < sizeof all / sizeof *all ? &all[i] : NULL;
}

const char *refused_reason(model_format format, str name) {
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        const char *known = format == MODEL_GGUF ? all[i].gguf : all[i].hf;
        if (known != NULL && str_is(name, known)) {
            return all[i].reason;
        }
    }
    return NULL;
}
