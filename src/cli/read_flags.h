/* Reads a command line and the environment into a command's options. */
#ifndef CLI_READ_FLAGS_H
#define CLI_READ_FLAGS_H

#include "cli/commands.h"
#include "cli/options.h"

/* Where flags come from, and which other commands exist. Everything is borrowed as long
 * as the options live. */
typedef struct read_flags_from {
    int argc; /* the arguments after the command's name */
    char **argv;
    char **variables;               /* environment variables, as environ; NULL: not read */
    const command *const *commands; /* this program's commands; ends with NULL */
    const command *const *others;   /* another program's commands; NULL: none */
} read_flags_from;

/* Reads the arguments into o, which has c->options_size bytes, then variables for flags
 * that the arguments do not give. QUIRE_INVALID: err names the flag or variable and says
 * what to do; for a flag of another command in from's lists, err names that command. */
quire_err read_flags(cli_options *o, const command *c, const read_flags_from *from, quire_error *err);

/* Whether the command line gives the flag that has this name, by any of its names.
 * Variables do not count. */
bool read_flags_gave(const cli_options *o, const char *name);

/* Prints the command's flags, one per line; all: also rarely needed ones. */
void read_flags_help(const command *c, bool all);

/* ---- flags that change nothing ---- */

/* Refuses command line flags that would have no effect, so that nobody relies on them.
 * Variables are not checked, since they apply to every command. One thread. */

/* QUIRE_INVALID, "NAME does nothing WHY": the command line gives one of `names`, which
 * are separated by spaces. */
quire_err unused_flags_refuse(const cli_options *o, const char *names, const char *why, quire_error *err);
/* Checks the flags of `quire run`. has_prompt: there is one text to continue.
 * QUIRE_INVALID: err names the flag, the reason, and what to do. */
quire_err unused_flags_check_run(const cli_options *o, bool has_prompt, quire_error *err);
/* Checks the flags of `quire tokenize`. QUIRE_INVALID. */
quire_err unused_flags_check_tokenize(const cli_options *o, quire_error *err);

#endif
