/* Formatting: the % operator, str.format, and single values by a format specification. */
#include <assert.h>
#include <math.h>
#include <stdio.h>

#include "base/utf8.h"
#include "jinja/jinja_big.h"
#include "jinja/jinja_run.h"

typedef struct percent {
    jrun *r;
    str rest;      /* the rest of the format */
    jvalue args;   /* the right operand */
    size_t n_used; /* number of items used of a tuple; 1 for a single value */
    bool named;    /* an argument was looked up by name */
    bool escapes;  /* the format is safe, so inserted texts are escaped */
} percent;

static char jinja_percent_take(percent *p) {
    char c = p->rest.n > 0 ? p->rest.p[0] : '\0';
    p->rest.p += p->rest.n > 0;
    p->rest.n -= p->rest.n > 0;
    return c;
}

static quire_err next_value(percent *p, jvalue *out) {
    bool tuple = jis(p->args, J_TUPLE);
    if (p->n_used >= (tuple ? p->args.u.list->n : 1)) {
        return jrun_fail(p->r, QUIRE_BAD_REQUEST, "not enough arguments for format string");
    }
    *out = tuple ? p->args.u.list->items[p->n_used] : p->args;
    p->n_used++;
    return QUIRE_OK;
}

static quire_err named_value(percent *p, jvalue *out) {
    size_t end = jstr_find(p->rest, str_of(")"), 0);
    if (end != SIZE_MAX && jis(p->args, J_UNDEFINED)) {
        TRY(jrun_undefined(p->r, p->args));
    }
    if (end == SIZE_MAX || !jis(p->args, J_DICT)) {
        return jrun_fail(p->r, QUIRE_BAD_REQUEST,
                         end == SIZE_MAX ? "incomplete format key" : "format requires a mapping");
    }
    str name = {p->rest.p, end};
    const jvalue *found;
    TRY(jrun_get(p->r, p->args.u.dict, jstring(name), &found));
    p->rest = (str){name.p + end + 1, p->rest.n - end - 1};
    p->named = true;
    if (found == NULL) {
        return jrun_fail(p->r, QUIRE_BAD_REQUEST, "'%.*s'", (int)(end < 80 ? end : 80), name.p);
    }
    *out = *found;
    return QUIRE_OK;
}

/* Reads a number, or * for an argument. */
static quire_err jinja_percent_count(percent *p, int64_t *out) {
    jvalue v;
    if (p->rest.n > 0 && p->rest.p[0] == '*') {
        (void)jinja_percent_take(p);
        TRY(next_value(p, &v));
        return jrun_want_integer(p->r, v, "*", out);
    }
    for (*out = 0; p->rest.n > 0 && p->rest.p[0] >= '0' && p->rest.p[0] <= '9';) {
        *out = *out * 10 + (jinja_percent_take(p) - '0');
        if (*out > JFORMAT_MAX_WIDTH) {
            TRY(jrun_fail(p->r, QUIRE_TOO_LARGE, "a width of more than %d characters", JFORMAT_MAX_WIDTH));
        }
    }
    return QUIRE_OK;
}

static quire_err flags(percent *p, jformat_spec *s) {
    *s = (jformat_spec){.fill = str_of(" "), .align = '>', .precision = -1};
    bool zero = false, left = false;
    for (; p->rest.n > 0 && p->rest.p[0] != '\0' && strchr("-+ #0", p->rest.p[0]) != NULL;
         (void)jinja_percent_take(p)) {
        char c = p->rest.p[0];
        left = left || c == '-';
        zero = zero || c == '0';
        s->alternate = s->alternate || c == '#';
        s->sign = c == '+' || (c == ' ' && s->sign != '+') ? c : s->sign;
    }
    TRY(jinja_percent_count(p, &s->width));
    if (s->width < 0) {
        left = true;
        s->width = -s->width;
    }
    if (p->rest.n > 0 && p->rest.p[0] == '.') {
        (void)jinja_percent_take(p);
        TRY(jinja_percent_count(p, &s->precision));
    }
    s->align = left ? '<' : zero ? '=' : '>';
    s->fill = str_of(zero && !left ? "0" : " ");
    return QUIRE_OK;
}

