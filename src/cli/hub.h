/* Models by name for the commands: the hub's options from flags and environment, and
 * paths for models given by name. */
#ifndef CLI_HUB_H
#define CLI_HUB_H

#include "cli/options.h"
#include "quire_hub.h"

/* The options, with the text of the token. hub_close frees it. */
typedef struct hub_setup {
    quire_hub_options options;
    strbuf token;
} hub_setup;

/* INVALID: err names the flag or the variable. Call hub_close in any case. */
quire_err hub_open(const cli_options *o, hub_setup *out, quire_error *err);
void hub_close(hub_setup *s);

/* quire_hub_pull, with lines on stderr that say what is fetched and, on a terminal, the
 * progress. *path is freed with quire_free. */
quire_err hub_fetch_model(const cli_options *o, const char *name, quire_hub_when when, char **path,
                          quire_error *err);

/* Whether a model is on the hub: no such file exists, and it has the form of a hub
 * name. */
bool hub_is_name(const char *model);

/* If o's model is not a local file and has the form of a hub name, makes that the
 * server's model name, unless flags give one. */
void hub_name_server(cli_options *o);

/* If o's model is not a local file and has the form of a hub name, or came from -hf,
 * replaces it by its path, after a download if necessary. Does the same for the draft
 * model of --speculative-config and the adapters of --lora-modules. Errors of
 * quire_hub_pull. */
quire_err hub_resolve_models(cli_options *o, quire_error *err);

#endif
