/* The rule that a response must obey, from the fields that can name one: response_format, structured_outputs, and the names of other
 * servers. */
#ifndef API_REQUEST_RULE_H
#define API_REQUEST_RULE_H

#include "api/reasoning_frame.h"
#include "core/params.h"
#include "json/json.h"

typedef enum request_rule_form {
    RULE_OF_KIND,        /* `value` is a rule of `kind` */
    RULE_STRUCTURAL_TAG, /* `value` is a structural tag (structural_tag.h) */
    RULE_CALLS           /* of the request's tools (request_calls_compile) */
} request_rule_form;

typedef struct request_rule {
    const field_desc *field; /* that names it; NULL: there is none */
    grammar_kind kind;
    const json_value *value; /* in the request's values: a text, a schema, a list of choices; NULL where the kind needs none */
    str whitespace_pattern;  /* empty: none */
    request_rule_form form;
} request_rule;

/* Whether the rule's grammar tells special tokens from text, so that it is one of a marked vocabulary. */
bool request_rule_is_marked(const request_rule *rule, const reasoning_frame *frame);
/* Compiles a rule, which names a field, under options that are filled in but for the pattern; it binds what stands inside the frame. marks:
 * those of the vocabulary, where it is marked. *out belongs to the caller (grammar_drop). QUIRE_BAD_REQUEST: it is malformed,
 * unsatisfiable, or cannot be enforced; the field is the error's param unless it is response_format or structured_outputs. QUIRE_NO_MEMORY.
 */
quire_err request_rule_compile(const request_rule *rule, const reasoning_frame *frame, const grammar_marks *marks, grammar_options options,
                               grammar **out, quire_error *err);

#endif
