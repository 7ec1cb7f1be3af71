/* What a program takes from its environment. main alone reads it; what is missing is NULL or false. Static. */
#ifndef CLI_ENVIRONMENT_H
#define CLI_ENVIRONMENT_H

#include <stdbool.h>

typedef struct cli_environment {
    const char *history_file; /* where `quire run` keeps the lines that were typed: below XDG_STATE_HOME, or ~/.local/state */
    const char *cache_directory; /* for what can be made again: quire below XDG_CACHE_HOME, or below ~/.cache */
    bool plain_terminal;      /* TERM says that the terminal takes no control sequences */
} cli_environment;

#endif
