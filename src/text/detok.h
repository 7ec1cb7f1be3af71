/* Streaming detokenizer: ids in, complete UTF-8 characters out, one token at a time.
 *
 * Invariant: all outputs of detok_add and detok_flush together equal the decoding of all
 * ids at once. The exception is a run of fallback bytes that is not UTF-8 as a whole:
 * decoding at once makes every byte U+FFFD, while a stream has output its complete
 * characters by then. Output never has half a character and never loses a space. One
 * stream is used by one thread. */
#ifndef TEXT_DETOK_H
#define TEXT_DETOK_H

#include "text/tokenizer.h"

typedef struct detok detok;

/* skip_special: special tokens give no text. The tokenizer must outlive it. */
quire_err detok_open(const tokenizer *t, bool skip_special, detok **out);
void detok_close(detok *d);
/* Withholds U+FFFD at the end of the output until the next character or flush. Bytes that
 * make no character then decode as in the tokenizers library's stream, which cannot
 * distinguish them from the start of one. */
void detok_hold_replacements(detok *d);
/* Puts the stream in the state after ids, without their text: a continuation depends on
 * the tokens before it. n may be 0. */
quire_err detok_prime(detok *d, const int32_t *ids, size_t n);
/* Adds id and appends the text that is complete after it to *out. */
quire_err detok_add(detok *d, int32_t id, strbuf *out);
/* Appends unfinished bytes, as the tokenizer's decoder writes them (U+FFFD). The stream
 * is then as opened. */
quire_err detok_flush(detok *d, strbuf *out);

#endif
