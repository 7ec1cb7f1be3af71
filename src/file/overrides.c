#include "file/overrides.h"

#include <assert.h>
#include <errno.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/mem.h"
#include "base/str.h"
#include "base/utf8.h"
#include "file/json_doc.h"
#include "file/show.h"
#include "json/json.h"
#include "json/json_out.h"

/* Parses the text of --override-kv, in llama.cpp's form: KEY=TYPE:VALUE, several
 * separated by commas.
 *
 * int: 64 bits. float: finite. bool: true or false. str: up to the next comma, or in
 * double quotes with JSON's escapes. arr: a JSON list, for GGUF's arrays. Stateless: any
 * thread. */

#define FLAG           "--override-kv"
#define LONGEST_NUMBER 400 /* most characters of a number */

static const json_limits limits = {
    .max_depth = 4, .max_values = 1 << 16, .max_containers = 64, .max_names = 0};

static quire_err override_kv_bad(str key, const char *what, quire_error *err) {
    return err_set(err, QUIRE_INVALID, -1, FLAG " %s: %s", show_name(key).text, what);
}

/* Copies a number's text with a 0 byte, as strtod and strtoll need. False: it is too
 * long. */
static bool copy_number(str text, char out[LONGEST_NUMBER + 1]) {
    if (text.n == 0 || text.n > LONGEST_NUMBER || memchr(text.p, 0, text.n) != NULL ||
        strchr("+-.0123456789", text.p[0]) == NULL) {
        return false;
    }
    memcpy(out, text.p, text.n);
    out[text.n] = 0;
    return true;
}

static quire_err write_int(str key, str text, json_out *to, quire_error *err) {
    char number[LONGEST_NUMBER + 1], *end = number;
    errno = 0;
    long long v = copy_number(text, number) ? strtoll(number, &end, 10) : 0;
    if (end == number || *end != 0 || errno == ERANGE) {
        return override_kv_bad(key, "an int must be a 64-bit whole number", err);
    }
    json_int(to, v);
    return QUIRE_OK;
}

static quire_err override_kv_write_float(str key, str text, json_out *to, quire_error *err) {
    char number[LONGEST_NUMBER + 1], *end = number;
    double v = copy_number(text, number) ? c_locale_strtod(number, &end) : 0.0;
    if (end == number || *end != 0 || !isfinite(v)) {
        return override_kv_bad(key, "a float must be a finite number", err);
    }
    json_exact(to, v);
    return QUIRE_OK;
}

static quire_err write_bool(str key, str text, json_out *to, quire_error *err) {
    if (!str_is(text, "true") && !str_is(text, "false")) {
        return override_kv_bad(key, "a bool must be true or false", err);
    }
    json_bool(to, str_is(text, "true"));
    return QUIRE_OK;
}

/* Reads the JSON value at the start of *rest, and moves *rest after it. */
static quire_err override_kv_take_json(str key, str *rest, json_value **out, quire_error *err) {
    size_t n = 0;
    json_fault fault = {0};
    quire_err e = json_check_value(*rest, &n, &limits, NULL, &fault);
    if (e == QUIRE_OK) {
        e = json_read((str){rest->p, n}, &limits, JSON_WIDE_REFUSED, out, &fault);
    }
    if (e != QUIRE_OK) {
        return err_set(err, e == QUIRE_NO_MEMORY ? e : QUIRE_INVALID, -1,
                       FLAG " %s: byte %zu of its value is not JSON: %s", show_name(key).text, fault.at,
                       fault.what);
    }
    *rest = (str){rest->p + n, rest->n - n};
    return QUIRE_OK;
}

