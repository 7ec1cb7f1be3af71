/* Filters that lay out or encode texts. args[0] is the input. */
#include <stdio.h>

#include "jinja/jinja_filters.h"

static quire_err jinja_filter_texts_add_char(jrun *r, char c, uint8_t origin) {
    return jrun_add_as(r, (str){&c, 1}, origin);
}

static quire_err text_length(jrun *r, jvalue text, str *s, int64_t *n) {
    TRY(jrun_want_text(r, text, "the text", s));
    *n = (int64_t)jstr_length(*s);
    return jrun_step(r, s->n / 16);
}

static quire_err item_count(jrun *r, jvalue v, int64_t *n) {
    jvalue length;
    TRY(jcall_function(r, jinja_find_filter(str_of("length")), &v, &(jargs){0}, &length));
    return jrun_want_integer(r, length, "the length", n);
}

/* Leaves a text or list that is short enough unchanged. */
JFUNCTION(filter_truncate) {
    str s, end = str_of("...");
    int64_t length = 255, leeway = 5;
    bool is_text = jis(args[0], J_STRING);
    if (!jis(args[1], J_MISSING)) {
        TRY(jrun_want_integer(r, args[1], "the length", &length));
    }
    if (!jis(args[3], J_MISSING)) {
        TRY(jrun_want_text(r, args[3], "the end", &end));
    }
    if (jgiven(args[4])) {
        TRY(jrun_want_integer(r, args[4], "the leeway", &leeway));
    }
    int64_t n = 0, n_end = (int64_t)jstr_length(end);
    if (length < n_end || leeway < 0) {
        return jrun_fail(r, QUIRE_BAD_REQUEST,
                         length < n_end ? "expected length >= %lld, got %lld" : "expected leeway >= 0",
                         (long long)n_end, (long long)length);
    }
    *out = args[0];
    TRY(is_text ? text_length(r, args[0], &s, &n) : item_count(r, args[0], &n));
    if (n - leeway <= length) {
        return QUIRE_OK;
    }
    if (!is_text) {
        TRY(jrun_want_text(r, args[0], "the text", &s));
    }
    str kept = jstr_part(s, 0, (size_t)(length - n_end));
    for (size_t i = kept.n; !jflag(args[2]) && i-- > 0;) { /* back to the last space, if there is one */
        if (kept.p[i] == ' ') {
            kept.n = i;
            break;
        }
    }
    TRY(jrun_append(r, kept, end, &kept));
    *out = jstring(kept);
    return QUIRE_OK;
}

/* ---- wordwrap: Python's textwrap without its changes to white space ---- */

static bool jinja_filter_texts_is_blank(char c) {
    return c == ' ' || (c >= '\t' && c <= '\r');
}

static bool jinja_filter_texts_is_letter(char c) {
    return (c | 0x20) >= 'a' && (c | 0x20) <= 'z';
}

/* The character before byte `at`, which moves to its start; -1: the line starts. */
static int32_t jinja_filter_texts_before(str line, size_t *at) {
    if (*at == 0) {
        return -1;
    }
    size_t size;
    str last = jstr_last((str){line.p, *at});
    *at -= last.n;
    return jchar_at(last.p, last.n, &size);
}

/* The character at byte `at`, which moves past it; -1 at the end of the line. */
static int32_t next(str line, size_t *at) {
    if (*at >= line.n) {
        return -1;
    }
    size_t size;
    int32_t c = jchar_at(line.p + *at, line.n - *at, &size);
    *at += size;
    return c;
}

/* Whether c matches Python's \w. */
static bool jinja_filter_texts_in_word(int32_t c) {
    return c == '_' || jchar_is_alpha(c) || jchar_is_numeric(c);
}

static bool is_wordly(int32_t c) {
    return jinja_filter_texts_in_word(c) && !jchar_is_decimal(c);
}

static bool jinja_filter_texts_is_inside(int32_t c) {
    return jinja_filter_texts_in_word(c) || (c > 0 && c < 0x80 && strchr("!\"'&.,?", c) != NULL);
}

