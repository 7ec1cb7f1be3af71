/* A chat's tools: the fields, the formats in which its response is split, and the parser of the response. */
#include <stdio.h>
#include <string.h>

#include "api/request_read.h"
#include "base/mem.h"
#include "chat/output_format.h"
#include "json/json_out.h"

/* Checks one of the tools: {"type": "function", "function": {"name": .., "parameters": {..}}}. */
static quire_err check_tool(const field_desc *f, size_t i, const json_value *tool, quire_error *err) {
    const json_value *function = json_get(tool, "function"), *parameters = json_get(function, "parameters");
    if (!json_is(tool, JSON_KIND_OBJECT)) {
        return request_type_error(f, (int64_t)i, tool, "an object", err);
    }
    if (!str_is(json_get_str(tool, "type"), "function")) {
        return request_range_error(f, err, "tools[%zu].type must be \"function\"", i);
    }
    if (json_get_str(function, "name").n == 0) {
        return request_range_error(f, err, "tools[%zu].function.name must be a string that is not empty", i);
    }
    return parameters == NULL || json_is(parameters, JSON_KIND_OBJECT)
               ? QUIRE_OK
               : request_range_error(f, err, "tools[%zu].function.parameters must be a JSON Schema, an object", i);
}

quire_err request_read_tools(quire_request *r, const field_desc *f, const json_value *v, quire_error *err) {
    for (size_t i = 0; i < json_length(v); i++) {
        TRY(check_tool(f, i, json_at(v, i), err));
    }
    json_drop(r->given_tools);
    r->given_tools = NULL;
    r->tools = v;
    return QUIRE_OK;
}

quire_err request_read_tool_choice(quire_request *r, const field_desc *f, const json_value *v, quire_error *err) {
    static const char *const words[] = {
        [OUTPUT_CHOICE_AUTO] = "auto", [OUTPUT_CHOICE_NONE] = "none", [OUTPUT_CHOICE_REQUIRED] = "required"};
    str name = json_get_str(json_get(v, "function"), "name");
    r->named_tool = (str){0};
    if (v == NULL) {
        r->tool_choice = OUTPUT_CHOICE_AUTO;
        return QUIRE_OK;
    }
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        if (json_is(v, JSON_KIND_TEXT) && str_is(json_str(v), words[i])) {
            r->tool_choice = (output_choice)i;
            return QUIRE_OK;
        }
    }
    if (name.n == 0) {
        return request_range_error(f, err,
                                   "tool_choice must be \"auto\", \"none\", \"required\" or {\"type\": \"function\", \"function\": "
                                   "{\"name\": ..}}");
    }
    r->tool_choice = OUTPUT_CHOICE_NAMED;
    r->named_tool = name;
    return QUIRE_OK;
}

quire_err quire_request_tools(quire_request *r, const char *json, size_t n, quire_error *err) {
    json_value *tools = NULL;
    if (r->info.endpoint != QUIRE_CHAT) {
        return err_set(err, QUIRE_UNSUPPORTED, -1, "tools are for chats");
    }
    TRY(request_read_value((str){json, n}, 0, "tools", &tools, err));
    if (!json_is(tools, JSON_KIND_ARRAY)) {
        json_drop(tools);
        return err_set_param(err, QUIRE_BAD_REQUEST, "tools", "tools must be an array");
    }
    json_drop(r->given_tools);
    r->tools = r->given_tools = tools;
    return QUIRE_OK;
}

/* ---- checks ---- */

/* Lists the functions of r's tools, also of those given in another shape ({"name": ..}). */
static quire_err list_offered(quire_request *r, quire_error *err) {
    size_t n = json_length(r->tools);
    mem_free(r->offered);
    r->n_offered = 0;
    r->offered = n > 0 ? mem_new(n, sizeof *r->offered) : NULL;
    TRY(n > 0 ? mem_check_for(r->offered, "a request's tools", err) : QUIRE_OK);
    for (size_t i = 0; i < n; i++) {
        const json_value *tool = json_at(r->tools, i), *function = json_get(tool, "function");
        function = function != NULL ? function : tool;
        if (json_get_str(function, "name").n > 0) {
            r->offered[r->n_offered++] = (output_tool){json_get_str(function, "name"), json_get(function, "parameters")};
        }
    }
    return QUIRE_OK;
}

static bool is_offered(const quire_request *r, str name) {
    for (size_t i = 0; i < r->n_offered; i++) {
        if (str_eq(r->offered[i].name, name)) {
            return true;
        }
    }
    return false;
}