/* Reads the text up to the next comma as a value of this type, by way of JSON. */
static quire_err take_plain(str key, str type, str *rest, json_value **out, quire_error *err) {
    const char *comma = memchr(rest->p, ',', rest->n);
    str text = {rest->p, comma != NULL ? (size_t)(comma - rest->p) : rest->n}, written = {0};
    strbuf json = {0};
    json_out to = {.to = &json};
    quire_err e = QUIRE_OK;
    if (str_is(type, "int")) {
        e = write_int(key, text, &to, err);
    } else if (str_is(type, "float")) {
        e = override_kv_write_float(key, text, &to, err);
    } else if (str_is(type, "bool")) {
        e = write_bool(key, text, &to, err);
    } else if (utf8_is_valid(text)) {
        json_text(&to, text.p, text.n);
    } else {
        e = override_kv_bad(key, "its value is not UTF-8", err);
    }
    written = (str){json.p, json.n};
    if (e == QUIRE_OK) {
        e = to.err != QUIRE_OK ? err_set(err, to.err, -1, FLAG ": out of memory")
                               : override_kv_take_json(key, &written, out, err);
    }
    strbuf_deinit(&json);
    *rest = (str){rest->p + text.n, rest->n - text.n};
    return e;
}

static quire_err override_kv_take_value(str key, str type, str *rest, json_value **out, quire_error *err) {
    bool is_text = str_is(type, "str");
    if (str_is(type, "arr")) {
        TRY(override_kv_take_json(key, rest, out, err));
        return json_is(*out, JSON_KIND_ARRAY)
                   ? QUIRE_OK
                   : override_kv_bad(key, "an arr must be a JSON list: [1,2]", err);
    }
    if (is_text && rest->n > 0 && rest->p[0] == '"') {
        return override_kv_take_json(key, rest, out, err);
    }
    if (!is_text && !str_is(type, "int") && !str_is(type, "float") && !str_is(type, "bool")) {
        return override_kv_bad(key, "its type must be int, float, bool, str or arr: KEY=int:4096", err);
    }
    return take_plain(key, type, rest, out, err);
}

/* Takes the first item off *rest, which is not empty. *key is borrowed, *value owned by
 * the caller (json_drop). QUIRE_INVALID: err says what is wrong with the item. */
static quire_err override_kv_next(str *rest, str *key, json_value **value, quire_error *err) {
    const char *equals = memchr(rest->p, '=', rest->n), *end = rest->p + rest->n;
    const char *colon = equals != NULL ? memchr(equals, ':', (size_t)(end - equals)) : NULL;
    *value = NULL;
    if (colon == NULL || equals == rest->p) {
        return override_kv_bad(*rest, "must be KEY=TYPE:VALUE, with commas between several", err);
    }
    *key = (str){rest->p, (size_t)(equals - rest->p)};
    if (!utf8_is_valid(*key)) {
        return override_kv_bad(*key, "a key must be UTF-8", err);
    }
    *rest = (str){colon + 1, (size_t)(end - colon - 1)};
    quire_err e =
        override_kv_take_value(*key, (str){equals + 1, (size_t)(colon - equals - 1)}, rest, value, err);
    if (e == QUIRE_OK && rest->n > 0) {
        e = rest->p[0] != ','
                ? override_kv_bad(*key, "only a comma and another key may follow its value", err)
            : rest->n == 1 ? override_kv_bad(*key, "a key must follow the comma after its value", err)
                           : QUIRE_OK;
        *rest = (str){rest->p + 1, rest->n - 1};
    }
    if (e != QUIRE_OK) {
        json_drop(*value);
        *value = NULL;
    }
    return e;
}

#define MAX_BYTES     ((size_t)1 << 20) /* most bytes of a flag's text */
#define MAX_KEY       127
#define MAX_OVERRIDES 256

/* Limits of a text in config.json's form. Carried overrides have unique names. */
static const json_limits overrides_limits = {.max_depth = 16,
                                             .max_values = 1 << 16,
                                             .max_containers = 4096,
                                             .max_names = 2 * MAX_OVERRIDES,
                                             .names = JSON_NAMES_UNIQUE};

typedef struct override {
    char *key;
    json_value *value; /* NULL: JSON null, so the key counts as missing */
    bool is_carried;   /* comes from a packed model */
    bool is_read;
    char nearest[EDIT_MAX + 1]; /* the most similar key that was looked up; empty: none is similar enough */
    size_t distance;
} override;

