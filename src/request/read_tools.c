/* A chat's tools: the fields, the functions offered, and the choice among them. */
#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "request/request_read.h"
#include "request/request_tools.h"
#include "json/json_out.h"

quire_err request_read_tools(quire_request *r, const field_desc *f, const json_value *v, quire_error *err) {
    assert(f != NULL);
    TRY(request_check_n_tools(f, f->name, v, err));
    for (size_t i = 0; i < json_length(v); i++) {
        TRY(request_check_tool(f, i, json_at(v, i), err));
    }
    json_drop(r->given_tools);
    r->given_tools = NULL;
    r->tools = r->tools_field = v;
    return QUIRE_OK;
}

quire_err quire_request_tools(quire_request *r, const char *json, size_t n, quire_error *err) {
    json_value *tools = NULL;
    if (!dialect_of(&r->g)->is_chat) {
        return err_set(err, QUIRE_UNSUPPORTED, -1, "tools can be used only in chats");
    }
    TRY(request_check_size(request_field("tools", FIELD_CHAT), (str){json, n}, err));
    TRY(request_read_value((str){json, n}, 0, "tools", &tools, err));
    if (!json_is(tools, JSON_KIND_ARRAY)) {
        json_drop(tools);
        return err_set_param(err, QUIRE_BAD_REQUEST, "tools", "tools must be an array");
    }
    if (json_length(tools) > REQUEST_MAX_TOOLS) {
        json_drop(tools);
        return err_set_param(err, QUIRE_BAD_REQUEST, "tools", "tools has over %d entries", REQUEST_MAX_TOOLS);
    }
    json_drop(r->given_tools);
    r->tools = r->tools_field = r->given_tools = tools;
    r->is_checked = false;
    return QUIRE_OK;
}

/* ---- checks ---- */

/* Lists the allowed functions of r's tools, including those in the shape {"name": ..}. Of
 * several with one name the first is listed; a name that no format can write is left
 * out. */
