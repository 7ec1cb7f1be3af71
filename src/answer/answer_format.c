#include "answer/answer_format.h"

#include <assert.h>
#include <ctype.h>

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

/* JSON: the members of a call, then a call, then a list of calls. */
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

/* A template gets the first row whose marks it contains, so a row whose marks include
 * another row's comes before that row. */
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

    /* Formats that no template identifies: no marks, or those of a row above. */
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

    /* Formats of reasoning. */
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

/* Whether a text contains all parts of seen_by, which EDGE_WITH separates. */
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

/* The opening mark of the format's first writing; empty if that is only a bracket. */
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

/* The offset in s after the last occurrence of text without trailing newlines; 0:
 * none. */
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
    /* harmony's reasoning has the same marks as its calls */
    bool is_harmony = r != NULL && r->syntax == REASONING_HARMONY;
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

/* Parses the writings of answer formats: the texts between their holes, and the marks
 * that a parser looks for. */

/* ---- texts with holes ---- */

static bool writing_is_code(char c) {
    return (unsigned char)c < ' ' && c != '\n';
}

/* Removes the text before the first of the codes, and that code, from *s. Returns the
 * text. */
static str writing_upto(str *s, const char *codes) {
    str part = {s->p, 0};
    while (part.n < s->n && strchr(codes, s->p[part.n]) == NULL) {
        part.n++;
    }
    size_t n = part.n + (part.n < s->n);
    *s = (str){s->p + n, s->n - n};
    return part;
}

static const char *writing_find(str s, char code) {
    return s.n > 0 ? memchr(s.p, code, s.n) : NULL;
}

bool writing_next(str *text, str *literal, char *hole) {
    assert(text != NULL);
    while (text->n > 0 && writing_is_code(text->p[0])) {
        *hole = text->p[0];
        *text = (str){text->p + 1, text->n - 1};
        if (*hole < EDGE_CALLS) {
            *literal = (str){"", 0};
            return true;
        }
    }
    *hole = 0;
    *literal = (str){text->p, 0};
    while (literal->n < text->n && !writing_is_code(literal->p[literal->n])) {
        literal->n++;
    }
    *text = (str){text->p + literal->n, text->n - literal->n};
    return literal->n > 0;
}

/* Removes white space and quotes from both ends, and `edges` from the beginning. */
static str writing_trim(str s, const char *edges) {
    while (s.n > 0 && (strchr(" \n\"", s.p[0]) != NULL || strchr(edges, s.p[0]) != NULL)) {
        s = (str){s.p + 1, s.n - 1};
    }
    while (s.n > 0 && strchr(" \n\"", s.p[s.n - 1]) != NULL) {
        s.n--;
    }
    return s;
}

str writing_first(str text) {
    str literal = {"", 0};
    for (char hole; literal.n == 0 && writing_next(&text, &literal, &hole);) {
    }
    return literal;
}

/* ---- writings of calls ---- */

/* Whether the opening mark begins a section in which each call has its own mark. */
static bool writing_is_section(const call_writing *w) {
    bool begins_each = w->again.p != NULL && w->again.p >= w->open.p + w->open.n;
    return (w->format->flags & FORMAT_IN_SECTION) != 0 || (w->is_head && begins_each);
}

static void writing_read_tags(str *s, call_writing *w) {
    w->tag_before = writing_upto(s, (char[]){HOLE_KEY, 0});
    w->tag_middle = writing_upto(s, (char[]){HOLE_VALUE, 0});
    w->tag_behind = writing_upto(s, (char[]){HOLE_KEY, EDGE_BETWEEN, 0});
    w->has_elements = s->p[-1] == HOLE_KEY;
    if (w->has_elements) {
        (void)writing_upto(s, (char[]){EDGE_BETWEEN, 0});
    }
    w->tag_between = writing_upto(s, (char[]){EDGE_END, 0});
}

/* Reads the text around the arguments from *s. Gemma's braces belong to the arguments. */
static void writing_read_arguments(str *s, call_writing *w) {
    w->name_end = writing_upto(s, (char[]){HOLE_ARGUMENTS, EDGE_EACH, 0});
    if (s->p[-1] == EDGE_EACH) {
        writing_read_tags(s, w);
    }
    if (w->format->syntax == SYNTAX_GEMMA) {
        w->name_end.n--;
        *s = (str){s->p + 1, s->n - 1};
    }
}

