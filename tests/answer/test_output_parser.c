/* Answers of models in their formats: the same events under every cut. */
#include "answer/output_parser.h"

#include <stdio.h>

#include "answer/answer_format.h"
#include "answer/parse_case.h"
#include "test.h"

static const char city[] =
    "{\"properties\":{\"a\":{\"type\":\"string\"},\"n\":{\"type\":\"integer\"},\"o\":{\"type\":\"object\"},"
    "\"u\":{\"type\":[\"string\",\"null\"]},\"l\":{\"type\":\"array\",\"items\":{\"type\":\"string\"}},"
    "\"b\":{\"type\":\"boolean\"}}}";

static size_t in_one(void *context, str left) {
    (void)context;
    return left.n;
}

/* Cuts at one place: *place bytes, then the rest. */
static size_t at_place(void *context, str left) {
    size_t *place = context, take = *place<left.n && * place> 0 ? *place : left.n;
    *place = *place > take ? *place - take : 0;
    return take;
}

static size_t by_bytes(void *context, str left) {
    (void)context;
    (void)left;
    return 1;
}

static size_t by_characters(void *context, str left) {
    size_t n;
    (void)context;
    utf8_next(left.p, &n);
    return n;
}

/* Expects the answer, whole, by bytes, and cut in two at each place. The text is
 * ASCII. */
static void expect(parse_case c, const char *text, const char *want) {
    strbuf got = {0};
    c.schema = c.schema != NULL ? c.schema : city;
    assert_int_equal(parse_text(&c, text, in_one, NULL, &got), QUIRE_OK);
    assert_string_equal(got.p != NULL ? got.p : "", want);
    strbuf_clear(&got);
    assert_int_equal(parse_text(&c, text, by_bytes, NULL, &got), QUIRE_OK);
    assert_string_equal(got.p != NULL ? got.p : "", want);
    for (size_t i = 1; i < strlen(text); i++) {
        size_t place = i;
        strbuf_clear(&got);
        assert_int_equal(parse_text(&c, text, at_place, &place, &got), QUIRE_OK);
        assert_string_equal(got.p != NULL ? got.p : "", want);
    }
    strbuf_deinit(&got);
}

#define TOOLS(name)  ((parse_case){.tools = name})
#define THINKS(name) ((parse_case){.reasoning = name})

TEST(a_json_call_is_split_from_the_text_before_it) {
    expect(TOOLS("hermes"),
           "Hi there.\n<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": \"x\"}}\n</tool_call>\n",
           "C:Hi there.F:f{\"a\": \"x\"};");
    expect(TOOLS("hermes"),
           "<tool_call>{\"arguments\":{\"a\":[1,{}]},\"name\":\"f\"}</tool_call><tool_call>{\"name\":\"f\"}</"
           "tool_call> bye",
           "F:f{\"a\":[1,{}]};F:f{};C: bye");
    /* arguments under a misspelt name, or beside the call's, are not lost */
    static const char *const others[] = {"\"argument\":{\"a\":1}", "\"args\":[1]",
                                         "\"argument\":\"{\\\"a\\\":1}\"", "\"city\":\"Paris\""};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        char text[128], want[sizeof text + 2];
        snprintf(text, sizeof text, "<tool_call>{\"name\":\"f\",%s}</tool_call>", others[i]);
        snprintf(want, sizeof want, "C:%s", text);
        expect(TOOLS("hermes"), text, want);
    }
    expect(TOOLS("hermes"), "<tool_call>{\"id\":\"1\",\"name\":\"f\",\"type\":\"function\"}</tool_call>",
           "F:f{};");
    expect(TOOLS("hermes"),
           "<tool_call>{\"name\":\"f\",\"arguments\":\"{\\\"a\\\": \\\"q\\\\\\\"\\\"}\"}</tool_call>",
           "F:f{\"a\": \"q\\\"\"};");
    expect(
        TOOLS("jamba"),
        "<tool_calls>[{\"name\":\"f\",\"arguments\":{}}, {\"name\":\"g\",\"arguments\":null}]</tool_calls>",
        "F:f{};F:g{};");
    expect(TOOLS("llama3_json"),
           "so {\"name\":\"f\",\"parameters\":{\"n\":1}}; {\"name\":\"f\",\"parameters\":{}}",
           "C:soF:f{\"n\":1};F:f{};");
    expect(TOOLS("llama3_json"),
           "{\"type\":\"function\",\"function\":{\"name\":\"f\",\"parameters\":{\"n\":1}},\"id\":\"x\"}",
           "F:f{\"n\":1};");
    expect(TOOLS("minimax"),
           "{\"name\":\"f\",\"arguments\":{}}<tool_calls>\n{\"name\":\"f\",\"arguments\":{\"n\":1}}\n{"
           "\"name\":\"f\",\"arguments\":{}}\n</"
           "tool_calls>",
           "C:{\"name\":\"f\",\"arguments\":{}}F:f{\"n\":1};F:f{};");
    expect(TOOLS("json"), "```json\n[{\"name\":\"f\",\"arguments\":{}}]\n```", "F:f{};");
    expect(TOOLS("apertus"), "<|tools_prefix|>[{\"f\": {\"n\": 1}}, {\"g\": {}}]<|tools_suffix|>",
           "F:f{\"n\": 1};F:g{};");
}

