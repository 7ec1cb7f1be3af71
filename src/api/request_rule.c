#include "api/request_rule.h"

#include "api/request_read.h"
#include "api/structural_tag.h"
#include "json/json_out.h"

bool request_rule_is_marked(const request_rule *rule, const reasoning_frame *frame) {
    return rule->form != RULE_OF_KIND || !reasoning_frame_is_empty(frame);
}

/* A structural tag, which may be given as its text: *parsed is then what was read from it, and *out points into it. */
static quire_err write_tag(part_arena *a, const json_value *v, json_value **parsed, grammar_part *out, quire_error *why) {
    if (json_is(v, JSON_KIND_TEXT)) {
        TRY(request_read_value(json_str(v), 0, NULL, parsed, why));
        v = *parsed;
    }
    return structural_tag_read(a, v, out, why);
}

/* The rule itself as a part. */
static quire_err write_part(part_arena *a, const request_rule *rule, const grammar_options *options, json_value **parsed, grammar_part *out,
                            quire_error *why) {
    if (rule->form == RULE_STRUCTURAL_TAG) {
        return write_tag(a, rule->value, parsed, out, why);
    }
    strbuf text = {0};
    json_out o = {.to = &text};
    str given = json_is(rule->value, JSON_KIND_TEXT) ? json_str(rule->value) : (str){"", 0};
    if (!json_is(rule->value, JSON_KIND_TEXT) && rule->value != NULL) {
        json_add(&o, rule->value);
        given = part_arena_take(a, &text);
    }
    *out = part_rule(rule->kind, given, NULL);
    out->whitespace_pattern = options->whitespace_pattern;
    return o.err;
}

/* The arena's failure as an error of the rule. */
static quire_err check_arena(const part_arena *a, quire_error *why) {
    return a->failed == QUIRE_TOO_LARGE ? err_set(why, a->failed, -1, "it is too large") : a->failed;
}

static grammar_options options_of(const request_rule *rule, const rule_context *c) {
    return (grammar_options){.space = rule->any_space ? GRAMMAR_SPACE_ANY : c->space,
                             .order = c->order,
                             .numbers = c->numbers,
                             .whitespace_pattern = rule->whitespace_pattern};
}

/* Compiles a rule that is its grammar's text alone, or takes it from the cache. */
static quire_err compile_alone(const grammar_part *rule, const rule_context *c, const grammar_options *options, grammar **out,
                               quire_error *err) {
    const grammar_key key = {c->tenant, rule->kind, options->space, options->order, options->numbers, options->whitespace_pattern,
                             rule->text};
    *out = c->cache != NULL ? grammar_cache_find(c->cache, &key) : NULL;
    if (*out == NULL) {
        TRY(grammar_compile(rule->kind, rule->text, options, out, err));
        if (c->cache != NULL) {
            grammar_cache_keep(c->cache, &key, *out);
        }
    }
    return QUIRE_OK;
}

quire_err request_rule_compile(const request_rule *rule, const rule_context *c, grammar **out, quire_error *err) {
    part_arena a = {0};
    json_value *parsed = NULL;
    quire_error why = {0};
    grammar_part answer = {0}, all;
    const grammar_options options = options_of(rule, c);
    quire_err e = write_part(&a, rule, &options, &parsed, &answer, &why);
    if (e == QUIRE_OK && !request_rule_is_marked(rule, c->frame)) {
        e = check_arena(&a, &why);
        e = e == QUIRE_OK ? compile_alone(&answer, c, &options, out, &why) : e;
    } else if (e == QUIRE_OK) {
        all = reasoning_frame_around(&a, c->frame, c->marks, &answer);
        e = check_arena(&a, &why);
        e = e == QUIRE_OK ? grammar_compile_parts(&all, c->marks, &options, out, &why) : e;
    }
    part_arena_deinit(&a);
    json_drop(parsed);
    return request_rule_error(rule, e, &why, err);
}

quire_err request_rule_error(const request_rule *rule, quire_err e, const quire_error *why, quire_error *err) {
    const char *name = rule->field->name;
    bool is_unnamed = rule->field->type == FIELD_OBJECT; /* response_format, structured_outputs: as in vLLM's responses */
    switch (e) {
    case QUIRE_OK:
        return e;
    case QUIRE_NO_MEMORY:
        return err_set(err, e, -1, "out of memory for %s", name);
    case QUIRE_CANCELLED:
        return err_set(err, e, -1, "cancelled");
    default:
        return err_set_param(err, QUIRE_BAD_REQUEST, is_unnamed ? "" : name, "%s: %s", name, why->message);
    }
}
