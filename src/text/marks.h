/* Marks: bytes that record which special tokens of a rendered chat the template itself wrote.
 *
 * A chat's text consists of a template's literals and a client's strings, and only a literal may spell a control token. So the literals are
 * marked when the template is compiled (marker.h): with a byte before each position where such a token begins in them, and one behind each
 * position where one ends. Templates cut, trim, join and search a client's strings without change, since those carry no marks. The marks
 * are bytes that cannot occur in UTF-8, and a client's strings are checked to be UTF-8, so no client can write one.
 *
 * A token may also span two literals with a name between them, "<|" + role + "|>". It counts where nothing lies between, or a role. */
#ifndef TEXT_MARKS_H
#define TEXT_MARKS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/str.h"

enum {
    MARK_EDGE_BEFORE = 0xFA, /* a literal begins that has MARK_CLOSE */
    MARK_EDGE_BEHIND = 0xFB, /* a literal ends that has MARK_OPEN */
    MARK_OPEN = 0xFC,        /* a token may begin here that goes on behind the literal */
    MARK_CLOSE = 0xFD,       /* a token may end here that began before the literal */
    MARK_START = 0xFE,       /* a token begins here */
    MARK_END = 0xFF          /* a token ends here */
};

typedef struct mark_list {
    size_t *at; /* ascending */
    size_t n, cap;
} mark_list;

/* The positions in a text where control tokens may begin and end. Zero-initialised: none. */
typedef struct text_marks {
    mark_list starts, ends;
    size_t lead; /* a token may begin this many bytes before its start: the length of a normalizer's prefix */
} text_marks;

void text_marks_deinit(text_marks *m);
quire_err mark_list_add(mark_list *l, size_t at);
/* True when a control token is allowed at [start, end). O(log n). */
bool text_marks_allow(const text_marks *m, size_t start, size_t end);

/* Appends marked to *text without its marks, and fills *out, which the caller zeroes before and deinits, also after a failure. Positions
 * count from the old end of text. roles: names that may occur inside a token, each with a zero byte behind it. QUIRE_NO_MEMORY. */
quire_err marks_take(str marked, str roles, strbuf *text, text_marks *out);
/* Removes the marks from a 0-terminated message, in place. */
void marks_strip(char *message);

#endif