TEST(a_name_before_the_arguments_is_the_calls_head) {
    expect(TOOLS("mistral"), "[TOOL_CALLS]f[ARGS]{\"n\": 1}[TOOL_CALLS]f[CALL_ID]x1[ARGS]{}",
           "F:f{\"n\": 1};F:f#x1{};");
    expect(TOOLS("mistral"), "[TOOL_CALLS] [{\"name\": \"f\", \"arguments\": {}}]", "F:f{};");
    expect(TOOLS("kimi_k2"),
           "<|tool_call_begin|>functions.f<|tool_call_argument_begin|>{}<|tool_call_end|>"
           "<|tool_call_begin|>functions.g<|tool_call_argument_begin|>{}<|tool_call_end|>",
           "F:f{};F:functions.g{};");
    expect(TOOLS("kimi_k2"),
           "<|tool_calls_section_begin|><|tool_call_begin|>functions.f:3<|tool_call_argument_begin|>{}<|tool_"
           "call_end|>"
           "<|tool_calls_section_end|>",
           "F:f#functions.f:3{};");
}

TEST(what_turns_out_to_be_no_call_is_content) {
    static const char *const texts[] = {"<tool_call>no", "<tool_call>{\"name\": oops}</tool_call>",
                                        "a <tool_c", "<tool_call>{\"name\":\"f\",",
                                        "<tool_call>{\"a\":1}</tool_call>"};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        char want[128];
        snprintf(want, sizeof want, "C:%s", texts[i]);
        expect(TOOLS("hermes"), texts[i], want);
    }
    expect(TOOLS("llama3_json"), "Use {a} or {\"b\": 1}.", "C:Use {a} or {\"b\": 1}.");
    /* After text only what names an offered function first thing is a call. */
    static const char *const objects[] = {"so {\"a\":1,\"name\":\"f\",\"parameters\":{}}",
                                          "so {\"name\":\"h\",\"parameters\":{}}",
                                          "so [{\"parameters\":{},\"name\":\"f\"}]"};
    for (size_t i = 0; i < sizeof objects / sizeof *objects; i++) {
        char want[128];
        snprintf(want, sizeof want, "C:%s", objects[i]);
        expect(TOOLS("llama3_json"), objects[i], want);
    }
    expect(TOOLS("llama3_json"), "{\"a\":1,\"name\":\"h\",\"parameters\":{}}", "F:h{};");
    expect(TOOLS("json"), "```json\n{\"a\":1,\"name\":\"f\",\"arguments\":{}}",
           "C:```json\n{\"a\":1,\"name\":\"f\",\"arguments\":{}}");
    expect(TOOLS("pythonic"), "[1, 2] and [f(x=1)]", "C:[1, 2] and [f(x=1)]");
    expect(TOOLS("pythonic"), "[]", "C:[]");
    expect(TOOLS("pythonic"), "[f(n=1), ]", "F:f{\"n\": 1};");
    expect(TOOLS("llama3_json"), "const [a, b] = useState([ ]); x[]", "C:const [a, b] = useState([ ]); x[]");
    expect(TOOLS("json"), "so {\"a\": []} and [[]]", "C:so {\"a\": []} and [[]]");
    expect(TOOLS("llama3_json"), "[{\"name\":\"f\",\"parameters\":{}}, ]", "F:f{};");
    expect(TOOLS("hermes"),
           "<tool_call>{\"name\": oops\n<tool_call>{\"name\":\"f\",\"arguments\":{}}</tool_call>",
           "C:<tool_call>{\"name\": oopsF:f{};");
}

