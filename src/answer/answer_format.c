#include "answer/answer_format.h"

#include <assert.h>

/* clang-format off */

/* ---- the notation of writings (answer_format.h) ---- */

#define NAME      "\x01"
#define ARGUMENTS "\x02"
#define KEY       "\x03"
#define VALUE     "\x04"
#define ID        "\x05"
#define NUMBER    "\x06"
#define WORD      "\x07"
#define IS_TEXT   "\x08"
#define TEXT      "\x0b"
#define ANSWER    "\x0c"
#define SP        "\x0e"
#define NL        "\x0f"
#define CALLS     "\x10"
#define PART      "\x11"
#define EACH      "\x12"
#define BETWEEN   "\x13"
#define END       "\x14"
#define READS     "\x15"
#define WITH      "\x16"

/* JSON: the members of a call, a call, and a list of them. */
#define MEMBERS(name, arguments) "\"" name "\":" SP "\"" NAME "\"," SP "\"" arguments "\":" SP ARGUMENTS "}"
#define OBJECT(name, arguments)  "{" MEMBERS(name, arguments)
#define CALL                     OBJECT("name", "arguments")
#define REST_OF_LIST             EACH CALL BETWEEN "," SP END "]"
#define LIST                     "[" REST_OF_LIST
#define LINE(open, call, close)  EACH open CALLS NL call NL close BETWEEN NL END

#define DEEPSEEK(before, middle, after) \
    "<｜tool▁calls▁begin｜>" CALLS \
    EACH "<｜tool▁call▁begin｜>" PART before NAME middle ARGUMENTS after "<｜tool▁call▁end｜>" BETWEEN NL END \
    "<｜tool▁calls▁end｜>"
#define DEEPSEEK_V3  DEEPSEEK("function<｜tool▁sep｜>", "\n```json\n", "\n```" PART)
#define DEEPSEEK_V31 DEEPSEEK("", "<｜tool▁sep｜>", "")

#define MCP(calls) \
    NL "<server_name>" calls WORD "</server_name>" NL "<tool_name>" NAME "</tool_name>" NL \
    "<arguments>" NL ARGUMENTS NL "</arguments>"

/* Tags: <function=NAME> with parameters. */
#define FUNCTION(open, value, close) \
    EACH open CALLS "\n<function=" NAME ">\n" \
    EACH "<parameter=" KEY ">" value "</parameter>" BETWEEN "\n" END \
    NL "</function>" PART "\n" close BETWEEN "\n" END
#define FUNCTION_LINES(open, close) \
    {FUNCTION(open, "\n" VALUE "\n", close), READS VALUE "\n<parameter=" KEY}

#define GLM(middle) \
    EACH "<tool_call>" CALLS NAME NL \
    EACH "<arg_key>" KEY "</arg_key>" PART middle "<arg_value>" VALUE "</arg_value>" BETWEEN NL END \
    NL "</tool_call>" BETWEEN NL END

#define INVOKE(section, before, tag, type, after) \
    "<" section ">" CALLS \
    EACH NL before "<" tag "invoke name=\"" NAME "\">" NL \
    EACH "<" tag "parameter name=\"" KEY "\"" type ">" VALUE "</" tag "parameter>" BETWEEN NL END \
    NL "</" tag "invoke>" after BETWEEN END NL
#define DSML(section) INVOKE(section, "", "｜DSML｜", " string=\"" IS_TEXT "\"", "") "</" section ">"

#define M3 "]<]minimax[>["

#define GEMMA(open, quote, close) \
    EACH open CALLS "call:" NAME "{" EACH KEY ":" quote VALUE quote BETWEEN "," END "}" close BETWEEN NL END

#define PYTHON      NAME "(" EACH KEY "=" VALUE BETWEEN "," SP END ")"
#define PYTHON_LIST EACH PYTHON BETWEEN "," SP END "]"

#define HARMONY_CALL "<|channel|>" CALLS "commentary to=functions." NAME

#define THINK "<think>" TEXT "</think>"

/* ---- the table ---- */

/* The first row whose marks a template contains is chosen, so rows whose marks include
 * those of others come first. */
