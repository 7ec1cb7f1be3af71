/* The rule that a response must obey, from the fields that can name one: response_format,
 * structured_outputs, and the names of other servers. */
#ifndef REQUEST_REQUEST_RULE_H
#define REQUEST_REQUEST_RULE_H

#include "answer/grammar_cache.h"
#include "answer/reasoning_frame.h"
#include "core/model_desc.h"
#include "request/request_field.h"
#include "json/json.h"

typedef struct request_rule {
    const field_desc *field; /* that names it; NULL: there is none */
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

/* What a rule is compiled for. */
typedef struct rule_context {
    const reasoning_frame *frame; /* the rule binds what stands inside it */
    const grammar_marks *marks;   /* of the vocabulary, where it is marked */
    grammar_space space;
    grammar_order order;
    grammar_numbers numbers;
    grammar_additional additional;
    grammar_cache *cache; /* where only the tenant's own rules are found; NULL: there is none */
    uint64_t tenant;
    const model_desc *model; /* NULL: not known */
    /* [n_ends] tokens that end the answer; a structural tag may name them last only */
    const int32_t *ends;
    int32_t n_ends;
} rule_context;

/* Whether the rule's grammar tells special tokens from text, so that it is one of a
 * marked vocabulary. */
bool request_rule_is_marked(const request_rule *rule, const reasoning_frame *frame);
/* Compiles a rule, which names a field, or takes it from the cache. *out belongs to the
 * caller (grammar_drop). QUIRE_BAD_REQUEST: it is malformed, unsatisfiable, or cannot be
 * enforced; the field is the error's param unless it is response_format or
 * structured_outputs. QUIRE_NO_MEMORY, QUIRE_CANCELLED. */
quire_err request_rule_compile(const request_rule *rule, const rule_context *c, grammar **out,
                               quire_error *err);
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
/* The key of a rule's text in the cache; frame NULL: nothing stands around it. */
grammar_key request_rule_key(request_rule_form form, const rule_context *c, const grammar_options *options,
                             const reasoning_frame *frame, str text);
/* The error of a request whose rule outgrew a budget as its answer was made, or before:
 * QUIRE_TOO_LARGE, or QUIRE_NO_MEMORY for the memory that all rules share. why:
 * constraint_why. */
quire_err request_rule_outgrown(const request_rule *rule, quire_err e, const char *why, quire_error *err);
/* What such a call returns where compiling returned e and said why. */
quire_err request_rule_error(const request_rule *rule, quire_err e, const quire_error *why, quire_error *err);

#endif
