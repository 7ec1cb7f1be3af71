/* `quire bench grammar`: what grammars cost: compiling schemas, and masks along
 * instances. */
#ifndef LAB_BENCH_BENCH_GRAMMAR_H
#define LAB_BENCH_BENCH_GRAMMAR_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

typedef struct bench_grammar_options {
    const char *tokenizer; /* a model or tokenizer file; NULL: a made-up vocabulary of n_tokens */
    const char *
        /* files of MaskBench (a record with `schema` and `tests` a line), commas between;
         * NULL: a few schemas of its own */
        schemas;
    int32_t n_tokens;
    int32_t every;  /* each so-and-so-many-th schema */
    int32_t n_keep; /* so many different schemas are kept compiled at a time (grammar_keep.h); 0: none */
    bool json;
} bench_grammar_options;

void bench_grammar_options_init(bench_grammar_options *o);

/* Compiles each schema (members in any order, any white space), walks its valid instances
 * by the longest tokens, and takes the mask before each token. Prints mean and
 * percentiles of microseconds: compile, the first mask with compile, all masks.
 * Then what n_keep grammars take. */
quire_err bench_grammar_run(const bench_grammar_options *o, quire_error *err);

#endif
