/* Compiles the rule that a request names, and reports its errors. */
#ifndef ANSWER_ANSWER_RULE_H
#define ANSWER_ANSWER_RULE_H

#include "answer/grammar_constraint.h"
#include "answer/reasoning_frame.h"
#include "core/model_desc.h"
#include "request/request.h"

/* The context in which a rule is compiled. */
typedef struct rule_context {
    const reasoning_frame *frame; /* surrounds the text that the rule binds */
    const grammar_marks *marks;   /* marks of the vocabulary, if the rule has marks */
    grammar_space space;
    grammar_order order;
    grammar_numbers numbers;
    grammar_additional additional;
    grammar_cache *cache; /* cache of compiled rules, by tenant; NULL: not cached */
    uint64_t tenant;
    const model_desc *model; /* NULL: not known */
    /* [n_ends] tokens that end the answer; a structural tag may name them last only */
    const int32_t *ends;
    int32_t n_ends;
} rule_context;

/* Whether the rule's grammar distinguishes special tokens from text, and so needs a
 * marked vocabulary. */
bool answer_rule_is_marked(const request_rule *rule, const reasoning_frame *frame);
/* Compiles a rule, which names a field and is not of the form RULE_CALLS, or takes it
 * from the cache. *out belongs to the caller (grammar_drop). QUIRE_BAD_REQUEST: it is
 * malformed, unsatisfiable, or cannot be enforced; the field is the error's param unless
 * it is response_format or structured_outputs. QUIRE_NO_MEMORY, QUIRE_CANCELLED. */
quire_err answer_rule_compile(const request_rule *rule, const rule_context *c, grammar **out,
                              quire_error *err);
/* The key of a rule's text in the cache; frame NULL: nothing surrounds it. */
grammar_key answer_rule_key(request_rule_form form, const rule_context *c, const grammar_options *options,
                            const reasoning_frame *frame, str text);
/* The error of a request whose rule exceeded a budget during or before its answer:
 * QUIRE_TOO_LARGE, or QUIRE_NO_MEMORY for the memory that all rules share. why:
 * constraint_why. */
quire_err answer_rule_outgrown(const request_rule *rule, quire_err e, const char *why, quire_error *err);
/* Turns the result e of compiling, and its reason, into a request's error. */
quire_err answer_rule_error(const request_rule *rule, quire_err e, const quire_error *why, quire_error *err);

/* ---- checks without generating ---- */

/* Checks a rule without generating: each keyword of its schema is enforced, an
 * annotation, or refused with the reason. */

/* Reads an untrusted body, {"schema": ..} or one with a field that names a rule
 * (response_format, structured_outputs, regex ..), compiles the rule and appends the
 * report of POST /v1/schemas/check, a JSON object, to *out. A refused rule is not a
 * failure. QUIRE_BAD_REQUEST: the body names no rule; err->param says what is wrong.
 * QUIRE_TOO_LARGE, QUIRE_NO_MEMORY. A text thread. */
quire_err schema_check(const request_context *ctx, str body, strbuf *out, quire_error *err);

/* Appends how each keyword of r's rule is enforced: a JSON array of {"path", "keyword",
 * "status", "how"}. QUIRE_NO_MEMORY. A text thread. */
quire_err schema_check_list(const quire_request *r, strbuf *out);

#endif
