#include "model/config.h"

#include <assert.h>
#include <limits.h>
#include <math.h>
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

/* Looks a key up: the value of find's type, or QUIRE_NOT_FOUND. */
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

/* Tries a path of config.json inside text_config, then by itself. key: the one that was
 * found. */
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

/* What GGUF has no key for, --override-kv sets by config.json's name after the
 * architecture's. */
static quire_err find_set(const config *c, const char *path, size_t n, find_fn find, void *out,
                          char key[MAX_KEY]) {
    snprintf(key, MAX_KEY, "%s.%.*s", c->arch, (int)n, path);
    return model_file_set_by(c->f, key) != NULL ? find(c->f, key, out) : QUIRE_NOT_FOUND;
}

/* QUIRE_NOT_FOUND: none of the keys is there; key is then the first of them, for
 * messages. */
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
                          least < 0 ? "must be a whole number from -1 on"
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
    return err_set(c->err, QUIRE_UNSUPPORTED, -1, "%s: %s is %d; this build computes %d to %d",
                   model_file_path(c->f), key, (int)n, (int)least, (int)most);
}

quire_err config_i32_or_none(const config *c, const char *gguf, const char *hf, int32_t *out) {
    int32_t v = -1;
    TRY(config_i32(c, gguf, hf, &v));
    if (v == 0 && !c->is_gguf) {
        return config_bad_at(c, NULL, hf, "must be over 0, or null where there is none");
    }
    *out = v >= 0 ? v : config_is_null(c, hf) ? 0 : *out;
    return QUIRE_OK;
}

quire_err config_f32_or_none(const config *c, const char *gguf, const char *hf, float *out) {
    float v = -1.0f;
    bool has = config_has(c, gguf, hf);
    TRY(config_f32(c, gguf, hf, &v));
    if (has && (v < 0.0f || (v == 0.0f && !c->is_gguf))) {
        return config_bad_at(c, gguf, hf, "must be over 0, or null where there is none");
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
    return e == QUIRE_OK || e == QUIRE_NOT_FOUND ? QUIRE_OK : config_bad(c, key, "must be text");
}

/* The length of a list. */
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
        return config_bad(c, key, "must be a list of numbers, one a layer at most");
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
        return config_bad(c, key, "must be a list of numbers, no more than the model has use for");
    }
    return QUIRE_OK;
}

/* An element of a list on the way to find_key's out. */
typedef struct list_element {
    size_t i;
    float value;
    bool found; /* it is there, and not null */
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
            return e == QUIRE_OK ? e : config_bad(c, key, "must be a list of texts");
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
