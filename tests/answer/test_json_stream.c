/* JSON that arrives byte by byte: what is written is JSON, whatever came and wherever it
 * stopped. */
#include "answer/json_stream.h"

#include "answer/typed_value.h"
#include "test.h"
#include "json/json.h"

/* What is written of a text, closed after it; *read: the bytes that were read, *result:
 * how it ended. */
static void write_text(str text, strbuf *out, size_t *read, json_stream_result *result) {
    json_stream s = {0};
    strbuf_clear(out);
    assert_int_equal(json_stream_add(&s, text, out, result, read), QUIRE_OK);
    if (*result != JSON_STREAM_DONE) {
        assert_int_equal(json_stream_close(&s, out), QUIRE_OK);
    }
}

static void expect(const char *text, const char *want) {
    strbuf out = {0};
    size_t n;
    json_stream_result result;
    write_text(str_of(text), &out, &n, &result);
    assert_string_equal(out.p, want);
    strbuf_deinit(&out);
}

TEST(a_value_is_written_as_it_comes) {
    expect("{\"a\": [1, -2.5e+7, true], \"b\": {}}", "{\"a\": [1, -2.5e+7, true], \"b\": {}}");
    expect("[ ]", "[ ]");
    expect("\"\\u00e9\\n\\/\\ud83d\\ude00\"", "\"\xC3\xA9\\n/\xF0\x9F\x98\x80\"");
}

TEST(what_json_lacks_is_repaired) {
    expect("{\"a\": True, \"b\": None,}", "{\"a\": true, \"b\": null}");
    expect("[1, 2, ]", "[1, 2]");
    expect("\"a\nb\tc\x01\\q\\'\"", "\"a\\nb\\tc\\u0001\\\\q'\"");
    expect("\"C:\\path\\users\\x\\u\\u00zz\\d+\\.\\$\"",
           "\"C:\\\\path\\\\users\\\\x\\\\u\\\\u00zz\\\\d+\\\\.\\\\$\"");
    expect("\"\\u00\"", "\"\\\\u00\"");
    expect("{\"a\": \"cut \\u00", "{\"a\": \"cut \"}");
    expect("\"\\ud83d \\udc00\"", "\"\xEF\xBF\xBD \xEF\xBF\xBD\"");
}

TEST(a_value_that_stops_is_closed) {
    expect("{\"a\": [1, {\"b\": \"x", "{\"a\": [1, {\"b\": \"x\"}]}");
    expect("{\"a", "{\"a\":null}");
    expect("{\"a\":", "{\"a\":null}");
    expect("[-", "[-0]");
    expect("[1.", "[1.0]");
    expect("[1e+", "[1e+0]");
    expect("[fal", "[false]");
    expect("{\"a\":1,", "{\"a\":1}");
    expect("", "null");
}

TEST(a_byte_that_fits_nowhere_is_not_read) {
    static const struct {
        const char *text;
        size_t n;
        json_stream_result result;
    } rows[] = {{"{'a'", 1, JSON_STREAM_BROKEN},   {"[1 2", 3, JSON_STREAM_BROKEN},
                {"[01", 2, JSON_STREAM_BROKEN},    {"[1x", 2, JSON_STREAM_BROKEN},
                {"[tru ]", 4, JSON_STREAM_BROKEN}, {"{\"a\"]", 4, JSON_STREAM_BROKEN},
                {"12,", 2, JSON_STREAM_BEFORE},    {"{}x", 2, JSON_STREAM_DONE}};
    strbuf out = {0};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        size_t n;
        json_stream_result result;
        write_text(str_of(rows[i].text), &out, &n, &result);
        assert_int_equal(n, rows[i].n);
        assert_int_equal(result, rows[i].result);
    }
    strbuf_deinit(&out);
}

