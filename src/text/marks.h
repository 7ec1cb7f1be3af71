/* Marks: where a template itself writes special tokens.
 *
 * A chat's text is made of a template's literals and of a client's strings, and only what the literals spell may become a control token. So
 * the literals are marked when the template is compiled (marker.h): a byte before each place where such a token begins in them, and one
 * behind each where one ends. Templates cut, trim, join and search a client's strings as they always do, since those stay as they are. The
 * marks are bytes that no UTF-8 has, and a client's strings are checked to be UTF-8, so no client can write one.
 *
 * A token may also stand across two literals with a name between them, "<|" + role + "|>". It counts where nothing lies between, or a role.
 */
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

/* Where in a text control tokens may begin and end. Zero-initialised: nowhere. */
typedef struct text_marks {
    mark_list starts, ends;
    size_t lead; /* a token may begin this many bytes before its start: what a normalizer puts before every text */
} text_marks;

void text_marks_deinit(text_marks *m);
quire_err mark_list_add(mark_list *l, size_t at);
/* Whether a control token may stand at [start, end). O(log n). */
bool text_marks_allow(const text_marks *m, size_t start, size_t end);

/* Appends marked to *text without its marks, and fills *out, which is zero before and deinited by the caller, also after a failure; places
 * count from where text ended. roles: names that may stand inside a token, each with a zero byte behind it. QUIRE_NO_MEMORY. */
quire_err marks_take(str marked, str roles, strbuf *text, text_marks *out);
/* Takes the marks out of a 0-terminated message, in place. */
void marks_strip(char *message);

#endif
