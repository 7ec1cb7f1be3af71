/* Structural tags: both forms become the grammar that they describe; what cannot be done
 * is refused with its place. */
#include <string.h>

#include "answer/marked_letters.h"
#include "answer/structural_tag.h"
#include "test.h"

/* The letters, and one special token, which is written as \1. */
enum { TOOL = 1 };
static const grammar_mark tool = {{"<tool>", 6}, TOOL, true};
static const grammar_marks marks = {&tool, 1};

static int open_vocab(void **state) {
    (void)state;
    return open_marked_letters(&marks);
}

static quire_err compile(const char *json, grammar **out, quire_error *err) {
    json_value *v = json_document(str_of(json));
    part_arena a = {0};
    grammar_part part = {0};
    assert_non_null(v);
    *out = NULL;
    quire_err e = structural_tag_read(&a, v, &part, err);
    e = e == QUIRE_OK ? a.failed : e;
    e = e == QUIRE_OK ? grammar_compile_parts(&part, &marks, NULL, out, err) : e;
    part_arena_deinit(&a);
    json_drop(v);
    return e;
}

typedef struct tag_case {
    const char *json;
    const char *good[5], *bad[6];
} tag_case;

#define FORMAT(f) "{\"type\":\"structural_tag\",\"format\":" f "}"
#define NUMBER    "{\"type\":\"json_schema\",\"json_schema\":{\"type\":\"integer\"}}"
#define F_TAG     "{\"type\":\"tag\",\"begin\":\"<f>\",\"content\":" NUMBER ",\"end\":\"</f>\"}"
#define G_TAG                                                                                                \
    "{\"type\":\"tag\",\"begin\":\"<tool>g\",\"content\":{\"type\":\"any_text\"},\"end\":[\"</"              \
    "g>\",\"<tool>\"]}"

