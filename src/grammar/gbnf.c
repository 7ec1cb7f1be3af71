/* Compiles GBNF and W3C's EBNF: rules `name ::= parts` of strings, classes, groups and
 * repeats.
 *
 * W3C's EBNF (XML 1.0, section 6) has no escapes but #xN for a character, has comments
 * like C and numbers in brackets before rules, and starts at its first rule. */
#include "base/utf8.h"
#include "grammar/ast.h"
#include "grammar/compile.h"
#include "grammar/regex_syntax.h"

#define MAX_RANGES 512

typedef struct parser {
    ast *t;
    str text;
    size_t at;
    int depth;
    bool w3c;
    named_rules rules;
} parser;

static uint32_t gbnf_fail(parser *p, quire_err e, const char *what) {
    uint32_t line = 1;
    for (size_t i = 0; i < p->at && i < p->text.n; i++) {
        line += p->text.p[i] == '\n';
    }
    (void)build_fail(p->t->b, e, (int64_t)p->at, "the grammar in line %u: %s", line, what);
    return 0;
}

static bool gbnf_ok(const parser *p) {
    return p->t->b->failed == QUIRE_OK;
}

static char gbnf_peek(const parser *p) {
    return p->at < p->text.n ? p->text.p[p->at] : 0;
}

/* Skips white space, newlines and comments. */
static void gbnf_skip(parser *p) {
    while (p->at < p->text.n) {
        char c = p->text.p[p->at];
        if (p->w3c && c == '/' && p->text.n - p->at > 1 && p->text.p[p->at + 1] == '*') {
            p->at += 2;
            while (p->text.n - p->at > 1 && !(p->text.p[p->at] == '*' && p->text.p[p->at + 1] == '/')) {
                p->at++;
            }
            p->at = p->text.n - p->at > 1 ? p->at + 2 : p->text.n;
        } else if (c == '#' && !p->w3c) {
            while (p->at < p->text.n && p->text.p[p->at] != '\n') {
                p->at++;
            }
        } else if (c != ' ' && c != '\t' && c != '\n' && c != '\r') {
            return;
        } else {
            p->at++;
        }
    }
}

static bool gbnf_is_name(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '_';
}

static str gbnf_take_name(parser *p) {
    size_t from = p->at;
    while (p->at < p->text.n && gbnf_is_name(p->text.p[p->at])) {
        p->at++;
    }
    return (str){p->text.p + from, p->at - from};
}

/* Skips the "[12]" before a rule in W3C's EBNF. */
static void skip_number(parser *p) {
    size_t at = p->at + 1;
    while (at < p->text.n && p->text.p[at] >= '0' && p->text.p[at] <= '9') {
        at++;
    }
    if (p->w3c && gbnf_peek(p) == '[' && at > p->at + 1 && at < p->text.n && p->text.p[at] == ']') {
        p->at = at + 1;
        gbnf_skip(p);
    }
}

/* Whether the head of a rule is next. */
static bool at_head(parser *p) {
    size_t from = p->at;
    skip_number(p);
    bool head = gbnf_take_name(p).n > 0;
    gbnf_skip(p);
    head = head && p->text.n - p->at >= 3 && memcmp(p->text.p + p->at, "::=", 3) == 0;
    p->at = from;
    return head;
}

static uint32_t gbnf_take_char(parser *p, nfa_range set[REGEX_ESCAPE_RANGES], uint32_t *n_set) {
    size_t len;
    *n_set = 0;
    if (p->w3c && p->text.n - p->at > 2 && gbnf_peek(p) == '#' && p->text.p[p->at + 1] == 'x' &&
        hex_digit(p->text.p[p->at + 2]) >= 0) {
        uint32_t code = 0;
        for (p->at += 2; code <= NFA_MAX_CHAR && hex_digit(gbnf_peek(p)) >= 0; p->at++) {
            code = code << 4 | (uint32_t)hex_digit(gbnf_peek(p));
        }
        return code <= NFA_MAX_CHAR ? code : gbnf_fail(p, QUIRE_INVALID, "a character beyond #x10FFFF");
    }
    if (gbnf_peek(p) == '\\' && !p->w3c) {
        p->at++;
        return regex_escape(p->t, p->text, &p->at, set, n_set);
    }
    int32_t c = utf8_decode(p->text.p + p->at, p->text.n - p->at, &len);
    p->at += len;
    return c < 0 ? gbnf_fail(p, QUIRE_INVALID, "bytes that are not UTF-8") : (uint32_t)c;
}

