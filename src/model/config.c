#include "model/config.h"

#include <assert.h>
#include <limits.h>
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#define MAX_KEY 160

config config_of(const model_file *f, const char *name, quire_error *err) {
    config c = {.f = f, .arch = name, .is_gguf = model_file_format(f) == MODEL_GGUF, .err = err};
    c.has_text = !c.is_gguf && model_file_is_object(f, "text_config");
    return c;
}

quire_err config_bad(const config *c, const char *key, const char *what) {
    assert(c != NULL);
    const char *flag = model_file_set_by(c->f, key);
    return err_set(c->err, QUIRE_BAD_FILE, -1, "%s: %s %s%s%s%s", model_file_path(c->f), key, what,
                   flag != NULL ? " (" : "", flag != NULL ? flag : "", flag != NULL ? " sets it)" : "");
}

quire_err config_unsupported(const config *c, const char *what) {
    return err_set(c->err, QUIRE_UNSUPPORTED, -1, "%s: %s", model_file_path(c->f), what);
}

/* ---- keys ---- */

/* Looks a key up and stores its value; the value's type depends on the function.
 * QUIRE_NOT_FOUND. */
typedef quire_err (*find_fn)(const model_file *f, const char *key, void *out);

static quire_err find_i64(const model_file *f, const char *key, void *out) {
    return model_file_i64(f, key, out);
}

static quire_err find_f32(const model_file *f, const char *key, void *out) {
    return model_file_f32(f, key, out);
}

static quire_err find_bool(const model_file *f, const char *key, void *out) {
    int64_t number;
    quire_err e = model_file_bool(f, key, out);
    if (e == QUIRE_BAD_FILE && model_file_i64(f, key, &number) == QUIRE_OK) {
        *(bool *)out = number != 0;
        return QUIRE_OK;
    }
    return e;
}

static quire_err find_str(const model_file *f, const char *key, void *out) {
    return model_file_str(f, key, out);
}

static quire_err find_any(const model_file *f, const char *key, void *out) {
    (void)out;
    bool b;
    return model_file_bool(f, key, &b) == QUIRE_NOT_FOUND ? QUIRE_NOT_FOUND : QUIRE_OK;
}

/* Tries a path of config.json inside text_config, then at the top. key: the one found. */
static quire_err find_hf(const config *c, const char *path, size_t n, find_fn find, void *out,
                         char key[MAX_KEY]) {
    if (c->has_text) {
        snprintf(key, MAX_KEY, "text_config.%.*s", (int)n, path);
        quire_err e = find(c->f, key, out);
        if (e != QUIRE_NOT_FOUND) {
            return e;
        }
    }
    snprintf(key, MAX_KEY, "%.*s", (int)n, path);
    return find(c->f, key, out);
}

/* Values that GGUF has no key for can be set by --override-kv, with config.json's name
 * after the architecture's. */
static quire_err find_set(const config *c, const char *path, size_t n, find_fn find, void *out,
                          char key[MAX_KEY]) {
    snprintf(key, MAX_KEY, "%s.%.*s", c->arch, (int)n, path);
    return model_file_set_by(c->f, key) != NULL ? find(c->f, key, out) : QUIRE_NOT_FOUND;
}

/* QUIRE_NOT_FOUND: none of the keys is present; key is then the first, for messages. */
static quire_err find_key(const config *c, const char *gguf, const char *hf, find_fn find, void *out,
                          char key[MAX_KEY]) {
    if (c->is_gguf && gguf != NULL) {
        snprintf(key, MAX_KEY, "%s.%s", c->arch, gguf);
        return find(c->f, key, out);
    }
    for (const char *path = hf; path != NULL;) {
        size_t n = strcspn(path, "|");
        quire_err e = (c->is_gguf ? find_set : find_hf)(c, path, n, find, out, key);
        if (e != QUIRE_NOT_FOUND) {
            return e;
        }
        path = path[n] == '|' ? path + n + 1 : NULL;
    }
    snprintf(key, MAX_KEY, "%.*s", hf != NULL ? (int)strcspn(hf, "|") : 0, hf != NULL ? hf : "");
    return QUIRE_NOT_FOUND;
}

/* ---- values ---- */

