/* The dialect of OpenAI's Responses API: converts its fields to those of a chat, and
 * collects what the response repeats. */
#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "request/request_read.h"

#define MAX_METADATA 16 /* key-value pairs */

static quire_err responses_refuse(const char *param, quire_error *err, const char *what) {
    return err_set_param(err, QUIRE_BAD_REQUEST, param, "%s %s", param, what);
}

static const field_desc *responses_field(const char *name) {
    return request_field(name, FIELD_RESPONSES);
}

/* ---- input ---- */

static quire_err responses_write_array(str items, strbuf *out) {
    TRY(strbuf_add_char(out, '['));
    TRY(strbuf_add(out, items.p, items.n));
    return strbuf_add_char(out, ']');
}

/* Reads the items of the response that the request continues, as an array; NULL: it
 * continues none. */
static quire_err responses_read_history(const quire_request *r, json_value **out, quire_error *err) {
    const request_context *c = &r->context;
    str id = json_str(request_part(r, "previous_response_id"));
    char *lines = NULL;
    size_t n = 0;
    *out = NULL;
    if (id.n == 0) {
        return QUIRE_OK;
    }
    quire_err e =
        c->history == NULL ? QUIRE_NOT_FOUND : c->history(c->history_of, r->g.tenant, id.p, &lines, &n);
    if (e != QUIRE_OK) {
        mem_free(lines);
        return e == QUIRE_NOT_FOUND
                   ? err_set_param(err, e, "previous_response_id", "there is no response %.*s",
                                   (int)(id.n < 80 ? id.n : 80), id.p)
                   : err_set(err, e, -1, "out of memory for a conversation");
    }
    strbuf array = {0};
    for (size_t i = 0; i < n; i++) {
        lines[i] = lines[i] == '\n' ? ',' : lines[i];
    }
    e = err_set(err, responses_write_array((str){lines, n}, &array), -1, "out of memory for a conversation");
    if (e == QUIRE_OK) {
        e = request_read_value((str){array.p, array.n}, 0, "previous_response_id", out, err);
    }
    mem_free(lines);
    strbuf_deinit(&array);
    return e;
}

static quire_err responses_read_items(const quire_request *r, item_reader *t, const json_value *history,
                                      quire_error *err) {
    const json_value *input = request_part(r, "input"), *instructions = request_part(r, "instructions");
    if (instructions != NULL) {
        items_add_instructions(t, instructions);
    }
    TRY(items_read_list(t, "previous_response_id", history, false));
    if (json_is(input, JSON_KIND_TEXT)) {
        return items_read_text(t, input);
    }
    if (input != NULL && !json_is(input, JSON_KIND_ARRAY)) {
        return request_type_error(responses_field("input"), -1, input, "a string or an array of items", err);
    }
    if (json_length(input) == 0 && history == NULL) {
        return responses_refuse("input", err, "is missing or empty; give a string or an array of items");
    }
    return items_read_list(t, "input", input, true);
}

static quire_err responses_set_messages(quire_request *r, quire_error *err) {
    strbuf messages = {0};
    json_value *history = NULL;
    item_reader *t = NULL;
    quire_err e = responses_read_history(r, &history, err);
    TRY_DONE(e, items_open(&messages, &r->response_input, err, &t));
    e = responses_read_items(r, t, history, err);
    quire_err written = items_close(t, e == QUIRE_OK);
    TRY_DONE(e, request_set_as(r, FIELD_CHAT, "messages", written, &messages, err));
done:
    json_drop(history);
    strbuf_deinit(&messages);
    return e;
}

/* ---- tools ---- */

/* Writes {"type": T, ..} as {"type": T, T: {..}}. The tool's name is prefixed by the
 * namespace, unless that is empty. */
