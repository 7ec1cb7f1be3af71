/* From a program's arguments to the command that they name, and its exit status: 0 done,
 * 1 failed, 2 not understood. */
#ifndef CLI_DISPATCH_H
#define CLI_DISPATCH_H

#include "cli/program.h"

/* How many of the arguments a command's name takes: one for each of its words, 0 when
 * they are others. */
int dispatch_count_words(const char *name, int argc, char **argv);

/* Prints a line for each command. */
void dispatch_list(const command *const *commands);

/* Runs the command whose name the arguments begin with, or prints --help, --version,
 * "help COMMAND", "help all", "help --json", "help --man" or "help --completions". Prints
 * what went wrong to standard error, and gives the exit status. */
int dispatch(const program *p, int argc, char **argv);

#endif