static void writing_read(const char *text, call_writing *w) {
    str s = str_of(text);
    const char *each = writing_find(s, EDGE_EACH), *name = writing_find(s, HOLE_NAME);
    w->only_read = text[0] == EDGE_READS;
    w->repeats = each != NULL && name != NULL && each < name;
    w->open = writing_upto(&s, (char[]){EDGE_CALLS, 0});
    while (w->open.n > 0 && writing_is_code(w->open.p[0])) {
        w->open = (str){w->open.p + 1, w->open.n - 1};
    }
    w->is_first = w->open.n == 1 && strchr("[{", w->open.p[0]) != NULL;
    w->before = writing_upto(&s, (char[]){HOLE_NAME, HOLE_ARGUMENTS, 0});
    if (name == NULL) { /* only the parser uses the writing, and only its marks */
        w->close = s;
        return;
    }
    w->is_head = w->format->syntax == SYNTAX_JSON && name[-1] != '"';
    const char *head = w->before.p;
    writing_read_arguments(&s, w);
    if (w->repeats) {
        w->again = (str){each + 1, (size_t)(name - each) - 1};
        w->end = writing_upto(&s, (char[]){EDGE_BETWEEN, 0});
        w->separator = writing_upto(&s, (char[]){EDGE_END, 0});
    }
    w->close = s;
    if (w->is_head && writing_is_section(w)) { /* each call has its own opening mark */
        str first = writing_first(w->again);
        head = first.p + first.n;
    }
    w->head = w->is_head ? (str){head, (size_t)(w->name_end.p + w->name_end.n - head)} : (str){"", 0};
}

bool call_writing_at(const answer_format *calls, size_t i, call_writing *out) {
    *out = (call_writing){.format = calls};
    if (i >= FORMAT_WRITINGS || calls->writings[i] == NULL) {
        return false;
    }
    writing_read(calls->writings[i], out);
    return true;
}

bool call_written_at(const answer_format *calls, size_t i, call_writing *out) {
    size_t n = 0;
    for (size_t k = 0; call_writing_at(calls, k, out); k++) {
        if (!out->only_read && n++ == i) {
            return true;
        }
    }
    return false;
}

/* ---- marks ---- */

str format_shape_mark(const format_shape *s, mark_role role) {
    assert(s != NULL);
    for (int i = 0; i < s->n; i++) {
        if (s->marks[i].role == role) {
            return s->marks[i].text;
        }
    }
    return (str){"", 0};
}

static void shape_add(format_shape *s, mark_role role, str text) {
    bool is_known = text.n == 0 || role == ROLE_NONE;
    for (int i = 0; i < s->n && !is_known; i++) {
        is_known = s->marks[i].role == role && str_eq(s->marks[i].text, text);
    }
    if (!is_known && s->n < FORMAT_MARKS) {
        s->marks[s->n++] = (format_mark){role, text};
    }
}

/* The roles that the marks in a text get, in order. */
typedef struct shape_roles {
    mark_role first, rest, last; /* last: ROLE_NONE means like `rest` */
} shape_roles;

static void shape_add_all(format_shape *s, str text, const char *edges, shape_roles roles) {
    str found[4], literal;
    size_t n = 0;
    for (char hole; n < 4 && writing_next(&text, &literal, &hole);) {
        found[n] = writing_trim(literal, edges);
        n += found[n].n > 0;
    }
    for (size_t i = 0; i < n; i++) {
        bool is_last = i + 1 == n && roles.last != ROLE_NONE;
        shape_add(s, is_last ? roles.last : i == 0 ? roles.first : roles.rest, found[i]);
    }
}

/* Adds the marks of a writing in JSON, Gemma or Python. Brackets are not marks. */
static void shape_add_calls(format_shape *s, const call_writing *w) {
    static const char edges[] = "}])";
    bool is_section = writing_is_section(w);
    str open = w->open;
    while (open.n > 0 && strchr("[{", open.p[open.n - 1]) != NULL) {
        open.n--;
    }
    shape_add(s, is_section ? ROLE_SECTION : ROLE_OPEN, open);
    if (is_section && w->is_head) {
        shape_add(s, ROLE_OPEN, writing_first(w->again));
    }
    shape_add_all(s, w->end, edges, (shape_roles){ROLE_CLOSE, ROLE_CLOSE, ROLE_NONE});
    mark_role close = is_section ? ROLE_SECTION_END : ROLE_CLOSE;
    shape_add_all(s, w->close, edges, (shape_roles){close, close, ROLE_NONE});
}

