/* Parses regular expressions. */
#include "grammar/regex_syntax.h"

#include <assert.h>

#include "base/utf8.h"

#define MAX_RANGES 512 /* most ranges in one pair of brackets */
#define MAX_COUNT  100000

typedef struct parser {
    ast *t;
    str text;
    size_t at;
    int depth;
    bool ignore_case, dot_all;
} parser;

static uint32_t regex_syntax_fail(parser *p, quire_err e, const char *what) {
    (void)build_fail(p->t->b, e, (int64_t)p->at, "the regex at byte %zu: %s", p->at, what);
    return 0;
}

static bool regex_syntax_more(const parser *p) {
    return p->t->b->failed == QUIRE_OK && p->at < p->text.n;
}

static bool regex_syntax_take(parser *p, const char *what) {
    size_t n = strlen(what);
    if (p->text.n - p->at >= n && memcmp(p->text.p + p->at, what, n) == 0) {
        p->at += n;
        return true;
    }
    return false;
}

/* ---- escapes ---- */

static const nfa_range digits[] = {{'0', '9'}}, words[] = {{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}},
                       spaces[] = {{'\t', '\r'},     {' ', ' '},       {0xA0, 0xA0},     {0x1680, 0x1680},
                                   {0x2000, 0x200A}, {0x2028, 0x2029}, {0x202F, 0x202F}, {0x205F, 0x205F},
                                   {0x3000, 0x3000}, {0xFEFF, 0xFEFF}};

static void put_set(nfa_range *out, uint32_t *n, const nfa_range *set, uint32_t n_set, bool negated) {
    uint32_t from = 0;
    *n = 0;
    for (uint32_t i = 0; i < n_set; i++) {
        if (!negated) {
            out[(*n)++] = set[i];
        } else if (set[i].lo > from) {
            out[(*n)++] = (nfa_range){from, set[i].lo - 1};
        }
        from = set[i].hi + 1;
    }
    if (negated) {
        out[(*n)++] = (nfa_range){from, NFA_MAX_CHAR};
    }
}

/* Reads min to max hexadecimal digits; NFA_NONE: there are too few. */
static uint32_t hex(str text, size_t *at, int min, int max) {
    uint32_t c = 0;
    int n = 0;
    for (; n < max && *at < text.n && hex_digit(text.p[*at]) >= 0; n++) {
        c = c << 4 | (uint32_t)hex_digit(text.p[(*at)++]);
    }
    return n < min || c > NFA_MAX_CHAR ? NFA_NONE : c;
}

static uint32_t hex_escape(str text, size_t *at, char letter) {
    if (letter != 'U' && *at < text.n && text.p[*at] == '{') {
        ++*at;
        uint32_t c = hex(text, at, 1, 6);
        return *at < text.n && text.p[(*at)++] == '}' ? c : NFA_NONE;
    }
    uint32_t c = hex(text, at,
                     letter == 'x'   ? 2
                     : letter == 'u' ? 4
                                     : 8,
                     letter == 'x'   ? 2
                     : letter == 'u' ? 4
                                     : 8);
    if (letter == 'u' && c >= 0xD800 && c < 0xDC00 && text.n - *at >= 6 && text.p[*at] == '\\' &&
        text.p[*at + 1] == 'u') {
        size_t after = *at + 2;
        uint32_t low = hex(text, &after, 4, 4);
        if (low >= 0xDC00 && low < 0xE000) {
            *at = after;
            return 0x10000 + ((c - 0xD800) << 10) + (low - 0xDC00);
        }
    }
    return c;
}

