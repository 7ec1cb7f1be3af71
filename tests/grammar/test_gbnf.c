/* GBNF: recursion of every kind, and what is refused. */
#include "grammar_case.h"

TEST(rules_nest_as_deep_as_the_text) {
    grammar_case c = case_open(GRAMMAR_EBNF, "root ::= \"(\" root \")\" | \"a\"\n", NULL);
    char text[4002] = "";
    memset(text, '(', 2000);
    text[2000] = 'a';
    memset(text + 2001, ')', 1999);
    case_rejects(&c, text, -1);
    text[4000] = ')';
    case_accepts(&c, text);
    case_rejects(&c, "(a))", 3);
    case_close(&c);
}

TEST(left_recursion_is_turned_around) {
    grammar_case c = case_open(
        GRAMMAR_EBNF, "root ::= e\ne ::= e \"+\" t | t\nt ::= t \"*\" f | f\nf ::= \"(\" e \")\" | [a-c]\n",
        NULL);
    case_accepts(&c, "a+b*c+(a+a)");
    case_rejects(&c, "a+*", 2);
    case_rejects(&c, "a+(b", -1);
    case_rejects(&c, "a)", 1);
    case_close(&c);
}

TEST(left_recursion_through_other_rules_and_empty_ones_is_too) {
    grammar_case c = case_open(
        GRAMMAR_EBNF, "root ::= x\nx ::= o y \"1\" | \"a\"\ny ::= x \"2\" | \"b\"\no ::= \"-\"?\n", NULL);
    case_accepts(&c, "a");
    case_accepts(&c, "b1");
    case_accepts(&c, "a21");
    case_accepts(&c, "b121");
    case_accepts(&c, "-b1");
    case_accepts(&c, "-a21");
    case_accepts(&c, "--a2121");
    case_rejects(&c, "a1", 1);
    case_rejects(&c, "-a1", 2);
    case_rejects(&c, "b2", 1);
    case_close(&c);
}

TEST(left_recursion_between_two_that_may_be_empty_is_too) {
    grammar_case c = case_open(GRAMMAR_EBNF, "root ::= s\ns ::= s s | \"(\" s \")\" | \"\"\n", NULL);
    case_accepts(&c, "");
    case_accepts(&c, "()");
    case_accepts(&c, "(()())()");
    case_rejects(&c, "(()", -1);
    case_rejects(&c, "())", 2);
    case_close(&c);
    c = case_open(GRAMMAR_EBNF, "root ::= a \"!\"\na ::= b a \"x\" | \"\"\nb ::= a \"y\" | \"\"\n", NULL);
    case_accepts(&c, "!");
    case_accepts(&c, "xx!");
    case_accepts(&c, "yx!");
    case_accepts(&c, "xyx!");
    case_accepts(&c, "yxx!");
    case_rejects(&c, "y!", 1);
    case_close(&c);
}

/* Letters, then the text after them. */
static void accepts_letters(grammar_case *c, int n, const char *behind, bool accepted) {
    char text[100] = "";
    memset(text, 'a', (size_t)n);
    strcpy(text + n, behind);
    bool final;
    (void)case_take(c, text, &final);
    if (final != accepted) {
        fail_msg("%d letters and '%s' are %s", n, behind, final ? "accepted" : "rejected");
    }
}

