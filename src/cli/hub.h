/* Models by name for the commands: options of the hub from flags and environment, and a
 * name in the place of a model's path. */
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

/* quire_hub_pull, with lines on stderr on what is fetched, and on a terminal on how far
 * it is. *path is freed with quire_free. */
quire_err hub_fetch_model(const cli_options *o, const char *name, quire_hub_when when, char **path,
                          quire_error *err);

/* Whether a model is one of the hub: no such file exists, and it has the form of a
 * name. */
bool hub_is_name(const char *model);

/* If o's model is not a file here and has the form of a name: makes it the server's model
 * name, unless flags give one. */
void hub_name_server(cli_options *o);

/* Where o's model is not a file here and has the form of a name, or came as -hf: puts its
 * path there, fetched if need be. The same for the draft model of --speculative-config,
 * and for the adapters of --lora-modules. Errors of quire_hub_pull. */
quire_err hub_resolve_models(cli_options *o, quire_error *err);

#endif
