#include "api/request_rule.h"

#include "json/json_out.h"

quire_err request_rule_compile(const request_rule *rule, grammar_options options, grammar **out, quire_error *err) {
    strbuf text = {0};
    json_out o = {.to = &text};
    quire_error why = {0};
    bool is_text = json_is(rule->value, JSON_KIND_TEXT);
    if (!is_text) {
        json_add(&o, rule->value);
    }
    str given = is_text ? json_str(rule->value) : (str){text.p, text.n};
    options.whitespace_pattern = rule->whitespace_pattern;
    quire_err e = o.err == QUIRE_OK ? grammar_compile(rule->kind, given, &options, out, &why) : o.err;
    strbuf_deinit(&text);
    if (e == QUIRE_OK || e == QUIRE_NO_MEMORY) {
        return e == QUIRE_OK ? e : err_set(err, e, -1, "out of memory for %s", rule->field->name);
    }
    const char *name = rule->field->name;
    bool is_unnamed = rule->field->type == FIELD_OBJECT; /* response_format, structured_outputs: as in vLLM's responses */
    return err_set_param(err, QUIRE_BAD_REQUEST, is_unnamed ? "" : name, "%s: %s", name, why.message);
}
