/* The text that each token adds after another one, as a table. Immutable once open; any
 * thread.
 *
 * A token that holds part of a character, or whose text depends on more than the token
 * before it, has U+FFFD or another text here than in decoded output. For exact text,
 * decode; tokenizer_sum_obstacle names what stands in the way. */
#ifndef TEXT_TOKEN_TEXTS_H
#define TEXT_TOKEN_TEXTS_H

#include "text/tokenizer.h"

typedef struct token_texts token_texts;

/* Computes the table. Keeps no reference to t. O(tokens). QUIRE_NO_MEMORY. */
quire_err token_texts_open(const tokenizer *t, token_texts **out);
void token_texts_close(token_texts *t);
/* The text of a token; borrowed; empty for an unknown id. */
str token_texts_of(const token_texts *t, int32_t id);
size_t token_texts_longest(const token_texts *t);

/* The bytes that each token adds to an output: unlike its text, exact for a token that
 * holds only part of a character. */

/* Appends the bytes of token id after another token; nothing for special tokens and
 * unknown ids. texts: those of t. QUIRE_NO_MEMORY. */
quire_err token_bytes_add(const tokenizer *t, const token_texts *texts, int32_t id, strbuf *out);
/* Appends the bytes of one token, also of a special one, without a table.
 * QUIRE_NO_MEMORY. */
quire_err token_bytes_add_one(const tokenizer *t, int32_t id, strbuf *out);

#endif
