/* memmem takes linear time whatever the texts are, and is outside POSIX. */
#define _GNU_SOURCE
/* Characters, and the text forms of values. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <utf8proc.h>

#include "jinja/jinja_value.h"

/* ---- characters ---- */

int32_t jchar_at(const char *p, size_t n, size_t *size) {
    utf8proc_int32_t c;
    utf8proc_ssize_t used = utf8proc_iterate((const utf8proc_uint8_t *)p, n > 4 ? 4 : (utf8proc_ssize_t)n, &c);
    *size = used > 0 ? (size_t)used : 1;
    return used > 0 ? c : -1;
}

size_t jchar_size(const char *p, size_t n) {
    if ((unsigned char)*p < 0x80) {
        return 1;
    }
    size_t size;
    jchar_at(p, n, &size);
    return size;
}

size_t jchar_put(int32_t c, char *out) {
    return (size_t)utf8proc_encode_char(c, (utf8proc_uint8_t *)out);
}

size_t jstr_length(str s) {
    size_t n = 0;
    for (size_t i = 0; i < s.n; i += jchar_size(s.p + i, s.n - i)) {
        n++;
    }
    return n;
}

str jstr_part(str s, size_t start, size_t n) {
    size_t i = 0;
    for (; start > 0 && i < s.n; start--) {
        i += jchar_size(s.p + i, s.n - i);
    }
    size_t end = i;
    for (; n > 0 && end < s.n; n--) {
        end += jchar_size(s.p + end, s.n - end);
    }
    return (str){s.p + i, end - i};
}

bool jchar_in(int32_t c, uint32_t categories) {
    return ((categories >> (c < 0 ? UTF8PROC_CATEGORY_CN : utf8proc_category(c))) & 1) != 0;
}

bool jchar_is_space(int32_t c) {
    return (c >= 0x09 && c <= 0x0d) || (c >= 0x1c && c <= 0x20) || c == 0x85 || c == 0xa0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200a) ||
           c == 0x2028 || c == 0x2029 || c == 0x202f || c == 0x205f || c == 0x3000;
}

bool jname_in(str s, const char *const *names, size_t n) {
    size_t i = 0;
    while (i < n && !str_is(s, names[i])) {
        i++;
    }
    return i < n;
}

str jstr_last(str s) {
    size_t at = s.n - 1;
    while (at > 0 && s.n - at < 4 && ((unsigned char)s.p[at] & 0xc0) == 0x80) {
        at--;
    }
    return (str){s.p + at, s.n - at};
}

str jstr_strip(str s, bool left, bool right) {
    size_t size;
    while (left && s.n > 0 && jchar_is_space(jchar_at(s.p, s.n, &size))) {
        s.p += size;
        s.n -= size;
    }
    while (right && s.n > 0) {
        str last = jstr_last(s);
        if (!jchar_is_space(jchar_at(last.p, last.n, &size)) || size != last.n) {
            break;
        }
        s.n -= size;
    }
    return s;
}

size_t jstr_find(str s, str needle, size_t from) {
    if (needle.n == 0) {
        return from <= s.n ? from : SIZE_MAX;
    }
    const char *found = from < s.n ? memmem(s.p + from, s.n - from, needle.p, needle.n) : NULL;
    return found == NULL ? SIZE_MAX : (size_t)(found - s.p);
}

int jstr_compare(str a, str b) {
    size_t n = a.n < b.n ? a.n : b.n;
    int order = n == 0 ? 0 : memcmp(a.p, b.p, n);
    return order != 0 ? order : (a.n > b.n) - (a.n < b.n);
}

/* ---- text forms ---- */

quire_err jfloat_write(double f, strbuf *out) {
    if (!isfinite(f)) {
        return strbuf_add_str(out, isnan(f) ? "nan" : f > 0 ? "inf" : "-inf");
    }
    char digits[40];
    for (int precision = 0; precision < 17; precision++) { /* the fewest digits that are read as the same number */
        snprintf(digits, sizeof digits, "%.*e", precision, f);
        if (strtod(digits, NULL) == f) {
            break;
        }
    }
    char *e = strchr(digits, 'e');
    int exponent = atoi(e + 1);
    int n_digits = (int)(e - digits) - (digits[0] == '-') - (strchr(digits, '.') != NULL);
    if (exponent < -4 || exponent >= 16) {
        *e = '\0';
        return strbuf_addf(out, "%se%c%02d", digits, exponent < 0 ? '-' : '+', abs(exponent));
    }
    int decimals = n_digits - 1 - exponent;
    return strbuf_addf(out, "%.*f", decimals < 1 ? 1 : decimals, f);
}