TEST(a_name_with_escapes_is_none_that_a_schema_was_held_to) {
    static const char *const texts[] = {"so {\"name\":\"\\u0066\",\"parameters\":{\"n\":\"x\"}}",
                                        "so {\"n\\u0061me\":\"f\",\"parameters\":{\"n\":\"x\"}}",
                                        "{\"n\\u0061me\":\"f\",\"parameters\":{\"n\":\"x\"}}"};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        char want[128];
        snprintf(want, sizeof want, "C:%s", texts[i]);
        expect(TOOLS("llama3_json"), texts[i], want);
    }
    expect(TOOLS("llama3_json"),
           "{\"\\u0061\":\"\\u0061\",\"name\":\"f\",\"parameters\":{\"a\":\"\\u0061\"}}",
           "F:f{\"a\":\"a\"};");
}

TEST(a_closing_fence_is_one_behind_a_call_that_a_fence_opened) {
    static const char call[] = "[{\"name\":\"f\",\"arguments\":{}}]";
    char text[256];
    snprintf(text, sizeof text, "```json\n%s\n```\n```json\n%s\n```", call, call);
    expect(TOOLS("json"), text, "F:f{};F:f{};");
    snprintf(text, sizeof text, "```json\n%s\n```\n```python\nx\n```", call);
    expect(TOOLS("json"), text, "F:f{};C:\n\n```python\nx\n```");
    static const char object[] = "{\"name\":\"f\",\"arguments\":{}}";
    snprintf(text, sizeof text, "```json\n%s;\n%s\n```", object, object);
    expect(TOOLS("json"), text, "F:f{};F:f{};");
    snprintf(text, sizeof text, "%s\n```python\nx\n```", call);
    expect(TOOLS("json"), text, "F:f{};C:\n```python\nx\n```");
    snprintf(text, sizeof text, "<tool_call>%s</tool_call>\n<tool_call>%s</tool_call>", call, call);
    expect(TOOLS("xlam"), text, "F:f{};F:f{};");
}

TEST(white_space_before_what_only_looks_like_a_call_stays) {
    const parse_case c = {.tools = "hermes", .reasoning = "qwen3", .start = OUTPUT_START_CONTENT};
    expect(c, "  <tool_call>no", "C:  <tool_call>no");
    expect(c, "\n\n<tool_call>{\"name\":\"f\",\"arguments\":{}}</tool_call>", "F:f{};");
}

TEST(a_value_without_quotes_is_whole_where_the_answer_ends) {
    expect(TOOLS("gemma4"), "<|tool_call>call:f{n:12", "F:f{\"n\":12};");
    expect((parse_case){.tools = "gemma4", .specials = "<|tool_call><tool_call|>"},
           "\1<|tool_call>\2call:f{n:12 \1<tool_call|>\2", "F:f{\"n\":12};");
    expect(TOOLS("functiongemma"), "<start_function_call>call:f{n:<escape>12", "F:f{\"n\":12};");
    expect(TOOLS("gemma4"), "<|tool_call>call:f{n:12,o", "F:f{\"n\":12};");
}

