/* The dialect of Anthropic's Messages API: converts its fields to those of a chat. */
#include <assert.h>
#include <stdio.h>

#include "request/read_turns.h"
#include "request/request_read.h"
#include "json/json_out.h"

/* Sets a chat field, or an internal row of this dialect, to o's text, and frees the
 * text. */
static quire_err messages_set(quire_request *r, uint32_t endpoint, const char *field, json_out *o,
                              quire_error *err) {
    quire_err e = request_set_as(r, endpoint, field, o->err, o->to, err);
    strbuf_deinit(o->to);
    return e;
}

static quire_err messages_set_word(quire_request *r, const char *field, const char *json, quire_error *err) {
    strbuf text = {0};
    json_out o = {.to = &text};
    json_raw(&o, json);
    return messages_set(r, FIELD_CHAT, field, &o, err);
}

static quire_err messages_refuse(const char *param, const char *words, quire_error *err) {
    return err_set_param(err, QUIRE_BAD_REQUEST, param, "%s %s", param, words);
}

/* ---- tools ---- */

/* Checks a tool: {"name", "description", "input_schema"}, optionally "type": "custom".
 * Tools that Anthropic runs or defines by type have no schema and are refused. */
static quire_err messages_check_tool(const field_desc *f, size_t i, const json_value *tool,
                                     quire_error *err) {
    char where[40];
    str type = json_get_str(tool, "type");
    const json_value *strict = json_get(tool, "strict"), *description = json_get(tool, "description");
    snprintf(where, sizeof where, "tools[%zu]", i);
    if (!json_is(tool, JSON_KIND_OBJECT)) {
        return messages_refuse(where, "must be an object", err);
    }
    if (!json_is(json_get(tool, "input_schema"), JSON_KIND_OBJECT)) {
        bool is_own = type.n > 0 && !str_is(type, "custom");
        return is_own ? err_set_param(err, QUIRE_BAD_REQUEST, where,
                                      "%s is of type \"%.*s\", a tool that this server does not run; give a "
                                      "tool with name, description and input_schema",
                                      where, (int)(type.n < 60 ? type.n : 60), type.p)
                      : err_set_param(err, QUIRE_BAD_REQUEST, where,
                                      "%s.input_schema must be a JSON Schema, an object", where);
    }
    if (description != NULL && !json_is(description, JSON_KIND_TEXT)) {
        return err_set_param(err, QUIRE_BAD_REQUEST, where, "%s.description must be a string", where);
    }
    if (strict != NULL && !json_is(strict, JSON_KIND_BOOL)) {
        return err_set_param(err, QUIRE_BAD_REQUEST, where, "%s.strict must be true or false", where);
    }
    return request_check_tool_name(f, where, json_get_str(tool, "name"), err);
}

static void messages_write_tool(const json_value *tool, json_out *o) {
    static const char *const names[][2] = {{"name", "name"},
                                           {"description", "description"},
                                           {"input_schema", "parameters"},
                                           {"strict", "strict"}};
    json_begin(json_item(o), '{');
    json_cstr(json_name(o, "type"), "function");
    json_begin(json_name(o, "function"), '{');
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        if (json_get(tool, names[i][0]) != NULL) {
            json_add(json_name(o, names[i][1]), json_get(tool, names[i][0]));
        }
    }
    json_end(o, '}');
    json_end(o, '}');
}

static quire_err messages_take_tools(quire_request *r, const json_value *tools, quire_error *err) {
    const field_desc *f = request_field("tools", FIELD_MESSAGES_API);
    strbuf text = {0};
    json_out o = {.to = &text};
    TRY(request_check_n_tools(f, f->name, tools, err));
    for (size_t i = 0; i < json_length(tools); i++) {
        TRY(messages_check_tool(f, i, json_at(tools, i), err));
    }
    json_begin(&o, '[');
    for (size_t i = 0; i < json_length(tools); i++) {
        messages_write_tool(json_at(tools, i), &o);
    }
    json_end(&o, ']');
    return messages_set(r, FIELD_CHAT, "tools", &o, err);
}

/* Reads {"type": "auto" | "any" | "tool" | "none", "name",
 * "disable_parallel_tool_use"}. */
