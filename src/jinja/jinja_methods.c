/* Methods of strings, lists, dictionaries and loops, and the tables of them. args[0] is
 * the object. */
#include <utf8proc.h>

#include "jinja/jinja_run.h"

/* An optional text argument; `what` is its name in an error. */
static quire_err jarg_text(jrun *r, jvalue v, const char *what, str *s) {
    *s = (str){0};
    return jgiven(v) ? jrun_want_text(r, v, what, s) : QUIRE_OK;
}

static quire_err jarg_integer(jrun *r, jvalue v, const char *what, int64_t fallback, int64_t *out) {
    *out = fallback;
    return jgiven(v) ? jrun_want_integer(r, v, what, out) : QUIRE_OK;
}

/* An optional limit on a count; -1: none. */
static quire_err jarg_count(jrun *r, jvalue v, const char *what, int64_t *out) {
    *out = -1;
    if (!jis(v, J_MISSING)) {
        TRY(jrun_want_integer(r, v, what, out));
    }
    *out = *out < 0 ? -1 : *out;
    return QUIRE_OK;
}

quire_err jarg_flag(jrun *r, jvalue v, const char *what, bool *out) {
    int64_t value = 0;
    TRY(jis(v, J_MISSING) ? QUIRE_OK : jrun_want_integer(r, v, what, &value));
    *out = value != 0;
    return QUIRE_OK;
}

/* ---- case and kinds ---- */

/* upper, lower, title and others. how: a jcase. */
static JFUNCTION(str_case) {
    str s = args[0].u.s;
    return jcase_map(r, s, (jcase)how, out);
}

static bool jinja_methods_is_space(int32_t c) {
    return c >= 0 && jchar_is_space(c);
}

static bool jinja_methods_is_alnum(int32_t c) {
    return jchar_is_alpha(c) || jchar_is_digit(c) || jchar_is_numeric(c);
}

enum { KIND_DECIMAL, KIND_DIGIT, KIND_NUMERIC, KIND_ALPHA, KIND_ALNUM, KIND_SPACE };

/* Whether the text is not empty and all characters are of one kind. how: the kind. */
static JFUNCTION(str_all_are) {
    static bool (*const kinds[])(int32_t c) = {jchar_is_decimal,       jchar_is_digit,
                                               jchar_is_numeric,       jchar_is_alpha,
                                               jinja_methods_is_alnum, jinja_methods_is_space};
    str s = args[0].u.s;
    bool all = s.n > 0;
    for (size_t i = 0, size; i < s.n && all; i += size) {
        all = kinds[how](jchar_at(s.p + i, s.n - i, &size));
    }
    *out = jbool(all);
    return jrun_step(r, s.n / 16);
}

/* islower and isupper. how: CASE_UPPER or CASE_LOWER. */
static JFUNCTION(str_is_case) {
    str s = args[0].u.s;
    *out = jbool(jcase_is(s, how == CASE_UPPER));
    return QUIRE_OK;
}

static JFUNCTION(str_is_title) {
    *out = jbool(jcase_is_title(args[0].u.s));
    return jrun_step(r, args[0].u.s.n / 16);
}

static JFUNCTION(str_is_ascii) {
    bool ascii = true;
    for (size_t i = 0; i < args[0].u.s.n; i++) {
        ascii = ascii && (unsigned char)args[0].u.s.p[i] < 0x80;
    }
    *out = jbool(ascii);
    return jrun_step(r, args[0].u.s.n / 64);
}

static JFUNCTION(str_is_identifier) {
    str s = args[0].u.s;
    bool is = s.n > 0;
    for (size_t i = 0, size; i < s.n && is; i += size) {
        int32_t c = jchar_at(s.p + i, s.n - i, &size);
        is = c == '_' || jchar_is_alpha(c) ||
             (i > 0 && jchar_in(c, JCATEGORY(ND) | JCATEGORY(MN) | JCATEGORY(MC) | JCATEGORY(PC)));
    }
    *out = jbool(is);
    return jrun_step(r, s.n / 16);
}

static JFUNCTION(str_is_printable) {
    str s = args[0].u.s;
    bool is = true;
    for (size_t i = 0, size; i < s.n && is; i += size) {
        is = jchar_is_printable(jchar_at(s.p + i, s.n - i, &size));
    }
    *out = jbool(is);
    return jrun_step(r, s.n / 16);
}

static JFUNCTION(str_casefold) {
    return jcase_fold(r, args[0].u.s, out);
}

static JFUNCTION(str_format) {
    return jformat_braces(r, args[0], rest, out);
}

