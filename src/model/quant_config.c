/* Checks "quantization_config" of config.json, or of files that replace it
 * (open_formats.c): which quantised checkpoints this build reads. Only settings that
 * names, types and shapes of tensors (quant_method.h) do not show are checked here. */
#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "model/arch.h"
#include "model/quant_method.h"

#define MAX_VALUE 64

/* A key under QUANT_CONFIG and its allowed values, as in JSON, separated by '|'.
 * "absent": missing or null; "{}": an object. "*" in a key stands for each config
 * group. */
typedef struct quant_rule {
    const char *key, *values;
} quant_rule;

static const quant_rule gptq_rules[] = {
    {"bits", "2|3|4|8"}, {"checkpoint_format", "absent|\"gptq\"|\"gptq_v2\""}, {NULL, NULL}};
static const quant_rule awq_rules[] = {{"bits", "absent|4"},
                                       {"w_bit", "absent|4"}, /* keys of quant_config.json */
                                       {"version", "absent|\"gemm\"|\"GEMM\""},
                                       {"zero_point", "absent|true"},
                                       {NULL, NULL}};
static const quant_rule fp8_rules[] = {
    {"activation_scheme", "absent|\"dynamic\"|\"static\""}, {"fmt", "absent|\"e4m3\""}, {NULL, NULL}};
#define MODELOPT_TYPES                                                                                       \
    "absent|\"FP8\"|\"NVFP4\"|\"W4A16_NVFP4\"|\"FP8_PER_CHANNEL_PER_TOKEN\"|\"FP8_PB_WO\"|\"MXFP8\"|"        \
    "\"MIXED_"                                                                                               \
    "PRECISION\""
static const quant_rule modelopt_rules[] = {{"quant_algo", MODELOPT_TYPES},
                                            /* keys of hf_quant_config.json */
                                            {"quantization.quant_algo", MODELOPT_TYPES},
                                            {NULL, NULL}};
/* Intel's AutoRound packs like GPTQ or AWQ; AMD's Quark has FP8, int8 and MXFP4. */
static const quant_rule round_rules[] = {
    {"bits", "2|3|4|8"},
    {"data_type", "absent|\"int\""},
    {"packing_format",
     "absent|\"auto_round:auto_gptq\"|\"auto_round:gptq\"|\"auto_round:auto_awq\"|\"auto_round:awq\""},
    {NULL, NULL}};
static const quant_rule quark_rules[] = {
    {"global_quant_config.weight.dtype", "absent|\"fp8_e4m3\"|\"fp4\"|\"int8\""}, {NULL, NULL}};
static const quant_rule no_rules[] = {{NULL, NULL}};
static const quant_rule compressed_rules[] = {
    {"format", "absent|\"pack-quantized\"|\"int-quantized\"|\"float-quantized\"|\"naive-quantized\"|\"nvfp4-"
               "pack-quantized\"|"
               "\"mxfp4-pack-quantized\"|\"mxfp8-quantized\"|\"mixed-precision\""},
    {"config_groups.*.format",
     "absent|\"pack-quantized\"|\"int-quantized\"|\"float-quantized\"|\"naive-quantized\"|"
     "\"nvfp4-pack-quantized\"|\"mxfp4-pack-quantized\"|\"mxfp8-quantized\""},
    {"config_groups.*.weights.dynamic", "absent|false"},
    {"config_groups.*.output_activations", "absent"},
    {"sparsity_config.format", "absent|\"dense\""},
    {"transform_config.config_groups", "absent"}, /* rotations that the layers' inputs would need */
    {NULL, NULL}};

static const struct {
    const char *method;
    const quant_rule *rules;
} tables[] = {{"gptq", gptq_rules},
              {"awq", awq_rules},
              {"fp8", fp8_rules},
              {"fbgemm_fp8", no_rules},
              {"compressed-tensors", compressed_rules},
              {"compressed_tensors", compressed_rules},
              {"modelopt", modelopt_rules},
              {"modelopt_fp4", modelopt_rules},
              {"bitsandbytes", no_rules},
              {"mxfp4", no_rules},
              {"auto-round", round_rules},
              {"quark", quark_rules}};

const char *quant_group_key(int i, const char *key, char path[QUANT_KEY_BYTES]) {
    (void)snprintf(path, QUANT_KEY_BYTES, QUANT_CONFIG ".config_groups.group_%d%s", i, key);
    return path;
}

/* Whether config group i has weights of this many bits. */
static bool group_has_bits(const model_file *f, int i, int32_t bits) {
    char path[QUANT_KEY_BYTES];
    int64_t n = 0;
    return model_file_i64(f, quant_group_key(i, ".weights.num_bits", path), &n) == QUIRE_OK && n == bits;
}

bool quant_says_bits(const quant_linear *q, int32_t bits) {
    assert(q != NULL);
    char path[QUANT_KEY_BYTES];
    int64_t n;
    bool says =
        model_file_i64(q->l->file, quant_group_key(0, ".weights.num_bits", path), &n) == QUIRE_NOT_FOUND;
    for (int i = 0; i < QUANT_GROUPS && !says; i++) {
        says = group_has_bits(q->l->file, i, bits);
    }
    return says;
}

bool quant_rounds_rows(const quant_linear *q, const char *type, int32_t bits) {
    assert(q != NULL);
    const model_file *f = q->l->file;
    char path[QUANT_KEY_BYTES];
    str of_weights, of_rows;
    if (!model_file_is_object(f, quant_group_key(0, "", path))) {
        return strcmp(type, "float") == 0;
    }
    for (int i = 0; i < QUANT_GROUPS; i++) {
        bool is_type =
            model_file_str(f, quant_group_key(i, ".weights.type", path), &of_weights) != QUIRE_OK ||
            str_is(of_weights, type);
        if (is_type && group_has_bits(f, i, bits)) {
            return model_file_is_object(f, quant_group_key(i, ".input_activations", path)) &&
                   (model_file_str(f, quant_group_key(i, ".input_activations.type", path), &of_rows) !=
                        QUIRE_OK ||
                    str_is(of_rows, "float"));
        }
    }
    return false;
}

