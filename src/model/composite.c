#include "model/composite.h"

/* Their own tensors and numbers do not reach rows of text: no attention to an image, no
 * part of a prompt that sees later rows. */
static const char *const classes[] = {
    "LlavaForConditionalGeneration",          "LlavaNextForConditionalGeneration",
    "LlavaOnevisionForConditionalGeneration", "VipLlavaForConditionalGeneration",
    "Idefics2ForConditionalGeneration",       "Idefics3ForConditionalGeneration",
    "SmolVLMForConditionalGeneration",        "InternVLForConditionalGeneration",
    "LightOnOcrForConditionalGeneration",     "VoxtralForConditionalGeneration",
    "GotOcr2ForConditionalGeneration",        "Qwen2AudioForConditionalGeneration",
};

/* text_config's "model_type", and the class of a model of that type alone. */
static const struct {
    const char *type, *class;
} texts[] = {
    {"llama", "LlamaForCausalLM"}, {"mistral", "MistralForCausalLM"}, {"mixtral", "MixtralForCausalLM"},
    {"qwen2", "Qwen2ForCausalLM"}, {"qwen3", "Qwen3ForCausalLM"},     {"gemma", "GemmaForCausalLM"},
    {"phi3", "Phi3ForCausalLM"},   {"smollm3", "SmolLM3ForCausalLM"},
};

const char *composite_class_at(size_t i) {
    return i < sizeof classes / sizeof *classes ? classes[i] : NULL;
}

static bool is_composite(str architecture) {
    const char *class;
    for (size_t i = 0; (class = composite_class_at(i)) != NULL; i++) {
        if (str_is(architecture, class)) {
            return true;
        }
    }
    return false;
}

quire_err composite_find_text(const model_file *f, str *architecture, quire_error *err) {
    str type = {0};
    if (model_file_format(f) != MODEL_HF || !is_composite(*architecture)) {
        return QUIRE_OK;
    }
    if (model_file_str(f, "text_config.model_type", &type) != QUIRE_OK) {
        return err_set(err, QUIRE_BAD_FILE, -1,
                       "%s: text_config.model_type in config.json is missing or no text", model_file_path(f));
    }
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        if (str_is(type, texts[i].type)) {
            *architecture = str_of(texts[i].class);
            return QUIRE_OK;
        }
    }
    return err_set(err, QUIRE_UNSUPPORTED, -1,
                   "%s: %.*s whose text is of type \"%.*s\" is not supported by this version",
                   model_file_path(f), (int)architecture->n, architecture->p,
                   (int)(type.n < 40 ? type.n : 40), type.p);
}