static quire_err read_i32(const config *c, const char *gguf, const char *hf, int32_t least, int32_t *out,
                          char key[MAX_KEY]) {
    int64_t v;
    quire_err e = find_key(c, gguf, hf, find_i64, &v, key);
    if (e == QUIRE_NOT_FOUND) {
        return e;
    }
    if (e != QUIRE_OK || v < least || v > INT32_MAX) {
        return config_bad(c, key,
                          least < 0 ? "must be a whole number of at least -1"
                                    : "must be a whole number from 0 to 2147483647");
    }
    *out = (int32_t)v;
    return QUIRE_OK;
}

quire_err config_i32(const config *c, const char *gguf, const char *hf, int32_t *out) {
    char key[MAX_KEY];
    quire_err e = read_i32(c, gguf, hf, 0, out, key);
    return e == QUIRE_NOT_FOUND ? QUIRE_OK : e;
}

quire_err config_layer(const config *c, const char *gguf, const char *hf, int32_t *out) {
    char key[MAX_KEY];
    quire_err e = read_i32(c, gguf, hf, -1, out, key);
    return e == QUIRE_NOT_FOUND ? QUIRE_OK : e;
}

quire_err config_need_i32(const config *c, const char *gguf, const char *hf, int32_t *out) {
    char key[MAX_KEY];
    quire_err e = read_i32(c, gguf, hf, 0, out, key);
    return e == QUIRE_NOT_FOUND ? config_bad(c, key, "is missing from the metadata") : e;
}

quire_err config_f32(const config *c, const char *gguf, const char *hf, float *out) {
    char key[MAX_KEY];
    float v;
    quire_err e = find_key(c, gguf, hf, find_f32, &v, key);
    if (e == QUIRE_NOT_FOUND) {
        return QUIRE_OK;
    }
    if (e != QUIRE_OK || !isfinite(v)) {
        return config_bad(c, key, "must be a finite number");
    }
    *out = v;
    return QUIRE_OK;
}

quire_err config_bad_at(const config *c, const char *gguf, const char *hf, const char *what) {
    char key[MAX_KEY];
    (void)find_key(c, gguf, hf, find_any, NULL, key);
    return config_bad(c, key, what);
}

quire_err config_check(const config *c, const char *gguf, const char *hf, int32_t n, int32_t least,
                       int32_t most) {
    char key[MAX_KEY];
    if (n >= least && n <= most) {
        return QUIRE_OK;
    }
    (void)find_key(c, gguf, hf, find_any, NULL, key);
    return err_set(c->err, QUIRE_UNSUPPORTED, -1, "%s: %s is %d; this build supports %d to %d",
                   model_file_path(c->f), key, (int)n, (int)least, (int)most);
}

quire_err config_i32_or_none(const config *c, const char *gguf, const char *hf, int32_t *out) {
    int32_t v = -1;
    TRY(config_i32(c, gguf, hf, &v));
    if (v == 0 && !c->is_gguf) {
        return config_bad_at(c, NULL, hf, "must be over 0, or null for none");
    }
    *out = v >= 0 ? v : config_is_null(c, hf) ? 0 : *out;
    return QUIRE_OK;
}

quire_err config_f32_or_none(const config *c, const char *gguf, const char *hf, float *out) {
    float v = -1.0f;
    bool has = config_has(c, gguf, hf);
    TRY(config_f32(c, gguf, hf, &v));
    if (has && (v < 0.0f || (v == 0.0f && !c->is_gguf))) {
        return config_bad_at(c, gguf, hf, "must be over 0, or null for none");
    }
    *out = has ? v : config_is_null(c, hf) ? 0.0f : *out;
    return QUIRE_OK;
}

quire_err config_bool(const config *c, const char *gguf, const char *hf, bool *out) {
    char key[MAX_KEY];
    quire_err e = find_key(c, gguf, hf, find_bool, out, key);
    return e == QUIRE_OK || e == QUIRE_NOT_FOUND ? QUIRE_OK : config_bad(c, key, "must be true or false");
}

quire_err config_str(const config *c, const char *gguf, const char *hf, str *out) {
    char key[MAX_KEY];
    quire_err e = find_key(c, gguf, hf, find_str, out, key);
    return e == QUIRE_OK || e == QUIRE_NOT_FOUND ? QUIRE_OK : config_bad(c, key, "must be a string");
}

