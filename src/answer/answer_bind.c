#include "answer/answer_bind.h"

#include <assert.h>
#include <stdio.h>

#include "answer/call_grammar.h"
#include "base/clock.h"
#include "request/request_read.h"
#include "text/tokenizer.h"
#include "json/json_out.h"

/* ---- the request and the formats of its model ---- */

/* Chooses the formats: those that options name, else r's own template's, else the
 * model's. */
static output_formats answer_choose_formats(const quire_request *r) {
    output_formats f = r->context.formats;
    if (request_has_template(r)) {
        output_formats own = output_formats_of_template(r->template_given);
        f.tools = r->context.names_tools ? f.tools : own.tools;
        f.reasoning = r->context.names_reasoning ? f.reasoning : own.reasoning;
    }
    return f;
}

static quire_err answer_check_budget(const quire_request *r, quire_error *err) {
    return r->g.thinking_budget < 0 || r->formats.reasoning != NULL
               ? QUIRE_OK
               : err_set_param(err, QUIRE_BAD_REQUEST, "thinking_token_budget",
                               "thinking_token_budget is given, but this server cannot find the response's "
                               "reasoning; it needs a chat with a reasoning model, or a server whose "
                               "--reasoning-parser names the format");
}

quire_err answer_bind(quire_request *r, quire_error *err) {
    if (dialect_of(&r->g)->is_chat) {
        r->formats = answer_choose_formats(r);
        if (r->n_offered == 0 || r->tool_choice == OUTPUT_CHOICE_NONE) {
            r->formats.tools = NULL;
        }
        TRY(bind_calls(r, err));
        r->g.info.has_parts = r->formats.tools != NULL || r->formats.reasoning != NULL;
    }
    return answer_check_budget(r, err);
}

quire_err answer_compile(const quire_request *r, const rule_context *c, grammar **out, quire_error *err) {
    assert(r != NULL);
    return r->rule.form == RULE_CALLS ? bind_calls_compile(r, c, out, err)
                                      : answer_rule_compile(&r->rule, c, out, err);
}

/* ---- the response ---- */

static bool answer_is_added(const void *context, str text) {
    const tokenizer *t = context;
    int32_t id = tokenizer_find(t, text);
    return id >= 0 && tokenizer_is_added(t, id);
}

bool answer_has_mark(const quire_request *r, str token) {
    str marks[OUTPUT_FORMAT_MARKS];
    int n = output_formats_marks(&r->formats, marks);
    for (int i = 0; i < n; i++) {
        if (str_contains(marks[i], token)) {
            return true;
        }
    }
    return false;
}

/* Whether marks are hidden like special tokens. They are not if one of them is a
 * user-defined token, whose text is always shown. */
