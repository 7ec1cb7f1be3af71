/* A chat's tools: the fields, the formats in which its response is split, and the parser
 * of the response. */
#include <stdio.h>
#include <string.h>

#include "answer/answer_format.h"
#include "base/mem.h"
#include "request/request_read.h"
#include "json/json_out.h"

quire_err request_read_tools(quire_request *r, const field_desc *f, const json_value *v, quire_error *err) {
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
        return err_set(err, QUIRE_UNSUPPORTED, -1, "tools are for chats");
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

/* Lists the functions of r's tools that it allows, also of those given in another shape
 * ({"name": ..}). Of several of one name the first counts. One that no format can name is
 * none. */
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
                .is_strict = json_get_bool(function, "strict", false) || request_custom_has_grammar(custom),
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

/* Chooses the formats: by option, else by the template that counts for r. */
static output_formats choose_formats(const quire_request *r) {
    output_formats f = r->context.formats;
    bool has_own = r->template_given.n > 0 &&
                   (r->context.form == NULL || chat_form_find(r->context.form, r->template_given) == NULL);
    if (has_own) {
        output_formats own = output_formats_of_template(r->template_given);
        f.tools = r->context.names_tools ? f.tools : own.tools;
        f.reasoning = r->context.names_reasoning ? f.reasoning : own.reasoning;
    }
    return f;
}

static quire_err check_budget(const quire_request *r, quire_error *err) {
    return r->g.thinking_budget < 0 || r->formats.reasoning != NULL
               ? QUIRE_OK
               : err_set_param(err, QUIRE_BAD_REQUEST, "thinking_token_budget",
                               "thinking_token_budget is given, and the response has no reasoning that this "
                               "server could tell from "
                               "the rest; a chat with a reasoning model has, or where --reasoning-parser "
                               "names its format");
}

quire_err request_check_tools(quire_request *r, quire_error *err) {
    bool forced = r->tool_choice == OUTPUT_CHOICE_REQUIRED || r->tool_choice == OUTPUT_CHOICE_NAMED;
    r->formats = (output_formats){0};
    r->g.info.has_parts = false;
    if (!dialect_of(&r->g)->is_chat) {
        return check_budget(r, err);
    }
    TRY(request_settle_tools(r, err));
    TRY(list_offered(r, err));
    if (forced && r->n_offered == 0) {
        return err_set_param(err, QUIRE_BAD_REQUEST, "tool_choice",
                             "tool_choice asks for a call, and the request has no tools");
    }
    if (r->tool_choice == OUTPUT_CHOICE_NAMED && !is_offered(r, r->named_tool)) {
        return err_set_param(err, QUIRE_BAD_REQUEST, "tool_choice",
                             "tool_choice names %.*s, which is none of the request's tools",
                             (int)(r->named_tool.n < 60 ? r->named_tool.n : 60), r->named_tool.p);
    }
    r->formats = choose_formats(r);
    r->formats.tools = r->n_offered == 0 || r->tool_choice == OUTPUT_CHOICE_NONE ? NULL : r->formats.tools;
    TRY(request_bind_calls(r, err));
    r->g.info.names_call = r->tool_choice == OUTPUT_CHOICE_NAMED;
    r->g.info.has_parts = r->formats.tools != NULL || r->formats.reasoning != NULL;
    return check_budget(r, err);
}

/* ---- the response ---- */

static bool is_added(const void *context, str text) {
    const tokenizer *t = context;
    int32_t id = tokenizer_find(t, text);
    return id >= 0 && tokenizer_is_added(t, id);
}

bool request_has_mark(const quire_request *r, str token) {
    str marks[OUTPUT_FORMAT_MARKS];
    int n = output_formats_marks(&r->formats, marks);
    for (int i = 0; i < n; i++) {
        if (str_contains(marks[i], token)) {
            return true;
        }
    }
    return false;
}

/* Whether marks are hidden where special tokens are: none of them is a token that a user
 * defined, whose text is always shown. */
static bool hides_marks(const quire_request *r) {
    str marks[OUTPUT_FORMAT_MARKS];
    const tokenizer *t = r->context.tokenizer;
    int n = t != NULL ? output_formats_marks(&r->formats, marks) : 0;
    for (int i = 0; i < n; i++) {
        int32_t id = tokenizer_find(t, marks[i]);
        if (id >= 0 && tokenizer_is_added(t, id) && !tokenizer_is_special(t, id)) {
            return false;
        }
    }
    return r->g.skip_special;
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
