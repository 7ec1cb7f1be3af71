/* A constraint that ends a model's reasoning after a number of tokens: then only the
 * closing mark may come. A second constraint may bind the whole output too.
 *
 *   before --opening mark--> inside --closing mark--> done          tokens inside are counted
 *                              |  budget spent
 *                              v
 *                           closing --the mark's tokens--> done
 *
 * The state is a function of the output's tokens alone, so equal outputs are always
 * treated alike. Marks are found in the tokens' bytes; special tokens are compared as
 * tokens. A character that the budget cuts is completed first. The second constraint
 * takes precedence over the mark: tokens of the mark that it does not accept are not
 * forced, for instance harmony's header of the final message if a call is required. */
#ifndef ANSWER_THINKING_BUDGET_H
#define ANSWER_THINKING_BUDGET_H

#include "answer/grammar_constraint.h"
#include "answer/reasoning_frame.h"
#include "core/model_desc.h"
#include "core/params.h"
#include "sample/constraint.h"

/* Makes a constraint with one reference, of outputs of a reasoning format (frame->format
 * is not NULL). budget: tokens, >= 0. inner: the second constraint, whose reference is
 * taken over even on failure; NULL: none. t and v outlive it. QUIRE_UNSUPPORTED: the
 * tokenizer cannot write the closing mark. QUIRE_NO_MEMORY. */
quire_err thinking_budget_open(const reasoning_frame *frame, int32_t budget, const tokenizer *t,
                               const marked_vocab *v, constraint *inner, constraint **out, quire_error *err);
/* The second constraint inside c; c itself if c is not a budget. NULL: none. */
const constraint *thinking_budget_inner(const constraint *c);
/* The n tokens of the closing mark of c, which thinking_budget_open made; owned by c. */
const int32_t *thinking_budget_mark(const constraint *c, int32_t *n);
/* QUIRE_BAD_REQUEST: an end token, a bad word or the list of allowed tokens keeps the
 * closing mark of c from being written. The mark's last token may be an end token where
 * the answer may end with the reasoning. The lists of p are tokenised. */
quire_err thinking_budget_check(const constraint *c, const sampling_params *p, const model_desc *d,
                                quire_error *err);

#endif
