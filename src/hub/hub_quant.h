/* GGUF files of a repository by their names: which quantisation a file has, and which
 * files are parts of one model. */
#ifndef HUB_QUANT_H
#define HUB_QUANT_H

#include <stdint.h>

#include "base/str.h"

/* The name without ".gguf" and without "-00002-of-00003": equal for the parts of a model.
 * part: from 1; n_parts: 1 where it is not split. */
typedef struct hub_gguf {
    str stem;  /* borrowed from the path, directories included */
    str quant; /* within it: "Q4_K_M", "UD-IQ2_XXS"; empty: the name has none */
    int32_t part, n_parts;
} hub_gguf;

/* False: the path is not that of a model in GGUF: another file, or one that only goes
 * with a model (mmproj, imatrix). */
bool hub_gguf_read(str path, hub_gguf *out);
/* Without regard to case. */
bool hub_quant_same(str a, str b);

#endif