static bool answer_hides_marks(const quire_request *r) {
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

reasoning_frame answer_frame(const quire_request *r, output_start start) {
    reasoning_frame frame = {.start = start};
    frame.format = r->formats.reasoning != NULL ? reasoning_format_named(r->formats.reasoning) : NULL;
    frame.calls = r->formats.tools != NULL ? call_format_named(r->formats.tools) : NULL;
    return frame;
}

quire_err answer_open_parser(const quire_request *r, output_start start, output_parser **out) {
    quire_error err;
    const output_options o = {.tools_format = r->formats.tools,
                              .reasoning_format = r->formats.reasoning,
                              .tools = r->offered,
                              .n_tools = r->formats.tools != NULL ? r->n_offered : 0,
                              .choice = r->formats.tools != NULL ? r->tool_choice : OUTPUT_CHOICE_NONE,
                              .start = start,
                              .is_special = r->context.tokenizer != NULL ? answer_is_added : NULL,
                              .special_context = r->context.tokenizer,
                              .drops_specials = answer_hides_marks(r)};
    return output_parser_open(&o, out, &err);
}

output_start answer_output_start(const quire_request *r, str prompt, const text_marks *marks) {
    assert(marks != NULL);
    size_t from = marks->n > 0 ? marks->runs[marks->n - 1].end : 0;
    output_start otherwise = r->context.names_reasoning ? OUTPUT_START_UNKNOWN : OUTPUT_START_MARKED;
    return output_start_behind(r->formats.reasoning, (str){prompt.p + from, prompt.n - from}, otherwise);
}

/* ---- the rule that tools make ---- */

/* a JSON list of calls; grammars can force any model to write it */
#define FORCED_FORMAT "json"

/* Writes the schema of a function's arguments. A schema without "$id" gets one, so that
 * its references resolve within it. */
static void write_parameters(const output_tool *tool, size_t i, json_out *o) {
    char name[32];
    snprintf(name, sizeof name, "tool:%zu", i);
    json_begin(o, '{');
    if (!json_has(tool->parameters, "$id")) {
        json_cstr(json_name(o, "$id"), name);
    }
    if (!json_has(tool->parameters, "type")) { /* arguments are always an object */
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

/* Writes the schema of a list of calls to the functions that tool_choice allows. */
static quire_err write_forced_schema(const quire_request *r, strbuf *out) {
    json_out o = {.to = out};
    bool is_named = r->tool_choice == OUTPUT_CHOICE_NAMED;
    json_begin(&o, '{');
    json_cstr(json_name(&o, "type"), "array");
    json_int(json_name(&o, "minItems"), 1);
    if (is_named || !r->g.parallel_calls) {
        json_int(json_name(&o, "maxItems"), 1);
    }
    json_begin(json_name(&o, "items"), '{');
    json_begin(json_name(&o, "anyOf"), '[');
    for (size_t i = 0; i < r->n_offered; i++) {
        if (!is_named || str_eq(r->offered[i].name, r->named_tool)) {
            write_call_schema(&r->offered[i], i, &o);
        } else {
            json_bool(json_item(&o), false); /* keeps the list's indices equal to those of the tools */
        }
    }
    json_end(&o, ']');
    json_end(&o, '}');
    json_end(&o, '}');
    return o.err;
}

/* Makes a JSON list of calls r's rule and format, for a call that tool_choice forces. */
static quire_err force_list(quire_request *r, quire_error *err) {
    strbuf_clear(&r->rule_text);
    TRY(err_set(err, write_forced_schema(r, &r->rule_text), -1, "out of memory for a request's tools"));
    r->formats.tools = FORCED_FORMAT;
    r->rule = (request_rule){.field = request_field("tool_choice", FIELD_CHAT),
                             .kind = GRAMMAR_SCHEMA,
                             .text = {r->rule_text.p, r->rule_text.n}};
    return QUIRE_OK;
}

/* ---- rules of calls ---- */

static bool is_forced(const quire_request *r) {
    return r->tool_choice == OUTPUT_CHOICE_REQUIRED || r->tool_choice == OUTPUT_CHOICE_NAMED;
}

static bool has_lark(const quire_request *r) {
    for (size_t i = 0; i < r->n_offered; i++) {
        if (r->offered[i].lark.n > 0) {
            return true;
        }
    }
    return false;
}

static call_grammar calls_of(const quire_request *r) {
    bool is_named = r->tool_choice == OUTPUT_CHOICE_NAMED;
    return (call_grammar){.format = r->formats.tools != NULL ? call_format_named(r->formats.tools) : NULL,
                          .tools = r->offered,
                          .n_tools = r->n_offered,
                          .only = is_named ? r->named_tool : (str){"", 0},
                          .is_required = is_forced(r),
                          .is_single = is_named || !r->g.parallel_calls};
}

quire_err bind_calls(quire_request *r, quire_error *err) {
    assert(r != NULL);
    const field_desc *f = request_field("tool_choice", FIELD_CHAT),
                     *tools = request_field("tools", FIELD_CHAT);
    if (r->rule.field == f || r->rule.field == tools) { /* an earlier bind set it */
        r->rule = (request_rule){0};
    }
    if (is_forced(r) && r->rule.field != NULL) {
        return err_set_param(
            err, QUIRE_BAD_REQUEST, "tool_choice",
            "tool_choice forces a call and %s is given too; a response can obey only one of them",
            r->rule.field->name);
    }
    call_grammar c = calls_of(r);
    bool has_grammar = call_grammar_exists(&c);
    if (is_forced(r) && !has_grammar && !has_lark(r)) {
        return force_list(r, err);
    }
    /* the list's schema cannot contain a Lark grammar, so a grammar of calls replaces
     * it */
    if (is_forced(r) && !has_grammar) {
        r->formats.tools = FORCED_FORMAT;
        has_grammar = true;
    }
    if (has_grammar && r->rule.field == NULL) {
        r->rule = (request_rule){.field = is_forced(r) ? f : tools, .form = RULE_CALLS};
    }
    return QUIRE_OK;
}

/* Writes the text of the cache key: everything that determines the grammar of calls. */
static quire_err write_key(const call_grammar *c, strbuf *out) {
    json_out o = {.to = out};
    json_begin(&o, '[');
    json_cstr(json_item(&o), c->format->names[0]);
    json_text(json_item(&o), c->only.p, c->only.n);
    json_bool(json_item(&o), c->is_required);
    json_bool(json_item(&o), c->is_single);
    for (size_t i = 0; i < c->n_tools; i++) {
        const output_tool *tool = &c->tools[i];
        json_text(json_item(&o), tool->name.p, tool->name.n);
        json_bool(json_item(&o), tool->is_strict);
        json_text(json_item(&o), tool->lark.p, tool->lark.n);
        if (tool->parameters != NULL) {
            json_add(json_item(&o), tool->parameters);
        } else {
            json_bool(json_item(&o), false);
        }
    }
    json_end(&o, ']');
    return o.err;
}

static quire_err compile_calls(call_grammar *c, const rule_context *context, grammar **out,
                               quire_error *why) {
    const grammar_options options = {.space = context->space,
                                     .order = context->order,
                                     .numbers = context->numbers,
                                     .additional = context->additional};
    bool in_haste = false;
    strbuf text = {0};
    c->in_haste = &in_haste;
    quire_err e = context->cache != NULL ? write_key(c, &text) : QUIRE_OK;
    const grammar_key key =
        answer_rule_key(RULE_CALLS, context, &options, context->frame, (str){text.p, text.n});
    *out = e == QUIRE_OK && context->cache != NULL ? grammar_cache_find(context->cache, &key) : NULL;
    if (e == QUIRE_OK && *out == NULL) {
        e = call_grammar_compile(c, context->frame, context->marks, &options, out, why);
        if (e == QUIRE_OK && context->cache != NULL && !in_haste) {
            grammar_cache_keep(context->cache, &key, *out);
        }
    }
    strbuf_deinit(&text);
    return e;
}

quire_err bind_calls_compile(const quire_request *r, const rule_context *context, grammar **out,
                             quire_error *err) {
    quire_error why = {0};
    call_grammar c = calls_of(r);
    if (context->model != NULL) {
        TRY(call_marks_check(&c, context->marks, &r->g.sampling, context->model, err));
    }
    return answer_rule_error(&r->rule, compile_calls(&c, context, out, &why), &why, err);
}

/* ---- custom tools ---- */

/* Compiles one custom tool's grammar, unless the tenant's cache has it. */
static quire_err compile_custom(const json_value *custom, int64_t max_us, grammar_cache *cache,
                                uint64_t tenant, quire_error *why) {
    grammar_key key = {.tenant = tenant,
                       .kind = request_custom_is_lark(custom) ? GRAMMAR_LARK : GRAMMAR_REGEX,
                       .text = json_get_str(request_custom_rule(custom), "definition")};
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

quire_err bind_calls_check_customs(const quire_request *r, grammar_cache *cache, uint64_t tenant,
                                   quire_error *err) {
    assert(r != NULL);
    if (!r->has_custom) {
        return QUIRE_OK;
    }
    int64_t until = clock_thread_us() + GRAMMAR_MAX_US;
    for (size_t i = 0; i < json_length(r->tools_field); i++) {
        const json_value *custom = request_custom_of(json_at(r->tools_field, i));
        quire_error why = {0};
        quire_err e = request_custom_rule(custom) != NULL
                          ? compile_custom(custom, until - clock_thread_us(), cache, tenant, &why)
                          : QUIRE_OK;
        if (e == QUIRE_NO_MEMORY || e == QUIRE_CANCELLED) {
            *err = why;
            return e;
        }
        if (e != QUIRE_OK) {
            return request_range_error(request_field("tools", FIELD_CHAT), err,
                                       "tools[%zu].custom.format.grammar.definition: %s", i, why.message);
        }
    }
    return QUIRE_OK;
}
