/* Grammars in Lark's notation: what they accept, and what is refused with a reason. */
#include "grammar_case.h"

TEST(rules_and_terminals) {
    grammar_case c = case_open(
        GRAMMAR_LARK,
        "// sums\nstart: expr -> all\n?expr: expr \"+\" term\n     | term\n!term.2: FACTOR (\"*\" FACTOR)*\n"
        "FACTOR.-1: DIGIT+ | \"(\" \"a\"..\"c\" \")\"\n%import common.DIGIT\n",
        NULL);
    case_accepts(&c, "1+2*30");
    case_accepts(&c, "(b)*1");
    case_rejects(&c, "(d)", 1);
    case_rejects(&c, "1 + 2", 1);
    case_rejects(&c, "1+", -1);
    case_mask(&c, grammar_start(c.r));
    case_close(&c);
}

TEST(what_is_ignored_stands_between_terminals_and_not_inside) {
    grammar_case c = case_open(GRAMMAR_LARK,
                               "start: NAME \"=\" \"ab\" \";\"\nNAME: /[a-z]/ /[0-9]/\n"
                               "%import common (WS, SH_COMMENT)\n%ignore WS\n%ignore SH_COMMENT",
                               NULL);
    case_accepts(&c, "a1=ab;");
    case_accepts(&c, "  a1 = # c\n ab\t; ");
    case_rejects(&c, "a 1=ab;", 1);
    case_rejects(&c, "a1=a b;", 4);
    case_close(&c);
}

TEST(counts_options_and_flags) {
    grammar_case c =
        case_open(GRAMMAR_LARK,
                  "start: \"x\"i ~ 2 [\",\"] /a.b/is ~ 0..2 (\"-\" | ) \"\\x41\\u00e9\\\"\\\\\\n\"", NULL);
    case_accepts(&c, "xXA\xC3\xA9\"\\\n");
    case_accepts(&c, "Xx,A\nBaxb-A\xC3\xA9\"\\\n");
    case_rejects(&c, "x,", 1);
    case_rejects(&c, "xxaxbaxba", 8);
    case_close(&c);
}

TEST(common_terminals) {
    static const struct {
        const char *name, *good, *bad;
        int dead_at;
    } cases[] = {
        {"INT", "042", "4.", 1},
        {"SIGNED_NUMBER", "-1.5e+3", "-e", 1},
        {"ESCAPED_STRING", "\"a\\\"b\"", "\"a\n", 2},
        {"CNAME", "_a1", "1a", 0},
        {"NEWLINE", "\r\n\n", "\r\r", 1},
        {"C_COMMENT", "/* a ** / */", "/* */ ", 5},
        {"NUMBER", ".5", "5.5.5", 3},
        {"WS_INLINE", " \t", "\n", 0},
        {"HEXDIGIT", "f", "g", 0},
        {"FLOAT", "1e5", "1.5e.", 4},
        {"LETTER", "Q", "QQ", 1},
        {"WORD", "abc", "ab1", 2},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[100];
        snprintf(text, sizeof text, "start: X\n%%import common.%s -> X", cases[i].name);
        grammar_case c = case_open(GRAMMAR_LARK, text, NULL);
        case_accepts(&c, cases[i].good);
        case_rejects(&c, cases[i].bad, cases[i].dead_at);
        case_close(&c);
    }
}

TEST(what_cannot_be_read_is_refused) {
    static const struct {
        const char *text;
        quire_err e;
        const char *part;
    } cases[] = {
        {"a: \"x\"", QUIRE_INVALID, "no rule \"start\""},
        {"start: b", QUIRE_INVALID, "no rule \"b\""},
        {"start: B", QUIRE_INVALID, "no terminal \"B\""},
        {"start: list{A}\nA: \"a\"", QUIRE_UNSUPPORTED, "templates"},
        {"list{x}: x\nstart: \"a\"", QUIRE_UNSUPPORTED, "templates"},
        {"start: \"a\"\n%declare X", QUIRE_UNSUPPORTED, "line 2"},
        {"%import python.NAME\nstart: NAME", QUIRE_UNSUPPORTED, "common"},
        {"%import common.NOPE\nstart: NOPE", QUIRE_UNSUPPORTED, "common"},
        {"start: \"a", QUIRE_INVALID, "quote"},
        {"start: \"a\"..\"", QUIRE_INVALID, "range"},
        {"start: \"a\\", QUIRE_INVALID, "quote"},
        {"start: (\"a\" | [", QUIRE_INVALID, "[ without"},
        {"start: /a", QUIRE_INVALID, "closing /"},
        {"start: /a/x", QUIRE_UNSUPPORTED, "flags"},
        {"start: /(?=a)/", QUIRE_UNSUPPORTED, "group"},
        {"start: (\"a\"", QUIRE_INVALID, "( without"},
        {"start: \"a\")", QUIRE_INVALID, "bracket"},
        {"start: \"b\"..\"a\"", QUIRE_INVALID, "range"},
        {"start: \"ab\"..\"c\"", QUIRE_INVALID, "range"},
        {"start: \"a\" ~ 3..2", QUIRE_INVALID, "smaller"},
        {"start: \"a\"\nstart: \"b\"", QUIRE_INVALID, "twice"},
        {"start: %json {}", QUIRE_UNSUPPORTED, "%json"},
        {"start: X\nX: start", QUIRE_INVALID, "cannot name a rule"},
        {"start: start \"a\"", QUIRE_INVALID, ""},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        case_refused(GRAMMAR_LARK, cases[i].text, cases[i].e, cases[i].part);
    }
}

TEST_MAIN(NULL, NULL)
