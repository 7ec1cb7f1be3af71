/* The terminal of a chat: its signals, and when it marks pasted text (bracketed paste).
 * One per process.
 *
 *   tty_open -> [tty_edit -> tty_wait .. -> tty_rest] .. -> tty_close
 *
 * Between tty_edit and tty_rest a line is edited: pasted text comes between marks, and a
 * signal that stops or ends the program restores the terminal as tty_open found it. At
 * other times, while an answer is printed, the terminal is unchanged. One thread; signals
 * may arrive on any. */
#ifndef CLI_TTY_H
#define CLI_TTY_H

#include <stdbool.h>
#include <stdio.h>

#include "base/err.h"
#include "base/str.h"

#define TTY_PASTE_BEGINS "\033[200~"
#define TTY_PASTE_ENDS   L"\033[201~"

typedef enum tty_event {
    TTY_INPUT,     /* there is something to read, or the terminal is gone */
    TTY_INTERRUPT, /* SIGINT */
    TTY_END,       /* SIGTERM or SIGHUP */
    TTY_RESIZED,   /* SIGWINCH */
    TTY_SUSPEND    /* SIGTSTP: call tty_suspend */
} tty_event;

/* Handles SIGINT, SIGTERM, SIGHUP and SIGWINCH until tty_close. out: the terminal to
 * which marks are written, borrowed; plain: it supports no control sequences, so pasted
 * text is not marked. */
quire_err tty_open(FILE *out, bool plain, quire_error *err);
/* Stops handling them. A SIGTERM or SIGHUP that arrived meanwhile now ends the
 * program. */
void tty_close(void);

void tty_edit(void);
void tty_rest(void);
/* Waits for input or a signal; signals take precedence. */
tty_event tty_wait(void);
/* Stops the program until it is continued, with the terminal as it was before
 * tty_edit. */
void tty_suspend(void);
/* Moves to the beginning of the row, and clears the screen from there on if the terminal
 * can. */
void tty_clear_line(void);
/* Non-zero after a SIGINT, SIGTERM or SIGHUP that tty_wait did not return, until
 * tty_forget_interrupt; SIGTERM and SIGHUP stay. */
const volatile int *tty_interrupted(void);
void tty_forget_interrupt(void);

/* ---- the file of lines typed ---- */

/* The file of the user's input: one entry per line, the newest last. Several processes
 * may use one file at once.
 *
 * In an entry a newline is written \n and a backslash \\. Each call opens and locks the
 * file (flock), so that processes wait for each other only briefly. The file and the
 * directories that lead to it are made as needed, for their owner only. */

/* a file over this loses its oldest entries, to half of it */
#define INPUT_HISTORY_MAX_BYTES   ((size_t)1 << 20)
#define INPUT_HISTORY_ENTRY_BYTES ((size_t)1 << 16) /* a longer entry is not written */

/* Called with each entry, the oldest first; the bytes are borrowed. Its error ends the
 * reading. */
typedef quire_err (*input_history_take)(void *user, str entry);

/* Reads the newest entries, of INPUT_HISTORY_MAX_BYTES at most. A missing file has no
 * entries. Invalid UTF-8 becomes U+FFFD. IO: err names the file. */
quire_err input_history_read(const char *path, input_history_take take, void *user, quire_error *err);
/* Appends an entry. IO: err names the file. */
quire_err input_history_add(const char *path, str entry, quire_error *err);

#endif
