/* From a program's arguments to the command that they name, and its exit status: 0 done,
 * 1 failed, 2 not understood. */
#ifndef CLI_DISPATCH_H
#define CLI_DISPATCH_H

#include "cli/commands.h"

/* ---- a program as a row ---- */

/* An executable as a row: its name, its commands, and where its flags come from
 * besides the command line; and the texts made from the rows of its commands and
 * flags. */

typedef struct program {
    const char *name, *summary;
    const command *const *commands; /* ends with NULL */
    const command *const *others;   /* commands of another executable that this one knows; NULL: none */
    void (*help)(bool all);         /* prints --help; all: with every command */
    /* like environ; source of flags (set_flag.h); NULL: not read */
    char **variables;
    cli_environment environment; /* other variables that main has read */
} program;

/* Manual pages, `quire help --man`: appends the page of a program in the macros of
 * man(7): its commands, with their flags where `all` is set. NO_MEMORY. */
quire_err man_page_program(const program *p, bool all, strbuf *to);
/* Appends the page of one of its commands, quire-COMMAND(1). */
quire_err man_page_command(const program *p, const command *c, strbuf *to);

/* Completions, `quire help --completions SHELL`: of commands, flags, the values of flags
 * that are one of some words, and files where a flag or a command takes one. The scripts
 * depend on nothing but their shell. Appends the script for "bash", "zsh" or "fish",
 * which completes these commands of quire and the others; each list ends with NULL,
 * others may be NULL, and a command without flags is completed by name. INVALID: another
 * shell. NO_MEMORY. */
quire_err completions_write(const char *shell, const command *const *commands, const command *const *others,
                            strbuf *to, quire_error *err);

/* ---- dispatch ---- */

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