TEST(deep_values_are_broken_off) {
    strbuf text = {0}, out = {0};
    json_value *v;
    json_fault fault;
    size_t n;
    json_stream_result result;
    for (int i = 0; i < JSON_STREAM_DEPTH + 1; i++) {
        assert_int_equal(strbuf_add_char(&text, '['), QUIRE_OK);
    }
    write_text((str){text.p, text.n}, &out, &n, &result);
    assert_int_equal(result, JSON_STREAM_BROKEN);
    assert_int_equal(n, JSON_STREAM_DEPTH);
    assert_int_equal(json_read((str){out.p, out.n}, &json_limits_config, JSON_WIDE_REAL, &v, &fault),
                     QUIRE_OK);
    json_drop(v);
    strbuf_deinit(&text);
    strbuf_deinit(&out);
}

TEST(every_beginning_of_a_text_closes_to_json) {
    static const char text[] = "{\"a\": [1, -2.5e+7, true, null, \"q\\u00e9\\\"\\ud83d\\ude00\"], \"b\\n\": "
                               "{\"c\": {}, \"d\": [[]]}, }";
    strbuf out = {0};
    for (size_t i = 0; i < sizeof text; i++) {
        json_value *v;
        json_fault fault;
        size_t n;
        json_stream_result result;
        write_text((str){text, i}, &out, &n, &result);
        assert_int_equal(json_read((str){out.p, out.n}, &json_limits_config, JSON_WIDE_REAL, &v, &fault),
                         QUIRE_OK);
        json_drop(v);
    }
    strbuf_deinit(&out);
}

/* ---- values by their schema ---- */

static void expect_typed(const char *schema, const char *text, const char *want) {
    json_value *root = json_document(str_of(schema));
    typed_value v = {0};
    strbuf out = {0};
    typed_begin(&v, schema_types(schema_member(root, root, str_of("p")), root));
    for (const char *c = text; *c != 0; c++) {
        assert_int_equal(typed_add(&v, c, 1, &out), QUIRE_OK);
    }
    assert_int_equal(typed_end(&v, &out), QUIRE_OK);
    assert_string_equal(out.p, want);
    strbuf_deinit(&out);
    strbuf_deinit(&v.text);
    json_drop(root);
}

#define P(schema)                                                                                            \
    "{\"properties\": {\"p\": " schema                                                                       \
    "}, \"$defs\": {\"d\": {\"type\": \"string\"}, \"r\": {\"$ref\": \"#/$defs/r\"}}}"

TEST(a_text_is_what_its_schema_says) {
    expect_typed(P("{\"type\": \"string\"}"), "42", "\"42\"");
    expect_typed(P("{\"$ref\": \"#/$defs/d\"}"), "null", "\"null\"");
    expect_typed(P("{\"enum\": [\"a\", \"1\"]}"), "1", "\"1\"");
    expect_typed(P("{\"anyOf\": [{\"type\": \"string\"}, {\"type\": \"null\"}]}"), " null\n", "null");
    expect_typed(P("{\"type\": [\"string\", \"null\"]}"), "nullable, and much longer",
                 "\"nullable, and much longer\"");
    expect_typed(P("{\"type\": \"integer\"}"), " 42\n", "42");
    expect_typed(P("{\"type\": \"integer\"}"), "many", "\"many\"");
    expect_typed(P("{\"type\": \"boolean\"}"), "TRUE", "true");
    expect_typed(P("{\"type\": \"array\"}"), "", "[]");
    expect_typed(P("{\"properties\": {}}"), "{\"a\": None}", "{\"a\": null}");
    expect_typed(P("{\"type\": \"array\"}"), "['it\\'s \"x\"', (1, None), '']",
                 "[\"it's \\\"x\\\"\", [1, null], \"\"]");
    expect_typed(P("{\"type\": \"array\"}"), "['x'", "\"['x'\"");
    expect_typed(P("{\"$ref\": \"#/$defs/r\"}"), "7", "7");
    expect_typed("{}", "[1", "\"[1\"");
    expect_typed("{}", "\"q\"", "\"\\\"q\\\"\"");
    expect_typed("{\"additionalProperties\": {\"type\": \"string\"}}", "1", "\"1\"");
}

TEST_MAIN(NULL, NULL)