static void responses_write_tool(const json_value *tool, str space, json_out *o) {
    const json_value *type = json_get(tool, "type");
    json_begin(json_item(o), '{');
    json_add(json_name(o, "type"), type);
    json_begin(json_name(o, json_str(type).p), '{');
    for (json_member m = {0}; json_next(tool, &m);) {
        if (space.n > 0 && strcmp(m.name, "name") == 0) {
            items_write_name(space, json_str(m.value), json_name(o, "name"));
        } else if (strcmp(m.name, "type") != 0 && m.value != NULL) {
            json_add(json_name(o, m.name), m.value);
        }
    }
    json_end(o, '}');
    json_end(o, '}');
}

static quire_err responses_check_function(const field_desc *f, const char *where, const json_value *tool,
                                          quire_error *err) {
    const json_value *parameters = json_get(tool, "parameters"), *strict = json_get(tool, "strict");
    TRY(request_check_tool_name(f, where, json_get_str(tool, "name"), err));
    if (strict != NULL && !json_is(strict, JSON_KIND_BOOL)) {
        return request_range_error(f, err, "%s.strict must be true or false", where);
    }
    return parameters == NULL || json_is(parameters, JSON_KIND_OBJECT)
               ? QUIRE_OK
               : request_range_error(f, err, "%s.parameters must be a JSON Schema, an object", where);
}

/* Checks a function or custom tool: tools[i], or a tool in the namespace tools[i]. */
static quire_err responses_check_tool(const field_desc *f, size_t i, const char *where,
                                      const json_value *tool, quire_error *err) {
    str type = json_get_str(tool, "type");
    if (str_is(type, "function")) {
        return responses_check_function(f, where, tool, err);
    }
    if (str_is(type, "custom")) {
        return request_check_custom(f, i, tool, err);
    }
    return request_range_error(
        f, err,
        "%s.type is \"%.*s\", a tool that this server does not run; it takes \"function\" "
        "and \"custom\", which the client runs, and a \"namespace\" of them",
        where, (int)(type.n < 40 ? type.n : 40), type.n > 0 ? type.p : "");
}

/* Writes a checked tool and adds its name to r->tool_spaces. */
static quire_err responses_add_tool(quire_request *r, const json_value *tool, str space, json_out *o,
                                    quire_error *err) {
    quire_err e = tool_spaces_add(&r->tool_spaces, space, json_get_str(tool, "name"));
    responses_write_tool(tool, space, o);
    return err_set(err, e, -1, "out of memory for a request's tools");
}

/* Checks and writes tools[i]. If it is a namespace, writes its tools with their names
 * prefixed. */
static quire_err responses_take_tool(quire_request *r, const field_desc *f, size_t i, json_out *o,
                                     quire_error *err) {
    const json_value *tool = json_at(request_part(r, "tools"), i);
    const json_value *inner = json_get(tool, "tools");
    str space = json_get_str(tool, "name");
    char where[64];
    (void)snprintf(where, sizeof where, "tools[%zu]", i);
    if (!str_is(json_get_str(tool, "type"), "namespace")) {
        TRY(responses_check_tool(f, i, where, tool, err));
        return responses_add_tool(r, tool, (str){0}, o, err);
    }
    TRY(request_check_tool_name(f, where, space, err));
    if (!json_is(inner, JSON_KIND_ARRAY) || json_length(inner) == 0) {
        return request_range_error(f, err, "%s.tools must be an array of tools that is not empty", where);
    }
    (void)snprintf(where, sizeof where, "tools[%zu].tools", i);
    TRY(request_check_n_tools(f, where, inner, err));
    for (size_t j = 0; j < json_length(inner); j++) {
        (void)snprintf(where, sizeof where, "tools[%zu].tools[%zu]", i, j);
        TRY(responses_check_tool(f, i, where, json_at(inner, j), err));
        size_t n = space.n + 1 + json_get_str(json_at(inner, j), "name").n;
        if (n > CALL_NAME_BYTES) {
            return request_range_error(
                f, err, "%s.name has %zu bytes with its namespace and a point; at most %d are allowed", where,
                n, CALL_NAME_BYTES);
        }
        TRY(responses_add_tool(r, json_at(inner, j), space, o, err));
    }
    return QUIRE_OK;
}

