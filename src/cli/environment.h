/* Environment variables other than those that set flags (set_flag.h), read once by main.
 * Missing ones are NULL or false. The texts are static. */
#ifndef CLI_ENVIRONMENT_H
#define CLI_ENVIRONMENT_H

#include <stdbool.h>

typedef struct cli_environment {
    /* file of the lines typed in `quire run`: below XDG_STATE_HOME, or ~/.local/state */
    const char *history_file;
    /* directory of packed forms of models: XDG_CACHE_HOME/quire, or ~/.cache/quire */
    const char *pack_cache;
    bool plain_terminal; /* TERM says that the terminal supports no control sequences */
    /* Variables of huggingface_hub. In its paths, ~ is the home directory. */
    /* HF_HUB_CACHE, else HF_HOME/hub; HF_HOME defaults to ~/.cache/huggingface */
    const char *hub_cache;
    const char *hub_token;      /* HF_TOKEN, unparsed */
    const char *hub_token_file; /* HF_TOKEN_PATH, or HF_HOME/token; may be missing */
    const char *hub_endpoint;   /* HF_ENDPOINT */
    const char *hub_ca_file;    /* SSL_CERT_FILE */
    const char *openai_key;     /* OPENAI_API_KEY */
    const char *hub_timeout;    /* HF_HUB_DOWNLOAD_TIMEOUT, unparsed */
    bool hub_offline;           /* HF_HUB_OFFLINE: 1, on, yes or true */
} cli_environment;

/* Reads all variables of *out. */
void environment_read(cli_environment *out);
/* Reads only the hub's variables, which affect where models are, not how they run. */
void environment_read_hub(cli_environment *out);

#endif
