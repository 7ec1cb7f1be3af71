/* Checks "quantization_config" in config.json: which quantised checkpoints this build computes without converting them.
 *
 * There is one form: compressed-tensors' W8A8. Weights are int8 with one scale for each output channel. Activations are quantised to int8
 * token by token during the computation. Layers that the checkpoint leaves out ("ignore", mostly the head) have float weights. Those are
 * computed in the mode of --compute, so in int8 they are quantised at load. */
#include <stdio.h>

#include "model/arch.h"

#define CONFIG "quantization_config"

/* The required value of each key as config.json spells it; "absent": none, or null. */
static const struct {
    const char *key, *value;
} form[] = {
    {"quant_method", "\"compressed-tensors\""},
    {"format", "\"int-quantized\""},
    {"kv_cache_scheme", "absent"},
    {"config_groups.group_1", "absent"},
    {"config_groups.group_0.weights.num_bits", "8"},
    {"config_groups.group_0.weights.type", "\"int\""},
    {"config_groups.group_0.weights.strategy", "\"channel\""},
    {"config_groups.group_0.weights.symmetric", "true"},
    {"config_groups.group_0.weights.dynamic", "false"},
    {"config_groups.group_0.weights.group_size", "absent"},
    {"config_groups.group_0.input_activations.num_bits", "8"},
    {"config_groups.group_0.input_activations.type", "\"int\""},
    {"config_groups.group_0.input_activations.strategy", "\"token\""},
    {"config_groups.group_0.input_activations.symmetric", "true"},
    {"config_groups.group_0.input_activations.dynamic", "true"},
    {"config_groups.group_0.output_activations", "absent"},
};

/* Spells the value of a key as the table does; "" for one that no row requires. */
static void spell(const model_file *f, const char *key, char value[64]) {
    str text;
    int64_t number;
    bool flag;
    quire_err e = model_file_str(f, key, &text);
    value[0] = 0;
    if (e == QUIRE_OK) {
        (void)snprintf(value, 64, "\"%.*s\"", (int)(text.n < 60 ? text.n : 60), text.p);
    } else if (e == QUIRE_NOT_FOUND) {
        (void)snprintf(value, 64, "absent");
    } else if (model_file_i64(f, key, &number) == QUIRE_OK) {
        (void)snprintf(value, 64, "%lld", (long long)number);
    } else if (model_file_bool(f, key, &flag) == QUIRE_OK) {
        (void)snprintf(value, 64, "%s", flag ? "true" : "false");
    }
}

quire_err quantisation_check(const model_file *f, quire_error *err) {
    str text;
    if (model_file_format(f) != MODEL_HF || model_file_str(f, CONFIG, &text) == QUIRE_NOT_FOUND) {
        return QUIRE_OK;
    }
    for (size_t i = 0; i < sizeof form / sizeof *form; i++) {
        char key[128], value[64];
        (void)snprintf(key, sizeof key, CONFIG ".%s", form[i].key);
        spell(f, key, value);
        if (strcmp(value, form[i].value) != 0) {
            return err_set(err, QUIRE_UNSUPPORTED, -1,
                           "%s: " CONFIG
                           ".%s in config.json must be %s: of quantised checkpoints this version runs compressed-tensors' W8A8 "
                           "(int8 weights a channel, dynamic int8 activations a token) only; download the unquantised model, or a GGUF of it",
                           model_file_path(f), form[i].key, form[i].value);
        }
    }
    return QUIRE_OK;
}
