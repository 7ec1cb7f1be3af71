/* For memmem: outside POSIX, but always linear. */
#define _GNU_SOURCE
/* Characters, and the text forms of values. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <utf8proc.h>

#include "base/turn.h"
#include "jinja/jinja_big.h"
#include "jinja/jinja_run.h"

/* ---- characters ---- */

/* Yields to other jobs, since all loops over a text pass here. If the render must end,
 * its next step fails. */
int32_t jchar_at(const char *p, size_t n, size_t *size) {
    utf8proc_int32_t c;
    (void)turn_poll(1);
    utf8proc_ssize_t used =
        utf8proc_iterate((const utf8proc_uint8_t *)p, n > 4 ? 4 : (utf8proc_ssize_t)n, &c);
    *size = used > 0 ? (size_t)used : 1;
    return used > 0 ? c : -1;
}

size_t jchar_size(const char *p, size_t n) {
    if ((unsigned char)*p < 0x80) {
        (void)turn_poll(1);
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
    return (c >= 0x09 && c <= 0x0d) || (c >= 0x1c && c <= 0x20) || c == 0x85 || c == 0xa0 || c == 0x1680 ||
           (c >= 0x2000 && c <= 0x200a) || c == 0x2028 || c == 0x2029 || c == 0x202f || c == 0x205f ||
           c == 0x3000;
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

quire_err jfloat_write(double f, jout *out) {
    if (!isfinite(f)) {
        return jout_str(out, isnan(f) ? "nan" : f > 0 ? "inf" : "-inf");
    }
    char digits[40];
    /* finds the fewest digits that read back as the same number */
    for (int precision = 0; precision < 17; precision++) {
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
        return jout_f(out, "%se%c%02d", digits, exponent < 0 ? '-' : '+', abs(exponent));
    }
    int decimals = n_digits - 1 - exponent;
    return jout_f(out, "%.*f", decimals < 1 ? 1 : decimals, f);
}

/* Like Python's str.isprintable for one character. */
bool jchar_is_printable(int32_t c) {
    const uint32_t hidden = JCATEGORY(CC) | JCATEGORY(CF) | JCATEGORY(CS) | JCATEGORY(CO) | JCATEGORY(CN) |
                            JCATEGORY(ZL) | JCATEGORY(ZP) | JCATEGORY(ZS);
    return c == ' ' || !jchar_in(c, hidden);
}

static quire_err write_escaped(int32_t c, jout *out) {
    /* characters with a one-letter escape, and the letters */
    static const char plain[] = "\n\r\t", letters[] = "nrt";
    const char *short_form = c > 0 && c < 0x20 ? strchr(plain, c) : NULL;
    if (short_form != NULL) {
        return jout_add_as(out, (str){(char[]){'\\', letters[short_form - plain]}, 2}, out->origin);
    }
    return jout_f(out, c < 0x100 ? "\\x%02x" : c < 0x10000 ? "\\u%04x" : "\\U%08x", (unsigned)c);
}

/* Writes the characters between the quotes. An escape has its character's origin. */
static quire_err jinja_text_write_inside(str s, char quote, jout *out) {
    jorigins origins = jarena_origins(out->arena, s);
    size_t done = 0;
    for (size_t i = 0, size; i < s.n; i += size) {
        int32_t c = jchar_at(s.p + i, s.n - i, &size);
        bool slashed = c == quote || c == '\\';
        if (slashed || (c >= 0 && (c < 0x20 || c >= 0x7f) && !jchar_is_printable(c))) {
            TRY(jout_add(out, (str){s.p + done, i - done}));
            out->origin = jorigins_at(origins, i);
            TRY(slashed ? jout_f(out, "\\%c", (char)c) : write_escaped(c, out));
            done = i + size;
        }
    }
    return jout_add(out, (str){s.p + done, s.n - done});
}

static quire_err write_string_repr(str s, jout *out) {
    bool has_single = s.n > 0 && memchr(s.p, '\'', s.n) != NULL,
         has_double = s.n > 0 && memchr(s.p, '"', s.n) != NULL;
    char quote = has_single && !has_double ? '"' : '\'';
    uint8_t origin = out->origin;
    TRY(jout_char(out, quote));
    TRY(jinja_text_write_inside(s, quote, out));
    out->origin = origin;
    return jout_char(out, quote);
}

static quire_err write_items(const jlist *l, const char *open, const char *close, jout *out) {
    TRY(jout_str(out, open));
    for (size_t i = 0; i < l->n; i++) {
        TRY(jout_str(out, i > 0 ? ", " : ""));
        TRY(jvalue_write_repr(l->items[i], out));
    }
    return jout_str(out, close);
}

static quire_err write_dict(const jdict *d, jout *out) {
    TRY(jout_char(out, '{'));
    for (size_t i = 0; i < d->n; i++) {
        TRY(jout_str(out, i > 0 ? ", " : ""));
        TRY(jvalue_write_repr(d->entries[i].key, out));
        TRY(jout_str(out, ": "));
        TRY(jvalue_write_repr(d->entries[i].value, out));
    }
    return jout_char(out, '}');
}

static quire_err write_range(const jrange *r, jout *out) {
    TRY(jout_f(out, "range(%lld, %lld", (long long)r->start, (long long)r->stop));
    return r->step == 1 ? jout_char(out, ')') : jout_f(out, ", %lld)", (long long)r->step);
}

static quire_err write_big(const jbig *b, jout *out) {
    strbuf digits = {0};
    quire_err e = b->negative ? strbuf_add_char(&digits, '-') : QUIRE_OK;
    TRY_DONE(e, jbig_digits(b, 10, &digits));
    TRY_DONE(e, jout_add_as(out, (str){digits.p, digits.n}, out->origin));
done:
    strbuf_deinit(&digits);
    return e;
}

/* Writes an object like Python, but without its address. */
static quire_err jinja_text_write_object(jvalue v, jout *out) {
    switch (v.kind) {
    case J_NAMESPACE:
        TRY(jout_str(out, "<Namespace "));
        TRY(write_dict(v.u.dict, out));
        return jout_char(out, '>');
    case J_LOOP:
        return jout_f(out, "<LoopContext %zu/%zu>", v.u.loop->index + 1, v.u.loop->n);
    case J_MACRO:
        TRY(jout_str(out, "<Macro '"));
        TRY(jout_add(out, v.u.macro->node->name));
        return jout_str(out, "'>");
    case J_SELF:
        return jout_str(out, "<TemplateReference None>");
    case J_MODULE:
        return jout_add(out, v.u.module->text);
    default:
        return jout_f(out, "<%s object>", jvalue_type(v));
    }
}

static quire_err jinja_text_write(jvalue v, jout *out) {
    switch (v.kind) {
    case J_UNDEFINED:
        return QUIRE_OK;
    case J_NONE:
        return jout_str(out, "None");
    case J_BOOL:
        return jout_str(out, v.u.b ? "True" : "False");
    case J_INT:
        return jout_f(out, "%lld", (long long)v.u.i);
    case J_FLOAT:
        return jfloat_write(v.u.f, out);
    case J_STRING:
        return jout_add(out, v.u.s);
    case J_LIST:
        return write_items(v.u.list, "[", "]", out);
    case J_TUPLE:
        return write_items(v.u.list, "(", v.u.list->n == 1 ? ",)" : ")", out);
    case J_VIEW:
        TRY(jout_str(out, v.u.list->view));
        return write_items(v.u.list, "([", "])", out);
    case J_DICT:
        return write_dict(v.u.dict, out);
    case J_RANGE:
        return write_range(v.u.range, out);
    case J_HUGE:
        return write_big(v.u.big, out);
    default:
        return jinja_text_write_object(v, out);
    }
}

static quire_err write_repr(jvalue v, jout *out) {
    switch (v.kind) {
    case J_UNDEFINED:
        return jout_str(out, "Undefined");
    case J_STRING:
        if (v.safe) {
            TRY(jout_str(out, "Markup("));
            TRY(write_string_repr(v.u.s, out));
            return jout_char(out, ')');
        }
        return write_string_repr(v.u.s, out);
    default:
        return jinja_text_write(v, out);
    }
}

/* Writes v; numbers, brackets and so on get v's origin. */
static quire_err write_as(jvalue v, bool repr, jout *out) {
    uint8_t around = out->origin;
    out->origin = v.is_input ? JINJA_INPUT : JINJA_TEMPLATE;
    TRY(repr ? write_repr(v, out) : jinja_text_write(v, out));
    out->origin = around;
    return QUIRE_OK;
}

quire_err jvalue_write(jvalue v, jout *out) {
    return write_as(v, false, out);
}

quire_err jvalue_write_repr(jvalue v, jout *out) {
    return write_as(v, true, out);
}
