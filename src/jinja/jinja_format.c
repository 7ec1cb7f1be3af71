/* Format: one value by a format specification, as Python's format() and the % operator
 * have it. */
#include "jinja/jinja_run.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>

#include "base/mem.h"
#include "base/utf8.h"
#include "jinja/jinja_big.h"

enum { MAX_PRECISION = 500 };

static quire_err jinja_format_add_fill(jout *out, str fill, int64_t n) {
    for (; n > 0; n--) {
        TRY(jout_add(out, fill));
    }
    return QUIRE_OK;
}

/* Appends head (a sign or prefix) and body, padded to the width. */
static quire_err pad(jrun *r, const jformat_spec *s, char align, str head, str body, uint8_t origin,
                     jout *out) {
    int64_t n = (int64_t)(head.n + jstr_length(body)), blanks = s->width > n ? s->width - n : 0;
    int64_t left = align == '>' ? blanks : align == '^' ? blanks / 2 : 0, inside = align == '=' ? blanks : 0;
    TRY(jrun_step(r, (size_t)blanks));
    quire_err e = jinja_format_add_fill(out, s->fill, left);
    TRY_DONE(e, jout_add_as(out, head, origin));
    TRY_DONE(e, jinja_format_add_fill(out, s->fill, inside));
    TRY_DONE(e, origin == JINJA_INPUT ? jout_add_as(out, body, origin) : jout_add(out, body));
    TRY_DONE(e, jinja_format_add_fill(out, s->fill, blanks - left - inside));
done:
    return e == QUIRE_OK ? e : jrun_fail(r, QUIRE_TOO_LARGE, "the text is too long");
}

/* Inserts the separator between groups of n digits before the point. */
static quire_err group_digits(strbuf *b, char separator, size_t n) {
    size_t end = 0;
    while (end < b->n && hex_digit(b->p[end]) >= 0) {
        end++;
    }
    strbuf out = {0};
    quire_err e = QUIRE_OK;
    for (size_t i = 0; i < b->n; i++) {
        if (i > 0 && i < end && (end - i) % n == 0) {
            TRY_DONE(e, strbuf_add_char(&out, separator));
        }
        TRY_DONE(e, strbuf_add_char(&out, b->p[i]));
    }
done:
    strbuf_deinit(b);
    *b = out;
    return e;
}

/* Zeros that fill the width, with separators between them. */
static quire_err fill_zeros(const jformat_spec *s, size_t n_head, strbuf *digits) {
    bool zeros = s->align == '=' && str_is(s->fill, "0") && s->group != 0 && s->width <= MAX_PRECISION;
    while (zeros && (int64_t)(n_head + digits->n) < s->width) {
        strbuf more = {0};
        size_t end = 0;
        while (end < digits->n && digits->p[end] != '.' && digits->p[end] != s->group) {
            end++;
        }
        TRY(strbuf_add_char(&more, '0'));
        if (end == 3) {
            TRY(strbuf_add_char(&more, s->group));
        }
        TRY(strbuf_add(&more, digits->p, digits->n));
        strbuf_deinit(digits);
        *digits = more;
    }
    return QUIRE_OK;
}

static quire_err finish_number(jrun *r, jvalue v, const jformat_spec *s, bool negative, const char *prefix,
                               size_t groups, strbuf *digits, jout *out) {
    char head[8];
    (void)snprintf(head, sizeof head, "%s%s",
                   negative         ? "-"
                   : s->sign == '+' ? "+"
                   : s->sign == ' ' ? " "
                                    : "",
                   prefix);
    quire_err e = s->group != 0 ? group_digits(digits, s->group, groups) : QUIRE_OK;
    if (e != QUIRE_OK || fill_zeros(s, strlen(head), digits) != QUIRE_OK) {
        TRY(jrun_no_memory(r));
    }
    return pad(r, s, s->align != 0 ? s->align : '>', str_of(head), (str){digits->p, digits->n},
               v.is_input ? JINJA_INPUT : JINJA_TEMPLATE, out);
}

static quire_err write_integer(jrun *r, jvalue v, const jformat_spec *s, jout *out) {
    const jbig *b = jbig_of(&r->arena, v);
    TRY(jrun_check_memory(r, b));
    char type = s->type == 0 || s->type == 'i' || s->type == 'u' || s->type == 'n' ? 'd' : s->type;
    uint32_t base = type == 'd' ? 10 : type == 'b' ? 2 : type == 'o' ? 8 : 16;
    const char *prefix = !s->alternate || base == 10 ? ""
                         : type == 'b'               ? "0b"
                         : type == 'o'               ? "0o"
                         : type == 'X'               ? "0X"
                                                     : "0x";
    strbuf digits = {0};
    TRY(jrun_step(r, 1 + b->n * b->n));
    quire_err e = jbig_digits(b, base, &digits);
    for (size_t i = 0; e == QUIRE_OK && type == 'X' && i < digits.n; i++) {
        digits.p[i] = (char)(digits.p[i] >= 'a' ? digits.p[i] - 'a' + 'A' : digits.p[i]);
    }
    while (e == QUIRE_OK && (int64_t)digits.n < s->precision && s->precision <= MAX_PRECISION) { /* %.5d */
        strbuf more = {0};
        e = strbuf_addf(&more, "0%.*s", (int)digits.n, digits.p);
        strbuf_deinit(&digits);
        digits = more;
    }
    e = jrun_memory(r, e);
    if (e == QUIRE_OK) {
        e = finish_number(r, v, s, b->negative, prefix, base == 10 ? 3 : 4, &digits, out);
    }
    strbuf_deinit(&digits);
    return e;
}

