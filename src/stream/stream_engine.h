/* A running engine with what turns texts into requests and tokens into text: text
 * threads, tokenizer, caches. Immutable after open, except for the counters. */
#ifndef STREAM_STREAM_ENGINE_H
#define STREAM_STREAM_ENGINE_H

#include <pthread.h>
#include <stdatomic.h>

#include "answer/grammar_constraint.h"
#include "core/adapter_ref.h"
#include "engine/engine.h"
#include "quire.h"
#include "request/request.h"
#include "stream/prompt_cache.h"
#include "stream/text_pool.h"
#include "stream/turn_store.h"

/* ---- statistics of requests ---- */

/* Request statistics: sizes, times and results of an engine's requests, as its users see
 * them. Any thread. */

typedef struct request_stats {
    pthread_mutex_t lock; /* guards the other members, so that readers see completions as a whole */
    int64_t finished[4];  /* completions, by quire_finish - 1 */
    int64_t refused;
    quire_histogram histograms[QUIRE_N_REQUEST_HISTOGRAMS];
} request_stats;

/* Times of a finished completion (clock_us). */
typedef struct request_times {
    /* tokenise_us: duration from submitted_us until the engine got it */
    int64_t submitted_us, tokenise_us;
    int64_t admitted_us, first_token_us, ended_us; /* the first two: 0 if it did not happen */
} request_times;

typedef struct request_numbers {
    int32_t n_prompt, n_computed, n_completion, n_preempted;
    int32_t max_tokens;
} request_numbers;

/* QUIRE_NO_MEMORY. */
quire_err request_stats_open(request_stats **out);
/* NULL is allowed. */
void request_stats_close(request_stats *s);

/* Counts a first token that came `us` microseconds after submission. */
void request_stats_first_token(request_stats *s, int64_t us);
/* Counts a finished completion. n_samples: for the last completion of a prompt their
 * number, and `longest` the tokens of the longest; else 0. */
void request_stats_over(request_stats *s, quire_finish finish, const request_times *t,
                        const request_numbers *n, int32_t n_samples, int32_t longest);
/* Counts a request that was refused because the engine was full. */
void request_stats_refused(request_stats *s);
/* Writes the statistics of requests to *out. */
void request_stats_read(request_stats *s, quire_stats *out);

/* ---- the engine ---- */

typedef struct stream_engine {
    engine *core;
    const model_desc *model;
    const tokenizer *tokenizer; /* NULL: prompts must be ids */
    request_context context;
    bool parses_messages;     /* special tokens in a client's messages are parsed as tokens */
    int64_t max_answer_bytes; /* 0: unlimited */
    text_pool *text;
    prompt_cache *prompts;   /* NULL: none */
    turn_store *turns;       /* NULL: none */
    adapter_source adapters; /* `want` NULL: adapters are not supported */
    grammar_cache *grammars;
    grammar_memory *rule_memory;           /* memory limit for the states of all rules */
    request_stats *requests;               /* owned; threads share it */
    _Atomic(struct token_texts *) texts;   /* made at first use (choice.h) */
    _Atomic(struct grammar_vocab *) vocab; /* made at first use (stream_engine_vocab) */
    _Atomic(struct marked_vocab *) marked; /* made at first use (stream_engine_marked) */
} stream_engine;

/* The source of a forked request, whose only prompt is its parent's tokens. */
typedef struct stream_fork {
    engine_fork *held;
    const engine *core; /* the parent's engine; only compared, since it may be closed */
    int32_t n_prompt;   /* how many of the tokens were the prompt; the rest was generated */
    output_start start; /* how the answer begins */
} stream_fork;

/* The park of choice number `choice` of r; NULL: none. */
engine_park *stream_park_of(const quire_request *r, int32_t choice);

typedef struct stream_engine_sizes {
    int32_t n_text_threads;
    size_t text_cache_bytes, rule_bytes; /* text_cache_bytes 0: no prompt cache */
} stream_engine_sizes;

/* Opens caches and text threads of *e, whose other members are set. QUIRE_NO_MEMORY: call
 * stop and close then too. */
quire_err stream_engine_open(stream_engine *e, const stream_engine_sizes *sizes, quire_error *err);
/* Ends the text threads. The engine must not give them work any more. */
void stream_engine_stop(stream_engine *e);
/* Frees what was opened or made. Call it after the engine is closed, which may use it. */
void stream_engine_close(stream_engine *e);

/* The vocabulary for the engine's grammars, made at first use; borrowed. e has a
 * tokenizer. Any thread. QUIRE_NO_MEMORY. */
quire_err stream_engine_vocab(stream_engine *e, struct grammar_vocab **out);
/* Like stream_engine_vocab, for grammars that tell special tokens from text. */
quire_err stream_engine_marked(stream_engine *e, const struct marked_vocab **out);

#endif
