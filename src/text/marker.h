/* Marker: puts marks (marks.h) into the literals of a template, for the control tokens of a tokenizer. */
#ifndef TEXT_MARKER_H
#define TEXT_MARKER_H

#include "text/added.h"
#include "text/marks.h"
#include "text/tokenizer.h"

typedef struct marker {
    added_set forward, backward; /* the control tokens' texts, as they are and from behind */
} marker;

/* t: NULL for no tokens. QUIRE_NO_MEMORY; m is zero before and deinited by the caller, also after a failure. */
quire_err marker_open(const tokenizer *t, marker *m);
void marker_deinit(marker *m);
/* Appends a literal with its marks: itself where no token begins or ends in it. */
quire_err marker_write(const marker *m, str literal, strbuf *out);

#endif
