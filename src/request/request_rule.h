/* The rule that a response must obey, from the fields that can name one: response_format,
 * structured_outputs, and the names of other servers; or from the tools. */
#ifndef REQUEST_REQUEST_RULE_H
#define REQUEST_REQUEST_RULE_H

#include "base/str.h"
#include "core/params.h"
#include "request/request_field.h"
#include "json/json.h"

typedef enum request_rule_form {
    RULE_OF_KIND,        /* a rule of some kind */
    RULE_STRUCTURAL_TAG, /* a structural tag (answer/structural_tag.h) */
    RULE_CALLS           /* rule of a request's tools (answer/answer_bind.h) */
} request_rule_form;

typedef struct request_rule {
    const field_desc *field; /* field that gives it; NULL: no rule */
    grammar_kind kind;
    /* in the request's values: a text, a schema, a list of choices; NULL where the kind
     * needs none */
    const json_value *value;
    str whitespace_pattern; /* empty: none */
    /* structured_outputs has disable_any_whitespace; else the request's json_whitespace
     * counts */
    bool says_space;
    grammar_space space;
    /* structured_outputs has `additional`; else the request's json_additional_properties
     * counts */
    bool says_additional;
    grammar_additional additional;
    request_rule_form form;
} request_rule;

/* White space in the JSON that the rule describes, in a request that says `given`. */
static inline grammar_space request_rule_space(const request_rule *rule, grammar_space given) {
    return rule->says_space ? rule->space : given;
}
/* What objects of the rule's schemas may hold, in a request that says `given`. */
static inline grammar_additional request_rule_additional(const request_rule *rule, grammar_additional given) {
    return rule->says_additional ? rule->additional : given;
}
/* The word of a request for it: "closed" or "schema". */
const char *request_additional_word(grammar_additional a);

#endif
