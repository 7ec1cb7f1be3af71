/* References: recursion, pointers, and the rules of each draft. */
#include "schema_case.h"

#define DRAFT(d)  "\"$schema\":\"http://json-schema.org/draft-" d "/schema#\","
#define DRAFT2019 "\"$schema\":\"https://json-schema.org/draft/2019-09/schema\","

TEST(alternatives_may_hold_what_they_are_part_of) {
    static const schema_case cases[] = {
        {"{\"oneOf\":[{\"type\":\"null\"},{\"type\":\"object\",\"properties\":{\"l\":{\"$ref\":\"#\"}},"
         "\"required\":[\"l\"]},"
         "{\"type\":\"object\",\"properties\":{\"r\":{\"$ref\":\"#\"}},\"required\":[\"r\"]}]}",
         {"null", "{\"l\":null}", "{\"r\":{\"l\":null}}", "{\"l\":null,\"r\":1}", "{\"l\":{\"r\":null}}"},
         {"{\"l\":1}", "{\"l\":null,\"r\":null}", "{}", "{\"l\":{\"l\":null,\"r\":null}}", "1"}},
        {"{\"oneOf\":[{\"type\":\"null\"},{\"type\":\"array\",\"prefixItems\":[{\"$ref\":\"#\"}],"
         "\"minItems\":1},"
         "{\"type\":\"array\",\"prefixItems\":[{\"type\":\"integer\"}],\"minItems\":1}]}",
         {"null", "[null]", "[1]", "[[1],\"a\"]", "[[null]]"},
         {"[\"a\"]", "[]", "[[]]", "1"}},
        {"{\"required\":[\"a\"],\"propertyNames\":{\"$ref\":\"#\"}}",
         {"{\"a\":1}", "{\"a\":1,\"b\":2}", "3"},
         {"{}", "{\"b\":1}"}},
        {"{\"required\":[\"a\"],\"maxLength\":2,\"propertyNames\":{\"$ref\":\"#\"}}",
         {"{\"a\":1}", "\"ab\""},
         {"\"abc\"", "{\"a\":1,\"abc\":2}"}},
    };
    CHECK_ALL(cases, NULL);
    case_refused(
        GRAMMAR_SCHEMA,
        "{\"required\":[\"abc\"],\"type\":\"object\",\"maxLength\":2,\"propertyNames\":{\"$ref\":\"#\"}}",
        QUIRE_INVALID, "matches no text");
    case_refused(GRAMMAR_SCHEMA, "{\"oneOf\":[{\"type\":\"null\"},{\"$ref\":\"#\"}]}", QUIRE_INVALID,
                 "leads back to itself");
    case_refused(GRAMMAR_SCHEMA, "{\"not\":{\"$ref\":\"#\"}}", QUIRE_INVALID, "leads back to itself");
}

TEST(an_identifier_below_an_unknown_keyword_yields_to_one_in_a_schema) {
    static const schema_case cases[] = {
        {"{\"x\":[{\"$id\":\"http://a/b\",\"const\":1}],\"$defs\":{\"y\":{\"$id\":\"http://a/"
         "b\",\"const\":2}},\"$ref\":\"http://a/b\"}",
         {"2"},
         {"1"}},
        {"{\"x\":{\"y\":{\"$id\":\"http://a/b\",\"const\":1}},\"$ref\":\"http://a/b\"}", {"1"}, {"2"}},
    };
    CHECK_ALL(cases, NULL);
}

TEST(pointers_are_decoded_before_they_are_cut) {
    static const schema_case cases[] = {
        {"{\"$defs\":{\"a\":{\"b\":{\"const\":1}},\"a/b\":{\"const\":2}},\"$ref\":\"#/$defs/a%2Fb\"}",
         {"1"},
         {"2"}},
        {"{\"$defs\":{\"a\":{\"b\":{\"const\":1}},\"a/b\":{\"const\":2}},\"$ref\":\"#/$defs/a~1b\"}",
         {"2"},
         {"1"}},
        {"{\"$defs\":{\"a\":{\"const\":1},\"a/b\":{\"const\":2}},\"$ref\":\"#%2f%24defs/a%7E1b\"}",
         {"2"},
         {"1"}},
        {"{\"$defs\":{\"a%\":{\"const\":1}},\"$ref\":\"#/$defs/a%25\"}", {"1"}, {"2"}},
    };
    CHECK_ALL(cases, NULL);
    case_refused(GRAMMAR_SCHEMA, "{\"$defs\":{\"a\":{\"const\":1}},\"$ref\":\"#/$defs/a%00b\"}",
                 QUIRE_UNSUPPORTED, "0 byte");
    case_refused(GRAMMAR_SCHEMA, "{\"$defs\":{\"a\":{\"const\":1}},\"$ref\":\"#/$defs/a\\u0000b\"}",
                 QUIRE_UNSUPPORTED, "0 byte");
}

