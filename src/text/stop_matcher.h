/* Stop strings over a stream of text pieces: holds back what may still become one, and cuts at the first match. One thread.
 *
 * The first match is the one that ends earliest in the text; of several that end at the same byte the one that starts earliest, and of
 * equal strings the first given. So the cut does not depend on how the text came in pieces, and no more text is ever awaited once a stop
 * string is complete. Invariant: what was shown and what is held back make up the text fed, and what is held back is the longest suffix
 * that begins a stop string. */
#ifndef TEXT_STOP_MATCHER_H
#define TEXT_STOP_MATCHER_H

#include <stdint.h>

#include "base/str.h"

typedef struct stop_matcher stop_matcher;

/* n >= 0 non-empty strings, copied. */
quire_err stop_matcher_open(const str *stops, size_t n, stop_matcher **out);
void stop_matcher_close(stop_matcher *s);
/* Feeds a piece; appends to *out the text that is safe to show. *match is the index of the stop string that matched first, or -1: then what
 * comes after its start (with include: after its end) is dropped. After a match feeds give nothing, and match -1. Linear in the text fed,
 * times n. QUIRE_NO_MEMORY: text may be lost; the stream must end. */
quire_err stop_matcher_feed(stop_matcher *s, str piece, bool include, strbuf *out, int32_t *match);
/* Feeds a piece in which no stop string may end yet; one that begins in it may end in a later piece. Errors as stop_matcher_feed. */
quire_err stop_matcher_pass(stop_matcher *s, str piece, strbuf *out);
/* Appends what was held back; for the end of the stream. Gives nothing after a match. */
quire_err stop_matcher_flush(stop_matcher *s, strbuf *out);

#endif