TEST(no_mark_goes_on_across_a_hidden_token) {
    expect(TOOLS("hermes"), "<tool\1\2_call>{\"name\":\"f\",\"arguments\":{}}",
           "C:<tool_call>{\"name\":\"f\",\"arguments\":{}}");
    expect(TOOLS("llama3_json"), "{\"na\1\2me\":\"f\",\"parameters\":{}}",
           "C:{\"name\":\"f\",\"parameters\":{}}");
    expect(TOOLS("llama3_json"), "\1\2{\"parameters\":{},\"name\":\"f\"}",
           "C:{\"parameters\":{},\"name\":\"f\"}");
    expect(TOOLS("llama3_json"), "\1\2{\"name\":\"f\",\"parameters\":{}}", "F:f{};");
    expect(TOOLS("pythonic"), "\1\2[f(n=1)]", "C:[f(n=1)]");
    expect(TOOLS("llama3_json"),
           "[{\"name\":\"f\",\"parameters\":{}}\1\2, {\"name\":\"f\",\"parameters\":{}}]", "F:f{};F:f{};");
    parse_case begun = {.tools = "llama3_json", .reasoning = "qwen3", .start = OUTPUT_START_CONTENT};
    expect(begun, "\1\2{\"parameters\":{},\"name\":\"f\"}", "C:{\"parameters\":{},\"name\":\"f\"}");
    expect(begun, "\1\2<think>a</think>{\"parameters\":{},\"name\":\"f\"}", "R:aF:f{};");
    const parse_case c = {.tools = "hermes", .reasoning = "qwen3", .start = OUTPUT_START_CONTENT};
    expect(c, "\1\2<think>a</th\1\2ink>b</think>c", "R:a</think>bC:c");
}

TEST(a_backslash_that_begins_no_escape_stays) {
    expect(TOOLS("hermes"), "<tool_call>{\"name\":\"f\",\"arguments\":{\"a\":\"C:\\path\\d+\"}}</tool_call>",
           "F:f{\"a\":\"C:\\\\path\\\\d+\"};");
    expect(TOOLS("hermes"),
           "<tool_call>{\"name\":\"f\",\"arguments\":\"{\\\"a\\\": \\\"C:\\path\\\"}\"}</tool_call>",
           "F:f{\"a\": \"C:\\\\path\"};");
    expect(TOOLS("mistral"), "[TOOL_CALLS]f[ARGS]{\"a\": \"\\.\"}", "F:f{\"a\": \"\\\\.\"};");
    expect(TOOLS("pythonic"), "[f(a='C:\\path')]", "F:f{\"a\": \"C:\\\\path\"};");
    expect(TOOLS("gemma4"), "<|tool_call>call:f{a:\"C:\\path\"}<tool_call|>", "F:f{\"a\":\"C:\\\\path\"};");
    expect(TOOLS("qwen3_coder"),
           "<tool_call>\n<function=f>\n<parameter=a>\nC:\\path\n</parameter>\n</function>\n</tool_call>",
           "F:f{\"a\": \"C:\\\\path\"};");
}

TEST(broken_arguments_are_completed) {
    expect(TOOLS("hermes"), "<tool_call>{\"name\":\"f\",\"arguments\":{\"a\":[1,{\"b\":tru",
           "F:f{\"a\":[1,{\"b\":true}]};");
    expect(TOOLS("hermes"), "<tool_call>{\"name\":\"f\",\"arguments\":{\"a\":\"x\\u00", "F:f{\"a\":\"x\"};");
    expect(TOOLS("hermes"), "<tool_call>{\"name\":\"f\",\"arguments\":{\"a\":\"\\u12\",\"n\":1}}</tool_call>",
           "F:f{\"a\":\"\\\\u12\",\"n\":1};");
    expect(TOOLS("pythonic"), "[f(a='\\x1', n=1)]", "F:f{\"a\": \"\\\\x1\", \"n\": 1};");
    expect(TOOLS("hermes"), "<tool_call>{\"name\":\"f\",\"arguments\":{\"a\":1,}}</tool_call>",
           "F:f{\"a\":1};");
    expect(TOOLS("hermes"), "<tool_call>{\"name\":\"f\",\"arguments\":{\"a\":1, oops", "F:f{\"a\":1};C:oops");
    parse_case cut = {.tools = "hermes", .cut_off = true};
    expect(cut, "<tool_call>{\"name\":\"f\",\"arguments\":{\"a\":\"x", "F:f{\"a\":\"x;");
}

