#include "answer/answer_rule.h"

#include <stdio.h>
#include <string.h>

#include "answer/structural_tag.h"
#include "core/params.h"
#include "json/json_out.h"

bool answer_rule_is_marked(const request_rule *rule, const reasoning_frame *frame) {
    return rule->form != RULE_OF_KIND || !reasoning_frame_is_empty(frame);
}

_Static_assert(PARAMS_MAX_RULE_BYTES == GRAMMAR_MAX_TEXT,
               "a field's value and the text that is compiled have one bound");

static quire_err too_large(quire_error *why) {
    return err_set(why, QUIRE_TOO_LARGE, -1, "the grammar's text has over %zu bytes, the most that are read",
                   GRAMMAR_MAX_TEXT);
}

/* A structural tag, which may be given as its text: *parsed is then what was read from
 * it, and *out points into it. */
static quire_err write_tag(part_arena *a, const json_value *v, json_value **parsed, grammar_part *out,
                           quire_error *why) {
    if (json_is(v, JSON_KIND_TEXT)) {
        TRY(json_str(v).n > GRAMMAR_MAX_TEXT ? too_large(why)
                                             : request_read_value(json_str(v), 0, NULL, parsed, why));
        v = *parsed;
    }
    return structural_tag_read(a, v, out, why);
}

/* The rule's text: what is given, or the value written out, as far as a grammar's text
 * may reach. */
static quire_err answer_rule_take_text(part_arena *a, const request_rule *rule, str *out, quire_error *why) {
    strbuf text = {0};
    json_out o = {.to = &text, .max = GRAMMAR_MAX_TEXT};
    *out = json_is(rule->value, JSON_KIND_TEXT) ? json_str(rule->value) : (str){"", 0};
    if (!json_is(rule->value, JSON_KIND_TEXT) && rule->value != NULL) {
        json_add(&o, rule->value);
        *out = part_arena_take(a, &text);
    }
    return o.err == QUIRE_TOO_LARGE ? too_large(why) : o.err;
}

/* The arena's failure as an error of the rule. */
static quire_err check_arena(const part_arena *a, quire_error *why) {
    return a->failed == QUIRE_TOO_LARGE ? err_set(why, a->failed, -1, "it is too large") : a->failed;
}

static grammar_options options_of(const request_rule *rule, const rule_context *c) {
    return (grammar_options){.space = request_rule_space(rule, c->space),
                             .order = c->order,
                             .numbers = c->numbers,
                             .additional = request_rule_additional(rule, c->additional),
                             .whitespace_pattern = rule->whitespace_pattern};
}

/* Compiles a rule, which is `answer` where it is marked, inside its frame. */
static quire_err answer_rule_build(part_arena *a, const request_rule *rule, str text,
                                   const grammar_part *answer, const rule_context *c,
                                   const grammar_options *options, grammar **out, quire_error *why) {
    if (!answer_rule_is_marked(rule, c->frame)) {
        return grammar_compile(rule->kind, text, options, out, why);
    }
    const grammar_part all = reasoning_frame_around(a, c->frame, c->marks, answer);
    TRY(check_arena(a, why));
    return grammar_compile_parts(&all, c->marks, options, out, why);
}

/* Takes the grammar from the cache, or compiles and keeps it. */
static quire_err take_grammar(part_arena *a, const request_rule *rule, str text, const grammar_part *answer,
                              const rule_context *c, grammar **out, quire_error *why) {
    const grammar_options options = options_of(rule, c);
    grammar_key key = answer_rule_key(rule->form, c, &options,
                                      answer_rule_is_marked(rule, c->frame) ? c->frame : NULL, text);
    key.kind = rule->kind;
    *out = c->cache != NULL ? grammar_cache_find(c->cache, &key) : NULL;
    if (*out == NULL) {
        TRY(answer_rule_build(a, rule, text, answer, c, &options, out, why));
        if (c->cache != NULL) {
            grammar_cache_keep(c->cache, &key, *out);
        }
    }
    return QUIRE_OK;
}