static JFUNCTION(str_format_map) {
    if (!jis(args[1], J_DICT)) {
        return jrun_fail(r, QUIRE_BAD_REQUEST, "format_map takes a mapping");
    }
    const jdict *d = args[1].u.dict;
    jvalue *values;
    str *names = jarena_new(&r->arena, (d->n + 1) * sizeof *names);
    TRY(jrun_check_memory(r, names));
    TRY(jrun_values(r, d->n, &values));
    for (size_t i = 0; i < d->n; i++) {
        names[i] = jis(d->entries[i].key, J_STRING) ? d->entries[i].key.u.s : (str){0};
        values[i] = d->entries[i].value;
    }
    return jformat_braces(r, args[0], &(jargs){values, d->n, names, d->n}, out);
}

/* ---- stripping ---- */

/* Whether the character at p is in chars, as UTF-8. */
static bool in_chars(str chars, const char *p, size_t size) {
    for (size_t i = 0; i < chars.n;) {
        size_t n = jchar_size(chars.p + i, chars.n - i);
        if (n == size && memcmp(chars.p + i, p, n) == 0) {
            return true;
        }
        i += n;
    }
    return false;
}

enum { END_LEFT = 1, END_RIGHT = 2 };

/* strip, lstrip, rstrip. how: the ends to strip. */
static JFUNCTION(str_strip) {
    bool left = (how & END_LEFT) != 0, right = (how & END_RIGHT) != 0;
    str s = args[0].u.s, chars;
    TRY(jarg_text(r, args[1], "chars", &chars));
    TRY(jrun_step(r, s.n / 64));
    if (!jgiven(args[1])) {
        *out = jstring(jstr_strip(s, left, right));
        return QUIRE_OK;
    }
    while (left && s.n > 0) {
        size_t size = jchar_size(s.p, s.n);
        if (!in_chars(chars, s.p, size)) {
            break;
        }
        s.p += size;
        s.n -= size;
    }
    while (right && s.n > 0) {
        str last = jstr_last(s);
        if (!in_chars(chars, last.p, last.n)) {
            break;
        }
        s.n -= last.n;
    }
    *out = jstring(s);
    return QUIRE_OK;
}

/* Whether s begins or ends with part. end: END_LEFT or END_RIGHT. */
static bool jinja_methods_has_end(str s, str part, int end) {
    return part.n <= s.n && str_eq((str){end == END_LEFT ? s.p : s.p + s.n - part.n, part.n}, part);
}

/* removeprefix and removesuffix. how: the end. */
static JFUNCTION(str_remove_end) {
    str s = args[0].u.s, part;
    TRY(jrun_want_text(r, args[1], how == END_LEFT ? "the prefix" : "the suffix", &part));
    size_t n = jinja_methods_has_end(s, part, how) ? part.n : 0;
    *out = jstring((str){how == END_LEFT ? s.p + n : s.p, s.n - n});
    return QUIRE_OK;
}

/* ---- searching ---- */

/* Cuts s to the optional range start..end in characters. *offset: its first character.
 * *beyond: start is after the end of s. */
static quire_err window(jrun *r, str *s, jvalue start, jvalue end, int64_t *offset, bool *beyond) {
    int64_t n = (int64_t)jstr_length(*s), from, to;
    TRY(jrun_step(r, s->n / 16));
    TRY(jarg_integer(r, start, "start", 0, &from));
    TRY(jarg_integer(r, end, "end", n, &to));
    from += from < 0 ? n : 0;
    to += to < 0 ? n : 0;
    from = from < 0 ? 0 : from;
    to = to < 0 ? 0 : to > n ? n : to;
    *beyond = from > to;
    *offset = from;
    *s = jstr_part(*s, (size_t)(from > n ? n : from), (size_t)(to > from ? to - from : 0));
    return QUIRE_OK;
}

/* startswith and endswith, for a string or a tuple of strings. how: the end. */
static JFUNCTION(str_has_end) {
    str s = args[0].u.s, part;
    int64_t offset;
    bool beyond;
    TRY(window(r, &s, args[2], args[3], &offset, &beyond));
    const jvalue *parts = &args[1];
    size_t n = 1;
    if (jis(args[1], J_TUPLE)) {
        parts = args[1].u.list->items;
        n = args[1].u.list->n;
    }
    bool found = false;
    for (size_t i = 0; i < n; i++) {
        TRY(jrun_want_text(r, parts[i], "the argument", &part));
        found = found || (!beyond && jinja_methods_has_end(s, part, how));
    }
    *out = jbool(found);
    return QUIRE_OK;
}

