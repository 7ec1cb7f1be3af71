/* JSON Schemas: what each keyword allows, and what is refused, with its path. */
#include "schema_case.h"

TEST(numbers_keep_their_bounds_and_multiples) {
    static const schema_case cases[] = {
        {"{\"type\":\"number\"}", {"0", "-0", "1.5e-7", "120"}, {"01", "NaN", "Infinity", "+1", "1."}},
        {"{\"type\":\"integer\",\"minimum\":-12,\"exclusiveMaximum\":105}",
         {"-12", "0", "104", "-3"},
         {"-13", "105", "1040", "4.0", "1e1"}},
        {"{\"type\":\"number\",\"exclusiveMinimum\":-1.5,\"maximum\":2.25}",
         {"-1.49", "2.25", "2.2500", "0", "-1"},
         {"-1.5", "2.26", "2.2501", "-2"}},
        {"{\"type\":\"number\",\"minimum\":0.001,\"maximum\":0.01}",
         {"0.001", "0.0099", "0.010"},
         {"0", "0.0009", "0.011", "1"}},
        {"{\"type\":\"integer\",\"multipleOf\":7,\"minimum\":30}", {"35", "700", "42"}, {"28", "36", "0"}},
        {"{\"type\":\"number\",\"multipleOf\":0.25}", {"0.5", "1.75", "3", "0.250"}, {"0.3", "1.125"}},
        {"{\"type\":\"number\",\"not\":{\"multipleOf\":1}}", {"0.5"}, {"1", "2.0"}},
        {"{\"type\":\"number\",\"multipleOf\":5}", {"0", "-15", "1000"}, {"10.0", "15.00", "7"}},
        {"{\"enum\":[1,2.50,-3]}", {"1", "2.5", "-3"}, {"2", "-30", "1.0"}},
        {"{\"type\":\"number\",\"allOf\":[{\"multipleOf\":2},{\"multipleOf\":3},{\"multipleOf\":1.5},{"
         "\"multipleOf\":0.25},{\"multipleOf\":"
         "5}]}",
         {"30", "0", "-60"},
         {"6", "15", "10", "7.5"}},
        {"{\"type\":\"integer\",\"not\":{\"anyOf\":[{\"multipleOf\":6},{\"multipleOf\":2},{\"multipleOf\":10}"
         ",{\"multipleOf\":7}]}}",
         {"1", "3", "5"},
         {"2", "6", "10", "7", "21"}},
    };
    CHECK_ALL(cases, NULL);
    static const schema_case any[] = {
        {"{\"type\":\"integer\"}", {"1", "1.0", "-20.00", "0.0"}, {"1.", "1.5", "1.01", "1e1", "01.0"}},
        {"{\"type\":\"integer\",\"minimum\":3,\"multipleOf\":2}",
         {"4", "4.0", "10.00"},
         {"3.0", "2.0", "4.5"}},
        {"{\"enum\":[1,2.50,{\"a\":[0]}]}", {"1.0", "2.5", "2.500", "{\"a\":[0.0]}"}, {"1.1", "2.51", "2"}},
        {"{\"type\":\"number\",\"not\":{\"type\":\"integer\"}}", {"1.5"}, {"1", "1.0"}},
        {"{\"$schema\":\"http://json-schema.org/draft-04/schema#\",\"type\":\"integer\"}", {"1"}, {"1.0"}},
    };
    CHECK_ALL(any, &((grammar_options){.numbers = GRAMMAR_NUMBERS_ANY}));
}