TEST(values_between_tags_have_the_schemas_types) {
    expect(TOOLS("qwen3_coder"),
           "<tool_call>\n<function=f>\n<parameter=a>\n42\n</parameter>\n<parameter=n>\n42\n</"
           "parameter>\n<parameter=u>\nnull\n</parameter>\n"
           "<parameter=b>\nTrue\n</parameter>\n</function>\n</tool_call>",
           "F:f{\"a\": \"42\", \"n\": 42, \"u\": null, \"b\": true};");
    expect(TOOLS("qwen3_coder"), "<function=f>\n<parameter=a>\n\n x <b>\"\n\n</parameter>\n</function>",
           "F:f{\"a\": \"\\n x <b>\\\"\\n\"};");
    expect(TOOLS("qwen3_coder"), "<function=f>\n<parameter=n>\nmany\n<parameter=o>\n{\"k\": 1}\n</function>",
           "F:f{\"n\": \"many\", \"o\": {\"k\": 1}};");
    expect(TOOLS("qwen3_coder"), "<function=f>\n<parameter=a>\nv\n\n<parameter=o>\n{\"k\": 1}\n</function>",
           "F:f{\"a\": \"v\\n\", \"o\": {\"k\": 1}};");
    expect(TOOLS("glm45"), "<tool_call>f\n<arg_key>a</arg_key>\n<arg_value> x</arg_value>\n</tool_call>",
           "F:f{\"a\": \" x\"};");
    expect(TOOLS("minimax_m2"),
           "<minimax:tool_call><invoke name='f'><parameter "
           "name=\"l\">[\"a\"]</parameter></invoke></minimax:tool_call>",
           "F:f{\"l\": [\"a\"]};");
    expect(TOOLS("qwen3_coder"), "the <function=f> tag", "C:the <function=f> tag");
}

TEST(nested_elements_are_objects_and_lists) {
    expect(TOOLS("minimax_m3"),
           "]<]minimax[>[<tool_call>\n]<]minimax[>[<invoke "
           "name=\"f\">]<]minimax[>[<l>]<]minimax[>[<item>1]<]minimax[>[</item>]<]minimax[>[</l>"
           "]<]minimax[>[<o>]<]minimax[>[<k>1]<]minimax[>[</k>]<]minimax[>[</"
           "o>]<]minimax[>[<a>]<]minimax[>[</a>]<]minimax[>[</invoke>\n"
           "]<]minimax[>[</tool_call>",
           "F:f{\"l\": [\"1\"], \"o\": {\"k\": 1}, \"a\": \"\"};");
}

TEST(gemmas_notation_becomes_json) {
    expect(TOOLS("gemma4"),
           "<|tool_call>call:f{a:<|\"|>x \"y\", {z}<|\"|>,n:-1.5,o:{k:[true,<|\"|>q<|\"|>]}}<tool_call|>",
           "F:f{\"a\":\"x \\\"y\\\", {z}\",\"n\":-1.5,\"o\":{\"k\":[true,\"q\"]}};");
    expect(TOOLS("functiongemma"),
           "<start_function_call>call:f{a:<escape>1<escape>,n:<escape>1<escape>}<end_function_call>",
           "F:f{\"a\":\"1\",\"n\":1};");
}

TEST(python_calls_become_json) {
    expect(TOOLS("pythonic"), "[f(a='it\\'s \"x\"\\n', o={'k': (1, None)}), g()]",
           "F:f{\"a\": \"it's \\\"x\\\"\\n\", \"o\": {\"k\": [1, null]}};F:g{};");
    expect(TOOLS("olmo3"), "<function_calls>\nf(a=\"\", n=1)\ng(b=\"\"\"x\"y\"\"\")\n</function_calls>",
           "F:f{\"a\": \"\", \"n\": 1};F:g{\"b\": \"x\\\"y\"};");
}

TEST(harmonys_channels_are_reasoning_content_and_calls) {
    parse_case c = {.tools = "openai", .reasoning = "openai_gptoss"};
    expect(c,
           "<|channel|>analysis<|message|>hm<|end|><|start|>assistant<|channel|>commentary to=functions.f "
           "<|constrain|>json<|message|>{\"n\":1}"
           "<|call|>",
           "R:hmF:f{\"n\":1};");
    expect(
        c,
        "<|channel|>analysis<|message|>a<|end|><|start|>assistant<|channel|>final<|message|>b\nc<|return|>",
        "R:aC:b\nc");
    expect(c, "Hello", "C:Hello");
    expect(c, "<|channel|>analysis<|message|>a<|end|><|start|>assistant<|channel|>fi", "R:a");
    /* arguments are an object, whatever stands in their place */
    expect(c, "<|channel|>commentary to=functions.f<|message|>null<|call|>", "F:f{};C:null");
}

