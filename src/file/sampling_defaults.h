/* The sampling parameters that a model's authors recommend: the defaults of a request's
 * fields.
 *
 * They come from the fields of generation_config.json that vLLM reads, or from a GGUF
 * file's general.sampling.*. Types are checked here, ranges where the fields are used. */
#ifndef FILE_SAMPLING_DEFAULTS_H
#define FILE_SAMPLING_DEFAULTS_H

#include "file/model_file.h"

enum { SAMPLING_DEFAULT_FIELDS = 5 };

typedef struct sampling_defaults {
    const char *names[SAMPLING_DEFAULT_FIELDS]; /* names in requests; NULL: no default */
    double values[SAMPLING_DEFAULT_FIELDS];     /* finite */
    strbuf source;                              /* name of the file that has them */
} sampling_defaults;

/* Reads a model's recommended defaults; all names are NULL if it has none. BAD_FILE: err
 * names the file, the field and the value. After a failure *out is empty. */
quire_err sampling_defaults_of_model(const model_file *f, sampling_defaults *out, quire_error *err);
/* Reads the defaults from a generation_config.json, given as the file or its directory.
 * Errors as sampling_defaults_of_model. */
quire_err sampling_defaults_read(const char *path, sampling_defaults *out, quire_error *err);
void sampling_defaults_deinit(sampling_defaults *d);

#endif
