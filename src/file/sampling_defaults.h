/* The sampling that a model's makers recommend, which requests have where they say nothing: of generation_config.json the fields that vLLM
 * takes, or a GGUF file's general.sampling.*. Types are checked here, ranges by whoever knows the fields. */
#ifndef FILE_SAMPLING_DEFAULTS_H
#define FILE_SAMPLING_DEFAULTS_H

#include "file/model_file.h"

enum { SAMPLING_DEFAULT_FIELDS = 5 };

typedef struct sampling_defaults {
    const char *names[SAMPLING_DEFAULT_FIELDS]; /* as requests call them; NULL: there is none such */
    double values[SAMPLING_DEFAULT_FIELDS];     /* finite */
    strbuf source;                              /* the file that they stand in */
} sampling_defaults;

/* Those of a model; all NULL where it recommends nothing. BAD_FILE: err names the file, the field and what stands there. On failure *out is
 * empty. */
quire_err sampling_defaults_of_model(const model_file *f, sampling_defaults *out, quire_error *err);
/* Those of a generation_config.json: the file, or a directory that holds it. */
quire_err sampling_defaults_read(const char *path, sampling_defaults *out, quire_error *err);
void sampling_defaults_deinit(sampling_defaults *d);

#endif