TEST(strings_keep_length_pattern_and_format) {
    static const schema_case cases[] = {
        {"{\"type\":\"string\",\"minLength\":2,\"maxLength\":3}",
         {"\"ab\"", "\"\\n\xC3\xA9\"", "\"\\ud83d\\ude00x\"", "\"\\u0061bc\""},
         {"\"a\"", "\"abcd\"", "\"\\ud83d\"", "\"\\udc00x\"", "\"a\nb\""}},
        {"{\"type\":\"string\",\"pattern\":\"^a.c$\"}",
         {"\"abc\"", "\"a\\\"c\"", "\"a\\u00e9c\"",
          "\"a\xC3\xA9"
          "c\""},
         {"\"ac\"", "\"xabc\"", "\"a\\nc\""}},
        {"{\"type\":\"string\",\"pattern\":\"b+\",\"maxLength\":3}",
         {"\"b\"", "\"abb\""},
         {"\"a\"", "\"aabb\""}},
        {"{\"type\":\"string\",\"pattern\":\"$^|a$\"}", {"\"\"", "\"ba\""}, {"\"b\"", "\"ab\""}},
        {"{\"type\":\"string\",\"pattern\":\"^x|y$\"}",
         {"\"xaa\"", "\"aay\"", "\"x\""},
         {"\"ax\"", "\"ya\""}},
        {"{\"type\":\"string\",\"format\":\"date\"}",
         {"\"2024-02-29\"", "\"1999-12-31\""},
         {"\"2023-02-29\"", "\"1900-02-29\"", "\"2024-13-01\""}},
        {"{\"type\":\"string\",\"format\":\"uri\"}",
         {"\"h://u@[v1.a:b]:80/\"", "\"h://[::1]\""},
         {"\"h://[v.a]\"", "\"h://[v1.]\"", "\"h://[a]\""}},
        {"{\"type\":\"string\",\"format\":\"uri-template\"}",
         {"\"\xF0\x9F\x98\x80{x}\"", "\"\\ue000\""},
         {"\"\\ufdd0\"", "\"\\ufffe\""}},
        {"{\"type\":\"string\",\"format\":\"no-such-format\"}", {"\"x\""}, {"1"}},
        {"{\"type\":\"string\",\"not\":{\"pattern\":\"^a\"}}", {"\"ba\"", "\"\""}, {"\"ab\""}},
        {"{\"enum\":[\"a\\\"b\",\"\\u00e9\"]}",
         {"\"a\\\"b\"", "\"\xC3\xA9\"", "\"\\u00e9\""},
         {"\"a\"", "\"\\u0061\\\"b\""}},
    };
    CHECK_ALL(cases, NULL);
}

TEST(objects_keep_names_order_and_counts) {
    static const schema_case cases[] = {
        {"{\"properties\":{\"a\":{\"type\":\"integer\"},\"b\":true},\"required\":[\"b\"],\"type\":"
         "\"object\"}",
         {"{\"a\":1,\"b\":2}", "{\"b\":null}", "{\"b\":1,\"z\":[]}"},
         {"{\"a\":1}", "{\"b\":1,\"a\":2}", "{\"a\":\"x\",\"b\":1}", "{\"b\":1,\"\\u0061\":\"x\"}"}},
        {"{\"type\":\"object\",\"patternProperties\":{\"^n\":{\"type\":\"integer\"}},"
         "\"additionalProperties\":false}",
         {"{}", "{\"n1\":5,\"n\":2}"},
         {"{\"a\":1}", "{\"n1\":\"x\"}"}},
        {"{\"type\":\"object\",\"properties\":{\"name\":true},\"patternProperties\":{\"^n\":{\"type\":"
         "\"integer\"}}}",
         {"{\"name\":1,\"x\":\"y\"}"},
         {"{\"name\":\"x\"}"}},
        {"{\"type\":\"object\",\"minProperties\":1,\"maxProperties\":2,\"additionalProperties\":{\"type\":"
         "\"null\"}}",
         {"{\"a\":null}", "{\"a\":null,\"b\":null}"},
         {"{}", "{\"a\":null,\"b\":null,\"c\":null}"}},
        {"{\"type\":\"object\",\"propertyNames\":{\"maxLength\":2}}", {"{\"ab\":1}"}, {"{\"abc\":1}"}},
        {"{\"type\":\"object\",\"dependentRequired\":{\"a\":[\"b\"]},\"properties\":{\"a\":{},\"b\":{}},"
         "\"additionalProperties\":false}",
         {"{}", "{\"b\":1}", "{\"a\":1,\"b\":1}"},
         {"{\"a\":1}"}},
        {"{\"allOf\":[{\"properties\":{\"a\":{\"type\":\"integer\"}}},{\"properties\":{\"b\":{\"type\":"
         "\"null\"}},\"required\":[\"a\"]}],"
         "\"type\":\"object\",\"unevaluatedProperties\":false}",
         {"{\"a\":1}", "{\"a\":1,\"b\":null}"},
         {"{\"b\":null}", "{\"a\":1,\"c\":1}"}},
    };
    CHECK_ALL(cases, NULL);
    static const schema_case any_order[] = {
        {"{\"properties\":{\"a\":true,\"b\":true,\"c\":true},\"required\":[\"c\"],\"type\":\"object\","
         "\"additionalProperties\":false}",
         {"{\"c\":1,\"a\":2}", "{\"b\":1,\"c\":1,\"a\":1}"},
         {"{\"b\":1}", "{\"c\":1,\"c\":1}", "{\"c\":1,\"d\":1}"}},
    };
    CHECK_ALL(any_order, &((grammar_options){.order = GRAMMAR_ORDER_ANY}));
}