/* Length of a run of two or more hyphens at `at` between two words; 0: none. */
static size_t dash_size(str line, size_t at) {
    size_t back = at, end = at;
    while (end < line.n && line.p[end] == '-') {
        end++;
    }
    size_t ahead = end;
    return end - at >= 2 && jinja_filter_texts_is_inside(jinja_filter_texts_before(line, &back)) &&
                   jinja_filter_texts_in_word(next(line, &ahead))
               ? end - at
               : 0;
}

/* Whether a line may break after the hyphen at `at`: after two letters or "a-b", and
 * before two letters. */
static bool is_hyphen(str line, size_t at) {
    size_t back = at, ahead = at + 1;
    int32_t last = jinja_filter_texts_before(line, &back),
            last_but_one = jinja_filter_texts_before(line, &back);
    bool is_after_word = is_wordly(last) && is_wordly(last_but_one);
    is_after_word = is_after_word || (last_but_one == '-' && jinja_filter_texts_is_inside(last) &&
                                      is_wordly(jinja_filter_texts_before(line, &back)));
    int32_t first = next(line, &ahead), second = next(line, &ahead);
    second = second == '-' ? next(line, &ahead) : second;
    return is_after_word && is_wordly(first) && is_wordly(second);
}

/* Length of the unbreakable piece at `at`: spaces, dashes between words, or a word up to
 * a hyphen. */
static size_t piece_size(str line, size_t at, bool at_hyphens) {
    size_t n = 1, dashes = at_hyphens ? dash_size(line, at) : 0;
    bool blank = jinja_filter_texts_is_blank(line.p[at]);
    if (dashes > 0) {
        return dashes;
    }
    for (; at + n < line.n && jinja_filter_texts_is_blank(line.p[at + n]) == blank; n++) {
        if (!blank && at_hyphens && line.p[at + n] == '-') {
            if (is_hyphen(line, at + n)) {
                return n + 1;
            }
            if (dash_size(line, at + n) > 0) {
                break;
            }
        }
    }
    return n;
}

typedef struct wrapping {
    jrun *r;
    str between; /* between lines */
    size_t width;
    bool breaks_words, at_hyphens;
} wrapping;

/* The part of an overlong word for a line with `room` characters left: what fits, or up
 * to the last hyphen in that. */
static str long_part(const wrapping *w, str word, size_t room) {
    str part = jstr_part(word, 0, room);
    size_t hyphen = part.n;
    while (w->at_hyphens && hyphen > 0 && part.p[hyphen - 1] != '-') {
        hyphen--;
    }
    for (size_t i = 0; i + 1 < hyphen; i++) { /* only if something else than hyphens precedes it */
        if (part.p[i] != '-') {
            return (str){part.p, hyphen};
        }
    }
    return part;
}

/* The next line of a paragraph, from byte *at: as many pieces as fit. first: the first
 * line. *piece: end of the piece that the previous line split. */
static str wrap_line(const wrapping *w, str text, size_t *at, size_t *piece, bool first) {
    size_t width = 0, start = *at;
    while (!first && start < text.n && jinja_filter_texts_is_blank(text.p[start])) {
        start++;
    }
    size_t end = start;
    bool keeps_blanks = false;
    while (end < text.n) {
        *piece = *piece > end ? *piece : end + piece_size(text, end, w->at_hyphens);
        str more = {text.p + end, *piece - end};
        size_t n = jstr_length(more);
        if (width + n > w->width) {
            if (n > w->width && (w->breaks_words || width == 0)) {
                size_t room = w->width - width;
                end += (w->breaks_words ? long_part(w, more, room) : more).n;
                /* as in textwrap, whose loop drops the empty part instead */
                keeps_blanks = w->breaks_words && room == 0;
            }
            break;
        }
        width += n;
        end += more.n;
    }
    *at = end;
    str line = {text.p + start, end - start};
    while (!keeps_blanks && line.n > 0 && jinja_filter_texts_is_blank(line.p[line.n - 1])) {
        line.n--;
    }
    return line;
}

