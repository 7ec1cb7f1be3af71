/* Reads lines that a person edits on the terminal, with a history. Wraps libedit; needs
 * tty_open. One, on one thread.
 *
 * Text that is pasted between the terminal's marks is inserted unchanged, newlines
 * included. */
#ifndef CLI_LINE_EDITOR_H
#define CLI_LINE_EDITOR_H

#include <stdbool.h>
#include <stdio.h>

#include "base/str.h"

/* characters of one paste; a longer one is dropped, with a beep */
#define LINE_EDITOR_MAX_PASTE ((size_t)4 << 20)

typedef enum line_end {
    LINE_READ,
    LINE_INTERRUPTED, /* Ctrl-C: the line is what had been typed */
    LINE_CLOSED,      /* Ctrl-D at an empty line, or there is no input any more */
    LINE_SIGNAL       /* the program is to end: SIGTERM or SIGHUP */
} line_end;

typedef struct line_editor line_editor;

/* out: where the line is shown, borrowed. */
quire_err line_editor_open(FILE *out, line_editor **out_editor, quire_error *err);
void line_editor_close(line_editor *e);
/* Reads a line into *line (cleared before; UTF-8 without its end). NO_MEMORY: the line is
 * incomplete. */
quire_err line_editor_read(line_editor *e, const char *prompt, strbuf *line, line_end *end);
/* Adds an entry to the history that the arrow keys go through; not one that equals the
 * last. */
quire_err line_editor_remember(line_editor *e, str entry);

#endif
