/* From a program's arguments to the command that they name, and its exit status: 0 done, 1 failed, 2 not understood. */
#ifndef CLI_DISPATCH_H
#define CLI_DISPATCH_H

#include "cli/command.h"

/* How many of the arguments a command's name takes: one for each of its words, 0 when they are others. */
int dispatch_count_words(const char *name, int argc, char **argv);

/* Runs the command of the list whose name the arguments (without the program's) begin with, prints what went wrong to standard error, and
 * gives the exit status. The list ends with NULL, and a command of two words follows that of its first. -1: none has that name. `others`
 * are another program's commands, whose flags are known by name here; NULL: none. */
int dispatch(const command *const *commands, const command *const *others, int argc, char **argv);

#endif
