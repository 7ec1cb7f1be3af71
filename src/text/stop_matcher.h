/* A stop matcher finds stop strings in a stream of text pieces. It withholds text that
 * may become a stop string, and cuts at the first match. One thread.
 *
 * The first match is the one that ends earliest in the text; of several that end at the
 * same byte, the one that starts earliest; of equal strings, the first given. So the cut
 * does not depend on how the text is split, and a complete stop string needs no more
 * text. Invariant: shown and withheld text together are the text fed, and the withheld
 * text is the longest suffix that begins a stop string. */
#ifndef TEXT_STOP_MATCHER_H
#define TEXT_STOP_MATCHER_H

#include <stdint.h>

#include "base/str.h"

typedef struct stop_matcher stop_matcher;

/* Copies n >= 0 non-empty strings. QUIRE_NO_MEMORY. */
quire_err stop_matcher_open(const str *stops, size_t n, stop_matcher **out);
void stop_matcher_close(stop_matcher *s);
/* Feeds a piece, and appends to *out the text that can be shown. *match: index of the
 * stop string that matched first, or -1. After a match, the text from its start (with
 * include: from its end) on is dropped; later feeds append nothing and set *match to -1.
 * Linear in the text, times n. QUIRE_NO_MEMORY: text may be lost, so the stream must
 * end. */
quire_err stop_matcher_feed(stop_matcher *s, str piece, bool include, strbuf *out, int32_t *match);
/* Feeds a piece in which no stop string may end; one that begins in it may end in a later
 * piece. Errors as stop_matcher_feed. */
quire_err stop_matcher_pass(stop_matcher *s, str piece, strbuf *out);
/* At the end of a stream appends withheld text; none after a match. QUIRE_NO_MEMORY. */
quire_err stop_matcher_flush(stop_matcher *s, strbuf *out);
/* Appends the withheld text in the middle of a stream: no stop string may cross this
 * point. QUIRE_NO_MEMORY. */
quire_err stop_matcher_restart(stop_matcher *s, strbuf *out);

#endif
