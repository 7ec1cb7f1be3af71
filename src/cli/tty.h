/* The terminal of a chat: handles signals, and switches bracketed paste, in which the
 * terminal marks pasted text. One per process.
 *
 *   tty_open -> [tty_edit -> tty_wait .. -> tty_rest] .. -> tty_close
 *
 * Between tty_edit and tty_rest a line is edited: pasted text comes between marks, and a
 * signal that stops or ends the program restores the terminal's state of tty_open. At
 * other times, while an answer is printed, the terminal is in that state. One thread;
 * signals may arrive on any. */
#ifndef CLI_TTY_H
#define CLI_TTY_H

#include <stdbool.h>
#include <stdio.h>

#include "base/err.h"
#include "base/str.h"

#define TTY_PASTE_BEGINS "\033[200~"
#define TTY_PASTE_ENDS   L"\033[201~"

typedef enum tty_event {
    TTY_INPUT,     /* input can be read, or the terminal is gone */
    TTY_INTERRUPT, /* SIGINT */
    TTY_END,       /* SIGTERM or SIGHUP */
    TTY_RESIZED,   /* SIGWINCH */
    TTY_SUSPEND    /* SIGTSTP: call tty_suspend */
} tty_event;

/* Handles SIGINT, SIGTERM, SIGHUP and SIGWINCH until tty_close. out: the terminal,
 * borrowed, for control sequences; plain: it supports none, so pasted text is not
 * marked. */
quire_err tty_open(FILE *out, bool plain, quire_error *err);
/* Stops handling signals. A SIGTERM or SIGHUP that has arrived now ends the program. */
void tty_close(void);

/* Begin and end the editing of a line. */
void tty_edit(void);
void tty_rest(void);
/* Waits for input or a signal; signals take precedence. */
tty_event tty_wait(void);
/* Stops the program until it is continued, with the terminal as it was before
 * tty_edit. */
void tty_suspend(void);
/* Moves to the beginning of the row and, if the terminal can, clears the screen from
 * there on. */
void tty_clear_line(void);
/* A flag that is non-zero after a SIGINT, SIGTERM or SIGHUP that tty_wait did not return.
 * tty_forget_interrupt clears it, but not after SIGTERM or SIGHUP. */
const volatile int *tty_interrupted(void);
void tty_forget_interrupt(void);

/* ---- the file of lines typed ---- */

/* The history file of typed lines: one entry per line, the newest last. Several processes
 * may use it at once.
 *
 * In an entry, a newline is written as \n and a backslash as \\. Each call opens and
 * locks the file (flock), so that processes wait for each other only briefly. The file
 * and its directories are made as needed, accessible to their owner only. */

/* a longer file is shortened to half of this by dropping its oldest entries */
#define INPUT_HISTORY_MAX_BYTES   ((size_t)1 << 20)
#define INPUT_HISTORY_ENTRY_BYTES ((size_t)1 << 16) /* a longer entry is not written */

/* Called with each entry, the oldest first; the bytes are borrowed. An error ends the
 * reading. */
typedef quire_err (*input_history_take)(void *user, str entry);

/* Reads the newest entries, at most INPUT_HISTORY_MAX_BYTES bytes. A missing file has no
 * entries. Invalid UTF-8 becomes U+FFFD. QUIRE_IO: err names the file. Errors of take. */
quire_err input_history_read(const char *path, input_history_take take, void *user, quire_error *err);
/* Appends an entry. QUIRE_IO: err names the file. */
quire_err input_history_add(const char *path, str entry, quire_error *err);

#endif