static quire_err responses_set_tools(quire_request *r, quire_error *err) {
    const field_desc *f = responses_field("tools");
    const json_value *tools = request_part(r, "tools");
    strbuf text = {0};
    json_out o = {.to = &text};
    TRY(request_check_n_tools(f, f->name, tools, err));
    if (json_length(tools) == 0) {
        return QUIRE_OK;
    }
    tool_spaces_deinit(&r->tool_spaces);
    json_begin(&o, '[');
    for (size_t i = 0; i < json_length(tools); i++) {
        quire_err e = responses_take_tool(r, f, i, &o, err);
        if (e != QUIRE_OK) {
            strbuf_deinit(&text);
            return e;
        }
    }
    json_end(&o, ']');
    quire_err e = request_set_as(r, FIELD_CHAT, "tools", o.err, &text, err);
    strbuf_deinit(&text);
    return e;
}

/* ---- format of the response ---- */

/* Sets a chat field to a value. */
static quire_err responses_set_value(quire_request *r, const char *field, const json_value *v,
                                     quire_error *err) {
    strbuf text = {0};
    json_out o = {.to = &text};
    if (v == NULL) {
        return QUIRE_OK;
    }
    json_add(&o, v);
    quire_err e = request_set_as(r, FIELD_CHAT, field, o.err, &text, err);
    strbuf_deinit(&text);
    return e;
}

/* Converts {"type": "json_schema", "name": .., "schema": ..} to {"type": "json_schema",
 * "json_schema": {..}}; other formats are the same for chats. */
static quire_err responses_set_format(quire_request *r, const json_value *format, quire_error *err) {
    str type = json_get_str(format, "type");
    if (format == NULL || str_is(type, "text")) {
        return QUIRE_OK;
    }
    if (str_is(type, "json_object")) {
        return responses_set_value(r, "response_format", format, err);
    }
    if (!str_is(type, "json_schema")) {
        return responses_refuse("text.format.type", err,
                                "must be \"text\", \"json_object\" or \"json_schema\"");
    }
    if (!json_is(json_get(format, "schema"), JSON_KIND_OBJECT)) {
        return responses_refuse("text.format.schema", err, "must be a JSON Schema, an object");
    }
    strbuf text = {0};
    json_out o = {.to = &text};
    json_begin(&o, '[');
    responses_write_tool(format, (str){0}, &o); /* formats have the same shape as tools */
    quire_err e = err_set(err, o.err, -1, "out of memory for text");
    if (e == QUIRE_OK) {
        strbuf inner = {.p = text.p + 1, .n = text.n - 1};
        e = request_set_as(r, FIELD_CHAT, "response_format", QUIRE_OK, &inner, err);
    }
    if (e == QUIRE_OK) {
        r->rule.field = request_field("text", FIELD_RESPONSES); /* errors name this field */
    }
    strbuf_deinit(&text);
    return e;
}

static quire_err responses_set_text(quire_request *r, quire_error *err) {
    const json_value *text = request_part(r, "text"), *format = json_get(text, "format"),
                     *verbosity = json_get(text, "verbosity");
    if (format != NULL && !json_is(format, JSON_KIND_OBJECT)) {
        return responses_refuse("text.format", err, "must be an object with a type");
    }
    if (verbosity != NULL && !json_is(verbosity, JSON_KIND_TEXT)) {
        return responses_refuse("text.verbosity", err, "must be a string");
    }
    TRY(responses_set_value(r, "verbosity", verbosity, err));
    return responses_set_format(r, format, err);
}

static quire_err responses_set_reasoning(quire_request *r, quire_error *err) {
    const json_value *effort = json_get(request_part(r, "reasoning"), "effort");
    if (effort != NULL && !json_is(effort, JSON_KIND_TEXT)) {
        return responses_refuse("reasoning.effort", err, "must be a string");
    }
    return responses_set_value(r, "reasoning_effort", effort, err);
}

/* ---- other things to return ---- */

#define INCLUDE_LOGPROBS "message.output_text.logprobs"