static const answer_format formats[] = {
    {{"openai"}, SYNTAX_HARMONY, 0,
     {HARMONY_CALL " <|constrain|>json<|message|>" ARGUMENTS "<|call|>",
      HARMONY_CALL "<|message|>" ARGUMENTS "<|call|>"},
     {"<|channel|>" WITH "<|message|>"}},
    {{"minimax_m3"}, SYNTAX_ELEMENTS, FORMAT_IN_SECTION,
     {M3 "<tool_call>" CALLS
      EACH NL M3 "<invoke name=\"" NAME "\">" NL
      EACH M3 "<" KEY ">" VALUE M3 "</" KEY ">" BETWEEN NL END
      NL M3 "</invoke>" BETWEEN END NL M3 "</tool_call>"},
     {M3}},
    {{"minimax_m2"}, SYNTAX_TAGS, FORMAT_IN_SECTION,
     {INVOKE("minimax:tool_call", "", "", "", "") "</minimax:tool_call>"}, {NULL}},
    {{"seed_oss"}, SYNTAX_TAGS, 0, FUNCTION_LINES("<seed:tool_call>", "</seed:tool_call>"), {NULL}},
    {{"longcat"}, SYNTAX_JSON, 0, {LINE("<longcat_tool_call>", CALL, "</longcat_tool_call>")}, {NULL}},
    {{"step3"}, SYNTAX_TAGS, FORMAT_IN_SECTION,
     {INVOKE("｜tool_calls_begin｜", "<｜tool_call_begin｜>function<｜tool_sep｜>" PART, "steptml:", "",
             PART "<｜tool_call_end｜>") "<｜tool_calls_end｜>"},
     {"<steptml:invoke"}},
    {{"deepseek_v32"}, SYNTAX_TAGS, FORMAT_IN_SECTION, {DSML("｜DSML｜function_calls")},
     {"｜DSML｜" WITH "function_calls>"}},
    {{"deepseek_v4"}, SYNTAX_TAGS, FORMAT_IN_SECTION, {DSML("｜DSML｜tool_calls")},
     {"｜DSML｜" WITH "tool_calls>"}},
    {{"deepseek_v3"}, SYNTAX_JSON, 0, {DEEPSEEK_V3, READS DEEPSEEK_V31},
     {"<｜tool▁call▁begin｜>" WITH "```json"}},
    {{"deepseek_v31"}, SYNTAX_JSON, 0, {READS DEEPSEEK("function<｜tool▁sep｜>", "", ""), DEEPSEEK_V31},
     {"<｜tool▁call▁begin｜>"}},
    {{"kimi_k2"}, SYNTAX_JSON, 0,
     {"<|tool_calls_section_begin|>" CALLS
      EACH NL "<|tool_call_begin|>" PART "functions." NAME ":" NUMBER "<|tool_call_argument_begin|>" ARGUMENTS
      "<|tool_call_end|>" BETWEEN END NL "<|tool_calls_section_end|>"},
     {"<|tool_call_argument_begin|>"}},
    {{"glm45"}, SYNTAX_TAGS, 0, {GLM("\n")}, {"<arg_key>"}},
    {{"glm47"}, SYNTAX_TAGS, 0, {GLM("")}, {"<arg_key>"}},
    {{"lfm2"}, SYNTAX_PYTHON, 0, {"<|tool_call_start|>" CALLS "[" PYTHON_LIST "<|tool_call_end|>"},
     {"<|tool_call_start|>", "<|tool_list_start|>"}},
    {{"llama4_pythonic"}, SYNTAX_PYTHON, 0,
     {"<|python_start|>" CALLS "[" PYTHON_LIST "<|python_end|>", "[" CALLS PYTHON_LIST}, {NULL}},
    {{"apertus"}, SYNTAX_JSON, 0,
     {"<|tools_prefix|>" CALLS "[" EACH "{\"" NAME "\":" SP ARGUMENTS "}" BETWEEN "," SP END
      "]<|tools_suffix|>"},
     {NULL}},
    {{"functiongemma"}, SYNTAX_GEMMA, FORMAT_TYPED_QUOTES,
     {GEMMA("<start_function_call>", "<escape>", "<end_function_call>")}, {NULL}},
    {{"gemma4"}, SYNTAX_GEMMA, 0, {GEMMA("<|tool_call>", "<|\"|>", "<tool_call|>")}, {NULL}},
    {{"granite"}, SYNTAX_JSON, 0, {"<|tool_call|>" CALLS SP LIST, "<tool_call>" CALLS SP LIST}, {NULL}},
    {{"internlm"}, SYNTAX_JSON, 0,
     {LINE("<|action_start|><|plugin|>", OBJECT("name", "parameters"), "<|action_end|>")},
     {"<|action_start|>" WITH "<|plugin|>"}},
    {{"gigachat3"}, SYNTAX_JSON, 0,
     {EACH "<|function_call|>" CALLS NL CALL BETWEEN END,
      EACH "<|message_sep|>\n\nfunction call<|role_sep|>" CALLS NL CALL BETWEEN END,
      EACH "function call<|role_sep|>" CALLS NL CALL BETWEEN NL END},
     {"<|function_call|>", "function call<|role_sep|>", "'function call'" WITH "add_tokens.role_sep"}},
    {{"mistral"}, SYNTAX_JSON, 0,
     {EACH "[TOOL_CALLS]" CALLS NAME "[ARGS]" ARGUMENTS BETWEEN END,
      EACH "[TOOL_CALLS]" CALLS NAME "[CALL_ID]" ID "[ARGS]" ARGUMENTS BETWEEN END,
      "[TOOL_CALLS]" CALLS SP LIST},
     {NULL}},
    {{"cohere_command"}, SYNTAX_JSON, 0,
     {"<|START_ACTION|>" CALLS NL "[" EACH NL OBJECT("tool_name", "parameters") BETWEEN "," SP END
      NL "]" NL "<|END_ACTION|>",
      READS "<|START_RESPONSE|>" ANSWER "<|END_RESPONSE|>",
      READS "<|START_TEXT|>" ANSWER "<|END_TEXT|>"},
     {NULL}},
    {{"command_r"}, SYNTAX_JSON, 0,
     {"Action:\n```json" CALLS "\n[" EACH NL OBJECT("tool_name", "parameters") BETWEEN "," SP END
      NL "]" NL "```"},
     {"Action:\n```json", "Action:\\n```json"}},
    {{"functionary_v32"}, SYNTAX_JSON, FORMAT_HEAD_FIRST,
     {EACH ">>>" CALLS NAME "\n" ARGUMENTS BETWEEN END}, {">>>${recipient}"}},
    {{"mcp_tags"}, SYNTAX_JSON, 0,
     {"<use_mcp_tool>" CALLS EACH MCP("") BETWEEN END NL "</use_mcp_tool>", EACH MCP(CALLS) BETWEEN END},
     {NULL}},
    {{"qwen3_coder", "qwen3_xml", "step3p5"}, SYNTAX_TAGS, 0, FUNCTION_LINES("<tool_call>", "</tool_call>"),
     {"<tool_call>" WITH "<function=", "<function=" WITH "</parameter>"}},
    {{"functionary_v31"}, SYNTAX_JSON, 0,
     {EACH "<function=" CALLS NAME ">" ARGUMENTS "</function>" BETWEEN NL END}, {NULL}},
    {{"olmo3"}, SYNTAX_PYTHON, 0,
     {"<function_calls>" CALLS NL EACH PYTHON BETWEEN "\n" END NL "</function_calls>"}, {NULL}},
    {{"hunyuan_a13b"}, SYNTAX_JSON, 0, {"<tool_calls>" CALLS NL LIST NL "</tool_calls>"}, {NULL}},
    {{"hermes"}, SYNTAX_JSON, 0, {LINE("<tool_call>", CALL, "</tool_call>")}, {NULL}},
    {{"granite-20b-fc"}, SYNTAX_JSON, 0, {EACH "<function_call>" CALLS SP CALL BETWEEN NL END}, {NULL}},
    {{"phi4_mini_json"}, SYNTAX_JSON, 0, {"functools[" CALLS REST_OF_LIST}, {"functools"}},
    {{"llama3_json", "llama4_json"}, SYNTAX_JSON, 0,
     {"<|python_tag|>" CALLS EACH OBJECT("name", "parameters") BETWEEN ";" SP END,
      EACH "{" CALLS MEMBERS("name", "parameters") BETWEEN ";" SP END},
     {"<|python_tag|>" WITH "\"parameters\"", "<|start_header_id|>" WITH "\"parameters\""}},

    /* Formats that no template identifies: their marks are those of a row above, or
     * none. */
    {{"granite4"}, SYNTAX_JSON, FORMAT_FORCED_JSON, {LINE("<tool_call>", CALL, "</tool_call>")}, {NULL}},
    {{"ernie45"}, SYNTAX_JSON, 0,
     {LINE("<tool_call>", CALL, "</tool_call>"), READS "<response>" ANSWER "</response>"}, {NULL}},
    {{"mimo"}, SYNTAX_TAGS, 0, {FUNCTION("<tool_call>", VALUE, "</tool_call>")}, {NULL}},
    {{"jamba"}, SYNTAX_JSON, FORMAT_FORCED_JSON,
     {"<tool_calls>" CALLS NL "[" EACH NL CALL BETWEEN "," SP END NL "]" NL "</tool_calls>"}, {NULL}},
    {{"minimax"}, SYNTAX_JSON, FORMAT_IN_SECTION,
     {"<tool_calls>" CALLS NL EACH CALL BETWEEN "\n" END NL "</tool_calls>"}, {NULL}},
    {{"xlam"}, SYNTAX_JSON, 0,
     {"[" CALLS REST_OF_LIST, READS "<tool_call>" CALLS ARGUMENTS "</tool_call>",
      READS "[TOOL_CALLS]" CALLS, READS "```json" CALLS ARGUMENTS "```"},
     {NULL}},
    {{"json"}, SYNTAX_JSON, 0,
     {"[" CALLS REST_OF_LIST, EACH "{" CALLS MEMBERS("name", "arguments") BETWEEN ";" SP END,
      READS "```json" CALLS ARGUMENTS "```"},
     {NULL}},
    {{"pythonic"}, SYNTAX_PYTHON, 0, {"[" CALLS PYTHON_LIST}, {NULL}},

    /* Reasoning. */
    {{"openai_gptoss"}, REASONING_HARMONY, 0,
     {"<|channel|>analysis<|message|>" TEXT "<|end|>" PART "<|start|>assistant" PART
      "<|channel|>final<|message|>" ANSWER,
      "<|channel|>commentary<|message|>" ANSWER},
     {"<|channel|>" WITH "<|message|>"}},
    {{"gemma4"}, REASONING_MARKED, 0, {"<|channel>thought\n" TEXT "<channel|>"}, {"<|channel>thought"}},
    {{"seed_oss"}, REASONING_FIRST, 0, {"<seed:think>" TEXT "</seed:think>"}, {NULL}},
    {{"mistral"}, REASONING_MARKED, 0, {"[THINK]" TEXT "[/THINK]"}, {NULL}},
    {{"granite"}, REASONING_MARKED, 0,
     {"Here is my thought process:" TEXT "Here is my response:",
      "Here's my thought process:" TEXT "Here's my response:"},
     {NULL}},
    {{"cohere_command"}, REASONING_MARKED, 0,
     {"<|START_THINKING|>" TEXT "<|END_THINKING|>" PART "<|START_RESPONSE|>" ANSWER "<|END_RESPONSE|>",
      "<|START_TEXT|>" ANSWER "<|END_TEXT|>"},
     {NULL}},
    {{"apriel"}, REASONING_MARKED, 0,
     {"<thinking>" TEXT "</thinking>",
      "Here are my reasoning steps:" TEXT "[BEGIN FINAL RESPONSE]" PART ANSWER "[END FINAL RESPONSE]"},
     {"[BEGIN FINAL RESPONSE]", "<thinking>"}},
    {{"hunyuan_a13b"}, REASONING_MARKED, 0, {THINK PART "<answer>" ANSWER "</answer>"},
     {"<think>" WITH "<answer>"}},
    {{"ernie45"}, REASONING_FIRST, 0, {THINK PART "<response>" ANSWER "</response>"},
     {"<think>" WITH "<response>"}},
    {{"qwen3", "deepseek_v3", "deepseek_v4", "glm45", "kimi_k2", "minimax_m2", "olmo3", "step3", "step3p5",
      "nemotron_v3", "granite_thinking_parser", "holo2", "mimo", "ling3"},
     REASONING_FIRST, 0, {THINK}, {NULL}},
    {{"deepseek_r1"}, REASONING_FIRST, 0, {THINK}, {"</think>"}},
    {{"minimax_m2_append_think"}, REASONING_KEPT, 0, {THINK}, {NULL}},
};

