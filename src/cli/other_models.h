/* The further models of `quire serve`: those of --model-dir, and every MODEL after the
 * first. Each is loaded when a request names it (server/models.h). */
#ifndef CLI_OTHER_MODELS_H
#define CLI_OTHER_MODELS_H

#include "cli/options.h"

/* Sets o->server's list of models, before the server is opened; o owns their texts.
 * Without a MODEL, the first of --model-dir by name becomes the main model.
 * QUIRE_INVALID: two have the same name, there are too many, or the directory is
 * unreadable or empty. */
quire_err other_models_list(cli_options *o, quire_error *err);
/* Fetches further models that were given by a hub name, after the main model. */
quire_err other_models_fetch(cli_options *o, quire_error *err);
#endif
