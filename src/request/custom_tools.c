/* Custom tools, which are called with a text: their fields, the grammar of that text, and
 * the function that stands for them. */
#include <stdio.h>

#include "answer/answer_format.h"
#include "base/clock.h"
#include "request/request_read.h"
#include "json/json_out.h"

const json_value *request_custom_of(const json_value *tool) {
    return str_is(json_get_str(tool, "type"), "custom") ? json_get(tool, "custom") : NULL;
}

/* The object that has syntax and definition: format.grammar, or in the flat form the
 * format itself. */
static const json_value *grammar_of(const json_value *custom) {
    const json_value *format = json_get(custom, "format"), *given = json_get(format, "grammar");
    return !str_is(json_get_str(format, "type"), "grammar") ? NULL : given != NULL ? given : format;
}

static bool is_lark(const json_value *custom) {
    return str_is(json_get_str(grammar_of(custom), "syntax"), "lark");
}

bool request_custom_has_grammar(const json_value *custom) {
    return grammar_of(custom) != NULL;
}

str request_custom_lark(const json_value *custom) {
    return is_lark(custom) ? json_get_str(grammar_of(custom), "definition") : (str){0};
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
    const json_value *format = json_get(custom, "format"), *rule = grammar_of(custom);
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
    return definition.n <= GRAMMAR_MAX_TEXT
               ? QUIRE_OK
               : request_range_error(
                     f, err,
                     "tools[%zu].custom.format.grammar.definition has %zu bytes; at most %zu are read", i,
                     definition.n, GRAMMAR_MAX_TEXT);
}

/* Compiles a grammar by itself, unless the tenant's cache has it. */
static quire_err compile_alone(const json_value *custom, int64_t max_us, grammar_cache *cache,
                               uint64_t tenant, quire_error *why) {
    grammar_key key = {.tenant = tenant,
                       .kind = is_lark(custom) ? GRAMMAR_LARK : GRAMMAR_REGEX,
                       .text = json_get_str(grammar_of(custom), "definition")};
    grammar *g = cache != NULL ? grammar_cache_find(cache, &key) : NULL;
    quire_err e = QUIRE_OK;
    if (g == NULL) {
        const grammar_options options = {.max_us = max_us};
        e = max_us > 0 ? grammar_compile(key.kind, key.text, &options, &g, why)
                       : err_set(why, QUIRE_TOO_LARGE, -1,
                                 "the grammars of custom tools take too long to compile together");
        if (e == QUIRE_OK && cache != NULL) {
            grammar_cache_keep(cache, &key, g);
        }
    }
    grammar_drop(g);
    return e;
}

quire_err request_check_grammars(const quire_request *r, grammar_cache *cache, uint64_t tenant,
                                 quire_error *err) {
    const field_desc *f = request_field("tools", FIELD_CHAT);
    int64_t until = clock_thread_us() + GRAMMAR_MAX_US;
    for (size_t i = 0; r->has_custom && i < json_length(r->tools_field); i++) {
        const json_value *custom = request_custom_of(json_at(r->tools_field, i));
        quire_error why = {0};
        quire_err e = grammar_of(custom) != NULL
                          ? compile_alone(custom, until - clock_thread_us(), cache, tenant, &why)
                          : QUIRE_OK;
        if (e == QUIRE_NO_MEMORY || e == QUIRE_CANCELLED) {
            *err = why;
            return e;
        }
        TRY(e == QUIRE_OK ? e
                          : request_range_error(f, err, "tools[%zu].custom.format.grammar.definition: %s", i,
                                                why.message));
    }
    return QUIRE_OK;
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
    str regex = json_get_str(grammar_of(custom), "definition");
    strbuf pattern = {0};
    json_begin(o, '{');
    json_cstr(json_name(o, "type"), "object");
    json_begin(json_name(o, "properties"), '{');
    json_begin(json_name(o, OUTPUT_TOOL_INPUT), '{');
    json_cstr(json_name(o, "type"), "string");
    quire_err e = QUIRE_OK;
    if (request_custom_has_grammar(custom) && !is_lark(custom)) {
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