/* Python's str.isprintable for a character. */
static bool is_printable(int32_t c) {
    const uint32_t hidden =
        JCATEGORY(CC) | JCATEGORY(CF) | JCATEGORY(CS) | JCATEGORY(CO) | JCATEGORY(CN) | JCATEGORY(ZL) | JCATEGORY(ZP) | JCATEGORY(ZS);
    return c == ' ' || !jchar_in(c, hidden);
}

static quire_err write_escaped(int32_t c, strbuf *out) {
    static const char plain[] = "\n\r\t", letters[] = "nrt"; /* those that a backslash and a letter stand for */
    const char *short_form = c > 0 && c < 0x20 ? strchr(plain, c) : NULL;
    if (short_form != NULL) {
        return strbuf_add(out, (char[]){'\\', letters[short_form - plain]}, 2);
    }
    return strbuf_addf(out, c < 0x100 ? "\\x%02x" : c < 0x10000 ? "\\u%04x" : "\\U%08x", (unsigned)c);
}

static quire_err write_string_repr(str s, strbuf *out) {
    bool has_single = s.n > 0 && memchr(s.p, '\'', s.n) != NULL, has_double = s.n > 0 && memchr(s.p, '"', s.n) != NULL;
    char quote = has_single && !has_double ? '"' : '\'';
    TRY(strbuf_add_char(out, quote));
    for (size_t i = 0, size; i < s.n; i += size) {
        int32_t c = jchar_at(s.p + i, s.n - i, &size);
        if (c == quote || c == '\\') {
            TRY(strbuf_add_char(out, '\\'));
        }
        TRY(c >= 0 && !is_printable(c) ? write_escaped(c, out) : strbuf_add(out, s.p + i, size));
    }
    return strbuf_add_char(out, quote);
}

static quire_err write_items(const jlist *l, const char *open, const char *close, strbuf *out) {
    TRY(strbuf_add_str(out, open));
    for (size_t i = 0; i < l->n; i++) {
        TRY(strbuf_add_str(out, i > 0 ? ", " : ""));
        TRY(jvalue_write_repr(l->items[i], out));
    }
    return strbuf_add_str(out, close);
}

static quire_err write_dict(const jdict *d, strbuf *out) {
    TRY(strbuf_add_char(out, '{'));
    for (size_t i = 0; i < d->n; i++) {
        TRY(strbuf_add_str(out, i > 0 ? ", " : ""));
        TRY(jvalue_write_repr(d->entries[i].key, out));
        TRY(strbuf_add_str(out, ": "));
        TRY(jvalue_write_repr(d->entries[i].value, out));
    }
    return strbuf_add_char(out, '}');
}

static quire_err write_range(const jrange *r, strbuf *out) {
    TRY(strbuf_addf(out, "range(%lld, %lld", (long long)r->start, (long long)r->stop));
    return r->step == 1 ? strbuf_add_char(out, ')') : strbuf_addf(out, ", %lld)", (long long)r->step);
}

quire_err jvalue_write_repr(jvalue v, strbuf *out) {
    switch (v.kind) {
    case J_UNDEFINED:
        return strbuf_add_str(out, "Undefined");
    case J_STRING:
        if (v.safe) {
            TRY(strbuf_add_str(out, "Markup("));
            TRY(write_string_repr(v.u.s, out));
            return strbuf_add_char(out, ')');
        }
        return write_string_repr(v.u.s, out);
    default:
        return jvalue_write(v, out);
    }
}

quire_err jvalue_write(jvalue v, strbuf *out) {
    switch (v.kind) {
    case J_UNDEFINED:
        return QUIRE_OK;
    case J_NONE:
        return strbuf_add_str(out, "None");
    case J_BOOL:
        return strbuf_add_str(out, v.u.b ? "True" : "False");
    case J_INT:
        return strbuf_addf(out, "%lld", (long long)v.u.i);
    case J_FLOAT:
        return jfloat_write(v.u.f, out);
    case J_STRING:
        return strbuf_add(out, v.u.s.p, v.u.s.n);
    case J_LIST:
        return write_items(v.u.list, "[", "]", out);
    case J_TUPLE:
        return write_items(v.u.list, "(", v.u.list->n == 1 ? ",)" : ")", out);
    case J_VIEW:
        TRY(strbuf_add_str(out, v.u.list->view));
        return write_items(v.u.list, "([", "])", out);
    case J_DICT:
        return write_dict(v.u.dict, out);
    case J_RANGE:
        return write_range(v.u.range, out);
    default:
        return QUIRE_UNSUPPORTED;
    }
}
