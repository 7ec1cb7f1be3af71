#include "chat/output_format.h"

#define M(role, text)                                                                                                                      \
    { ROLE_##role, text }

/* Rows of the same syntax stand together. Names are those of vLLM's --tool-call-parser. */
static const call_format formats[] = {
    {"hermes", SYNTAX_JSON, 0, {M(OPEN, "<tool_call>"), M(CLOSE, "</tool_call>")}},
    {"granite4", SYNTAX_JSON, FORMAT_FORCED_JSON, {M(OPEN, "<tool_call>"), M(CLOSE, "</tool_call>")}},
    {"ernie45", SYNTAX_JSON, 0, {M(OPEN, "<tool_call>"), M(CLOSE, "</tool_call>"), M(DROP, "<response>"), M(DROP, "</response>")}},
    {"longcat", SYNTAX_JSON, 0, {M(OPEN, "<longcat_tool_call>"), M(CLOSE, "</longcat_tool_call>")}},
    {"granite", SYNTAX_JSON, 0, {M(OPEN, "<|tool_call|>"), M(OPEN, "<tool_call>")}},
    {"granite-20b-fc", SYNTAX_JSON, 0, {M(OPEN, "<function_call>")}},
    {"phi4_mini_json", SYNTAX_JSON, 0, {M(OPEN, "functools")}},
    {"hunyuan_a13b", SYNTAX_JSON, 0, {M(OPEN, "<tool_calls>"), M(CLOSE, "</tool_calls>")}},
    {"jamba", SYNTAX_JSON, FORMAT_FORCED_JSON, {M(OPEN, "<tool_calls>"), M(CLOSE, "</tool_calls>")}},
    {"internlm", SYNTAX_JSON, 0, {M(OPEN, "<|action_start|><|plugin|>"), M(CLOSE, "<|action_end|>")}},
    {"gigachat3",
     SYNTAX_JSON,
     0,
     {M(OPEN, "<|message_sep|>\n\nfunction call<|role_sep|>"), M(OPEN, "function call<|role_sep|>"), M(OPEN, "<|function_call|>")}},
    {"apertus", SYNTAX_JSON, FORMAT_KEYED, {M(OPEN, "<|tools_prefix|>"), M(CLOSE, "<|tools_suffix|>")}},
    {"xlam",
     SYNTAX_JSON,
     FORMAT_BARE,
     {M(OPEN, "<tool_call>"), M(CLOSE, "</tool_call>"), M(OPEN, "[TOOL_CALLS]"), M(OPEN, "```json"), M(CLOSE, "```")}},
    {"llama3_json", SYNTAX_JSON, FORMAT_BARE | FORMAT_SEMICOLON, {M(OPEN, "<|python_tag|>")}},
    {"llama4_json", SYNTAX_JSON, FORMAT_BARE | FORMAT_SEMICOLON, {M(OPEN, "<|python_tag|>")}},
    {"json", SYNTAX_JSON, FORMAT_BARE | FORMAT_SEMICOLON, {M(OPEN, "```json"), M(CLOSE, "```")}},
    {"minimax", SYNTAX_JSON, FORMAT_BARE | FORMAT_IN_SECTION, {M(SECTION, "<tool_calls>"), M(SECTION_END, "</tool_calls>")}},
    {"mistral", SYNTAX_JSON, FORMAT_HEAD_OR_JSON, {M(OPEN, "[TOOL_CALLS]"), M(HEAD, "[CALL_ID]"), M(HEAD, "[ARGS]")}},
    {"deepseek_v3",
     SYNTAX_JSON,
     FORMAT_HEAD,
     {M(SECTION, "<｜tool▁calls▁begin｜>"), M(SECTION_END, "<｜tool▁calls▁end｜>"), M(OPEN, "<｜tool▁call▁begin｜>"),
      M(CLOSE, "<｜tool▁call▁end｜>"), M(HEAD, "<｜tool▁sep｜>"), M(CLOSE, "```")}},
    {"deepseek_v31",
     SYNTAX_JSON,
     FORMAT_HEAD,
     {M(SECTION, "<｜tool▁calls▁begin｜>"), M(SECTION_END, "<｜tool▁calls▁end｜>"), M(OPEN, "<｜tool▁call▁begin｜>"),
      M(CLOSE, "<｜tool▁call▁end｜>"), M(HEAD, "<｜tool▁sep｜>")}},
    {"kimi_k2",
     SYNTAX_JSON,
     FORMAT_HEAD,
     {M(SECTION, "<|tool_calls_section_begin|>"), M(SECTION_END, "<|tool_calls_section_end|>"), M(OPEN, "<|tool_call_begin|>"),
      M(CLOSE, "<|tool_call_end|>"), M(HEAD, "<|tool_call_argument_begin|>")}},

    /* Formats of templates that vLLM has no parser for. */
    {"cohere_command",
     SYNTAX_JSON,
     0,
     {M(OPEN, "<|START_ACTION|>"), M(CLOSE, "<|END_ACTION|>"), M(DROP, "<|START_RESPONSE|>"), M(DROP, "<|END_RESPONSE|>"),
      M(DROP, "<|START_TEXT|>"), M(DROP, "<|END_TEXT|>")}},
    {"command_r", SYNTAX_JSON, 0, {M(OPEN, "Action:\n```json"), M(CLOSE, "```")}},
    {"functionary_v31", SYNTAX_JSON, FORMAT_HEAD, {M(OPEN, "<function="), M(HEAD, ">"), M(CLOSE, "</function>")}},
    {"functionary_v32", SYNTAX_JSON, FORMAT_HEAD | FORMAT_HEAD_FIRST, {M(OPEN, ">>>")}},
    {"mcp_tags",
     SYNTAX_JSON,
     FORMAT_HEAD,
     {M(SECTION, "<use_mcp_tool>"), M(SECTION_END, "</use_mcp_tool>"), M(OPEN, "<server_name>"), M(HEAD, "</server_name>"),
      M(CLOSE, "</arguments>")}},

    {"qwen3_coder",
     SYNTAX_TAGS,
     FORMAT_VALUE_LINES,
     {M(SECTION, "<tool_call>"), M(SECTION_END, "</tool_call>"), M(OPEN, "<function="), M(NAME_END, ">"), M(PARAMETER, "<parameter="),
      M(VALUE_END, "</parameter>"), M(NEXT, "\n<parameter="), M(END, "</function>")}},
    {"qwen3_xml",
     SYNTAX_TAGS,
     FORMAT_VALUE_LINES,
     {M(SECTION, "<tool_call>"), M(SECTION_END, "</tool_call>"), M(OPEN, "<function="), M(NAME_END, ">"), M(PARAMETER, "<parameter="),
      M(VALUE_END, "</parameter>"), M(NEXT, "\n<parameter="), M(END, "</function>")}},
    {"step3p5",
     SYNTAX_TAGS,
     FORMAT_VALUE_LINES,
     {M(SECTION, "<tool_call>"), M(SECTION_END, "</tool_call>"), M(OPEN, "<function="), M(NAME_END, ">"), M(PARAMETER, "<parameter="),
      M(VALUE_END, "</parameter>"), M(NEXT, "\n<parameter="), M(END, "</function>")}},
    {"seed_oss",
     SYNTAX_TAGS,
     FORMAT_VALUE_LINES,
     {M(SECTION, "<seed:tool_call>"), M(SECTION_END, "</seed:tool_call>"), M(OPEN, "<function="), M(NAME_END, ">"),
      M(PARAMETER, "<parameter="), M(VALUE_END, "</parameter>"), M(NEXT, "\n<parameter="), M(END, "</function>")}},
    {"mimo",
     SYNTAX_TAGS,
     0,
     {M(SECTION, "<tool_call>"), M(SECTION_END, "</tool_call>"), M(OPEN, "<function="), M(NAME_END, ">"), M(PARAMETER, "<parameter="),
      M(VALUE_END, "</parameter>"), M(END, "</function>")}},
    {"glm45",
     SYNTAX_TAGS,
     FORMAT_NAME_TO_TAG,
     {M(OPEN, "<tool_call>"), M(PARAMETER, "<arg_key>"), M(NAME_END, "</arg_key>"), M(VALUE, "<arg_value>"), M(VALUE_END, "</arg_value>"),
      M(END, "</tool_call>")}},
    {"glm47",
     SYNTAX_TAGS,
     FORMAT_NAME_TO_TAG,
     {M(OPEN, "<tool_call>"), M(PARAMETER, "<arg_key>"), M(NAME_END, "</arg_key>"), M(VALUE, "<arg_value>"), M(VALUE_END, "</arg_value>"),
      M(END, "</tool_call>")}},
    {"deepseek_v32",
     SYNTAX_TAGS,
     FORMAT_IN_SECTION,
     {M(SECTION, "<｜DSML｜function_calls>"), M(SECTION_END, "</｜DSML｜function_calls>"), M(OPEN, "<｜DSML｜invoke name="),
      M(NAME_END, ">"), M(PARAMETER, "<｜DSML｜parameter name="), M(VALUE_END, "</｜DSML｜parameter>"), M(END, "</｜DSML｜invoke>")}},
    {"deepseek_v4",
     SYNTAX_TAGS,
     FORMAT_IN_SECTION,
     {M(SECTION, "<｜DSML｜tool_calls>"), M(SECTION_END, "</｜DSML｜tool_calls>"), M(OPEN, "<｜DSML｜invoke name="), M(NAME_END, ">"),
      M(PARAMETER, "<｜DSML｜parameter name="), M(VALUE_END, "</｜DSML｜parameter>"), M(END, "</｜DSML｜invoke>")}},
    {"minimax_m2",
     SYNTAX_TAGS,
     FORMAT_IN_SECTION,
     {M(SECTION, "<minimax:tool_call>"), M(SECTION_END, "</minimax:tool_call>"), M(OPEN, "<invoke name="), M(NAME_END, ">"),
      M(PARAMETER, "<parameter name="), M(VALUE_END, "</parameter>"), M(END, "</invoke>")}},
    {"step3",
     SYNTAX_TAGS,
     FORMAT_IN_SECTION,
     {M(SECTION, "<｜tool_calls_begin｜>"), M(SECTION_END, "<｜tool_calls_end｜>"),
      M(SECTION, "<｜tool_call_begin｜>function<｜tool_sep｜>"), M(CLOSE, "<｜tool_call_end｜>"), M(OPEN, "<steptml:invoke name="),
      M(NAME_END, ">"), M(PARAMETER, "<steptml:parameter name="), M(VALUE_END, "</steptml:parameter>"), M(END, "</steptml:invoke>")}},

    {"minimax_m3",
     SYNTAX_ELEMENTS,
     FORMAT_IN_SECTION,
     {M(SECTION, "]<]minimax[>[<tool_call>"), M(SECTION_END, "]<]minimax[>[</tool_call>"), M(OPEN, "]<]minimax[>[<invoke name="),
      M(TAG, "]<]minimax[>[")}},

    {"gemma4", SYNTAX_GEMMA, 0, {M(OPEN, "<|tool_call>"), M(CLOSE, "<tool_call|>"), M(QUOTE, "<|\"|>")}},
    {"functiongemma",
     SYNTAX_GEMMA,
     FORMAT_TYPED_QUOTES,
     {M(OPEN, "<start_function_call>"), M(CLOSE, "<end_function_call>"), M(QUOTE, "<escape>")}},

    {"pythonic", SYNTAX_PYTHON, FORMAT_BARE_FIRST, {{ROLE_NONE, NULL}}},
    {"llama4_pythonic", SYNTAX_PYTHON, FORMAT_BARE_FIRST, {M(OPEN, "<|python_start|>"), M(CLOSE, "<|python_end|>")}},
    {"olmo3", SYNTAX_PYTHON, FORMAT_LINES, {M(OPEN, "<function_calls>"), M(CLOSE, "</function_calls>")}},
    {"lfm2", SYNTAX_PYTHON, 0, {M(OPEN, "<|tool_call_start|>"), M(CLOSE, "<|tool_call_end|>")}},

    {"openai",
     SYNTAX_HARMONY,
     0,
     {M(START, "<|start|>"), M(CHANNEL, "<|channel|>"), M(CONSTRAIN, "<|constrain|>"), M(MESSAGE, "<|message|>"), M(MESSAGE_END, "<|end|>"),
      M(MESSAGE_END, "<|return|>"), M(MESSAGE_END, "<|call|>")}},
};

/* Names are those of vLLM's --reasoning-parser. */
static const reasoning_format reasonings[] = {
    {"deepseek_r1", REASONING_FIRST, {"<think>"}, {"</think>"}, {NULL}},
    {"deepseek_v3", REASONING_FIRST, {"<think>"}, {"</think>"}, {NULL}},
    {"deepseek_v4", REASONING_FIRST, {"<think>"}, {"</think>"}, {NULL}},
    {"qwen3", REASONING_FIRST, {"<think>"}, {"</think>"}, {NULL}},
    {"glm45", REASONING_FIRST, {"<think>"}, {"</think>"}, {NULL}},
    {"kimi_k2", REASONING_FIRST, {"<think>"}, {"</think>"}, {NULL}},
    {"minimax_m2", REASONING_FIRST, {"<think>"}, {"</think>"}, {NULL}},
    {"minimax_m2_append_think", REASONING_KEPT, {"<think>"}, {"</think>"}, {NULL}},
    {"olmo3", REASONING_FIRST, {"<think>"}, {"</think>"}, {NULL}},
    {"ernie45", REASONING_FIRST, {"<think>"}, {"</think>"}, {"<response>", "</response>"}},
    {"step3", REASONING_FIRST, {"<think>"}, {"</think>"}, {NULL}},
    {"step3p5", REASONING_FIRST, {"<think>"}, {"</think>"}, {NULL}},
    {"nemotron_v3", REASONING_FIRST, {"<think>"}, {"</think>"}, {NULL}},
    {"granite_thinking_parser", REASONING_FIRST, {"<think>"}, {"</think>"}, {NULL}},
    {"holo2", REASONING_FIRST, {"<think>"}, {"</think>"}, {NULL}},
    {"mimo", REASONING_FIRST, {"<think>"}, {"</think>"}, {NULL}},
    {"ling3", REASONING_FIRST, {"<think>"}, {"</think>"}, {NULL}},
    {"seed_oss", REASONING_FIRST, {"<seed:think>"}, {"</seed:think>"}, {NULL}},
    {"hunyuan_a13b", REASONING_MARKED, {"<think>"}, {"</think>"}, {"<answer>", "</answer>"}},
    {"mistral", REASONING_MARKED, {"[THINK]"}, {"[/THINK]"}, {NULL}},
    {"gemma4", REASONING_MARKED, {"<|channel>thought\n"}, {"<channel|>"}, {NULL}},
    {"granite",
     REASONING_MARKED,
     {"Here is my thought process:", "Here's my thought process:"},
     {"Here is my response:", "Here's my response:"},
     {NULL}},
    {"cohere_command",
     REASONING_MARKED,
     {"<|START_THINKING|>"},
     {"<|END_THINKING|>"},
     {"<|START_RESPONSE|>", "<|END_RESPONSE|>", "<|START_TEXT|>", "<|END_TEXT|>"}},
    {"apriel",
     REASONING_MARKED,
     {"<thinking>", "Here are my reasoning steps:"},
     {"</thinking>", "[BEGIN FINAL RESPONSE]"},
     {"[END FINAL RESPONSE]"}},
    {"openai_gptoss", REASONING_HARMONY, {NULL}, {NULL}, {NULL}},
};

const call_format *call_format_at(size_t i) {
    return i < sizeof formats / sizeof *formats ? &formats[i] : NULL;
}

const reasoning_format *reasoning_format_at(size_t i) {
    return i < sizeof reasonings / sizeof *reasonings ? &reasonings[i] : NULL;
}

const call_format *call_format_named(const char *name) {
    const call_format *f = NULL;
    for (size_t i = 0; (f = call_format_at(i)) != NULL && strcmp(f->name, name) != 0; i++) {
    }
    return f;
}

const reasoning_format *reasoning_format_named(const char *name) {
    const reasoning_format *f = NULL;
    for (size_t i = 0; (f = reasoning_format_at(i)) != NULL && strcmp(f->name, name) != 0; i++) {
    }
    return f;
}
