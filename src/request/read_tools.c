/* A chat's tools: the fields, the functions that it offers, and the choice among them. */
#include "base/mem.h"
#include "request/request_read.h"

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

/* A call that is forced is of a function that is offered. */
static quire_err read_tools_check_choice(const quire_request *r, quire_error *err) {
    bool is_named = r->tool_choice == OUTPUT_CHOICE_NAMED;
    if ((is_named || r->tool_choice == OUTPUT_CHOICE_REQUIRED) && r->n_offered == 0) {
        return err_set_param(err, QUIRE_BAD_REQUEST, "tool_choice",
                             "tool_choice asks for a call, and the request has no tools");
    }
    if (is_named && !is_offered(r, r->named_tool)) {
        return err_set_param(err, QUIRE_BAD_REQUEST, "tool_choice",
                             "tool_choice names %.*s, which is none of the request's tools",
                             (int)(r->named_tool.n < 60 ? r->named_tool.n : 60), r->named_tool.p);
    }
    return QUIRE_OK;
}

quire_err request_check_tools(quire_request *r, quire_error *err) {
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
