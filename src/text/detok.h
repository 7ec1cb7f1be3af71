/* Streaming detokenizer: takes ids one at a time and outputs complete UTF-8 characters.
 *
 * Invariant: the outputs of detok_add and detok_flush together equal the decoding of all
 * ids at once. The exception is a run of fallback bytes that is not valid UTF-8: decoded
 * at once, every byte becomes U+FFFD, while a stream has output its complete characters
 * by then. The output never has half a character and never loses a space. One thread per
 * stream. */
#ifndef TEXT_DETOK_H
#define TEXT_DETOK_H

#include "text/tokenizer.h"

typedef struct detok detok;

/* Opens a stream. skip_special: special tokens have no text. The tokenizer must outlive
 * it. QUIRE_NO_MEMORY. */
quire_err detok_open(const tokenizer *t, bool skip_special, detok **out);
void detok_close(detok *d);
/* Withholds U+FFFD at the end of the output until the next character or flush. Then
 * invalid bytes decode as in the tokenizers library's stream, which takes them for a
 * started character. */
void detok_hold_replacements(detok *d);
/* Brings the stream to its state after these ids, without their text: what follows
 * depends on them. n may be 0. */
quire_err detok_prime(detok *d, const int32_t *ids, size_t n);
/* Adds an id, and appends to *out the text that it completes. Errors of decode_add. */
quire_err detok_add(detok *d, int32_t id, strbuf *out);
/* Appends unfinished bytes as the tokenizer's decoder writes them (U+FFFD), and resets
 * the stream. Errors of decode_add. */
quire_err detok_flush(detok *d, strbuf *out);

#endif
