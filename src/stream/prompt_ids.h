/* Prompts: makes the ids of each choice's prompt from a request's texts, messages or ids.
 * On a text thread. */
#ifndef STREAM_PROMPT_IDS_H
#define STREAM_PROMPT_IDS_H

#include "stream/choice.h"

/* QUIRE_UNSUPPORTED, naming the prompt's field, if the model has no tokenizer. */
quire_err prompt_need_vocabulary(const stream_engine *e, const generation *g, quire_error *err);
/* Sets c's prompt ids, and how the text after them begins: they are made for the first
 * sample of a prompt and copied for the others. Errors name the field. */
quire_err prompt_take(const stream_engine *e, const quire_request *r, choice *c, quire_error *err);
/* How the answer of a chat that continues from ids begins. */
quire_err prompt_start_of_ids(const stream_engine *e, const quire_request *r, output_start *out,
                              quire_error *err);
/* The number of tokens of a chat's prompt. QUIRE_BAD_REQUEST, also if the prompt exceeds
 * the context; QUIRE_UNSUPPORTED, QUIRE_NO_MEMORY. */
quire_err prompt_count(const stream_engine *e, const quire_request *r, size_t *n, quire_error *err);

/* Cuts ids, and their types if any, to the length that g allows (truncate_prompt_tokens);
 * *is_cut: whether it did. is_text: the ids are a text's, so the special tokens that the
 * tokenizer puts around every text are kept while there is room for them. t may be NULL
 * for ids. Any thread. */
quire_err prompt_cut(const generation *g, int32_t max_model_len, const tokenizer *t, bool is_text,
                     token_list *ids, token_list *types, bool *is_cut, quire_error *err);

/* Marks of a prompt: positions at which later prompts with the same beginning may diverge
 * from it. A model with recurrent states takes snapshots there (engine_request.marks).
 *
 * They lie where control tokens of the template end a message and begin the next one or
 * the answer: there a conversation's next turn diverges if it edits a message, drops its
 * reasoning, or renders it differently.
 *
 * Fills marks[0..most) with the positions of the last control tokens in ids[0..n), the
 * last first; control tokens close together are one position. Returns their number. t may
 * be NULL: none. O(n). Any thread. */
int32_t prompt_marks(const tokenizer *t, const int32_t *ids, int32_t n, int32_t most, int32_t *marks);

/* ---- fill.c: prompts of fill-in-the-middle ---- */
/* Appends the ids of a fill-in-the-middle prompt: p as the text before the gap, the text
 * after it, and the repository's other files, between the model's marks (text/added.h). r
 * has a fill and no fork. Control tokens in a client's text are ordinary text.
 * QUIRE_UNSUPPORTED, naming the field, for a model without marks; errors of
 * tokenizer_encode. */
quire_err fill_prompt(const stream_engine *e, const quire_request *r, const request_prompt *p,
                      token_list *out, quire_error *err);

#endif
