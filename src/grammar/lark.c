/* Compiles grammars in Lark's notation, which custom tools use: rules in lower case,
 * terminals in upper case.
 *
 * The rules define a language over characters: terminals do not take the longest match,
 * priorities have no effect, and what %ignore names may come before the first terminal
 * and after each one. */
#include <stddef.h>
#include <string.h>

#include "base/str.h"
#include "base/utf8.h"
#include "grammar/ast.h"
#include "grammar/compile.h"
#include "grammar/regex_syntax.h"

/* The terminals of Lark's module `common`. Private to this room. */

#define INT   "[0-9]+"
#define EXP   "[eE][+-]?" INT
#define FLOAT "(?:" INT EXP "|(?:" INT "\\.(?:" INT ")?|\\." INT ")(?:" EXP ")?)"

static const struct {
    const char *name, *regex;
} terminals[] = {
    {"DIGIT", "[0-9]"},
    {"HEXDIGIT", "[0-9a-fA-F]"},
    {"INT", INT},
    {"SIGNED_INT", "[+-]?" INT},
    {"DECIMAL", INT "\\.(?:" INT ")?|\\." INT},
    {"FLOAT", FLOAT},
    {"SIGNED_FLOAT", "[+-]?" FLOAT},
    {"NUMBER", FLOAT "|" INT},
    {"SIGNED_NUMBER", "[+-]?(?:" FLOAT "|" INT ")"},
    {"ESCAPED_STRING", "\"(?:[^\"\\\\\\n]|\\\\[^\\n])*\""},
    {"LCASE_LETTER", "[a-z]"},
    {"UCASE_LETTER", "[A-Z]"},
    {"LETTER", "[a-zA-Z]"},
    {"WORD", "[a-zA-Z]+"},
    {"CNAME", "[_a-zA-Z][_a-zA-Z0-9]*"},
    {"WS_INLINE", "[ \\t]+"},
    {"WS", "[ \\t\\f\\r\\n]+"},
    {"CR", "\\r"},
    {"LF", "\\n"},
    {"NEWLINE", "(?:\\r?\\n)+"},
    {"SH_COMMENT", "#[^\\n]*"},
    {"CPP_COMMENT", "//[^\\n]*"},
    {"C_COMMENT", "/\\*(?:[^*]|\\*+[^*/])*\\*+/"},
    {"SQL_COMMENT", "--[^\\n]*"},
};

/* The regex of a terminal in `common`; NULL: unknown. */
static const char *lark_common(str name) {
    for (size_t i = 0; i < sizeof terminals / sizeof *terminals; i++) {
        if (str_is(name, terminals[i].name)) {
            return terminals[i].regex;
        }
    }
    return NULL;
}

typedef struct parser {
    ast *t;
    str text;
    size_t at;
    int depth;
    bool in_rule; /* not in a terminal, so ignored text may follow each terminal */
    ast_list ignored;
    named_rules rules;
} parser;

/* Numbers in `rules` that every grammar has; no name in a text begins with %. */
enum { RULE_ALL, RULE_IGNORED, RULE_START };

static uint32_t lark_fail(parser *p, quire_err e, const char *what) {
    uint32_t line = 1;
    for (size_t i = 0; i < p->at && i < p->text.n; i++) {
        line += p->text.p[i] == '\n';
    }
    (void)build_fail(p->t->b, e, (int64_t)p->at, "the grammar in line %u: %s", line, what);
    return 0;
}

static bool lark_ok(const parser *p) {
    return p->t->b->failed == QUIRE_OK;
}

static char peek_at(const parser *p, size_t ahead) {
    return p->text.n - p->at > ahead ? p->text.p[p->at + ahead] : 0;
}

static char lark_peek(const parser *p) {
    return peek_at(p, 0);
}

static bool lark_begins(const parser *p, const char *what) {
    size_t n = strlen(what);
    return p->text.n - p->at >= n && memcmp(p->text.p + p->at, what, n) == 0;
}

static bool lark_take(parser *p, const char *what) {
    bool taken = lark_begins(p, what);
    p->at += taken ? strlen(what) : 0;
    return taken;
}

