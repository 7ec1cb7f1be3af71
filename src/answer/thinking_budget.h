/* A constraint that ends a model's reasoning after a number of tokens, by forcing its
 * closing mark. It may wrap a second constraint, which binds the whole output.
 *
 *   before --opening mark--> inside --closing mark--> done          tokens inside are counted
 *                              |  budget spent
 *                              v
 *                           closing --the mark's tokens--> done
 *
 * The state is a function of the output's tokens alone, so equal outputs have equal
 * states. Marks are searched for in the tokens' bytes; special tokens are compared as
 * tokens. A character that the budget would cut is completed first. The second constraint
 * takes precedence: tokens of the mark that it rejects are not forced, for instance
 * harmony's header of the final message if a call is required. */
#ifndef ANSWER_THINKING_BUDGET_H
#define ANSWER_THINKING_BUDGET_H

#include "answer/grammar_constraint.h"
#include "answer/reasoning_frame.h"
#include "core/model_desc.h"
#include "core/params.h"
#include "sample/constraint.h"

/* Makes a constraint with one reference. frame->format must not be NULL. budget: tokens,
 * >= 0. inner: the second constraint or NULL; its reference is taken over even on
 * failure. t and v must outlive the constraint. QUIRE_UNSUPPORTED: the tokenizer cannot
 * write the closing mark. QUIRE_NO_MEMORY. */
quire_err thinking_budget_open(const reasoning_frame *frame, int32_t budget, const tokenizer *t,
                               const marked_vocab *v, constraint *inner, constraint **out, quire_error *err);
/* The constraint that a thinking budget c wraps, NULL if it wraps none; c itself if c is
 * not a thinking budget. */
const constraint *thinking_budget_inner(const constraint *c);
/* The *n tokens of the closing mark of c, a thinking budget; owned by c. */
const int32_t *thinking_budget_mark(const constraint *c, int32_t *n);
/* Checks that the request lets the model write the closing mark of c, a thinking budget.
 * QUIRE_BAD_REQUEST: an end token, a bad word or the list of allowed tokens prevents it.
 * The mark's last token may be an end token if the answer may end with the reasoning. The
 * lists of p must be token ids already. */
quire_err thinking_budget_check(const constraint *c, const sampling_params *p, const model_desc *d,
                                quire_error *err);

#endif
