/* The models that `quire serve` has besides its main one: those of --model-dir, and every
 * MODEL after the first. They are loaded when a request names one (server/models.h). */
#ifndef CLI_OTHER_MODELS_H
#define CLI_OTHER_MODELS_H

#include "cli/options.h"

/* Lists the models in o->server, before it is opened; their texts belong to o. Without
 * a MODEL, the first of --model-dir by name becomes the main one. INVALID: two have the
 * same name, there are too many, or the directory cannot be read or is empty. */
quire_err other_models_list(cli_options *o, quire_error *err);
/* Fetches those given by a hub name, after the main model. */
quire_err other_models_fetch(cli_options *o, quire_error *err);
#endif