/* A parameter may have the name of an element of the notation. */
TEST(elements_named_like_calls_are_parameters) {
#define M3 "]<]minimax[>["
    expect(TOOLS("minimax_m3"),
           M3 "<tool_call>" M3 "<invoke name=\"f\">" M3 "<invoke>a" M3 "</invoke>" M3 "<tool_call>" M3
              "<invoke>b" M3 "</invoke>" M3 "</tool_call>" M3 "<x>c" M3 "</x>" M3 "</invoke>" M3
              "</tool_call>",
           "F:f{\"invoke\": \"a\", \"tool_call\": {\"invoke\": \"b\"}, \"x\": \"c\"};");
#undef M3
}

TEST(reasoning_ends_at_its_mark) {
    expect(THINKS("qwen3"), "<think>\nwhy </thin k\n</think>\n\nso </think", "R:why </thin kC:so </think");
    expect(THINKS("qwen3"), "why</think>so", "R:whyC:so");
    expect(THINKS("mistral"), "so", "C:so");
    expect(THINKS("granite"), "Here is my thought process: why Here is my response: so", "R:whyC:so");
    parse_case off = {.reasoning = "qwen3", .start = OUTPUT_START_CONTENT};
    expect(off, " so", "C: so");
    expect((parse_case){.tools = "hermes", .reasoning = "qwen3"},
           "a</think>\n<tool_call>{\"name\":\"f\",\"arguments\":{}}</tool_call>", "R:aF:f{};");
    expect((parse_case){.tools = "hermes", .reasoning = "qwen3"},
           "\n<tool_call>{\"name\":\"f\",\"arguments\":{}}</tool_call>", "F:f{};");
}

TEST(a_mark_that_is_a_special_token_counts_only_as_that) {
    parse_case c = {.tools = "hermes", .specials = "<tool_call></tool_call><pad>"};
    expect(c, "<tool_call>{\"name\":\"f\",\"arguments\":{}}",
           "C:<tool_call>{\"name\":\"f\",\"arguments\":{}}");
    expect(c,
           "\1<tool_call>\2{\"name\":\"f\",\"arguments\":{\"a\":\"</tool_call>\1<pad>\2\"}}\1</tool_call>\2",
           "F:f{\"a\":\"</tool_call><pad>\"};");
    expect(c, "\1<tool_call>\2{\"name\":\"f\",\"arguments\":{\"a\":\"x\1</tool_call>\2y",
           "F:f{\"a\":\"x\"};C:y");
    c.reasoning = "qwen3";
    c.specials = "<think></think><tool_call></tool_call><pad>";
    expect(c, "a </think> b\1<tool_call>\2{\"name\":\"f\",\"arguments\":{}}\1</tool_call>\2",
           "R:a </think> bF:f{};");
    c.drops_specials = true;
    expect(c, "a\1<pad>\2b\1</think>\2c\1<pad>\2", "R:abC:c");
}

TEST(a_choice_decides_what_is_a_call) {
    parse_case c = {.tools = "hermes", .choice = OUTPUT_CHOICE_NONE};
    expect(c, "<tool_call>{}", "C:<tool_call>{}");
    c = (parse_case){.tools = "granite4", .choice = OUTPUT_CHOICE_NAMED};
    expect(c, "{\"n\": 1}", "F:f{\"n\": 1};");
    c.choice = OUTPUT_CHOICE_REQUIRED;
    expect(c, "[{\"name\": \"f\", \"parameters\": {}}]", "F:f{};");
    c.choice = OUTPUT_CHOICE_AUTO;
    expect(c, "{\"n\": 1}", "C:{\"n\": 1}");
}