/* Reads include: log-probabilities of the text, and encrypted reasoning, which has no
 * effect since this server's responses contain reasoning in plain text anyway. */
static quire_err responses_set_include(quire_request *r, quire_error *err) {
    const json_value *include = request_part(r, "include"), *top = request_part(r, "top_logprobs");
    bool has_logprobs = false;
    for (size_t i = 0; i < json_length(include); i++) {
        str what = json_str(json_at(include, i));
        char param[40];
        (void)snprintf(param, sizeof param, "include[%zu]", i);
        if (str_is(what, INCLUDE_LOGPROBS)) {
            has_logprobs = true;
        } else if (!str_is(what, "reasoning.encrypted_content")) {
            return responses_refuse(
                param, err,
                "has a value that this server does not support; it supports \"" INCLUDE_LOGPROBS
                "\" and accepts \"reasoning.encrypted_content\"");
        }
    }
    if (!has_logprobs) {
        return QUIRE_OK;
    }
    const strbuf yes = {.p = "true", .n = 4};
    TRY(request_set_as(r, FIELD_CHAT, "logprobs", QUIRE_OK, &yes, err));
    return responses_set_value(r, "top_logprobs", top, err);
}

static quire_err responses_check_metadata(const quire_request *r, quire_error *err) {
    const json_value *metadata = request_part(r, "metadata");
    if (json_length(metadata) > MAX_METADATA) {
        return responses_refuse("metadata", err, "has over 16 pairs");
    }
    for (json_member m = {0}; json_next(metadata, &m);) {
        char param[64];
        (void)snprintf(param, sizeof param, "metadata.%.40s", m.name);
        if (!json_is(m.value, JSON_KIND_TEXT)) {
            TRY(responses_refuse(param, err, "must be a string"));
        }
    }
    return QUIRE_OK;
}

/* ---- what the response repeats ---- */

/* Writes a member with the field's value as given, or with `otherwise` (JSON text). */
static void responses_repeat(const quire_request *r, const char *name, const char *otherwise, json_out *o) {
    const json_value *v = request_part(r, name);
    json_name(o, name);
    if (v != NULL) {
        json_add(o, v);
    } else {
        json_raw(o, otherwise);
    }
}

/* Writes an object as given, and adds the members in `names` that it lacks as null. */
static void responses_repeat_object(const json_value *v, const char *const *names, json_out *o) {
    json_begin(o, '{');
    for (json_member m = {0}; json_next(v, &m);) {
        json_add(json_name(o, m.name), m.value);
    }
    for (; *names != NULL; names++) {
        if (!json_has(v, *names)) {
            json_raw(json_name(o, *names), "null");
        }
    }
    json_end(o, '}');
}

static void responses_repeat_text(const quire_request *r, json_out *o) {
    const json_value *text = request_part(r, "text"), *format = json_get(text, "format"),
                     *verbosity = json_get(text, "verbosity");
    json_begin(json_name(o, "text"), '{');
    json_name(o, "format");
    if (format != NULL) {
        json_add(o, format);
    } else {
        json_raw(o, "{\"type\":\"text\"}");
    }
    if (verbosity != NULL) {
        json_add(json_name(o, "verbosity"), verbosity);
    }
    json_end(o, '}');
}

static void responses_repeat_tools(const quire_request *r, json_out *o) {
    static const char *const of_function[] = {"description", "parameters", "strict", NULL}, *const none[] = {
                                                                                                NULL};
    const json_value *tools = request_part(r, "tools");
    json_begin(json_name(o, "tools"), '[');
    for (size_t i = 0; i < json_length(tools); i++) {
        bool is_function = str_is(json_get_str(json_at(tools, i), "type"), "function");
        responses_repeat_object(json_at(tools, i), is_function ? of_function : none, json_item(o));
    }
    json_end(o, ']');
}

static void responses_repeat_count(const char *name, int64_t n, json_out *o) {
    json_name(o, name);
    if (n >= 0) {
        json_int(o, n);
    } else {
        json_raw(o, "null");
    }
}