/* Skips spaces and comments; with `lines`, newlines too. */
static void lark_skip(parser *p, bool lines) {
    while (p->at < p->text.n) {
        char c = lark_peek(p);
        if (c == '#' || lark_begins(p, "//")) {
            while (p->at < p->text.n && lark_peek(p) != '\n') {
                p->at++;
            }
        } else if (c == ' ' || c == '\t' || c == '\r' || c == '\f' || (lines && c == '\n') ||
                   lark_begins(p, "\\\n")) {
            p->at += c == '\\' ? 2 : 1;
        } else {
            return;
        }
    }
}

static bool lark_is_upper(char c) {
    return c >= 'A' && c <= 'Z';
}

static bool lark_is_name(char c) {
    return lark_is_upper(c) || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_';
}

static str lark_take_name(parser *p) {
    size_t from = p->at;
    while (p->at < p->text.n && lark_is_name(lark_peek(p))) {
        p->at++;
    }
    return (str){p->text.p + from, p->at - from};
}

/* Whether the name, in upper case, is a terminal's. */
static bool is_terminal(str name) {
    for (size_t i = 0; i < name.n; i++) {
        if (name.p[i] != '_') {
            return lark_is_upper(name.p[i]);
        }
    }
    return false;
}

static uint32_t lark_rule_of(parser *p, str name) {
    return named_rules_find(&p->rules, name, p->at);
}

/* Makes a node that calls a rule of `rules`. */
static uint32_t lark_call_of(parser *p, uint32_t rule) {
    return named_rules_call(&p->rules, rule);
}

static void define(parser *p, uint32_t rule, uint32_t root) {
    if (lark_ok(p) && named_rules_has(&p->rules, rule)) {
        (void)lark_fail(p, QUIRE_INVALID, "the rule or terminal is defined twice");
    }
    named_rules_define(&p->rules, rule, root);
}

/* ---- terminals ---- */

/* Adds the ignored text after a terminal in a rule. */
static uint32_t terminal(parser *p, uint32_t node) {
    ast_list l = {0};
    if (!p->in_rule) {
        return node;
    }
    ast_add(p->t, &l, node);
    ast_add(p->t, &l, lark_call_of(p, RULE_IGNORED));
    return ast_cat(p->t, l);
}

static uint32_t lark_take_char(parser *p) {
    nfa_range set[REGEX_ESCAPE_RANGES];
    uint32_t n_set = 0;
    size_t len;
    if (lark_peek(p) == '\\') {
        p->at++;
        uint32_t c = regex_escape(p->t, p->text, &p->at, set, &n_set);
        return n_set == 0 ? c
                          : lark_fail(p, QUIRE_INVALID,
                                      "an escape that stands for several characters; write a regex: /\\d/");
    }
    int32_t c = utf8_decode(p->text.p + p->at, p->text.n - p->at, &len);
    p->at += len;
    return c < 0 ? lark_fail(p, QUIRE_INVALID, "bytes that are not UTF-8") : (uint32_t)c;
}

static uint32_t char_of_case(parser *p, uint32_t c, bool ignore_case) {
    uint32_t small = c | 0x20;
    if (!ignore_case || c > 0x7f || small < 'a' || small > 'z') {
        return ast_char(p->t, c);
    }
    return ast_class(p->t, (nfa_range[]){{small - 0x20, small - 0x20}, {small, small}}, 2, false);
}

/* Moves past the string's closing quote; returns the end of its text. */
static size_t string_end(parser *p) {
    while (p->at < p->text.n && lark_peek(p) != '"' && lark_peek(p) != '\n') {
        p->at += lark_peek(p) == '\\' && peek_at(p, 1) != 0 ? 2 : 1;
    }
    size_t end = p->at;
    if (!lark_take(p, "\"")) {
        (void)lark_fail(p, QUIRE_INVALID, "a string without its closing quote");
    }
    return end;
}