static quire_err wrap_paragraph(const wrapping *w, str text) {
    bool written = false;
    for (size_t at = 0, piece = 0, from = SIZE_MAX; at < text.n && at != from;) {
        from = at;
        str line = wrap_line(w, text, &at, &piece, !written);
        TRY(jrun_step(w->r, 1 + (at - from) / 4));
        if (line.n > 0) {
            if (written) {
                TRY(jrun_add(w->r, w->between));
            }
            TRY(jrun_add(w->r, line));
            written = true;
        }
    }
    return QUIRE_OK;
}

JFUNCTION(filter_wordwrap) {
    str s;
    int64_t width = 79;
    jvalue *lines;
    size_t n;
    wrapping w = {.r = r, .between = str_of("\n"), .breaks_words = jis(args[2], J_MISSING) || jflag(args[2])};
    w.at_hyphens = jis(args[4], J_MISSING) || jflag(args[4]);
    TRY(jrun_want_text(r, args[0], "the text", &s));
    if (!jis(args[1], J_MISSING)) {
        TRY(jrun_want_integer(r, args[1], "the width", &width));
    }
    if (jgiven(args[3])) {
        TRY(jrun_want_text(r, args[3], "the string between lines", &w.between));
    }
    if (width < 1) {
        TRY(jrun_fail(r, QUIRE_BAD_REQUEST, "invalid width %lld (must be > 0)", (long long)width));
    }
    w.width = (size_t)width;
    TRY(jstr_split_lines(r, s, false, &lines, &n));
    jout_clear(&r->scratch);
    for (size_t i = 0; i < n; i++) {
        if (i > 0) {
            TRY(jrun_add(r, w.between));
        }
        TRY(wrap_paragraph(&w, lines[i].u.s));
    }
    return jrun_scratch(r, out);
}

/* ---- URLs and HTML ---- */

/* Adds s, with %XX for characters that a URL may not contain. In a query that includes /,
 * and a space becomes +. */
static quire_err jinja_filter_texts_add_quoted(jrun *r, str s, bool query) {
    for (size_t i = 0; i < s.n; i++) {
        unsigned char c = (unsigned char)s.p[i];
        char form[4];
        bool plain = jinja_filter_texts_is_letter((char)c) || (c >= '0' && c <= '9') ||
                     (c != '\0' && strchr("_.-~", c) != NULL) || (c == '/' && !query);
        (void)snprintf(form, sizeof form, "%%%02X", c);
        TRY(plain               ? jrun_add(r, (str){s.p + i, 1})
            : c == ' ' && query ? jinja_filter_texts_add_char(r, '+', jrun_origin(r, s, i))
                                : jrun_add_as(r, str_of(form), jrun_origin(r, s, i)));
    }
    return jrun_step(r, s.n / 16);
}

/* Copies the texts of v's pairs, since jrun_to_text uses the scratch buffer. */
static quire_err pair_texts(jrun *r, const jvalue *items, size_t n, jvalue **out) {
    TRY(jrun_values(r, 2 * n, out));
    for (size_t i = 0; i < n; i++) {
        const jvalue *pair;
        size_t count;
        TRY(jrun_items(r, items[i], &pair, &count));
        if (count != 2) {
            TRY(jrun_fail(r, QUIRE_BAD_REQUEST, "not a pair of a name and a value"));
        }
        for (size_t k = 0; k < 2; k++) {
            str s;
            jvalue plain = pair[k];
            plain.safe = false;
            TRY(jrun_to_text(r, plain, &s));
            (*out)[2 * i + k] = jstring(s);
        }
    }
    return QUIRE_OK;
}

