/* The % operator of texts: %(name)s, %5d, %-8.3f. */
#include "jinja/jinja_format.h"

typedef struct percent {
    jrun *r;
    str rest;      /* of the format */
    jvalue args;   /* as given */
    size_t n_used; /* of a tuple's items, or of one value */
    bool named;    /* a name was looked up */
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
    TRY(end != SIZE_MAX && jis(p->args, J_UNDEFINED) ? jrun_undefined(p->r, p->args) : QUIRE_OK);
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

/* A number of digits, or * for an argument. */
static quire_err jinja_percent_count(percent *p, int64_t *out) {
    jvalue v;
    if (p->rest.n > 0 && p->rest.p[0] == '*') {
        (void)jinja_percent_take(p);
        TRY(next_value(p, &v));
        return jrun_want_integer(p->r, v, "*", out);
    }
    for (*out = 0; p->rest.n > 0 && p->rest.p[0] >= '0' && p->rest.p[0] <= '9';) {
        *out = *out * 10 + (jinja_percent_take(p) - '0');
        TRY(*out > JFORMAT_MAX_WIDTH
                ? jrun_fail(p->r, QUIRE_TOO_LARGE, "a width of more than %d characters", JFORMAT_MAX_WIDTH)
                : QUIRE_OK);
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

/* A text for %s, %r and %a, or a number that the type takes. */
static quire_err jinja_percent_write(percent *p, jvalue v, jformat_spec *s, jout *out) {
    bool text = s->type == 's' || s->type == 'r' || s->type == 'a';
    bool number = jis_whole(v) || jis(v, J_FLOAT);
    if (text) {
        jout o = jrun_out(p->r);
        quire_err e = s->type == 's' ? jvalue_write(v, &o) : jvalue_write_repr(v, &o);
        TRY(jrun_take_text(p->r, e == QUIRE_OK ? e : jrun_no_memory(p->r), &o, &v));
        TRY(s->type == 'a' ? jformat_ascii(p->r, &v) : QUIRE_OK);
        s->type = 0;
        s->align = s->align == '=' ? '>' : s->align;
        s->fill = str_of(" ");
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
        TRY(jis(v, J_FLOAT) ? jrun_fail(p->r, QUIRE_BAD_REQUEST,
                                        "%%%c format: an integer is required, not float", s->type)
                            : QUIRE_OK);
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
    TRY(jis(v, J_MISSING) ? next_value(p, &v) : QUIRE_OK);
    return jinja_percent_write(p, v, &s, out);
}

static quire_err jinja_percent_expand(percent *p, jout *out) {
    while (p->rest.n > 0) {
        size_t at = jstr_find(p->rest, str_of("%"), 0);
        str text = {p->rest.p, at == SIZE_MAX ? p->rest.n : at};
        TRY(jrun_step(p->r, 1));
        TRY(jout_add(out, text) == QUIRE_OK ? QUIRE_OK : jrun_no_memory(p->r));
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
    percent p = {.r = r, .rest = format.u.s, .args = args};
    jout o = jrun_out(r);
    bool safe = format.safe;
    TRY(jrun_take_text(r, jinja_percent_expand(&p, &o), &o, out));
    out->safe = safe;
    return QUIRE_OK;
}
