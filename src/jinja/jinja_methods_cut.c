/* Methods that cut, join and pad strings. */
#include "jinja/jinja_run.h"

/* ---- cutting and joining ---- */

typedef struct pieces {
    jvalue *items;
    size_t n, cap;
} pieces;

static quire_err jinja_methods_cut_add_piece(jrun *r, pieces *p, str s) {
    if (!jarena_grow(&r->arena, &p->items, &p->cap, p->n, sizeof *p->items)) {
        return jrun_no_memory(r);
    }
    p->items[p->n++] = jstring(s);
    return jrun_step(r, 1);
}

/* Splits at runs of blanks, from the left or, with last, from the right; at most max
 * times. */
static quire_err split_blanks(jrun *r, str s, int64_t max, bool last, pieces *p) {
    s = jstr_strip(s, !last, last);
    while (s.n > 0) {
        if (max-- == 0) {
            return jinja_methods_cut_add_piece(r, p, s); /* the rest keeps the blanks at its far end */
        }
        size_t i = last ? s.n : 0, size;
        for (;;) { /* one word */
            if (last ? i == 0 : i == s.n) {
                break;
            }
            size_t at = last ? i - jstr_last((str){s.p, i}).n : i;
            if (jchar_is_space(jchar_at(s.p + at, s.n - at, &size))) {
                break;
            }
            i = last ? at : at + size;
        }
        TRY(jinja_methods_cut_add_piece(r, p, last ? (str){s.p + i, s.n - i} : (str){s.p, i}));
        s = jstr_strip(last ? (str){s.p, i} : (str){s.p + i, s.n - i}, !last, last);
    }
    return QUIRE_OK;
}

static quire_err split_at(jrun *r, str s, str separator, int64_t max, bool last, pieces *p) {
    for (; max != 0; max--) {
        size_t at;
        TRY(jstr_find_either(r, s, separator, last, &at));
        if (at == SIZE_MAX) {
            break;
        }
        str left = {s.p, at}, right = {s.p + at + separator.n, s.n - at - separator.n};
        TRY(jinja_methods_cut_add_piece(r, p, last ? right : left));
        s = last ? left : right;
    }
    return jinja_methods_cut_add_piece(r, p, s);
}

/* how: whether to split from the right. */
JFUNCTION(str_split) {
    bool last = how;
    str s, separator;
    int64_t max;
    pieces p = {0};
    TRY(jarg_self(r, args, &s));
    TRY(jarg_text(r, args[1], "the separator", &separator));
    TRY(jarg_count(r, args[2], "maxsplit", &max));
    TRY(jrun_step(r, s.n / 64));
    if (!jgiven(args[1])) {
        TRY(split_blanks(r, s, max, last, &p));
    } else if (separator.n == 0) {
        return jrun_fail(r, QUIRE_BAD_REQUEST, "empty separator");
    } else {
        TRY(split_at(r, s, separator, max, last, &p));
    }
    if (last) {
        jvalues_reverse(p.items, p.n);
    }
    return jrun_list(r, J_LIST, p.items, p.n, out);
}

static bool ends_line(int32_t c) {
    return (c >= 0x0a && c <= 0x0d) || (c >= 0x1c && c <= 0x1e) || c == 0x85 || c == 0x2028 || c == 0x2029;
}

quire_err jstr_split_lines(jrun *r, str s, bool keep_ends, jvalue **lines, size_t *n) {
    pieces p = {0};
    for (size_t start = 0, i = 0, size; i < s.n; i += size) {
        int32_t c = jchar_at(s.p + i, s.n - i, &size);
        if (ends_line(c) || i + size == s.n) {
            size_t end = ends_line(c) ? i : i + size;
            size += c == '\r' && i + 1 < s.n && s.p[i + 1] == '\n';
            TRY(jinja_methods_cut_add_piece(r, &p, (str){s.p + start, (keep_ends ? i + size : end) - start}));
            start = i + size;
        }
    }
    *lines = p.items;
    *n = p.n;
    return jrun_step(r, s.n / 16);
}

JFUNCTION(str_splitlines) {
    str s;
    jvalue *lines;
    size_t n;
    bool keeps;
    TRY(jarg_self(r, args, &s));
    TRY(jarg_flag(r, args[1], "keepends", &keeps));
    TRY(jstr_split_lines(r, s, keeps, &lines, &n));
    return jrun_list(r, J_LIST, lines, n, out);
}

/* how: whether to split at the last occurrence. */
JFUNCTION(str_partition) {
    bool last = how;
    str s, separator;
    jvalue *parts;
    TRY(jarg_self(r, args, &s));
    TRY(jrun_want_text(r, args[1], "the separator", &separator));
    TRY(jrun_values(r, 3, &parts));
    if (separator.n == 0) {
        return jrun_fail(r, QUIRE_BAD_REQUEST, "empty separator");
    }
    size_t at;
    TRY(jstr_find_either(r, s, separator, last, &at));
    bool found = at != SIZE_MAX;
    str empty = {s.p, 0};
    parts[0] = jstring(found ? (str){s.p, at} : last ? empty : s);
    parts[1] = jstring(found ? separator : empty);
    parts[2] = jstring(found ? (str){s.p + at + separator.n, s.n - at - separator.n} : last ? s : empty);
    return jrun_list(r, J_TUPLE, parts, 3, out);
}