/* Chooses the formats: by option, else by the template that counts for r. */
static output_formats choose_formats(const quire_request *r) {
    output_formats f = r->context.formats;
    bool has_own = r->template_given.n > 0 && (r->context.form == NULL || chat_form_find(r->context.form, r->template_given) == NULL);
    if (has_own) {
        output_formats own = output_formats_of_template(r->template_given);
        f.tools = r->context.names_tools ? f.tools : own.tools;
        f.reasoning = r->context.names_reasoning ? f.reasoning : own.reasoning;
    }
    return f;
}

/* ---- a forced call ---- */

#define FORCED_FORMAT "json" /* a list of calls: no format of a model's own, so that any model can be held to it */

/* Writes the schema of a function's arguments. It has a name, if not its own, so that references in it are to itself. */
static void write_parameters(const output_tool *tool, size_t i, json_out *o) {
    char name[32];
    snprintf(name, sizeof name, "tool:%zu", i);
    json_begin(o, '{');
    if (!json_has(tool->parameters, "$id")) {
        json_cstr(json_name(o, "$id"), name);
    }
    if (!json_has(tool->parameters, "type")) { /* arguments are an object in any case */
        json_cstr(json_name(o, "type"), "object");
    }
    for (json_member m = {0}; json_next(tool->parameters, &m);) {
        json_add(json_name(o, m.name), m.value);
    }
    json_end(o, '}');
}

/* Writes the schema of a call of function i. */
static void write_call_schema(const output_tool *tool, size_t i, json_out *o) {
    json_begin(json_item(o), '{');
    json_cstr(json_name(o, "type"), "object");
    json_begin(json_name(o, "properties"), '{');
    json_begin(json_name(o, "name"), '{');
    json_text(json_name(o, "const"), tool->name.p, tool->name.n);
    json_end(o, '}');
    write_parameters(tool, i, json_name(o, "arguments"));
    json_end(o, '}');
    json_raw(json_name(o, "required"), "[\"name\",\"arguments\"]");
    json_bool(json_name(o, "additionalProperties"), false);
    json_end(o, '}');
}

/* Writes the schema of a list of calls, of the functions among which r's response has to choose. */
static quire_err write_forced_schema(const quire_request *r, strbuf *out) {
    json_out o = {.to = out};
    bool is_named = r->tool_choice == OUTPUT_CHOICE_NAMED;
    json_begin(&o, '{');
    json_cstr(json_name(&o, "type"), "array");
    json_int(json_name(&o, "minItems"), 1);
    if (is_named || !r->parallel_calls) {
        json_int(json_name(&o, "maxItems"), 1);
    }
    json_begin(json_name(&o, "items"), '{');
    json_begin(json_name(&o, "anyOf"), '[');
    for (size_t i = 0; i < r->n_offered; i++) {
        if (!is_named || str_eq(r->offered[i].name, r->named_tool)) {
            write_call_schema(&r->offered[i], i, &o);
        }
    }
    json_end(&o, ']');
    json_end(&o, '}');
    json_end(&o, '}');
    return o.err;
}

/* Makes the calls that tool_choice forces the rule of the response. */
static quire_err force_call(quire_request *r, quire_error *err) {
    const field_desc *f = params_field("tool_choice", FIELD_CHAT);
    strbuf text = {0};
    if (r->rule.field != NULL && r->rule.field != f) {
        return err_set_param(err, QUIRE_BAD_REQUEST, "tool_choice",
                             "tool_choice forces a call and %s is given; a response can obey one of them", r->rule.field->name);
    }
    quire_err e = write_forced_schema(r, &text);
    json_drop(r->forced_schema);
    r->forced_schema = NULL;
    e = e == QUIRE_OK ? request_read_value((str){text.p, text.n}, 0, "tools", &r->forced_schema, err)
                      : err_set(err, e, -1, "out of memory for a request's tools");
    strbuf_deinit(&text);
    TRY(e);
    r->rule = (request_rule){.field = f, .kind = GRAMMAR_SCHEMA, .value = r->forced_schema};
    return QUIRE_OK;
}

static quire_err check_budget(const quire_request *r, quire_error *err) {
    return r->thinking_budget < 0 || r->formats.reasoning != NULL
               ? QUIRE_OK
               : err_set_param(err, QUIRE_BAD_REQUEST, "thinking_token_budget",
                               "thinking_token_budget is given, and the response has no reasoning that this server could tell from "
                               "the rest; a chat with a reasoning model has, or where --reasoning-parser names its format");
}