struct overrides {
    override *all;
    size_t n, cap;
    bool by_path; /* keys are dotted paths of config.json, so a key may lie inside another's object */
    const char *flag;
    strbuf text;
    pthread_mutex_t mutex; /* guards the records of lookups */
};

const char *overrides_flag(model_format format) {
    return format == MODEL_GGUF ? "--override-kv" : "--hf-overrides";
}

static quire_err overrides_no_memory(const overrides *o, quire_error *err) {
    return err_set(err, QUIRE_NO_MEMORY, -1, "%s: out of memory", o->flag);
}

static quire_err overrides_bad(const overrides *o, const char *key, const char *what, quire_error *err) {
    return err_set(err, QUIRE_INVALID, -1, "%s %s: %s", o->flag, show_name(str_of(key)).text, what);
}

static quire_err overrides_too_long(const overrides *o, const char *key, size_t n, quire_error *err) {
    return err_set(err, QUIRE_INVALID, -1, "%s %s: the key has %s bytes; at most %d are allowed", o->flag,
                   show_name(str_of(key)).text, show_count(n).text, MAX_KEY);
}

/* Whether path is inside the object at outer. */
static bool lies_inside(const overrides *o, const char *path, const char *outer) {
    size_t n = strlen(outer);
    return o->by_path && strncmp(path, outer, n) == 0 && path[n] == '.';
}

/* ---- building ---- */

static void remove_at(overrides *o, size_t i) {
    mem_free(o->all[i].key);
    json_drop(o->all[i].value);
    o->all[i] = o->all[--o->n];
}

/* Adds a key with a reference to its value. Drops carried overrides of this key, inside
 * it and around it. */
static quire_err overrides_add(overrides *o, str key, json_value *value, bool is_carried, quire_error *err) {
    char name[MAX_KEY + 1];
    (void)snprintf(name, sizeof name, "%.*s", (int)(key.n < MAX_KEY ? key.n : MAX_KEY), key.p);
    if (key.n > MAX_KEY) {
        return overrides_too_long(o, name, key.n, err);
    }
    for (size_t i = o->n; i-- > 0;) {
        const override *other = &o->all[i];
        bool same = strcmp(other->key, name) == 0;
        if (other->is_carried && !is_carried &&
            (same || lies_inside(o, name, other->key) || lies_inside(o, other->key, name))) {
            remove_at(o, i);
        } else if (same) {
            return overrides_bad(o, name, "is given twice", err);
        }
    }
    if (o->n == MAX_OVERRIDES) {
        return err_set(err, QUIRE_INVALID, -1, "%s: more than %d keys", o->flag, MAX_OVERRIDES);
    }
    char *copy =
        mem_grow(&o->all, &o->cap, o->n + 1, sizeof *o->all) == QUIRE_OK ? mem_dup(name, key.n) : NULL;
    if (copy == NULL) {
        return overrides_no_memory(o, err);
    }
    o->all[o->n++] = (override){.key = copy, .value = json_share(value), .is_carried = is_carried};
    return QUIRE_OK;
}

/* Adds the members of an object at a path, and of objects in it. n: bytes of the path, 0
 * at the root. */
static quire_err overrides_add_members(overrides *o, char path[MAX_KEY + 1], size_t n,
                                       const json_value *object, quire_error *err) {
    for (json_member m = {0}; json_next(object, &m);) {
        size_t n_name = strlen(m.name), end = n + (n > 0) + n_name;
        if (n_name == 0 || strchr(m.name, '.') != NULL) {
            return overrides_bad(o, m.name,
                                 "a name must not be empty or have a dot; write a path as "
                                 "{\"text_config\":{\"hidden_size\":64}}",
                                 err);
        }
        if (end > MAX_KEY) {
            return overrides_too_long(o, m.name, end, err);
        }
        memcpy(path + n, ".", n > 0 ? 1 : 0);
        memcpy(path + end - n_name, m.name, n_name + 1);
        bool is_object = json_is(m.value, JSON_KIND_OBJECT) && json_doc_meta(m.value).kind == META_OTHER;
        if (is_object && json_length(m.value) == 0) {
            return overrides_bad(o, path, "is an empty object, which changes nothing", err);
        }
        TRY(is_object ? overrides_add_members(o, path, end, m.value, err)
                      : overrides_add(o, (str){path, end}, m.value, false, err));
        path[n] = 0;
    }
    return QUIRE_OK;
}

