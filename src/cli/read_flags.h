/* Reads a command line, and the environment, into a command's options, by the flags of
 * its row. */
#ifndef CLI_READ_FLAGS_H
#define CLI_READ_FLAGS_H

#include "cli/commands.h"
#include "cli/options.h"

/* Where flags come from, and which other commands are known. Everything is borrowed as
 * long as the options live. */
typedef struct read_flags_from {
    int argc; /* the arguments after the command's name */
    char **argv;
    char **variables;               /* as environ; NULL: not read */
    const command *const *commands; /* this program's; ends with NULL */
    const command *const *others;   /* another program's; NULL: none */
} read_flags_from;

/* Reads the arguments into o, which is of c->options_size, and takes from the environment
 * what they do not set. INVALID: err names the flag or the variable and says what to do;
 * a flag of another command in from's lists is named as that one's. */
quire_err read_flags(cli_options *o, const command *c, const read_flags_from *from, quire_error *err);

/* Whether the command line gives the flag of this name, by any of its names. A variable
 * does not count. */
bool read_flags_gave(const cli_options *o, const char *name);

/* Prints the command's flags, one a line; all: rarely needed ones too. */
void read_flags_help(const command *c, bool all);

/* ---- flags that change nothing ---- */

/* Refuses flags of the command line that have no effect there, so that no result is
 * mistaken for another. Variables are not checked: they are for every command. One
 * thread. */

/* INVALID, "NAME does nothing WHY", if the command line gives one of `names`, which are
 * separated by spaces. */
quire_err unused_flags_refuse(const cli_options *o, const char *names, const char *why, quire_error *err);
/* Of `quire run`. has_prompt: there is one text to continue. INVALID: err names the flag,
 * the reason, and what to do. */
quire_err unused_flags_check_run(const cli_options *o, bool has_prompt, quire_error *err);
/* Of `quire tokenize`; the same. */
quire_err unused_flags_check_tokenize(const cli_options *o, quire_error *err);

#endif
