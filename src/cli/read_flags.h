/* Reads a command line into a command's options, by the flags of its row. */
#ifndef CLI_READ_FLAGS_H
#define CLI_READ_FLAGS_H

#include "cli/command.h"

/* Reads the arguments after the name of command c into o, which is of c->options_size. INVALID: err names the flag and says what to do; a
 * flag of another command in these lists (each ends with NULL; others may be NULL) is named as that one's.
 * argv is borrowed as long as o. */
quire_err read_flags(cli_options *o, const command *c, const command *const *commands, const command *const *others, int argc, char **argv,
                     quire_error *err);

/* Prints the command's flags, one a line; all: rarely needed ones too. */
void read_flags_help(const command *c, bool all);

#endif