/* clang-format on */

enum { N_FORMATS = sizeof formats / sizeof *formats };

/* ---- finding ---- */

static bool format_is_reasoning(const answer_format *f) {
    return f->syntax >= REASONING_FIRST;
}

static const answer_format *format_at(size_t i, bool is_reasoning) {
    for (size_t k = 0; k < N_FORMATS; k++) {
        if (format_is_reasoning(&formats[k]) == is_reasoning && i-- == 0) {
            return &formats[k];
        }
    }
    return NULL;
}

const answer_format *call_format_at(size_t i) {
    return format_at(i, false);
}

const answer_format *reasoning_format_at(size_t i) {
    return format_at(i, true);
}

const char *answer_format_name(const answer_format *f, const char *name) {
    for (size_t i = 0; i < FORMAT_NAMES && f->names[i] != NULL; i++) {
        if (strcmp(f->names[i], name) == 0) {
            return f->names[i];
        }
    }
    return NULL;
}

static const answer_format *format_named(const char *name, bool is_reasoning) {
    for (size_t k = 0; k < N_FORMATS; k++) {
        const answer_format *f = &formats[k];
        if (format_is_reasoning(f) == is_reasoning && answer_format_name(f, name) != NULL) {
            return f;
        }
    }
    return NULL;
}

