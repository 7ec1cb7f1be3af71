/* The rule that a response must obey, from the fields that can name one: response_format, structured_outputs, and the names of other
 * servers. */
#ifndef API_REQUEST_RULE_H
#define API_REQUEST_RULE_H

#include "api/grammar_cache.h"
#include "core/params.h"
#include "grammar/grammar.h"
#include "json/json.h"

typedef struct request_rule {
    const field_desc *field; /* that names it; NULL: there is none */
    grammar_kind kind;
    const json_value *value; /* in the request's values: a text, a schema, a list of choices; NULL where the kind needs none */
    str whitespace_pattern;  /* empty: none */
    bool any_space;          /* structured_outputs says so; the request's json_whitespace may too */
} request_rule;

/* Compiles a rule, which names a field, under options that are filled in but for what the rule says itself, or takes it from the cache
 * (NULL: there is none), where only the tenant's own rules are found. *out belongs to the caller (grammar_drop).
 * QUIRE_BAD_REQUEST: it is malformed, unsatisfiable, or cannot be enforced; the field is the error's param unless it is response_format or
 * structured_outputs. QUIRE_NO_MEMORY. */
quire_err request_rule_compile(const request_rule *rule, grammar_options options, grammar_cache *cache, uint64_t tenant, grammar **out,
                               quire_error *err);

#endif
