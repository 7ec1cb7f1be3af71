/* Reads the defaults of requests' sampling fields (defaults.h) from a model or a generation_config.json. */
#ifndef API_REQUEST_DEFAULTS_H
#define API_REQUEST_DEFAULTS_H

#include "api/defaults.h"

/* Reads the file that o->generation_config names, f being the model. Each value is checked like a request's; BAD_FILE names file and field.
 * On failure *out is empty. */
quire_err defaults_open(const quire_options *o, const model_file *f, request_defaults *out, quire_error *err);

#endif
