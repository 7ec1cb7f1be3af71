#include "api/request_rule.h"

#include "json/json_out.h"

/* Compiles a text, or takes its grammar from the cache. */
static quire_err compile(grammar_cache *cache, uint64_t tenant, grammar_kind kind, str text, const grammar_options *o, grammar **out,
                         quire_error *err) {
    const grammar_key key = {tenant, kind, o->space, o->order, o->whitespace_pattern, text};
    *out = cache != NULL ? grammar_cache_find(cache, &key) : NULL;
    if (*out == NULL) {
        TRY(grammar_compile(kind, text, o, out, err));
        if (cache != NULL) {
            grammar_cache_keep(cache, &key, *out);
        }
    }
    return QUIRE_OK;
}

quire_err request_rule_compile(const request_rule *rule, grammar_options options, grammar_cache *cache, uint64_t tenant, grammar **out,
                               quire_error *err) {
    strbuf text = {0};
    json_out o = {.to = &text};
    quire_error why = {0};
    bool is_text = json_is(rule->value, JSON_KIND_TEXT);
    if (!is_text) {
        json_add(&o, rule->value);
    }
    str given = is_text ? json_str(rule->value) : (str){text.p, text.n};
    options.whitespace_pattern = rule->whitespace_pattern;
    options.space = rule->any_space ? GRAMMAR_SPACE_ANY : options.space;
    quire_err e = o.err == QUIRE_OK ? compile(cache, tenant, rule->kind, given, &options, out, &why) : o.err;
    strbuf_deinit(&text);
    if (e == QUIRE_NO_MEMORY) {
        return err_set(err, e, -1, "out of memory for %s", rule->field->name);
    }
    if (e == QUIRE_OK || e == QUIRE_CANCELLED) {
        return e == QUIRE_OK ? e : err_set(err, e, -1, "cancelled");
    }
    const char *name = rule->field->name;
    bool is_unnamed = rule->field->type == FIELD_OBJECT; /* response_format, structured_outputs: as in vLLM's responses */
    return err_set_param(err, QUIRE_BAD_REQUEST, is_unnamed ? "" : name, "%s: %s", name, why.message);
}