static void shape_add_tags(format_shape *s, const call_writing *w) {
    static const shape_roles key_ends = {ROLE_NONE, ROLE_NONE, ROLE_NAME_END};
    str value = w->tag_middle, key_end = writing_upto(&value, (char[]){EDGE_PART, 0});
    bool is_section = writing_first(w->before).n > 0;
    mark_role after = w->close.n > 0 ? ROLE_CLOSE : ROLE_SECTION_END;
    shape_add(s, is_section ? ROLE_SECTION : ROLE_OPEN, w->open);
    shape_add_all(s, w->before, "", (shape_roles){ROLE_SECTION, ROLE_SECTION, ROLE_OPEN});
    shape_add_all(s, w->name_end, "", key_ends);
    shape_add(s, ROLE_PARAMETER, writing_trim(w->tag_before, ""));
    shape_add_all(s, key_end, "", key_ends);
    shape_add(s, ROLE_VALUE, writing_trim(value, ""));
    shape_add(s, ROLE_VALUE_END, writing_trim(w->tag_behind, ""));
    shape_add_all(s, w->end, "", (shape_roles){ROLE_END, after, ROLE_NONE});
    shape_add_all(s, w->close, "", (shape_roles){ROLE_SECTION_END, ROLE_SECTION_END, ROLE_NONE});
}

/* Adds the marks of elements: the text before each tag's bracket is one mark. */
static void shape_add_elements(format_shape *s, const call_writing *w) {
    shape_add(s, ROLE_SECTION, w->open);
    shape_add_all(s, w->again, "", (shape_roles){ROLE_OPEN, ROLE_OPEN, ROLE_NONE});
    shape_add(s, ROLE_TAG, (str){w->tag_before.p, w->tag_before.n - 1});
    shape_add_all(s, w->close, "", (shape_roles){ROLE_SECTION_END, ROLE_SECTION_END, ROLE_NONE});
}

static void shape_add_harmony(format_shape *s) {
    static const struct {
        mark_role role;
        const char *text;
    } marks[] = {{ROLE_START, "<|start|>"},         {ROLE_CHANNEL, "<|channel|>"},
                 {ROLE_CONSTRAIN, "<|constrain|>"}, {ROLE_MESSAGE, "<|message|>"},
                 {ROLE_MESSAGE_END, "<|end|>"},     {ROLE_MESSAGE_END, "<|return|>"},
                 {ROLE_MESSAGE_END, "<|call|>"}};
    for (size_t i = 0; i < sizeof marks / sizeof *marks; i++) {
        shape_add(s, marks[i].role, str_of(marks[i].text));
    }
}

/* Adds the marks in a text that only the parser reads: around an answer or, in tags,
 * between two parameters. */
static void shape_add_read(format_shape *s, str text) {
    str before = writing_upto(&text, (char[]){HOLE_ANSWER, HOLE_VALUE, 0});
    bool is_answer = text.p[-1] == HOLE_ANSWER;
    mark_role role = is_answer ? ROLE_DROP : ROLE_NEXT;
    shape_add(s, role, before);
    shape_add(s, role, writing_upto(&text, (char[]){HOLE_KEY, 0}));
}

/* ---- flags ---- */

static unsigned flags_of_json(const call_writing *w) {
    bool is_keyed = !w->is_head && w->again.n > 1 && w->again.p[w->again.n - 2] == '{';
    bool in_section = (w->format->flags & FORMAT_IN_SECTION) != 0;
    bool is_listed = !w->is_head && w->name_end.n > 0;
    return (w->is_head ? FORMAT_HEAD : 0u) | (is_listed ? FORMAT_LISTED : 0u) |
           (is_keyed ? FORMAT_KEYED : 0u) | (w->is_first || in_section ? FORMAT_BARE : 0u) |
           (str_begins(w->separator, ";") ? FORMAT_SEMICOLON : 0u);
}