TEST(arrays_keep_items_and_counts) {
    static const schema_case cases[] = {
        {"{\"type\":\"array\",\"prefixItems\":[{\"type\":\"integer\"}],\"items\":{\"type\":\"null\"},"
         "\"minItems\":1,\"maxItems\":3}",
         {"[1]", "[1,null,null]"},
         {"[]", "[null]", "[1,1]", "[1,null,null,null]"}},
        {"{\"type\":\"array\",\"contains\":{\"const\":1},\"minContains\":2,\"maxContains\":2,\"items\":{"
         "\"type\":\"integer\"}}",
         {"[1,1]", "[1,2,1]", "[2,1,1]"},
         {"[1]", "[1,1,1]", "[2,2]"}},
        {"{\"type\":\"array\",\"items\":{\"enum\":[1,2,3]},\"uniqueItems\":true,\"minItems\":2}",
         {"[1,2]", "[3,1,2]"},
         {"[1,1]", "[1]", "[1,2,3,1]"}},
        {"{\"type\":\"array\",\"items\":{\"type\":\"boolean\"},\"uniqueItems\":true}",
         {"[true,false]", "[]"},
         {"[true,true]"}},
        {"{\"type\":\"array\",\"not\":{\"items\":{\"type\":\"integer\"}}}",
         {"[\"a\"]", "[1,\"a\"]"},
         {"[]", "[1]"}},
    };
    CHECK_ALL(cases, NULL);
}

TEST(drafts_and_dialects_are_told_apart) {
    case_refused(GRAMMAR_SCHEMA, "{\"$schema\":\"https://example.com/meta\",\"type\":\"null\"}",
                 QUIRE_UNSUPPORTED, "$schema at \"\"");
    case_refused(GRAMMAR_SCHEMA,
                 "{\"items\":{\"$id\":\"urn:x\",\"$schema\":\"http://json-schema.org/draft-07/"
                 "schema#\",\"dependencies\":{}}}",
                 QUIRE_UNSUPPORTED, "$schema at \"/items\"");
}

