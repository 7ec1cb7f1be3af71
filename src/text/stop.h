/* Stop strings over a stream of text pieces: holds back what may still become one, and cuts at the earliest match. One thread. */
#ifndef TEXT_STOP_H
#define TEXT_STOP_H

#include "base/str.h"

typedef struct stopper stopper;

/* n >= 0 non-empty strings, copied. */
quire_err stopper_open(const str *stops, size_t n, stopper **out);
void stopper_close(stopper *s);
/* Feeds a piece; appends to *out the text that is safe to show. *match is the index of the stop string found first in the text
 * (then what comes after its start, itself included, is dropped unless include), or -1. After a match feeds give nothing. */
quire_err stopper_feed(stopper *s, str piece, bool include, strbuf *out, int32_t *match);
/* Appends what was held back; for the end of the stream. */
quire_err stopper_flush(stopper *s, strbuf *out);

#endif