/* The last offset of needle in s; SIZE_MAX: none. Compares at every offset, which counts
 * as steps. */
static quire_err find_last(jrun *r, str s, str needle, size_t *at) {
    size_t i = s.n >= needle.n ? s.n - needle.n + 1 : 0, places = 0;
    *at = SIZE_MAX;
    while (i-- > 0 && *at == SIZE_MAX) {
        if (needle.n == 0 || memcmp(s.p + i, needle.p, needle.n) == 0) {
            *at = i;
        }
        if (++places % 1024 == 0) {
            TRY(jrun_step(r, 64 + needle.n));
        }
    }
    return QUIRE_OK;
}

/* The first or last offset of needle in s; SIZE_MAX: none. */
static quire_err jstr_find_either(jrun *r, str s, str needle, bool last, size_t *at) {
    if (last) {
        return find_last(r, s, needle, at);
    }
    *at = jstr_find(s, needle, 0);
    return jrun_step(r, (*at == SIZE_MAX ? s.n : *at) / 64);
}

enum { FIND_LAST = 1, FIND_OR_FAIL = 2 };

/* find, index and others. how: a set of these. */
static JFUNCTION(str_find) {
    str s = args[0].u.s, needle;
    int64_t offset;
    bool beyond;
    TRY(jrun_want_text(r, args[1], "the argument", &needle));
    TRY(window(r, &s, args[2], args[3], &offset, &beyond));
    size_t at = SIZE_MAX;
    if (!beyond) {
        TRY(jstr_find_either(r, s, needle, (how & FIND_LAST) != 0, &at));
    }
    if (at == SIZE_MAX && (how & FIND_OR_FAIL) != 0) {
        return jrun_fail(r, QUIRE_BAD_REQUEST, "substring not found");
    }
    *out = jint(at == SIZE_MAX ? -1 : offset + (int64_t)jstr_length((str){s.p, at}));
    return QUIRE_OK;
}

static JFUNCTION(str_count) {
    str s = args[0].u.s, needle;
    int64_t offset, count = 0;
    bool beyond;
    TRY(jrun_want_text(r, args[1], "the argument", &needle));
    TRY(window(r, &s, args[2], args[3], &offset, &beyond));
    if (needle.n == 0) {
        *out = jint(beyond ? 0 : (int64_t)jstr_length(s) + 1);
        return QUIRE_OK;
    }
    for (size_t at = 0; (at = jstr_find(s, needle, at)) != SIZE_MAX; at += needle.n) {
        count++;
    }
    *out = jint(count);
    return QUIRE_OK;
}

/* ---- lists ---- */

/* count of a list, tuple or range. */
static JFUNCTION(list_count) {
    const jvalue *items;
    int64_t count = 0;
    size_t n;
    TRY(jrun_items(r, args[0], &items, &n));
    TRY(jrun_step(r, n));
    for (size_t i = 0; i < n; i++) {
        bool matches;
        TRY(jrun_matches(r, items[i], args[1], &matches));
        count += matches;
    }
    *out = jint(count);
    return QUIRE_OK;
}

static JFUNCTION(list_index) {
    const jvalue *items;
    size_t n;
    TRY(jrun_items(r, args[0], &items, &n));
    TRY(jrun_step(r, n));
    for (size_t i = 0; i < n; i++) {
        bool matches;
        TRY(jrun_matches(r, items[i], args[1], &matches));
        if (matches) {
            *out = jint((int64_t)i);
            return QUIRE_OK;
        }
    }
    return jrun_fail(r, QUIRE_BAD_REQUEST, "the value is not in the %s", jvalue_type(args[0]));
}

/* ---- dictionaries ---- */

enum { VIEW_ITEMS, VIEW_KEYS, VIEW_VALUES };

/* items, keys and values. how: what the view contains. */
static JFUNCTION(dict_view) {
    static const char *const names[] = {"dict_items", "dict_keys", "dict_values"};
    const jdict *d = args[0].u.dict;
    jvalue *items;
    TRY(jrun_values(r, d->n, &items));
    for (size_t i = 0; i < d->n; i++) {
        if (how == VIEW_ITEMS) {
            jvalue *pair;
            TRY(jrun_values(r, 2, &pair));
            pair[0] = d->entries[i].key;
            pair[1] = d->entries[i].value;
            TRY(jrun_list(r, J_TUPLE, pair, 2, &items[i]));
        } else {
            items[i] = how == VIEW_KEYS ? d->entries[i].key : d->entries[i].value;
        }
    }
    TRY(jrun_list(r, J_VIEW, items, d->n, out));
    out->u.list->view = names[how];
    return QUIRE_OK;
}

