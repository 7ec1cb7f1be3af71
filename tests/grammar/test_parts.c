/* Grammars of parts: special tokens are terminals, free text ends where it must, and tags
 * begin anywhere in it. */
#include "grammar/grammar_parts.h"
#include "grammar_case.h"
#include "json/json.h"

/* A token for each ASCII character; the special ones are written as \1 to \6 in texts of
 * this file. Then longer ones. */
enum { TOOL = 1, TOOL_END, THINK, THINK_END, SHOWN, CHANNEL, N_MARKS = CHANNEL, LONG = 128 };
static const char *const mark_texts[] = {NULL,       "<tool>", "</tool>",    "<think>",
                                         "</think>", "<h1>",   "<|channel|>"};
static const char *const long_tokens[] = {
    "<to",  "ol>",       "a<", "{\"",     "\":",  "</",   "think>", "\xC3",
    "\xA9", "\xC3\xA9<", "ab", "</end>x", "\xFF", "\x80", "\x81"};
enum { N_LONG = sizeof long_tokens / sizeof *long_tokens, N_TOKENS = LONG + N_LONG };

static grammar_mark mark_list[N_MARKS];
static const grammar_marks marks = {mark_list, N_MARKS};

static void fill_marks(void) {
    for (int32_t i = 0; i < N_MARKS; i++) {
        mark_list[i] = (grammar_mark){str_of(mark_texts[i + 1]), i + 1, i + 1 != SHOWN};
    }
}

static grammar_vocab *open_vocab(void) {
    static char spelt[N_TOKENS][GRAMMAR_MARK_BYTES];
    str texts[N_TOKENS] = {{0}};
    grammar_vocab *v = NULL;
    for (int32_t i = 0; i < N_TOKENS; i++) {
        if (i >= 1 && i <= N_MARKS) {
            grammar_mark_spell(i, spelt[i]);
            texts[i] = (str){spelt[i], GRAMMAR_MARK_BYTES};
        } else if (i < LONG) {
            spelt[i][0] = (char)i;
            texts[i] = (str){spelt[i], i > 0};
        } else {
            texts[i] = str_of(long_tokens[i - LONG]);
        }
    }
    assert_int_equal(grammar_vocab_open(texts, N_TOKENS, NULL, 0, &v), QUIRE_OK);
    return v;
}

static grammar_case open_parts(const grammar_part *root) {
    quire_error err = {0};
    grammar_case c = {.v = open_vocab()};
    fill_marks();
    if (grammar_compile_parts(root, &marks, NULL, &c.g, &err) != QUIRE_OK) {
        fail_msg("%s", err.message);
    }
    assert_int_equal(grammar_run_open(c.g, c.v, 0, &c.r), QUIRE_OK);
    return c;
}

static void check_mask(grammar_case *c, grammar_state s) {
    uint64_t bits[(N_TOKENS + 63) / 64];
    for (int round = 0; round < 2; round++) {
        assert_int_equal(grammar_mask(c->r, s, bits), QUIRE_OK);
        for (int32_t t = 0; t < N_TOKENS; t++) {
            if ((bits[t / 64] >> (t % 64) & 1) != grammar_allows(c->r, s, t)) {
                fail_msg("token %d is wrong in the mask", t);
            }
        }
    }
}

/* Tokens that are taken, one a byte; each state's mask is checked. */
static size_t take(grammar_case *c, const char *text, bool *final) {
    grammar_state s = grammar_start(c->r);
    size_t n = 0;
    check_mask(c, s);
    while (text[n] != 0 && grammar_accept(c->r, &s, text[n]) == QUIRE_OK) {
        check_mask(c, s);
        n++;
    }
    *final = text[n] == 0 && grammar_is_final(c->r, s);
    return n;
}

static void accepts(grammar_case *c, const char *text) {
    bool final;
    size_t n = take(c, text, &final);
    if (!final) {
        fail_msg("'%s' must be accepted; stops behind %zu", text, n);
    }
}