static uint32_t gbnf_parse_string(parser *p, char quote) {
    nfa_range set[REGEX_ESCAPE_RANGES];
    uint32_t n_set;
    ast_list l = {0};
    while (gbnf_ok(p) && p->at < p->text.n && gbnf_peek(p) != quote) {
        bool as_it_is = p->w3c && gbnf_peek(p) == '#';
        p->at += as_it_is;
        uint32_t c = as_it_is ? '#' : gbnf_take_char(p, set, &n_set);
        n_set = as_it_is ? 0 : n_set;
        ast_add(p->t, &l, n_set > 0 ? ast_class(p->t, set, n_set, false) : ast_char(p->t, c));
    }
    if (gbnf_ok(p) && gbnf_peek(p) != quote) {
        return gbnf_fail(p, QUIRE_INVALID, "a string without its closing quote");
    }
    p->at++;
    return ast_cat(p->t, l);
}

static uint32_t gbnf_parse_class(parser *p) {
    nfa_range ranges[MAX_RANGES], set[REGEX_ESCAPE_RANGES];
    uint32_t n = 0, n_set;
    bool negated = gbnf_peek(p) == '^';
    p->at += negated;
    while (gbnf_ok(p) && p->at < p->text.n && gbnf_peek(p) != ']') {
        uint32_t lo = gbnf_take_char(p, set, &n_set), hi = lo;
        if (n + REGEX_ESCAPE_RANGES > MAX_RANGES) {
            return gbnf_fail(p, QUIRE_TOO_LARGE, "a class with more than 500 ranges");
        }
        if (n_set > 0) {
            memcpy(ranges + n, set, n_set * sizeof *set);
            n += n_set;
            continue;
        }
        if (p->text.n - p->at > 1 && gbnf_peek(p) == '-' && p->text.p[p->at + 1] != ']') {
            p->at++;
            hi = gbnf_take_char(p, set, &n_set);
            if (gbnf_ok(p) && (n_set > 0 || hi < lo)) {
                return gbnf_fail(p, QUIRE_INVALID, "a range whose end is before its beginning");
            }
        }
        ranges[n++] = (nfa_range){lo, hi};
    }
    if (gbnf_ok(p) && gbnf_peek(p) != ']') {
        return gbnf_fail(p, QUIRE_INVALID, "a class without its ]");
    }
    p->at++;
    return ast_class(p->t, ranges, n, negated);
}

static uint32_t gbnf_parse_alt(parser *p);

static uint32_t gbnf_parse_atom(parser *p) {
    char c = gbnf_peek(p);
    if (c == '(') {
        if (++p->depth > AST_MAX_DEPTH) {
            return gbnf_fail(p, QUIRE_TOO_LARGE, "groups nest too deep");
        }
        p->at++;
        uint32_t inside = gbnf_parse_alt(p);
        if (gbnf_ok(p) && gbnf_peek(p) != ')') {
            return gbnf_fail(p, QUIRE_INVALID, "a ( without its )");
        }
        p->at++;
        p->depth--;
        return inside;
    }
    if (c == '"' || c == '\'') {
        p->at++;
        return gbnf_parse_string(p, c);
    }
    if (c == '[') {
        p->at++;
        return gbnf_parse_class(p);
    }
    if (c == '.') {
        p->at++;
        return ast_class(p->t, NULL, 0, true);
    }
    if (p->w3c && c == '#') {
        nfa_range set[REGEX_ESCAPE_RANGES];
        uint32_t n_set, code = gbnf_take_char(p, set, &n_set);
        return ast_char(p->t, code);
    }
    if (gbnf_is_name(c) && c != '-') {
        size_t from = p->at;
        return named_rules_call(&p->rules, named_rules_find(&p->rules, gbnf_take_name(p), from));
    }
    return gbnf_fail(p, QUIRE_INVALID, "a string, class, group or rule name is expected");
}

