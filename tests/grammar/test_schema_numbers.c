/* Numbers in schemas that a double cannot represent, and equality of values: both go by
 * the number as it is written. */
#include "schema_case.h"

#define ZEROS10 "0000000000"
#define ZEROS40 ZEROS10 ZEROS10 ZEROS10 ZEROS10

TEST(numbers_count_with_all_their_digits) {
    static const schema_case cases[] = {
        {"{\"const\":9223372036854775808}",
         {"9223372036854775808"},
         {"9223372036854775807", "9223372036854776000", "9223372036854775809"}},
        {"{\"type\":\"integer\",\"maximum\":18446744073709551615}",
         {"18446744073709551615", "18446744073709551614", "-1"},
         {"18446744073709551616", "18446744073709552000"}},
        {"{\"const\":0.12345678901234567891}",
         {"0.12345678901234567891"},
         {"0.12345678901234568", "0.1234567890123456789"}},
        {"{\"enum\":[-1.00000000000000000001e2,[9007199254740993.0]]}",
         {"-100.000000000000000001", "[9007199254740993]"},
         {"-100", "[9007199254740992]"}},
        {"{\"const\":{\"a\\u0062\":[{},[],true,null,\"1e400\",12345678901234567890]}}",
         {"{\"ab\":[{},[],true,null,\"1e400\",12345678901234567890]}"},
         {"{\"ab\":[{},[],true,null,\"1e400\",12345678901234567000]}"}},
        {"{\"multipleOf\":1e-20,\"type\":\"number\",\"maximum\":1}",
         {"0.00000000000000000001", "0.5"},
         {"0.000000000000000000001", "0.000000000000000000015"}},
        {"{\"const\":12345678901234567890,\"const\":1.5}", {"1.5"}, {"12345678901234567890"}},
        {"{\"enum\":[{\"a\":{\"b\":0.12345678901234567891}},{\"a\":{\"b\":0.12345678901234567891},\"a\":{"
         "\"b\":2.5}}]}",
         {"{\"a\":{\"b\":0.12345678901234567891}}", "{\"a\":{\"b\":2.5}}"},
         {"{\"a\":{\"b\":0.12345678901234568}}"}},
    };
    CHECK_ALL(cases, NULL);
}

TEST(bounds_of_many_digits_are_kept) {
    static const schema_case cases[] = {
        {"{\"type\":\"number\",\"maximum\":1e40}",
         {"1" ZEROS40, "9" ZEROS10, "-1" ZEROS40 ZEROS40},
         {"10" ZEROS40, "1" ZEROS40 ".1", "2" ZEROS40, "1e41"}},
        {"{\"type\":\"integer\",\"minimum\":-1e80,\"exclusiveMaximum\":1e60}",
         {"-1" ZEROS40 ZEROS40, "0", "9" ZEROS40 ZEROS10},
         {"-10" ZEROS40 ZEROS40, "1" ZEROS40 ZEROS10 ZEROS10}},
        {"{\"type\":\"number\",\"maximum\":1.7976931348623157e308,\"minimum\":1e-44}",
         {"1", "1" ZEROS40 ZEROS40, "0.0" ZEROS40 "001"},
         {"0", "0.0" ZEROS40 "00001"}},
        {"{\"type\":\"number\",\"minimum\":-1.7976931348623157e308,\"maximum\":1.7976931348623157e308}",
         {"6.02e23", "-1e-7"},
         {"01"}},
        {"{\"type\":\"integer\",\"minimum\":0,\"maximum\":1.7976931348623157e308,\"multipleOf\":100}",
         {"0", "1200"},
         {"-100", "50"}},
        {"{\"const\":1e41}", {"10" ZEROS40}, {"1" ZEROS40}},
    };
    CHECK_ALL(cases, NULL);
    case_refused(GRAMMAR_SCHEMA, "{\"properties\":{\"a\":{\"minimum\":1e-400}}}", QUIRE_UNSUPPORTED,
                 "minimum at \"/properties/a\"");
    case_refused(GRAMMAR_SCHEMA, "{\"multipleOf\":1e-400}", QUIRE_UNSUPPORTED, "multipleOf at \"\"");
    case_refused(GRAMMAR_SCHEMA, "{\"const\":1e-99999999999999999999}", QUIRE_UNSUPPORTED, "over 350 digits");
    case_refused(GRAMMAR_SCHEMA, "{\"multipleOf\":0e9}", QUIRE_INVALID, "a number over 0");
}

TEST(unique_items_are_equal_where_their_values_are) {
    static const schema_case cases[] = {
        {"{\"items\":{\"enum\":[1,1.0]},\"uniqueItems\":true,\"type\":\"array\"}", {"[]", "[1]"}, {"[1,1]"}},
        {"{\"items\":{\"enum\":[[1],[1.0],{\"a\":[1e0],\"b\":2},{\"b\":2.0,\"a\":[1]}]},\"uniqueItems\":true,"
         "\"type\":\"array\"}",
         {"[[1]]", "[[1],{\"a\":[1],\"b\":2}]"},
         {"[[1],[1]]", "[{\"a\":[1],\"b\":2},{\"a\":[1],\"b\":2}]"}},
        {"{\"items\":{\"enum\":[9223372036854775808,9223372036854775809,1,\"1\",true]},\"uniqueItems\":true,"
         "\"type\":\"array\"}",
         {"[9223372036854775808,9223372036854775809]", "[1,\"1\",true]"},
         {"[9223372036854775808,9223372036854775808]"}},
        {"{\"$schema\":\"http://json-schema.org/draft-07/"
         "schema#\",\"items\":{\"enum\":[true,null],\"$ref\":\"#/definitions/a\"},"
         "\"uniqueItems\":true,\"type\":\"array\",\"definitions\":{\"a\":{\"type\":[\"boolean\",\"null\"]}}}",
         {"[false,true,null]"},
         {"[false,false]"}},
    };
    CHECK_ALL(cases, NULL);
    case_refused(GRAMMAR_SCHEMA,
                 "{\"$schema\":\"http://json-schema.org/draft-07/"
                 "schema#\",\"items\":{\"enum\":[1,2],\"$ref\":\"#/definitions/a\"},"
                 "\"uniqueItems\":true,\"definitions\":{\"a\":{\"type\":\"integer\"}}}",
                 QUIRE_UNSUPPORTED, "uniqueItems");
}

TEST(an_integer_of_draft_4_has_no_point_beside_an_enum) {
#define DRAFT4 "\"$schema\":\"http://json-schema.org/draft-04/schema#\","
    static const schema_case cases[] = {
        {"{" DRAFT4 "\"type\":\"integer\",\"enum\":[1,2.5]}", {"1"}, {"1.0", "2.5"}},
        {"{" DRAFT4 "\"enum\":[1],\"allOf\":[{\"type\":\"integer\"}]}", {"1"}, {"1.0"}},
        {"{" DRAFT4 "\"enum\":[1]}", {"1", "1.0"}, {"2"}},
        {"{\"type\":\"integer\",\"enum\":[1]}", {"1", "1.0"}, {"1.5"}},
    };
    CHECK_ALL(cases, &((grammar_options){.numbers = GRAMMAR_NUMBERS_ANY}));
}

TEST_MAIN(NULL, NULL)
