/* `quire bench speculation`: what guessing tokens saves on a file of prompts, beside
 * decoding without. The output must be the same. */
#ifndef LAB_BENCH_BENCH_SPECULATION_H
#define LAB_BENCH_BENCH_SPECULATION_H

#include <stdbool.h>

#include "base/str.h"
#include "engine/ablations.h"
#include "quire.h"

typedef struct bench_speculation_options {
    quire_options engine; /* speculative_config: it alone is measured; NULL: methods */
    engine_ablations off;
    const char *methods; /* "ngram,suffix", each with its defaults */
    const char *name;    /* of the file of prompts; NULL: the built-in prompts */
    str prompts;         /* its text (prompt_lines.h) */
    int32_t n_decode;    /* tokens of each answer */
    int32_t n_each;      /* prompts of a category, the first of them; 0: all */
    double temperature;
    bool json;
} bench_speculation_options;

void bench_speculation_options_init(bench_speculation_options *o);

/* Answers each prompt without guesses and then by each method, in turn, so that what else
 * runs on the machine slows them alike: one request at a time, without a prefix cache,
 * each way in an engine of its own. Prints for each category and for all of them how many
 * guesses were accepted, tokens a step and the speed, both behind the first token. err
 * says why it could not; QUIRE_INTERNAL: an answer is another than without guesses. */
quire_err bench_speculation_run(const bench_speculation_options *o, quire_error *err);

#endif