static quire_err messages_take_choice(quire_request *r, const json_value *choice, quire_error *err) {
    static const char *const words[][2] = {
        {"auto", "\"auto\""}, {"any", "\"required\""}, {"none", "\"none\""}};
    str type = json_get_str(choice, "type"), name = json_get_str(choice, "name");
    const json_value *single = json_get(choice, "disable_parallel_tool_use");
    if (single != NULL && !json_is(single, JSON_KIND_BOOL)) {
        return messages_refuse("tool_choice.disable_parallel_tool_use", "must be true or false", err);
    }
    if (json_truth(single)) {
        TRY(messages_set_word(r, "parallel_tool_calls", "false", err));
    }
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        if (str_is(type, words[i][0])) {
            return messages_set_word(r, "tool_choice", words[i][1], err);
        }
    }
    if (!str_is(type, "tool")) {
        return messages_refuse("tool_choice.type", "must be \"auto\", \"any\", \"tool\" or \"none\"", err);
    }
    if (name.n == 0) {
        return messages_refuse("tool_choice.name", "must be the name of a tool", err);
    }
    strbuf text = {0};
    json_out o = {.to = &text};
    json_begin(&o, '{');
    json_cstr(json_name(&o, "type"), "function");
    json_begin(json_name(&o, "function"), '{');
    json_text(json_name(&o, "name"), name.p, name.n);
    json_end(&o, '}');
    json_end(&o, '}');
    return messages_set(r, FIELD_CHAT, "tool_choice", &o, err);
}

/* ---- thinking ---- */

/* Sets the template variables that switch reasoning on or off, unless the request sets
 * them itself. */
static quire_err messages_switch_thinking(quire_request *r, bool thinks, quire_error *err) {
    static const char *const names[] = {"enable_thinking", "thinking"};
    const json_value *given = r->template_kwargs;
    strbuf text = {0};
    json_out o = {.to = &text};
    json_begin(&o, '{');
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        if (!json_has(given, names[i])) {
            json_bool(json_name(&o, names[i]), thinks);
        }
    }
    for (json_member m = {0}; json_next(given, &m);) {
        json_add(json_name(&o, m.name), m.value);
    }
    json_end(&o, '}');
    return messages_set(r, FIELD_CHAT, "chat_template_kwargs", &o, err);
}

/* Sets the limit of reasoning tokens; it is ignored for a model that doesn't reason. */
static quire_err messages_take_budget(quire_request *r, const json_value *thinking, quire_error *err) {
    int64_t budget = 0;
    strbuf text = {0};
    json_out o = {.to = &text};
    if (json_get(thinking, "budget_tokens") == NULL) {
        return messages_refuse("thinking.budget_tokens", "is missing; give the most tokens of reasoning",
                               err);
    }
    json_add(&o, json_get(thinking, "budget_tokens"));
    TRY(messages_set(r, FIELD_MESSAGES_API, "thinking.budget_tokens", &o, err));
    budget = r->g.thinking_budget;
    /* with tools, the budget covers all answers of a turn */
    if (json_length(r->tools) == 0 && r->g.sampling.max_tokens > 0 && budget >= r->g.sampling.max_tokens) {
        return err_set_param(err, QUIRE_BAD_REQUEST, "thinking.budget_tokens",
                             "thinking.budget_tokens is %lld; it must be less than max_tokens, which is %d",
                             (long long)budget, (int)r->g.sampling.max_tokens);
    }
    if (r->context.formats.reasoning == NULL) {
        r->g.thinking_budget = -1;
    }
    return QUIRE_OK;
}

/* Reads {"type": "enabled", "budget_tokens"}, {"type": "adaptive"} or {"type":
 * "disabled"}, with "display": "summarized", "updates" or "omitted". If absent, reasoning
 * is off. */
static quire_err messages_take_thinking(quire_request *r, const json_value *thinking, quire_error *err) {
    str type = json_get_str(thinking, "type"), display = json_get_str(thinking, "display");
    bool is_enabled = str_is(type, "enabled"), thinks = is_enabled || str_is(type, "adaptive");
    if (thinking != NULL && !thinks && !str_is(type, "disabled")) {
        return messages_refuse("thinking.type", "must be \"enabled\", \"adaptive\" or \"disabled\"", err);
    }
    if (json_get(thinking, "display") != NULL && !str_is(display, "summarized") &&
        !str_is(display, "omitted") && !str_is(display, "updates")) {
        return messages_refuse("thinking.display", "must be \"summarized\", \"omitted\" or \"updates\"", err);
    }
    if (is_enabled) {
        TRY(messages_take_budget(r, thinking, err));
    }
    if (!thinks || str_is(display, "omitted")) {
        TRY(messages_set_word(r, "include_reasoning", "false", err));
    }
    return messages_switch_thinking(r, thinks, err);
}

/* ---- format of the answer ---- */