/* at: the byte that cannot follow; -1: the text is unfinished. */
static void rejects(grammar_case *c, const char *text, int at) {
    bool final;
    size_t n = take(c, text, &final);
    if (final || n != (at < 0 ? strlen(text) : (size_t)at)) {
        fail_msg("'%s' must end at %d; it is taken up to %zu, %s", text, at, n,
                 final ? "complete" : "not complete");
    }
}

#define TEXT(t)                                                                                              \
    {                                                                                                        \
        .part = GRAMMAR_PART_TEXT, .text = { t, sizeof t - 1 }                                               \
    }
#define RULE(k, t)                                                                                           \
    {                                                                                                        \
        .part = GRAMMAR_PART_RULE, .kind = k, .text = { t, sizeof t - 1 }                                    \
    }

TEST(a_special_token_is_no_text_and_text_is_no_special_token) {
    grammar_part text = TEXT("a<tool>b"), regex = RULE(GRAMMAR_REGEX, "<tool>"),
                 any = RULE(GRAMMAR_REGEX, "(.|\n)*");
    grammar_case c = open_parts(&text);
    accepts(&c, "a\1b");
    rejects(&c, "a<tool>b", 1);
    case_close(&c);
    c = open_parts(&regex);
    accepts(&c, "<tool>");
    rejects(&c, "\1", 0);
    case_close(&c);
    c = open_parts(&any);
    accepts(&c, "x<tool>");
    rejects(&c, "x\1", 1);
    case_close(&c);
}

/* A vocabulary of single bytes has all of a spelling. */
TEST(tokens_of_single_bytes_spell_no_special_token) {
    grammar_part part = TEXT("<tool>");
    grammar_case c = open_parts(&part);
    grammar_state s = grammar_start(c.r);
    int32_t byte = LONG + N_LONG - 3;
    assert_int_equal(grammar_vocab_text(c.v, byte).n, 0);
    assert_int_equal(grammar_accept(c.r, &s, byte), QUIRE_INVALID);
    assert_int_equal(grammar_accept(c.r, &s, TOOL), QUIRE_OK);
    case_close(&c);
}

TEST(sets_of_special_tokens_are_named_or_all_others) {
    static const int32_t two[] = {THINK_END, TOOL};
    grammar_part set = {.part = GRAMMAR_PART_MARKS, .ids = two, .n_ids = 2};
    grammar_case c = open_parts(&set);
    accepts(&c, "\1");
    accepts(&c, "\4");
    rejects(&c, "\2", 0);
    rejects(&c, "a", 0);
    case_close(&c);
    set.negated = true;
    c = open_parts(&set);
    accepts(&c, "\2");
    rejects(&c, "\4", 0);
    case_close(&c);
}

TEST(sequences_choices_and_repeats_are_what_they_say) {
    const grammar_part ab[] = {TEXT("a"), TEXT("<tool>")}, separated[] = {TEXT("a"), TEXT(",")};
    const grammar_part either = {.part = GRAMMAR_PART_ONE_OF, .parts = ab, .n_parts = 2};
    grammar_part repeat = {.part = GRAMMAR_PART_REPEAT, .parts = &either, .n_parts = 1, .min = 2, .max = 3};
    grammar_case c = open_parts(&repeat);
    rejects(&c, "a", -1);
    accepts(&c, "a\1");
    accepts(&c, "\1aa");
    rejects(&c, "aaaa", 3);
    case_close(&c);
    repeat =
        (grammar_part){.part = GRAMMAR_PART_REPEAT, .parts = separated, .n_parts = 2, .max = GRAMMAR_NO_MAX};
    c = open_parts(&repeat);
    accepts(&c, "");
    accepts(&c, "a");
    accepts(&c, "a,a,a,a");
    rejects(&c, "a,", -1);
    case_close(&c);
    repeat.min = 2;
    repeat.max = 2;
    c = open_parts(&repeat);
    rejects(&c, "a", -1);
    accepts(&c, "a,a");
    rejects(&c, "a,a,", 3);
    case_close(&c);
}