TEST(an_attempt_beyond_the_budget_is_content) {
    parse_case c = {.tools = "hermes", .max_held = 64};
    strbuf text = {0}, want = {0};
    assert_int_equal(strbuf_add_str(&text, "<tool_call>{\"arguments\": {\"a\": \""), QUIRE_OK);
    for (int i = 0; i < 300; i++) {
        assert_int_equal(strbuf_add_char(&text, 'x'), QUIRE_OK);
    }
    assert_int_equal(strbuf_add_str(&text, "\"}, \"name\": \"f\"}"), QUIRE_OK);
    assert_int_equal(strbuf_addf(&want, "C:%s", text.p), QUIRE_OK);
    expect(c, text.p, want.p);
    c.tools = "glm45"; /* a value that would be JSON is a string beyond the budget, so nothing is lost */
    strbuf_clear(&text);
    strbuf_clear(&want);
    assert_int_equal(
        strbuf_addf(&text, "<tool_call>f<arg_key>n</arg_key><arg_value>%0300d</arg_value></tool_call>", 7),
        QUIRE_OK);
    assert_int_equal(strbuf_addf(&want, "F:f{\"n\": \"%0300d\"};", 7), QUIRE_OK);
    expect(c, text.p, want.p);
    strbuf_deinit(&text);
    strbuf_deinit(&want);
}

/* Wherever the budget falls, the call's text and the content behind it are whole
 * characters, and no byte is lost. */
TEST(a_call_beyond_the_budget_ends_with_a_whole_character) {
    for (int n_ahead = 0; n_ahead < 4; n_ahead++) {
        parse_case c = {.tools = "functiongemma",
                        .max_held = 1,
                        .schema = "{\"properties\": {\"n\": {\"type\": \"integer\"}}}"};
        strbuf text = {0}, got = {0}, cut = {0};
        assert_int_equal(strbuf_addf(&text, "<start_function_call>call:f{n:<escape>%.*s", n_ahead, "xyz"),
                         QUIRE_OK);
        for (int i = 0; i < 100; i++) {
            assert_int_equal(strbuf_add_str(&text, "\u20ac<esc"), QUIRE_OK);
        }
        assert_int_equal(parse_text(&c, text.p, in_one, NULL, &got), QUIRE_OK);
        const char *behind = strstr(got.p, "\"};C:"), *call = "F:f{\"n\":\"";
        assert_non_null(behind);
        assert_int_equal(strncmp(got.p, call, strlen(call)), 0);
        assert_true(utf8_is_valid((str){got.p, (size_t)(behind - got.p)}) &&
                    utf8_is_valid(str_of(behind + 5)));
        size_t n_call = (size_t)(behind - got.p) - strlen(call);
        assert_int_equal(n_call + strlen(behind + 5), (size_t)n_ahead + 100 * strlen("\u20ac<esc"));
        assert_int_equal(parse_text(&c, text.p, by_characters, NULL, &cut), QUIRE_OK);
        assert_string_equal(cut.p, got.p);
        strbuf_deinit(&text);
        strbuf_deinit(&got);
        strbuf_deinit(&cut);
    }
}

TEST(a_server_s_name_is_no_function) {
    static const char text[] = "<server_name>s</server_name><arguments>{}</arguments>";
    expect(TOOLS("mcp_tags"), "<server_name>s</server_name><tool_name>f</tool_name><arguments>{}</arguments>",
           "F:f{};");
    expect(TOOLS("mcp_tags"), text, "C:<server_name>s</server_name><arguments>{}</arguments>");
}

TEST(arguments_come_before_they_are_whole) {
    output_tool tool = {.name = str_of("f")};
    output_options o = {.tools_format = "hermes", .tools = &tool, .n_tools = 1};
    output_parser *p;
    output_events e = {0};
    assert_int_equal(output_parser_open(&o, &p, NULL), QUIRE_OK);
    assert_int_equal(
        output_parser_feed(p, str_of("<tool_call>{\"name\":\"f\",\"arguments\":{\"a\":\"one tw"), false, &e),
        QUIRE_OK);
    assert_int_equal(e.n, 2);
    assert_int_equal(e.items[0].kind, OUTPUT_CALL_BEGIN);
    assert_true(str_is(output_event_text(&e, 1), "{\"a\":\"one tw"));
    output_events_deinit(&e);
    output_parser_close(p);
}

/* Whether a text has the form of a special token. */
static bool looks_special(const void *context, str text) {
    (void)context;
    return text.n > 2 && memchr("<[]", text.p[0], 3) != NULL &&
           memchr(">[]", text.p[text.n - 1], 3) != NULL && memchr(text.p, ' ', text.n) == NULL;
}

