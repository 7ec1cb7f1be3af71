/* Binds a request to its model: chooses the formats of tool calls and reasoning, derives
 * the rule that the offered tools impose, and opens the parser of the response.
 *
 * Request parsing calls answer_bind through request_context.bind. The functions that
 * compile (answer_compile, bind_calls_compile, bind_calls_check_customs) take too long
 * for a server loop; all others may run there. */
#ifndef ANSWER_ANSWER_BIND_H
#define ANSWER_ANSWER_BIND_H

#include "answer/answer_rule.h"
#include "answer/output_parser.h"
#include "request/request.h"
#include "text/added.h"

/* The `bind` of a request_context with formats. Sets r->formats, r->g.info.has_parts and,
 * if tools impose it, r->rule. QUIRE_BAD_REQUEST: a forced call conflicts with another
 * rule, or a thinking budget is given for a response without a reasoning format.
 * QUIRE_NO_MEMORY. */
quire_err answer_bind(quire_request *r, quire_error *err);

/* Compiles r's rule; r must have one. *out and errors as answer_rule_compile. */
quire_err answer_compile(const quire_request *r, const rule_context *c, grammar **out, quire_error *err);

/* Whether a token's text occurs in a mark of the formats of r's response. */
bool answer_has_mark(const quire_request *r, str token);
/* Opens the parser of a response that begins as `start` says. r must have parts and must
 * outlive the parser. The caller closes *out. QUIRE_NO_MEMORY. */
quire_err answer_open_parser(const quire_request *r, output_start start, output_parser **out);
/* Returns the reasoning and marks that may surround the answer of r's response. */
reasoning_frame answer_frame(const quire_request *r, output_start start);
/* How the response to a rendered prompt begins, judged by the text after the last of
 * `marks`, the runs of client text in the prompt. */
output_start answer_output_start(const quire_request *r, str prompt, const text_marks *marks);

/* The rule that a chat's tools impose: calls in the model's own format or, if the model
 * has none and a call is forced, a JSON list of calls. */

/* Sets r's rule to calls of its tools, unless another field set one; if a call is forced
 * too, that conflict is QUIRE_BAD_REQUEST. r->formats must be the model's; for a forced
 * call without a usable format, formats.tools becomes "json". QUIRE_NO_MEMORY. */
quire_err bind_calls(quire_request *r, quire_error *err);
/* Compiles r's rule, of the form RULE_CALLS. *out and errors as answer_rule_compile. */
quire_err bind_calls_compile(const quire_request *r, const rule_context *context, grammar **out,
                             quire_error *err);
/* Compiles the grammar of each custom tool separately, so that an error names the tool.
 * cache: keeps the grammars for this tenant; NULL: they are dropped. QUIRE_BAD_REQUEST,
 * QUIRE_NO_MEMORY, QUIRE_CANCELLED. Not on a server loop. */
quire_err bind_calls_check_customs(const quire_request *r, grammar_cache *cache, uint64_t tenant,
                                   quire_error *err);

#endif