JFUNCTION(filter_urlencode) {
    str s;
    const jvalue *items;
    jvalue *texts, pairs = args[0];
    size_t n;
    bool one =
        !jis_listlike(pairs) && !jis(pairs, J_DICT) && !jis(pairs, J_RANGE) && !jis(pairs, J_UNDEFINED);
    if (one) {
        pairs.safe = false;
        TRY(jrun_to_text(r, pairs, &s));
        jout_clear(&r->scratch);
        TRY(jinja_filter_texts_add_quoted(r, s, false));
        return jrun_scratch(r, out);
    }
    if (jis(pairs, J_DICT)) {
        TRY(jcall_function(r, jinja_find_method(pairs, str_of("items")), &pairs, &(jargs){0}, &pairs));
    }
    TRY(jrun_items(r, pairs, &items, &n));
    TRY(pair_texts(r, items, n, &texts));
    jout_clear(&r->scratch);
    for (size_t i = 0; i < 2 * n; i++) {
        if (i > 0) {
            TRY(jinja_filter_texts_add_char(r, i % 2 != 0 ? '=' : '&', JINJA_TEMPLATE));
        }
        TRY(jinja_filter_texts_add_quoted(r, texts[i].u.s, true));
    }
    return jrun_scratch(r, out);
}

JFUNCTION(filter_forceescape) {
    jvalue plain = args[0];
    plain.safe = false;
    return jrun_escape(r, plain, out);
}

/* The character of the entity at s ("&amp;"), and its length *n; -1: no known entity. */
static int32_t entity(str s, size_t *n) {
    static const struct {
        const char *name;
        int32_t c;
    } names[] = {{"amp", '&'}, {"lt", '<'}, {"gt", '>'}, {"quot", '"'}, {"apos", '\''}, {"nbsp", 0xa0}};
    size_t end = 1;
    while (end < s.n && end < 12 && s.p[end] != ';') {
        end++;
    }
    if (end >= s.n || s.p[end] != ';') {
        return -1;
    }
    *n = end + 1;
    str name = {s.p + 1, end - 1};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        if (str_is(name, names[i].name)) {
            return names[i].c;
        }
    }
    bool hex = name.n > 2 && (name.p[1] | 0x20) == 'x';
    int32_t c = name.n > 1 && name.p[0] == '#' ? 0 : -1;
    for (size_t i = hex ? 2 : 1; i < name.n && c >= 0; i++) {
        int digit = hex_digit(name.p[i]);
        c = digit < 0 || digit >= (hex ? 16 : 10) || c > 0x10ffff ? -1 : c * (hex ? 16 : 10) + digit;
    }
    return c > 0x10ffff || (c >= 0xd800 && c < 0xe000) ? -1 : c;
}

/* Length of the comment or tag at s, which begins with <; 0: neither. */
static size_t tag_size(str s) {
    bool comment = str_begins(s, "<!--");
    size_t end = jstr_find(s, str_of(comment ? "-->" : ">"), comment ? 4 : 1);
    return end == SIZE_MAX ? 0 : end + (comment ? 3 : 1);
}

JFUNCTION(filter_striptags) {
    str s;
    jvalue plain = args[0];
    bool blank = false, any = false, tags = true;
    plain.safe = false;
    TRY(jrun_to_text(r, plain, &s));
    jout_clear(&r->scratch);
    for (size_t i = 0, size; i < s.n; i += size) {
        str here = {s.p + i, s.n - i};
        size = s.p[i] == '<' && tags ? tag_size(here) : 0;
        tags = tags && (s.p[i] != '<' || size > 0); /* without a later >, there are no more tags */
        if (size > 0) {
            continue;
        }
        int32_t c = jchar_at(here.p, here.n, &size), known = -1;
        if (jchar_is_space(c)) {
            blank = any;
            continue;
        }
        if (blank) {
            TRY(jinja_filter_texts_add_char(r, ' ', jrun_origin(r, s, i - 1)));
        }
        blank = false;
        any = true;
        known = c == '&' ? entity(here, &size) : -1;
        char bytes[4];
        size = c == '&' && known < 0 ? 1 : size;
        TRY(known >= 0 ? jrun_add_as(r, (str){bytes, jchar_put(known, bytes)}, jrun_origin(r, s, i))
                       : jrun_add(r, (str){here.p, size}));
    }
    return jrun_scratch(r, out);
}

