#include "file/json_doc.h"

#include <json-c/json.h>
#include <math.h>

#include "file/show.h"

#define MAX_DEPTH     64
#define MAX_PATH_PART 128

/* ---- parsing ---- */

static bool is_space(char c) {
    return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

static size_t count_members(struct json_object *v) {
    size_t n = 0;
    if (json_object_is_type(v, json_type_object)) {
        json_object_object_foreach(v, key, value) {
            (void)key;
            n += 1 + count_members(value);
        }
    } else if (json_object_is_type(v, json_type_array)) {
        for (size_t i = 0; i < json_object_array_length(v); i++) {
            n += count_members(json_object_array_get_idx(v, i));
        }
    }
    return n;
}

/* What a text that the parser took says beside its values. */
typedef struct written {
    size_t n_keys;       /* colons outside strings: one for each key as written */
    bool has_zero;       /* an escaped 0 character occurs in a string */
    bool has_apostrophe; /* outside strings: the parser takes keys in single quotes, JSON has none */
} written;

static written scan(str text) {
    written w = {0};
    bool in_string = false;
    for (size_t i = 0; i < text.n; i++) {
        char c = text.p[i];
        if (in_string && c == '\\') {
            w.has_zero |= text.n - i >= 6 && memcmp(text.p + i, "\\u0000", 6) == 0;
            i++;
        } else if (c == '"') {
            in_string = !in_string;
        } else if (!in_string) {
            w.n_keys += c == ':';
            w.has_apostrophe |= c == '\'';
        }
    }
    return w;
}

static quire_err check_keys(struct json_object *root, str text, json_keys keys, const char *file, quire_error *err) {
    written w = scan(text);
    if (w.has_apostrophe) {
        return err_set(err, QUIRE_BAD_FILE, -1, "%s: no valid JSON (a name in single quotes); repair the file or download it again", file);
    }
    if (keys == JSON_KEYS_UNIQUE && w.has_zero) {
        return err_set(err, QUIRE_BAD_FILE, -1, "%s: a string holds a 0 character; the file is damaged", file);
    }
    if (keys == JSON_KEYS_UNIQUE && w.n_keys != count_members(root)) {
        return err_set(err, QUIRE_BAD_FILE, -1, "%s: a name occurs twice in one object; the file is damaged or wrongly converted", file);
    }
    return QUIRE_OK;
}

/* The parser stops at a 0 byte; what follows the value must be white space. */
static quire_err check_end(str text, size_t end, const char *file, quire_error *err) {
    while (end < text.n && is_space(text.p[end])) {
        end++;
    }
    if (end < text.n) {
        return err_set(err, QUIRE_BAD_FILE, (int64_t)end,
                       "%s: byte %s: something follows the JSON value; repair the file or download it again", file, show_count(end).text);
    }
    return QUIRE_OK;
}

quire_err json_doc_parse(json_doc *out, str text, json_keys keys, const char *file, quire_error *err) {
    if (text.n >= INT32_MAX) {
        return err_set(err, QUIRE_TOO_LARGE, -1, "%s: too long for a JSON file", file);
    }
    struct json_tokener *parser = json_tokener_new_ex(MAX_DEPTH);
    if (parser == NULL) {
        return err_set(err, QUIRE_NO_MEMORY, -1, "%s: no memory to parse it", file);
    }
    json_tokener_set_flags(parser, JSON_TOKENER_STRICT | JSON_TOKENER_VALIDATE_UTF8);
    struct json_object *root = json_tokener_parse_ex(parser, text.p, (int)text.n);
    enum json_tokener_error why = json_tokener_get_error(parser);
    size_t end = json_tokener_get_parse_end(parser);
    json_tokener_free(parser);
    quire_err e;
    if (why != json_tokener_success) {
        const char *what = why == json_tokener_continue ? "ends in the middle of a value" : json_tokener_error_desc(why);
        e = err_set(err, QUIRE_BAD_FILE, (int64_t)end, "%s: byte %s: no valid JSON (%s); repair the file or download it again", file,
                    show_count(end).text, what);
    } else if (!json_object_is_type(root, json_type_object)) {
        e = err_set(err, QUIRE_BAD_FILE, 0, "%s: a JSON object is expected; the file is damaged or of another kind", file);
    } else {
        e = check_end(text, end, file, err);
    }
    if (e == QUIRE_OK) {
        e = check_keys(root, text, keys, file, err);
    }
    if (e != QUIRE_OK) {
        json_object_put(root);
        return e;
    }
    out->root = root;
    return QUIRE_OK;
}

void json_doc_deinit(json_doc *d) {
    json_object_put(d->root);
    d->root = NULL;
}

/* ---- reading ---- */

struct json_object *json_doc_find(const json_doc *d, const char *path) {
    struct json_object *v = d->root;
    while (v != NULL && json_object_is_type(v, json_type_object)) {
        const char *dot = strchr(path, '.');
        size_t n = dot != NULL ? (size_t)(dot - path) : strlen(path);
        char part[MAX_PATH_PART];
        if (n >= sizeof part) {
            return NULL;
        }
        memcpy(part, path, n);
        part[n] = 0;
        v = json_object_object_get(v, part);
        if (dot == NULL) {
            return v;
        }
        path = dot + 1;
    }
    return NULL;
}

/* The number that transformers writes as {"__float__": "Infinity"}, or META_OTHER. */
static meta_value wrapped_float(struct json_object *v) {
    struct json_object *text;
    if (json_object_object_length(v) == 1 && json_object_object_get_ex(v, "__float__", &text) &&
        json_object_is_type(text, json_type_string)) {
        const char *s = json_object_get_string(text);
        if (strcmp(s, "Infinity") == 0) {
            return (meta_value){.kind = META_FLOAT, .f = (double)INFINITY};
        }
        if (strcmp(s, "-Infinity") == 0) {
            return (meta_value){.kind = META_FLOAT, .f = -(double)INFINITY};
        }
        if (strcmp(s, "NaN") == 0) {
            return (meta_value){.kind = META_FLOAT, .f = (double)NAN};
        }
    }
    return (meta_value){.kind = META_OTHER};
}

/* Integers that int64_t cannot hold become floats. */
static meta_value integer(struct json_object *v) {
    int64_t i = json_object_get_int64(v);
    uint64_t u = json_object_get_uint64(v);
    if (i >= 0 && u > INT64_MAX) {
        return (meta_value){.kind = META_FLOAT, .f = (double)u};
    }
    return (meta_value){.kind = META_INT, .i = i, .f = (double)i};
}

meta_value json_meta(struct json_object *v) {
    switch (json_object_get_type(v)) {
    case json_type_boolean: {
        bool b = json_object_get_boolean(v);
        return (meta_value){.kind = META_BOOL, .i = b, .f = b};
    }
    case json_type_int:
        return integer(v);
    case json_type_double:
        return (meta_value){.kind = META_FLOAT, .f = json_object_get_double(v)};
    case json_type_string:
        return (meta_value){.kind = META_STR, .s = {json_object_get_string(v), (size_t)json_object_get_string_len(v)}};
    case json_type_array:
        return (meta_value){.kind = META_ARRAY, .n = json_object_array_length(v), .node = v};
    case json_type_object:
        return wrapped_float(v);
    default:
        return (meta_value){.kind = META_ABSENT};
    }
}

meta_value json_item(struct json_object *array, size_t i) {
    return json_meta(json_object_array_get_idx(array, i));
}
