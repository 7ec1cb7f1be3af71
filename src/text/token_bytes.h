/* The bytes that each token adds to an output: for what works on bytes, not on text,
 * since a token may hold a part of a character only. */
#ifndef TEXT_TOKEN_BYTES_H
#define TEXT_TOKEN_BYTES_H

#include "text/token_texts.h"
#include "text/tokenizer.h"

/* Appends the bytes of token id, after another token. texts: t's. None for special tokens
 * and for ids that t does not have. */
quire_err token_bytes_add(const tokenizer *t, const token_texts *texts, int32_t id, strbuf *out);
/* The same of one token without the texts of all, and with the text of special tokens.
 * QUIRE_NO_MEMORY. */
quire_err token_bytes_add_one(const tokenizer *t, int32_t id, strbuf *out);

#endif