TEST(alternatives_hold_as_they_say) {
    static const schema_case cases[] = {
        {"{\"oneOf\":[{\"type\":\"integer\",\"minimum\":0},{\"type\":\"integer\",\"maximum\":10}]}",
         {"-1", "11"},
         {"5", "0", "10"}},
        {"{\"if\":{\"properties\":{\"k\":{\"const\":1}},\"required\":[\"k\"]},\"then\":{\"required\":[\"a\"]}"
         ",\"else\":{\"required\":["
         "\"b\"]},\"type\":\"object\"}",
         {"{\"k\":1,\"a\":1}", "{\"k\":2,\"b\":1}", "{\"b\":1}"},
         {"{\"k\":1,\"b\":1}", "{\"k\":2,\"a\":1}"}},
        {"{\"anyOf\":[{\"type\":\"null\"},{\"type\":\"string\",\"maxLength\":1}]}",
         {"null", "\"a\""},
         {"\"ab\"", "1"}},
        {"{\"$schema\":\"http://json-schema.org/draft-07/schema#\",\"$ref\":\"#/definitions/"
         "a\",\"type\":\"null\",\"definitions\":{\"a\":{\"type\":\"integer\"}}}",
         {"1"},
         {"null"}},
        {"{\"$defs\":{\"n\":{\"$anchor\":\"node\",\"type\":\"object\",\"properties\":{\"next\":{\"$ref\":\"#"
         "node\"}},"
         "\"additionalProperties\":false}},\"$ref\":\"#node\"}",
         {"{}", "{\"next\":{\"next\":{}}}"},
         {"{\"next\":1}"}},
    };
    CHECK_ALL(cases, NULL);
}

TEST(white_space_is_none_or_at_most_20_bytes) {
    const char *schema = "{\"type\":\"array\",\"items\":{\"type\":\"integer\"}}";
    grammar_case c = case_open(GRAMMAR_SCHEMA, schema, NULL);
    case_accepts(&c, "[1,2]");
    case_rejects(&c, "[1, 2]", 3);
    case_close(&c);
    c = case_open(GRAMMAR_SCHEMA, schema, &((grammar_options){.space = GRAMMAR_SPACE_ANY}));
    case_accepts(&c, "[ 1 ,\n\t2\r\n]");
    char text[80] = "[";
    memset(text + 1, ' ', 20);
    case_rejects(&c, text, -1);
    text[21] = ' ';
    case_rejects(&c, text, 21);
    case_close(&c);
    c = case_open(GRAMMAR_SCHEMA, schema, &((grammar_options){.whitespace_pattern = str_of(" ?")}));
    case_accepts(&c, "[ 1, 2 ]");
    case_rejects(&c, "[  ", 2);
    case_close(&c);
    /* of other characters none is white space of JSON */
    c = case_open(GRAMMAR_SCHEMA, schema, &((grammar_options){.whitespace_pattern = str_of("(?:\\s|x)?")}));
    case_accepts(&c, "[ 1,\n2\t]");
    case_rejects(&c, "[\v", 1);
    case_rejects(&c, "[x", 1);
    case_close(&c);
}

/* Puts space between two tokens of a text of single-space separated tokens, the gap-th
 * ones, and nothing between the others. */
static bool put_space(const char *tokens, int gap, const char *space, char *out) {
    int at = 0;
    for (const char *p = tokens; *p != 0; p++) {
        if (*p != ' ') {
            *out++ = *p;
        } else if (at++ == gap) {
            out += sprintf(out, "%s", space);
        }
    }
    *out = 0;
    return at > gap;
}

