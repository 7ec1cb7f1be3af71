/* Streaming detokenizer: ids in, complete UTF-8 characters out, one token at a time.
 *
 * Invariant: the concatenation of everything add() gave and what flush() gives equals decoding all the ids at once, but for a run of
 * fallback bytes that is not UTF-8 as a whole: decoding it at once makes every byte U+FFFD, a stream has given out its complete characters
 * by then. Never half a character, never a lost space. One stream is used by one thread. */
#ifndef TEXT_DETOK_H
#define TEXT_DETOK_H

#include "text/tokenizer.h"

typedef struct detok detok;

/* skip_special: special tokens give no text. The tokenizer must outlive it. */
quire_err detok_open(const tokenizer *t, bool skip_special, detok **out);
void detok_close(detok *d);
/* From now on U+FFFD at the end of what is complete waits for the next character, or flush: bytes that make no character then come out as
 * they do from the tokenizers library's stream, which cannot tell them from the beginning of one. */
void detok_hold_replacements(detok *d);
/* The stream as if ids had been added already and their text taken: a continuation knows what stands before it. n may be 0. */
quire_err detok_prime(detok *d, const int32_t *ids, size_t n);
/* Appends to *out what is complete once id has come. */
quire_err detok_add(detok *d, int32_t id, strbuf *out);
/* Appends what is left unfinished, as the tokenizer's decoder writes it (U+FFFD); the stream is then as opened. */
quire_err detok_flush(detok *d, strbuf *out);

#endif
