/* Environment variables other than those of flags (set_flag.h), read once by main. A
 * missing variable is NULL, false or 0. The texts are static. */
#ifndef CLI_ENVIRONMENT_H
#define CLI_ENVIRONMENT_H

#include <stdbool.h>

typedef struct cli_environment {
    /* where `quire run` keeps the lines that were typed: below XDG_STATE_HOME, or
     * ~/.local/state */
    const char *history_file;
    /* where packed forms of models are kept: XDG_CACHE_HOME/quire, or ~/.cache/quire */
    const char *pack_cache;
    bool plain_terminal; /* according to TERM, the terminal supports no control sequences */
    /* of the Hugging Face hub, by the names that huggingface_hub gives them; in paths of
     * it ~ is the home directory */
    /* HF_HUB_CACHE, else HF_HOME/hub; HF_HOME defaults to ~/.cache/huggingface */
    const char *hub_cache;
    const char *hub_token;      /* HF_TOKEN, unparsed */
    const char *hub_token_file; /* HF_TOKEN_PATH, or HF_HOME/token; it may not be there */
    const char *hub_endpoint;   /* HF_ENDPOINT */
    const char *hub_ca_file;    /* SSL_CERT_FILE */
    const char *openai_key;     /* OPENAI_API_KEY */
    const char *hub_timeout;    /* HF_HUB_DOWNLOAD_TIMEOUT, unparsed */
    bool hub_offline;           /* HF_HUB_OFFLINE: 1, on, yes or true */
} cli_environment;

/* Reads all of it. */
void environment_read(cli_environment *out);
/* Reads only the hub's variables, which say where models are, not how they run. */
void environment_read_hub(cli_environment *out);

#endif
