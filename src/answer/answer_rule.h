/* Compiles the rule that a request names, and reports its errors. */
#ifndef ANSWER_ANSWER_RULE_H
#define ANSWER_ANSWER_RULE_H

#include "answer/grammar_constraint.h"
#include "answer/reasoning_frame.h"
#include "core/model_desc.h"
#include "request/request.h"

/* What a rule is compiled with, besides its own text. */
typedef struct rule_context {
    const reasoning_frame *frame; /* surrounds the text that the rule binds */
    const grammar_marks *marks;   /* special tokens of the vocabulary, if answer_rule_is_marked */
    grammar_space space;
    grammar_order order;
    grammar_numbers numbers;
    grammar_additional additional;
    grammar_cache *cache; /* cache of compiled rules, by tenant; NULL: not cached */
    uint64_t tenant;
    const model_desc *model; /* model of the request; NULL: unknown, so special tokens are not checked */
    /* [n_ends] tokens that end the answer; in a structural tag they may only come last */
    const int32_t *ends;
    int32_t n_ends;
} rule_context;

/* Whether the rule's grammar distinguishes special tokens from text, and so needs a
 * marked vocabulary. */
bool answer_rule_is_marked(const request_rule *rule, const reasoning_frame *frame);
/* Compiles a rule that a field set, or takes it from the cache; not for the form
 * RULE_CALLS. *out belongs to the caller (grammar_drop). QUIRE_BAD_REQUEST: the rule is
 * malformed, unsatisfiable or cannot be enforced; err->param is the field, except
 * response_format or structured_outputs. QUIRE_NO_MEMORY, QUIRE_CANCELLED. *out NULL on
 * error. */
quire_err answer_rule_compile(const request_rule *rule, const rule_context *c, grammar **out,
                              quire_error *err);
/* The cache key of a rule's text, which is borrowed; frame NULL: nothing surrounds it. */
grammar_key answer_rule_key(request_rule_form form, const rule_context *c, const grammar_options *options,
                            const reasoning_frame *frame, str text);
/* Sets the error e of a request whose rule exceeded its limits before or during its
 * answer. e: QUIRE_TOO_LARGE, or QUIRE_NO_MEMORY if the memory that all rules share is
 * used up. why: the text of constraint_why; NULL: a general reason. Returns e. */
quire_err answer_rule_outgrown(const request_rule *rule, quire_err e, const char *why, quire_error *err);
/* Turns e, the result of compiling, and its reason into the request's error: a refused
 * rule is QUIRE_BAD_REQUEST. Returns that error, or QUIRE_OK. */
quire_err answer_rule_error(const request_rule *rule, quire_err e, const quire_error *why, quire_error *err);

/* Checks a rule without generating. Each keyword of its schema is reported as enforced,
 * an annotation, or refused with the reason. */

/* Reads an untrusted body, {"schema": ..} or one with a field that sets a rule
 * (response_format, structured_outputs, regex ..), compiles the rule and appends the
 * report of POST /v1/schemas/check, a JSON object, to *out. A refused rule is reported
 * with QUIRE_OK. QUIRE_BAD_REQUEST: the body has no rule; err->param names the member.
 * QUIRE_TOO_LARGE, QUIRE_NO_MEMORY. Slow: call it on a text thread. */
quire_err schema_check(const request_context *ctx, str body, strbuf *out, quire_error *err);

/* Compiles r's rule and appends how each of its keywords is enforced: a JSON array of
 * {"path", "keyword", "status", "how"}. QUIRE_NO_MEMORY. Call it on a text thread. */
quire_err schema_check_list(const quire_request *r, strbuf *out);

#endif
