/* Translates Oniguruma's Ruby syntax to PCRE2's. They agree on most of what tokenizers
 * use, but differ without an error in:
 *   X{n,m}+, a repeated repetition, not a possessive one; {,n}, which counts from 0;
 *   nested and intersected classes ([a&&[^b]]);
 *   \h, a hexadecimal digit; \v, one character; (?m), which lets . match a newline;
 *   \s \w \b and [:alpha:], which follow other Unicode properties. */
#include <stdint.h>

#include "base/mem.h"
#include "base/str.h"
#include "text/chars.h"
#include "text/regex.h"

/* Names of character sets, as items of a PCRE2 class: POSIX's, and the long names of
 * Unicode's categories. */

#define SPACE_ITEMS                                                                                          \
    "\\x09-\\x0d\\x20\\x{85}\\x{a0}\\x{1680}\\x{2000}-\\x{200a}\\x{2028}\\x{2029}\\x{202f}\\x{205f}\\x{"     \
    "3000}"
#define WORD_ITEMS "\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}"
/* outside classes Oniguruma has the numbers of Latin-1 here */
#define LOOSE_ITEMS WORD_ITEMS "\\x{b2}\\x{b3}\\x{b9}\\x{bc}-\\x{be}"
#define RUST_ITEMS  WORD_ITEMS "\\x{200c}\\x{200d}"
#define HEX_ITEMS   "0-9a-fA-F"

#define GRAPH_ITEMS "\\p{L}\\p{M}\\p{N}\\p{P}\\p{S}\\p{Cf}\\p{Co}"

/* bracket: for [:name:]; property: for \p{name}. */
static const struct {
    const char *name, *bracket, *property;
} table[] = {{"alpha", "\\p{Alphabetic}", "\\p{Alphabetic}"},
             {"digit", "\\p{Nd}", "\\p{Nd}"},
             {"alnum", "\\p{Alphabetic}\\p{Nd}", "\\p{Alphabetic}\\p{Nd}"},
             {"upper", "\\p{Uppercase}", "\\p{Uppercase}"},
             {"lower", "\\p{Lowercase}", "\\p{Lowercase}"},
             {"space", SPACE_ITEMS, SPACE_ITEMS},
             {"word", WORD_ITEMS, LOOSE_ITEMS},
             {"cntrl", "\\p{Cc}", "\\p{Cc}"},
             {"xdigit", HEX_ITEMS, HEX_ITEMS},
             {"ascii", "\\x00-\\x7f", "\\x00-\\x7f"},
             {"punct", "\\p{P}\\p{S}", "\\p{P}"},
             {"posixpunct", NULL, "\\p{P}\\p{S}"},
             {"graph", GRAPH_ITEMS, GRAPH_ITEMS},
             {"print", GRAPH_ITEMS "\\p{Zs}", GRAPH_ITEMS "\\p{Zs}"},
             {"blank", "\\p{Zs}\\x09", "\\p{Zs}\\x09"},
             {"letter", NULL, "\\p{L}"},
             {"casedletter", NULL, "\\p{L&}"},
             {"uppercaseletter", NULL, "\\p{Lu}"},
             {"lowercaseletter", NULL, "\\p{Ll}"},
             {"titlecaseletter", NULL, "\\p{Lt}"},
             {"modifierletter", NULL, "\\p{Lm}"},
             {"otherletter", NULL, "\\p{Lo}"},
             {"mark", NULL, "\\p{M}"},
             {"combiningmark", NULL, "\\p{M}"},
             {"nonspacingmark", NULL, "\\p{Mn}"},
             {"spacingmark", NULL, "\\p{Mc}"},
             {"enclosingmark", NULL, "\\p{Me}"},
             {"number", NULL, "\\p{N}"},
             {"decimalnumber", NULL, "\\p{Nd}"},
             {"letternumber", NULL, "\\p{Nl}"},
             {"othernumber", NULL, "\\p{No}"},
             {"punctuation", NULL, "\\p{P}"},
             {"connectorpunctuation", NULL, "\\p{Pc}"},
             {"dashpunctuation", NULL, "\\p{Pd}"},
             {"openpunctuation", NULL, "\\p{Ps}"},
             {"closepunctuation", NULL, "\\p{Pe}"},
             {"initialpunctuation", NULL, "\\p{Pi}"},
             {"finalpunctuation", NULL, "\\p{Pf}"},
             {"otherpunctuation", NULL, "\\p{Po}"},
             {"symbol", NULL, "\\p{S}"},
             {"mathsymbol", NULL, "\\p{Sm}"},
             {"currencysymbol", NULL, "\\p{Sc}"},
             {"modifiersymbol", NULL, "\\p{Sk}"},
             {"othersymbol", NULL, "\\p{So}"},
             {"separator", NULL, "\\p{Z}"},
             {"spaceseparator", NULL, "\\p{Zs}"},
             {"lineseparator", NULL, "\\p{Zl}"},
             {"paragraphseparator", NULL, "\\p{Zp}"},
             {"other", NULL, "\\p{C}"},
             {"control", NULL, "\\p{Cc}"},
             {"format", NULL, "\\p{Cf}"},
             {"privateuse", NULL, "\\p{Co}"},
             {"unassigned", NULL, "\\p{Cn}"},
             {"assigned", NULL, "\\P{Cn}"}};