/* The magnitude of a float. */
static quire_err jinja_format_write_digits(jrun *r, double f, const jformat_spec *s, strbuf *digits) {
    char text[1024], format[16];
    bool percent = s->type == '%', bare = s->type == 0;
    if (!isfinite(f)) {
        bool capital = s->type == 'F' || s->type == 'E' || s->type == 'G';
        return strbuf_addf(digits, "%s%s",
                           isnan(f)  ? (capital ? "NAN" : "nan")
                           : capital ? "INF"
                                     : "inf",
                           percent ? "%" : "");
    }
    int precision = (int)(s->precision > MAX_PRECISION ? MAX_PRECISION : s->precision < 0 ? 6 : s->precision);
    if (bare && s->precision < 0) { /* as repr */
        jout o = jrun_out(r);
        quire_err e = jfloat_write(f, &o);
        if (e == QUIRE_OK) {
            e = strbuf_add(digits, o.text.p, o.text.n);
        }
        jout_deinit(&o);
        return e;
    }
    (void)snprintf(format, sizeof format, "%%%s.*%c", s->alternate ? "#" : "",
                   percent                  ? 'f'
                   : bare || s->type == 'n' ? 'g'
                                            : s->type);
    int n = snprintf(text, sizeof text, format, precision, percent ? f * 100 : f);
    bool whole = bare && strpbrk(text, ".e") == NULL;
    TRY(strbuf_add(digits, text, (size_t)n < sizeof text ? (size_t)n : sizeof text - 1));
    return whole ? strbuf_add_str(digits, ".0") : percent ? strbuf_add_char(digits, '%') : QUIRE_OK;
}

static quire_err jinja_format_write_float(jrun *r, jvalue v, const jformat_spec *s, jout *out) {
    double f = jis(v, J_HUGE) ? jbig_to_double(v.u.big) : jas_double(v);
    bool negative = signbit(f) && !isnan(f);
    strbuf digits = {0};
    quire_err e = jrun_memory(r, jinja_format_write_digits(r, fabs(f), s, &digits));
    if (e == QUIRE_OK) {
        e = finish_number(r, v, s, negative, "", 3, &digits, out);
    }
    strbuf_deinit(&digits);
    return e;
}

static quire_err jinja_format_write_text(jrun *r, jvalue v, const jformat_spec *s, jout *out) {
    jvalue text;
    jout o = jrun_out(r);
    TRY(jrun_take_text(r, jrun_write(r, v, &o), &o, &text));
    str t = text.u.s;
    if (s->precision >= 0) {
        t = jstr_part(t, 0, (size_t)s->precision);
    }
    if (s->align == '=') {
        TRY(jrun_fail(r, QUIRE_BAD_REQUEST, "'=' alignment not allowed in string format specifier"));
    }
    return pad(r, s, s->align != 0 ? s->align : '<', (str){0}, t, JINJA_TEMPLATE, out);
}

static quire_err wrong_type(jrun *r, jvalue v, char type) {
    return jrun_fail(r, QUIRE_BAD_REQUEST, "Unknown format code '%c' for object of type '%s'", type,
                     jvalue_type(v));
}

quire_err jformat_ascii(jrun *r, jvalue *text) {
    assert(text != NULL);
    jout o = jrun_out(r);
    str s = text->u.s;
    quire_err e = QUIRE_OK;
    for (size_t i = 0, size; i < s.n && e == QUIRE_OK; i += size) {
        int32_t c = utf8_next(s.p + i, &size);
        o.origin = jrun_origin(r, s, i);
        e = c < 0x80 ? jout_add(&o, (str){s.p + i, size})
                     : jout_f(&o,
                              c < 0x100     ? "\\x%02x"
                              : c < 0x10000 ? "\\u%04x"
                                            : "\\U%08x",
                              (unsigned)c);
    }
    return jrun_take_text(r, jrun_memory(r, e), &o, text);
}

quire_err jformat_value(jrun *r, jvalue v, const jformat_spec *s, jout *out) {
    bool number = jis_whole(v) || jis(v, J_FLOAT),
         as_float = s->type != 0 && strchr("eEfFgG%", s->type) != NULL;
    if (s->width > JFORMAT_MAX_WIDTH) {
        return jrun_fail(r, QUIRE_TOO_LARGE, "a width of more than %d characters", JFORMAT_MAX_WIDTH);
    }
    if (number && (as_float || (jis(v, J_FLOAT) && (s->type == 0 || s->type == 'n')))) {
        return jinja_format_write_float(r, v, s, out);
    }
    if (jis_whole(v) && (s->type == 0 ? !jis(v, J_BOOL) : strchr("bdinouxX", s->type) != NULL)) {
        return write_integer(r, v, s, out);
    }
    if (s->type == 'c' && jis_integer(v) && jas_integer(v) >= 0 && jas_integer(v) < 0x110000) {
        char bytes[4];
        str c = {bytes, jchar_put((int32_t)jas_integer(v), bytes)};
        return pad(r, s, s->align != 0 ? s->align : '<', (str){0}, c,
                   v.is_input ? JINJA_INPUT : JINJA_TEMPLATE, out);
    }
    return s->type == 0 || (s->type == 's' && !number) ? jinja_format_write_text(r, v, s, out)
                                                       : wrong_type(r, v, s->type);
}
