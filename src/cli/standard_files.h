/* Standard input, output and error: checks that all output was written, and ends the
 * program with a message when a pipe is closed. For main. */
#ifndef CLI_STANDARD_FILES_H
#define CLI_STANDARD_FILES_H

/* Opens any of the three that is closed, so that no file of the program gets its number.
 * Makes a write to a pipe without a reader end the program at once with a message and
 * status 1. A write to a closed socket remains an error of the call. */
void standard_files_open(void);
/* The exit status: 1, with a message, if a command would have ended with 0 but could not
 * print all of its output. */
int standard_files_finish(int status);

#endif