/* Finds the length of a list. */
static quire_err find_list(const model_file *f, const char *key, void *out) {
    int64_t none;
    return model_file_i64s(f, key, &none, 0, out);
}

quire_err config_i32s(const config *c, const char *gguf, const char *hf, int32_t *out, size_t max,
                      size_t *n) {
    char key[MAX_KEY];
    size_t length = 0;
    *n = 0;
    quire_err e = find_key(c, gguf, hf, find_list, &length, key);
    if (e == QUIRE_NOT_FOUND) {
        return QUIRE_OK;
    }
    int64_t values[DESC_MAX_LAYERS];
    if (e != QUIRE_OK || length > max || max > DESC_MAX_LAYERS ||
        model_file_i64s(c->f, key, values, max, &length) != QUIRE_OK) {
        return config_bad(c, key, "must be a list of numbers, at most one for each layer");
    }
    for (size_t i = 0; i < length; i++) {
        if (values[i] < 0 || values[i] > INT32_MAX) {
            return config_bad(c, key, "must be a list of whole numbers from 0 to 2147483647");
        }
        out[i] = (int32_t)values[i];
    }
    *n = length;
    return QUIRE_OK;
}

static quire_err find_floats(const model_file *f, const char *key, void *out) {
    float none;
    return model_file_f32s(f, key, &none, 0, out);
}

quire_err config_same_i32(const config *c, const char *gguf, const char *hf, int32_t *out) {
    int32_t all[DESC_MAX_LAYERS];
    char key[MAX_KEY];
    size_t n, length;
    TRY(config_i32s(c, gguf, hf, all, DESC_MAX_LAYERS, &n));
    for (size_t i = 0; i < n; i++) {
        if (all[i] != all[0]) {
            (void)find_key(c, gguf, hf, find_list, &length, key);
            return err_set(c->err, QUIRE_UNSUPPORTED, -1,
                           "%s: %s is %d in layer 0 and %d in layer %zu: this architecture needs one number "
                           "for all layers",
                           model_file_path(c->f), key, (int)all[0], (int)all[i], i);
        }
        *out = all[0];
    }
    return QUIRE_OK;
}

quire_err config_f32s(const config *c, const char *hf, float *out, size_t max, size_t *n) {
    char key[MAX_KEY];
    *n = 0;
    quire_err e = find_key(c, NULL, hf, find_floats, n, key);
    if (e == QUIRE_NOT_FOUND) {
        return QUIRE_OK;
    }
    if (e != QUIRE_OK || *n > max || model_file_f32s(c->f, key, out, max, n) != QUIRE_OK) {
        return config_bad(c, key, "must be a list of numbers, no longer than the model can use");
    }
    return QUIRE_OK;
}

/* An element of a list, found through find_key. */
typedef struct list_element {
    size_t i;
    float value;
    bool found; /* present and not null */
} list_element;

static quire_err find_element(const model_file *f, const char *key, void *out) {
    list_element *e = out;
    if (find_any(f, key, NULL) == QUIRE_NOT_FOUND) {
        return QUIRE_NOT_FOUND;
    }
    quire_err read = model_file_f32_at(f, key, e->i, &e->value);
    e->found = read == QUIRE_OK;
    return read == QUIRE_NOT_FOUND ? QUIRE_OK : read;
}

quire_err config_f32_at(const config *c, const char *gguf, const char *hf, size_t i, float *out) {
    char key[MAX_KEY];
    list_element element = {.i = i};
    quire_err e = find_key(c, gguf, hf, find_element, &element, key);
    if (e == QUIRE_NOT_FOUND) {
        return QUIRE_OK;
    }
    if (e != QUIRE_OK || (element.found && !isfinite(element.value))) {
        return config_bad(c, key, "must be a list of finite numbers");
    }
    *out = element.found ? element.value : *out;
    return QUIRE_OK;
}

bool config_is_list(const config *c, const char *hf) {
    char key[MAX_KEY];
    size_t n = 0;
    return !c->is_gguf && find_key(c, NULL, hf, find_floats, &n, key) == QUIRE_OK && n > 0;
}

