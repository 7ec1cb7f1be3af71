#include "model/model_type.h"

#include "model/arch.h"
#include "model/composite.h"

/* What follows the type in the names of classes, those that write text first. */
static const char *const endings[] = {"ForCausalLM", "LMHeadModel", "ForConditionalGeneration", "Model",
                                      "ForMaskedLM"};
#define PARTS_ENDING 2

static bool is_mark(char c) {
    return c == '_' || c == '-' || c == '.';
}

static char model_type_lower(char c) {
    return c >= 'A' && c <= 'Z' ? (char)(c + ('a' - 'A')) : c;
}

/* Whether both spell the same in lower case, without marks between words. */
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

/* The class of the type with this ending, or NULL. */
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
    static const char part[] = "_text"; /* the text part by itself: gemma3_text */
    size_t n = sizeof endings / sizeof *endings;
    str whole = str_ends(type, part) ? (str){type.p, type.n - strlen(part)} : type;
    const char *class = has_text ? model_type_find(type, endings[PARTS_ENDING]) : NULL;
    for (size_t i = 0; i < n && class == NULL; i++) {
        class = model_type_find(whole, endings[i]);
        class = class == NULL ? model_type_find(type, endings[i]) : class;
    }
    return class != NULL ? str_of(class) : (str){"", 0};
}
