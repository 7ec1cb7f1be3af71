/* A program as a row: its name, its commands, and the sources of its flags besides the
 * command line. */
#ifndef CLI_PROGRAM_H
#define CLI_PROGRAM_H

#include "cli/command.h"

typedef struct program {
    const char *name, *summary;
    const command *const *commands; /* ends with NULL */
    const command *const *others;   /* another program's, whose names and flags are known here; NULL: none */
    void (*help)(bool all);         /* prints --help; all: with every command */
    /* as environ, for flags (env_flags.h); NULL: this program does not read it */
    char **variables;
    cli_environment environment; /* what else main read */
} program;

#endif
