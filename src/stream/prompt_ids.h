/* Prompts: makes the ids of each choice's prompt from a request's texts, messages or ids.
 * Called on text threads. */
#ifndef STREAM_PROMPT_IDS_H
#define STREAM_PROMPT_IDS_H

#include "stream/choice.h"

/* QUIRE_UNSUPPORTED if the model has no tokenizer; names the prompt's field. */
quire_err prompt_need_vocabulary(const stream_engine *e, const generation *g, quire_error *err);
/* Sets the ids of c's prompt, and how the text after them begins: computed for the first
 * sample of each prompt, copied for the others. Errors name the field. */
quire_err prompt_take(const stream_engine *e, const quire_request *r, choice *c, quire_error *err);
/* Finds how the answer begins, for a chat that continues from ids. */
quire_err prompt_start_of_ids(const stream_engine *e, const quire_request *r, output_start *out,
                              quire_error *err);
/* Counts the tokens of a chat's prompt. QUIRE_BAD_REQUEST, also if the prompt exceeds the
 * context; QUIRE_UNSUPPORTED, QUIRE_NO_MEMORY. */
quire_err prompt_count(const stream_engine *e, const quire_request *r, size_t *n, quire_error *err);

/* Truncates ids, and their types if any, to the length that g allows
 * (truncate_prompt_tokens). *is_cut: whether it did. is_text: the ids come from a text,
 * so the special tokens that the tokenizer puts around every text are kept if there is
 * room. t may be NULL for ids. Any thread. */
quire_err prompt_cut(const generation *g, int32_t max_model_len, const tokenizer *t, bool is_text,
                     token_list *ids, token_list *types, bool *is_cut, quire_error *err);

/* Marks of a prompt: positions at which later prompts with the same beginning may
 * diverge. Models with recurrent states take snapshots there (engine_request.marks).
 *
 * They lie where control tokens of the template end a message and begin the next one or
 * the answer. There the next turn of a conversation diverges if it edits a message, drops
 * its reasoning, or renders it differently.
 *
 * Fills marks[0..most) with the positions of the last control tokens in ids[0..n), last
 * one first; adjacent control tokens count as one position. Returns their number. t NULL:
 * none. O(n). Any thread. */
int32_t prompt_marks(const tokenizer *t, const int32_t *ids, int32_t n, int32_t most, int32_t *marks);

/* ---- fill.c: prompts of fill-in-the-middle ---- */
/* Appends the ids of a fill-in-the-middle prompt: p as the text before the gap, the text
 * after it, and the repository's other files, with the model's marks (text/added.h). r
 * has a fill and no fork. Control tokens in a client's text are plain text.
 * QUIRE_UNSUPPORTED, naming the field, if the model has no such marks; errors of
 * tokenizer_encode. */
quire_err fill_prompt(const stream_engine *e, const quire_request *r, const request_prompt *p,
                      token_list *out, quire_error *err);

#endif