/* The items of [:name:]; NULL: unknown. */
static const char *regex_bracket_items(str name) {
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        if (str_is(name, table[i].name)) {
            return table[i].bracket;
        }
    }
    return NULL;
}

/* The items of \p{name}; NULL: not in the table. As in all such names, case, spaces, '-'
 * and '_' are ignored. */
static const char *regex_property_items(str name, bool in_class) {
    char plain[24];
    size_t n = 0;
    for (size_t i = 0; i < name.n; i++) {
        char c = name.p[i];
        if (c == ' ' || c == '-' || c == '_') {
            continue;
        }
        if (n == sizeof plain) {
            return NULL;
        }
        plain[n++] = (char)(c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c);
    }
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        if (str_is((str){plain, n}, table[i].name)) {
            return in_class && str_is(str_of(table[i].name), "word") ? WORD_ITEMS : table[i].property;
        }
    }
    return NULL;
}

#define MAX_DEPTH 64

typedef struct translator {
    str in;
    regex_syntax syntax;
    size_t at;
    strbuf *out;
    quire_error *err;
    size_t atom;              /* start of the last atom in out, for repetitions; SIZE_MAX: none */
    size_t groups[MAX_DEPTH]; /* starts of the open groups in out */
    int32_t depth;
} translator;

static quire_err regex_translate_refuse(const translator *t, const char *what) {
    return err_set(t->err, QUIRE_UNSUPPORTED, (int64_t)t->at,
                   "tokenizer: the regular expression %.*s: %s at byte %zu is not supported",
                   (int)(t->in.n < 200 ? t->in.n : 200), t->in.p, what, t->at);
}

static bool at_text(const translator *t, const char *s) {
    size_t n = strlen(s);
    return t->in.n - t->at >= n && memcmp(t->in.p + t->at, s, n) == 0;
}

static int regex_translate_peek(const translator *t, size_t ahead) {
    return t->at + ahead < t->in.n ? (unsigned char)t->in.p[t->at + ahead] : -1;
}

static bool regex_translate_is_digit(int c) {
    return c >= '0' && c <= '9';
}