TEST(a_structural_tag_takes_the_texts_that_it_describes) {
    static const tag_case cases[] = {
        {"{\"type\":\"structural_tag\",\"structures\":[{\"begin\":\"<f=a>\",\"schema\":{\"type\":\"integer\"}"
         ",\"end\":\"</f>\"},"
         "{\"begin\":\"<f=b>\",\"schema\":{\"type\":\"null\"},\"end\":\"</f>\"}],\"triggers\":[\"<f=\"]}",
         {"", "text", "a<f=a>1</f>b<f=b>null</f>"},
         {"<f=", "<f=c>", "<f=a>1", "<f=a>null</f>"}},
        {FORMAT("{\"type\":\"triggered_tags\",\"triggers\":[\"<f\",\"<tool>\"],\"tags\":[" F_TAG "," G_TAG
                "],\"excludes\":[\"no\"]}"),
         {"", "x<f>12</f>y\1gtext <f \1z", "\1g</g>"},
         {"no", "<f>x</f>", "\1h", "<f>1</f>no"}},
        {FORMAT("{\"type\":\"triggered_tags\",\"triggers\":[\"<f\"],\"tags\":[" F_TAG
                "],\"at_least_one\":true,\"stop_after_first\":true}"),
         {"<f>1</f>"},
         {"", "x", "x<f>1</f>", "<f>1</f>x", "<f>1</f><f>1</f>"}},
        {FORMAT("{\"type\":\"triggered_tags\",\"triggers\":[\"<f\",\"<tool>\"],\"tags\":[" F_TAG "," G_TAG
                "],\"at_least_one\":true}"),
         {"<f>1</f>", "<f>1</f>x<f>2</f>y", "\1g</g>"},
         {"", "x<f>1</f>", "x\1g</g>"}},
        {FORMAT("{\"type\":\"tag\",\"begin\":\"(\",\"content\":{\"type\":\"any_text\",\"excludes\":[\"<\","
                "\"x)\"],"
                "\"max_chars\":null},\"end\":[\"</a>\",\")\"]}"),
         {"(</a>", "(text</a>", "(x)"},
         {"(a<b</a>", "(x</a>)", "(x)</a>"}},
        {FORMAT("{\"type\":\"tags_with_separator\",\"separator\":\",\",\"tags\":[" F_TAG
                "],\"at_least_one\":true}"),
         {"<f>1</f>", "<f>1</f>,<f>2</f>,<f>3</f>"},
         {"", "<f>1</f>,", "x<f>1</f>", "<f>1</f> <f>1</f>"}},
        {FORMAT("{\"type\":\"tags_with_separator\",\"separator\":\"\",\"tags\":[" F_TAG
                "],\"stop_after_first\":true}"),
         {"", "<f>1</f>"},
         {"<f>1</f><f>1</f>"}},
        {FORMAT("{\"type\":\"sequence\",\"elements\":[{\"type\":\"const_string\",\"value\":\"a<tool>\"},{"
                "\"type\":\"regex\",\"pattern\":\"[0-"
                "9]{2}\"},"
                "{\"type\":\"or\",\"elements\":[{\"type\":\"grammar\",\"grammar\":\"root ::= \\\"(\\\" root "
                "\\\")\\\" | \\\"x\\\"\"}," NUMBER "]}]}"),
         {"a\00112((x))", "a\001127"},
         {"a<tool>12x", "a\0011", "a\00112(x"}},
        {FORMAT("{\"type\":\"tag\",\"begin\":{\"type\":\"token\",\"token\":\"<tool>\"},\"content\":{\"type\":"
                "\"any_text\",\"excludes\":["
                "\"q\"]},\"end\":\"\"}"),
         {"\1", "\1text"},
         {"text", "\1q", "\1\1"}},
        {FORMAT("{\"type\":\"tag\",\"begin\":\"<\",\"content\":{\"type\":\"sequence\",\"elements\":[{"
                "\"type\":\"any_text\"}," F_TAG "]},\"end\":\">>\"}"),
         {"<a<f>1</f>>>", "<<f>1</f>>>"},
         {"<a>><f>1</f>>>", "<a>>"}},
        {FORMAT("{\"type\":\"sequence\",\"elements\":[{\"type\":\"optional\",\"content\":{\"type\":\"const_"
                "string\",\"value\":\"a\"}},"
                "{\"type\":\"plus\",\"content\":{\"type\":\"const_string\",\"value\":\"b\"}},{\"type\":"
                "\"star\",\"content\":{\"type\":"
                "\"token\",\"token\":"
                "\"c\"}},{\"type\":\"repeat\",\"min\":1,\"max\":2,\"content\":{\"type\":\"const_string\","
                "\"value\":\"d\"}}]}"),
         {"bd", "abbcccdd"},
         {"ad", "bddd", "aabd", "b"}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        quire_error err = {0};
        grammar *g;
        if (compile(cases[i].json, &g, &err) != QUIRE_OK) {
            fail_msg("%s: %s", cases[i].json, err.message);
        }
        for (size_t k = 0; k < 5 && cases[i].good[k] != NULL; k++) {
            if (!takes(g, cases[i].good[k])) {
                fail_msg("%s must take '%s'", cases[i].json, cases[i].good[k]);
            }
        }
        for (size_t k = 0; k < 6 && cases[i].bad[k] != NULL; k++) {
            if (takes(g, cases[i].bad[k])) {
                fail_msg("%s must not take '%s'", cases[i].json, cases[i].bad[k]);
            }
        }
        grammar_drop(g);
    }
}

TEST(what_cannot_be_done_is_refused_with_its_place) {
    static const char *const cases[][2] = {
        {"{\"type\":\"structural_tag\"}", "format, or structures"},
        {"{\"structures\":[{\"begin\":\"<f>\",\"schema\":1,\"end\":\"\"}],\"triggers\":[\"<f\"]}",
         "structures[0].schema"},
        {"{\"structures\":[{\"begin\":\"<f>\",\"schema\":{},\"end\":\"\"}],\"triggers\":[\"<g\"]}",
         "none of the triggers"},
        {FORMAT("5"), "format must be"},
        {FORMAT("{\"type\":\"qwen_xml_parameter\",\"json_schema\":{}}"),
         "\"qwen_xml_parameter\" is not supported"},
        {FORMAT("{\"type\":\"json_schema\",\"json_schema\":{},\"style\":\"qwen_xml\"}"), "format.style"},
        {FORMAT("{\"type\":\"sequence\",\"elements\":[" NUMBER ",{\"type\":\"regex\",\"pattern\":\"(\"}]}"),
         "format.elements[1]: "},
        {FORMAT("{\"type\":\"sequence\",\"elements\":[]}"), "format.elements"},
        {FORMAT("{\"type\":\"regex\",\"pattern\":\"a\",\"excludes\":[\"b\"]}"), "format.excludes"},
        {FORMAT("{\"type\":\"json_schema\",\"json_schema\":{},\"excludes\":[\"b\"]}"), "format.excludes"},
        {FORMAT("{\"type\":\"any_text\",\"max_chars\":10}"), "format.max_chars"},
        {FORMAT("{\"type\":\"triggered_tags\",\"triggers\":[\"<\"],\"tags\":[{\"begin\":\"<\","
                "\"content\":" NUMBER ",\"end\":\"\",\"when\":1}]}"),
         "format.tags[0].when"},
        {FORMAT("{\"type\":\"tag\",\"begin\":5,\"content\":" NUMBER ",\"end\":\"\"}"), "format.begin"},
        {FORMAT("{\"type\":\"triggered_tags\",\"triggers\":[],\"tags\":[" F_TAG "]}"), "format.triggers"},
        {FORMAT("{\"type\":\"triggered_tags\",\"triggers\":[\"<\"],\"tags\":[" F_TAG "],\"at_least_one\":1}"),
         "format.at_least_one"},
        {FORMAT("{\"type\":\"triggered_tags\",\"triggers\":[\"<\"],\"tags\":[{\"begin\":\"<\",\"content\":{"
                "\"type\":\"x\"},\"end\":\"\"}]}"),
         "format.tags[0].content.type"},
        {FORMAT("{\"type\":\"repeat\",\"min\":3,\"max\":2,\"content\":" NUMBER "}"), "format.min"},
        {FORMAT("{\"type\":\"json_schema\",\"json_schema\":{\"$ref\":\"#/x\"}}"), "format: "},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        quire_error err = {0};
        grammar *g;
        quire_err e = compile(cases[i][0], &g, &err);
        if ((e != QUIRE_INVALID && e != QUIRE_UNSUPPORTED) || strstr(err.message, cases[i][1]) == NULL) {
            fail_msg("%s: %s \"%s\", expected \"%s\"", cases[i][0], quire_err_name(e), err.message,
                     cases[i][1]);
        }
    }
}

TEST(formats_that_nest_too_deep_are_refused) {
    strbuf text = {0};
    quire_error err = {0};
    grammar *g;
    assert_int_equal(strbuf_add_str(&text, "{\"format\":"), QUIRE_OK);
    for (int i = 0; i < 50; i++) {
        assert_int_equal(strbuf_add_str(&text, "{\"type\":\"star\",\"content\":"), QUIRE_OK);
    }
    assert_int_equal(strbuf_add_str(&text, NUMBER), QUIRE_OK);
    for (int i = 0; i < 51; i++) {
        assert_int_equal(strbuf_add_str(&text, "}"), QUIRE_OK);
    }
    assert_int_equal(compile(text.p, &g, &err), QUIRE_INVALID);
    assert_non_null(strstr(err.message, "is nested more"));
    strbuf_deinit(&text);
}

/* <tool> is the end token here. */
TEST(an_end_token_stands_where_nothing_has_to_follow) {
    static const int32_t ends[] = {TOOL};
    static const struct {
        const char *json, *where; /* NULL: it may stand there */
    } cases[] = {
        {FORMAT("{\"type\":\"const_string\",\"value\":\"a<tool>\"}"), NULL},
        {FORMAT("{\"type\":\"const_string\",\"value\":\"a<tool>b\"}"), "format.value"},
        {FORMAT("{\"type\":\"sequence\",\"elements\":[{\"type\":\"token\",\"token\":\"<tool>\"},{\"type\":"
                "\"any_text\"}]}"),
         NULL},
        {FORMAT("{\"type\":\"sequence\",\"elements\":[{\"type\":\"token\",\"token\":\"<tool>\"}," NUMBER
                "]}"),
         "format.elements[0].token"},
        {FORMAT("{\"type\":\"or\",\"elements\":[" NUMBER ",{\"type\":\"token\",\"token\":\"<tool>\"}]}"),
         NULL},
        {FORMAT("{\"type\":\"star\",\"content\":{\"type\":\"token\",\"token\":\"<tool>\"}}"), NULL},
        {FORMAT("{\"type\":\"repeat\",\"min\":2,\"max\":2,\"content\":{\"type\":\"token\",\"token\":\"<tool>"
                "\"}}"),
         "format.content.token"},
        {FORMAT("{\"type\":\"triggered_tags\",\"triggers\":[\"<tool>\"],\"tags\":[" G_TAG "]}"),
         "format.tags[0].begin"},
        {FORMAT("{\"type\":\"tag\",\"begin\":\"<f>\",\"content\":" NUMBER ",\"end\":\"<tool>\"}"), NULL},
        {FORMAT("{\"type\":\"tag\",\"begin\":\"<f>\",\"content\":{\"type\":\"token\",\"token\":\"<tool>\"},"
                "\"end\":\"x\"}"),
         "format.content.token"},
        {FORMAT("{\"type\":\"tags_with_separator\",\"separator\":\"<tool>\",\"tags\":[" F_TAG "]}"),
         "format.separator"},
        {"{\"structures\":[{\"begin\":\"<tool>\",\"schema\":{},\"end\":\"\"}],\"triggers\":[\"<tool>\"]}",
         "structures[0].begin"},
        {"{\"structures\":[{\"begin\":\"<f>\",\"schema\":{},\"end\":\"<tool>\"}],\"triggers\":[\"<f\"]}",
         NULL},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        quire_error err = {0};
        json_value *v = json_document(str_of(cases[i].json));
        quire_err e = structural_tag_check_ends(v, &marks, ends, 1, &err);
        bool fits = cases[i].where == NULL
                        ? e == QUIRE_OK
                        : e == QUIRE_INVALID && strstr(err.message, cases[i].where) == err.message;
        if (!fits) {
            fail_msg("%s: \"%s\"", cases[i].json, err.message);
        }
        json_drop(v);
    }
}

/* Once through: looked at anew for each element, this list takes minutes. */
TEST(a_long_list_is_looked_at_once) {
    static const int32_t ends[] = {TOOL};
    strbuf text = {0};
    quire_error err = {0};
    assert_int_equal(strbuf_add_str(&text, "{\"format\":{\"type\":\"sequence\",\"elements\":["), QUIRE_OK);
    for (int i = 0; i < 60000; i++) {
        assert_int_equal(strbuf_add_str(&text, "{\"type\":\"any_text\"},"), QUIRE_OK);
    }
    assert_int_equal(strbuf_add_str(&text, "{\"type\":\"token\",\"token\":\"<tool>\"}]}}"), QUIRE_OK);
    json_value *v = json_document((str){text.p, text.n});
    assert_non_null(v);
    assert_int_equal(structural_tag_check_ends(v, &marks, ends, 1, &err), QUIRE_OK);
    json_drop(v);
    strbuf_deinit(&text);
}

TEST_MAIN(open_vocab, close_vocab)