TEST(text_goes_on_until_a_mark_or_a_text_for_the_first_time) {
    const str think[] = {str_of("</think>")}, end[] = {str_of("</end>"), str_of("</e\xC3\xA9>")};
    grammar_part parts[] = {{.part = GRAMMAR_PART_UNTIL, .texts = think, .n_texts = 1},
                            RULE(GRAMMAR_SCHEMA, "{\"type\":\"null\"}")};
    const grammar_part all = {.part = GRAMMAR_PART_SEQUENCE, .parts = parts, .n_parts = 2};
    grammar_case c = open_parts(&all);
    accepts(&c, "some </think> letters\5\4null");
    accepts(&c, "\4null");
    rejects(&c, "a\4b", 2);
    rejects(&c, "a\3", 1);
    rejects(&c, "a null", -1);
    case_close(&c);
    parts[0].specials = GRAMMAR_SPECIALS_ALL;
    c = open_parts(&all);
    accepts(&c, "a\3\4null");
    case_close(&c);
    parts[0] = (grammar_part){
        .part = GRAMMAR_PART_UNTIL, .texts = end, .n_texts = 2, .specials = GRAMMAR_SPECIALS_NONE};
    c = open_parts(&all);
    accepts(&c, "x</e</end>null");
    accepts(&c, "</end>null");
    rejects(&c, "x</end>x", 7);
    rejects(&c, "\5", 0);
    case_close(&c);
}

TEST(free_text_holds_none_of_its_texts) {
    const str none[] = {str_of("ab"), str_of("<tool>")};
    const grammar_part part = {.part = GRAMMAR_PART_FREE, .texts = none, .n_texts = 2};
    grammar_case c = open_parts(&part);
    accepts(&c, "");
    accepts(&c, "aaa\5a");
    accepts(&c, "a\5b<tool>");
    rejects(&c, "aab", 2);
    rejects(&c, "\1", 0);
    case_close(&c);
}

/* Tags f and g, whose bodies are numbers and letters. */
static grammar_case open_tags(bool begins_with_tag, bool stop_after_first) {
    static grammar_part f[2] = {RULE(GRAMMAR_REGEX, "[0-9]+"), TEXT("</f>")},
                        g[2] = {RULE(GRAMMAR_SCHEMA, "{\"const\":\"<f=\"}"), TEXT("</tool>")};
    static const grammar_part f_rest = {.part = GRAMMAR_PART_SEQUENCE, .parts = f, .n_parts = 2};
    static const grammar_part g_rest = {.part = GRAMMAR_PART_SEQUENCE, .parts = g, .n_parts = 2};
    const grammar_tag tags[] = {
        {str_of("<f=1>"), &f_rest}, {str_of("<f=2>"), &f_rest}, {str_of("<tool>g"), &g_rest}};
    const str triggers[] = {str_of("<f="), str_of("<tool>")};
    const grammar_part part = {.part = GRAMMAR_PART_TAGS,
                               .texts = triggers,
                               .n_texts = 2,
                               .tags = tags,
                               .n_tags = 3,
                               .begins_with_tag = begins_with_tag,
                               .stop_after_first = stop_after_first};
    return open_parts(&part);
}

static grammar_case open_one_of(const grammar_part *ways, size_t n, grammar_space space) {
    const grammar_part root = {.part = GRAMMAR_PART_ONE_OF, .parts = ways, .n_parts = n};
    const grammar_options o = {.space = space};
    quire_error err = {0};
    grammar_case c = {.v = case_vocab(1)};
    if (grammar_compile_parts(&root, NULL, &o, &c.g, &err) != QUIRE_OK) {
        fail_msg("%s", err.message);
    }
    assert_int_equal(grammar_run_open(c.g, c.v, 0, &c.r), QUIRE_OK);
    return c;
}

/* The mask after every prefix of the text. */
static void check_masks(grammar_case *c, const char *text) {
    grammar_state s = grammar_start(c->r);
    case_mask(c, s);
    for (const char *p = text; *p != 0; p++) {
        assert_int_equal(grammar_accept_bytes(c->r, &s, (str){p, 1}, NULL), QUIRE_OK);
        case_mask(c, s);
    }
}

/* A newline may stand in the text and not in the string; a long run of spaces in the
 * regex and not in the array. */
