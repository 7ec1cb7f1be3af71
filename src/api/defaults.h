/* The defaults of a request's sampling fields: those that the model's makers recommend, or those of another generation_config.json. Part of
 * an engine; immutable once open. */
#ifndef API_DEFAULTS_H
#define API_DEFAULTS_H

#include <string.h>

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

static inline void defaults_close(request_defaults *d) {
    strbuf_deinit(&d->source);
    strbuf_deinit(&d->text);
    *d = (request_defaults){0};
}

/* The JSON of a field's default; NULL: d (which may be NULL) has none. */
static inline const char *defaults_find(const request_defaults *d, const char *field) {
    for (int32_t i = 0; d != NULL && i < d->n; i++) {
        if (strcmp(d->values[i].field, field) == 0) {
            return d->values[i].json;
        }
    }
    return NULL;
}

#endif
