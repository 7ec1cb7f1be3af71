/* An engine over token ids for experiments: runs requests with any prompts and records
 * the cost of each. Works below the public API, so that sequences may be longer than the
 * model was trained for, which does not affect speeds and counts.
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
/* Also call it after a failure. */
void lab_engine_close(lab_engine *x);
/* Submits a request for exactly n_output tokens, sampled greedily. Frees r's tokens on
 * failure; its namespace and user belong to the caller. */
quire_err lab_engine_send(lab_engine *x, engine_request *r, int32_t n_output, quire_error *err);

typedef struct lab {
    backend *b;
    model *m;
    const model_desc *desc;
    kv_layout layout;
    lab_engine x;
    int32_t max_len, n_threads; /* as requested */
} lab;

/* A request and its result. */
typedef struct lab_request {
    const int32_t *tokens; /* [n_tokens] the prompt; with `after`, what follows that request's answer */
    int32_t n_tokens;
    int32_t n_output;  /* exact number of tokens to generate, per sample */
    int32_t n_samples; /* 0 counts as 1 */
    /* index of a request that must have ended before; unless is_apart, its prompt and answer
     * begin this one's prompt. -1: none */
    int32_t after;
    bool is_apart;
    const char *tenant; /* NULL: the default tenant */
    int32_t beam_width; /* 0: none; else the best of this many beams is the answer, and n_samples is 1 */
    float temperature;
    constraint *rule; /* constraint of the answers, owned by the caller; NULL: none */
    /* results */
    int32_t n_prompt, n_cached; /* in the first sample */
    /* clock_us when the engine committed the first and last token, over all samples */
    int64_t sent_us, first_us, last_us;
    int32_t n_left; /* samples that run */
    int32_t *whole; /* [n_whole] prompt and the first sample's answer */
    int32_t n_whole;
    bool is_sent;
} lab_request;

/* Number of tokens after which a sample's steps are alike: by then its pages are copied
 * and memory for the next is allocated. */
#define LAB_GOING 3

typedef struct lab_result {
    int64_t n_prompt, n_output; /* tokens; the prompt counts once per sample */
    /* prompt tokens that were computed instead of found in the cache, and tokens that
     * preempted sequences recomputed */
    int64_t n_prompt_computed;
    int64_t n_cached;     /* prompt tokens found in the cache */
    int64_t n_pages_most; /* most pages held at once */
    int64_t n_pages_kept; /* pages cached at the end */
    int64_t n_preemptions, n_steps;
    /* from the first request sent to the last token: by figures_time_us, and the process's
     * own processor time */
    double seconds, cpu_seconds;
    /* means by the engine's clock: from sending to the first token; between tokens */
    double first_ms, token_ms;
    /* tokens per second after each answer's first one, from the earliest of these to the
     * last end. If all answers begin in one step, its product with token_ms / 1000 is
     * their number */
    double decode_speed;
    uint64_t digest; /* digest of all answers */
    /* the engine's times when the last sample had LAB_GOING tokens; zeros if some sample
     * had fewer */
    engine_profile going;
} lab_result;

/* Checks that o's model supports sequences of n_tokens. QUIRE_INVALID: it does not. */
quire_err lab_check_length(const quire_options *o, int64_t n_tokens, quire_error *err);

/* Opens model and engine. o->n_pages is required, and a draft model is refused. max_len:
 * the longest sequence. */
quire_err lab_open(const quire_options *o, engine_ablations off, int32_t max_len, lab *out, quire_error *err);
void lab_close(lab *l);

/* Runs requests[0..n) on a new lab, at most at_once at a time, in order among those that
 * may start; the first of them start together. Reads all tokens. *out has the lab's
 * counters. *err says which request failed. */
quire_err lab_run(lab *l, lab_request *requests, int32_t n, int32_t at_once, lab_result *out,
                  quire_error *err);
/* Frees what lab_run left in requests. */
void lab_forget(lab_request *requests, int32_t n);

/* The digest of one answer. */
uint64_t lab_digest(const int32_t *tokens, int32_t n);

/* Writes a line for people to out, of n bytes: model, numeric configuration, machine.
 * Errors as in lab_open. */
quire_err lab_describe(const quire_options *o, char *out, size_t n, quire_error *err);

/* One way to run: options and requests, and the fastest run so far. */
typedef struct variant {
    quire_options options;
    engine_ablations off;
    lab_request *requests;
    int32_t n, at_once, max_len;
    lab_result best;
    int64_t peak_bytes;                /* weights, buffers, pages */
    int32_t n_done;                    /* runs done */
    lab_result runs[FIGURES_MAX_RUNS]; /* [n_done] */
} variant;

/* Runs each variant n_runs times, alternating. QUIRE_INTERNAL: counts differ between
 * runs, unless `counts_vary` (preemption in a small pool depends on time). */
quire_err variants_run(variant *t, int32_t n, int32_t n_runs, bool counts_vary, quire_error *err);

/* Makes n distinct prompts of lengths[i] tokens; returns their tokens, allocated with
 * mem_new; NULL: out of memory. Sets tokens, n_tokens, after (-1) and n_output of
 * requests. */
int32_t *variant_prompts(const int32_t *lengths, int32_t n, int32_t n_output, lab_request *requests);

/* Tokens of all sequences in pages at the end, without the answers' last tokens. */
int64_t variant_live_tokens(const lab_request *requests, int32_t n);
/* The run of median speed, after sorting t's runs; *spread: the largest distance of
 * another run's speed from it. */
const lab_result *variant_median(variant *t, double *spread);
/* Output tokens per second. */
double variant_speed(const lab_result *r);

/* Workloads by name: which requests follow which, and which tokens they share. Lengths
 * are typical of the task; tokens are drawn, the same for the same text, so that what can
 * be shared is exact. The output is only counted. */

typedef struct workload {
    const char *name, *line;
    lab_request *requests;
    int32_t n, max_seqs; /* max_seqs run at once; all that may start are sent at once */
    int32_t max_rows;    /* rows per step */
    int32_t max_len;     /* tokens of the longest sequence */
    int32_t *tokens;     /* tokens to which requests point */
    size_t n_tokens;
    /* tokens of all prompts, with the texts that they follow; part of them that is in no
     * earlier prompt or answer */
    int64_t n_prompt, n_new;
} workload;

#define WORKLOAD_NAMES "chatbot, mmlu5, gsm8k, react, json, long, chat, agents or unique"

/* QUIRE_INVALID: err lists the workloads. Free *out with workload_free. */
quire_err workload_make(const char *name, int32_t n_vocab, workload *out, quire_error *err);
void workload_free(workload *w);
/* The i-th name; NULL after the last. */
const char *workload_name(int32_t i);

#endif