static quire_err add_hf(overrides *o, str text, quire_error *err) {
    json_value *root = NULL;
    json_fault fault = {0};
    char path[MAX_KEY + 1] = "";
    quire_err e = json_read(text, &overrides_limits, JSON_WIDE_REAL, &root, &fault);
    if (e == QUIRE_NO_MEMORY) {
        return overrides_no_memory(o, err);
    }
    if (e != QUIRE_OK || !json_is(root, JSON_KIND_OBJECT)) {
        e = e == QUIRE_OK ? err_set(err, QUIRE_INVALID, -1,
                                    "%s: must be a JSON object: {\"rope_theta\":1000000.0}", o->flag)
                          : err_set(err, QUIRE_INVALID, -1, "%s: byte %zu: not valid JSON (%s)", o->flag,
                                    fault.at, fault.what);
    } else {
        e = overrides_add_members(o, path, 0, root, err);
    }
    json_drop(root);
    return e;
}

static quire_err overrides_add_kv(overrides *o, str rest, quire_error *err) {
    if (rest.n == 0) {
        return err_set(err, QUIRE_INVALID, -1, "%s: is empty; KEY=TYPE:VALUE sets a key", o->flag);
    }
    while (rest.n > 0) {
        str key;
        json_value *value;
        TRY(override_kv_next(&rest, &key, &value, err));
        quire_err e = overrides_add(o, key, value, false, err);
        json_drop(value);
        TRY(e);
    }
    return QUIRE_OK;
}

static quire_err add_carried(overrides *o, const char *file, str text, quire_error *err) {
    json_value *root = NULL;
    json_fault fault;
    quire_error why;
    quire_err e = text.n <= MAX_BYTES ? json_read(text, &overrides_limits, JSON_WIDE_REAL, &root, &fault)
                                      : QUIRE_TOO_LARGE;
    if (e == QUIRE_OK && !json_is(root, JSON_KIND_OBJECT)) {
        e = QUIRE_BAD_FILE;
    }
    for (json_member m = {0}; e == QUIRE_OK && json_next(root, &m);) {
        e = overrides_add(o, str_of(m.name), m.value, true, &why);
    }
    json_drop(root);
    return e == QUIRE_OK ? e
           : e == QUIRE_NO_MEMORY
               ? overrides_no_memory(o, err)
               : err_set(err, QUIRE_BAD_FILE, -1,
                         "%s: the overrides that it was packed with are damaged; pack it again", file);
}

static int compare_keys(const void *a, const void *b) {
    return strcmp(((const override *)a)->key, ((const override *)b)->key);
}

static quire_err overrides_write_text(overrides *o) {
    json_out out = {.to = &o->text};
    qsort(o->all, o->n, sizeof *o->all, compare_keys);
    json_begin(&out, '{');
    for (size_t i = 0; i < o->n; i++) {
        json_add(json_name(&out, o->all[i].key), o->all[i].value);
    }
    json_end(&out, '}');
    return out.err;
}

static quire_err overrides_fill(overrides *o, const char *file, str given, str carried, quire_error *err) {
    if (given.n > MAX_BYTES) {
        return err_set(err, QUIRE_INVALID, -1, "%s: the value has %s bytes; at most %s are allowed", o->flag,
                       show_count(given.n).text, show_count(MAX_BYTES).text);
    }
    if (carried.n > 0) {
        TRY(add_carried(o, file, carried, err));
    }
    if (given.p != NULL) {
        TRY(o->by_path ? add_hf(o, given, err) : overrides_add_kv(o, given, err));
    }
    return o->n == 0 || overrides_write_text(o) == QUIRE_OK ? QUIRE_OK : overrides_no_memory(o, err);
}

/* Selects the text of the flag that belongs to the format; the other flag must not be
 * given. */