JFUNCTION(str_join) {
    str s, part;
    const jvalue *items;
    size_t n;
    TRY(jarg_self(r, args, &s));
    TRY(jrun_items(r, args[1], &items, &n));
    jout_clear(&r->scratch);
    for (size_t i = 0; i < n; i++) {
        TRY(jrun_want_text(r, items[i], "each item", &part));
        if (i > 0) {
            TRY(jrun_add(r, s));
        }
        TRY(jrun_add(r, part));
    }
    return jrun_scratch(r, out);
}

JFUNCTION(str_replace) {
    str s, from, to;
    int64_t max;
    TRY(jarg_self(r, args, &s));
    TRY(jrun_want_text(r, args[1], "what is replaced", &from));
    TRY(jrun_want_text(r, args[2], "the replacement", &to));
    TRY(jarg_count(r, args[3], "count", &max));
    jout_clear(&r->scratch);
    size_t at = 0;
    for (; max != 0; max--) {
        size_t found = jstr_find(s, from, at);
        if (found == SIZE_MAX) {
            break;
        }
        TRY(jrun_step(r, 1));
        if (from.n == 0) { /* before every character, and at the end */
            TRY(jrun_add(r, to));
            if (at == s.n) {
                break;
            }
            size_t size = jchar_size(s.p + at, s.n - at);
            TRY(jrun_add(r, (str){s.p + at, size}));
            at += size;
            continue;
        }
        TRY(jrun_add(r, (str){s.p + at, found - at}));
        TRY(jrun_add(r, to));
        at = found + from.n;
    }
    TRY(jrun_add(r, (str){s.p + at, s.n - at}));
    return jrun_scratch(r, out);
}

/* ---- padding ---- */

static quire_err jinja_methods_cut_add_fill(jrun *r, str fill, int64_t n) {
    TRY(jrun_step(r, n > 0 ? (size_t)n : 0));
    for (; n > 0; n--) {
        TRY(jrun_add(r, fill));
    }
    return QUIRE_OK;
}

/* how: where the text goes: left, right or centre. */
JFUNCTION(str_pad) {
    str s, fill;
    int64_t width;
    TRY(jarg_self(r, args, &s));
    TRY(jrun_want_integer(r, args[1], "the width", &width));
    TRY(jarg_text(r, args[2], "the fill character", &fill));
    fill = jgiven(args[2]) ? fill : str_of(" ");
    if (jstr_length(fill) != 1) {
        return jrun_fail(r, QUIRE_BAD_REQUEST, "The fill character must be exactly one character long");
    }
    int64_t n = (int64_t)jstr_length(s), blanks = width > n ? width - n : 0;
    int64_t left = how == 'l' ? 0 : how == 'r' ? blanks : blanks / 2 + (blanks & width & 1);
    jout_clear(&r->scratch);
    TRY(jinja_methods_cut_add_fill(r, fill, left));
    TRY(jrun_add(r, s));
    TRY(jinja_methods_cut_add_fill(r, fill, blanks - left));
    return jrun_scratch(r, out);
}

JFUNCTION(str_zfill) {
    str s;
    int64_t width;
    TRY(jarg_self(r, args, &s));
    TRY(jrun_want_integer(r, args[1], "the width", &width));
    size_t sign = s.n > 0 && (s.p[0] == '+' || s.p[0] == '-');
    jout_clear(&r->scratch);
    TRY(jrun_add(r, (str){s.p, sign}));
    TRY(jinja_methods_cut_add_fill(r, str_of("0"), width > 0 ? width - (int64_t)jstr_length(s) : 0));
    TRY(jrun_add(r, (str){s.p + sign, s.n - sign}));
    return jrun_scratch(r, out);
}

JFUNCTION(str_expandtabs) {
    str s;
    int64_t width, column = 0;
    TRY(jarg_self(r, args, &s));
    TRY(jarg_integer(r, args[1], "the width", 8, &width));
    jout_clear(&r->scratch);
    for (size_t i = 0, size; i < s.n; i += size) {
        size = jchar_size(s.p + i, s.n - i);
        if (s.p[i] == '\t') {
            int64_t blanks = width > 0 ? width - column % width : 0;
            TRY(jinja_methods_cut_add_fill(r, str_of(" "), blanks));
            column += blanks;
        } else {
            TRY(jrun_add(r, (str){s.p + i, size}));
            column = s.p[i] == '\n' || s.p[i] == '\r' ? 0 : column + 1;
        }
    }
    return jrun_scratch(r, out);
}
