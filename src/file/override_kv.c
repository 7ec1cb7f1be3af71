#include "file/override_kv.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>

#include "base/c_locale.h"
#include "base/utf8.h"
#include "file/show.h"
#include "json/json_out.h"

#define FLAG           "--override-kv"
#define LONGEST_NUMBER 400 /* digits of a number */

static const json_limits limits = {
    .max_depth = 4, .max_values = 1 << 16, .max_containers = 64, .max_names = 0};

static quire_err override_kv_bad(str key, const char *what, quire_error *err) {
    return err_set(err, QUIRE_INVALID, -1, FLAG " %s: %s", show_name(key).text, what);
}

/* A number's text, 0-terminated: strtod and strtoll need that. False: it is longer than
 * any number. */
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
        return override_kv_bad(key, "an int is a whole number of 64 bits", err);
    }
    json_int(to, v);
    return QUIRE_OK;
}

static quire_err override_kv_write_float(str key, str text, json_out *to, quire_error *err) {
    char number[LONGEST_NUMBER + 1], *end = number;
    double v = copy_number(text, number) ? c_locale_strtod(number, &end) : 0.0;
    if (end == number || *end != 0 || !isfinite(v)) {
        return override_kv_bad(key, "a float is a finite number", err);
    }
    json_exact(to, v);
    return QUIRE_OK;
}

static quire_err write_bool(str key, str text, json_out *to, quire_error *err) {
    if (!str_is(text, "true") && !str_is(text, "false")) {
        return override_kv_bad(key, "a bool is true or false", err);
    }
    json_bool(to, str_is(text, "true"));
    return QUIRE_OK;
}

/* The JSON value at the start of *rest, which is moved after it. */
static quire_err override_kv_take_json(str key, str *rest, json_value **out, quire_error *err) {
    size_t n = 0;
    json_fault fault = {0};
    quire_err e = json_check_value(*rest, &n, &limits, NULL, &fault);
    e = e != QUIRE_OK ? e : json_read((str){rest->p, n}, &limits, JSON_WIDE_REFUSED, out, &fault);
    if (e != QUIRE_OK) {
        return err_set(err, e == QUIRE_NO_MEMORY ? e : QUIRE_INVALID, -1,
                       FLAG " %s: byte %zu of its value is no JSON: %s", show_name(key).text, fault.at,
                       fault.what);
    }
    *rest = (str){rest->p + n, rest->n - n};
    return QUIRE_OK;
}

/* Writes the text up to the next comma, of this type, as JSON, and reads it. */
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
        e = override_kv_bad(key, "its text is no UTF-8", err);
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
        return json_is(*out, JSON_KIND_ARRAY) ? QUIRE_OK
                                              : override_kv_bad(key, "an arr is a JSON list: [1,2]", err);
    }
    if (is_text && rest->n > 0 && rest->p[0] == '"') {
        return override_kv_take_json(key, rest, out, err);
    }
    if (!is_text && !str_is(type, "int") && !str_is(type, "float") && !str_is(type, "bool")) {
        return override_kv_bad(key, "its type must be int, float, bool, str or arr: KEY=int:4096", err);
    }
    return take_plain(key, type, rest, out, err);
}

quire_err override_kv_next(str *rest, str *key, json_value **value, quire_error *err) {
    const char *equals = memchr(rest->p, '=', rest->n), *end = rest->p + rest->n;
    const char *colon = equals != NULL ? memchr(equals, ':', (size_t)(end - equals)) : NULL;
    *value = NULL;
    if (colon == NULL || equals == rest->p) {
        return override_kv_bad(*rest, "must be KEY=TYPE:VALUE, with commas between several", err);
    }
    *key = (str){rest->p, (size_t)(equals - rest->p)};
    if (!utf8_is_valid(*key)) {
        return override_kv_bad(*key, "a key is UTF-8", err);
    }
    *rest = (str){colon + 1, (size_t)(end - colon - 1)};
    quire_err e =
        override_kv_take_value(*key, (str){equals + 1, (size_t)(colon - equals - 1)}, rest, value, err);
    if (e == QUIRE_OK && rest->n > 0) {
        e = rest->p[0] != ',' ? override_kv_bad(*key, "a comma must follow its value, or nothing", err)
            : rest->n == 1    ? override_kv_bad(*key, "nothing follows the comma after its value", err)
                              : QUIRE_OK;
        *rest = (str){rest->p + 1, rest->n - 1};
    }
    if (e != QUIRE_OK) {
        json_drop(*value);
        *value = NULL;
    }
    return e;
}