static bool regex_translate_is_alnum(int c) {
    return regex_translate_is_digit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

/* Appends c as a literal, inside or outside a class. */
static quire_err add_literal(strbuf *out, int32_t c) {
    return c < 0x80 && !regex_translate_is_alnum(c) ? strbuf_addf(out, "\\x{%02x}", (unsigned)c)
                                                    : utf8_add(out, c);
}

/* Reads 1 to max hexadecimal digits at t->at. */
static quire_err read_hex(translator *t, int32_t max, int32_t *value) {
    int32_t v = 0, n = 0;
    while (n < max && hex_digit((char)regex_translate_peek(t, 0)) >= 0) {
        v = v * 16 + hex_digit((char)regex_translate_peek(t, 0));
        t->at++;
        n++;
    }
    if (n == 0 || v > 0x10FFFF || (v >= 0xD800 && v <= 0xDFFF)) {
        return regex_translate_refuse(t, "this character number");
    }
    *value = v;
    return QUIRE_OK;
}

/* Reads the escape after a backslash. *c: its character, or -1 if it is not a character;
 * then t->at stays. */
static quire_err read_char_escape(translator *t, int32_t *c) {
    static const char names[] = "tnrfvae", values[] = "\t\n\r\f\v\a\x1b";
    int b = regex_translate_peek(t, 0);
    *c = -1;
    if (b < 0) {
        return regex_translate_refuse(t, "a backslash with nothing after it");
    }
    const char *name = memchr(names, b, sizeof names - 1);
    if (name != NULL) {
        t->at++;
        *c = values[name - names];
    } else if (b == 'x' || b == 'u') {
        bool braces = b == 'x' && regex_translate_peek(t, 1) == '{';
        t->at += braces ? 2 : 1;
        TRY(read_hex(t, b == 'u' ? 4 : braces ? 6 : 2, c));
        if (braces && regex_translate_peek(t, 0) != '}') {
            return regex_translate_refuse(t, "this character number");
        }
        t->at += braces;
    } else if (!regex_translate_is_alnum(b)) {
        size_t len;
        *c = utf8_decode(t->in.p + t->at, t->in.n - t->at, &len);
        t->at += len;
    }
    return QUIRE_OK;
}

/* ---- classes ---- */

/* A union in a class: items that fit into one PCRE2 class, and alternatives that do not
 * ("|[^..]" each). */
typedef struct class_union {
    strbuf items, others;
} class_union;

/* Copies the \p{...} or \P{...} whose letter is at t->at; inside a class to u. POSIX
 * names get Oniguruma's meaning. Other names are the same in both, except that PCRE2
 * takes a bare script name for Script_Extensions, where Han includes the ideographic full
 * stop. */
static quire_err copy_property(translator *t, class_union *u, strbuf *out) {
    size_t name_at = t->at + 2 + (regex_translate_peek(t, 2) == '^'), end = name_at;
    if (regex_translate_peek(t, 1) != '{') {
        return regex_translate_refuse(t, "a property without braces");
    }
    while (end < t->in.n && t->in.p[end] != '}') {
        end++;
    }
    if (end >= t->in.n) {
        return regex_translate_refuse(t, "an unfinished property");
    }
    str name = {t->in.p + name_at, end - name_at};
    bool negated = (regex_translate_peek(t, 0) == 'P') != (regex_translate_peek(t, 2) == '^');
    const char *items = regex_property_items(name, u != NULL);
    t->at = end + 1;
    if (items != NULL && u != NULL) {
        return negated ? strbuf_addf(&u->others, "|[^%s]", items) : strbuf_add_str(&u->items, items);
    }
    if (items != NULL) {
        return strbuf_addf(out, negated ? "[^%s]" : "[%s]", items);
    }
    TRY(strbuf_addf(out, "\\%c{%s", negated ? 'P' : 'p', regex_is_script(name) ? "sc:" : ""));
    TRY(strbuf_add(out, name.p, name.n));
    return strbuf_add_char(out, '}');
}

static quire_err class_expr(translator *t, strbuf *out, int32_t depth);

static quire_err add_shorthand(const translator *t, class_union *u, int c) {
    bool rust = t->syntax == REGEX_RUST;
    switch (c) {
    case 's':
        return strbuf_add_str(&u->items, SPACE_ITEMS);
    case 'S':
        return strbuf_add_str(&u->others, "|[^" SPACE_ITEMS "]");
    case 'w':
        return strbuf_add_str(&u->items, rust ? RUST_ITEMS : WORD_ITEMS);
    case 'W':
        return strbuf_add_str(&u->others, rust ? "|[^" RUST_ITEMS "]" : "|[^" WORD_ITEMS "]");
    case 'd':
        return strbuf_add_str(&u->items, "\\p{Nd}");
    case 'D':
        return strbuf_add_str(&u->items, "\\P{Nd}");
    case 'h':
        return strbuf_add_str(&u->items, HEX_ITEMS);
    case 'H':
        return strbuf_add_str(&u->others, "|[^" HEX_ITEMS "]");
    default:
        return QUIRE_NOT_FOUND;
    }
}

static quire_err add_posix(translator *t, class_union *u, bool *done) {
    *done = at_text(t, "[:");
    if (!*done) {
        return QUIRE_OK;
    }
    bool negated = regex_translate_peek(t, 2) == '^';
    size_t at = t->at + 2 + negated, end = at;
    while (end < t->in.n && t->in.p[end] >= 'a' && t->in.p[end] <= 'z') {
        end++;
    }
    const char *items = regex_bracket_items((str){t->in.p + at, end - at});
    if (items == NULL || t->in.n - end < 2 || memcmp(t->in.p + end, ":]", 2) != 0) {
        return regex_translate_refuse(t, "this bracket class");
    }
    t->at = end + 2;
    return negated ? strbuf_addf(&u->others, "|[^%s]", items) : strbuf_add_str(&u->items, items);
}

/* Reads a character of a class, written or escaped. -1: a shorthand or property; then
 * t->at is after the backslash. */
static quire_err read_class_char(translator *t, int32_t *c) {
    size_t len;
    if (regex_translate_peek(t, 0) == '\\') {
        t->at++;
        if (regex_translate_peek(t, 0) == 'b') {
            t->at++;
            *c = '\b';
            return QUIRE_OK;
        }
        return read_char_escape(t, c);
    }
    *c = utf8_decode(t->in.p + t->at, t->in.n - t->at, &len);
    if (*c < 0) {
        return regex_translate_refuse(t, "text that is not UTF-8");
    }
    t->at += len;
    return QUIRE_OK;
}

static quire_err regex_translate_add_range(translator *t, class_union *u) {
    int32_t low, high;
    TRY(read_class_char(t, &low));
    if (low < 0) {
        int c = regex_translate_peek(t, 0);
        if (c == 'p' || c == 'P') {
            return copy_property(t, u, &u->items);
        }
        t->at++;
        quire_err e = add_shorthand(t, u, c);
        return e == QUIRE_NOT_FOUND ? regex_translate_refuse(t, "this escape in a class") : e;
    }
    TRY(add_literal(&u->items, low));
    if (regex_translate_peek(t, 0) != '-' || regex_translate_peek(t, 1) == ']' ||
        regex_translate_peek(t, 1) == '[' || regex_translate_peek(t, 1) < 0) {
        return QUIRE_OK;
    }
    t->at++;
    TRY(read_class_char(t, &high));
    if (high < low) {
        return regex_translate_refuse(t, "this range");
    }
    TRY(strbuf_add_char(&u->items, '-'));
    return add_literal(&u->items, high);
}

/* Reads a union up to && or the closing bracket. */
static quire_err read_union(translator *t, class_union *u, int32_t depth) {
    for (bool first = true;; first = false) {
        int c = regex_translate_peek(t, 0);
        if (c < 0) {
            return regex_translate_refuse(t, "an unfinished class");
        }
        if (c == ']' || at_text(t, "&&")) {
            return first ? regex_translate_refuse(t, "an empty class") : QUIRE_OK;
        }
        bool posix = false;
        if (c == '[') {
            TRY(add_posix(t, u, &posix));
            if (!posix) {
                TRY(strbuf_add_char(&u->others, '|'));
                TRY(class_expr(t, &u->others, depth + 1));
            }
        } else {
            TRY(regex_translate_add_range(t, u));
        }
    }
}

static quire_err add_union(const class_union *u, strbuf *out) {
    if (u->others.n == 0) {
        return strbuf_addf(out, "[%s]", u->items.p);
    }
    TRY(strbuf_add_str(out, "(?:"));
    if (u->items.n > 0) {
        TRY(strbuf_addf(out, "[%s]", u->items.p));
    }
    TRY(strbuf_add_str(out, u->others.p + (u->items.n == 0)));
    return strbuf_add_char(out, ')');
}

/* Translates the operands of && up to and including the closing bracket. A plain class
 * stays one class. */
static quire_err class_operands(translator *t, class_union *u, strbuf *expr, bool negated, strbuf *out,
                                int32_t depth) {
    TRY(read_union(t, u, depth));
    bool simple = u->others.n == 0 && regex_translate_peek(t, 0) == ']';
    if (simple) {
        t->at++;
        return strbuf_addf(out, negated ? "[^%s]" : "[%s]", u->items.p);
    }
    while (at_text(t, "&&")) {
        TRY(strbuf_add_str(expr, "(?="));
        TRY(add_union(u, expr));
        TRY(strbuf_add_char(expr, ')'));
        strbuf_clear(&u->items);
        strbuf_clear(&u->others);
        t->at += 2;
        TRY(read_union(t, u, depth));
    }
    TRY(add_union(u, expr));
    t->at++;
    return strbuf_addf(out, negated ? "(?:(?!%s)[\\x{0}-\\x{10ffff}])" : "(?:%s)", expr->p);
}

/* Translates the class at '[' to an expression that matches exactly one character. */
static quire_err class_expr(translator *t, strbuf *out, int32_t depth) {
    if (depth >= MAX_DEPTH) {
        return regex_translate_refuse(t, "a class nested this deep");
    }
    t->at++;
    bool negated = regex_translate_peek(t, 0) == '^';
    t->at += negated;
    class_union u = {.items = {.max = out->max}, .others = {.max = out->max}};
    strbuf expr = {.max = out->max};
    quire_err e = class_operands(t, &u, &expr, negated, out, depth);
    strbuf_deinit(&u.items);
    strbuf_deinit(&u.others);
    strbuf_deinit(&expr);
    return e;
}

/* ---- outside classes ---- */

#define EDGE(word)   "(?:(?<=[" word "])(?![" word "])|(?<![" word "])(?=[" word "]))"
#define INSIDE(word) "(?:(?<=[" word "])(?=[" word "])|(?<![" word "])(?![" word "]))"

/* Escapes that are neither characters nor properties; rust NULL: the same. */
static const struct {
    int letter;
    const char *regex, *rust;
} escapes[] = {
    {'s', "[" SPACE_ITEMS "]", NULL},
    {'S', "[^" SPACE_ITEMS "]", NULL},
    {'w', "[" LOOSE_ITEMS "]", "[" RUST_ITEMS "]"},
    {'W', "[^" LOOSE_ITEMS "]", "[^" RUST_ITEMS "]"},
    {'d', "\\p{Nd}", NULL},
    {'D', "\\P{Nd}", NULL},
    {'h', "[" HEX_ITEMS "]", NULL},
    {'H', "[^" HEX_ITEMS "]", NULL},
    {'b', EDGE(LOOSE_ITEMS), EDGE(RUST_ITEMS)},
    {'B', INSIDE(LOOSE_ITEMS), INSIDE(RUST_ITEMS)},
    {'A', "\\A", NULL},
    {'Z', "\\Z", NULL},
    {'z', "\\z", NULL},
    {'R', "\\R", NULL},
};

static quire_err translate_escape(translator *t) {
    strbuf *out = t->out;
    size_t start = out->n;
    t->at++;
    int32_t c;
    TRY(read_char_escape(t, &c));
    if (c >= 0) {
        t->atom = start;
        return add_literal(out, c);
    }
    t->atom = start;
    int b = regex_translate_peek(t, 0);
    if (b == 'p' || b == 'P') {
        return copy_property(t, NULL, out);
    }
    t->at++;
    for (size_t i = 0; i < sizeof escapes / sizeof *escapes; i++) {
        if (escapes[i].letter == b) {
            bool rust = t->syntax == REGEX_RUST && escapes[i].rust != NULL;
            return strbuf_add_str(out, rust ? escapes[i].rust : escapes[i].regex);
        }
    }
    if (b >= '1' && b <= '9' && !regex_translate_is_digit(regex_translate_peek(t, 0))) {
        return strbuf_addf(out, "\\%c", b);
    }
    t->at--;
    return regex_translate_refuse(t, "this escape");
}

/* Translates the head of a group. Option i stays; m becomes PCRE2's s. */
static quire_err translate_group(translator *t) {
    static const char *const heads[] = {"(?:", "(?=", "(?!", "(?<=", "(?<!", "(?>"};
    if (t->depth == MAX_DEPTH) {
        return regex_translate_refuse(t, "a group nested this deep");
    }
    size_t start = t->out->n;
    for (size_t i = 0; i < sizeof heads / sizeof *heads; i++) {
        if (at_text(t, heads[i])) {
            t->groups[t->depth++] = start;
            t->at += strlen(heads[i]);
            return strbuf_add_str(t->out, heads[i]);
        }
    }
    t->at++;
    TRY(strbuf_add_char(t->out, '('));
    if (regex_translate_peek(t, 0) == '*') {
        return regex_translate_refuse(t, "a verb");
    }
    if (regex_translate_peek(t, 0) == '?') {
        t->at++;
        TRY(strbuf_add_char(t->out, '?'));
        int c = regex_translate_peek(t, 0);
        for (; c == 'i' || c == 'm' || c == '-'; c = regex_translate_peek(t, 0)) {
            TRY(strbuf_add_char(t->out, c == 'm' ? 's' : (char)c));
            t->at++;
        }
        if (c != ':' && c != ')') {
            return regex_translate_refuse(t, "this kind of group");
        }
        t->at += c == ':';
        if (c == ':') {
            TRY(strbuf_add_char(t->out, ':'));
        }
    }
    t->groups[t->depth++] = start;
    return QUIRE_OK;
}

/* Translates a '{': an interval, or a literal brace. */
static quire_err translate_brace(translator *t) {
    size_t i = 1;
    while (regex_translate_is_digit(regex_translate_peek(t, i))) {
        i++;
    }
    size_t n_low = i - 1, n_high = 0;
    bool comma = regex_translate_peek(t, i) == ',';
    if (comma) {
        i++;
        while (regex_translate_is_digit(regex_translate_peek(t, i))) {
            i++;
            n_high++;
        }
    }
    if (regex_translate_peek(t, i) != '}' || n_low + n_high == 0 || t->atom == SIZE_MAX) {
        t->atom = t->out->n;
        t->at++;
        return strbuf_add_str(t->out, "\\{");
    }
    TRY(strbuf_add_str(t->out, n_low == 0 ? "{0" : "{"));
    TRY(strbuf_add(t->out, t->in.p + t->at + 1, i - 1));
    TRY(strbuf_add_char(t->out, '}'));
    t->at += i + 1;
    int next = regex_translate_peek(t, 0);
    if (t->syntax == REGEX_RUST) {
        return QUIRE_OK; /* possessive or lazy in PCRE2 too */
    }
    if (next == '+' || (next == '?' && !comma)) { /* repeats the repetition: group it */
        size_t n = t->out->n - t->atom;
        char *copy = mem_dup(t->out->p + t->atom, n);
        TRY(mem_check(copy));
        t->out->n = t->atom;
        quire_err e = strbuf_addf(t->out, "(?:%s)", copy);
        mem_free(copy);
        TRY(e);
        t->at++;
        return strbuf_add_char(t->out, (char)next);
    }
    return QUIRE_OK;
}

static quire_err translate_one(translator *t) {
    int c = regex_translate_peek(t, 0);
    size_t start = t->out->n;
    switch (c) {
    case '\\':
        return translate_escape(t);
    case '[':
        TRY(class_expr(t, t->out, 0));
        t->atom = start;
        return QUIRE_OK;
    case '(':
        t->atom = SIZE_MAX;
        return translate_group(t);
    case ')':
        if (t->depth == 0) {
            return regex_translate_refuse(t, "a closing parenthesis without an opening one");
        }
        t->atom = t->groups[--t->depth];
        break;
    case '{':
        return translate_brace(t);
    case '|':
    case '^':
    case '$':
        t->atom = SIZE_MAX;
        if (t->syntax == REGEX_RUST && c != '|') {
            t->at++;
            return strbuf_add_str(t->out, c == '^' ? "\\A" : "\\z");
        }
        break;
    case '*':
    case '+':
    case '?':
        break;
    case 0:
        t->at++;
        t->atom = start;
        return strbuf_add_str(t->out, "\\x00");
    default: {
        size_t len;
        if (utf8_decode(t->in.p + t->at, t->in.n - t->at, &len) < 0) {
            return regex_translate_refuse(t, "text that is not UTF-8");
        }
        t->atom = start;
        TRY(strbuf_add(t->out, t->in.p + t->at, len));
        t->at += len;
        return QUIRE_OK;
    }
    }
    t->at++;
    return strbuf_add_char(t->out, (char)c);
}

quire_err regex_translate(str pattern, regex_syntax syntax, strbuf *out, quire_error *err) {
    translator t = {.in = pattern, .syntax = syntax, .out = out, .err = err, .atom = SIZE_MAX};
    TRY(strbuf_add_str(out, ""));
    while (t.at < pattern.n) {
        quire_err e = translate_one(&t);
        if (e == QUIRE_NO_MEMORY || e == QUIRE_TOO_LARGE) {
            return err_set(err, e, -1, "tokenizer: out of memory for a regular expression");
        }
        TRY(e);
    }
    return QUIRE_OK;
}