/* Parses the rest of a range, from after the opening quote of its second string. */
static uint32_t parse_range(parser *p, uint32_t lo) {
    uint32_t hi = p->at < p->text.n ? lark_take_char(p) : 0;
    if (lark_ok(p) && (!lark_take(p, "\"") || hi < lo)) {
        return lark_fail(p, QUIRE_INVALID,
                         "a range is \"a\"..\"z\", of one character each, the smaller one first");
    }
    return ast_class(p->t, (nfa_range[]){{lo, hi}}, 1, false);
}

static uint32_t lark_parse_string(parser *p) {
    ast_list l = {0};
    size_t from = ++p->at, end = string_end(p);
    bool ignore_case = lark_take(p, "i");
    size_t after = p->at;
    uint32_t c = 0, n = 0;
    for (p->at = from; lark_ok(p) && p->at < end; n++) {
        c = lark_take_char(p);
        ast_add(p->t, &l, char_of_case(p, c, ignore_case));
    }
    p->at = after;
    if (lark_ok(p) && lark_begins(p, "..\"")) {
        p->at += 3;
        return n == 1 ? parse_range(p, c)
                      : lark_fail(p, QUIRE_INVALID, "a range is \"a\"..\"z\", of one character each");
    }
    return ast_cat(p->t, l);
}

/* Parses a regex on its own, with flags. */
static uint32_t lark_regex_of(parser *p, str body, bool ignore_case, bool dot_all) {
    strbuf text = {0};
    quire_err e = strbuf_addf(&text, "%s%s", ignore_case ? "(?i)" : "", dot_all ? "(?s)" : "");
    if (e == QUIRE_OK) {
        e = strbuf_add(&text, body.p, body.n);
    }
    uint32_t node =
        e == QUIRE_OK ? regex_parse(p->t, (str){text.p, text.n}) : lark_fail(p, e, "out of memory");
    strbuf_deinit(&text);
    return node;
}

static uint32_t parse_regex(parser *p) {
    size_t from = ++p->at;
    bool ignore_case = false, dot_all = false;
    while (p->at < p->text.n && lark_peek(p) != '/' && lark_peek(p) != '\n') {
        p->at += lark_peek(p) == '\\' && peek_at(p, 1) != 0 && peek_at(p, 1) != '\n' ? 2 : 1;
    }
    str body = {p->text.p + from, p->at - from};
    if (lark_peek(p) != '/' || body.n == 0) {
        return lark_fail(p, QUIRE_INVALID, "a regex without its closing /");
    }
    for (p->at++; lark_peek(p) != 0 && strchr("imslux", lark_peek(p)) != NULL; p->at++) {
        if (strchr("mlx", lark_peek(p)) != NULL) {
            return lark_fail(p, QUIRE_UNSUPPORTED, "only the regex flags i, s and u are supported");
        }
        ignore_case = ignore_case || lark_peek(p) == 'i';
        dot_all = dot_all || lark_peek(p) == 's';
    }
    return lark_regex_of(p, body, ignore_case, dot_all);
}

/* ---- expansions ---- */

static uint32_t lark_parse_alt(parser *p, bool lines);

static uint32_t lark_parse_group(parser *p, const char *close) {
    if (++p->depth > AST_MAX_DEPTH) {
        return lark_fail(p, QUIRE_TOO_LARGE, "groups nest too deep");
    }
    p->at++;
    uint32_t inside = lark_parse_alt(p, true);
    if (lark_ok(p) && !lark_take(p, close)) {
        return lark_fail(p, QUIRE_INVALID, close[0] == ')' ? "a ( without its )" : "a [ without its ]");
    }
    p->depth--;
    return inside;
}

static uint32_t parse_reference(parser *p) {
    str name = lark_take_name(p);
    bool names_terminal = is_terminal(name);
    if (lark_peek(p) == '{') {
        return lark_fail(p, QUIRE_UNSUPPORTED, "templates are not supported; write the rule out");
    }
    if (!names_terminal && !p->in_rule) {
        return lark_fail(p, QUIRE_INVALID, "a terminal cannot name a rule");
    }
    uint32_t node = lark_call_of(p, lark_rule_of(p, name));
    return names_terminal ? terminal(p, node) : node;
}

