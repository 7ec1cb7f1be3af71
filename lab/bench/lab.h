/* A real engine over token ids, for experiments: runs requests with prompts of any
 * content, and records the costs of each. Below the public API, so that sequences may be
 * longer than the model was trained for: speeds and counts do not mind.
 *
 * Owner: one thread; the engine's own thread runs the steps. */
#ifndef LAB_BENCH_LAB_H
#define LAB_BENCH_LAB_H

#include "engine/engine.h"
#include "lab/bench/figures.h"
#include "quire.h"

/* An engine and the reader of its events. */
typedef struct lab_engine {
    engine *e;
    engine_out *out;
    wake reader;
} lab_engine;

quire_err lab_engine_open(model *m, backend *b, const kv_layout *layout, const engine_options *o,
                          lab_engine *out, quire_error *err);
/* Call it also after a failure. */
void lab_engine_close(lab_engine *x);
/* Submits a request for exactly n_output likeliest tokens. r's tokens are freed on
 * failure; its namespace and user belong to the caller. */
quire_err lab_engine_send(lab_engine *x, engine_request *r, int32_t n_output, quire_error *err);

typedef struct lab {
    backend *b;
    model *m;
    const model_desc *desc;
    kv_layout layout;
    lab_engine x;
    int32_t max_len, n_threads; /* as asked for */
} lab;

/* One request and its result. */
typedef struct lab_request {
    const int32_t *tokens; /* [n_tokens] its prompt, or, after another's answer, what is added */
    int32_t n_tokens;
    int32_t n_output;  /* tokens to produce, no fewer; n_samples > 1: by each */
    int32_t n_samples; /* 0 counts as 1 */
    /* index of the request that must have ended before; its prompt and answer come first
     * in this one's prompt. -1: none */
    int32_t after;
    const char *tenant; /* NULL: everybody's */
    int32_t beam_width; /* 0: none; else the best of so many beams is the answer, and n_samples is 1 */
    float temperature;
    constraint *rule; /* constraint of the answers, owned by the caller; NULL: none */
    /* found */
    int32_t n_prompt, n_cached; /* of the first sample */
    /* clock_us; when the engine committed the first and the last token, of all samples */
    int64_t sent_us, first_us, last_us;
    int32_t n_left; /* samples that run */
    int32_t *whole; /* [n_whole] prompt and the first sample's answer */
    int32_t n_whole;
    bool is_sent;
} lab_request;

/* Tokens after which a sample's steps are alike: its pages are copied, and memory for the
 * next is allocated. */
#define LAB_GOING 3

typedef struct lab_result {
    int64_t n_prompt, n_output; /* tokens; each sample's prompt counts */
    /* prompt tokens that were not found but computed, with what preempted sequences
     * computed again */
    int64_t n_prompt_computed;
    int64_t n_queried, n_cached; /* prompt tokens looked up in the cache and found */
    int64_t n_pages_most;        /* held at once */
    int64_t n_tokens_most;       /* in them, each sequence's by itself */
    int64_t n_pages_kept;        /* cached at the end */
    int64_t n_preemptions, n_steps;
    double seconds; /* from the first sent to the last token, by figures_time_us */
    /* of these, the thread's that sends requests and reads tokens; 0 by wall time */
    double reader_seconds;
    /* By the engine's clock, means: from sending to the first token; between tokens */
    double first_ms, token_ms;
    /* tokens a second after each answer's first, from the earliest of these to the
     * last end; where all begin in one step, times token_ms / 1000 it is the number of
     * answers */
    double decode_speed;
    uint64_t digest; /* digest of all answers, equal for equal answers */
    /* the engine's times when the last sample had LAB_GOING tokens; zeros where some had
     * fewer */
    engine_profile going;
} lab_result;

/* Checks that o's model takes sequences of n_tokens. QUIRE_INVALID: it does not. */
quire_err lab_check_length(const quire_options *o, int64_t n_tokens, quire_error *err);

