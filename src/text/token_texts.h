/* The text that every token adds after another one, known without decoding. Immutable
 * once open, any thread.
 *
 * A token that holds only part of a character, or whose text depends on more than the
 * token before it, has U+FFFD or another text here than in a decoded whole. For exact
 * text, decode; tokenizer_sum_obstacle names what else is in the way. */
#ifndef TEXT_TOKEN_TEXTS_H
#define TEXT_TOKEN_TEXTS_H

#include "text/tokenizer.h"

typedef struct token_texts token_texts;

/* O(tokens). Keeps no reference to t. */
quire_err token_texts_open(const tokenizer *t, token_texts **out);
void token_texts_close(token_texts *t);
/* Borrowed. */
str token_texts_of(const token_texts *t, int32_t id);
size_t token_texts_longest(const token_texts *t);

/* The bytes that each token adds to an output: for what works on bytes, not on text,
 * since a token may hold a part of a character only. */

/* Appends the bytes of token id, after another token. texts: t's. None for special tokens
 * and for ids that t does not have. */
quire_err token_bytes_add(const tokenizer *t, const token_texts *texts, int32_t id, strbuf *out);
/* The text of one token without the table of all, also for special tokens.
 * QUIRE_NO_MEMORY. */
quire_err token_bytes_add_one(const tokenizer *t, int32_t id, strbuf *out);

#endif