quire_err config_str_at(const config *c, const char *hf, size_t i, str *out) {
    char key[MAX_KEY];
    *out = (str){0};
    snprintf(key, sizeof key, "%s.%s", c->arch, hf);
    if (c->is_gguf && model_file_set_by(c->f, key) == NULL) {
        return QUIRE_OK;
    }
    for (int text = c->has_text; text >= 0; text--) {
        snprintf(key, sizeof key, "%s%s%s",
                 c->is_gguf ? c->arch
                 : text     ? "text_config"
                            : "",
                 c->is_gguf || text ? "." : "", hf);
        quire_err e = model_file_str_at(c->f, key, i, out, NULL);
        if (e != QUIRE_NOT_FOUND) {
            return e == QUIRE_OK ? e : config_bad(c, key, "must be a list of strings");
        }
    }
    return QUIRE_OK;
}

static quire_err find_null(const model_file *f, const char *key, void *out) {
    bool is_null = model_file_is_null(f, key);
    *(bool *)out = is_null;
    return is_null ? QUIRE_OK : find_any(f, key, NULL);
}

static quire_err find_object(const model_file *f, const char *key, void *out) {
    return model_file_is_object(f, key)               ? QUIRE_OK
           : find_any(f, key, out) == QUIRE_NOT_FOUND ? QUIRE_NOT_FOUND
                                                      : QUIRE_BAD_FILE;
}

quire_err config_object(const config *c, const char *hf) {
    assert(c != NULL);
    char key[MAX_KEY];
    quire_err e = c->is_gguf ? QUIRE_NOT_FOUND : find_key(c, NULL, hf, find_object, NULL, key);
    return e == QUIRE_OK || e == QUIRE_NOT_FOUND ? QUIRE_OK
                                                 : config_bad(c, key, "must be an object, or null");
}

bool config_is_null(const config *c, const char *hf) {
    char key[MAX_KEY];
    bool is_null = false;
    return !c->is_gguf && find_key(c, NULL, hf, find_null, &is_null, key) == QUIRE_OK && is_null;
}

bool config_is(const config *c, const char *architecture) {
    return !c->is_gguf && strcmp(c->arch, architecture) == 0;
}

bool config_has(const config *c, const char *gguf, const char *hf) {
    char key[MAX_KEY];
    return find_key(c, gguf, hf, find_any, NULL, key) == QUIRE_OK;
}

/* Values of published configurations. */

/* Columns: name, width, layers, heads, KV heads, head width, feed-forward width,
 * vocabulary, positions, epsilon, rotary base, experts, experts used, experts' width. */
