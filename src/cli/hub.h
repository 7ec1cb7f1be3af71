/* Models given by name: builds the hub's options from flags and environment, and replaces
 * names by paths. */
#ifndef CLI_HUB_H
#define CLI_HUB_H

#include "cli/options.h"
#include "quire_hub.h"

/* The hub's options, and storage for the token. hub_close frees it. */
typedef struct hub_setup {
    quire_hub_options options;
    strbuf token;
} hub_setup;

/* Builds the options. QUIRE_INVALID: err names the flag or the variable. Call hub_close
 * in any case. */
quire_err hub_open(const cli_options *o, hub_setup *out, quire_error *err);
void hub_close(hub_setup *s);

/* Calls quire_hub_pull and reports on stderr what is fetched and, on a terminal, the
 * progress. Free *path with quire_free. */
quire_err hub_fetch_model(const cli_options *o, const char *name, quire_hub_when when, char **path,
                          quire_error *err);

/* Whether `model` has the form of a hub name and no such file exists. */
bool hub_is_name(const char *model);

/* If o's model is a hub name (hub_is_name), makes it the server's model name, unless
 * flags give one. */
void hub_name_server(cli_options *o);

/* If o's model is a hub name (hub_is_name) or from -hf, downloads it if necessary and
 * replaces it by its path; likewise the draft model of --speculative-config and the
 * adapters of --lora-modules. Errors of quire_hub_pull. */
quire_err hub_resolve_models(cli_options *o, quire_error *err);

#endif