static uint32_t lark_parse_atom(parser *p) {
    char c = lark_peek(p);
    switch (c) {
    case '(':
        return lark_parse_group(p, ")");
    case '[':
        return ast_repeat(p->t, lark_parse_group(p, "]"), 0, 1);
    case '"':
        return terminal(p, lark_parse_string(p));
    case '/':
        return terminal(p, parse_regex(p));
    case '%':
        return lark_fail(p, QUIRE_UNSUPPORTED, "%json and other grammars inside a grammar are not supported");
    case '<':
        return lark_fail(p, QUIRE_UNSUPPORTED, "tokens by name are not supported; write their text");
    default:
        return lark_is_name(c) ? parse_reference(p)
                               : lark_fail(p, QUIRE_INVALID, "a string, regex, group or name is expected");
    }
}

static uint32_t take_count(parser *p) {
    uint32_t v = 0;
    lark_skip(p, false);
    if (lark_peek(p) < '0' || lark_peek(p) > '9') {
        return lark_fail(p, QUIRE_INVALID, "a repeat is ~ n or ~ n..m");
    }
    for (; lark_peek(p) >= '0' && lark_peek(p) <= '9'; p->at++) {
        v = v > 100000 ? v : v * 10 + (uint32_t)(lark_peek(p) - '0');
    }
    return v <= 100000 ? v : lark_fail(p, QUIRE_TOO_LARGE, "a count over 100000");
}

static uint32_t lark_parse_repeat(parser *p) {
    uint32_t node = lark_parse_atom(p);
    lark_skip(p, false);
    char c = lark_peek(p);
    if (!lark_ok(p) || c == 0 || strchr("*+?~", c) == NULL) {
        return node;
    }
    p->at++;
    if (c != '~') {
        return ast_repeat(p->t, node, c == '+', c == '?' ? 1 : NFA_NONE);
    }
    uint32_t min = take_count(p), max = min;
    lark_skip(p, false);
    max = lark_ok(p) && lark_take(p, "..") ? take_count(p) : max;
    return lark_ok(p) && min > max
               ? lark_fail(p, QUIRE_INVALID, "a repeat's second number is smaller than its first")
               : ast_repeat(p->t, node, min, max);
}

/* Whether the next line continues with another alternative. */
static bool lark_goes_on(parser *p) {
    size_t from = p->at;
    lark_skip(p, true);
    bool does = lark_peek(p) == '|';
    p->at = does ? p->at : from;
    return does;
}

/* Parses alternatives up to a closing bracket or, unless `lines`, the end of the line. */
static uint32_t lark_parse_alt(parser *p, bool lines) {
    ast_list all = {0}, one = {0};
    for (lark_skip(p, lines); lark_ok(p) && p->at < p->text.n; lark_skip(p, lines)) {
        char c = lark_peek(p);
        if (c == '|' || (c == '\n' && lark_goes_on(p))) {
            p->at++;
            ast_add(p->t, &all, ast_cat(p->t, one));
            one = (ast_list){0};
        } else if (c == ')' || c == ']' || c == '\n') {
            break;
        } else if (lark_take(p, "->")) {
            lark_skip(p, false);
            (void)lark_take_name(p);
        } else {
            ast_add(p->t, &one, lark_parse_repeat(p));
        }
    }
    return ast_alternatives(p->t, all, one);
}

/* ---- statements ---- */

/* Defines the terminal `as` as a terminal of `common`. */
static void import(parser *p, str name, str as) {
    const char *regex = lark_common(name);
    if (regex == NULL) {
        (void)lark_fail(p, QUIRE_UNSUPPORTED, "common has no terminal of that name that is supported");
        return;
    }
    define(p, lark_rule_of(p, as), lark_regex_of(p, str_of(regex), false, false));
}

