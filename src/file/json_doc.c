#include "file/json_doc.h"

#include <assert.h>
#include <math.h>

#include "file/show.h"

#define MAX_PATH_PART 128

/* ---- parsing ---- */

static quire_err file_json_doc_parse(json_doc *out, str text, json_names names, json_kind kind,
                                     const char *file, quire_error *err) {
    json_value *root;
    json_fault fault;
    quire_err e = json_read(text, names == JSON_NAMES_LAST ? &json_limits_model : &json_limits_file,
                            JSON_WIDE_REAL, &root, &fault);
    if (e == QUIRE_NO_MEMORY) {
        return err_set(err, e, -1, "%s: no memory to parse it", file);
    }
    if (e != QUIRE_OK) {
        return err_set(err, QUIRE_BAD_FILE, (int64_t)fault.at,
                       "%s: byte %s: not valid JSON (%s); repair the file or download it again", file,
                       show_count(fault.at).text, fault.what);
    }
    if (!json_is(root, kind)) {
        json_drop(root);
        return err_set(err, QUIRE_BAD_FILE, 0,
                       "%s: a JSON %s is expected; the file is damaged or of a different kind", file,
                       kind == JSON_KIND_OBJECT ? "object" : "list");
    }
    out->root = root;
    return QUIRE_OK;
}

quire_err json_doc_parse(json_doc *out, str text, json_names names, const char *file, quire_error *err) {
    return file_json_doc_parse(out, text, names, JSON_KIND_OBJECT, file, err);
}

quire_err json_doc_parse_list(json_doc *out, str text, const char *file, quire_error *err) {
    return file_json_doc_parse(out, text, JSON_NAMES_LAST, JSON_KIND_ARRAY, file, err);
}

void json_doc_deinit(json_doc *d) {
    json_drop(d->root);
    d->root = NULL;
}

/* ---- reading ---- */

/* Finds a value by its path. *has: whether the member exists; it may be null (NULL). */
static json_value *file_json_doc_find(const json_doc *d, const char *path, bool *has) {
    json_value *v = d->root;
    *has = false;
    while (v != NULL && json_is(v, JSON_KIND_OBJECT)) {
        const char *dot = strchr(path, '.');
        size_t n = dot != NULL ? (size_t)(dot - path) : strlen(path);
        char part[MAX_PATH_PART];
        if (n >= sizeof part) {
            return NULL;
        }
        memcpy(part, path, n);
        part[n] = 0;
        *has = dot == NULL && json_has(v, part);
        v = json_get(v, part);
        if (dot == NULL) {
            return v;
        }
        path = dot + 1;
    }
    return NULL;
}

json_value *json_doc_find(const json_doc *d, const char *path) {
    bool has;
    return file_json_doc_find(d, path, &has);
}

bool json_doc_is_null(const json_doc *d, const char *path) {
    bool has;
    return file_json_doc_find(d, path, &has) == NULL && has;
}

/* Returns the number that transformers writes as {"__float__": "Infinity"}, or
 * META_OTHER. */
static meta_value wrapped_float(const json_value *v) {
    if (json_length(v) == 1) {
        str s = json_get_str(v, "__float__");
        if (str_is(s, "Infinity")) {
            return (meta_value){.kind = META_FLOAT, .f = (double)INFINITY};
        }
        if (str_is(s, "-Infinity")) {
            return (meta_value){.kind = META_FLOAT, .f = -(double)INFINITY};
        }
        if (str_is(s, "NaN")) {
            return (meta_value){.kind = META_FLOAT, .f = (double)NAN};
        }
    }
    return (meta_value){.kind = META_OTHER};
}

meta_value json_doc_meta(const json_value *v) {
    switch (json_kind_of(v)) {
    case JSON_KIND_BOOL: {
        bool b = json_truth(v);
        return (meta_value){.kind = META_BOOL, .i = b, .f = b};
    }
    case JSON_KIND_INT:
        return (meta_value){.kind = META_INT, .i = json_int64(v), .f = (double)json_int64(v)};
    case JSON_KIND_REAL:
        return (meta_value){.kind = META_FLOAT, .f = json_double(v)};
    case JSON_KIND_TEXT:
        return (meta_value){.kind = META_STR, .s = json_str(v)};
    case JSON_KIND_ARRAY:
        return (meta_value){.kind = META_ARRAY, .n = json_length(v), .node = v, .in_json = true};
    case JSON_KIND_OBJECT:
        return wrapped_float(v);
    default:
        return (meta_value){.kind = META_ABSENT};
    }
}

meta_value json_doc_item(const json_value *array, size_t i) {
    assert(array != NULL);
    return json_doc_meta(json_at(array, i));
}