static JFUNCTION(dict_get) {
    const jvalue *found;
    TRY(jrun_get(r, args[0].u.dict, args[1], &found));
    *out = found != NULL ? *found : jis(args[2], J_MISSING) ? jnone() : args[2];
    return QUIRE_OK;
}

/* A copy is the same object, since lists and dictionaries are immutable. */
static JFUNCTION(any_copy) {
    *out = args[0];
    return QUIRE_OK;
}

/* ---- cyclers ---- */

static JFUNCTION(cycler_next) {
    struct jturns *t = args[0].u.turns;
    *out = t->items[t->at];
    t->at = (t->at + 1) % t->n;
    return QUIRE_OK;
}

static JFUNCTION(cycler_reset) {
    args[0].u.turns->at = 0;
    *out = jnone();
    return QUIRE_OK;
}

/* ---- loops ---- */

static JFUNCTION(loop_cycle) {
    if (rest->n == 0) {
        return jrun_fail(r, QUIRE_BAD_REQUEST, "no items for cycling given");
    }
    *out = rest->values[args[0].u.loop->index % rest->n];
    return QUIRE_OK;
}

/* loop.changed: whether the arguments differ from those of the last call. */
static JFUNCTION(loop_changed) {
    jloop *l = args[0].u.loop;
    bool same = l->changed != NULL && l->changed->n == rest->n;
    for (size_t i = 0; i < rest->n && same; i++) {
        TRY(jrun_matches(r, l->changed->values[i], rest->values[i], &same));
    }
    jargs *now = jarena_new(&r->arena, sizeof *now);
    TRY(jrun_check_memory(r, now));
    *now = *rest;
    l->changed = now;
    *out = jbool(!same);
    return QUIRE_OK;
}

/* Methods that cut, join and pad strings. */

/* ---- splitting and joining ---- */

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