quire_err request_check_tools(quire_request *r, quire_error *err) {
    bool forced = r->tool_choice == OUTPUT_CHOICE_REQUIRED || r->tool_choice == OUTPUT_CHOICE_NAMED;
    r->formats = (output_formats){0};
    r->info.has_parts = false;
    if (r->info.endpoint != QUIRE_CHAT) {
        return check_budget(r, err);
    }
    TRY(list_offered(r, err));
    if (forced && r->n_offered == 0) {
        return err_set_param(err, QUIRE_BAD_REQUEST, "tool_choice", "tool_choice asks for a call, and the request has no tools");
    }
    if (r->tool_choice == OUTPUT_CHOICE_NAMED && !is_offered(r, r->named_tool)) {
        return err_set_param(err, QUIRE_BAD_REQUEST, "tool_choice", "tool_choice names %.*s, which is none of the request's tools",
                             (int)(r->named_tool.n < 60 ? r->named_tool.n : 60), r->named_tool.p);
    }
    TRY(forced ? force_call(r, err) : QUIRE_OK);
    r->formats = choose_formats(r);
    r->formats.tools = r->n_offered == 0 || r->tool_choice == OUTPUT_CHOICE_NONE ? NULL : forced ? FORCED_FORMAT : r->formats.tools;
    r->info.names_call = r->tool_choice == OUTPUT_CHOICE_NAMED;
    r->info.has_parts = r->formats.tools != NULL || r->formats.reasoning != NULL;
    return check_budget(r, err);
}

/* ---- the response ---- */

static bool is_added(const void *context, str text) {
    const tokenizer *t = context;
    int32_t id = tokenizer_find(t, text);
    return id >= 0 && tokenizer_is_added(t, id);
}

enum { OPENS = 2, CLOSES = 2, DROPS = 4 }; /* of a reasoning format */

/* Mark i of the formats, "" where that one has none; NULL past the last. */
static const char *mark_at(const output_formats *formats, size_t i) {
    const reasoning_format *f = formats->reasoning != NULL ? reasoning_format_named(formats->reasoning) : NULL;
    bool is_harmony = f != NULL && f->rule == REASONING_HARMONY;
    const call_format *c = is_harmony ? call_format_named("openai") : formats->tools != NULL ? call_format_named(formats->tools) : NULL;
    const char *text = NULL;
    if (i < FORMAT_MARKS) {
        text = c != NULL ? c->marks[i].text : NULL;
    } else if (f != NULL && i < FORMAT_MARKS + OPENS + CLOSES + DROPS) {
        i -= FORMAT_MARKS;
        text = i < OPENS ? f->open[i] : i < OPENS + CLOSES ? f->close[i - OPENS] : f->drops[i - OPENS - CLOSES];
    } else {
        return NULL;
    }
    return text != NULL ? text : "";
}

bool request_has_mark(const quire_request *r, str token) {
    const char *mark;
    for (size_t i = 0; (mark = mark_at(&r->formats, i)) != NULL; i++) {
        if (str_contains(str_of(mark), token)) {
            return true;
        }
    }
    return false;
}

/* Whether marks are hidden where special tokens are: none of them is a token that a user defined, whose text is always shown. */
static bool hides_marks(const quire_request *r) {
    const char *mark;
    const tokenizer *t = r->context.tokenizer;
    for (size_t i = 0; t != NULL && (mark = mark_at(&r->formats, i)) != NULL; i++) {
        int32_t id = *mark != '\0' ? tokenizer_find(t, str_of(mark)) : -1;
        if (id >= 0 && tokenizer_is_added(t, id) && !tokenizer_is_special(t, id)) {
            return false;
        }
    }
    return r->skip_special;
}

reasoning_frame request_frame(const quire_request *r, output_start start) {
    reasoning_frame frame = {.start = start};
    frame.format = r->formats.reasoning != NULL ? reasoning_format_named(r->formats.reasoning) : NULL;
    frame.calls = r->formats.tools != NULL ? call_format_named(r->formats.tools) : NULL;
    return frame;
}

quire_err request_open_parser(const quire_request *r, output_start start, output_parser **out) {
    quire_error err;
    const output_options o = {.tools_format = r->formats.tools,
                              .reasoning_format = r->formats.reasoning,
                              .tools = r->offered,
                              .n_tools = r->formats.tools != NULL ? r->n_offered : 0,
                              .choice = r->formats.tools != NULL ? r->tool_choice : OUTPUT_CHOICE_NONE,
                              .start = start,
                              .is_special = r->context.tokenizer != NULL ? is_added : NULL,
                              .special_context = r->context.tokenizer,
                              .drops_specials = hides_marks(r)};
    return output_parser_open(&o, out, &err);
}

output_start request_output_start(const quire_request *r, str prompt, const text_marks *marks) {
    size_t from = marks->n > 0 ? marks->runs[marks->n - 1].end : 0;
    output_start otherwise = r->context.names_reasoning ? OUTPUT_START_UNKNOWN : OUTPUT_START_MARKED;
    return output_start_behind(r->formats.reasoning, (str){prompt.p + from, prompt.n - from}, otherwise);
}