TEST(a_keyword_that_a_draft_lacks_means_nothing_there) {
    static const schema_case cases[] = {
        {"{" DRAFT("04") "\"type\":\"integer\",\"const\":1}", {"1", "2"}, {"\"a\""}},
        {"{" DRAFT(
             "04") "\"type\":\"array\",\"contains\":{\"type\":\"null\"},\"items\":{\"type\":\"integer\"}}",
         {"[]", "[1]"},
         {"[null]"}},
        {"{" DRAFT("04") "\"type\":\"object\",\"propertyNames\":{\"maxLength\":1}}", {"{\"ab\":1}"}, {"1"}},
        {"{" DRAFT("06") "\"type\":\"integer\",\"if\":{\"const\":1},\"then\":false}", {"1", "2"}, {"null"}},
        {"{" DRAFT("07") "\"type\":\"integer\",\"if\":{\"const\":1},\"then\":false}", {"2"}, {"1"}},
        {"{" DRAFT("07") "\"type\":\"object\",\"properties\":{\"a\":{}},\"unevaluatedProperties\":false}",
         {"{\"b\":1}"},
         {"1"}},
        {"{" DRAFT("07") "\"type\":\"object\",\"dependentRequired\":{\"a\":[\"b\"]}}", {"{\"a\":1}"}, {"1"}},
        {"{" DRAFT("07") "\"type\":\"object\",\"dependentSchemas\":{\"a\":false}}", {"{\"a\":1}"}, {"1"}},
        {"{" DRAFT("07") "\"type\":\"array\",\"contains\":{\"type\":\"null\"},\"minContains\":2}",
         {"[null]"},
         {"[1]"}},
        {"{" DRAFT2019 "\"type\":\"array\",\"prefixItems\":[{\"type\":\"null\"}]}", {"[1]"}, {"1"}},
        {"{" DRAFT2019 "\"type\":\"integer\",\"$dynamicRef\":\"#/$defs/a\",\"$defs\":{\"a\":{\"const\":1}}}",
         {"2"},
         {"null"}},
        {"{" DRAFT2019 "\"type\":\"object\",\"dependentRequired\":{\"a\":[\"b\"]}}",
         {"{\"a\":1,\"b\":1}"},
         {"{\"a\":1}"}},
        {"{\"type\":\"object\",\"dependencies\":{\"a\":[\"b\"]}}", {"{\"a\":1,\"b\":1}"}, {"{\"a\":1}"}},
        {"{\"type\":\"array\",\"items\":[{\"type\":\"null\"}],\"additionalItems\":false}",
         {"[null]"},
         {"[1]", "[null,1]"}},
    };
    CHECK_ALL(cases, NULL);
}

#define WHEN(format)                                                                                         \
    "{\"type\":\"object\",\"properties\":{\"when\":{\"type\":\"string\",\"format\":\"" format "\"},"         \
    "\"tags\":{\"type\":\"array\",\"items\":{\"enum\":[\"a\",\"b\"]},\"uniqueItems\":true}},\"required\":["  \
    "\"when\"]}"

TEST(times_may_be_leap_seconds_and_small_letters) {
    static const schema_case cases[] = {
        {"{\"type\":\"string\",\"format\":\"time\"}",
         {"\"23:59:60Z\"", "\"23:59:60.5+00:00\"", "\"12:00:00z\"", "\"23:59:59-08:00\""},
         {"\"23:58:60Z\"", "\"22:59:60Z\"", "\"23:59:61Z\"", "\"12:00:00\""}},
        {"{\"oneOf\":[" WHEN("date") "," WHEN("date-time") "]}", /* apart, so nothing of them is negated */
         {"{\"when\":\"2020-01-01\",\"tags\":[\"a\"]}", "{\"when\":\"2020-01-01T23:59:60Z\"}"},
         {"{\"when\":\"x\",\"tags\":[]}"}},
        {"{\"type\":\"string\",\"format\":\"date-time\"}",
         {"\"1998-12-31T23:59:60Z\"", "\"2024-01-01t00:00:00z\""},
         {"\"1998-12-31T23:58:60Z\"", "\"2024-01-01 00:00:00Z\""}},
        {"{\"type\":\"string\",\"not\":{\"format\":\"time\"}}",
         {"\"\"", "\"12:00\"", "\"12:00:61Z\""},
         {"\"12:00:00Z\"", "\"23:59:60Z\"", "\"15:59:60-08:00\"", "\"23:59:60z\""}},
        {"{\"oneOf\":[{\"type\":\"string\",\"format\":\"time\"},{\"type\":\"string\",\"pattern\":\"^15:59:60-"
         "0\"}]}",
         {"\"12:00:00Z\""},
         {"\"15:59:60-08:00\""}},
        {"{\"oneOf\":[{\"type\":\"string\",\"format\":\"time\"},{\"type\":\"string\",\"maxLength\":14}]}",
         {"\"a\"", "\"12:00:00.12345Z\""},
         {"\"12:00:00Z\"", "\"15:59:60-08:00\""}},
        {"{\"type\":\"object\",\"not\":{\"propertyNames\":{\"format\":\"time\"}}}",
         {"{\"a\":1}"},
         {"{}", "{\"15:59:60-08:00\":1}"}},
    };
    CHECK_ALL(cases, NULL);
}

TEST_MAIN(NULL, NULL)
