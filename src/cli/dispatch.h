/* From a program's arguments to the command that they name, and its exit status: 0 done, 1 failed, 2 not understood. */
#ifndef CLI_DISPATCH_H
#define CLI_DISPATCH_H

#include "cli/command.h"

/* How many of the arguments a command's name takes: one for each of its words, 0 when they are others. */
int dispatch_count_words(const char *name, int argc, char **argv);

/* A program: what it is called, and its commands, one of two words behind that of its first. */
typedef struct program {
    const char *name;
    const command *const *commands; /* ends with NULL */
    const command *const *others;   /* another program's, whose names and flags are known here; NULL: none */
    void (*help)(bool all);         /* prints --help; all: with every command */
    environment environment;        /* what main read */
} program;

/* Prints a line for each command. */
void dispatch_list(const command *const *commands);

/* Runs the command whose name the arguments begin with, or prints --help, --version, "help COMMAND", "help all" or "help --json". Prints
 * what went wrong to standard error, and gives the exit status. */
int dispatch(const program *p, int argc, char **argv);

#endif
