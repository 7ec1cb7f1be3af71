/* A model of random weights, made in memory: speed does not depend on what the weights
 * say, so a bench needs no file.
 *
 * It is a GGUF file without a vocabulary (prompts are ids) in an anonymous file of this
 * process, which any opener of models finds under its path. Blocks are random bits under
 * sane scales, so that activations stay finite: weights have a deviation of about
 * 1/sqrt(inputs). */
#ifndef LAB_BENCH_SYNTHETIC_H
#define LAB_BENCH_SYNTHETIC_H

#include "lab/bench/model_shape.h"

typedef struct synthetic {
    char path[64]; /* in this process, while it is open */
    int fd;
    int64_t n_bytes;
} synthetic;

/* type: of the matrices: Q4_0, Q8_0, Q4_K, MXFP4, BF16 or F32. UNSUPPORTED when the shape's rows
 * are no whole blocks of it.
 * NO_MEMORY when the machine could not hold it beside the copy that an engine makes of
 * it: err says how much that takes. Equal shapes and types give equal bytes, and a shape
 * has the same numbers in Q4_0 and MXFP4, so that its experts get the same rows. */
quire_err synthetic_open(const model_shape *shape, dtype type, synthetic *out, quire_error *err);
/* The same of a published shape and a type of weights by name, as --shape and --type give
 * them; e's model and compute become those. INVALID: there is none of that name. */
quire_err synthetic_open_named(const char *shape, const char *type, quire_options *e, synthetic *out,
                               quire_error *err);
/* Where e's model is "builtin": its shape with 131,072 positions in place of it. Else
 * there is nothing to open. */
quire_err synthetic_open_builtin(quire_options *e, synthetic *out, quire_error *err);
/* Frees its memory once no model has it open. */
void synthetic_close(synthetic *s);

#endif
