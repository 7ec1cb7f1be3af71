/* Architectures that are known and refused: each needs a mechanism of its own that is not
 * here. docs/models.md has the same table. */
#ifndef MODEL_REFUSED_H
#define MODEL_REFUSED_H

#include <stddef.h>

#include "base/str.h"
#include "file/model_file.h"

#define MOST_REFUSED 18

typedef struct refused_arch {
    const char *hf, *gguf; /* config.json's class; general.architecture, or NULL */
    const char *reason;    /* what it needs: "hyper-connections of four streams" */
} refused_arch;

/* The i-th, or NULL past the last. */
const refused_arch *refused_at(size_t i);
/* Why a file's architecture is refused by its name; NULL: it is not. */
const char *refused_reason(model_format format, str name);

#endif
