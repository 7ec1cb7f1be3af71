/* What a program takes from its environment. main alone reads it; what is missing is NULL or false. Static. */
#ifndef CLI_ENVIRONMENT_H
#define CLI_ENVIRONMENT_H

#include <stdbool.h>

typedef struct cli_environment {
    const char *history_file; /* where `quire run` keeps the lines that were typed: below XDG_STATE_HOME, or ~/.local/state */
    const char *pack_cache;   /* where packed forms of models are kept: XDG_CACHE_HOME/quire, or ~/.cache/quire */
    bool plain_terminal;      /* TERM says that the terminal takes no control sequences */
} cli_environment;

#endif
