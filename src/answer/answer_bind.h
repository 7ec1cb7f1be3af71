/* Binds a request to the formats of its model: the formats of calls and reasoning, the
 * rule that its tools make, and the parser of the response.
 *
 * The checks of a request call answer_bind through request_context.bind. All functions
 * except answer_compile may be called on a server's loop. */
#ifndef ANSWER_ANSWER_BIND_H
#define ANSWER_ANSWER_BIND_H

#include "answer/answer_rule.h"
#include "answer/output_parser.h"
#include "request/request.h"
#include "text/added.h"

/* The `bind` of a request_context with formats. Makes r->formats, info.has_parts and the
 * rule of r's calls final. QUIRE_BAD_REQUEST: a forced call and a rule exclude each
 * other, or a budget is given for reasoning that the response cannot show.
 * QUIRE_NO_MEMORY. */
quire_err answer_bind(quire_request *r, quire_error *err);

/* Compiles the rule of r, which must have one; errors as answer_rule_compile. */
quire_err answer_compile(const quire_request *r, const rule_context *c, grammar **out, quire_error *err);

/* Whether a token's text is a mark, or part of one, of the formats of r's response. */
bool answer_has_mark(const quire_request *r, str token);
/* Opens the parser of a response that begins as `start` says. r must have parts, and
 * outlives the parser. QUIRE_NO_MEMORY. */
quire_err answer_open_parser(const quire_request *r, output_start start, output_parser **out);
/* The reasoning and marks that may surround the answer of a response with this
 * beginning. */
reasoning_frame answer_frame(const quire_request *r, output_start start);
/* How the response to a rendered prompt begins, found from the prompt's text after the
 * last text of the client. */
output_start answer_output_start(const quire_request *r, str prompt, const text_marks *marks);

/* ---- the rule that tools make ---- */

/* The rule that a chat's tools make: calls in the model's own format or, if it has none
 * and a call is forced, a list of calls in JSON. */

/* Makes the calls of r's tools its rule, unless another field names a rule; if a call is
 * forced, that is QUIRE_BAD_REQUEST. r->formats are the model's; sets the format of
 * forced calls if the model has none. QUIRE_NO_MEMORY. */
quire_err bind_calls(quire_request *r, quire_error *err);
/* Compiles r's rule of the form RULE_CALLS; errors as answer_rule_compile. */
quire_err bind_calls_compile(const quire_request *r, const rule_context *context, grammar **out,
                             quire_error *err);
/* Compiles the grammar of each custom tool separately, so that an error names the tool.
 * cache may be NULL: grammars are not kept. QUIRE_BAD_REQUEST, QUIRE_NO_MEMORY,
 * QUIRE_CANCELLED. Not on a server's loop. */
quire_err bind_calls_check_customs(const quire_request *r, grammar_cache *cache, uint64_t tenant,
                                   quire_error *err);

#endif