const answer_format *call_format_named(const char *name) {
    return format_named(name, false);
}

const answer_format *reasoning_format_named(const char *name) {
    return format_named(name, true);
}

/* ---- by a template ---- */

/* Whether a text contains all parts that EDGE_WITH separates. */
static bool template_has(str text, const char *seen_by) {
    for (str all = str_of(seen_by), one; all.n > 0;) {
        const char *with = memchr(all.p, EDGE_WITH, all.n);
        one = (str){all.p, with != NULL ? (size_t)(with - all.p) : all.n};
        all = (str){one.p + one.n + (with != NULL), all.n - one.n - (with != NULL)};
        if (!str_contains(text, one)) {
            return false;
        }
    }
    return true;
}

/* The opening of the first writing, without a bracket. */
static str format_opening(const answer_format *f) {
    call_writing w;
    reasoning_marks m;
    if (format_is_reasoning(f)) {
        reasoning_format_marks(f, &m);
        return m.open[0];
    }
    return call_writing_at(f, 0, &w) && !w.is_first ? w.open : (str){"", 0};
}

static bool template_shows(str text, const answer_format *f) {
    str opening = format_opening(f);
    bool shows = f->seen_by[0] == NULL && opening.n > 0 && str_contains(text, opening);
    for (int i = 0; i < 3 && f->seen_by[i] != NULL && !shows; i++) {
        shows = template_has(text, f->seen_by[i]);
    }
    return shows;
}

