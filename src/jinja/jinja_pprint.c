/* The filter pprint: Python's pprint.pformat at its width of 80 characters. */
#include "jinja/jinja_filters.h"

enum { WIDTH = 80 };

typedef struct printing {
    jrun *r;
    jout *out;
} printing;

static quire_err format(const printing *p, jvalue v, size_t indent, size_t allowance, int level);

static quire_err checked(const printing *p, quire_err e) {
    return e == QUIRE_OK ? e : jrun_no_memory(p->r);
}

static quire_err add(const printing *p, const char *s, uint8_t origin) {
    return checked(p, jout_add_as(p->out, str_of(s), origin));
}

static uint8_t origin_of(jvalue v) {
    return v.is_input ? JINJA_INPUT : JINJA_TEMPLATE;
}

static quire_err new_line(const printing *p, size_t indent) {
    TRY(jrun_step(p->r, 1 + indent / 16));
    TRY(add(p, "\n", JINJA_TEMPLATE));
    for (size_t i = 0; i < indent; i++) {
        TRY(add(p, " ", JINJA_TEMPLATE));
    }
    return QUIRE_OK;
}

/* repr(v) as a string of the arena, with the keys of dictionaries sorted (v is sorted already). */
static quire_err repr(const printing *p, jvalue v, str *out) {
    jvalue text;
    jout o = jrun_out(p->r);
    TRY(jrun_take_text(p->r, checked(p, jvalue_write_repr(v, &o)), &o, &text));
    *out = text.u.s;
    return QUIRE_OK;
}

/* v with the keys of all its dictionaries in order. */
static quire_err sorted(jrun *r, jvalue v, jvalue *out) {
    *out = v;
    if (jis(v, J_LIST) || jis(v, J_TUPLE)) {
        jvalue *items;
        size_t n = v.u.list->n;
        TRY(jrun_values(r, n, &items));
        for (size_t i = 0; i < n; i++) {
            TRY(sorted(r, v.u.list->items[i], &items[i]));
        }
        TRY(jrun_list(r, (jkind)v.kind, items, n, out));
    } else if (jis(v, J_DICT)) {
        jdict *d;
        size_t *order;
        TRY(jrun_dict(r, &d));
        TRY(jjson_order(r, v.u.dict, true, &order));
        for (size_t i = 0; i < v.u.dict->n; i++) {
            jvalue value;
            TRY(sorted(r, v.u.dict->entries[order[i]].value, &value));
            TRY(jrun_set(r, d, v.u.dict->entries[order[i]].key, value));
        }
        *out = (jvalue){.kind = J_DICT, .u.dict = d};
    }
    out->is_input = v.is_input;
    return QUIRE_OK;
}

static quire_err format_items(const printing *p, const jlist *l, size_t indent, size_t allowance, int level) {
    for (size_t i = 0; i < l->n; i++) {
        bool last = i + 1 == l->n;
        TRY(format(p, l->items[i], indent + 1, last ? allowance : 1, level));
        TRY(last ? QUIRE_OK : add(p, ",", JINJA_TEMPLATE));
        TRY(last ? QUIRE_OK : new_line(p, indent + 1));
    }
    return QUIRE_OK;
}

static quire_err format_dict(const printing *p, const jdict *d, size_t indent, size_t allowance, int level) {
    for (size_t i = 0; i < d->n; i++) {
        bool last = i + 1 == d->n;
        str key;
        TRY(repr(p, d->entries[i].key, &key));
        TRY(checked(p, jout_add(p->out, key)));
        TRY(add(p, ": ", JINJA_TEMPLATE));
        TRY(format(p, d->entries[i].value, indent + 1 + jstr_length(key) + 2, last ? allowance : 1, level));
        TRY(last ? QUIRE_OK : add(p, ",", JINJA_TEMPLATE));
        TRY(last ? QUIRE_OK : new_line(p, indent + 1));
    }
    return QUIRE_OK;
}

/* Parts of a long text, each as Python's literal on a line of its own. */
typedef struct chunks {
    const printing *p;
    str *parts;
    size_t n, cap;
} chunks;

static quire_err add_chunk(chunks *c, str part) {
    TRY(jarena_grow(&c->p->r->arena, &c->parts, &c->cap, c->n, sizeof *c->parts) ? QUIRE_OK : jrun_no_memory(c->p->r));
    c->parts[c->n++] = part;
    return QUIRE_OK;
}