static quire_err list_offered(quire_request *r, quire_error *err) {
    size_t n = json_length(r->tools);
    tool_names met = {.n = 0}, allowed = {.n = 0};
    request_list_allowed(r, &allowed);
    mem_free(r->offered);
    r->n_offered = 0;
    r->offered = n > 0 ? mem_new(n, sizeof *r->offered) : NULL;
    if (n > 0) {
        TRY(mem_check_for(r->offered, "a request's tools", err));
    }
    for (size_t i = 0; i < n; i++) {
        const json_value *tool = json_at(r->tools, i), *function = json_get(tool, "function");
        function = function != NULL ? function : tool;
        str name = json_get_str(function, "name");
        bool is_allowed = r->allowed_tools == NULL || tool_names_has(&allowed, name);
        if (is_allowed && call_is_name(name) && tool_names_add(&met, name)) {
            const json_value *custom =
                r->functions == NULL ? request_custom_of(json_at(r->tools_field, i)) : NULL;
            r->offered[r->n_offered++] = (output_tool){
                .name = name,
                .parameters = json_get(function, "parameters"),
                .is_strict = json_get_bool(function, "strict", false) || request_custom_rule(custom) != NULL,
                .lark = request_custom_lark(custom)};
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

/* Checks that a forced call is to a function that is offered. */
static quire_err read_tools_check_choice(const quire_request *r, quire_error *err) {
    bool is_named = r->tool_choice == OUTPUT_CHOICE_NAMED;
    if ((is_named || r->tool_choice == OUTPUT_CHOICE_REQUIRED) && r->n_offered == 0) {
        return err_set_param(err, QUIRE_BAD_REQUEST, "tool_choice",
                             "tool_choice asks for a call, but the request has no tools");
    }
    if (is_named && !is_offered(r, r->named_tool)) {
        return err_set_param(err, QUIRE_BAD_REQUEST, "tool_choice",
                             "tool_choice names %.*s, which is none of the request's tools",
                             (int)(r->named_tool.n < 60 ? r->named_tool.n : 60), r->named_tool.p);
    }
    return QUIRE_OK;
}

quire_err request_check_tools(quire_request *r, quire_error *err) {
    assert(r != NULL);
    r->formats = (output_formats){0};
    r->g.info.has_parts = false;
    if (dialect_of(&r->g)->is_chat) {
        TRY(request_settle_tools(r, err));
        TRY(list_offered(r, err));
        TRY(read_tools_check_choice(r, err));
        r->g.info.names_call = r->tool_choice == OUTPUT_CHOICE_NAMED;
    }
    if (r->context.bind != NULL) {
        TRY(r->context.bind(r, err));
    }
    return QUIRE_OK;
}

/* ---- other shapes of tools: custom tools, allowed_tools, functions, function_call
 * ---- */

/* ---- the fields ---- */

/* Checks a function's description. where: its name in errors. */
static quire_err check_function(const field_desc *f, const char *where, const json_value *function,
                                quire_error *err) {
    const json_value *parameters = json_get(function, "parameters"), *strict = json_get(function, "strict");
    TRY(request_check_tool_name(f, where, json_get_str(function, "name"), err));
    if (strict != NULL && !json_is(strict, JSON_KIND_BOOL)) {
        return request_range_error(f, err, "%s.strict must be true or false", where);
    }
    return parameters == NULL || json_is(parameters, JSON_KIND_OBJECT)
               ? QUIRE_OK
               : request_range_error(f, err, "%s.parameters must be a JSON Schema, an object", where);
}

quire_err request_check_n_tools(const field_desc *f, const char *where, const json_value *tools,
                                quire_error *err) {
    size_t n = json_is(tools, JSON_KIND_ARRAY) ? json_length(tools) : 0;
    return n <= REQUEST_MAX_TOOLS ? QUIRE_OK
                                  : request_range_error(f, err, "%s has %zu entries; at most %d are allowed",
                                                        where, n, REQUEST_MAX_TOOLS);
}

quire_err request_check_tool(const field_desc *f, size_t i, const json_value *tool, quire_error *err) {
    char where[40];
    (void)snprintf(where, sizeof where, "tools[%zu].function", i);
    if (!json_is(tool, JSON_KIND_OBJECT)) {
        return request_type_error(f, (int64_t)i, tool, "an object", err);
    }
    if (str_is(json_get_str(tool, "type"), "custom")) {
        return request_check_custom(f, i, json_get(tool, "custom"), err);
    }
    if (!str_is(json_get_str(tool, "type"), "function")) {
        return request_range_error(f, err, "tools[%zu].type must be \"function\" or \"custom\"", i);
    }
    return check_function(f, where, json_get(tool, "function"), err);
}

quire_err request_read_functions(quire_request *r, const field_desc *f, const json_value *v,
                                 quire_error *err) {
    assert(f != NULL);
    TRY(request_check_n_tools(f, f->name, v, err));
    for (size_t i = 0; i < json_length(v); i++) {
        char where[40];
        (void)snprintf(where, sizeof where, "functions[%zu]", i);
        if (!json_is(json_at(v, i), JSON_KIND_OBJECT)) {
            return request_type_error(f, (int64_t)i, json_at(v, i), "an object", err);
        }
        TRY(check_function(f, where, json_at(v, i), err));
    }
    r->functions = v;
    return QUIRE_OK;
}

/* The name in {"type": T, T: {"name": ..}} or {"type": T, "name": ..}. */
static str tool_name(const json_value *v) {
    const json_value *inside = json_get(v, "function");
    inside = inside != NULL ? inside : json_get(v, "custom");
    return json_get_str(inside != NULL ? inside : v, "name");
}

/* Reads {"type": "allowed_tools", "allowed_tools": {"mode", "tools"}}, or with mode and
 * tools beside the type. */
static quire_err read_allowed(quire_request *r, const field_desc *f, const json_value *v, quire_error *err) {
    const json_value *inside = json_get(v, "allowed_tools");
    inside = inside != NULL ? inside : v;
    const json_value *tools = json_get(inside, "tools");
    str mode = json_get_str(inside, "mode");
    if (!str_is(mode, "auto") && !str_is(mode, "required")) {
        return request_range_error(f, err, "tool_choice.allowed_tools.mode must be \"auto\" or \"required\"");
    }
    TRY(request_check_n_tools(f, "tool_choice.allowed_tools.tools", tools, err));
    bool has_names = json_is(tools, JSON_KIND_ARRAY) && json_length(tools) > 0;
    for (size_t i = 0; has_names && i < json_length(tools); i++) {
        has_names = tool_name(json_at(tools, i)).n > 0;
    }
    if (!has_names) {
        return request_range_error(
            f, err, "tool_choice.allowed_tools.tools must be an array of at least one tool's type and name");
    }
    r->allowed_tools = tools;
    r->tool_choice = str_is(mode, "auto") ? OUTPUT_CHOICE_AUTO : OUTPUT_CHOICE_REQUIRED;
    return QUIRE_OK;
}

quire_err request_read_tool_choice(quire_request *r, const field_desc *f, const json_value *v,
                                   quire_error *err) {
    static const char *const words[] = {
        [OUTPUT_CHOICE_AUTO] = "auto", [OUTPUT_CHOICE_NONE] = "none", [OUTPUT_CHOICE_REQUIRED] = "required"};
    /* the field is function_call */
    bool is_old = f->name[0] == 'f', is_others = r->choice_field != NULL && r->choice_field != f;
    if (is_others) {
        return v == NULL ? QUIRE_OK
                         : request_range_error(
                               f, err, "tool_choice and function_call are both given; give one of them");
    }
    r->choice_field = v != NULL ? f : NULL;
    r->named_tool = (str){0};
    r->allowed_tools = NULL;
    if (v == NULL) {
        r->tool_choice = OUTPUT_CHOICE_AUTO;
        return QUIRE_OK;
    }
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        if (json_is(v, JSON_KIND_TEXT) && str_is(json_str(v), words[i]) &&
            !(is_old && i == OUTPUT_CHOICE_REQUIRED)) {
            r->tool_choice = (output_choice)i;
            return QUIRE_OK;
        }
    }
    if (!is_old && str_is(json_get_str(v, "type"), "allowed_tools")) {
        return read_allowed(r, f, v, err);
    }
    str name = tool_name(v);
    if (name.n == 0) {
        return request_range_error(
            f, err,
            is_old ? "function_call must be \"auto\", \"none\" or {\"name\": ..}"
                   : "tool_choice must be \"auto\", \"none\", \"required\", {\"type\": \"function\", "
                     "\"function\": "
                     "{\"name\": ..}}, the same of a custom tool, or {\"type\": \"allowed_tools\", ..}");
    }
    r->tool_choice = OUTPUT_CHOICE_NAMED;
    r->named_tool = name;
    return QUIRE_OK;
}

/* ---- tools as functions ---- */

/* Writes all tools as functions. */
static quire_err write_plain(const quire_request *r, strbuf *out) {
    const json_value *from = r->functions != NULL ? r->functions : r->tools_field;
    json_out o = {.to = out};
    json_begin(&o, '[');
    for (size_t i = 0; i < json_length(from); i++) {
        const json_value *tool = json_at(from, i), *custom = request_custom_of(tool);
        if (custom == NULL && r->functions == NULL) {
            json_add(json_item(&o), tool);
            continue;
        }
        json_begin(json_item(&o), '{');
        json_cstr(json_name(&o, "type"), "function");
        json_name(&o, "function");
        if (custom != NULL) {
            TRY(request_write_custom(custom, &o));
        } else {
            json_add(&o, tool);
        }
        json_end(&o, '}');
    }
    json_end(&o, ']');
    return o.err;
}

bool request_is_custom(const quire_request *r, str name) {
    assert(r != NULL);
    /* of several tools with one name, the first counts */
    for (size_t i = 0; i < json_length(r->tools_field); i++) {
        const json_value *tool = json_at(r->tools_field, i);
        if (str_eq(tool_name(tool), name)) {
            return request_custom_of(tool) != NULL;
        }
    }
    return false;
}

void request_list_allowed(const quire_request *r, tool_names *out) {
    assert(r != NULL);
    for (size_t i = 0; i < json_length(r->allowed_tools); i++) {
        (void)tool_names_add(out, tool_name(json_at(r->allowed_tools, i)));
    }
}

/* Checks that each allowed tool is among the request's tools. */
static quire_err check_allowed(const quire_request *r, quire_error *err) {
    tool_names names = {.n = 0};
    for (size_t i = 0; r->allowed_tools != NULL && i < json_length(r->tools); i++) {
        const json_value *tool = json_at(r->tools, i), *function = json_get(tool, "function");
        (void)tool_names_add(&names, json_get_str(function != NULL ? function : tool, "name"));
    }
    for (size_t i = 0; i < json_length(r->allowed_tools); i++) {
        str name = tool_name(json_at(r->allowed_tools, i));
        if (!tool_names_has(&names, name)) {
            return err_set_param(err, QUIRE_BAD_REQUEST, "tool_choice",
                                 "tool_choice allows %.*s, which is none of the request's tools",
                                 (int)(name.n < 60 ? name.n : 60), name.p);
        }
    }
    return QUIRE_OK;
}

quire_err request_settle_tools(quire_request *r, quire_error *err) {
    strbuf text = {0};
    bool is_plain = r->functions == NULL || json_length(r->functions) == 0;
    if (!is_plain && json_length(r->tools_field) > 0) {
        return err_set_param(err, QUIRE_BAD_REQUEST, "functions",
                             "functions and tools are both given; give only tools");
    }
    r->g.info.old_calls = !is_plain;
    r->has_custom = false;
    for (size_t i = 0; i < json_length(r->tools_field); i++) {
        r->has_custom = r->has_custom || request_custom_of(json_at(r->tools_field, i)) != NULL;
    }
    json_drop(r->plain_tools);
    r->plain_tools = NULL;
    r->tools = r->tools_field;
    if (!is_plain || r->has_custom) {
        quire_err e = err_set(err, write_plain(r, &text), -1, "out of memory for a request's tools");
        if (e == QUIRE_OK) {
            e = request_read_value((str){text.p, text.n}, 0, "tools", &r->plain_tools, err);
        }
        strbuf_deinit(&text);
        TRY(e);
        r->tools = r->plain_tools;
    }
    return check_allowed(r, err);
}

/* Custom tools, which take a text instead of arguments: their fields, the text's grammar,
 * the functions that represent them; and tool namespaces (request_tools.h). */

const json_value *request_custom_of(const json_value *tool) {
    return str_is(json_get_str(tool, "type"), "custom") ? json_get(tool, "custom") : NULL;
}

/* format.grammar, or in the flat shape format itself */
const json_value *request_custom_rule(const json_value *custom) {
    const json_value *format = json_get(custom, "format"), *given = json_get(format, "grammar");
    return !str_is(json_get_str(format, "type"), "grammar") ? NULL : given != NULL ? given : format;
}

bool request_custom_is_lark(const json_value *custom) {
    return str_is(json_get_str(request_custom_rule(custom), "syntax"), "lark");
}

str request_custom_lark(const json_value *custom) {
    return request_custom_is_lark(custom) ? json_get_str(request_custom_rule(custom), "definition")
                                          : (str){0};
}

quire_err request_check_tool_name(const field_desc *f, const char *where, str name, quire_error *err) {
    if (name.n == 0) {
        return request_range_error(f, err, "%s.name must be a string that is not empty", where);
    }
    if (!call_is_name(name)) {
        return request_range_error(f, err,
                                   "%s.name must be a word of at most 256 bytes: without white space, "
                                   "quotes, brackets and = , ; | \\ `",
                                   where);
    }
    return QUIRE_OK;
}

quire_err request_check_custom(const field_desc *f, size_t i, const json_value *custom, quire_error *err) {
    const json_value *format = json_get(custom, "format"), *rule = request_custom_rule(custom);
    char where[40];
    (void)snprintf(where, sizeof where, "tools[%zu].custom", i);
    TRY(request_check_tool_name(f, where, json_get_str(custom, "name"), err));
    if (format == NULL || str_is(json_get_str(format, "type"), "text")) {
        return QUIRE_OK;
    }
    if (rule == NULL) {
        return request_range_error(f, err, "tools[%zu].custom.format.type must be \"text\" or \"grammar\"",
                                   i);
    }
    str syntax = json_get_str(rule, "syntax"), definition = json_get_str(rule, "definition");
    bool is_known = str_is(syntax, "lark") || str_is(syntax, "regex");
    if (!is_known || !json_is(json_get(rule, "definition"), JSON_KIND_TEXT) ||
        (str_is(syntax, "lark") && definition.n == 0)) {
        return request_range_error(f, err,
                                   "tools[%zu].custom.format.grammar must have syntax \"lark\" or \"regex\" "
                                   "and a definition, a string",
                                   i);
    }
    return definition.n <= PARAMS_MAX_RULE_BYTES
               ? QUIRE_OK
               : request_range_error(
                     f, err,
                     "tools[%zu].custom.format.grammar.definition has %zu bytes; at most %zu are allowed", i,
                     definition.n, PARAMS_MAX_RULE_BYTES);
}

/* ---- as a function ---- */

/* Appends a pattern for strings that the regex matches as a whole. Flags stay at the
 * pattern's beginning. */
static quire_err add_whole_pattern(strbuf *to, str regex) {
    size_t n = 0;
    while (regex.n - n >= 4 && memcmp(regex.p + n, "(?", 2) == 0 && strchr("isua", regex.p[n + 2]) != NULL &&
           regex.p[n + 3] == ')') {
        n += 4;
    }
    TRY(strbuf_add(to, regex.p, n));
    TRY(strbuf_add_str(to, "^(?:"));
    TRY(strbuf_add(to, regex.p + n, regex.n - n));
    return strbuf_add_str(to, ")$");
}

/* Writes the schema of the arguments: one string that the tool's regex, if any, matches
 * as a whole. */
static quire_err write_input_schema(const json_value *custom, json_out *o) {
    str regex = json_get_str(request_custom_rule(custom), "definition");
    strbuf pattern = {0};
    json_begin(o, '{');
    json_cstr(json_name(o, "type"), "object");
    json_begin(json_name(o, "properties"), '{');
    json_begin(json_name(o, OUTPUT_TOOL_INPUT), '{');
    json_cstr(json_name(o, "type"), "string");
    quire_err e = QUIRE_OK;
    if (request_custom_rule(custom) != NULL && !request_custom_is_lark(custom)) {
        e = add_whole_pattern(&pattern, regex);
        json_text(json_name(o, "pattern"), pattern.n > 0 ? pattern.p : "", pattern.n);
    }
    json_end(o, '}');
    json_end(o, '}');
    json_raw(json_name(o, "required"), "[\"" OUTPUT_TOOL_INPUT "\"]");
    json_bool(json_name(o, "additionalProperties"), false);
    json_end(o, '}');
    strbuf_deinit(&pattern);
    return e;
}

quire_err request_write_custom(const json_value *custom, json_out *o) {
    json_begin(o, '{');
    json_add(json_name(o, "name"), json_get(custom, "name"));
    if (json_get(custom, "description") != NULL) {
        json_add(json_name(o, "description"), json_get(custom, "description"));
    }
    quire_err e = write_input_schema(custom, json_name(o, "parameters"));
    json_end(o, '}');
    return e;
}

/* ---- namespaces ---- */

quire_err tool_spaces_add(tool_spaces *t, str space, str name) {
    assert(t != NULL);
    size_t at = t->names.n, n_space = space.n > 0 ? space.n + 1 : 0;
    TRY(mem_grow(&t->all, &t->cap, t->n + 1, sizeof *t->all));
    TRY(strbuf_add(&t->names, space.p, space.n));
    if (space.n > 0) {
        TRY(strbuf_add_char(&t->names, '.'));
    }
    TRY(strbuf_add(&t->names, name.p, name.n));
    t->all[t->n++] = (tool_space){at, n_space + name.n, space.n};
    t->n_spaces += space.n > 0;
    return QUIRE_OK;
}

size_t tool_spaces_find(const tool_spaces *t, str called) {
    assert(t != NULL);
    size_t n_space = 0;
    for (size_t i = 0; t->n_spaces > 0 && i < t->n; i++) {
        const tool_space *tool = &t->all[i];
        const char *name = t->names.p + tool->at;
        if (str_eq((str){name, tool->n}, called)) {
            return tool->n_space;
        }
        if (tool->n_space > 0 && called.n > tool->n_space + 1 &&
            memcmp(called.p, name, tool->n_space + 1) == 0) {
            n_space = tool->n_space;
        }
    }
    return n_space;
}

void tool_spaces_deinit(tool_spaces *t) {
    strbuf_deinit(&t->names);
    mem_free(t->all);
    *t = (tool_spaces){.n = 0};
}