TEST(no_place_takes_more_than_20_blanks_in_a_row) {
    static const char schema[] =
        "{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"array\"},\"b\":{\"type\":\"object\"},\"c\":{"
        "\"type\":\"array\",\"items\":"
        "{\"type\":\"integer\"}},\"d\":{\"anyOf\":[{\"const\":{\"x\":[1,{}]}},{\"type\":\"null\"}]}}}";
    static const char tokens[] =
        "{ \"a\" : [ ] , \"b\" : { \"y\" : { } } , \"c\" : [ 1 , 2 ] , \"d\" : { \"x\" : [ 1 , { } ] } }";
    static const char blanks[] = "                    ";
    static const char *const taken[][2] = {
        {blanks, blanks}, {"\n\n                    ", "\n\n"}, {"\r\n\t", "\n\t\t"}, {" ", " "}};
    char text[256], long_space[64];
    for (int lines = 0; lines < 2; lines++) {
        grammar_case c =
            case_open(GRAMMAR_SCHEMA, schema,
                      &((grammar_options){.space = lines ? GRAMMAR_SPACE_LINES : GRAMMAR_SPACE_ANY}));
        for (int gap = 0; put_space(tokens, gap, "", text); gap++) {
            case_accepts(&c, text);
            for (int i = 0; i < 4; i++) {
                const char *space = lines && i < 3 ? (i == 0   ? "\n                    "
                                                      : i == 1 ? taken[1][0]
                                                               : taken[2][1])
                                                   : taken[i][i == 1 ? 1 : 0];
                (void)put_space(tokens, gap, space, text);
                case_accepts(&c, text);
            }
            static const char *const refused[] = {" ", "\n ", "\n\n "};
            for (int i = lines ? 1 : 0; i < (lines ? 3 : 1); i++) {
                (void)snprintf(long_space, sizeof long_space, "%s%s", refused[i], blanks);
                (void)put_space(tokens, gap, long_space, text);
                case_rejects(&c, text, (int)(strchr(text, long_space[0]) - text + (lines ? i + 20 : 20)));
            }
            if (lines) {
                (void)put_space(tokens, gap, "  ", text);
                case_rejects(&c, text, (int)(strchr(text, ' ') - text + 1));
                (void)put_space(tokens, gap, "\n\n\n", text);
                case_rejects(&c, text, (int)(strchr(text, '\n') - text + 2));
            }
        }
        case_close(&c);
    }
}

TEST(a_schema_that_cannot_be_enforced_is_refused_with_path_and_keyword) {
    case_refused(GRAMMAR_SCHEMA, "{\"properties\":{\"a/b\":{\"format\":\"regex\"}}}", QUIRE_UNSUPPORTED,
                 "format at \"/properties/a~1b\"");
    case_refused(GRAMMAR_SCHEMA, "{\"$ref\":\"http://x/y\"}", QUIRE_UNSUPPORTED, "$ref at \"\"");
    case_refused(GRAMMAR_SCHEMA,
                 "{\"items\":{\"allOf\":[{\"pattern\":\"a.{11}$\"},{\"pattern\":\"b.{12}$\"}]}}",
                 QUIRE_UNSUPPORTED, "allOf at \"/items\"");
    case_refused(
        GRAMMAR_SCHEMA,
        "{\"properties\":{\"a\":{\"minimum\":0,\"multipleOf\":99991,\"not\":{\"multipleOf\":99989}}}}",
        QUIRE_UNSUPPORTED, " at \"/properties/a\"");
    case_refused(GRAMMAR_SCHEMA, "{\"properties\":{\"a\":{\"pattern\":\"((a{1,99}){1,99}b){1,99}\"}}}",
                 QUIRE_TOO_LARGE, "pattern at \"/properties/a\"");
    case_refused(GRAMMAR_SCHEMA, "{\"type\":\"string\",\"pattern\":\"(?=a)\"}", QUIRE_UNSUPPORTED,
                 "pattern at \"\"");
    case_refused(GRAMMAR_SCHEMA, "{\"$ref\":\"#\"}", QUIRE_INVALID, "leads back to itself");
    case_refused(GRAMMAR_SCHEMA, "{\"allOf\":[{\"anyOf\":[{\"$ref\":\"#\"}]}]}", QUIRE_INVALID,
                 "leads back to itself");
    case_refused(GRAMMAR_SCHEMA,
                 "{\"type\":\"object\",\"properties\":{\"a\":{\"$ref\":\"#\"}},\"required\":[\"a\"]}",
                 QUIRE_INVALID, "matches no text");
    case_refused(GRAMMAR_SCHEMA, "{\"type\":\"strin\"}", QUIRE_INVALID, "type at \"\"");
    case_refused(GRAMMAR_SCHEMA, "{\"minLength\":-1}", QUIRE_INVALID, "minLength at \"\"");
    case_refused(GRAMMAR_SCHEMA, "{\"minimum\":true}", QUIRE_INVALID, "minimum at \"\"");
    case_refused(GRAMMAR_SCHEMA, "{\"format\":5}", QUIRE_INVALID, "format at \"\"");
    case_refused(GRAMMAR_SCHEMA, "{\"uniqueItems\":1}", QUIRE_INVALID, "uniqueItems at \"\"");
    case_refused(GRAMMAR_SCHEMA, "{\"prefixItems\":{}}", QUIRE_INVALID, "prefixItems at \"\"");
    case_refused(GRAMMAR_SCHEMA, "{\"$schema\":7}", QUIRE_INVALID, "$schema at \"\"");
    case_refused(GRAMMAR_SCHEMA, "[1]", QUIRE_INVALID, "must be an object");
    case_refused(GRAMMAR_SCHEMA, "{", QUIRE_INVALID, "byte 1");
    case_refused(GRAMMAR_SCHEMA, "false", QUIRE_INVALID, "matches no text");
}

