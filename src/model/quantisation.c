#include "model/quantisation.h"

#include <stdio.h>

#define CONFIG "quantization_config"

/* The required value of a key: a text, a number, true or false, or nothing (absent or null). */
typedef struct wanted {
    const char *key;
    enum { WANT_TEXT, WANT_NUMBER, WANT_TRUE, WANT_FALSE, WANT_NOTHING } kind;
    const char *text;
    int64_t number;
} wanted;

static const wanted form[] = {
    {"quant_method", WANT_TEXT, "compressed-tensors", 0},
    {"format", WANT_TEXT, "int-quantized", 0},
    {"kv_cache_scheme", WANT_NOTHING, NULL, 0},
    {"config_groups.group_1", WANT_NOTHING, NULL, 0},
    {"config_groups.group_0.weights.num_bits", WANT_NUMBER, NULL, 8},
    {"config_groups.group_0.weights.type", WANT_TEXT, "int", 0},
    {"config_groups.group_0.weights.strategy", WANT_TEXT, "channel", 0},
    {"config_groups.group_0.weights.symmetric", WANT_TRUE, NULL, 0},
    {"config_groups.group_0.weights.dynamic", WANT_FALSE, NULL, 0},
    {"config_groups.group_0.weights.group_size", WANT_NOTHING, NULL, 0},
    {"config_groups.group_0.input_activations.num_bits", WANT_NUMBER, NULL, 8},
    {"config_groups.group_0.input_activations.type", WANT_TEXT, "int", 0},
    {"config_groups.group_0.input_activations.strategy", WANT_TEXT, "token", 0},
    {"config_groups.group_0.input_activations.symmetric", WANT_TRUE, NULL, 0},
    {"config_groups.group_0.input_activations.dynamic", WANT_TRUE, NULL, 0},
    {"config_groups.group_0.output_activations", WANT_NOTHING, NULL, 0},
};

/* True when the file has the required value at key. `wants` gets a description of that value. */
static bool says(const model_file *f, const wanted *w, char wants[64]) {
    char key[128];
    str text;
    int64_t number;
    bool flag;
    (void)snprintf(key, sizeof key, CONFIG ".%s", w->key);
    switch (w->kind) {
    case WANT_TEXT:
        (void)snprintf(wants, 64, "\"%s\"", w->text);
        return model_file_str(f, key, &text) == QUIRE_OK && str_is(text, w->text);
    case WANT_NUMBER:
        (void)snprintf(wants, 64, "%lld", (long long)w->number);
        return model_file_i64(f, key, &number) == QUIRE_OK && number == w->number;
    case WANT_NOTHING:
        (void)snprintf(wants, 64, "absent");
        return model_file_str(f, key, &text) == QUIRE_NOT_FOUND;
    default:
        (void)snprintf(wants, 64, "%s", w->kind == WANT_TRUE ? "true" : "false");
        return model_file_bool(f, key, &flag) == QUIRE_OK && flag == (w->kind == WANT_TRUE);
    }
}

quire_err quantisation_check(const model_file *f, quire_error *err) {
    str text;
    if (model_file_format(f) != MODEL_HF || model_file_str(f, CONFIG, &text) == QUIRE_NOT_FOUND) {
        return QUIRE_OK;
    }
    for (size_t i = 0; i < sizeof form / sizeof *form; i++) {
        char wants[64];
        if (!says(f, &form[i], wants)) {
            return err_set(err, QUIRE_UNSUPPORTED, -1,
                           "%s: " CONFIG
                           ".%s in config.json must be %s: of quantised checkpoints this version runs compressed-tensors' W8A8 "
                           "(int8 weights a channel, dynamic int8 activations a token) only",
                           model_file_path(f), form[i].key, wants);
        }
    }
    return QUIRE_OK;
}
