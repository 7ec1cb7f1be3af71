/* `quire bench text`: how fast texts become tokens, tokens texts, and conversations
 * prompts. docs/text.md explains the figures. */
#ifndef LAB_BENCH_BENCH_TEXT_H
#define LAB_BENCH_BENCH_TEXT_H

#include <stdbool.h>
#include <stdint.h>

#include "base/str.h"

typedef struct bench_text_options {
    /* a model, a directory or a tokenizer file; NULL: the built-in model, and a tokenizer
     * of each kind made from it */
    const char *path;
    str text;       /* to measure beside the made ones; empty: none */
    int32_t n_kib;  /* of each made text */
    int32_t n_runs; /* each figure is the mean and spread of this many */
    bool json;
} bench_text_options;

void bench_text_options_init(bench_text_options *o);

/* MB/s of encoding and of decoding, and microseconds a token of streaming, for each
 * tokenizer and text; microseconds for rendering a chat of 100 messages. One thread, its
 * processor time. Prints a table or JSON lines. */
quire_err bench_text_run(const bench_text_options *o, quire_error *err);

#endif
