/* Objects whose schema lists members get no others in answers, though the standard allows
 * them. */
#include "schema_case.h"

#define CLOSED (&(grammar_options){.additional = GRAMMAR_ADDITIONAL_CLOSED})
#define CLOSED_ANY_ORDER                                                                                     \
    (&(grammar_options){.additional = GRAMMAR_ADDITIONAL_CLOSED, .order = GRAMMAR_ORDER_ANY})

TEST(an_object_that_lists_members_takes_no_others) {
    static const schema_case cases[] = {
        {"{\"properties\":{\"a\":{\"type\":\"integer\"}}}",
         {"{}", "{\"a\":1}", "1"},
         {"{\"b\":1}", "{\"a\":1,\"b\":1}", "{\"a\":1,\"a\":1}"}},
        {"{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"object\",\"properties\":{\"b\":{}}}}}",
         {"{\"a\":{\"b\":{\"x\":1}}}", "{\"a\":{}}"},
         {"{\"a\":{\"c\":1}}"}},
        {"{\"type\":\"array\",\"items\":{\"type\":\"object\",\"properties\":{\"a\":{}}}}",
         {"[{\"a\":1},{}]"},
         {"[{\"b\":1}]"}},
        {"{\"type\":\"object\",\"properties\":{\"a\":{}},\"patternProperties\":{\"^x\":{}}}",
         {"{\"a\":1,\"x\":1,\"xy\":2}"},
         {"{\"b\":1}"}},
        {"{\"type\":\"object\",\"properties\":{\"a\":{}},\"required\":[\"b\"]}",
         {"{\"b\":1}", "{\"a\":1,\"b\":2}"},
         {"{\"a\":1}", "{\"b\":1,\"c\":1}"}},
    };
    CHECK_ALL(cases, CLOSED);
    CHECK_ALL(cases, CLOSED_ANY_ORDER);
}

TEST(an_object_that_lists_none_or_says_more_stays_as_it_is) {
    static const schema_case cases[] = {
        {"{\"type\":\"object\"}", {"{\"a\":1}"}, {"1"}},
        {"{\"type\":\"object\",\"properties\":{}}", {"{\"a\":1}"}, {"1"}},
        {"{\"type\":\"object\",\"required\":[\"a\"]}", {"{\"a\":1,\"b\":1}"}, {"{\"b\":1}"}},
        {"{\"type\":\"object\",\"patternProperties\":{\"^x\":{\"type\":\"null\"}}}",
         {"{\"x\":null,\"b\":1}"},
         {"{\"x\":1}"}},
        {"{\"properties\":{\"a\":{}},\"additionalProperties\":true}", {"{\"b\":1}"}, {"{"}},
        {"{\"properties\":{\"a\":{}},\"additionalProperties\":{\"type\":\"null\"}}",
         {"{\"b\":null}"},
         {"{\"b\":1}"}},
        {"{\"properties\":{\"a\":{}},\"unevaluatedProperties\":{\"type\":\"null\"}}",
         {"{\"b\":null}"},
         {"{\"b\":1}"}},
        {"{\"properties\":{\"a\":{}},\"allOf\":[{\"additionalProperties\":{\"type\":[\"null\",\"integer\"]}}]"
         "}",
         {"{\"a\":1,\"b\":null}"},
         {"{\"b\":\"\"}"}},
        {"{\"type\":\"object\",\"properties\":{\"a\":{},\"b\":{\"type\":\"null\",\"enum\":[1]}},"
         "\"minProperties\":2}",
         {"{\"a\":1,\"c\":2}"},
         {"{\"a\":1}", "{\"b\":1,\"c\":2}"}},
        {"{\"type\":\"object\",\"properties\":{\"b\":{\"type\":\"object\",\"additionalProperties\":false,"
         "\"required\":[\"x\"]}},\"minProperties\":1}",
         {"{\"c\":2}"},
         {"{}", "{\"b\":{}}"}},
        {"{\"type\":\"object\",\"properties\":{\"a\":{}},\"minProperties\":2}",
         {"{\"a\":1,\"b\":1}"},
         {"{\"a\":1}"}},
        {"{\"type\":\"object\",\"properties\":{\"a\":false},\"minProperties\":1}",
         {"{\"b\":1}"},
         {"{\"a\":1}", "{}"}},
        {"{\"type\":\"object\",\"properties\":{\"a\":{}},\"not\":{\"patternProperties\":{\"^x\":{\"type\":"
         "\"null\"}}}}",
         {"{\"a\":1,\"x\":1}"},
         {"{\"a\":1}"}},
    };
    CHECK_ALL(cases, CLOSED);
    CHECK_ALL(cases, CLOSED_ANY_ORDER);
}

