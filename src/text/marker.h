/* Marker: writes marks (marks.h) into the literals of a template, for the control tokens of a tokenizer. */
#ifndef TEXT_MARKER_H
#define TEXT_MARKER_H

#include "text/added.h"
#include "text/marks.h"
#include "text/tokenizer.h"

typedef struct marker {
    added_set forward, backward; /* tries of the control tokens' texts, forwards and backwards */
} marker;

/* t: NULL for no tokens. QUIRE_NO_MEMORY. The caller zeroes m before and deinits it, also after a failure. */
quire_err marker_open(const tokenizer *t, marker *m);
void marker_deinit(marker *m);
/* Appends a literal with its marks: unchanged where no token begins or ends in it. */
quire_err marker_write(const marker *m, str literal, strbuf *out);

#endif
