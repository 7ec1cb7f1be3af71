/* The commands of a program with their flags as JSON, for programs: `quire help
 * --json`. */
#ifndef CLI_HELP_JSON_H
#define CLI_HELP_JSON_H

#include "cli/command.h"

/* Appends
 * {"commands":[{"name","summary","flags":[{"names":[..],"here","value","choices":[..],"meaning","field"}]}]}.
 * "here" is works, notice (taken without effect), later or refused. NO_MEMORY. */
quire_err help_json_write(const command *const *commands, strbuf *to);

#endif
