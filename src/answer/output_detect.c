#include "answer/output_detect.h"

#include "answer/output_format.h"

/* ---- by a template ---- */

typedef struct template_row {
    const char *marks[2]; /* the template has both, or the one that is not NULL */
    const char *format;
} template_row;

/* The first row counts, so marks that others contain stand first. */
static const template_row tool_rows[] = {
    {{"<|channel|>", "<|message|>"}, "openai"},
    {{"]<]minimax[>["}, "minimax_m3"},
    {{"<minimax:tool_call>"}, "minimax_m2"},
    {{"<seed:tool_call>"}, "seed_oss"},
    {{"<longcat_tool_call>"}, "longcat"},
    {{"<steptml:invoke"}, "step3"},
    {{"｜DSML｜", "function_calls>"}, "deepseek_v32"},
    {{"｜DSML｜", "tool_calls>"}, "deepseek_v4"},
    {{"<｜tool▁call▁begin｜>", "```json"}, "deepseek_v3"},
    {{"<｜tool▁call▁begin｜>"}, "deepseek_v31"},
    {{"<|tool_call_argument_begin|>"}, "kimi_k2"},
    {{"<arg_key>"}, "glm45"},
    {{"<|tool_call_start|>"}, "lfm2"},
    {{"<|tool_list_start|>"}, "lfm2"},
    {{"<|python_start|>"}, "llama4_pythonic"},
    {{"<|tools_prefix|>"}, "apertus"},
    {{"<start_function_call>"}, "functiongemma"},
    {{"<|tool_call>"}, "gemma4"},
    {{"<|tool_call|>"}, "granite"},
    {{"<|action_start|>", "<|plugin|>"}, "internlm"},
    {{"<|function_call|>"}, "gigachat3"},
    {{"function call<|role_sep|>"}, "gigachat3"},
    {{"'function call'", "add_tokens.role_sep"}, "gigachat3"},
    {{"[TOOL_CALLS]"}, "mistral"},
    {{"<|START_ACTION|>"}, "cohere_command"},
    {{"Action:\n```json"}, "command_r"},
    {{"Action:\\n```json"}, "command_r"},
    {{">>>${recipient}"}, "functionary_v32"},
    {{"<use_mcp_tool>"}, "mcp_tags"},
    {{"<tool_call>", "<function="}, "qwen3_coder"},
    {{"<function=", "</parameter>"}, "qwen3_coder"},
    {{"<function="}, "functionary_v31"},
    {{"<function_calls>"}, "olmo3"},
    {{"<tool_calls>"}, "hunyuan_a13b"},
    {{"<tool_call>"}, "hermes"},
    {{"<function_call>"}, "granite-20b-fc"},
    {{"functools"}, "phi4_mini_json"},
    {{"<|python_tag|>", "\"parameters\""}, "llama3_json"},
    {{"<|start_header_id|>", "\"parameters\""}, "llama3_json"},
};

static const template_row reasoning_rows[] = {
    {{"<|channel|>", "<|message|>"}, "openai_gptoss"},
    {{"<|channel>thought"}, "gemma4"},
    {{"<seed:think>"}, "seed_oss"},
    {{"[THINK]"}, "mistral"},
    {{"Here is my thought process:"}, "granite"},
    {{"<|START_THINKING|>"}, "cohere_command"},
    {{"[BEGIN FINAL RESPONSE]"}, "apriel"},
    {{"<thinking>"}, "apriel"},
    {{"<think>", "<answer>"}, "hunyuan_a13b"},
    {{"<think>", "<response>"}, "ernie45"},
    {{"<think>"}, "qwen3"},
    {{"</think>"}, "deepseek_r1"},
};

static const char *row_of(const template_row *rows, size_t n, str text) {
    for (size_t i = 0; i < n; i++) {
        const char *first = rows[i].marks[0], *second = rows[i].marks[1];
        if (str_contains(text, str_of(first)) && (second == NULL || str_contains(text, str_of(second)))) {
            return rows[i].format;
        }
    }
    return NULL;
}

output_formats output_formats_of_template(str chat_template) {
    return (output_formats){
        row_of(tool_rows, sizeof tool_rows / sizeof *tool_rows, chat_template),
        row_of(reasoning_rows, sizeof reasoning_rows / sizeof *reasoning_rows, chat_template)};
}

/* ---- by a prompt ---- */

/* Behind the last occurrence of a text; 0: none. */
static size_t last_end(str s, const char *text) {
    size_t n = text != NULL ? strlen(text) : 0;
    while (n > 0 && text[n - 1] == '\n') {
        n--;
    }
    for (size_t end = s.n; n > 0 && end >= n; end--) {
        if (memcmp(s.p + end - n, text, n) == 0) {
            return end;
        }
    }
    return 0;
}

output_start output_start_behind(const char *reasoning_format_name, str tail, output_start otherwise) {
    const reasoning_format *f =
        reasoning_format_name != NULL ? reasoning_format_named(reasoning_format_name) : NULL;
    size_t open = 0, close = 0;
    for (int i = 0; f != NULL && i < 2; i++) {
        size_t o = last_end(tail, f->open[i]), c = last_end(tail, f->close[i]);
        open = o > open ? o : open;
        close = c > close ? c : close;
    }
    return close > open ? OUTPUT_START_CONTENT : open > 0 ? OUTPUT_START_REASONING : otherwise;
}