static unsigned flags_of_tags(const call_writing *w) {
    str value = w->tag_middle;
    (void)writing_upto(&value, (char[]){EDGE_PART, 0});
    bool has_lines = str_begins(w->tag_behind, "\n");
    return (has_lines ? FORMAT_VALUE_LINES : 0u) | (value.n > 0 ? FORMAT_VALUE_APART : 0u) |
           (writing_first(w->name_end).n == 0 ? FORMAT_NAME_TO_TAG : 0u);
}

static unsigned flags_of_python(const call_writing *w) {
    bool has_brackets = w->is_first || str_begins(w->before, "[");
    return (w->is_first ? FORMAT_BARE_FIRST : 0u) | (has_brackets ? 0u : FORMAT_LINES);
}

static void shape_add_writing(format_shape *s, const call_writing *w) {
    switch (w->format->syntax) {
    case SYNTAX_TAGS:
        s->flags |= flags_of_tags(w);
        shape_add_tags(s, w);
        return;
    case SYNTAX_ELEMENTS:
        shape_add_elements(s, w);
        return;
    case SYNTAX_HARMONY:
        shape_add_harmony(s);
        return;
    case SYNTAX_GEMMA:
        shape_add_calls(s, w);
        shape_add(s, ROLE_QUOTE, w->tag_behind);
        return;
    default:
        s->flags |= w->format->syntax == SYNTAX_JSON ? flags_of_json(w) : flags_of_python(w);
        shape_add_calls(s, w);
    }
}

void answer_format_shape(const answer_format *calls, format_shape *out) {
    call_writing w;
    *out = (format_shape){.flags = calls->flags};
    for (size_t i = 0; call_writing_at(calls, i, &w); i++) {
        str text = str_of(calls->writings[i]);
        if (writing_find(text, EDGE_CALLS) != NULL) {
            shape_add_writing(out, &w);
        } else {
            shape_add_read(out, (str){text.p + 1, text.n - 1});
        }
    }
}

/* ---- names ---- */

/* Whether a head that ends in this name would be read as a name and a call's number. */
static bool name_is_numbered(str name) {
    size_t n = name.n;
    while (n > 0 && isdigit((unsigned char)name.p[n - 1])) {
        n--;
    }
    return n > 0 && n < name.n && name.p[n - 1] == ':';
}

static bool name_is_python(str name) {
    bool fits = !isdigit((unsigned char)name.p[0]) && strchr(".-", name.p[0]) == NULL;
    for (size_t i = 0; fits && i < name.n; i++) {
        unsigned char c = (unsigned char)name.p[i];
        fits = isalnum(c) || c >= 0x80 || strchr("_.-", c) != NULL;
    }
    return fits;
}

bool call_writing_takes(const call_writing *w, str name) {
    assert(w != NULL);
    bool has_number = writing_find(w->name_end, HOLE_NUMBER) != NULL;
    bool is_all = (w->format->flags & FORMAT_HEAD_FIRST) != 0 && str_is(name, "all");
    if (!call_is_name(name) || is_all || (w->is_head && !has_number && name_is_numbered(name))) {
        return false;
    }
    return w->format->syntax != SYNTAX_PYTHON || name_is_python(name);
}

/* ---- reasoning ---- */

static void reasoning_read(const char *text, reasoning_marks *m) {
    str s = str_of(text), before;
    if (writing_find(s, HOLE_TEXT) != NULL) {
        m->open[m->n] = writing_upto(&s, (char[]){HOLE_TEXT, 0});
        m->close[m->n++] = writing_upto(&s, (char[]){EDGE_PART, 0});
    }
    if (writing_find(s, EDGE_PART) != NULL) {
        m->next = writing_upto(&s, (char[]){EDGE_PART, 0});
    }
    before = writing_upto(&s, (char[]){HOLE_ANSWER, 0});
    if (before.n > 0) {
        m->before[m->n_before++] = before;
    }
    if (s.n > 0) {
        m->behind[m->n_behind++] = s;
    }
}

void reasoning_format_marks(const answer_format *reasoning, reasoning_marks *out) {
    *out = (reasoning_marks){0};
    for (size_t i = 0; i < REASONING_SPELLINGS && reasoning->writings[i] != NULL; i++) {
        reasoning_read(reasoning->writings[i], out);
    }
}
