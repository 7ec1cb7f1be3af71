#include "json/json_out.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>

#include "base/str.h"
#include "base/utf8.h"

#define NUMBER_BYTES 21 /* longest int64 with its sign and a comma */

static void json_out_add(json_out *o, const char *p, size_t n) {
    if (o->err == QUIRE_OK) {
        bool fits = o->max == 0 || (o->to->n <= o->max && n <= o->max - o->to->n);
        o->err = fits ? strbuf_add(o->to, p, n) : QUIRE_TOO_LARGE;
    }
}

void json_raw(json_out *o, const char *json) {
    json_out_add(o, json, strlen(json));
}

void json_raw_part(json_out *o, str json) {
    json_out_add(o, json.p, json.n);
}

/* ---- arrays and objects ---- */

static void json_out_break_line(json_out *o) {
    if (o->indent > 0) {
        json_out_add(o, "\n", 1);
        for (int i = 0; i < o->indent * o->depth; i++) {
            json_out_add(o, " ", 1);
        }
    }
}

void json_begin(json_out *o, char bracket) {
    assert(o != NULL);
    json_out_add(o, &bracket, 1);
    o->depth++;
}

void json_end(json_out *o, char bracket) {
    assert(o != NULL);
    bool empty = o->to->n > 0 && strchr("{[", o->to->p[o->to->n - 1]) != NULL;
    o->depth--;
    if (!empty) {
        json_out_break_line(o);
    }
    json_out_add(o, &bracket, 1);
}

json_out *json_item(json_out *o) {
    assert(o != NULL);
    if (o->to->n > 0 && strchr("{[,", o->to->p[o->to->n - 1]) == NULL) {
        json_out_add(o, ", ", o->is_spaced ? 2 : 1);
    }
    json_out_break_line(o);
    return o;
}

json_out *json_name(json_out *o, const char *name) {
    assert(o != NULL);
    json_item(o);
    json_cstr(o, name);
    json_out_add(o, ": ", o->indent > 0 || o->is_spaced ? 2 : 1);
    return o;
}

/* ---- texts and numbers ---- */

static bool json_out_is_plain(unsigned char c) {
    return c >= 0x20 && c < 0x80 && c != '"' && c != '\\';
}

/* Writes the escape of one ASCII character that needs it. */
static void escape(json_out *o, unsigned char c) {
    switch (c) {
    case '"':
        json_out_add(o, "\\\"", 2);
        return;
    case '\\':
        json_out_add(o, "\\\\", 2);
        return;
    case '\n':
        json_out_add(o, "\\n", 2);
        return;
    case '\r':
        json_out_add(o, "\\r", 2);
        return;
    case '\t':
        json_out_add(o, "\\t", 2);
        return;
    default:
        break;
    }
    char text[8];
    int n = snprintf(text, sizeof(text), "\\u%04x", c);
    json_out_add(o, text, (size_t)n);
}

/* Writes the contents of a string, without the quotes. */
static void json_out_add_text(json_out *o, const char *text, size_t n) {
    const unsigned char *p = (const unsigned char *)text;
    for (size_t i = 0; i < n;) {
        size_t run = i;
        while (run < n && json_out_is_plain(p[run])) {
            run++;
        }
        if (run > i) {
            json_out_add(o, text + i, run - i);
            i = run;
        } else if (p[i] < 0x80) {
            escape(o, p[i]);
            i++;
        } else {
            size_t length;
            bool valid = utf8_decode(text + i, n - i, &length) >= 0;
            length = valid ? length : 1;
            json_out_add(o, valid ? text + i : UTF8_REPLACEMENT, valid ? length : 3);
            i += length;
        }
    }
}

void json_text(json_out *o, const char *text, size_t n) {
    json_texts(o, (str){text, n}, (str){"", 0});
}

void json_texts(json_out *o, str first, str second) {
    json_out_add(o, "\"", 1);
    json_out_add_text(o, first.p, first.n);
    json_out_add_text(o, second.p, second.n);
    json_out_add(o, "\"", 1);
}

void json_cstr(json_out *o, const char *s) {
    if (s == NULL) {
        json_raw(o, "null");
    } else {
        json_text(o, s, strlen(s));
    }
}