/* Parses "%import common.NAME [-> AS]" or "%import common (NAME, NAME)". */
static void lark_parse_import(parser *p) {
    lark_skip(p, false);
    if (!lark_take(p, "common")) {
        (void)lark_fail(p, QUIRE_UNSUPPORTED, "only terminals of common can be imported");
        return;
    }
    if (lark_take(p, ".")) {
        str name = lark_take_name(p), as = name;
        lark_skip(p, false);
        if (lark_take(p, "->")) {
            lark_skip(p, false);
            as = lark_take_name(p);
        }
        import(p, name, as);
        return;
    }
    lark_skip(p, false);
    bool more = lark_take(p, "(");
    if (!more) {
        (void)lark_fail(p, QUIRE_INVALID, "%import is common.NAME or common (NAME, NAME)");
    }
    while (more && lark_ok(p)) {
        lark_skip(p, true);
        str name = lark_take_name(p);
        import(p, name, name);
        lark_skip(p, true);
        more = lark_take(p, ",");
    }
    if (lark_ok(p) && !lark_take(p, ")")) {
        (void)lark_fail(p, QUIRE_INVALID, "a ( without its )");
    }
}

static void parse_directive(parser *p) {
    if (lark_take(p, "%import")) {
        lark_parse_import(p);
    } else if (lark_take(p, "%ignore")) {
        p->in_rule = false;
        ast_add(p->t, &p->ignored, lark_parse_alt(p, false));
    } else {
        (void)lark_fail(p, QUIRE_UNSUPPORTED, "only the directives %import and %ignore are supported");
    }
}

static void parse_definition(parser *p) {
    while (lark_take(p, "?") || lark_take(p, "!")) { /* these affect only Lark's tree */
    }
    str name = lark_take_name(p);
    if (name.n == 0) {
        (void)lark_fail(p, QUIRE_INVALID, "a rule is expected: name: parts");
        return;
    }
    uint32_t rule = lark_rule_of(p, name);
    p->in_rule = !is_terminal(name);
    lark_skip(p, false);
    if (lark_take(p, ".")) {
        lark_take(p, "-");
        (void)take_count(p);
        lark_skip(p, false);
    }
    if (lark_peek(p) == '{' || lark_peek(p) == '[') {
        (void)lark_fail(p, QUIRE_UNSUPPORTED,
                        "templates and attributes of rules are not supported; write the rule out");
    } else if (lark_ok(p) && !lark_take(p, ":")) {
        (void)lark_fail(p, QUIRE_INVALID, "a rule is name: parts");
    }
    define(p, rule, lark_ok(p) ? lark_parse_alt(p, false) : 0);
}

static void parse_statements(parser *p) {
    (void)lark_rule_of(p, str_of("%all"));
    (void)lark_rule_of(p, str_of("%ignored"));
    (void)lark_rule_of(p, str_of("start"));
    for (lark_skip(p, true); lark_ok(p) && p->at < p->text.n; lark_skip(p, true)) {
        if (lark_peek(p) == '%') {
            parse_directive(p);
        } else {
            parse_definition(p);
        }
        lark_skip(p, false);
        if (lark_ok(p) && p->at < p->text.n && lark_peek(p) != '\n') {
            (void)lark_fail(p, QUIRE_INVALID,
                            lark_peek(p) == ')' || lark_peek(p) == ']'
                                ? "a closing bracket without its opening one"
                                : "a statement must end at the end of its line");
        }
    }
    ast_list all = {0};
    ast_add(p->t, &all, lark_call_of(p, RULE_IGNORED));
    ast_add(p->t, &all, lark_call_of(p, RULE_START));
    define(p, RULE_ALL, ast_cat(p->t, all));
    define(p, RULE_IGNORED, p->ignored.n == 0 ? 0 : ast_repeat(p->t, ast_alt(p->t, p->ignored), 0, NFA_NONE));
}

static const char *lark_kind_of(str name) {
    return is_terminal(name) ? "terminal" : "rule";
}

void compile_lark(build *b, str text) {
    ast t;
    ast_init(&t, b);
    parser p = {.t = &t, .text = text};
    named_rules_init(&p.rules, &t);
    parse_statements(&p);
    named_rules_emit(&p.rules, lark_kind_of);
    named_rules_deinit(&p.rules);
    ast_deinit(&t);
}
