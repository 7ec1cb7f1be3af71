/* Strict JSON for requests: json-c with the leniences taken out, within bounds of size and depth. */
#include <math.h>
#include <stdio.h>

#include "api/request_read.h"

/* The length of the well-formed UTF-8 character (no overlong forms, no surrogates, not NUL) at p[0..n), or 0. */
static size_t utf8_char(const unsigned char *p, size_t n) {
    static const struct {
        unsigned char lead_lo, lead_hi, second_lo, second_hi, length;
    } forms[] = {
        /* Unicode, table 3-7 */
        {0x01, 0x7f, 0, 0, 1},       {0xc2, 0xdf, 0x80, 0xbf, 2}, {0xe0, 0xe0, 0xa0, 0xbf, 3},
        {0xe1, 0xec, 0x80, 0xbf, 3}, {0xed, 0xed, 0x80, 0x9f, 3}, {0xee, 0xef, 0x80, 0xbf, 3},
        {0xf0, 0xf0, 0x90, 0xbf, 4}, {0xf1, 0xf3, 0x80, 0xbf, 4}, {0xf4, 0xf4, 0x80, 0x8f, 4},
    };
    for (size_t f = 0; f < sizeof forms / sizeof forms[0]; f++) {
        if (p[0] < forms[f].lead_lo || p[0] > forms[f].lead_hi) {
            continue;
        }
        size_t length = forms[f].length;
        if (length > n || (length > 1 && (p[1] < forms[f].second_lo || p[1] > forms[f].second_hi))) {
            return 0;
        }
        for (size_t i = 2; i < length; i++) {
            if ((p[i] & 0xc0) != 0x80) {
                return 0;
            }
        }
        return length;
    }
    return 0;
}

static quire_err json_error(size_t at, quire_error *err, const char *what) {
    err_set(err, QUIRE_BAD_REQUEST, (int64_t)at, "the body is not valid JSON at byte %zu: %s", at, what);
    if (err != NULL) {
        snprintf(err->param, sizeof err->param, "body.%zu", at);
    }
    return QUIRE_BAD_REQUEST;
}

/* Refuses what json-c lets pass: bytes that are not UTF-8, NUL and control characters, single quotes, comments, NaN and Infinity. */
static quire_err check_characters(const char *text, size_t n, quire_error *err) {
    bool in_string = false;
    for (size_t i = 0; i < n;) {
        char c = text[i];
        size_t length = utf8_char((const unsigned char *)text + i, n - i);
        if (length == 0) {
            return json_error(i, err, c == 0 ? "a NUL byte" : "not UTF-8");
        }
        if (in_string ? (unsigned char)c < 0x20 : strchr(" \t\n\r{}[],:\"0123456789+-.eEtrufalsn", c) == NULL) {
            return json_error(i, err, in_string ? "a control character in a string" : "unexpected character");
        }
        if (c == '"') {
            in_string = !in_string;
        } else if (in_string && c == '\\' && i + 1 < n && (unsigned char)text[i + 1] < 0x80) {
            length = 2; /* an escaped quote does not end the string */
        }
        i += length;
    }
    return QUIRE_OK;
}

quire_err json_read(const char *text, size_t n, json_object **out, quire_error *err) {
    *out = NULL;
    if (n == 0) {
        return err_set_param(err, QUIRE_BAD_REQUEST, "body", "the body is empty; it must be a JSON object");
    }
    if (n > REQUEST_MAX_BYTES) {
        return err_set_param(err, QUIRE_TOO_LARGE, "body", "the body has %zu bytes; at most %zu are read", n, REQUEST_MAX_BYTES);
    }
    TRY(check_characters(text, n, err));
    json_tokener *parser = json_tokener_new_ex(REQUEST_MAX_DEPTH);
    if (parser == NULL) {
        return err_set(err, QUIRE_NO_MEMORY, -1, "out of memory");
    }
    json_tokener_set_flags(parser, JSON_TOKENER_STRICT);
    json_object *value = json_tokener_parse_ex(parser, text, (int)n);
    enum json_tokener_error state = json_tokener_get_error(parser);
    size_t end = json_tokener_get_parse_end(parser);
    if (state == json_tokener_continue) {
        value = json_tokener_parse_ex(parser, "", 1); /* the end of the text, which ends a number */
        state = json_tokener_get_error(parser);
        state = state == json_tokener_success ? state : json_tokener_error_parse_eof;
    }
    json_tokener_free(parser);
    if (state != json_tokener_success) {
        json_object_put(value);
        const char *what = state == json_tokener_error_depth ? "nested too deeply" : json_tokener_error_desc(state);
        return json_error(end > n ? n : end, err, what);
    }
    *out = value;
    return QUIRE_OK;
}

const char *json_brief(json_object *v, char buf[JSON_BRIEF_BYTES]) {
    enum { SHOWN = 30 }; /* bytes of a text */
    switch (json_object_get_type(v)) {
    case json_type_array:
        return "an array";
    case json_type_object:
        return "an object";
    case json_type_string: {
        size_t n = (size_t)json_object_get_string_len(v), cut = n < SHOWN ? n : SHOWN;
        const char *text = json_object_get_string(v);
        while (cut < n && cut > 0 && ((unsigned char)text[cut] & 0xc0) == 0x80) {
            cut--;
        }
        size_t used = 0;
        buf[used++] = '"';
        for (size_t i = 0; i < cut; i++) {
            unsigned char c = (unsigned char)text[i];
            if (c == '"' || c == '\\') {
                buf[used++] = '\\';
            }
            buf[used++] = c < 0x20 || c == 0x7f ? ' ' : (char)c;
        }
        snprintf(buf + used, JSON_BRIEF_BYTES - used, "\"%s", cut < n ? "..." : "");
        return buf;
    }
    default:
        snprintf(buf, JSON_BRIEF_BYTES, "%.40s", v == NULL ? "null" : json_object_to_json_string(v));
        return buf;
    }
}

bool json_integer(json_object *v, int64_t *out) {
    if (json_object_is_type(v, json_type_int)) {
        /* json-c saturates: what lies outside an int64 becomes its smallest value or an uint64 above its largest. */
        int64_t value = json_object_get_int64(v);
        if (value == INT64_MIN || json_object_get_uint64(v) > (uint64_t)INT64_MAX) {
            return false;
        }
        *out = value;
        return true;
    }
    if (json_object_is_type(v, json_type_double)) {
        double value = json_object_get_double(v);
        if (!(fabs(value) < 0x1p53) || value != floor(value)) {
            return false;
        }
        *out = (int64_t)value;
        return true;
    }
    return false;
}