static const published all[] = {
    {"llama", 4096, 32, 32, 0, 0, 11008, 32000, 2048, 1e-6f, 1e4f, 0, 0, 0},
    {"mistral", 4096, 32, 32, 8, 0, 14336, 32000, 131072, 1e-6f, 1e4f, 0, 0, 0},
    {"iquestcoder", 5120, 80, 40, 8, 128, 27648, 76800, 131072, 1e-5f, 1e4f, 0, 0, 0},
    {"exaone", 4096, 32, 32, 0, 0, 16384, 102400, 2048, 1e-5f, 1e4f, 0, 0, 0},
    {"minicpm", 4096, 32, 32, 0, 0, 11008, 32000, 2048, 1e-6f, 1e4f, 0, 0, 0},
    {"internlm2", 4096, 32, 32, 0, 0, 11008, 103168, 2048, 1e-6f, 1e4f, 0, 0, 0},
    {"helium", 2560, 24, 20, 0, 128, 7040, 48000, 4096, 1e-8f, 1e5f, 0, 0, 0},
    {"jais2", 3328, 32, 26, 0, 0, 26624, 150272, 8192, 1e-5f, 1e4f, 0, 0, 0},
    {"vaultgemma", 2304, 26, 8, 4, 256, 9216, 256000, 8192, 1e-6f, 1e4f, 0, 0, 0},
    {"arcee", 2560, 32, 32, 0, 0, 18432, 32000, 4096, 1e-5f, 1e4f, 0, 0, 0},
    {"cwm", 6144, 64, 48, 8, 128, 21504, 128256, 131072, 1e-5f, 1e6f, 0, 0, 0},
    {"mixtral", 4096, 32, 32, 8, 0, 14336, 32000, 131072, 1e-5f, 1e6f, 8, 2, 0},
    {"qwen2", 4096, 32, 32, 0, 0, 22016, 151936, 32768, 1e-6f, 1e4f, 0, 0, 0},
    {"qwen2vl", 8192, 80, 64, 8, 0, 29568, 152064, 32768, 1e-5f, 1e6f, 0, 0, 0},
    {"qwen2moe", 2048, 24, 16, 0, 0, 5632, 151936, 32768, 1e-6f, 1e4f, 60, 4, 1408},
    {"qwen3", 4096, 32, 32, 0, 128, 22016, 151936, 32768, 1e-6f, 1e4f, 0, 0, 0},
    {"qwen3vl", 4096, 32, 32, 0, 128, 22016, 151936, 128000, 1e-6f, 5e5f, 0, 0, 0},
    {"qwen3vlmoe", 2048, 24, 16, 0, 128, 5632, 151936, 128000, 1e-6f, 5e5f, 60, 4, 1408},
    {"qwen3moe", 2048, 24, 32, 4, 0, 6144, 151936, 32768, 1e-6f, 1e4f, 128, 8, 768},
    {"gemma", 3072, 28, 16, 0, 256, 24576, 256000, 8192, 1e-6f, 1e4f, 0, 0, 0},
    {"gemma2", 2304, 26, 8, 4, 256, 9216, 256000, 8192, 1e-6f, 1e4f, 0, 0, 0},
    {"gemma3", 2304, 26, 8, 4, 256, 9216, 262208, 131072, 1e-6f, 1e6f, 0, 0, 0},
    {"gemma-embedding", 2304, 26, 8, 4, 256, 9216, 262208, 131072, 1e-6f, 1e6f, 0, 0, 0},
    {"deepseek2", 7168, 61, 128, 0, 0, 18432, 129280, 4096, 1e-6f, 1e4f, 256, 8, 2048},
    {"deepseek-v2", 4096, 32, 32, 0, 0, 11008, 32000, 2048, 1e-6f, 1e4f, 64, 0, 1407},
    {"axk1", 7168, 61, 64, 0, 0, 18432, 163840, 32768, 1e-6f, 1e4f, 192, 8, 2048},
    {"axk2", 2048, 48, 32, 0, 0, 5120, 163840, 131072, 1e-6f, 1e4f, 128, 8, 512},
    {"deepseek32", 7168, 61, 128, 0, 0, 18432, 129280, 163840, 1e-6f, 1e4f, 256, 8, 2048},
    {"glm-dsa", 6144, 78, 64, 0, 0, 12288, 154880, 202752, 1e-5f, 1e4f, 256, 8, 2048},
    {"longcat-flash", 6144, 28, 64, 0, 0, 12288, 131072, 131072, 1e-5f, 1e7f, 512, 12, 2048},
    {"glm5-next", 4096, 45, 64, 0, 0, 12288, 154880, 1048576, 1e-5f, 0, 288, 8, 2048},
    {"qwen4exp", 2048, 40, 16, 2, 256, 0, 248320, 32768, 1e-6f, 1e4f, 512, 10, 512},
    {"glm4-moe-lite", 2048, 47, 20, 0, 0, 10240, 154880, 202752, 1e-5f, 1e4f, 64, 4, 1536},
    {"youtu", 2048, 32, 16, 0, 0, 6144, 128256, 131072, 1e-6f, 1e4f, 0, 0, 0},
    {"mistral4", 4096, 36, 32, 0, 0, 12288, 131072, 1048576, 1e-6f, 1e4f, 128, 4, 2048},
    {"mistral-large4", 6144, 72, 64, 0, 0, 24576, 204800, 1048576, 1e-5f, 1e4f, 128, 4, 6144},
    {"minicpm3", 2560, 62, 40, 0, 0, 6400, 73448, 32768, 1e-5f, 1e4f, 0, 0, 0},
    {"phi2", 2048, 24, 32, 0, 0, 8192, 51200, 2048, 1e-5f, 1e4f, 0, 0, 0},
    {"phi3", 3072, 32, 32, 0, 0, 8192, 32064, 4096, 1e-5f, 1e4f, 0, 0, 0},
    {"phimoe", 4096, 32, 32, 8, 0, 6400, 32064, 131072, 1e-5f, 1e6f, 16, 2, 0},
    {"gpt2", 768, 12, 12, 0, 0, 0, 50257, 1024, 1e-5f, 0, 0, 0, 0},
    {"starcoder", 768, 12, 12, 0, 0, 0, 50257, 1024, 1e-5f, 0, 0, 0, 0},
    {"gptj", 4096, 28, 16, 0, 0, 0, 50400, 2048, 1e-5f, 0, 0, 0, 0},
    {"gptneox", 6144, 44, 64, 0, 0, 24576, 50432, 2048, 1e-5f, 1e4f, 0, 0, 0},
    {"opt", 768, 12, 12, 0, 0, 3072, 50272, 2048, 1e-5f, 0, 0, 0, 0},
    {"starcoder2", 3072, 30, 24, 2, 0, 12288, 49152, 4096, 1e-5f, 1e4f, 0, 0, 0},
    {"falcon", 4544, 32, 71, 0, 0, 0, 65024, 2048, 1e-5f, 1e4f, 0, 0, 0},
    {"bloom", 64, 2, 8, 0, 0, 0, 250880, 2048, 1e-5f, 0, 0, 0, 0},
    {"mpt", 2048, 24, 16, 0, 0, 0, 50368, 2048, 1e-5f, 0, 0, 0, 0},
    {"command-r", 8192, 40, 64, 0, 0, 22528, 256000, 8192, 1e-5f, 5e5f, 0, 0, 0},
    {"cohere2", 8192, 40, 64, 0, 0, 22528, 256000, 8192, 1e-5f, 1e4f, 0, 0, 0},
    {"chatglm", 4096, 40, 32, 2, 128, 13696, 151552, 131072, 1.5625e-7f, 1e4f, 0, 0, 0},
    {"glm4", 4096, 40, 32, 2, 128, 13696, 151552, 131072, 1.5625e-7f, 1e4f, 0, 0, 0},
    {"glm4v", 4096, 40, 32, 2, 0, 13696, 151552, 32768, 1e-5f, 1e4f, 0, 0, 0},
    {"glm4v-moe", 4096, 46, 96, 8, 0, 10944, 151424, 65536, 1e-5f, 1e4f, 128, 8, 1408},
    {"glm4moe", 4096, 46, 96, 8, 0, 10944, 151552, 131072, 1e-5f, 1e4f, 128, 8, 1408},
    {"dots1", 4608, 62, 32, 0, 0, 10944, 152064, 2048, 1e-6f, 1e4f, 0, 0, 1408},
    {"solar-open", 4096, 48, 64, 8, 128, 10240, 196608, 131072, 1e-5f, 1e6f, 128, 8, 1280},
    {"olmo", 4096, 32, 32, 0, 0, 11008, 50304, 2048, 1e-5f, 1e4f, 0, 0, 0},
    {"olmo2", 4096, 32, 32, 0, 0, 11008, 50304, 2048, 1e-5f, 1e4f, 0, 0, 0},
    {"olmoe", 2048, 16, 16, 0, 0, 2048, 50304, 4096, 1e-5f, 1e4f, 64, 8, 0},
    {"granite", 4096, 32, 32, 0, 0, 11008, 32000, 2048, 1e-6f, 1e4f, 0, 0, 0},
    {"granitemoe", 4096, 32, 32, 0, 0, 11008, 32000, 2048, 1e-6f, 1e4f, 8, 2, 0},
    {"hyperclovax", 4096, 32, 32, 0, 0, 11008, 32000, 2048, 1e-6f, 1e4f, 0, 0, 0},
    {"nemotron", 6144, 32, 48, 0, 0, 24576, 256000, 4096, 1e-5f, 1e4f, 0, 0, 0},
    {"stablelm", 2560, 32, 32, 0, 0, 6912, 50304, 4096, 1e-5f, 1e4f, 0, 0, 0},
    {"smollm3", 2048, 36, 16, 4, 0, 11008, 128256, 32768, 1e-6f, 2e6f, 0, 0, 0},
    {"ernie4_5", 1024, 18, 16, 2, 128, 3072, 103424, 131072, 1e-5f, 5e5f, 0, 0, 0},
    {"ernie4_5-moe", 2560, 28, 20, 4, 0, 12288, 103424, 131072, 1e-5f, 5e5f, 64, 6, 1536},
    {"exaone4", 4096, 32, 32, 0, 0, 16384, 102400, 2048, 1e-5f, 1e4f, 0, 0, 0},
    {"hunyuan-dense", 4096, 32, 32, 0, 0, 11008, 290943, 2048, 1e-5f, 1e4f, 0, 0, 0},
    {"hunyuan-moe", 4096, 32, 32, 0, 0, 11008, 290943, 2048, 1e-5f, 1e4f, 1, 1, 0},
    {"seed_oss", 4096, 64, 80, 8, 128, 27648, 155136, 524288, 1e-6f, 1e4f, 0, 0, 0},
    {"minimax-m3", 6144, 60, 64, 4, 128, 3072, 200064, 524288, 1e-6f, 5e6f, 128, 4, 0},
    {"minimax-m2", 3072, 62, 48, 8, 128, 1536, 200064, 196608, 1e-6f, 5e6f, 256, 8, 0},
    {"gpt-oss", 2880, 36, 64, 8, 64, 2880, 201088, 131072, 1e-5f, 1.5e5f, 128, 4, 0},
    {"llama4", 5120, 48, 40, 8, 128, 8192, 202048, 131072, 1e-5f, 5e5f, 16, 1, 0},
    {"gemma4", 2304, 30, 8, 4, 256, 9216, 262144, 131072, 1e-6f, 1e4f, 0, 0, 0},
    {"gemma3n", 2048, 35, 8, 2, 256, 16384, 262400, 32768, 1e-6f, 1e6f, 0, 0, 0},
    {"muse-spark", 0, 0, 0, 0, 128, 0, 0, 1048576, 1e-5f, 5e5f, 0, 0, 0},
    {"flex_olmo", 4096, 32, 32, 0, 0, 11008, 100352, 4096, 1e-6f, 5e5f, 7, 5, 0},
    {"nanochat", 768, 12, 6, 0, 0, 8192, 50304, 2048, 1e-6f, 1e4f, 0, 0, 0},
    {"bitnet-b1.58", 2560, 30, 20, 5, 0, 6912, 128256, 2048, 1e-5f, 5e5f, 0, 0, 0},
    {"ernie4_5-vl-moe", 2560, 28, 20, 4, 0, 12288, 103424, 131072, 1e-5f, 5e5f, 64, 6, 1536},
    {"step35", 4096, 45, 64, 8, 128, 11264, 128815, 128000, 1e-5f, 1e4f, 288, 8, 1280},
    {"muse-glimmer", 6656, 52, 32, 2, 128, 19968, 202048, 131072, 1e-5f, 1e4f, 0, 0, 0},
    {"apertus", 4096, 32, 32, 0, 0, 14336, 131072, 65536, 1e-5f, 1.2e7f, 0, 0, 0},
    {"exaone-moe", 4096, 32, 32, 0, 0, 16384, 102400, 2048, 1e-5f, 1e4f, 64, 8, 1024},
    {"hy_v3", 4096, 80, 64, 8, 128, 13312, 120832, 131072, 1e-5f, 1.115884e7f, 192, 8, 1536},
    {"mimo2", 4096, 48, 64, 4, 192, 16384, 152576, 131072, 1e-5f, 5e6f, 256, 8, 2048},
    {"laguna", 2048, 40, 48, 8, 128, 8192, 100352, 131072, 1e-6f, 1e4f, 256, 8, 512},
    {"mellum", 2304, 28, 32, 4, 128, 7168, 98304, 131072, 1e-6f, 1e4f, 64, 8, 896},
    {"afmoe", 2048, 32, 16, 0, 128, 6144, 200192, 16384, 1e-5f, 1e4f, 64, 6, 1408},
    {"beam", 5120, 52, 48, 8, 128, 20480, 151936, 8192, 1e-6f, 1e4f, 256, 8, 2560},
    {"kolibri1", 2560, 50, 48, 4, 128, 512, 128000, 262144, 1e-6f, 1e4f, 384, 6, 512},
    {"flint", 2048, 49, 32, 4, 128, 6144, 150144, 262144, 1e-6f, 1e4f, 256, 6, 512},
    {"granite_swa", 2560, 24, 20, 4, 0, 8192, 100352, 8192, 1e-5f, 1e4f, 0, 0, 0},
    {"granitemoe_swa", 4096, 32, 32, 0, 0, 11008, 32000, 2048, 1e-6f, 1e4f, 8, 2, 0},
    {"cohere2moe", 8192, 40, 64, 0, 128, 22528, 256000, 8192, 1e-5f, 1e4f, 8, 2, 0},
    {"cohere_compass", 8192, 40, 64, 0, 0, 22528, 256000, 8192, 1e-5f, 1e4f, 0, 0, 0},
    {"lfm2", 2560, 32, 32, 8, 0, 12288, 65536, 128000, 1e-5f, 1e6f, 0, 0, 0},
    {"lfm2moe", 2048, 32, 32, 8, 0, 7168, 65536, 128000, 1e-5f, 1e6f, 32, 4, 1792},
    {"lfm3", 2048, 24, 16, 4, 128, 7680, 128000, 128000, 1e-5f, 1e6f, 0, 0, 0},
    {"lara-mini", 1024, 34, 16, 4, 128, 512, 151936, 131072, 1e-6f, 1e4f, 128, 4, 512},
    {"qwen3next", 2048, 48, 16, 2, 256, 5632, 151936, 32768, 1e-6f, 1e4f, 512, 10, 512},
    {"qwen35", 4096, 32, 16, 4, 256, 12288, 248320, 32768, 1e-6f, 1e4f, 0, 0, 0},
    {"qwen35moe", 2048, 40, 16, 2, 256, 5632, 248320, 32768, 1e-6f, 1e4f, 256, 8, 512},
    {"minimax", 4096, 32, 32, 8, 0, 14336, 32000, 131072, 1e-5f, 1e6f, 8, 2, 0},
    {"kimi-linear", 2304, 27, 32, 32, 0, 9216, 163840, 1048576, 1e-5f, 1e4f, 256, 8, 1024},
    {"bailingmoe3", 8192, 80, 64, 64, 0, 18432, 157184, 262144, 1e-6f, 6e6f, 256, 8, 2048},
    {"olmo-hybrid", 3840, 32, 30, 0, 0, 11008, 100352, 65536, 1e-6f, 0, 0, 0, 0},
    {"mamba", 768, 32, 0, 0, 0, 0, 50280, 1048576, 1e-5f, 0, 0, 0, 0},
    {"mamba2", 4096, 64, 0, 0, 0, 0, 32768, 1048576, 1e-5f, 0, 0, 0, 0},
    {"nemotron_h", 4096, 52, 32, 8, 128, 21504, 131072, 4096, 1e-5f, 0, 8, 2, 7688},
    {"granitehybrid", 4096, 32, 32, 0, 0, 11008, 32000, 2048, 1e-6f, 1e4f, 8, 2, 0},
    {"bamba", 4096, 32, 32, 8, 0, 14336, 128000, 262144, 1e-5f, 1e4f, 0, 0, 0},
    {"falcon-h1", 4096, 32, 32, 8, 0, 14336, 128000, 8192, 1e-5f, 1e4f, 0, 0, 0},
    {"jamba", 4096, 32, 32, 8, 0, 14336, 65536, 262144, 1e-6f, 0, 16, 2, 0},
    {"zamba2", 2560, 54, 32, 0, 0, 0, 32000, 4096, 1e-5f, 1e4f, 0, 0, 0},
    {"recurrentgemma", 2560, 26, 10, 0, 0, 7680, 256000, 8192, 1e-6f, 1e4f, 0, 0, 0},
    {"bert", 768, 12, 12, 0, 0, 3072, 30522, 512, 1e-12f, 0, 0, 0, 0},
    {"roberta", 768, 12, 12, 0, 0, 3072, 50265, 512, 1e-12f, 0, 0, 0, 0},
    {"nomic-bert", 768, 12, 12, 0, 0, 3072, 30528, 2048, 1e-12f, 1e3f, 0, 0, 0},
    {"modern-bert", 768, 22, 12, 0, 0, 1152, 50368, 8192, 1e-5f, 1.6e5f, 0, 0, 0},
};

const published *published_of(const char *architecture) {
    static const published none;
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        if (strcmp(all[i].architecture, architecture) == 0) {
            return &all[i];
        }
    }
    return &none;
}
