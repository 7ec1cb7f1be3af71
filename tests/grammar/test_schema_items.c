/* Items that count towards `contains`, also towards several, and how unevaluatedItems and
 * negations treat them. */
#include "schema_case.h"

TEST(several_contains_are_counted_together) {
    static const schema_case cases[] = {
        {"{\"type\":\"array\",\"allOf\":[{\"contains\":{\"const\":1}},{\"contains\":{\"type\":\"string\"}}]}",
         {"[1,\"a\"]", "[\"a\",null,1]", "[1,1,\"a\",\"b\"]"},
         {"[]", "[1]", "[\"a\"]", "[1,2]"}},
        {"{\"type\":\"array\",\"maxItems\":2,\"allOf\":[{\"contains\":{\"multipleOf\":2}},{\"contains\":{"
         "\"minimum\":5},\"minContains\":2},"
         "{\"contains\":{\"maximum\":7},\"maxContains\":1}],\"items\":{\"type\":\"integer\"}}",
         {"[6,9]", "[8,7]", "[7,10]"},
         {"[6,7]", "[8]", "[8,9]", "[9,7]", "[6,9,9]"}},
        {"{\"type\":\"array\",\"contains\":{\"const\":1},\"not\":{\"contains\":{\"const\":2}}}",
         {"[1]", "[1,3]"},
         {"[]", "[1,2]", "[2]", "[3]"}},
        {"{\"type\":\"array\",\"allOf\":[{\"contains\":{\"const\":1},\"minContains\":2},{\"contains\":{"
         "\"const\":1},\"maxContains\":2}]}",
         {"[1,1]", "[1,0,1]"},
         {"[1]", "[1,1,1]"}},
    };
    CHECK_ALL(cases, NULL);
}

TEST(counts_that_cannot_be_reached_are_refused) {
    case_refused(GRAMMAR_SCHEMA, "{\"type\":\"array\",\"contains\":{\"type\":\"null\"},\"maxContains\":0}",
                 QUIRE_INVALID, "matches no text");
    case_refused(GRAMMAR_SCHEMA,
                 "{\"type\":\"array\",\"prefixItems\":[{\"type\":\"string\"},{\"type\":\"string\"}],"
                 "\"maxItems\":2,\"contains\":{\"type\":"
                 "\"null\"}}",
                 QUIRE_INVALID, "matches no text");
    case_refused(GRAMMAR_SCHEMA,
                 "{\"items\":{\"type\":\"array\",\"allOf\":[{\"contains\":{\"const\":1},\"minContains\":100},"
                 "{\"contains\":{\"const\":2},"
                 "\"minContains\":2}]}}",
                 QUIRE_UNSUPPORTED, "contains at \"/items\"");
}

TEST(huge_counts_are_no_work) {
    static const schema_case cases[] = {
        {"{\"type\":\"array\",\"minItems\":4000000000,\"contains\":{\"type\":\"null\"},\"minContains\":"
         "2000000000}",
         {NULL},
         {"[null]", "[1,2]"}},
        {"{\"not\":{\"contains\":{\"const\":1},\"maxContains\":4294967294}}",
         {"[]", "[2]"},
         {"[1]", "1", "[2,1]"}},
        {"{\"not\":{\"contains\":{\"const\":1},\"maxContains\":4294967293}}",
         {"[]", "[2]"},
         {"[1]", "[2,1]"}},
        {"{\"not\":{\"contains\":{\"const\":1},\"maxContains\":1e30}}", {"[]", "[2]"}, {"[1]"}},
    };
    CHECK_ALL(cases, NULL);
}

TEST(items_behind_a_prefix_are_negated) {
    static const schema_case cases[] = {
        {"{\"type\":\"array\",\"not\":{\"prefixItems\":[{\"type\":\"string\"}],\"items\":{\"type\":"
         "\"integer\"}}}",
         {"[1]", "[\"a\",\"b\"]", "[\"a\",1,null]", "[\"a\",null,1]"},
         {"[]", "[\"a\"]", "[\"a\",1,2]"}},
        {"{\"type\":\"array\",\"not\":{\"not\":{\"prefixItems\":[{\"type\":\"string\"}],\"items\":{\"type\":"
         "\"integer\"}}}}",
         {"[]", "[\"a\"]", "[\"a\",1,2]"},
         {"[1]", "[\"a\",\"b\"]", "[\"a\",1,null]"}},
    };
    CHECK_ALL(cases, NULL);
}

TEST(items_that_count_are_evaluated) {
    static const schema_case cases[] = {
        {"{\"type\":\"array\",\"contains\":{\"type\":\"string\"},\"unevaluatedItems\":{\"type\":\"null\"}}",
         {"[\"a\"]", "[null,\"a\",null]", "[\"a\",\"b\"]"},
         {"[null]", "[\"a\",1]", "[]"}},
        {"{\"type\":\"array\",\"contains\":{\"type\":\"string\"},\"minContains\":0,\"unevaluatedItems\":"
         "false}",
         {"[]", "[\"a\"]"},
         {"[1]"}},
        {"{\"if\":{\"contains\":{\"const\":\"a\"}},\"then\":{\"if\":{\"contains\":{\"const\":\"b\"}}},"
         "\"unevaluatedItems\":false,\"type\":"
         "\"array\"}",
         {"[]", "[\"a\"]", "[\"b\",\"a\"]"},
         {"[\"b\"]", "[\"a\",\"c\"]"}},
        {"{\"$schema\":\"https://json-schema.org/draft/2019-09/"
         "schema\",\"contains\":{\"type\":\"string\"},\"unevaluatedItems\":{\"type\":\"null\"}}",
         {"1"},
         {"[\"a\"]"}},
    };
    CHECK_ALL(cases, NULL);
}

TEST_MAIN(NULL, NULL)