static const char *format_of_template(str text, bool is_reasoning) {
    for (size_t k = 0; k < N_FORMATS; k++) {
        if (format_is_reasoning(&formats[k]) == is_reasoning && template_shows(text, &formats[k])) {
            return formats[k].names[0];
        }
    }
    return NULL;
}

output_formats output_formats_of_template(str chat_template) {
    return (output_formats){format_of_template(chat_template, false),
                            format_of_template(chat_template, true)};
}

/* ---- by a prompt ---- */

/* The end of the last occurrence of a text, ignoring newlines at its end; 0: none. */
static size_t last_end(str s, str text) {
    while (text.n > 0 && text.p[text.n - 1] == '\n') {
        text.n--;
    }
    for (size_t end = s.n; text.n > 0 && end >= text.n; end--) {
        if (memcmp(s.p + end - text.n, text.p, text.n) == 0) {
            return end;
        }
    }
    return 0;
}

output_start output_start_behind(const char *reasoning_format, str tail, output_start otherwise) {
    const answer_format *f = reasoning_format != NULL ? reasoning_format_named(reasoning_format) : NULL;
    reasoning_marks m = {0};
    size_t open = 0, close = 0;
    if (f != NULL && f->syntax != REASONING_HARMONY) {
        reasoning_format_marks(f, &m);
    }
    for (int i = 0; i < m.n; i++) {
        size_t o = last_end(tail, m.open[i]), c = last_end(tail, m.close[i]);
        open = o > open ? o : open;
        close = c > close ? c : close;
    }
    return close > open ? OUTPUT_START_CONTENT : open > 0 ? OUTPUT_START_REASONING : otherwise;
}

/* ---- marks ---- */

int output_formats_marks(const output_formats *f, str marks[OUTPUT_FORMAT_MARKS]) {
    assert(f != NULL);
    const answer_format *r = f->reasoning != NULL ? reasoning_format_named(f->reasoning) : NULL;
    const answer_format *c = f->tools != NULL ? call_format_named(f->tools) : NULL;
    bool is_harmony = r != NULL && r->syntax == REASONING_HARMONY; /* its marks are those of its calls */
    format_shape shape = {0};
    reasoning_marks m = {0};
    int n = 0;
    c = is_harmony ? call_format_named("openai") : c;
    if (c != NULL) {
        answer_format_shape(c, &shape);
    }
    if (r != NULL && !is_harmony) {
        reasoning_format_marks(r, &m);
    }
    for (int i = 0; i < shape.n; i++) {
        marks[n++] = shape.marks[i].text;
    }
    const str *const lists[] = {m.open, m.close, m.before, m.behind};
    const int counts[] = {m.n, m.n, m.n_before, m.n_behind};
    for (size_t k = 0; k < 4; k++) {
        memcpy(marks + n, lists[k], (size_t)counts[k] * sizeof *marks);
        n += counts[k];
    }
    return n;
}
