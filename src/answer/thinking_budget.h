/* A constraint that ends a model's reasoning after a number of tokens: then the closing
 * mark is all that may come. After it, and beside it, another constraint may bind the
 * whole output.
 *
 *   before --opening mark--> inside --closing mark--> done          tokens inside are counted
 *                              |  budget spent
 *                              v
 *                           closing --the mark's tokens--> done
 *
 * The state is a function of the output's tokens alone, so equal outputs are treated
 * alike whatever led to them. Marks are found in the tokens' bytes, special tokens as
 * such. A character that the budget cuts is completed first. The other constraint comes
 * before the mark: tokens of it that it does not take are not forced, as harmony's header
 * of the final message where a call is required. */
#ifndef ANSWER_THINKING_BUDGET_H
#define ANSWER_THINKING_BUDGET_H

#include "answer/grammar_constraint.h"
#include "answer/reasoning_frame.h"
#include "core/model_desc.h"
#include "core/params.h"
#include "sample/constraint.h"

/* Makes a constraint with one reference, of outputs of a reasoning format (frame->format
 * is not NULL). budget: tokens, >= 0. inner: what binds the output besides, of which it
 * takes the reference also on failure; NULL: nothing. t and v outlive it.
 * QUIRE_UNSUPPORTED: the tokenizer cannot write the closing mark. QUIRE_NO_MEMORY. */
quire_err thinking_budget_open(const reasoning_frame *frame, int32_t budget, const tokenizer *t,
                               const marked_vocab *v, constraint *inner, constraint **out, quire_error *err);
/* What binds an output beside its budget: c itself where c is not such a constraint.
 * NULL: nothing. */
const constraint *thinking_budget_inner(const constraint *c);
/* The n tokens of the closing mark of c, which thinking_budget_open made; they are
 * c's. */
const int32_t *thinking_budget_mark(const constraint *c, int32_t *n);
/* QUIRE_BAD_REQUEST: an end token, a bad word or the list of allowed tokens keeps the
 * closing mark of c from being written. The mark's last token may be an end token where
 * the answer may end with the reasoning. The lists of p are tokenised. */
quire_err thinking_budget_check(const constraint *c, const sampling_params *p, const model_desc *d,
                                quire_error *err);

#endif