TEST(a_counted_repeat_may_begin_a_rule_that_begins_with_itself) {
    static const char *const texts[] = {
        "root ::= root \"-\" | [a-z]{70}", "root ::= root \"-\" | w{70}\nw ::= [a-z]",
        "root ::= x\nx ::= y \"-\"\ny ::= x | root | ([a-z] \"\"){70} | [a-z]{70}\n"};
    for (size_t i = 0; i < 2; i++) {
        grammar_case c = case_open(GRAMMAR_EBNF, texts[i], NULL);
        accepts_letters(&c, 1, "", false);
        accepts_letters(&c, 1, "--", false);
        accepts_letters(&c, 69, "-", false);
        accepts_letters(&c, 70, "", true);
        accepts_letters(&c, 70, "--", true);
        accepts_letters(&c, 71, "", false);
        case_close(&c);
    }
    grammar_case c = case_open(GRAMMAR_EBNF, texts[2], NULL);
    accepts_letters(&c, 2, "-", false);
    accepts_letters(&c, 70, "", false);
    accepts_letters(&c, 70, "-", true);
    accepts_letters(&c, 70, "---", true);
    case_close(&c);
    c = case_open(GRAMMAR_EBNF, "root ::= root \"-\" | [a-z]{0,70}", NULL);
    accepts_letters(&c, 0, "", true);
    accepts_letters(&c, 0, "-", true);
    accepts_letters(&c, 3, "--", true);
    accepts_letters(&c, 71, "", false);
    case_close(&c);
    case_refused(GRAMMAR_EBNF, "root ::= (root \"a\"){70} | \"b\"", QUIRE_UNSUPPORTED, "counted repeat");
}

TEST(an_ambiguous_grammar_stays_small) {
    grammar_case c = case_open(GRAMMAR_EBNF, "root ::= s\ns ::= s s | \"a\" | \"b\"\n", NULL);
    char text[301];
    memset(text, 'a', 300);
    text[300] = 0;
    case_accepts(&c, text);
    grammar_run_stats stats;
    grammar_run_get_stats(c.r, &stats);
    assert_true(stats.bytes < (size_t)8 << 20);
    case_close(&c);
}

TEST(rules_may_span_lines_and_hold_comments) {
    grammar_case c = case_open(
        GRAMMAR_EBNF,
        "# an answer\nroot ::= (\n  \"x\" # first\n  | name )\nname ::= [^\\]\\n]{2,3}\n | '\\x41\\u00e9'\n",
        NULL);
    case_accepts(&c, "x");
    case_accepts(&c, "yy");
    case_accepts(&c, "A\xC3\xA9");
    case_rejects(&c, "]", 0);
    case_rejects(&c, "yyyy", 3);
    case_close(&c);
}

TEST(wrong_grammars_are_refused_with_their_line) {
    case_refused(GRAMMAR_EBNF, "root ::= \"a\"{}\n", QUIRE_INVALID, "a repeat is");
    case_refused(GRAMMAR_EBNF, "root ::= a\n", QUIRE_INVALID, "no rule \"a\"");
    case_refused(GRAMMAR_EBNF, "a ::= \"x\"\n", QUIRE_INVALID, "no rule \"root\"");
    case_refused(GRAMMAR_EBNF, "root ::= \"x\"\nroot ::= \"y\"\n", QUIRE_INVALID, "line 2");
    case_refused(GRAMMAR_EBNF, "root ::= \"x\" )\n", QUIRE_INVALID, ") without");
    case_refused(GRAMMAR_EBNF, "root ::= \"x\n", QUIRE_INVALID, "closing quote");
    case_refused(GRAMMAR_EBNF, "root ::= root \"a\"\n", QUIRE_INVALID, "matches no text");
    case_refused(GRAMMAR_EBNF, "root ::= \"x\"{3,2}\n", QUIRE_INVALID, "{n,m}");
}

TEST(the_notation_of_w3c_is_read_too) {
    grammar_case c = case_open(
        GRAMMAR_W3C,
        "/* an answer */ [1] doc ::= item (',' item)*\n[2] item ::= [a-c#x30-#x39]+ | #xE9 | \"#x\\\"\n",
        NULL);
    case_accepts(&c, "a0,9");
    case_accepts(&c, "\xC3\xA9,b");
    case_accepts(&c, "#x\\");
    case_rejects(&c, "d", 0);
    case_rejects(&c, "a,", -1);
    case_close(&c);
    case_refused(GRAMMAR_W3C, "a ::= 'x' - 'y'", QUIRE_INVALID, "is expected");
    case_refused(GRAMMAR_W3C, "", QUIRE_INVALID, "no rules");
}

TEST_MAIN(NULL, NULL)
