/* Marks: the parts of a text that came from a client, which may contain no control token.
 *
 * A chat's text consists of what its template wrote and of a client's strings. The
 * template language distinguishes them byte by byte (jinja/jinja_arena.h), through every
 * filter and method. A control token counts only where all of its bytes are the
 * template's own. */
#ifndef TEXT_MARKS_H
#define TEXT_MARKS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/str.h"

/* Bytes [start, end) of a text. */
typedef struct mark_run {
    size_t start, end;
} mark_run;

/* The runs of a client's bytes in a text, ascending and apart. Zero-initialised: none. */
typedef struct text_marks {
    mark_run *runs;
    size_t n, cap;
} text_marks;

void text_marks_deinit(text_marks *m);
/* Adds a run, which begins at or after the end of the last one. QUIRE_NO_MEMORY:
 * unchanged. */
quire_err text_marks_add(text_marks *m, size_t start, size_t end);
/* Cuts the runs to a text that is `n` bytes long now. */
void text_marks_cut(text_marks *m, size_t n);
/* True when a control token is allowed at [start, end). O(log n). */
bool text_marks_allow(const text_marks *m, size_t start, size_t end);
/* The first run that ends after `at`: its index, or n. O(log n). */
size_t text_marks_find(const text_marks *m, size_t at);

#endif