/* Whether all of a row's names find it; *n counts them. */
static bool has_its_names(const answer_format *f, bool is_reasoning, size_t *n) {
    for (size_t i = 0; i < FORMAT_NAMES && f->names[i] != NULL; i++, ++*n) {
        const char *name = f->names[i];
        if ((is_reasoning ? reasoning_format_named(name) : call_format_named(name)) != f) {
            return false;
        }
    }
    return true;
}

TEST(every_pair_of_formats_opens) {
    output_tool tool = {.name = str_of("f")};
    size_t n_calls = 0, n_reasonings = 0;
    quire_error err = {0};
    output_parser *p;
    const answer_format *f, *t;
    for (size_t i = 0; (f = call_format_at(i)) != NULL; i++) {
        assert_true(has_its_names(f, false, &n_calls));
        n_reasonings = 0;
        for (size_t k = 0; (t = reasoning_format_at(k)) != NULL; k++) {
            output_options o = {
                .tools_format = f->names[0], .reasoning_format = t->names[0], .tools = &tool, .n_tools = 1};
            assert_true(has_its_names(t, true, &n_reasonings));
            for (int specials = 0; specials < 2; specials++) {
                o.is_special = specials == 1 ? looks_special : NULL;
                assert_int_equal(output_parser_open(&o, &p, &err), QUIRE_OK);
                output_parser_close(p);
            }
        }
    }
    assert_true(n_calls >= 45 && n_reasonings >= 25);
}

TEST(a_format_that_does_not_exist_is_named) {
    quire_error err = {0};
    output_parser *p;
    assert_int_equal(output_parser_open(&(output_options){.tools_format = "nope"}, &p, &err), QUIRE_INVALID);
    assert_non_null(strstr(err.message, "nope"));
    assert_null(p);
    assert_int_equal(output_parser_open(&(output_options){.reasoning_format = "nope"}, &p, &err),
                     QUIRE_INVALID);
    assert_non_null(strstr(err.message, "nope"));
}

TEST(bytes_that_are_not_utf8_become_replacements) {
    expect(TOOLS("hermes"), "a\xFF<tool_call>\xFE{\xC3",
           "C:a\xEF\xBF\xBD<tool_call>\xEF\xBF\xBD{\xEF\xBF\xBD");
}

TEST(a_template_names_its_formats_by_its_marks) {
    static const struct {
        const char *text, *tools, *reasoning;
    } rows[] = {{"x", NULL, NULL},
                {"<tool_call>{{ c }}</tool_call><think>", "hermes", "qwen3"},
                {"<tool_call><function=", "qwen3_coder", NULL},
                {"<tool_call><arg_key></think>", "glm45", "deepseek_r1"},
                {"<|channel|>x<|message|>", "openai", "openai_gptoss"},
                {"[TOOL_CALLS][THINK]", "mistral", "mistral"}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        output_formats f = output_formats_of_template(str_of(rows[i].text));
        assert_true(f.tools == NULL ? rows[i].tools == NULL
                                    : rows[i].tools != NULL && strcmp(f.tools, rows[i].tools) == 0);
        assert_true(f.reasoning == NULL
                        ? rows[i].reasoning == NULL
                        : rows[i].reasoning != NULL && strcmp(f.reasoning, rows[i].reasoning) == 0);
    }
}

TEST(a_prompts_tail_says_how_the_answer_begins) {
    assert_int_equal(output_start_behind("qwen3", str_of("assistant\n<think>\n"), OUTPUT_START_UNKNOWN),
                     OUTPUT_START_REASONING);
    assert_int_equal(output_start_behind("qwen3", str_of("<think>\n\n</think>\n\n"), OUTPUT_START_UNKNOWN),
                     OUTPUT_START_CONTENT);
    assert_int_equal(output_start_behind("qwen3", str_of("<think>a</think> <think>"), OUTPUT_START_UNKNOWN),
                     OUTPUT_START_REASONING);
    assert_int_equal(output_start_behind("qwen3", str_of("assistant\n"), OUTPUT_START_UNKNOWN),
                     OUTPUT_START_UNKNOWN);
    assert_int_equal(output_start_behind(NULL, str_of("<think>"), OUTPUT_START_CONTENT),
                     OUTPUT_START_CONTENT);
}

TEST_MAIN(NULL, NULL)
