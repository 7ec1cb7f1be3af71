/* Members that a schema does not list: how they are counted, and how negated rules
 * require them. */
#include "schema_case.h"

#define ANY_ORDER (&(grammar_options){.order = GRAMMAR_ORDER_ANY})

TEST(members_are_counted_by_different_names) {
    static const schema_case cases[] = {
        {"{\"type\":\"object\",\"minProperties\":2}",
         {"{\"a\":1,\"b\":2}", "{\"\":1,\"\xC3\xA9\":2}", "{\"a\":1,\"b\":2,\"c\":3}"},
         {"{\"a\":1}", "{\"a\":1,\"b\":2,\"b\":3}", "{\"a\":1,\"\\u0061\":2}",
          "{\"\xC3\xA9\":1,\"\\u00e9\":2}", "{\"\\n\":1,\"\\u000a\":2}"}},
        {"{\"type\":\"object\",\"minProperties\":3,\"maxProperties\":3,\"properties\":{\"p\":true}}",
         {"{\"p\":1,\"a\":1,\"b\":2}", "{\"a\":1,\"b\":2,\"c\":3}"},
         {"{\"p\":1,\"a\":1,\"a\":1,\"b\":1}", "{\"p\":1,\"a\":1,\"a\":2}", "{\"a\":1,\"b\":1,\"b\":2}",
          "{\"a\":1,\"b\":1,\"c\":1,\"d\":1}"}},
        {"{\"type\":\"object\",\"minProperties\":2,\"patternProperties\":{\"^x\":{\"type\":\"null\"}},"
         "\"additionalProperties\":false}",
         {"{\"x\":null,\"xa\":null}"},
         {"{\"x\":null,\"x\":null}", "{\"x\":null,\"a\":null}"}},
        {"{\"type\":\"object\",\"minProperties\":2,\"required\":[\"a\"]}",
         {"{\"a\":1,\"b\":1}"},
         {"{\"a\":1}"}},
    };
    CHECK_ALL(cases, NULL);
    CHECK_ALL(cases, ANY_ORDER);
}

TEST(few_names_are_told_apart_as_listed_ones) {
    static const schema_case cases[] = {
        {"{\"type\":\"object\",\"minProperties\":2,\"propertyNames\":{\"enum\":[\"a\",\"b\"]}}",
         {"{\"a\":1,\"b\":2}", "{\"b\":1,\"a\":2}"},
         {"{\"a\":1,\"a\":2}", "{\"a\":1}", "{\"a\":1,\"c\":2}"}},
    };
    CHECK_ALL(cases, ANY_ORDER);
    case_refused(GRAMMAR_SCHEMA,
                 "{\"type\":\"object\",\"minProperties\":3,\"propertyNames\":{\"enum\":[\"a\",\"b\"]}}",
                 QUIRE_INVALID, "matches no text");
    case_refused(GRAMMAR_SCHEMA, "{\"properties\":{\"p\":{\"type\":\"object\",\"minProperties\":100}}}",
                 QUIRE_UNSUPPORTED, "minProperties at \"/properties/p\"");
}

TEST(negated_rules_about_open_names_want_a_witness) {
    static const schema_case cases[] = {
        {"{\"type\":\"object\",\"not\":{\"patternProperties\":{\"^x\":{\"type\":\"null\"}}}}",
         {"{\"x\":1}", "{\"a\":1,\"xa\":\"a\"}", "{\"x\":null,\"xa\":1,\"xb\":null}"},
         {"{}", "{\"x\":null}", "{\"a\":1}", "{\"x\":1,\"x\":null}"}},
        {"{\"type\":\"object\",\"properties\":{\"a\":true},\"not\":{\"properties\":{\"a\":true},"
         "\"additionalProperties\":false}}",
         {"{\"a\":1,\"b\":2}", "{\"b\":1}"},
         {"{}", "{\"a\":1}"}},
        {"{\"type\":\"object\",\"not\":{\"propertyNames\":{\"maxLength\":1}}}",
         {"{\"ab\":1}", "{\"a\":1,\"abc\":1}"},
         {"{}", "{\"a\":1}"}},
        {"{\"oneOf\":[{\"type\":\"object\",\"properties\":{\"a\":{},\"b\":{}},\"additionalProperties\":false}"
         ","
         "{\"type\":\"object\",\"properties\":{\"a\":{},\"c\":{}},\"additionalProperties\":false}]}",
         {"{\"b\":1}", "{\"a\":1,\"c\":1}"},
         {"{}", "{\"a\":1}", "{\"b\":1,\"c\":1}"}},
        {"{\"type\":\"object\",\"maxProperties\":2,\"not\":{\"anyOf\":[{\"additionalProperties\":{\"type\":"
         "\"string\"}},"
         "{\"patternProperties\":{\"^a\":{\"type\":\"integer\"}}}]}}",
         {"{\"a\":null}", "{\"b\":1,\"a\":\"x\"}", "{\"a\":1,\"ab\":\"x\"}"},
         {"{\"a\":\"x\"}", "{\"a\":1}", "{\"b\":1,\"c\":\"x\"}", "{\"a\":\"x\",\"ab\":\"x\"}"}},
        {"{\"type\":\"object\",\"not\":{\"not\":{\"patternProperties\":{\"^x\":{\"type\":\"null\"}}}}}",
         {"{}", "{\"x\":null}"},
         {"{\"x\":1}"}},
    };
    CHECK_ALL(cases, ANY_ORDER);
    CHECK_ALL(cases, NULL);
}

TEST(what_a_constant_has_is_not_evaluated) {
    static const schema_case cases[] = {
        {"{\"enum\":[[1],[],{\"a\":1},{}],\"unevaluatedItems\":false,\"unevaluatedProperties\":false}",
         {"[]", "{}"},
         {"[1]", "{\"a\":1}"}},
    };
    CHECK_ALL(cases, NULL);
}

/* A mask looks at every member for every other where rules are negated. */
TEST(many_members_under_negated_rules_are_refused) {
    strbuf text = {0};
    assert_int_equal(strbuf_add_str(&text, "{\"type\":\"object\",\"not\":{\"patternProperties\":{\"x$\":{"
                                           "\"type\":\"null\"}}},\"properties\":{"),
                     QUIRE_OK);
    for (int i = 0; i < 400; i++) {
        assert_int_equal(strbuf_addf(&text, "%s\"p%d\":{}", i > 0 ? "," : "", i), QUIRE_OK);
    }
    assert_int_equal(strbuf_add_str(&text, "}}"), QUIRE_OK);
    case_refused(GRAMMAR_SCHEMA, text.p, QUIRE_TOO_LARGE, "lists too many");
    strbuf_deinit(&text);
}

TEST_MAIN(NULL, NULL)