TEST(a_text_that_begins_as_json_does_has_masks_of_its_own) {
    const grammar_part strings[] = {RULE(GRAMMAR_SCHEMA, "{\"type\":\"string\"}"),
                                    RULE(GRAMMAR_SCHEMA, "{\"minLength\":2,\"maxLength\":90}"),
                                    RULE(GRAMMAR_SCHEMA, "{\"type\":\"string\",\"pattern\":\"a|b\"}")};
    const grammar_part texts[] = {RULE(GRAMMAR_REGEX, "(.|\\n)*"), RULE(GRAMMAR_REGEX, "\"a*\\n"),
                                  TEXT("\"ab\n\"x"), TEXT("\"ab\\x\""),
                                  RULE(GRAMMAR_EBNF, "root ::= q [\\n]\nq ::= \"\\\"ab\"")};
    for (size_t i = 0; i < 3; i++) {
        for (size_t k = 0; k < sizeof texts / sizeof *texts; k++) {
            grammar_case c = open_one_of((grammar_part[]){strings[i], texts[k]}, 2, GRAMMAR_SPACE_COMPACT);
            check_masks(&c, "\"ab");
            case_close(&c);
        }
    }
    grammar_case c = open_one_of((grammar_part[]){RULE(GRAMMAR_SCHEMA, "{\"type\":\"array\"}"),
                                                  RULE(GRAMMAR_REGEX, "\\[[ \\n]{0,90}x")},
                                 2, GRAMMAR_SPACE_ANY);
    check_masks(&c, "[   ");
    case_close(&c);
}

TEST(a_trigger_begins_a_tag_anywhere_in_free_text) {
    grammar_case c = open_tags(false, false);
    accepts(&c, "");
    accepts(&c, "no tag <f <tool>\5");
    accepts(&c, "x<<f=1>12</f>y\1g\"<f=\"\2<f=2>3</f>");
    rejects(&c, "x<f=1>12", -1);
    rejects(&c, "x<f=3", 4);
    rejects(&c, "\1f", 1);
    rejects(&c, "\2", 0);
    rejects(&c, "a\3", 1);
    case_close(&c);
    c = open_tags(true, false);
    rejects(&c, "text", 0);
    accepts(&c, "<f=1>1</f>");
    accepts(&c, "<f=1>1</f>b<f=2>1</f>c");
    rejects(&c, "a<f=1>1</f>", 0);
    case_close(&c);
    c = open_tags(true, true);
    rejects(&c, "text", 0);
    accepts(&c, "<f=1>1</f>");
    rejects(&c, "<f=1>1</f>b", 10);
    case_close(&c);
    c = open_tags(false, true);
    accepts(&c, "text");
    rejects(&c, "a<f=1>1</f>b", 11);
    case_close(&c);
}

TEST(a_trigger_may_be_letters_before_a_special_token) {
    const grammar_part rest = TEXT("1");
    const grammar_tag tag = {str_of("call<tool>f"), &rest};
    const str trigger = str_of("call<tool>");
    const grammar_part part = {
        .part = GRAMMAR_PART_TAGS, .texts = &trigger, .n_texts = 1, .tags = &tag, .n_tags = 1};
    grammar_case c = open_parts(&part);
    accepts(&c, "a call cacall\1f1 more");
    rejects(&c, "a\1", 1);
    rejects(&c, "call\1g", 5);
    case_close(&c);
}

/* A tag's special token counts where the trigger is only the beginning of its letters. */
TEST(a_trigger_of_letters_means_the_special_token_that_begins_with_them) {
    const grammar_part rest = TEXT("1");
    const grammar_tag tag = {str_of("<tool>f"), &rest};
    const str trigger = str_of("<to");
    const grammar_part part = {
        .part = GRAMMAR_PART_TAGS, .texts = &trigger, .n_texts = 1, .tags = &tag, .n_tags = 1};
    grammar_case c = open_parts(&part);
    accepts(&c, "a\1f1");
    rejects(&c, "a<to", 3);
    case_close(&c);
}

