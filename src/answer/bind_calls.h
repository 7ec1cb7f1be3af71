/* The rule that a chat's tools make: calls in the model's own format, or where it has
 * none and a call is forced, a list of calls in JSON. */
#ifndef ANSWER_BIND_CALLS_H
#define ANSWER_BIND_CALLS_H

#include "answer/answer_rule.h"
#include "request/request.h"

/* Makes the calls of r's tools its rule, unless another field names one; where a call is
 * forced, that is QUIRE_BAD_REQUEST. r->formats is that of its model; sets the format of
 * calls that are forced and have none. QUIRE_NO_MEMORY. */
quire_err bind_calls(quire_request *r, quire_error *err);
/* Compiles r's rule, of the form RULE_CALLS; as answer_rule_compile. */
quire_err bind_calls_compile(const quire_request *r, const rule_context *context, grammar **out,
                             quire_error *err);
/* Compiles the grammar of each custom tool by itself, so that an error names it; cache
 * NULL: none is kept. QUIRE_BAD_REQUEST, QUIRE_NO_MEMORY, QUIRE_CANCELLED. Not on a
 * server's loop. */
quire_err bind_calls_check_customs(const quire_request *r, grammar_cache *cache, uint64_t tenant,
                                   quire_error *err);

#endif
