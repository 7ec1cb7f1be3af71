#include "api/request_rule.h"

#include "json/json_out.h"

static quire_err compile(grammar_cache *cache, const grammar_key *key, grammar **out, quire_error *err) {
    grammar_options options = {.space = key->space, .order = key->order, .whitespace_pattern = key->whitespace_pattern};
    *out = cache != NULL ? grammar_cache_find(cache, key) : NULL;
    if (*out == NULL) {
        TRY(grammar_compile(key->kind, key->text, &options, out, err));
        if (cache != NULL) {
            grammar_cache_keep(cache, key, *out);
        }
    }
    return QUIRE_OK;
}

quire_err request_rule_compile(const request_rule *rule, grammar_space space, grammar_order order, grammar_cache *cache, uint64_t tenant,
                               grammar **out, quire_error *err) {
    strbuf text = {0};
    json_out o = {.to = &text};
    quire_error why = {0};
    bool is_text = json_is(rule->value, JSON_KIND_TEXT);
    if (!is_text) {
        json_add(&o, rule->value);
    }
    grammar_key key = {tenant,
                       rule->kind,
                       rule->any_space ? GRAMMAR_SPACE_ANY : space,
                       order,
                       rule->whitespace_pattern,
                       is_text ? json_str(rule->value) : (str){text.p, text.n}};
    quire_err e = o.err == QUIRE_OK ? compile(cache, &key, out, &why) : o.err;
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