/* Writes the members that the response repeats, sorted by name. */
static quire_err responses_write_members(quire_request *r, bool is_stored, quire_error *err) {
    static const char *const of_reasoning[] = {"effort", "summary", NULL};
    json_out o = {.to = &r->response_members};
    responses_repeat(r, "background", "false", &o);
    responses_repeat(r, "instructions", "null", &o);
    responses_repeat_count("max_output_tokens", r->g.sampling.max_tokens, &o);
    responses_repeat_count("max_tool_calls", r->g.max_tool_calls, &o);
    responses_repeat(r, "metadata", "{}", &o);
    json_bool(json_name(&o, "parallel_tool_calls"), r->g.parallel_calls);
    responses_repeat(r, "previous_response_id", "null", &o);
    responses_repeat(r, "prompt_cache_key", "null", &o);
    responses_repeat_object(request_part(r, "reasoning"), of_reasoning, json_name(&o, "reasoning"));
    responses_repeat(r, "safety_identifier", "null", &o);
    json_cstr(json_name(&o, "service_tier"), "default");
    json_bool(json_name(&o, "store"), is_stored);
    json_exact(json_name(&o, "temperature"), (double)r->g.sampling.temperature);
    responses_repeat_text(r, &o);
    responses_repeat(r, "tool_choice", "\"auto\"", &o);
    responses_repeat_tools(r, &o);
    responses_repeat(r, "top_logprobs", "0", &o);
    json_exact(json_name(&o, "top_p"), (double)r->g.sampling.top_p);
    json_cstr(json_name(&o, "truncation"), "disabled");
    responses_repeat(r, "user", "null", &o);
    return err_set(err, o.err, -1, "out of memory for a response");
}

/* ---- the dialect ---- */

static quire_err responses_describe(quire_request *r, quire_error *err) {
    const json_value *store = request_part(r, "store"), *background = request_part(r, "background"),
                     *previous = request_part(r, "previous_response_id");
    bool is_stored = store == NULL || json_truth(store), is_background = json_truth(background);
    if (is_background && !is_stored) {
        return responses_refuse("background", err,
                                "needs store, from which the response is fetched; set store to true");
    }
    if (is_background && r->g.info.stream) {
        return responses_refuse("background", err,
                                "cannot be combined with stream; leave one of them out, and fetch a "
                                "background response by its id");
    }
    TRY(responses_write_members(r, is_stored, err));
    TRY(err_set(err, strbuf_add(&r->response_previous, json_str(previous).p, json_str(previous).n), -1,
                "out of memory for a response"));
    r->response_info =
        (quire_responses_info){.members = r->response_members.p,
                               .input = r->response_input.n > 0 ? r->response_input.p : "",
                               .n_input = r->response_input.n,
                               .previous = json_str(previous).n > 0 ? r->response_previous.p : NULL,
                               .is_stored = is_stored,
                               .is_background = is_background};
    r->responses = &r->response_info;
    return QUIRE_OK;
}

quire_err request_assemble_responses(quire_request *r, quire_error *err) {
    TRY(responses_check_metadata(r, err));
    TRY(responses_set_tools(r, err));
    TRY(responses_set_value(r, "tool_choice", request_part(r, "tool_choice"), err));
    TRY(responses_set_text(r, err));
    TRY(responses_set_reasoning(r, err));
    TRY(responses_set_include(r, err));
    TRY(responses_set_messages(r, err));
    return responses_describe(r, err);
}

const quire_responses_info *quire_request_responses(const quire_request *r) {
    return r->responses;
}

quire_err request_require_responses(const quire_request *r, quire_error *err) {
    assert(r != NULL);
    return r->responses != NULL
               ? request_require_chat(r, err)
               : responses_refuse("input", err, "is missing; give a string or an array of items");
}

quire_err request_long_responses(int32_t limit, size_t n, const char *least, quire_error *err) {
    return err_set_param(err, QUIRE_CONTEXT_LENGTH, "input", REQUEST_TOO_LONG, least, n, (int)limit);
}
