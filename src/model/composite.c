#include "model/composite.h"

#include "model/arch.h"

/* Composite classes. Their towers do not affect rows of text: there is no cross-attention
 * to an image, and no part of a text prompt sees later rows. */
static const char *const classes[] = {
    "LlavaForConditionalGeneration",          "LlavaNextForConditionalGeneration",
    "LlavaOnevisionForConditionalGeneration", "VipLlavaForConditionalGeneration",
    "Idefics2ForConditionalGeneration",       "Idefics3ForConditionalGeneration",
    "SmolVLMForConditionalGeneration",        "InternVLForConditionalGeneration",
    "LightOnOcrForConditionalGeneration",     "VoxtralForConditionalGeneration",
    "GotOcr2ForConditionalGeneration",        "Qwen2AudioForConditionalGeneration",
    "Exaone4_5_ForConditionalGeneration",
};

/* text_config's "model_type", and the class of such a text model. */
static const struct {
    const char *type, *class;
} texts[] = {
    {"llama", "LlamaForCausalLM"}, {"mistral", "MistralForCausalLM"}, {"mixtral", "MixtralForCausalLM"},
    {"qwen2", "Qwen2ForCausalLM"}, {"qwen3", "Qwen3ForCausalLM"},     {"gemma", "GemmaForCausalLM"},
    {"phi3", "Phi3ForCausalLM"},   {"smollm3", "SmolLM3ForCausalLM"}, {"exaone4", "Exaone4ForCausalLM"},
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
    if (model_file_format(f) != MODEL_HF) {
        return QUIRE_OK;
    }
    if (str_is(*architecture, "Mistral3ForConditionalGeneration") &&
        model_file_str(f, "text_config.model_type", &type) == QUIRE_OK && str_is(type, "mistral4")) {
        *architecture = str_of("Mistral4ForCausalLM"); /* any other text model is a Mistral */
    }
    if (!is_composite(*architecture)) {
        return QUIRE_OK;
    }
    if (model_file_str(f, "text_config.model_type", &type) != QUIRE_OK) {
        return err_set(err, QUIRE_BAD_FILE, -1,
                       "%s: text_config.model_type in config.json is missing or not a string",
                       model_file_path(f));
    }
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        if (str_is(type, texts[i].type)) {
            *architecture = str_of(texts[i].class);
            return QUIRE_OK;
        }
    }
    return err_set(err, QUIRE_UNSUPPORTED, -1,
                   "%s: %.*s with a text model of type \"%.*s\" is not supported by this version",
                   model_file_path(f), (int)architecture->n, architecture->p,
                   (int)(type.n < 40 ? type.n : 40), type.p);
}

/* Endings of class names after the type; those that generate text come first. */
static const char *const endings[] = {"ForCausalLM", "LMHeadModel", "ForConditionalGeneration", "Model",
                                      "ForMaskedLM"};
#define PARTS_ENDING 2

static bool is_mark(char c) {
    return c == '_' || c == '-' || c == '.';
}

static char model_type_lower(char c) {
    return c >= 'A' && c <= 'Z' ? (char)(c + ('a' - 'A')) : c;
}

/* Whether both are the same in lower case without separators. */
static bool spells(str a, str b) {
    size_t i = 0, k = 0;
    for (;; i++, k++) {
        while (i < a.n && is_mark(a.p[i])) {
            i++;
        }
        while (k < b.n && is_mark(b.p[k])) {
            k++;
        }
        if (i == a.n || k == b.n || model_type_lower(a.p[i]) != model_type_lower(b.p[k])) {
            return i == a.n && k == b.n;
        }
    }
}

/* Whether the class is the type's with this ending. */
static bool is_class_of(const char *class, str type, const char *ending) {
    str name = str_of(class);
    return str_ends(name, ending) && spells((str){name.p, name.n - strlen(ending)}, type);
}

/* The class of the type with this ending; NULL: none. */
static const char *model_type_find(str type, const char *ending) {
    const arch *a;
    const char *class;
    for (size_t i = 0; (a = arch_at(i)) != NULL; i++) {
        for (int k = 0; k < ARCH_MAX_NAMES && a->hf[k] != NULL; k++) {
            if (is_class_of(a->hf[k], type, ending)) {
                return a->hf[k];
            }
        }
    }
    for (size_t i = 0; (class = composite_class_at(i)) != NULL; i++) {
        if (is_class_of(class, type, ending)) {
            return class;
        }
    }
    return NULL;
}

str model_type_class(str type, bool has_text) {
    static const char part[] = "_text"; /* suffix of text model types, as in gemma3_text */
    size_t n = sizeof endings / sizeof *endings;
    str whole = str_ends(type, part) ? (str){type.p, type.n - strlen(part)} : type;
    const char *class = has_text ? model_type_find(type, endings[PARTS_ENDING]) : NULL;
    for (size_t i = 0; i < n && class == NULL; i++) {
        class = model_type_find(whole, endings[i]);
        class = class == NULL ? model_type_find(type, endings[i]) : class;
    }
    return class != NULL ? str_of(class) : (str){"", 0};
}