static quire_err repr_length(const printing *p, str s, size_t *out) {
    str text;
    TRY(jrun_step(p->r, 1 + s.n / 8));
    TRY(repr(p, jstring(s), &text));
    *out = jstr_length(text);
    return QUIRE_OK;
}

/* The bytes of the next word of s with the blanks behind it. */
static size_t word_size(str s) {
    size_t n = 0, size;
    while (n < s.n && !jchar_is_space(jchar_at(s.p + n, s.n - n, &size))) {
        n += size;
    }
    while (n < s.n && jchar_is_space(jchar_at(s.p + n, s.n - n, &size))) {
        n += size;
    }
    return n;
}

/* Cuts a line that is too long at words. narrow: the width of the text's last part. */
static quire_err cut_line(chunks *c, str line, int64_t width, int64_t narrow) {
    str current = {line.p, 0};
    while (line.n > 0) {
        str part = {line.p, word_size(line)};
        size_t length;
        line = (str){line.p + part.n, line.n - part.n};
        str candidate = {current.p, current.n + part.n};
        TRY(repr_length(c->p, candidate, &length));
        if ((int64_t)length > (line.n == 0 ? narrow : width)) {
            TRY(current.n > 0 ? add_chunk(c, current) : QUIRE_OK);
            current = part;
        } else {
            current = candidate;
        }
    }
    return current.n > 0 ? add_chunk(c, current) : QUIRE_OK;
}

static quire_err format_text(const printing *p, str s, size_t indent, size_t allowance, int level) {
    chunks c = {.p = p};
    jvalue *lines;
    size_t n;
    indent += level == 1;
    allowance += level == 1;
    int64_t width = (int64_t)WIDTH - (int64_t)indent;
    TRY(jstr_split_lines(p->r, s, true, &lines, &n));
    for (size_t i = 0; i < n; i++) {
        int64_t narrow = i + 1 == n ? width - (int64_t)allowance : width;
        size_t length;
        TRY(repr_length(p, lines[i].u.s, &length));
        TRY((int64_t)length <= narrow ? add_chunk(&c, lines[i].u.s) : cut_line(&c, lines[i].u.s, width, narrow));
    }
    bool brackets = level == 1 && c.n > 1;
    TRY(brackets ? add(p, "(", JINJA_TEMPLATE) : QUIRE_OK);
    for (size_t i = 0; i < c.n; i++) {
        str text;
        TRY(repr(p, jstring(c.parts[i]), &text));
        TRY(i > 0 ? new_line(p, indent) : QUIRE_OK);
        TRY(checked(p, jout_add(p->out, text)));
    }
    return brackets ? add(p, ")", JINJA_TEMPLATE) : QUIRE_OK;
}

/* Writes v, which begins at column indent and has `allowance` characters behind it on its last line. */
static quire_err format(const printing *p, jvalue v, size_t indent, size_t allowance, int level) {
    str text;
    uint8_t origin = origin_of(v);
    TRY(jrun_step(p->r, 1));
    TRY(repr(p, v, &text));
    bool fits = (int64_t)jstr_length(text) <= (int64_t)WIDTH - (int64_t)indent - (int64_t)allowance;
    if (fits || !((jis(v, J_STRING) && v.u.s.n > 0) || jis(v, J_LIST) || jis(v, J_TUPLE) || jis(v, J_DICT))) {
        return checked(p, jout_add(p->out, text));
    }
    if (jis(v, J_STRING)) {
        return format_text(p, v.u.s, indent, allowance, level + 1);
    }
    const char *open = jis(v, J_LIST) ? "[" : jis(v, J_TUPLE) ? "(" : "{";
    const char *close = jis(v, J_LIST) ? "]" : jis(v, J_DICT) ? "}" : v.u.list->n == 1 ? ",)" : ")";
    TRY(add(p, open, origin));
    TRY(jis(v, J_DICT) ? format_dict(p, v.u.dict, indent, allowance + 1, level + 1)
                       : format_items(p, v.u.list, indent, allowance + strlen(close), level + 1));
    return add(p, close, origin);
}

JFUNCTION(filter_pprint) {
    jout o = jrun_out(r);
    printing p = {r, &o};
    jvalue v;
    TRY(sorted(r, args[0], &v));
    return jrun_take_text(r, format(&p, v, 0, 0, 0), &o, out);
}