/* Splits at runs of white space, at most max times; with last, from the right. */
static quire_err split_blanks(jrun *r, str s, int64_t max, bool last, pieces *p) {
    s = jstr_strip(s, !last, last);
    while (s.n > 0) {
        if (max-- == 0) {
            return jinja_methods_cut_add_piece(r, p, s); /* the rest keeps its white space at the far end */
        }
        size_t i = last ? s.n : 0, size;
        for (;;) { /* one word a round */
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

/* split and rsplit. how: from the right. */
static JFUNCTION(str_split) {
    bool last = how;
    str s = args[0].u.s, separator;
    int64_t max;
    pieces p = {0};
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

static JFUNCTION(str_splitlines) {
    str s = args[0].u.s;
    jvalue *lines;
    size_t n;
    bool keeps;
    TRY(jarg_flag(r, args[1], "keepends", &keeps));
    TRY(jstr_split_lines(r, s, keeps, &lines, &n));
    return jrun_list(r, J_LIST, lines, n, out);
}

/* partition and rpartition. how: at the last occurrence. */
static JFUNCTION(str_partition) {
    bool last = how;
    str s = args[0].u.s, separator;
    jvalue *parts;
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

static JFUNCTION(str_join) {
    str s = args[0].u.s, part;
    const jvalue *items;
    size_t n;
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

static JFUNCTION(str_replace) {
    str s = args[0].u.s, from, to;
    int64_t max;
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
        if (from.n == 0) { /* inserts before every character and at the end */
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

/* ljust, rjust and center. how: where the text goes. */
static JFUNCTION(str_pad) {
    str s = args[0].u.s, fill;
    int64_t width;
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

static JFUNCTION(str_zfill) {
    str s = args[0].u.s;
    int64_t width;
    TRY(jrun_want_integer(r, args[1], "the width", &width));
    size_t sign = s.n > 0 && (s.p[0] == '+' || s.p[0] == '-');
    jout_clear(&r->scratch);
    TRY(jrun_add(r, (str){s.p, sign}));
    TRY(jinja_methods_cut_add_fill(r, str_of("0"), width > 0 ? width - (int64_t)jstr_length(s) : 0));
    TRY(jrun_add(r, (str){s.p + sign, s.n - sign}));
    return jrun_scratch(r, out);
}

static JFUNCTION(str_expandtabs) {
    str s = args[0].u.s;
    int64_t width, column = 0;
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

/* ---- the tables ---- */

static const jfunction of_string[] = {
    {"encode", "", NULL, 0},
    {"maketrans", "", NULL, 0},
    {"translate", "", NULL, 0},
    {"casefold", "self", str_casefold, 0},
    {"format", "self *", str_format, 0},
    {"format_map", "self mapping /", str_format_map, 0},
    {"isascii", "self", str_is_ascii, 0},
    {"isidentifier", "self", str_is_identifier, 0},
    {"isprintable", "self", str_is_printable, 0},
    {"istitle", "self", str_is_title, 0},
    {"upper", "self", str_case, CASE_UPPER},
    {"lower", "self", str_case, CASE_LOWER},
    {"title", "self", str_case, CASE_TITLE},
    {"capitalize", "self", str_case, CASE_CAPITALIZE},
    {"swapcase", "self", str_case, CASE_SWAP},
    {"isdigit", "self", str_all_are, KIND_DIGIT},
    {"isdecimal", "self", str_all_are, KIND_DECIMAL},
    {"isnumeric", "self", str_all_are, KIND_NUMERIC},
    {"isalpha", "self", str_all_are, KIND_ALPHA},
    {"isalnum", "self", str_all_are, KIND_ALNUM},
    {"isspace", "self", str_all_are, KIND_SPACE},
    {"isupper", "self", str_is_case, CASE_UPPER},
    {"islower", "self", str_is_case, CASE_LOWER},
    {"strip", "self ?chars /", str_strip, END_LEFT | END_RIGHT},
    {"lstrip", "self ?chars /", str_strip, END_LEFT},
    {"rstrip", "self ?chars /", str_strip, END_RIGHT},
    {"removeprefix", "self prefix /", str_remove_end, END_LEFT},
    {"removesuffix", "self suffix /", str_remove_end, END_RIGHT},
    {"startswith", "self prefix ?start ?end /", str_has_end, END_LEFT},
    {"endswith", "self suffix ?start ?end /", str_has_end, END_RIGHT},
    {"find", "self sub ?start ?end /", str_find, 0},
    {"rfind", "self sub ?start ?end /", str_find, FIND_LAST},
    {"index", "self sub ?start ?end /", str_find, FIND_OR_FAIL},
    {"rindex", "self sub ?start ?end /", str_find, FIND_LAST | FIND_OR_FAIL},
    {"count", "self sub ?start ?end /", str_count, 0},
    {"split", "self ?sep ?maxsplit", str_split, false},
    {"rsplit", "self ?sep ?maxsplit", str_split, true},
    {"splitlines", "self ?keepends", str_splitlines, 0},
    {"partition", "self sep /", str_partition, false},
    {"rpartition", "self sep /", str_partition, true},
    {"join", "self iterable /", str_join, 0},
    {"replace", "self old new ?count /", str_replace, 0},
    {"center", "self width ?fillchar /", str_pad, 'c'},
    {"ljust", "self width ?fillchar /", str_pad, 'l'},
    {"rjust", "self width ?fillchar /", str_pad, 'r'},
    {"zfill", "self width /", str_zfill, 0},
    {"expandtabs", "self ?tabsize", str_expandtabs, 0},
};
static const jfunction of_list[] = {{"copy", "self", any_copy, 0},
                                    {"count", "self value /", list_count, 0},
                                    {"index", "self value /", list_index, 0}};
static const jfunction of_dict[] = {{"items", "self", dict_view, VIEW_ITEMS},
                                    {"keys", "self", dict_view, VIEW_KEYS},
                                    {"values", "self", dict_view, VIEW_VALUES},
                                    {"get", "self key ?default /", dict_get, 0},
                                    {"copy", "self", any_copy, 0}};
static const jfunction of_loop[] = {{"cycle", "self *", loop_cycle, 0},
                                    {"changed", "self *", loop_changed, 0}};

static const jfunction of_turns[] = {{"next", "self", cycler_next, 0}, {"reset", "self", cycler_reset, 0}};

#define COUNT(a) (sizeof(a) / sizeof(a)[0])

bool jinja_escapes(const jfunction *f) {
    return f->call == str_format || f->call == str_format_map;
}

const jfunction *jinja_find_method(jvalue object, str name) {
    switch (object.kind) {
    case J_STRING:
        return jfunction_find(of_string, COUNT(of_string), name);
    case J_LIST:
        return jfunction_find(of_list, COUNT(of_list), name);
    case J_TUPLE: /* tuples have no copy() */
    case J_RANGE:
        return jfunction_find(of_list + 1, COUNT(of_list) - 1, name);
    case J_DICT:
        return jfunction_find(of_dict, COUNT(of_dict), name);
    case J_LOOP:
        return jfunction_find(of_loop, COUNT(of_loop), name);
    case J_TURNS:
        return object.u.turns->joins ? NULL : jfunction_find(of_turns, COUNT(of_turns), name);
    default:
        return NULL;
    }
}
