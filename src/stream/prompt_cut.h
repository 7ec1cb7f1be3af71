/* Cuts a prompt to the tokens that a request allows it: truncate_prompt_tokens. Any
 * thread. */
#ifndef STREAM_PROMPT_CUT_H
#define STREAM_PROMPT_CUT_H

#include "request/request.h"
#include "text/tokenizer.h"

/* Cuts ids, and their types if any, to what g allows; *is_cut: whether it did.
 * is_text: the ids are a text's, and the special tokens that the tokenizer puts around
 * every text are kept as long as there is room for them. t may be NULL for ids. */
quire_err prompt_cut(const generation *g, int32_t max_model_len, const tokenizer *t, bool is_text,
                     token_list *ids, token_list *types, bool *is_cut, quire_error *err);

#endif