/* Opens model and engine. Of o these count: model, compute, kv_dtype, isa, n_threads,
 * prefix_cache, eviction_policy, schedule, page_tokens, n_pages (needed),
 * max_batched_tokens, max_seqs, prefill_chunk, step_target_us, swap_bytes,
 * no_chunked_prefill and speculative_config (without a draft model). max_len: the longest
 * sequence. */
quire_err lab_open(const quire_options *o, engine_ablations off, int32_t max_len, lab *out, quire_error *err);
void lab_close(lab *l);

/* Runs requests[0..n), at most `at_once` of them at a time, in order among those that may
 * go; the first of them start together; all tokens are seen. The lab is new: its counters
 * are the result's. *err says which failed. */
quire_err lab_run(lab *l, lab_request *requests, int32_t n, int32_t at_once, lab_result *out,
                  quire_error *err);
/* Frees what lab_run left in requests. */
void lab_forget(lab_request *requests, int32_t n);

/* The bytes of weights, step buffers and the pages that were held at most. */
int64_t lab_peak_bytes(const lab *l, const lab_result *r);

/* The digest of one answer. */
uint64_t lab_digest(const int32_t *tokens, int32_t n);

/* lab_open, lab_run, lab_close. *peak_bytes, unless NULL, is lab_peak_bytes. */
quire_err lab_once(const quire_options *o, engine_ablations off, int32_t max_len, lab_request *requests,
                   int32_t n, int32_t at_once, lab_result *out, int64_t *peak_bytes, quire_error *err);

/* Writes a line for people to out, of n bytes: model, numeric configuration, machine.
 * Errors as lab_open. */
quire_err lab_describe(const quire_options *o, char *out, size_t n, quire_error *err);

/* Variants: the same requests run in several ways, in turns. */

/* One way of running: options and requests, and the fastest of its runs so far. */
typedef struct variant {
    quire_options options;
    engine_ablations off;
    lab_request *requests;
    int32_t n, at_once, max_len;
    lab_result best;
    int64_t peak_bytes;                /* weights, buffers, pages */
    int32_t n_done;                    /* runs */
    lab_result runs[FIGURES_MAX_RUNS]; /* [n_done] */
} variant;

/* Runs each variant n_runs times, in turns. Counts must be the same in every run, else
 * QUIRE_INTERNAL, unless `counts_vary` (preemption in a small pool depends on time). */
quire_err variants_run(variant *t, int32_t n, int32_t n_runs, bool counts_vary, quire_error *err);

/* Tokens of n distinct prompts one after another, lengths[i] each; mem_new'd. Sets
 * tokens, n_tokens, after (-1) and n_output of requests. NULL when out of memory. */
int32_t *variant_prompts(const int32_t *lengths, int32_t n, int32_t n_output, lab_request *requests);

/* Tokens that all sequences have in pages at the end: the last token of an answer has
 * none. */
int64_t variant_live_tokens(const lab_request *requests, int32_t n);
/* The run of the median speed (sorts t's runs), and the largest distance of another's
 * speed from it. */
const lab_result *variant_median(variant *t, double *spread);
/* Output tokens a second. */
double variant_speed(const lab_result *r);

/* Workloads by name: who asks what after whom, and which tokens they have in common.
 * Lengths are those of the task's kind; the tokens are drawn, the same for the same text,
 * so that what can be shared is exact and what comes out is only counted. */

typedef struct workload {
    const char *name, *line;
    lab_request *requests;
    int32_t n, max_seqs; /* max_seqs run at once; all that may start are sent at once */
    int32_t max_rows;    /* a step */
    int32_t max_len;     /* of the longest */
    int32_t *tokens;     /* tokens into which requests point */
    size_t n_tokens;
    /* tokens of all prompts, with what they follow; of these, such as no earlier prompt
     * or answer has */
    int64_t n_prompt, n_new;
} workload;

#define WORKLOAD_NAMES "chatbot, mmlu5, gsm8k, react, json, long, chat, agents or unique"

/* QUIRE_INVALID names those there are. Freed with workload_free. */
quire_err workload_make(const char *name, int32_t n_vocab, workload *out, quire_error *err);
void workload_free(workload *w);
/* The i-th name, NULL after the last. */
const char *workload_name(int32_t i);

#endif
