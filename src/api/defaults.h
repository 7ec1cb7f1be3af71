/* The defaults of a request's sampling fields: those that the model's makers recommend, or those of another generation_config.json. Part of
 * an engine; immutable once open. */
#ifndef API_DEFAULTS_H
#define API_DEFAULTS_H

#include "file/sampling_defaults.h"
#include "quire.h"

typedef struct request_defaults {
    int32_t n;
    struct {
        const char *field;
        char json[32]; /* the value */
    } values[SAMPLING_DEFAULT_FIELDS];
    strbuf source; /* the file that they are from; empty with n 0 */
    strbuf text;   /* "temperature 0.6, top_k 20" */
} request_defaults;

/* Reads the file that o->generation_config names, f being the model. Each value is checked like a request's; BAD_FILE names file and field.
 * On failure *out is empty. */
quire_err defaults_open(const quire_options *o, const model_file *f, request_defaults *out, quire_error *err);
void defaults_close(request_defaults *d);
/* The JSON of a field's default; NULL: d (which may be NULL) has none. */
const char *defaults_find(const request_defaults *d, const char *field);

#endif