TEST(a_special_token_that_must_come_is_forced) {
    const grammar_part part = TEXT("<tool>a</tool>");
    grammar_case c = open_parts(&part);
    int32_t ids[GRAMMAR_MAX_GUESSES], parents[GRAMMAR_MAX_GUESSES];
    assert_int_equal(grammar_forced(c.r, grammar_start(c.r), ids, 4), 3);
    assert_int_equal(ids[0], TOOL);
    assert_int_equal(ids[1], 'a');
    assert_int_equal(ids[2], TOOL_END);
    assert_int_equal(
        grammar_guess(c.r, grammar_start(c.r), &(grammar_guess_bounds){4, 1.0f, 0.5f, 0.0f}, ids, parents),
        3);
    assert_int_equal(ids[2], TOOL_END);
    case_close(&c);
}

static void refused(const grammar_part *part, quire_err e, const char *why) {
    grammar *g = NULL;
    quire_error err = {0};
    fill_marks();
    quire_err got = grammar_compile_parts(part, &marks, NULL, &g, &err);
    if (got != e || strstr(err.message, why) == NULL) {
        fail_msg("%s \"%s\", expected \"%s\"", quire_err_name(got), err.message, why);
    }
    assert_null(g);
}

TEST(what_is_malformed_is_refused) {
    const grammar_part rest = TEXT("1");
    const grammar_tag tag = {str_of("<f>"), &rest};
    const str other = str_of("<g"), empty = {"", 0}, broken = {"\xFF", 1};
    grammar_part part = {.part = GRAMMAR_PART_TAGS, .texts = &other, .n_texts = 1, .tags = &tag, .n_tags = 1};
    refused(&part, QUIRE_INVALID, "begins with none of the triggers");
    part = (grammar_part){.part = GRAMMAR_PART_UNTIL, .texts = &empty, .n_texts = 1};
    refused(&part, QUIRE_INVALID, "empty");
    part.texts = &broken;
    refused(&part, QUIRE_INVALID, "UTF-8");
    part = (grammar_part){
        .part = GRAMMAR_PART_RULE, .kind = GRAMMAR_REGEX, .text = str_of("("), .where = "tools[3].format"};
    refused(&part, QUIRE_INVALID, "tools[3].format: ");
    part = (grammar_part){.part = GRAMMAR_PART_REPEAT, .parts = &rest, .n_parts = 1, .min = 2, .max = 1};
    refused(&part, QUIRE_INVALID, "larger than its maximum");
    static char many[10000];
    memset(many, 'a', sizeof many);
    const str long_text = {many, sizeof many};
    part = (grammar_part){.part = GRAMMAR_PART_UNTIL, .texts = &long_text, .n_texts = 1};
    refused(&part, QUIRE_TOO_LARGE, "have more than");
    grammar_part deep[GRAMMAR_PARTS_DEPTH + 2];
    for (int i = 0; i < GRAMMAR_PARTS_DEPTH + 2; i++) {
        deep[i] = (grammar_part){.part = GRAMMAR_PART_SEQUENCE, .parts = &deep[i + 1], .n_parts = 1};
    }
    deep[GRAMMAR_PARTS_DEPTH + 1] = rest;
    refused(deep, QUIRE_TOO_LARGE, "nest deeper");
}

/* Rules of EBNF stand behind each other's. */
TEST(rules_of_several_grammars_do_not_meet) {
    const grammar_part parts[] = {RULE(GRAMMAR_EBNF, "root ::= x | root x\nx ::= \"a\""),
                                  RULE(GRAMMAR_EBNF, "root ::= \"(\" root \")\" | x\nx ::= \"b\"")};
    const grammar_part all = {.part = GRAMMAR_PART_SEQUENCE, .parts = parts, .n_parts = 2};
    grammar_case c = open_parts(&all);
    accepts(&c, "aaa((b))");
    rejects(&c, "b", 0);
    rejects(&c, "a(a", 2);
    case_close(&c);
}

/* A grammar in Lark's notation with n + 5 names, twice, after what has rules of its
 * own. */