uint32_t regex_escape(ast *t, str text, size_t *at, nfa_range ranges[REGEX_ESCAPE_RANGES], uint32_t *n) {
    assert(at != NULL);
    static const char letters[] = "tnrfv0a", meanings[] = "\t\n\r\f\v\0\a";
    size_t len, from = *at;
    *n = 0;
    if (*at >= text.n) {
        (void)build_fail(t->b, QUIRE_INVALID, (int64_t)*at, "at byte %zu: nothing follows the backslash",
                         *at);
        return 0;
    }
    int32_t c = utf8_decode(text.p + *at, text.n - *at, &len);
    *at += len;
    switch (c) {
    case 'd':
    case 'D':
        put_set(ranges, n, digits, sizeof digits / sizeof *digits, c == 'D');
        return 0;
    case 'w':
    case 'W':
        put_set(ranges, n, words, sizeof words / sizeof *words, c == 'W');
        return 0;
    case 's':
    case 'S':
        put_set(ranges, n, spaces, sizeof spaces / sizeof *spaces, c == 'S');
        return 0;
    case 'x':
    case 'u':
    case 'U': {
        uint32_t code = hex_escape(text, at, (char)c);
        if (code == NFA_NONE) {
            (void)build_fail(t->b, QUIRE_INVALID, (int64_t)from,
                             "at byte %zu: \\%c without its hexadecimal digits", from, (char)c);
            return 0;
        }
        return code;
    }
    case 'c':
        if (*at < text.n && ((text.p[*at] | 0x20) >= 'a' && (text.p[*at] | 0x20) <= 'z')) {
            return (uint32_t)text.p[(*at)++] & 0x1F;
        }
        break;
    default:
        if (c == '0' && *at < text.n && text.p[*at] >= '0' && text.p[*at] <= '9') {
            (void)build_fail(t->b, QUIRE_UNSUPPORTED, (int64_t)from,
                             "at byte %zu: octal escapes are not supported; write \\xHH", from);
            return 0;
        }
        if (c > 0 && c < 0x80 && strchr(letters, c) != NULL) {
            return (uint8_t)meanings[strchr(letters, c) - letters];
        }
        if (c >= 0 && !((c >= '1' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'))) {
            return (uint32_t)c;
        }
    }
    (void)build_fail(t->b, QUIRE_UNSUPPORTED, (int64_t)from, "at byte %zu: \\%c is not supported", from,
                     c > 0x20 && c < 0x7F ? (char)c : '?');
    return 0;
}

/* ---- classes ---- */

static bool regex_syntax_add_range(parser *p, nfa_range *r, uint32_t *n, uint32_t lo, uint32_t hi) {
    if (*n + 3 > MAX_RANGES) {
        (void)regex_syntax_fail(p, QUIRE_TOO_LARGE, "a class with more than 500 ranges");
        return false;
    }
    r[(*n)++] = (nfa_range){lo, hi};
    /* also ASCII letters of the other case */
    for (uint32_t shift = 0; p->ignore_case && shift < 2; shift++) {
        uint32_t a = shift == 0 ? 'a' : 'A', from = lo > a ? lo : a, to = hi < a + 25 ? hi : a + 25;
        if (from <= to) {
            r[(*n)++] = (nfa_range){from ^ 0x20, to ^ 0x20};
        }
    }
    return true;
}

/* Reads a character or escape in brackets; *n_set > 0: a class. */
static uint32_t class_char(parser *p, nfa_range set[REGEX_ESCAPE_RANGES], uint32_t *n_set) {
    size_t len;
    *n_set = 0;
    if (p->text.p[p->at] != '\\') {
        int32_t c = utf8_decode(p->text.p + p->at, p->text.n - p->at, &len);
        p->at += len;
        return c < 0 ? regex_syntax_fail(p, QUIRE_INVALID, "bytes that are not UTF-8") : (uint32_t)c;
    }
    p->at++;
    if (regex_syntax_take(p, "b")) {
        return '\b';
    }
    return regex_escape(p->t, p->text, &p->at, set, n_set);
}

static uint32_t regex_syntax_parse_class(parser *p) {
    nfa_range ranges[MAX_RANGES], set[REGEX_ESCAPE_RANGES];
    uint32_t n = 0, n_set;
    bool negated = regex_syntax_take(p, "^"), first = true;
    for (; regex_syntax_more(p) && (first || p->text.p[p->at] != ']'); first = false) {
        if (p->text.n - p->at > 1 && p->text.p[p->at] == '[' && p->text.p[p->at + 1] == ':') {
            return regex_syntax_fail(p, QUIRE_UNSUPPORTED, "classes like [:alpha:] are not supported");
        }
        uint32_t lo = class_char(p, set, &n_set), hi = lo;
        for (uint32_t i = 0; i < n_set; i++) {
            if (!regex_syntax_add_range(p, ranges, &n, set[i].lo, set[i].hi)) {
                return 0;
            }
        }
        if (n_set > 0) {
            continue;
        }
        if (p->text.n - p->at > 1 && p->text.p[p->at] == '-' && p->text.p[p->at + 1] != ']') {
            p->at++;
            hi = class_char(p, set, &n_set);
            if (n_set > 0 || hi < lo) {
                return regex_syntax_fail(p, QUIRE_INVALID, "a range whose end is before its beginning");
            }
        }
        if (!regex_syntax_add_range(p, ranges, &n, lo, hi)) {
            return 0;
        }
    }
    if (!regex_syntax_take(p, "]")) {
        return regex_syntax_fail(p, QUIRE_INVALID, "a class without its ]");
    }
    return ast_class(p->t, ranges, n, negated);
}

/* ---- groups, repeats ---- */

static uint32_t regex_syntax_parse_alt(parser *p);

static uint32_t regex_syntax_parse_group(parser *p) {
    if (++p->depth > AST_MAX_DEPTH) {
        return regex_syntax_fail(p, QUIRE_TOO_LARGE, "groups nest too deep");
    }
    if (regex_syntax_take(p, "?")) {
        if (regex_syntax_take(p, "P<") || (p->text.n - p->at > 1 && p->text.p[p->at] == '<' &&
                                           p->text.p[p->at + 1] != '=' && p->text.p[p->at + 1] != '!')) {
            while (regex_syntax_more(p) && p->text.p[p->at] != '>') {
                p->at++;
            }
            if (!regex_syntax_take(p, ">")) {
                return regex_syntax_fail(p, QUIRE_INVALID, "a group's name without its >");
            }
        } else if (!regex_syntax_take(p, ":")) {
            return regex_syntax_fail(p, QUIRE_UNSUPPORTED,
                                     "this kind of group is not supported: (?:..) and named groups are");
        }
    }
    uint32_t inside = regex_syntax_parse_alt(p);
    if (p->t->b->failed == QUIRE_OK && !regex_syntax_take(p, ")")) {
        return regex_syntax_fail(p, QUIRE_INVALID, "a ( without its )");
    }
    p->depth--;
    return inside;
}

static uint32_t regex_syntax_parse_atom(parser *p) {
    nfa_range set[REGEX_ESCAPE_RANGES];
    uint32_t n_set;
    size_t len;
    if (regex_syntax_take(p, "(")) {
        return regex_syntax_parse_group(p);
    }
    if (regex_syntax_take(p, "[")) {
        return regex_syntax_parse_class(p);
    }
    if (regex_syntax_take(p, ".")) {
        return p->dot_all ? ast_class(p->t, NULL, 0, true)
                          : ast_class(p->t, &(nfa_range){'\n', '\n'}, 1, true);
    }
    if (regex_syntax_take(p, "^") || regex_syntax_take(p, "\\A")) {
        return ast_leaf(p->t, AST_START, 0);
    }
    if (regex_syntax_take(p, "$") || regex_syntax_take(p, "\\Z") || regex_syntax_take(p, "\\z")) {
        return ast_leaf(p->t, AST_END, 0);
    }
    if (strchr("*+?", p->text.p[p->at]) != NULL && p->text.p[p->at] != 0) {
        return regex_syntax_fail(p, QUIRE_INVALID, "nothing comes before the repeat");
    }
    uint32_t c, n = 0;
    if (regex_syntax_take(p, "\\")) {
        c = regex_escape(p->t, p->text, &p->at, set, &n_set);
        if (n_set > 0) {
            return ast_class(p->t, set, n_set, false);
        }
    } else {
        int32_t code = utf8_decode(p->text.p + p->at, p->text.n - p->at, &len);
        if (code < 0) {
            return regex_syntax_fail(p, QUIRE_INVALID, "bytes that are not UTF-8");
        }
        p->at += len;
        c = (uint32_t)code;
    }
    return regex_syntax_add_range(p, set, &n, c, c) ? ast_class(p->t, set, n, false) : 0;
}

/* Parses {n}, {n,}, {n,m} or {,m} at p->at, after the brace. False: the brace is a
 * literal. */
static bool regex_syntax_parse_counts(parser *p, uint32_t *min, uint32_t *max) {
    uint64_t v[2] = {0, 0};
    bool given[2] = {false, false};
    size_t at = p->at;
    int k = 0;
    for (; at < p->text.n && p->text.p[at] != '}'; at++) {
        char c = p->text.p[at];
        if (c == ',' && k == 0) {
            k = 1;
        } else if (c >= '0' && c <= '9') {
            v[k] = v[k] < MAX_COUNT * 10 ? v[k] * 10 + (uint64_t)(c - '0') : v[k];
            given[k] = true;
        } else {
            return false;
        }
    }
    if (at >= p->text.n || (!given[0] && !given[1])) {
        return false;
    }
    p->at = at + 1;
    *min = (uint32_t)v[0];
    *max = k == 0 ? *min : given[1] ? (uint32_t)v[1] : NFA_NONE;
    if (v[0] > MAX_COUNT || v[1] > MAX_COUNT) {
        (void)regex_syntax_fail(p, QUIRE_TOO_LARGE, "a count over 100000");
    } else if (*min > *max) {
        (void)regex_syntax_fail(p, QUIRE_INVALID, "the second count is smaller than the first");
    }
    return true;
}

static uint32_t regex_syntax_parse_repeat(parser *p) {
    uint32_t node = regex_syntax_parse_atom(p);
    while (regex_syntax_more(p)) {
        uint32_t min = 0, max = NFA_NONE;
        if (regex_syntax_take(p, "*")) {
        } else if (regex_syntax_take(p, "+")) {
            min = 1;
        } else if (regex_syntax_take(p, "?")) {
            max = 1;
        } else if (p->text.p[p->at] == '{') {
            p->at++;
            if (!regex_syntax_parse_counts(p, &min, &max)) {
                p->at--;
                return node;
            }
        } else {
            return node;
        }
        if (p->at < p->text.n && p->text.p[p->at] == '+') {
            return regex_syntax_fail(p, QUIRE_UNSUPPORTED, "possessive repeats are not supported");
        }
        (void)regex_syntax_take(p, "?"); /* lazy; matches the same texts */
        node = ast_repeat(p->t, node, min, max);
    }
    return node;
}

static uint32_t regex_syntax_parse_alt(parser *p) {
    ast_list all = {0}, one = {0};
    while (regex_syntax_more(p) && p->text.p[p->at] != ')') {
        if (regex_syntax_take(p, "|")) {
            ast_add(p->t, &all, ast_cat(p->t, one));
            one = (ast_list){0};
        } else {
            ast_add(p->t, &one, regex_syntax_parse_repeat(p));
        }
    }
    return ast_alternatives(p->t, all, one);
}

uint32_t regex_parse(ast *t, str text) {
    parser p = {.t = t, .text = text};
    while (regex_syntax_take(&p, "(?i)") || regex_syntax_take(&p, "(?s)") || regex_syntax_take(&p, "(?u)") ||
           regex_syntax_take(&p, "(?a)")) {
        p.ignore_case = p.ignore_case || text.p[p.at - 2] == 'i';
        p.dot_all = p.dot_all || text.p[p.at - 2] == 's';
    }
    uint32_t root = regex_syntax_parse_alt(&p);
    if (regex_syntax_more(&p)) {
        return regex_syntax_fail(&p, QUIRE_INVALID, "a ) without its (");
    }
    return root;
}