/* Reads {"type": "json_schema", "schema"}. from: the field's name. */
static quire_err messages_take_format(quire_request *r, const char *from, const json_value *format,
                                      quire_error *err) {
    char row[40];
    const json_value *schema = json_get(format, "schema");
    strbuf text = {0};
    json_out o = {.to = &text};
    if (!str_is(json_get_str(format, "type"), "json_schema")) {
        snprintf(row, sizeof row, "%s.type", from);
        return messages_refuse(row, "must be \"json_schema\"", err);
    }
    if (!json_is(schema, JSON_KIND_OBJECT)) {
        snprintf(row, sizeof row, "%s.schema", from);
        return messages_refuse(row, "must be a JSON Schema, an object", err);
    }
    json_begin(&o, '{');
    json_cstr(json_name(&o, "type"), "json_schema");
    json_begin(json_name(&o, "json_schema"), '{');
    json_cstr(json_name(&o, "name"), "output");
    json_add(json_name(&o, "schema"), schema);
    json_end(&o, '}');
    json_end(&o, '}');
    return messages_set(r, FIELD_MESSAGES_API, "output_config.format", &o, err);
}

static quire_err messages_take_effort(quire_request *r, const json_value *effort, quire_error *err) {
    static const char *const words[][2] = {{"low", "\"low\""},
                                           {"medium", "\"medium\""},
                                           {"high", "\"high\""},
                                           {"xhigh", "\"high\""},
                                           {"max", "\"high\""}};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        if (json_is(effort, JSON_KIND_TEXT) && str_is(json_str(effort), words[i][0])) {
            return messages_set_word(r, "reasoning_effort", words[i][1], err);
        }
    }
    return messages_refuse("output_config.effort",
                           "must be \"low\", \"medium\", \"high\", \"xhigh\" or \"max\"", err);
}

static quire_err messages_take_output(quire_request *r, quire_error *err) {
    const json_value *config = request_part(r, "output_config"), *old = request_part(r, "output_format");
    const json_value *format = json_get(config, "format"), *effort = json_get(config, "effort");
    if (format != NULL && old != NULL) {
        return messages_refuse("output_format", "and output_config.format are both given; give one of them",
                               err);
    }
    if (effort != NULL) {
        TRY(messages_take_effort(r, effort, err));
    }
    if (old != NULL) {
        TRY(messages_take_format(r, "output_format", old, err));
    }
    for (json_member m = {0}; json_next(config, &m);) {
        if (strcmp(m.name, "format") != 0 && strcmp(m.name, "effort") != 0 && m.value != NULL) {
            TRY(request_ignore(r, "output_config.", str_of(m.name)));
        }
    }
    return format != NULL ? messages_take_format(r, "output_config.format", format, err) : QUIRE_OK;
}

/* ---- the dialect ---- */

static quire_err messages_take_turns(quire_request *r, quire_error *err) {
    turns_written turns = {0};
    const json_value *messages = request_part(r, "messages");
    if (json_length(messages) == 0) {
        return messages_refuse("messages",
                               messages == NULL ? "is missing; give an array of messages"
                                                : "is empty; give at least one message",
                               err);
    }
    quire_err e = turns_write(r, request_part(r, "system"), messages, &turns, err);
    TRY_DONE(e, request_set_as(r, FIELD_CHAT, "messages", QUIRE_OK, &turns.json, err));
done:
    strbuf_deinit(&turns.json);
    TRY(e);
    if (turns.is_continued) {
        TRY(messages_set_word(r, "add_generation_prompt", "false", err));
        TRY(messages_set_word(r, "continue_final_message", "true", err));
    }
    return QUIRE_OK;
}

quire_err request_assemble_messages(quire_request *r, quire_error *err) {
    const json_value *tools = request_part(r, "tools"), *choice = request_part(r, "tool_choice");
    TRY(messages_take_turns(r, err));
    if (tools != NULL) {
        TRY(messages_take_tools(r, tools, err));
    }
    if (choice != NULL) {
        TRY(messages_take_choice(r, choice, err));
    }
    TRY(messages_take_thinking(r, request_part(r, "thinking"), err));
    TRY(messages_take_output(r, err));
    return request_part(r, "context_management") != NULL ? request_ignore(r, "", str_of("context_management"))
                                                         : QUIRE_OK;
}

quire_err request_require_messages(const quire_request *r, quire_error *err) {
    assert(r != NULL);
    if (r->g.messages.json.n == 0) {
        return messages_refuse("messages", "is missing; give an array of messages", err);
    }
    if (r->g.sampling.max_tokens < 0 && !r->context.counts_only) {
        return messages_refuse("max_tokens", "is missing; give the most tokens that the answer may have",
                               err);
    }
    return request_require_chat(r, err);
}
