/* Custom tools, which are called with a text: their fields, the grammar of that text, and
 * the function that stands for them; and the namespaces of tools (request_tools.h). */
#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "request/request_read.h"
#include "request/request_tools.h"
#include "json/json_out.h"

const json_value *request_custom_of(const json_value *tool) {
    return str_is(json_get_str(tool, "type"), "custom") ? json_get(tool, "custom") : NULL;
}

/* format.grammar, or in the flat form the format itself. */
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
                     "tools[%zu].custom.format.grammar.definition has %zu bytes; at most %zu are read", i,
                     definition.n, PARAMS_MAX_RULE_BYTES);
}

/* ---- as a function ---- */

/* Appends the pattern of a string that the regex matches as a whole. Flags stand at a
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

/* Writes the schema of the arguments: one string, which the tool's regex matches as a
 * whole. */
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