TEST(the_members_of_all_that_applies_count) {
    static const schema_case cases[] = {
        {"{\"allOf\":[{\"properties\":{\"a\":{}}},{\"$ref\":\"#/$defs/"
         "b\"}],\"$defs\":{\"b\":{\"properties\":{\"b\":{}}}}}",
         {"{\"a\":1,\"b\":1}"},
         {"{\"c\":1}"}},
        {"{\"properties\":{\"k\":{}},\"oneOf\":[{\"properties\":{\"a\":{}},\"required\":[\"a\"]},{"
         "\"properties\":{\"b\":{}},\"required\":["
         "\"b\"]}]}",
         {"{\"k\":1,\"a\":1}", "{\"b\":1}"},
         {"{\"k\":1}", "{\"a\":1,\"b\":1}", "{\"a\":1,\"c\":1}"}},
        {"{\"properties\":{\"k\":{\"type\":\"integer\"}},\"required\":[\"k\"],\"if\":{\"properties\":{\"k\":{"
         "\"const\":1}}},"
         "\"then\":{\"properties\":{\"a\":{}}},\"else\":{\"properties\":{\"b\":{}}}}",
         {"{\"k\":1,\"a\":2}", "{\"k\":2,\"b\":3}"},
         {"{\"k\":1,\"b\":2}", "{\"k\":2,\"a\":3}"}},
        {"{\"properties\":{\"a\":{}},\"dependentSchemas\":{\"a\":{\"properties\":{\"b\":{}}}},"
         "\"dependentRequired\":{\"a\":[\"c\"]}}",
         {"{\"a\":1,\"b\":1,\"c\":1}", "{}"},
         {"{\"a\":1}", "{\"b\":1}", "{\"a\":1,\"c\":1,\"d\":1}"}},
        {"{\"allOf\":[{\"properties\":{\"v\":{\"properties\":{\"a\":{}}}}},{\"properties\":{\"v\":{"
         "\"properties\":{\"b\":{}}}}}]}",
         {"{\"v\":{\"a\":1,\"b\":1}}"},
         {"{\"v\":{\"c\":1}}"}},
    };
    CHECK_ALL(cases, CLOSED_ANY_ORDER);
}

TEST(nothing_closes_inside_conditions) {
    static const schema_case cases[] = {
        {"{\"type\":\"object\",\"not\":{\"properties\":{\"a\":{\"type\":\"integer\"}},\"required\":[\"a\"]}}",
         {"{}", "{\"b\":1}", "{\"a\":\"\",\"b\":1}"},
         {"{\"a\":1}", "{\"a\":1,\"b\":1}"}},
        {"{\"type\":\"object\",\"not\":{\"not\":{\"properties\":{\"a\":{\"properties\":{\"b\":{}},"
         "\"required\":[\"b\"],\"type\":\"object\"}"
         "}}}}",
         {"{\"c\":1}", "{\"a\":{\"b\":1,\"c\":1}}"},
         {"{\"a\":{}}"}},
        {"{\"type\":\"object\",\"if\":{\"properties\":{\"a\":{\"const\":1}},\"required\":[\"a\"]},\"then\":{"
         "\"required\":[\"b\"]}}",
         {"{\"a\":1,\"b\":1,\"c\":1}", "{\"a\":2,\"d\":1}"},
         {"{\"a\":1,\"c\":1}"}},
        {"{\"type\":\"array\",\"contains\":{\"type\":\"object\",\"properties\":{\"a\":{\"properties\":{\"b\":"
         "{}}}},\"required\":[\"a\"]}}",
         {"[{\"a\":{\"c\":1},\"d\":1}]"},
         {"[{}]"}},
        {"{\"type\":\"array\",\"items\":{\"type\":\"object\",\"properties\":{\"a\":{}}},"
         "\"contains\":{\"properties\":{\"a\":{\"type\":\"integer\"},\"b\":{}},\"required\":[\"a\"]}}",
         {"[{\"a\":1},{\"a\":\"\"}]"},
         {"[{\"a\":1,\"b\":1}]", "[{\"a\":1},{\"b\":1}]"}},
    };
    CHECK_ALL(cases, CLOSED_ANY_ORDER);
}

/* The letter of the standard. */
TEST(as_the_schema_says_nothing_is_closed) {
    static const schema_case cases[] = {
        {"{\"properties\":{\"a\":{\"type\":\"integer\"}}}",
         {"{\"b\":1}", "{\"a\":1,\"b\":1}"},
         {"{\"a\":\"\"}"}},
    };
    CHECK_ALL(cases, NULL);
}

TEST_MAIN(NULL, NULL)
