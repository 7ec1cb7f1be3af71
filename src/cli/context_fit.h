/* Which turns of a conversation are sent, so that prompt and answer fit the context: the
 * oldest are left out first. Pure. */
#ifndef CLI_CONTEXT_FIT_H
#define CLI_CONTEXT_FIT_H

#include "cli/conversation.h"

/* A plan that is tried: messages from number `from` on, in at most `limit` tokens (0:
 * whatever fits). */
typedef struct context_fit {
    size_t from;
    int32_t limit;
} context_fit;

/* The first plan: what was sent before, what is new, and room for an answer of max_tokens
 * (0: not limited). context_tokens: of the model. */
context_fit context_fit_begin(const conversation *c, int32_t context_tokens, int32_t max_tokens);
/* The next plan, after one that did not fit: a turn less. Then a quarter of the context
 * is kept free, so that the following turns fit without leaving out more, which would
 * change the prompt's beginning and cause it to be computed again. The last turn alone
 * may take whatever fits. False: that did not fit either. */
bool context_fit_next(const conversation *c, int32_t context_tokens, context_fit *fit);

#endif