static void check_lark(int n) {
    static const char head[] =
        "start: yes | NO \"!\"\nyes: \"y\" | yes \"+\" r0\nNO: \"n\"\n%ignore \" \"\nr0: \"a\"";
    char text[1000] = "", letters[32] = "a", answer[100];
    for (int i = n - 1; i > 0; i--) { /* each is defined before it is used */
        size_t at = strlen(text);
        (void)snprintf(text + at, sizeof text - at, i < n - 1 ? "r%d: \"%c\" r%d\n" : "r%d: \"%c\"\n", i,
                       'a' + i, i + 1);
        letters[i] = (char)('a' + i);
    }
    (void)snprintf(text + strlen(text), sizeof text - strlen(text), "%s r1\n", head);
    const grammar_part lark = {.part = GRAMMAR_PART_RULE, .kind = GRAMMAR_LARK, .text = str_of(text)};
    const grammar_part parts[] = {TEXT("<think>"), lark, RULE(GRAMMAR_EBNF, "root ::= x\nx ::= \"/\""), lark};
    const grammar_part all = {.part = GRAMMAR_PART_SEQUENCE, .parts = parts, .n_parts = 4};
    grammar_case c = open_parts(&all);
    (void)snprintf(answer, sizeof answer, "\3 n! /y + %s+%s", letters, letters);
    accepts(&c, answer);
    accepts(&c, "\3y/ n !");
    rejects(&c, "\3n/", 2);
    rejects(&c, "\3/", 1);
    rejects(&c, "\3y+ac", 4);
    rejects(&c, "\3y/", -1);
    case_close(&c);
}

TEST(rules_of_lark_stand_behind_those_before_them) {
    for (int n = 8; n < 24; n++) {
        check_lark(n);
    }
}

static unsigned reads_string(const void *user, const json_value *schema) {
    (void)user;
    (void)schema;
    return GRAMMAR_READS_STRING;
}

/* The value of the member s: n characters of which the first ones are `begin`, then
 * `end`. */
static const char *long_value(const char *begin, int n, const char *end) {
    static char text[1000];
    (void)snprintf(text, sizeof text, "<p=s>%s", begin);
    for (int i = (int)strlen(begin); i < n; i++) {
        (void)strcat(text, "b");
    }
    return strcat(text, end);
}

/* Its tokens are those that take bytes one by one, at both limits of the length and far
 * from them. */
TEST(a_long_text_of_limited_length_holds_all_but_what_ends_it) {
    static const char *const schemas[] = {
        "{\"properties\":{\"s\":{\"type\":\"string\",\"minLength\":100,\"maxLength\":400}},"
        "\"additionalProperties\":false}",
        "{\"properties\":{\"s\":{\"type\":\"string\",\"maxLength\":4000000000}},\"additionalProperties\":"
        "false}",
        "{\"properties\":{\"s\":{\"type\":\"string\",\"minLength\":300}},\"additionalProperties\":false}"};
    static const str never[] = {{"</p>", 4}, {"\n<q>", 4}};
    for (int i = 0; i < 3; i++) {
        json_value *schema = json_document(str_of(schemas[i]));
        const grammar_arguments a = {.syntax = GRAMMAR_SYNTAX_TAGS,
                                     .schema = schema,
                                     .before = str_of("<p="),
                                     .middle = str_of(">"),
                                     .behind = str_of("</p>"),
                                     .never = never,
                                     .n_never = 2,
                                     .reader = {.reads = reads_string}};
        const grammar_part part = {.part = GRAMMAR_PART_ARGUMENTS, .arguments = &a};
        grammar_case c = open_parts(&part);
        accepts(&c, long_value("a < b\n</q> <", 400, "</p>"));
        rejects(&c, long_value("a\n<q>", 400, "</p>"), 5 + 4);
        if (i == 0) {
            rejects(&c, long_value("a < b\n", 401, "</p>"), 5 + 400);
        }
        if (i != 1) {
            rejects(&c, long_value("a < b\n", 99, "</p>"), 5 + 99 + 3);
        }
        json_drop(schema);
        case_close(&c);
    }
}

TEST_MAIN(NULL, NULL)
