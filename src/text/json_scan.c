#include "text/json_scan.h"

#include "text/utf8.h"

#define MAX_DEPTH 64

static void skip_space(json_scan *s) {
    while (s->at < s->text.n) {
        char c = s->text.p[s->at];
        if (c != ' ' && c != '\n' && c != '\r' && c != '\t') {
            break;
        }
        s->at++;
    }
}

char json_scan_peek(json_scan *s) {
    skip_space(s);
    return s->at < s->text.n ? s->text.p[s->at] : '\0';
}

static quire_err take(json_scan *s, char c) {
    if (json_scan_peek(s) != c) {
        return QUIRE_BAD_FILE;
    }
    s->at++;
    return QUIRE_OK;
}

quire_err json_scan_open(json_scan *s, char bracket) {
    s->begun = true;
    return take(s, bracket);
}

quire_err json_scan_more(json_scan *s, char closing, bool *more) {
    bool begun = s->begun;
    s->begun = false;
    *more = json_scan_peek(s) != closing;
    return !*more ? take(s, closing) : begun ? QUIRE_OK : take(s, ',');
}

static quire_err read_hex4(json_scan *s, int32_t *out) {
    int32_t v = 0;
    if (s->text.n - s->at < 4) {
        return QUIRE_BAD_FILE;
    }
    for (int i = 0; i < 4; i++) {
        int c = s->text.p[s->at++], lower = c | 32;
        int digit = c >= '0' && c <= '9' ? c - '0' : lower >= 'a' && lower <= 'f' ? lower - 'a' + 10 : -1;
        if (digit < 0) {
            return QUIRE_BAD_FILE;
        }
        v = v << 4 | digit;
    }
    *out = v;
    return QUIRE_OK;
}

/* Behind \u. */
static quire_err read_unicode(json_scan *s, int32_t *c) {
    TRY(read_hex4(s, c));
    if (*c >= 0xD800 && *c < 0xDC00 && s->text.n - s->at >= 6 && memcmp(s->text.p + s->at, "\\u", 2) == 0) {
        size_t before = s->at;
        int32_t low;
        s->at += 2;
        TRY(read_hex4(s, &low));
        if (low >= 0xDC00 && low < 0xE000) {
            *c = 0x10000 + ((*c - 0xD800) << 10) + (low - 0xDC00);
            return QUIRE_OK;
        }
        s->at = before;
    }
    *c = *c >= 0xD800 && *c < 0xE000 ? 0xFFFD : *c;
    return QUIRE_OK;
}

static quire_err add_escape(json_scan *s, strbuf *out) {
    static const char names[] = "\"\\/bfnrt", values[] = "\"\\/\b\f\n\r\t";
    if (s->at == s->text.n) {
        return QUIRE_BAD_FILE;
    }
    char c = s->text.p[s->at++];
    if (c == 'u') {
        int32_t value;
        TRY(read_unicode(s, &value));
        return utf8_add(out, value);
    }
    const char *name = memchr(names, c, sizeof names - 1);
    return name == NULL ? QUIRE_BAD_FILE : strbuf_add_char(out, values[name - names]);
}

quire_err json_scan_string(json_scan *s, strbuf *scratch, str *out) {
    TRY(take(s, '"'));
    size_t start = s->at, i = start;
    bool escaped = false;
    for (;;) {
        while (i < s->text.n && s->text.p[i] != '"' && s->text.p[i] != '\\' && (unsigned char)s->text.p[i] >= 0x20) {
            i++;
        }
        if (i == s->text.n || (unsigned char)s->text.p[i] < 0x20) {
            s->at = i;
            return QUIRE_BAD_FILE;
        }
        if (s->text.p[i] == '"' && !escaped) {
            s->at = i + 1;
            *out = (str){s->text.p + start, i - start};
            return QUIRE_OK;
        }
        if (!escaped) {
            strbuf_clear(scratch);
            escaped = true;
        }
        TRY(strbuf_add(scratch, s->text.p + start, i - start));
        s->at = i + 1;
        if (s->text.p[i] == '"') {
            *out = (str){scratch->p, scratch->n};
            return QUIRE_OK;
        }
        TRY(add_escape(s, scratch));
        start = i = s->at;
    }
}

quire_err json_scan_key(json_scan *s, strbuf *scratch, str *out) {
    TRY(json_scan_string(s, scratch, out));
    return take(s, ':');
}

quire_err json_scan_int(json_scan *s, int64_t *out) {
    bool negative = json_scan_peek(s) == '-';
    s->at += negative;
    size_t start = s->at;
    int64_t v = 0;
    while (s->at < s->text.n && s->text.p[s->at] >= '0' && s->text.p[s->at] <= '9') {
        if (s->at - start == 18) {
            return QUIRE_BAD_FILE;
        }
        v = v * 10 + (s->text.p[s->at++] - '0');
    }
    char next = json_scan_peek(s);
    *out = negative ? -v : v;
    return s->at == start || next == '.' || next == 'e' || next == 'E' ? QUIRE_BAD_FILE : QUIRE_OK;
}

/* Over a string without unescaping it. */
static quire_err pass_string(json_scan *s) {
    for (size_t i = s->at + 1; i < s->text.n; i++) {
        if (s->text.p[i] == '\\') {
            i++;
        } else if (s->text.p[i] == '"') {
            s->at = i + 1;
            return QUIRE_OK;
        }
    }
    return QUIRE_BAD_FILE;
}

/* Brackets are matched here; what lies between is checked by whoever parses the span. */
quire_err json_scan_span(json_scan *s, str *span) {
    char closing[MAX_DEPTH];
    int depth = 0;
    (void)json_scan_peek(s);
    size_t start = s->at;
    do {
        char c = json_scan_peek(s);
        if (c == '\0') {
            return QUIRE_BAD_FILE;
        }
        if (c == '"') {
            TRY(pass_string(s));
            continue;
        }
        if (c == '{' || c == '[') {
            if (depth == MAX_DEPTH) {
                return QUIRE_BAD_FILE;
            }
            closing[depth++] = c == '{' ? '}' : ']';
        } else if (c == '}' || c == ']') {
            if (depth == 0 || closing[--depth] != c) {
                return QUIRE_BAD_FILE;
            }
        } else if (depth == 0) { /* a number or a word */
            while (s->at < s->text.n && strchr(",]} \t\r\n", s->text.p[s->at]) == NULL) {
                s->at++;
            }
            break;
        }
        s->at++;
    } while (depth > 0);
    *span = (str){s->text.p + start, s->at - start};
    return s->at > start ? QUIRE_OK : QUIRE_BAD_FILE;
}