/* Writes v so that it ends before `end`, last digit first. Returns its start. */
static char *json_out_digits(int64_t v, char *end) {
    uint64_t left = v < 0 ? 0 - (uint64_t)v : (uint64_t)v;
    do {
        *--end = (char)('0' + left % 10);
        left /= 10;
    } while (left > 0);
    if (v < 0) {
        *--end = '-';
    }
    return end;
}

void json_int(json_out *o, int64_t v) {
    char text[NUMBER_BYTES], *p = json_out_digits(v, text + sizeof(text));
    json_out_add(o, p, (size_t)(text + sizeof(text) - p));
}

void json_number(json_out *o, double v) {
    char text[40];
    if (!isfinite(v)) {
        json_raw(o, "null");
        return;
    }
    json_out_add(o, text, (size_t)c_locale_snprintf(text, sizeof(text), "%.9g", v));
}

void json_exact(json_out *o, double v) {
    char text[40] = "null";
    for (int digits = 15; isfinite(v) && digits <= 17; digits++) {
        (void)c_locale_snprintf(text, sizeof(text), "%.*g", digits, v);
        if (c_locale_strtod(text, NULL) == v) {
            break;
        }
    }
    json_raw(o, text);
    if (strpbrk(text, ".en") == NULL) { /* add a point, so that it reads back as a real */
        json_out_add(o, ".0", 2);
    }
}

void json_bool(json_out *o, bool v) {
    json_raw(o, v ? "true" : "false");
}

void json_ints(json_out *o, const int32_t *v, size_t n) {
    json_raw(o, "[");
    for (size_t i = 0; i < n; i++) {
        if (i > 0) {
            json_raw(o, ",");
        }
        json_int(o, v[i]);
    }
    json_raw(o, "]");
}

void json_named_ints(json_out *o, const json_named_int *v) {
    assert(v != NULL);
    json_begin(o, '{');
    for (; v->name != NULL; v++) {
        json_int(json_name(o, v->name), v->value);
    }
    json_end(o, '}');
}

void json_row(json_out *o, const int64_t *v, int32_t n) {
    char text[JSON_ROW_MAX * NUMBER_BYTES + 1], *p = text + sizeof(text);
    *--p = ']';
    for (int32_t i = n - 1; i >= 0; i--) {
        p = json_out_digits(v[i], p);
        *--p = i > 0 ? ',' : '[';
    }
    json_out_add(o, p, (size_t)(text + sizeof(text) - p));
}

/* ---- trees ---- */

static void add_object(json_out *o, const json_value *v) {
    json_begin(o, '{');
    for (json_member m = {0}; o->err == QUIRE_OK && json_next(v, &m);) {
        json_add(json_name(o, m.name), m.value);
    }
    json_end(o, '}');
}

void json_add(json_out *o, const json_value *v) {
    str s = json_str(v);
    switch (json_kind_of(v)) {
    case JSON_KIND_BOOL:
        json_bool(o, json_truth(v));
        return;
    case JSON_KIND_INT:
        json_int(o, json_int64(v));
        return;
    case JSON_KIND_REAL:
        json_exact(o, json_double(v));
        return;
    case JSON_KIND_WIDE:
        json_raw_part(o, json_wide_str(v));
        return;
    case JSON_KIND_TEXT:
        json_text(o, s.p, s.n);
        return;
    case JSON_KIND_OBJECT:
        add_object(o, v);
        return;
    case JSON_KIND_ARRAY:
        break;
    default:
        json_raw(o, "null");
        return;
    }
    json_begin(o, '[');
    for (size_t i = 0; i < json_length(v) && o->err == QUIRE_OK; i++) {
        json_add(json_item(o), json_at(v, i));
    }
    json_end(o, ']');
}

/* ---- in an error's text ---- */

const char *json_brief(const json_value *v, char buf[JSON_BRIEF_BYTES]) {
    enum { SHOWN = 30 }; /* most bytes shown of a text */
    switch (json_kind_of(v)) {
    case JSON_KIND_ARRAY:
        return "an array";
    case JSON_KIND_OBJECT:
        return "an object";
    case JSON_KIND_TEXT: {
        size_t n = json_str(v).n, cut = n < SHOWN ? n : SHOWN;
        const char *text = json_str(v).p;
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
    default: {
        strbuf text = {0};
        json_add(&(json_out){.to = &text}, v);
        snprintf(buf, JSON_BRIEF_BYTES, "%.40s%s", text.n > 0 ? text.p : "a value", text.n > 40 ? "..." : "");
        strbuf_deinit(&text);
        return buf;
    }
    }
}
