#include "answer/call_layout.h"

#include <ctype.h>

#include "answer/call_reader.h"

static const layout_tag lines = {"<parameter=", ">\n", "\n</parameter>", "\n", NULL},
                        plain = {"<parameter=", ">", "</parameter>", "\n", NULL},
                        glm45 = {"<arg_key>", "</arg_key>\n<arg_value>", "</arg_value>", "\n", NULL},
                        glm47 = {"<arg_key>", "</arg_key><arg_value>", "</arg_value>", "\n", NULL},
                        invoke = {"<parameter name=\"", "\">", "</parameter>", "\n", NULL},
                        step = {"<steptml:parameter name=\"", "\">", "</steptml:parameter>", "\n", NULL},
                        elements = {"]<]minimax[>[<", ">", "]<]minimax[>[</", "\n", NULL},
                        dsml = {"<｜DSML｜parameter name=\"", "\" string=\"false\">", "</｜DSML｜parameter>",
                                "\n", "\" string=\"true\">"};

#define NAMED  "{\"name\":~\""
#define ARGS   "\",~\"arguments\":~"
#define PARAMS "\",~\"parameters\":~"

#define SERVER   "<server_name>$</server_name>^<tool_name>"
#define MCP_ARGS "</tool_name>^<arguments>^"

static const call_layout layouts[] = {
    {"hermes", "<tool_call>", "^" NAMED, ARGS, "}^</tool_call>", "^<tool_call>^" NAMED, "", LAYOUT_JSON, 0,
     NULL},
    {"granite4", "<tool_call>", "^" NAMED, ARGS, "}^</tool_call>", "^<tool_call>^" NAMED, "", LAYOUT_JSON, 0,
     NULL},
    {"ernie45", "<tool_call>", "^" NAMED, ARGS, "}^</tool_call>", "^<tool_call>^" NAMED, "", LAYOUT_JSON, 0,
     NULL},
    {"longcat", "<longcat_tool_call>", "^" NAMED, ARGS, "}^</longcat_tool_call>",
     "^<longcat_tool_call>^" NAMED, "", LAYOUT_JSON, 0, NULL},
    {"granite", "<|tool_call|>", "~[" NAMED, ARGS, "}", ",~" NAMED, "]", LAYOUT_JSON, 0, NULL},
    {"granite", "<tool_call>", "~[" NAMED, ARGS, "}", ",~" NAMED, "]", LAYOUT_JSON, 0, NULL},
    {"granite-20b-fc", "<function_call>", "~" NAMED, ARGS, "}", "^<function_call>~" NAMED, "", LAYOUT_JSON, 0,
     NULL},
    {"phi4_mini_json", "functools[", NAMED, ARGS, "}", ",~" NAMED, "]", LAYOUT_JSON, 0, NULL},
    {"hunyuan_a13b", "<tool_calls>", "^[" NAMED, ARGS, "}", ",~" NAMED, "]^</tool_calls>", LAYOUT_JSON, 0,
     NULL},
    {"jamba", "<tool_calls>", "^[^" NAMED, ARGS, "}", ",~^" NAMED, "^]^</tool_calls>", LAYOUT_JSON, 0, NULL},
    {"internlm", "<|action_start|><|plugin|>", "^" NAMED, PARAMS, "}^<|action_end|>",
     "^<|action_start|><|plugin|>^" NAMED, "", LAYOUT_JSON, 0, NULL},
    {"gigachat3", "<|function_call|>", "^" NAMED, ARGS, "}", "<|function_call|>^" NAMED, "", LAYOUT_JSON, 0,
     NULL},
    {"gigachat3", "<|message_sep|>\n\nfunction call<|role_sep|>", "^" NAMED, ARGS, "}",
     "<|message_sep|>\n\nfunction call<|role_sep|>^" NAMED, "", LAYOUT_JSON, 0, NULL},
    {"gigachat3", "function call<|role_sep|>", "^" NAMED, ARGS, "}", "^function call<|role_sep|>^" NAMED, "",
     LAYOUT_JSON, 0, NULL},
    {"apertus", "<|tools_prefix|>", "[{\"", "\":~", "}", ",~{\"", "]<|tools_suffix|>", LAYOUT_JSON, 0, NULL},
    {"xlam", "[", NAMED, ARGS, "}", ",~" NAMED, "]", LAYOUT_JSON, LAYOUT_FIRST, NULL},
    {"llama3_json", "<|python_tag|>", NAMED, PARAMS, "}", ";~" NAMED, "", LAYOUT_JSON, 0, NULL},
    {"llama3_json", "{", "\"name\":~\"", PARAMS, "}", ";~" NAMED, "", LAYOUT_JSON, LAYOUT_FIRST, NULL},
    {"llama4_json", "<|python_tag|>", NAMED, PARAMS, "}", ";~" NAMED, "", LAYOUT_JSON, 0, NULL},
    {"llama4_json", "{", "\"name\":~\"", PARAMS, "}", ";~" NAMED, "", LAYOUT_JSON, LAYOUT_FIRST, NULL},
    {"json", "[", NAMED, ARGS, "}", ",~" NAMED, "]", LAYOUT_JSON, LAYOUT_FIRST, NULL},
    {"json", "{", "\"name\":~\"", ARGS, "}", ";~" NAMED, "", LAYOUT_JSON, LAYOUT_FIRST, NULL},
    {"minimax", "<tool_calls>", "^" NAMED, ARGS, "}", "\n" NAMED, "^</tool_calls>", LAYOUT_JSON, 0, NULL},
    {"mistral", "[TOOL_CALLS]", "", "[ARGS]", "", "[TOOL_CALLS]", "", LAYOUT_JSON, 0, NULL},
    {"mistral", "[TOOL_CALLS]", "", "[CALL_ID]%[ARGS]", "", "[TOOL_CALLS]", "", LAYOUT_JSON, 0, NULL},
    {"mistral", "[TOOL_CALLS]", "~[" NAMED, ARGS, "}", ",~" NAMED, "]", LAYOUT_JSON, 0, NULL},
    {"deepseek_v3", "<｜tool▁calls▁begin｜>", "<｜tool▁call▁begin｜>function<｜tool▁sep｜>", "\n```json\n",
     "\n```<｜tool▁call▁end｜>", "^<｜tool▁call▁begin｜>function<｜tool▁sep｜>", "<｜tool▁calls▁end｜>",
     LAYOUT_JSON, 0, NULL},
    {"deepseek_v31", "<｜tool▁calls▁begin｜>", "<｜tool▁call▁begin｜>", "<｜tool▁sep｜>",
     "<｜tool▁call▁end｜>", "^<｜tool▁call▁begin｜>", "<｜tool▁calls▁end｜>", LAYOUT_JSON, 0, NULL},
    {"kimi_k2", "<|tool_calls_section_begin|>", "^<|tool_call_begin|>functions.",
     ":#<|tool_call_argument_begin|>", "<|tool_call_end|>", "^<|tool_call_begin|>functions.",
     "^<|tool_calls_section_end|>", LAYOUT_JSON, 0, NULL},
    {"cohere_command", "<|START_ACTION|>", "^[^{\"tool_name\":~\"", PARAMS, "}", ",~^{\"tool_name\":~\"",
     "^]^<|END_ACTION|>", LAYOUT_JSON, 0, NULL},
    {"command_r", "Action:\n```json", "\n[^{\"tool_name\":~\"", PARAMS, "}", ",~^{\"tool_name\":~\"",
     "^]^```", LAYOUT_JSON, 0, NULL},
    {"functionary_v31", "<function=", "", ">", "</function>", "^<function=", "", LAYOUT_JSON, 0, NULL},
    {"functionary_v32", ">>>", "", "\n", "", ">>>", "", LAYOUT_JSON, LAYOUT_HEAD_FIRST, NULL},
    {"mcp_tags", "<use_mcp_tool>", "^" SERVER, MCP_ARGS, "^</arguments>", "^" SERVER, "^</use_mcp_tool>",
     LAYOUT_JSON, 0, NULL},
    {"mcp_tags", "<server_name>", "$</server_name>^<tool_name>", MCP_ARGS, "^</arguments>", "^" SERVER, "",
     LAYOUT_JSON, 0, NULL},
    {"qwen3_coder", "<tool_call>", "\n<function=", ">\n", "^</function>\n</tool_call>",
     "\n<tool_call>\n<function=", "", LAYOUT_TAGS, 0, &lines},
    {"qwen3_xml", "<tool_call>", "\n<function=", ">\n", "^</function>\n</tool_call>",
     "\n<tool_call>\n<function=", "", LAYOUT_TAGS, 0, &lines},
    {"step3p5", "<tool_call>", "\n<function=", ">\n", "^</function>\n</tool_call>",
     "\n<tool_call>\n<function=", "", LAYOUT_TAGS, 0, &lines},
    {"seed_oss", "<seed:tool_call>", "\n<function=", ">\n", "^</function>\n</seed:tool_call>",
     "\n<seed:tool_call>\n<function=", "", LAYOUT_TAGS, 0, &lines},
    {"mimo", "<tool_call>", "\n<function=", ">\n", "^</function>\n</tool_call>",
     "\n<tool_call>\n<function=", "", LAYOUT_TAGS, 0, &plain},
    {"glm45", "<tool_call>", "", "^", "^</tool_call>", "^<tool_call>", "", LAYOUT_TAGS, LAYOUT_GAPS, &glm45},
    {"glm47", "<tool_call>", "", "^", "^</tool_call>", "^<tool_call>", "", LAYOUT_TAGS, LAYOUT_GAPS, &glm47},
    {"deepseek_v32", "<｜DSML｜function_calls>", "^<｜DSML｜invoke name=\"", "\">^", "^</｜DSML｜invoke>",
     "^<｜DSML｜invoke name=\"", "^</｜DSML｜function_calls>", LAYOUT_TAGS, LAYOUT_GAPS, &dsml},
    {"deepseek_v4", "<｜DSML｜tool_calls>", "^<｜DSML｜invoke name=\"", "\">^", "^</｜DSML｜invoke>",
     "^<｜DSML｜invoke name=\"", "^</｜DSML｜tool_calls>", LAYOUT_TAGS, LAYOUT_GAPS, &dsml},
    {"minimax_m2", "<minimax:tool_call>", "^<invoke name=\"", "\">^", "^</invoke>", "^<invoke name=\"",
     "^</minimax:tool_call>", LAYOUT_TAGS, LAYOUT_GAPS, &invoke},
    {"step3", "<｜tool_calls_begin｜>", "^<｜tool_call_begin｜>function<｜tool_sep｜><steptml:invoke name=\"",
     "\">^", "^</steptml:invoke><｜tool_call_end｜>",
     "^<｜tool_call_begin｜>function<｜tool_sep｜><steptml:invoke name=\"", "^<｜tool_calls_end｜>",
     LAYOUT_TAGS, LAYOUT_GAPS, &step},
    {"minimax_m3", "]<]minimax[>[<tool_call>", "^]<]minimax[>[<invoke name=\"", "\">^",
     "^]<]minimax[>[</invoke>", "^]<]minimax[>[<invoke name=\"", "^]<]minimax[>[</tool_call>", LAYOUT_TAGS,
     LAYOUT_GAPS | LAYOUT_ELEMENTS, &elements},
    {"gemma4", "<|tool_call>", "call:", "", "<tool_call|>", "^<|tool_call>call:", "", LAYOUT_GEMMA, 0, NULL},
    {"functiongemma", "<start_function_call>", "call:", "", "<end_function_call>",
     "^<start_function_call>call:", "", LAYOUT_GEMMA, 0, NULL},
    {"pythonic", "[", "", "(", ")", ",~", "]", LAYOUT_PYTHON, LAYOUT_FIRST, NULL},
    {"llama4_pythonic", "<|python_start|>", "[", "(", ")", ",~", "]<|python_end|>", LAYOUT_PYTHON, 0, NULL},
    {"llama4_pythonic", "[", "", "(", ")", ",~", "]", LAYOUT_PYTHON, LAYOUT_FIRST, NULL},
    {"olmo3", "<function_calls>", "^", "(", ")", "\n", "^</function_calls>", LAYOUT_PYTHON, 0, NULL},
    {"lfm2", "<|tool_call_start|>", "[", "(", ")", ",~", "]<|tool_call_end|>", LAYOUT_PYTHON, 0, NULL},
    {"openai", "<|channel|>", "commentary to=functions.", " <|constrain|>json<|message|>", "", NULL,
     "<|call|>", LAYOUT_JSON, LAYOUT_ONCE | LAYOUT_ENDS_EARLY, NULL},
    {"openai", "<|channel|>", "commentary to=functions.", "<|message|>", "", NULL, "<|call|>", LAYOUT_JSON,
     LAYOUT_ONCE | LAYOUT_ENDS_EARLY, NULL},
};