grammar_key answer_rule_key(request_rule_form form, const rule_context *c, const grammar_options *options,
                            const reasoning_frame *frame, str text) {
    grammar_key key = {.tenant = c->tenant,
                       .form = form,
                       .space = options->space,
                       .order = options->order,
                       .numbers = options->numbers,
                       .additional = options->additional,
                       .whitespace_pattern = options->whitespace_pattern,
                       .text = text};
    if (frame != NULL && frame->format != NULL) {
        key.frame = *frame;
    }
    return key;
}

/* Names the tool in place of its place in the list of calls that tool_choice forces,
 * where the error e is about one's schema. Returns e. */
static quire_err answer_rule_name_tool(const request_rule *rule, quire_err e, quire_error *why) {
    static const char list[] = "\"/items/anyOf/", arguments[] = "/properties/arguments";
    char *at = rule->form == RULE_OF_KIND && e != QUIRE_OK ? strstr(why->message, list) : NULL;
    if (at == NULL || strcmp(rule->field->name, "tool_choice") != 0) {
        return e;
    }
    size_t digits = strspn(at + sizeof list - 1, "0123456789");
    const char *rest = at + sizeof list - 1 + digits;
    quire_error told = *why;
    if (str_begins(str_of(rest), arguments)) {
        (void)snprintf(told.message, sizeof told.message, "the parameters of tools[%.*s]: %.*s\"%s",
                       (int)digits, at + sizeof list - 1, (int)(at - why->message), why->message,
                       rest + sizeof arguments - 1);
        *why = told;
    }
    return e;
}

quire_err answer_rule_compile(const request_rule *rule, const rule_context *c, grammar **out,
                              quire_error *err) {
    part_arena a = {0};
    json_value *parsed = NULL;
    str text;
    quire_error why = {0};
    *out = NULL;
    quire_err e = answer_rule_take_text(&a, rule, &text, &why);
    e = e == QUIRE_OK ? check_arena(&a, &why) : e;
    grammar_part answer = part_rule(rule->kind, text, NULL);
    answer.whitespace_pattern = rule->whitespace_pattern;
    bool is_tag = rule->form == RULE_STRUCTURAL_TAG;
    e = e == QUIRE_OK && is_tag ? write_tag(&a, rule->value, &parsed, &answer, &why) : e;
    e = e == QUIRE_OK ? take_grammar(&a, rule, text, &answer, c, out, &why) : e;
    if (e == QUIRE_OK &&
        /* the request's end tokens count for a tag of the cache, too; what compiles is of
         * a size to be looked at */
        is_tag) {
        e = structural_tag_check_ends(parsed != NULL ? parsed : rule->value, c->marks, c->ends, c->n_ends,
                                      &why);
    }
    if (e != QUIRE_OK) {
        grammar_drop(*out);
        *out = NULL;
    }
    part_arena_deinit(&a);
    json_drop(parsed);
    return answer_rule_error(rule, answer_rule_name_tool(rule, e, &why), &why, err);
}

quire_err answer_rule_outgrown(const request_rule *rule, quire_err e, const char *why, quire_error *err) {
    const field_desc *f = rule->field;
    if (e != QUIRE_TOO_LARGE) {
        why = why != NULL ? why
                          : "its states take more than is left of the memory for rules, or of this tenant's "
                            "share of it";
        return err_set(err, e, -1, "%s: out of memory for rules: %s; try again later", f->name, why);
    }
    why = why != NULL ? why : "it is too ambiguous from its first character on";
    return err_set_param(err, e, request_rule_param(f),
                         "%s: too large: %s; make its rules less ambiguous, its repeats and classes fewer",
                         f->name, why);
}

quire_err answer_rule_error(const request_rule *rule, quire_err e, const quire_error *why, quire_error *err) {
    const char *name = rule->field->name;
    switch (e) {
    case QUIRE_OK:
        return e;
    case QUIRE_NO_MEMORY:
        return err_set(err, e, -1, "out of memory for %s", name);
    case QUIRE_CANCELLED:
        return err_set(err, e, -1, "cancelled");
    default:
        return err_set_param(err, QUIRE_BAD_REQUEST, request_rule_param(rule->field), "%s: %s", name,
                             why->message);
    }
}
