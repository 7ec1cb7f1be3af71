/* Finds and runs the command that a program's arguments name. Exit status: 0 done, 1
 * failed, 2 not understood. */
#ifndef CLI_DISPATCH_H
#define CLI_DISPATCH_H

#include "cli/commands.h"

/* ---- a program as a row ---- */

/* An executable is a row: its name, its commands, and where flags come from besides the
 * command line. Help, manual pages and completions are made from the rows. */

typedef struct program {
    const char *name, *summary;
    const command *const *commands; /* ends with NULL */
    const command *const *others;   /* commands of another executable that this one mentions; NULL: none */
    void (*help)(bool all);         /* prints --help; all: with every command */
    /* environment variables that set flags (set_flag.h), as environ; NULL: not read */
    char **variables;
    cli_environment environment; /* the other variables, read by main */
} program;

/* Appends a program's manual page in man(7) macros (`quire help --man`): its commands
 * and, if `all`, their flags. QUIRE_NO_MEMORY. */
quire_err man_page_program(const program *p, bool all, strbuf *to);
/* Appends the manual page of one of its commands, quire-COMMAND(1). QUIRE_NO_MEMORY. */
quire_err man_page_command(const program *p, const command *c, strbuf *to);

/* Appends the completion script for "bash", "zsh" or "fish" (`quire help --completions
 * SHELL`). It completes commands, flags, the words that a flag takes, and files, and
 * needs nothing but its shell. commands, others: lists that end with NULL; others may be
 * NULL; of a command without flags only the name is completed. QUIRE_INVALID: another
 * shell. QUIRE_NO_MEMORY. */
quire_err completions_write(const char *shell, const command *const *commands, const command *const *others,
                            strbuf *to, quire_error *err);

/* ---- dispatch ---- */

/* The number of words in a command's name if the arguments begin with them, otherwise
 * 0. */
int dispatch_count_words(const char *name, int argc, char **argv);

/* Prints a line for each command: name and summary. */
void dispatch_list(const command *const *commands);

/* Runs the command whose name the arguments begin with, or prints --help, --version,
 * "help COMMAND", "help all", "help --json", "help --man" or "help --completions". Prints
 * errors to standard error. Returns the exit status. */
int dispatch(const program *p, int argc, char **argv);

#endif