static void count_keyword(void *user, const grammar_keyword *k) {
    int *counts = user;
    counts[k->status]++;
    assert_true(k->how[0] != 0);
}

TEST(a_survey_reports_every_keyword) {
    int counts[3] = {0};
    grammar_options o = {.keyword = count_keyword, .user = counts, .survey = true};
    grammar *g = NULL;
    quire_error err = {0};
    const char *schema = "{\"title\":\"t\",\"properties\":{\"a\":{\"format\":\"regex\"},\"b\":{\"format\":"
                         "\"iri\",\"minLength\":1}}}";
    assert_int_equal(grammar_compile(GRAMMAR_SCHEMA, str_of(schema), &o, &g, &err), QUIRE_UNSUPPORTED);
    assert_int_equal(counts[GRAMMAR_REFUSED], 2);
    assert_int_equal(counts[GRAMMAR_ANNOTATION], 1);
    assert_true(counts[GRAMMAR_ENFORCED] >= 2);
    assert_non_null(strstr(err.message, "format at"));
}

/* A schema of 26 members, whose names have 20 letters; `same`: but for the first, of all
 * the same. */
static size_t bytes_of_names(bool same) {
    strbuf text = {0};
    quire_error err = {0};
    grammar *g = NULL;
    for (int i = 0; i < 26; i++) {
        char name[21] = {0};
        for (int k = 0; k < 20; k++) {
            name[k] = (char)('a' + (k == 0 || !same ? (i + k * k) % 26 : k % 26));
        }
        assert_int_equal(strbuf_addf(&text, "%s\"%s\":{}", i > 0 ? "," : "{\"properties\":{", name),
                         QUIRE_OK);
    }
    assert_int_equal(strbuf_add_str(&text, "}}"), QUIRE_OK);
    assert_int_equal(grammar_compile(GRAMMAR_SCHEMA, (str){text.p, text.n}, NULL, &g, &err), QUIRE_OK);
    size_t bytes = grammar_bytes(g);
    grammar_drop(g);
    strbuf_deinit(&text);
    return bytes;
}

TEST(equal_ends_of_names_are_kept_once) {
    /* a state and its edge take 20 bytes */
    assert_true(bytes_of_names(true) + (size_t)20 * 18 * 20 < bytes_of_names(false));
}

TEST(a_large_schema_is_refused_at_once) {
    size_t n = (size_t)10 << 20;
    char *text = mem_new(n + 1, 1);
    grammar *g = NULL;
    quire_error err = {0};
    assert_non_null(text);
    memset(text, ' ', n);
    assert_int_equal(grammar_compile(GRAMMAR_SCHEMA, (str){text, n}, NULL, &g, &err), QUIRE_TOO_LARGE);
    mem_free(text);
    assert_true(err.message[0] != 0);
}

TEST_MAIN(NULL, NULL)