JFUNCTION(filter_xmlattr) {
    if (jis(args[0], J_UNDEFINED)) {
        TRY(jrun_undefined(r, args[0]));
    }
    if (!jis(args[0], J_DICT)) {
        return jrun_fail(r, QUIRE_BAD_REQUEST, "'%s' object has no attribute 'items'", jvalue_type(args[0]));
    }
    jout o = jrun_out(r);
    quire_err e = QUIRE_OK;
    bool spaced = jis(args[1], J_MISSING) || jflag(args[1]);
    const jdict *d = args[0].u.dict;
    for (size_t i = 0; i < d->n; i++) {
        jvalue key, value;
        if (jis(d->entries[i].value, J_NONE) || jis(d->entries[i].value, J_UNDEFINED)) {
            continue;
        }
        str name = {0};
        TRY_DONE(e, jrun_want_text(r, d->entries[i].key, "an attribute's name", &name));
        for (size_t k = 0; k < name.n; k++) {
            if (jinja_filter_texts_is_blank(name.p[k]) || strchr("/>=", name.p[k]) != NULL) {
                TRY_DONE(e, jrun_fail(r, QUIRE_BAD_REQUEST, "Invalid character in attribute name"));
            }
        }
        TRY_DONE(e, jrun_escape(r, d->entries[i].key, &key));
        TRY_DONE(e, jrun_escape(r, d->entries[i].value, &value));
        if (spaced || o.text.n > 0) {
            TRY_DONE(e, jout_char(&o, ' '));
        }
        TRY_DONE(e, jout_add(&o, key.u.s));
        TRY_DONE(e, jout_str(&o, "=\""));
        TRY_DONE(e, jout_add(&o, value.u.s));
        TRY_DONE(e, jout_char(&o, '"'));
    }
done:
    TRY(jrun_take_text(r, e, &o, out));
    out->safe = r->autoescape;
    return QUIRE_OK;
}

/* ---- numbers ---- */

JFUNCTION(filter_filesizeformat) {
    static const char *const units[2][8] = {{"kB", "MB", "GB", "TB", "PB", "EB", "ZB", "YB"},
                                            {"KiB", "MiB", "GiB", "TiB", "PiB", "EiB", "ZiB", "YiB"}};
    jvalue number;
    bool binary = jflag(args[1]);
    char text[64];
    jvalue none = jnone();
    TRY(jcall_function(r, jinja_find_filter(str_of("float")), &args[0], &(jargs){.values = &none, .n = 1},
                       &number));
    if (!jis(number, J_FLOAT)) {
        return jrun_fail(r, QUIRE_BAD_REQUEST, "a size must be a number, not %s", jvalue_type(args[0]));
    }
    double bytes = number.u.f, base = binary ? 1024 : 1000, unit = base;
    if (bytes == 1) {
        return jrun_text(r, str_of("1 Byte"), out);
    }
    if (bytes < base) {
        (void)snprintf(text, sizeof text, "%lld Bytes", (long long)bytes);
        return jrun_text(r, str_of(text), out);
    }
    size_t i = 0;
    for (unit *= base; i < 7 && bytes >= unit; i++) {
        unit *= base;
    }
    (void)snprintf(text, sizeof text, "%.1f %s", base * bytes / unit, units[binary][i]);
    return jrun_text(r, str_of(text), out);
}

/* The filter format: the % operator. */
JFUNCTION(filter_format) {
    jvalue values = {.kind = J_DICT};
    jdict *d;
    jvalue format = args[0];
    if (!jis(format, J_STRING)) {
        str s;
        TRY(jrun_to_text(r, format, &s));
        format = jstring(s);
    }
    if (rest->n > rest->n_named && rest->n_named > 0) {
        return jrun_fail(r, QUIRE_BAD_REQUEST,
                         "can't handle positional and keyword arguments at the same time");
    }
    if (rest->n_named == 0) {
        jvalue *items;
        TRY(jrun_values(r, rest->n, &items));
        for (size_t i = 0; i < rest->n; i++) {
            items[i] = rest->values[i];
        }
        TRY(jrun_list(r, J_TUPLE, items, rest->n, &values));
        return jformat_percent(r, format, values, out);
    }
    TRY(jrun_dict(r, &d));
    for (size_t i = 0; i < rest->n; i++) {
        TRY(jrun_set(r, d, jstring(rest->names[i]), rest->values[i]));
    }
    values.u.dict = d;
    return jformat_percent(r, format, values, out);
}
