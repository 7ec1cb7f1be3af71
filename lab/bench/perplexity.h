/* `quire perplexity`: how well a model predicts a text, with keys and values in pages, in
 * one piece, or computed again for every pass. The ways are compared, log-probability by
 * log-probability: they must be the same bits.
 *
 * The text's tokens are cut into consecutive chunks, each a sequence of its own. If the
 * text begins with BOS, so does each later chunk, in front of its tokens. Every token but
 * a chunk's first is scored; perplexity is exp(mean of -log p). */
#ifndef LAB_BENCH_PERPLEXITY_H
#define LAB_BENCH_PERPLEXITY_H

#include <stdbool.h>

#include "lab/bench/score_text.h"
#include "quire.h"

typedef struct perplexity_options {
    quire_options engine;
    const char *kv;  /* "paged,contiguous,none", or some of them */
    int32_t step;    /* tokens a pass */
    int32_t context; /* of the text's tokens a chunk; 0: 1024, or what the model takes */
    score_text text;
    const char *out; /* file of every log-probability, or NULL */
    bool json, shows_progress;
} perplexity_options;

/* paged, 128 tokens a pass. */
void perplexity_options_init(perplexity_options *o);

/* Scores, compares the ways and prints to stdout; err says why it could not.
 * QUIRE_INTERNAL: two ways differ. */
quire_err perplexity_run(const perplexity_options *o, quire_error *err);

#endif