const call_layout *call_layout_at(size_t i) {
    return i < sizeof layouts / sizeof *layouts ? &layouts[i] : NULL;
}

/* Whether a head that ends in this name reads as a name with a call's number. */
static bool is_numbered(str name) {
    size_t n = name.n;
    while (n > 0 && isdigit((unsigned char)name.p[n - 1])) {
        n--;
    }
    return n > 0 && n < name.n && name.p[n - 1] == ':';
}

static bool is_python_name(str name) {
    bool fits = !isdigit((unsigned char)name.p[0]) && strchr(".-", name.p[0]) == NULL;
    for (size_t i = 0; fits && i < name.n; i++) {
        unsigned char c = (unsigned char)name.p[i];
        fits = isalnum(c) || c >= 0x80 || strchr("_.-", c) != NULL;
    }
    return fits;
}

bool call_layout_is_name(str name) {
    return call_is_name(name);
}

bool call_layout_takes(const call_layout *l, str name) {
    bool has_head = (call_format_named(l->format)->flags & (FORMAT_HEAD | FORMAT_HEAD_OR_JSON)) != 0;
    if (!call_is_name(name) || (has_head && l->name_end[0] != ':' && is_numbered(name))) {
        return false;
    }
    if ((l->flags & LAYOUT_HEAD_FIRST) != 0 && str_is(name, "all")) { /* the head of content */
        return false;
    }
    return l->arguments != LAYOUT_PYTHON || is_python_name(name);
}

const char *call_layout_never(const call_format *f, size_t i, bool *first) {
    bool has_next = false;
    size_t n = 0;
    for (int k = 0; k < FORMAT_MARKS && f->marks[k].text != NULL; k++) {
        has_next = has_next || f->marks[k].role == ROLE_NEXT;
    }
    *first = false;
    for (int k = 0; k < FORMAT_MARKS && f->marks[k].text != NULL; k++) {
        const format_mark *m = &f->marks[k];
        bool ends = m->role == ROLE_VALUE_END || m->role == ROLE_TAG || m->role == ROLE_NEXT ||
                    (has_next && m->role == ROLE_END);
        if (ends && n++ == i) {
            return m->text;
        }
        if (m->role == ROLE_NEXT && n++ == i) { /* behind the newline before a value */
            *first = true;
            return m->text + 1;
        }
    }
    return NULL;
}