/* Writes the value of a key as rules spell it. */
static void quant_spell(const model_file *f, const char *key, char value[MAX_VALUE]) {
    str text;
    int64_t number;
    bool flag;
    quire_err e = model_file_str(f, key, &text);
    (void)snprintf(value, MAX_VALUE, "{}");
    if (e == QUIRE_OK) {
        (void)snprintf(value, MAX_VALUE, "\"%.*s\"", (int)(text.n < 60 ? text.n : 60), text.p);
    } else if (e == QUIRE_NOT_FOUND) {
        (void)snprintf(value, MAX_VALUE, "absent");
    } else if (model_file_i64(f, key, &number) == QUIRE_OK) {
        (void)snprintf(value, MAX_VALUE, "%lld", (long long)number);
    } else if (model_file_bool(f, key, &flag) == QUIRE_OK) {
        (void)snprintf(value, MAX_VALUE, "%s", flag ? "true" : "false");
    }
}

/* Writes a rule's values as in a sentence: "a, b or c". */
static void quant_list_values(const char *values, strbuf *out) {
    for (const char *at = values; *at != 0;) {
        const size_t n = strcspn(at, "|");
        const bool is_last = at[n] == 0;
        (void)strbuf_addf(out, "%s%.*s", at == values ? "" : is_last ? " or " : ", ", (int)n, at);
        at += is_last ? n : n + 1;
    }
}

static quire_err quant_check_value(const model_file *f, const char *key, const char *values,
                                   quire_error *err) {
    char value[MAX_VALUE];
    strbuf list = {0};
    quant_spell(f, key, value);
    if (str_is_one_of(str_of(value), values)) {
        return QUIRE_OK;
    }
    quant_list_values(values, &list);
    quire_err e = err_set(err, QUIRE_UNSUPPORTED, -1, "%s: %s is %s; this version reads %s",
                          model_file_path(f), key, value, list.n > 0 ? list.p : "others");
    strbuf_deinit(&list);
    return e;
}

/* Checks one rule, for each config group if its key has a "*". */
static quire_err quant_check_rule(const model_file *f, const quant_rule *rule, quire_error *err) {
    const char *star = strchr(rule->key, '*');
    char key[QUANT_KEY_BYTES];
    if (star == NULL) {
        (void)snprintf(key, sizeof key, QUANT_CONFIG ".%s", rule->key);
        return quant_check_value(f, key, rule->values, err);
    }
    for (int group = 0; group < QUANT_GROUPS; group++) {
        if (model_file_is_object(f, quant_group_key(group, "", key))) {
            TRY(quant_check_value(f, quant_group_key(group, star + 1, key), rule->values, err));
        }
    }
    return QUIRE_OK;
}

bool quant_is(const model_file *f) {
    return model_file_format(f) == MODEL_HF && model_file_is_object(f, QUANT_CONFIG);
}

bool quant_is_integers(const model_file *f, dtype codes) {
    str method;
    bool is_bnb = model_file_str(f, QUANT_CONFIG ".quant_method", &method) == QUIRE_OK &&
                  str_is(method, "bitsandbytes");
    return model_file_format(f) == MODEL_HF && (codes == DTYPE_I32 || codes == DTYPE_U8) && !is_bnb;
}

bool quant_has_fp8_kv(const model_file *f) {
    static const char *const algorithms[] = {QUANT_CONFIG ".kv_cache_quant_algo",
                                             QUANT_CONFIG ".quantization.kv_cache_quant_algo"};
    str name;
    int64_t bits = 0;
    bool is = model_file_str(f, QUANT_CONFIG ".kv_cache_scheme.type", &name) == QUIRE_OK &&
              str_is(name, "float") &&
              model_file_i64(f, QUANT_CONFIG ".kv_cache_scheme.num_bits", &bits) == QUIRE_OK && bits == 8;
    for (size_t i = 0; i < sizeof algorithms / sizeof *algorithms; i++) {
        is = is || (model_file_str(f, algorithms[i], &name) == QUIRE_OK && str_is(name, "FP8"));
    }
    return model_file_format(f) == MODEL_HF && is;
}

quire_err quant_check(const model_file *f, quire_error *err) {
    str method = {0};
    const quant_rule *rules = NULL;
    if (!quant_is(f)) {
        return QUIRE_OK;
    }
    (void)model_file_str(f, QUANT_CONFIG ".quant_method", &method);
    for (size_t i = 0; i < sizeof tables / sizeof *tables; i++) {
        rules = str_is(method, tables[i].method) ? tables[i].rules : rules;
    }
    if (rules == NULL) {
        return err_set(
            err, QUIRE_UNSUPPORTED, -1,
            "%s: " QUANT_CONFIG ".quant_method in config.json is \"%.*s\"; this version reads "
            "gptq, awq, auto-round, fp8, fbgemm_fp8, compressed-tensors, "
            "modelopt, quark, bitsandbytes and mxfp4: download the original weights or a GGUF file",
            model_file_path(f), (int)(method.n < 60 ? method.n : 60), method.p);
    }
    for (const quant_rule *rule = rules; rule->key != NULL; rule++) {
        TRY(quant_check_rule(f, rule, err));
    }
    return QUIRE_OK;
}