/* Escapes characters that are not ASCII, like Python's ascii() of a repr. */
static quire_err jformat_ascii(jrun *r, jvalue *text) {
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

/* Writes a text for %s, %r and %a, or a number if the type takes numbers. */
static quire_err jinja_percent_write(percent *p, jvalue v, jformat_spec *s, jout *out) {
    bool text = s->type == 's' || s->type == 'r' || s->type == 'a';
    bool number = jis_whole(v) || jis(v, J_FLOAT), is_safe = s->type == 's' && jis(v, J_STRING) && v.safe;
    if (text || s->type == 'c') { /* flag 0 pads numbers only */
        s->align = s->align == '=' ? '>' : s->align;
        s->fill = str_of(" ");
        s->precision = text ? s->precision : -1;
    }
    if (text) {
        jout o = jrun_out(p->r);
        quire_err e = s->type == 's' ? jvalue_write(v, &o) : jvalue_write_repr(v, &o);
        TRY(jrun_take_text(p->r, jrun_memory(p->r, e), &o, &v));
        if (s->type == 'a') {
            TRY(jformat_ascii(p->r, &v));
        }
        if (p->escapes && !is_safe) {
            TRY(jrun_escape(p->r, v, &v));
        }
        s->type = 0;
    } else if (s->type == 'c' && jis(v, J_STRING) && jstr_length(v.u.s) == 1) {
        s->type = 0;
    } else if (jis(v, J_UNDEFINED) && strchr("diueEfFgG", s->type) != NULL) {
        return jrun_undefined(p->r, v);
    } else if (!number) {
        return jrun_fail(p->r, QUIRE_BAD_REQUEST, "%%%c format: a real number is required, not %s", s->type,
                         jvalue_type(v));
    } else if (jis(v, J_FLOAT) && strchr("diu", s->type) != NULL) {
        TRY(jcall_function(p->r, jinja_find_filter(str_of("int")), &v, &(jargs){0}, &v));
    }
    if (s->type == 'o' || s->type == 'x' || s->type == 'X') {
        if (jis(v, J_FLOAT)) {
            TRY(jrun_fail(p->r, QUIRE_BAD_REQUEST, "%%%c format: an integer is required, not float",
                          s->type));
        }
    }
    return jformat_value(p->r, v, s, out);
}

static quire_err expand_one(percent *p, jout *out) {
    jvalue v = {.kind = J_MISSING};
    jformat_spec s;
    if (p->rest.n > 0 && p->rest.p[0] == '(') {
        (void)jinja_percent_take(p);
        TRY(named_value(p, &v));
    }
    TRY(flags(p, &s));
    while (p->rest.n > 0 && (p->rest.p[0] == 'l' || p->rest.p[0] == 'h' || p->rest.p[0] == 'L')) {
        (void)jinja_percent_take(p);
    }
    s.type = jinja_percent_take(p);
    if (s.type == '\0') {
        return jrun_fail(p->r, QUIRE_BAD_REQUEST, "incomplete format");
    }
    if (s.type == '%') {
        return jout_char(out, '%');
    }
    if (strchr("sracdiouxXeEfFgG", s.type) == NULL) {
        return jrun_fail(p->r, QUIRE_BAD_REQUEST, "unsupported format character '%c'", s.type);
    }
    if (jis(v, J_MISSING)) {
        TRY(next_value(p, &v));
    }
    return jinja_percent_write(p, v, &s, out);
}

static quire_err jinja_percent_expand(percent *p, jout *out) {
    while (p->rest.n > 0) {
        size_t at = jstr_find(p->rest, str_of("%"), 0);
        str text = {p->rest.p, at == SIZE_MAX ? p->rest.n : at};
        TRY(jrun_step(p->r, 1));
        if (jout_add(out, text) != QUIRE_OK) {
            TRY(jrun_no_memory(p->r));
        }
        p->rest = (str){text.p + text.n, p->rest.n - text.n};
        if (at != SIZE_MAX) {
            (void)jinja_percent_take(p);
            TRY(expand_one(p, out));
        }
    }
    bool tuple = jis(p->args, J_TUPLE), leaves = p->n_used < (tuple ? p->args.u.list->n : 1);
    bool may_leave =
        p->named || (!tuple && (jis(p->args, J_DICT) || jis(p->args, J_LIST) || jis(p->args, J_UNDEFINED)));
    return leaves && !may_leave
               ? jrun_fail(p->r, QUIRE_BAD_REQUEST, "not all arguments converted during string formatting")
               : QUIRE_OK;
}

quire_err jformat_percent(jrun *r, jvalue format, jvalue args, jvalue *out) {
    percent p = {.r = r, .rest = format.u.s, .args = args, .escapes = format.safe};
    jout o = jrun_out(r);
    bool safe = format.safe;
    TRY(jrun_take_text(r, jinja_percent_expand(&p, &o), &o, out));
    out->safe = safe;
    return QUIRE_OK;
}

/* str.format: fields in braces, {name.member[key]!conversion:specification}. */

/* How fields are numbered: automatically, or explicitly as in {0}, but not both. */
typedef enum numbering { NUMBERS_NONE, NUMBERS_COUNT, NUMBERS_NAMED } numbering;

typedef struct braces {
    jrun *r;
    const jargs *args;
    int64_t next; /* number of the next unnumbered field */
    int depth;
    numbering numbering;
    bool escapes; /* the format is safe, so fields are escaped */
} braces;

static quire_err jinja_braces_expand(braces *b, str format, jout *out);

static bool is_number(str s) {
    bool digits = s.n > 0 && s.n < 10;
    for (size_t i = 0; i < s.n; i++) {
        digits = digits && s.p[i] >= '0' && s.p[i] <= '9';
    }
    return digits;
}

static int64_t jinja_braces_number_of(str s) {
    int64_t n = 0;
    for (size_t i = 0; i < s.n && n < JFORMAT_MAX_WIDTH * 10; i++) {
        n = n * 10 + (s.p[i] - '0');
    }
    return n;
}

/* The prefix of s before the first of these characters. */
static str until(str s, const char *stops) {
    size_t n = 0;
    while (n < s.n && (s.p[n] == '\0' || strchr(stops, s.p[n]) == NULL)) {
        n++;
    }
    return (str){s.p, n};
}

static str jinja_braces_without(str s, size_t n) {
    return (str){s.p + n, s.n - n};
}

static quire_err argument(braces *b, str name, jvalue *out) {
    size_t n_positional = b->args->n - b->args->n_named;
    if (name.n == 0 || is_number(name)) {
        numbering used = name.n == 0 ? NUMBERS_COUNT : NUMBERS_NAMED;
        if (b->numbering != NUMBERS_NONE && b->numbering != used) {
            return jrun_fail(
                b->r, QUIRE_BAD_REQUEST, "cannot switch from %s to %s",
                used == NUMBERS_COUNT ? "manual field specification" : "automatic field numbering",
                used == NUMBERS_COUNT ? "automatic field numbering" : "manual field specification");
        }
        b->numbering = used;
        int64_t i = name.n == 0 ? b->next++ : jinja_braces_number_of(name);
        if ((size_t)i >= n_positional) {
            return jrun_fail(b->r, QUIRE_BAD_REQUEST,
                             "Replacement index %lld out of range for positional args tuple", (long long)i);
        }
        *out = b->args->values[i];
        return QUIRE_OK;
    }
    *out = jargs_named(b->args, name);
    return jis(*out, J_MISSING)
               ? jrun_fail(b->r, QUIRE_BAD_REQUEST, "'%.*s'", (int)(name.n < 80 ? name.n : 80), name.p)
               : QUIRE_OK;
}

/* Evaluates the name of a field: an argument, then members and keys. */
static quire_err field_value(braces *b, str name, jvalue *v) {
    str first = until(name, ".[");
    TRY(argument(b, first, v));
    for (name = jinja_braces_without(name, first.n); name.n > 0;) {
        bool key = name.p[0] == '[';
        name = jinja_braces_without(name, 1);
        str part = until(name, key ? "]" : ".[");
        name = jinja_braces_without(name, part.n + (key && part.n < name.n));
        TRY(key ? jget_item(b->r, *v, is_number(part) ? jint(jinja_braces_number_of(part)) : jstring(part), v)
                : jget_member(b->r, *v, part, v));
    }
    return QUIRE_OK;
}

static bool jinja_braces_skip(str *s, const char *chars, char *found) {
    if (s->n == 0 || s->p[0] == '\0' || strchr(chars, s->p[0]) == NULL) {
        return false;
    }
    *found = s->p[0];
    *s = jinja_braces_without(*s, 1);
    return true;
}

static quire_err jinja_braces_read_spec(jrun *r, str s, jformat_spec *out) {
    *out = (jformat_spec){.fill = str_of(" "), .precision = -1};
    char c;
    size_t size = s.n > 0 ? jchar_size(s.p, s.n) : 0;
    if (s.n > size && strchr("<>=^", s.p[size]) != NULL) {
        out->fill = (str){s.p, size};
        s = jinja_braces_without(s, size);
    }
    (void)jinja_braces_skip(&s, "<>=^", &out->align);
    (void)jinja_braces_skip(&s, "+- ", &out->sign);
    out->alternate = jinja_braces_skip(&s, "#", &c);
    if (jinja_braces_skip(&s, "0", &c) && out->align == 0) {
        out->fill = str_of("0");
        out->align = '=';
    }
    str digits = s;
    while (s.n > 0 && s.p[0] >= '0' && s.p[0] <= '9') {
        s = jinja_braces_without(s, 1);
    }
    out->width = jinja_braces_number_of((str){digits.p, digits.n - s.n});
    (void)jinja_braces_skip(&s, ",_", &out->group);
    if (jinja_braces_skip(&s, ".", &c)) {
        digits = s;
        while (s.n > 0 && s.p[0] >= '0' && s.p[0] <= '9') {
            s = jinja_braces_without(s, 1);
        }
        out->precision = jinja_braces_number_of((str){digits.p, digits.n - s.n});
        if (digits.n == s.n) {
            TRY(jrun_fail(r, QUIRE_BAD_REQUEST, "Format specifier missing precision"));
        }
    }
    (void)jinja_braces_skip(&s, "bcdeEfFgGnosxX%", &out->type);
    return s.n > 0 ? jrun_fail(r, QUIRE_BAD_REQUEST, "Invalid format specifier") : QUIRE_OK;
}

/* Prepares v for a specification, which only numbers (booleans too) and texts accept. */
static quire_err take_spec(jrun *r, const jformat_spec *s, jvalue *v) {
    bool as_float = s->type != 0 && strchr("eEfFgG%", s->type) != NULL;
    if (jis(*v, J_BOOL)) {
        bool is_input = v->is_input;
        *v = jint(jas_integer(*v));
        v->is_input = is_input;
    }
    if (!jis_whole(*v) && !jis(*v, J_FLOAT) && !jis(*v, J_STRING)) {
        return jrun_fail(r, QUIRE_BAD_REQUEST, "unsupported format string passed to %s.__format__",
                         jvalue_type(*v));
    }
    if (jis(*v, J_STRING) && (s->sign != 0 || s->alternate || s->group != 0)) {
        return jrun_fail(r, QUIRE_BAD_REQUEST,
                         s->group != 0 ? "Cannot specify '%c' with 's'."
                                       : "'%c' is not allowed in string format specifier",
                         s->group != 0  ? s->group
                         : s->sign != 0 ? s->sign
                                        : '#');
    }
    return jis_whole(*v) && s->precision >= 0 && !as_float
               ? jrun_fail(r, QUIRE_BAD_REQUEST, "Precision not allowed in integer format specifier")
               : QUIRE_OK;
}

/* Formats and escapes the value of a field in a safe format. */
static quire_err jinja_braces_escaped(braces *b, jvalue v, const jformat_spec *spec, bool has_spec,
                                      jout *out) {
    jout o = jrun_out(b->r);
    jvalue text;
    if (jis(v, J_STRING) && v.safe && has_spec) {
        return jrun_fail(b->r, QUIRE_BAD_REQUEST, "Unsupported format specification for Markup.");
    }
    TRY(jrun_take_text(b->r, jformat_value(b->r, v, spec, &o), &o, &text));
    text.safe = jis(v, J_STRING) && v.safe;
    TRY(jrun_escape(b->r, text, &text));
    return jrun_memory(b->r, jout_add(out, text.u.s));
}

/* Expands one field, given without braces. */
static quire_err expand_field(braces *b, str field, jout *out) {
    str name = until(field, "!:"), rest = jinja_braces_without(field, name.n);
    char conversion = 's', c;
    bool converts = false;
    jvalue v, spec_text = jstring((str){0});
    TRY(field_value(b, name, &v));
    if (jinja_braces_skip(&rest, "!", &c)) {
        converts = jinja_braces_skip(&rest, "rsa", &conversion);
        if (!(converts && (rest.n == 0 || rest.p[0] == ':'))) {
            TRY(jrun_fail(b->r, QUIRE_BAD_REQUEST, "expected ':' after conversion specifier"));
        }
    }
    if (jinja_braces_skip(&rest, ":", &c)) { /* specifications may contain fields */
        jout o = jrun_out(b->r);
        if (++b->depth > 2) {
            TRY(jrun_fail(b->r, QUIRE_BAD_REQUEST, "Max string recursion exceeded"));
        }
        TRY(jrun_take_text(b->r, jinja_braces_expand(b, rest, &o), &o, &spec_text));
        b->depth--;
    }
    if (converts) {
        jout o = jrun_out(b->r);
        quire_err e = conversion == 's' ? jrun_write(b->r, v, &o) : jvalue_write_repr(v, &o);
        TRY(jrun_take_text(b->r, jrun_memory(b->r, e), &o, &v));
        if (conversion == 'a') {
            TRY(jformat_ascii(b->r, &v));
        }
    }
    jformat_spec spec;
    TRY(jinja_braces_read_spec(b->r, spec_text.u.s, &spec));
    if (spec_text.u.s.n > 0) {
        TRY(take_spec(b->r, &spec, &v));
    }
    return b->escapes ? jinja_braces_escaped(b, v, &spec, spec_text.u.s.n > 0, out)
                      : jformat_value(b->r, v, &spec, out);
}

/* Number of bytes between a field's { and }; SIZE_MAX: there is no }. */
static size_t field_size(str s) {
    int depth = 1;
    for (size_t i = 0; i < s.n; i++) {
        depth += s.p[i] == '{' ? 1 : s.p[i] == '}' ? -1 : 0;
        if (depth == 0) {
            return i;
        }
    }
    return SIZE_MAX;
}

static quire_err jinja_braces_expand(braces *b, str format, jout *out) {
    while (format.n > 0) {
        str text = until(format, "{}");
        TRY(jrun_step(b->r, 1));
        if (jout_add(out, text) != QUIRE_OK) {
            TRY(jrun_no_memory(b->r));
        }
        format = jinja_braces_without(format, text.n);
        if (format.n == 0) {
            break;
        }
        char brace = format.p[0];
        if (format.n > 1 && format.p[1] == brace && b->depth == 0) {
            if (jout_add(out, (str){format.p, 1}) != QUIRE_OK) {
                TRY(jrun_no_memory(b->r));
            }
            format = jinja_braces_without(format, 2);
            continue;
        }
        size_t n = brace == '{' ? field_size(jinja_braces_without(format, 1)) : SIZE_MAX;
        if (n == SIZE_MAX) {
            return jrun_fail(b->r, QUIRE_BAD_REQUEST,
                             format.n == 1 ? "Single '%c' encountered in format string"
                                           : "expected '%c' before end of string",
                             format.n == 1 ? brace : '}');
        }
        TRY(expand_field(b, (str){format.p + 1, n}, out));
        format = jinja_braces_without(format, n + 2);
    }
    return QUIRE_OK;
}

quire_err jformat_braces(jrun *r, jvalue format, const jargs *args, jvalue *out) {
    braces b = {.r = r, .args = args, .escapes = format.safe};
    jout o = jrun_out(r);
    bool safe = format.safe;
    TRY(jrun_take_text(r, jinja_braces_expand(&b, format.u.s, &o), &o, out));
    out->safe = safe;
    return QUIRE_OK;
}

/* One value by a format specification, as in Python's format() and % operator. */

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

/* Inserts separators between groups of n digits before the point. */
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

/* Adds zeros up to the width, with separators. */
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
    /* %.5d: least number of digits */
    while (e == QUIRE_OK && (int64_t)digits.n < s->precision && s->precision <= MAX_PRECISION) {
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

/* Writes the magnitude of a float. */
static quire_err jinja_format_write_digits(jrun *r, double f, const jformat_spec *s, strbuf *digits) {
    char text[1024], format[16];
    bool is_percent = s->type == '%', is_bare = s->type == 0;
    if (!isfinite(f)) {
        bool capital = s->type == 'F' || s->type == 'E' || s->type == 'G';
        return strbuf_addf(digits, "%s%s",
                           isnan(f)  ? (capital ? "NAN" : "nan")
                           : capital ? "INF"
                                     : "inf",
                           is_percent ? "%" : "");
    }
    int precision = (int)(s->precision > MAX_PRECISION ? MAX_PRECISION : s->precision < 0 ? 6 : s->precision);
    if (is_bare && s->precision < 0) { /* like repr */
        jout o = jrun_out(r);
        quire_err e = jfloat_write(f, &o);
        if (e == QUIRE_OK) {
            e = strbuf_add(digits, o.text.p, o.text.n);
        }
        jout_deinit(&o);
        return e;
    }
    (void)snprintf(format, sizeof format, "%%%s.*%c", s->alternate ? "#" : "",
                   is_percent                  ? 'f'
                   : is_bare || s->type == 'n' ? 'g'
                                               : s->type);
    int n = snprintf(text, sizeof text, format, precision, is_percent ? f * 100 : f);
    bool whole = is_bare && strpbrk(text, ".e") == NULL;
    TRY(strbuf_add(digits, text, (size_t)n < sizeof text ? (size_t)n : sizeof text - 1));
    return whole ? strbuf_add_str(digits, ".0") : is_percent ? strbuf_add_char(digits, '%') : QUIRE_OK;
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