static uint32_t gbnf_take_number(parser *p, uint32_t otherwise) {
    uint64_t v = 0;
    bool given = false;
    gbnf_skip(p);
    for (; gbnf_peek(p) >= '0' && gbnf_peek(p) <= '9'; p->at++, given = true) {
        v = v < UINT32_MAX ? v * 10 + (uint64_t)(gbnf_peek(p) - '0') : v;
    }
    gbnf_skip(p);
    if (v > 100000) {
        return gbnf_fail(p, QUIRE_TOO_LARGE, "a count over 100000");
    }
    return given ? (uint32_t)v : otherwise;
}

static uint32_t gbnf_parse_counts(parser *p, uint32_t node) {
    uint32_t given = gbnf_take_number(p, NFA_NONE), min = given == NFA_NONE ? 0 : given, max = given;
    if (gbnf_peek(p) == ',') {
        p->at++;
        max = gbnf_take_number(p, NFA_NONE);
        given = min;
    }
    if (gbnf_ok(p) && (gbnf_peek(p) != '}' || min > max || given == NFA_NONE)) {
        return gbnf_fail(p, QUIRE_INVALID, "a repeat is {n}, {n,} or {n,m}");
    }
    p->at++;
    return ast_repeat(p->t, node, min, max);
}

static uint32_t gbnf_parse_repeat(parser *p) {
    uint32_t node = gbnf_parse_atom(p);
    for (;;) {
        char c = gbnf_peek(p);
        if (!gbnf_ok(p) || c == 0 || strchr("*+?{", c) == NULL) {
            return node;
        }
        p->at++;
        node =
            c == '{' ? gbnf_parse_counts(p, node) : ast_repeat(p->t, node, c == '+', c == '?' ? 1 : NFA_NONE);
    }
}

/* Parses alternatives up to a closing parenthesis, the next rule's head or the end. */
static uint32_t gbnf_parse_alt(parser *p) {
    ast_list all = {0}, one = {0};
    for (gbnf_skip(p); gbnf_ok(p) && p->at < p->text.n && gbnf_peek(p) != ')'; gbnf_skip(p)) {
        if (gbnf_peek(p) == '|') {
            p->at++;
            ast_add(p->t, &all, ast_cat(p->t, one));
            one = (ast_list){0};
        } else if (p->depth == 0 && at_head(p)) {
            break;
        } else {
            ast_add(p->t, &one, gbnf_parse_repeat(p));
        }
    }
    return ast_alternatives(p->t, all, one);
}

static void parse_rules(parser *p) {
    if (!p->w3c) {
        (void)named_rules_find(&p->rules, str_of("root"), 0);
    }
    for (gbnf_skip(p); gbnf_ok(p) && p->at < p->text.n; gbnf_skip(p)) {
        if (!at_head(p)) {
            (void)gbnf_fail(p, QUIRE_INVALID, "a rule must begin with: name ::=");
            return;
        }
        skip_number(p);
        size_t from = p->at;
        uint32_t rule = named_rules_find(&p->rules, gbnf_take_name(p), from);
        gbnf_skip(p);
        p->at += 3;
        if (gbnf_ok(p) && named_rules_has(&p->rules, rule)) {
            (void)gbnf_fail(p, QUIRE_INVALID, "the rule is defined twice");
            return;
        }
        uint32_t root = gbnf_parse_alt(p);
        if (gbnf_ok(p) && gbnf_peek(p) == ')') {
            (void)gbnf_fail(p, QUIRE_INVALID, "a ) without its (");
        }
        named_rules_define(&p->rules, rule, root);
    }
}

static const char *gbnf_kind_of(str name) {
    (void)name;
    return "rule";
}

void compile_ebnf(build *b, str text, bool w3c) {
    ast t;
    ast_init(&t, b);
    parser p = {.t = &t, .text = text, .w3c = w3c};
    named_rules_init(&p.rules, &t);
    parse_rules(&p);
    if (p.rules.list.n == 0) {
        (void)build_fail(b, QUIRE_INVALID, 0, "the grammar has no rules");
    }
    named_rules_emit(&p.rules, gbnf_kind_of);
    named_rules_deinit(&p.rules);
    ast_deinit(&t);
}
