#include "server/json_out.h"

#include <math.h>
#include <stdbool.h>
#include <stdio.h>

#define NUMBER_BYTES 21 /* of an int64, with its sign and a comma */

static void add(json_out *o, const char *p, size_t n) {
    if (o->err == QUIRE_OK) {
        o->err = strbuf_add(o->to, p, n);
    }
}

void json_raw(json_out *o, const char *json) {
    add(o, json, strlen(json));
}

/* Length of the valid UTF-8 sequence at p (n >= 1 bytes are there), or 0: no overlong forms, no surrogates, at most U+10FFFF. */
static size_t utf8_sequence(const unsigned char *p, size_t n) {
    static const unsigned char lowest[5] = {0, 0, 0x80, 0xA0, 0x90}; /* of the second byte, after E0 and F0 */
    size_t length = p[0] < 0x80 ? 1 : p[0] < 0xC2 ? 0 : p[0] < 0xE0 ? 2 : p[0] < 0xF0 ? 3 : p[0] < 0xF5 ? 4 : 0;
    if (length == 0 || length > n) {
        return 0;
    }
    for (size_t i = 1; i < length; i++) {
        if ((p[i] & 0xC0) != 0x80) {
            return 0;
        }
    }
    bool overlong = (p[0] == 0xE0 || p[0] == 0xF0) && p[1] < lowest[length];
    bool surrogate = p[0] == 0xED && p[1] > 0x9F;
    bool too_high = p[0] == 0xF4 && p[1] > 0x8F;
    return overlong || surrogate || too_high ? 0 : length;
}

static bool is_plain(unsigned char c) {
    return c >= 0x20 && c < 0x80 && c != '"' && c != '\\';
}

/* Writes the escape of one ASCII character that needs it. */
static void escape(json_out *o, unsigned char c) {
    switch (c) {
    case '"': add(o, "\\\"", 2); return;
    case '\\': add(o, "\\\\", 2); return;
    case '\n': add(o, "\\n", 2); return;
    case '\r': add(o, "\\r", 2); return;
    case '\t': add(o, "\\t", 2); return;
    default: break;
    }
    char text[8];
    int n = snprintf(text, sizeof(text), "\\u%04x", c);
    add(o, text, (size_t)n);
}

void json_text(json_out *o, const char *text, size_t n) {
    const unsigned char *p = (const unsigned char *)text;
    add(o, "\"", 1);
    for (size_t i = 0; i < n;) {
        size_t run = i;
        while (run < n && is_plain(p[run])) {
            run++;
        }
        if (run > i) {
            add(o, text + i, run - i);
            i = run;
        } else if (p[i] < 0x80) {
            escape(o, p[i]);
            i++;
        } else {
            size_t length = utf8_sequence(p + i, n - i);
            add(o, length > 0 ? text + i : "\xEF\xBF\xBD", length > 0 ? length : 3);
            i += length > 0 ? length : 1;
        }
    }
    add(o, "\"", 1);
}

void json_string(json_out *o, const char *s) {
    if (s == NULL) {
        json_raw(o, "null");
    } else {
        json_text(o, s, strlen(s));
    }
}

/* Writes v so that it ends before `end`, from the last digit; returns its start. */
static char *digits(int64_t v, char *end) {
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
    char text[NUMBER_BYTES], *p = digits(v, text + sizeof(text));
    add(o, p, (size_t)(text + sizeof(text) - p));
}

void json_number(json_out *o, double v) {
    char text[40];
    int n = isfinite(v) ? snprintf(text, sizeof(text), "%.9g", v) : snprintf(text, sizeof(text), "null");
    add(o, text, (size_t)n);
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

void json_row(json_out *o, const int64_t *v, int32_t n) {
    char text[JSON_ROW_MAX * NUMBER_BYTES + 1], *p = text + sizeof(text);
    *--p = ']';
    for (int32_t i = n - 1; i >= 0; i--) {
        p = digits(v[i], p);
        *--p = i > 0 ? ',' : '[';
    }
    add(o, p, (size_t)(text + sizeof(text) - p));
}