static quire_err overrides_choose(model_format format, const char *file, const model_overrides *given,
                                  str *out, quire_error *err) {
    const char *mine = given == NULL ? NULL : format == MODEL_GGUF ? given->kv : given->hf;
    const char *other = given == NULL ? NULL : format == MODEL_GGUF ? given->hf : given->kv;
    if (other != NULL) {
        model_format instead = format == MODEL_GGUF ? MODEL_HF : MODEL_GGUF;
        return err_set(err, QUIRE_INVALID, -1, "%s: not for this model: %s has %s; use %s",
                       overrides_flag(instead), file,
                       format == MODEL_GGUF ? "GGUF's metadata" : "a config.json", overrides_flag(format));
    }
    *out = mine != NULL ? str_of(mine) : (str){0};
    return QUIRE_OK;
}

quire_err overrides_open(model_format format, const char *file, const model_overrides *given, str carried,
                         overrides **out, quire_error *err) {
    str text = {0};
    *out = NULL;
    TRY(overrides_choose(format, file, given, &text, err));
    if (text.p == NULL && carried.n == 0) {
        return QUIRE_OK;
    }
    overrides *o = mem_new(1, sizeof *o);
    TRY(err_set(err, mem_check(o), -1, "%s: out of memory", overrides_flag(format)));
    o->by_path = format == MODEL_HF;
    o->flag = overrides_flag(format);
    pthread_mutex_init(&o->mutex, NULL);
    quire_err e = overrides_fill(o, file, text, carried, err);
    if (e != QUIRE_OK || o->n == 0) {
        overrides_close(o);
        return e;
    }
    *out = o;
    return QUIRE_OK;
}

void overrides_close(overrides *o) {
    if (o == NULL) {
        return;
    }
    while (o->n > 0) {
        remove_at(o, o->n - 1);
    }
    pthread_mutex_destroy(&o->mutex);
    strbuf_deinit(&o->text);
    mem_free(o->all);
    mem_free(o);
}

/* ---- reading ---- */

static void note_near(override *v, const char *key) {
    size_t n = strlen(v->key), distance = edit_distance(str_of(v->key), str_of(key));
    if (distance <= NEAREST_MAX_EDITS && distance <= n / 3 &&
        (v->nearest[0] == 0 || distance < v->distance)) {
        (void)snprintf(v->nearest, sizeof v->nearest, "%s", key);
        v->distance = distance;
    }
}

bool overrides_find(overrides *o, const char *key, meta_value *out) {
    assert(o != NULL);
    bool found = false;
    pthread_mutex_lock(&o->mutex);
    for (size_t i = 0; i < o->n; i++) {
        override *v = &o->all[i];
        if (strcmp(v->key, key) == 0) {
            *out = json_doc_meta(v->value);
            found = v->is_read = true;
        } else if (lies_inside(o, key, v->key)) {
            *out = (meta_value){.kind = META_ABSENT};
            found = v->is_read = true;
        } else if (lies_inside(o, v->key, key)) {
            *out = (meta_value){.kind = META_OTHER};
            found = true;
        } else if (!v->is_read) {
            note_near(v, key);
        }
    }
    pthread_mutex_unlock(&o->mutex);
    return found;
}

str overrides_text(const overrides *o) {
    return (str){o->text.p, o->text.n};
}

quire_err overrides_check(overrides *o, const char *file, quire_error *err) {
    assert(o != NULL);
    quire_err e = QUIRE_OK;
    pthread_mutex_lock(&o->mutex);
    for (size_t i = 0; i < o->n && e == QUIRE_OK; i++) {
        const override *v = &o->all[i];
        if (!v->is_read) {
            bool near = v->nearest[0] != 0;
            e = err_set(err, QUIRE_INVALID, -1, "%s %s: this key is not read for %s%s%s", o->flag,
                        show_name(str_of(v->key)).text, file, near ? "; the nearest one that is: " : "",
                        v->nearest);
        }
    }
    pthread_mutex_unlock(&o->mutex);
    return e;
}
