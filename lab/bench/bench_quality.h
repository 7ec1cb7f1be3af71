/* `quire bench quality`: what a type of weights, a compute mode or a type of keys and
 * values costs in truth, on a text.
 *
 * The reference is the model's file as it is, computed in f32 with keys and values in
 * f32: of a file that was quantised before, its own quantised weights. Each row of the
 * table is another way to run it, or another file; at every scored position its logits
 * are compared with the reference's, which is computed beside it.
 *
 * The text's first tokens are cut into windows of `context` tokens, each a sequence of
 * its own; what is left over is not used. Of a window the tokens of its second half are
 * predicted and scored, n / 2 + 1 .. n - 1 counted from 0, so that each has at least half
 * a window before it (llama.cpp's perplexity does the same). If the text begins with BOS,
 * that takes the place of every later window's first token.
 *
 * Memory: the reference and n_at_once rows' models, with the logits of QUALITY_ROWS
 * positions and the pages of one window each; of QUALITY_SEQS windows where speed is
 * measured. */
#ifndef LAB_BENCH_BENCH_QUALITY_H
#define LAB_BENCH_BENCH_QUALITY_H

#include <stdbool.h>

#include "lab/bench/score_text.h"
#include "quire.h"

enum { QUALITY_ROWS = 128, QUALITY_SEQS = 16, QUALITY_MAX_AT_ONCE = 16 };

typedef struct bench_quality_options {
    quire_options engine; /* model, isa, n_threads, page_tokens, max_model_len and overrides count */
    score_text text;
    /* of weights, to which MODEL's are quantised while they are loaded; none: as they
     * are. With commas between them */
    const char *types;
    const char *against;  /* other files with the same vocabulary, likewise; NULL: none */
    const char *computes; /* "auto", or several */
    const char *kv_types;
    const char *contexts; /* tokens of a window */
    int32_t n_tokens;     /* of the text that are used at most */
    int32_t n_steps;      /* timed behind a window, of 1 row and of QUALITY_SEQS; 0: no speed */
    int32_t n_at_once;    /* rows beside one pass of the reference, at most QUALITY_MAX_AT_ONCE */
    bool json, shows_progress;
} bench_quality_options;

/* As the file is, computed as an engine does by itself, KV f32, windows of 512, 16384
 * tokens, 16 steps, a row at a time. */
void bench_quality_options_init(bench_quality_options *o);

/* Measures and prints a line for each row. INVALID: err says what is wrong with a list,
 * or how many tokens a window needs. */
quire_err bench_quality_run(const bench_quality_options *o, quire_error *err);

#endif
