/* Prints text of a model, a prompt or a file on standard output: unchanged into a pipe or
 * file, with control characters escaped on a terminal, which would execute them. One
 * thread. */
#ifndef CLI_TEXT_OUT_H
#define CLI_TEXT_OUT_H

#include "base/utf8.h"

typedef struct text_out {
    bool is_terminal;
    visible seen; /* state of a text that comes in pieces */
    strbuf shown;
} text_out;

void text_out_init(text_out *t);
void text_out_deinit(text_out *t);
/* Prints a piece of a text at once. IO: standard output is full or closed; err says
 * why. */
quire_err text_out_add(text_out *t, str piece, quire_error *err);
/* Ends the text: prints an incomplete character that was withheld, and the end of the
 * line. */
quire_err text_out_end_line(text_out *t, quire_error *err);
/* Prints a whole text and the end of its line. */
quire_err text_out_print(str text, quire_error *err);

/* Standard input, output and error: checks that all output was written, and ends the
 * program with a message when a pipe is closed. For main. */

/* Opens any of the three that is closed, so that no file of the program gets its number.
 * Makes a write to a pipe without a reader end the program at once with a message and
 * status 1. A write to a closed socket remains an error of the call. */
void standard_files_open(void);
/* The exit status: 1, with a message, if a command would have ended with 0 but could not
 * print all of its output. */
int standard_files_finish(int status);

#endif
