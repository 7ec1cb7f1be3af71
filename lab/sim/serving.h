/* A server that answers a trace, without a model: the engine's scheduler (step_plan) and
 * KV cache carry the requests from step to step as src/engine/step.c does, and a cost
 * model (lab/sim/cost.h) says how long each step takes. Nothing else is assumed, so what
 * comes out is a prediction: throughput, times to first token, requests at once, memory
 * in use.
 *
 * Two kinds of baselines beside it, to compare with: keys and values in one piece, of a
 * size reserved at admission (first fit into the same memory; the same planner
 * otherwise), and static batches padded on the left, which use no planner.
 *
 * Simulated time is a double of microseconds. Answers have the trace's lengths. What the
 * trace does not say about answers counts as new text. */
#ifndef LAB_SIM_SERVING_H
#define LAB_SIM_SERVING_H

#include "kv/index.h"
#include "lab/sim/cost.h"
#include "lab/sim/reservation.h"
#include "lab/sim/trace_read.h"
#include "sched/scheduler.h"
#include "sched/step_cost.h"

typedef enum batching {
    /* a batch starts when the one before has ended, and its answers are given when its
     * longest is done */
    BATCH_STATIC,
    BATCH_ITERATION, /* the planner fills every step anew; memory as the reservation says */
    BATCH_N
} batching;

/* A static batch: requests first .. first + n of the trace, except for the refused among
 * them. */
typedef struct serving_batch {
    int32_t first, n, n_taken;
    int32_t prompt, output; /* the longest */
    int64_t reserved;       /* tokens */
} serving_batch;

/* Computes steps for real: the simulated clock then runs by what they took. Calls that
 * fail end the run. */
typedef struct serving_execution {
    void *context;
    /* A step begins: before anything is planned. */
    void (*begin)(void *context);
    /* A piece's first n_tokens move from token `from` of the memory to token `to`; where
     * the two overlap, `to` is the lower. */
    quire_err (*move)(void *context, int64_t from, int64_t to, int32_t n_tokens);
    /* The step that s has planned. pieces[i]: the first token of the memory that the
     * piece of its item i has; NULL: items have pages. *us: what it took since it
     * began. */
    quire_err (*step)(void *context, const scheduler *s, const int64_t *pieces, double *us);
    /* Step `made` of a static batch: its prompts, or one more token of each. */
    quire_err (*batch_step)(void *context, const serving_batch *b, int32_t made, double *us);
} serving_execution;

typedef enum serving_cache { SERVING_CACHE_NONE, SERVING_CACHE_PAGE, SERVING_CACHE_TOKEN } serving_cache;

enum { SERVING_MAX_DRAFTS = 32 };

typedef struct serving_options {
    const cost_model *cost;
    batching batching;
    /* RESERVE_GROWING: every step moves each sequence's keys and values to a piece that
     * is one token longer; with piece_tokens a piece is moved, to the first gap that
     * holds it, when it is full, and the newest is preempted where there is none, until
     * another ended */
    reservation reservation;
    serving_cache cache; /* with RESERVE_PAGED only */
    kv_policy eviction;
    int64_t kv_tokens; /* memory for keys and values, in tokens */
    /* static: attention reads no padding; else decodes read as if all prompts were as
     * long as the longest */
    bool pads_unread;
    int32_t piece_tokens; /* pieces begin at, and take, multiples of so many tokens; 0: any number */
    /* max_model_len: what RESERVE_MAX gives each, and the longest that is taken */
    int32_t page_tokens, max_model_len;
    int32_t max_rows, max_chunk, max_seqs;
    int64_t step_target_us; /* 0: none */
    /* With RESERVE_PAGED only: */
    int64_t swap_tokens;  /* host memory for preempted requests; 0: what they had is computed again */
    preempt_mode preempt; /* which of the two where there is host memory; auto: what costs less */
    int32_t n_drafts;     /* guesses that follow each request's next token while it decodes; 0: none */
    /* [n_drafts] the probability that a guess is right if all before it are */
    double acceptance[SERVING_MAX_DRAFTS];
    double draft_us; /* time to make a step's guesses */
    double speed;    /* the trace's clock runs that many times as fast */
    bool checks;     /* prove every invariant after every step; slow, for tests */
    /* NULL, or called when a step that computes something was planned */
    void (*on_plan)(void *context, const scheduler *s);
    void *context;
    const serving_execution *execution; /* NULL: the cost model says what a step takes */
} serving_options;

/* Times in microseconds, of requests that were answered. */
typedef struct serving_times {
    double *first;     /* from arrival to the first token */
    double *gap;       /* mean time between tokens; 0 for answers of one */
    double *per_token; /* from arrival to the end, by the answer's tokens: "normalised latency" */
    int32_t n;
} serving_times;

typedef struct serving_result {
    serving_times times;
    int32_t n_requests, n_refused; /* refused: longer than max_model_len or than the memory */
    /* of answered requests; hit: found in the prefix cache at first admission */
    int64_t prompt_tokens, output_tokens, hit_tokens;
    int64_t n_steps, n_rows, n_preemptions, n_copied; /* copied: tokens whose keys and values moved */
    /* swapped: tokens whose keys and values went to host memory or came back */
    int64_t n_swapped, n_drafted, n_accepted;
    /* Sums over steps, counted: requests running, tokens they hold, tokens they have room
     * for. With a static batch dead rows hold none */
    int64_t step_running, step_live, step_reserved;
    step_work work; /* of all steps together, as step_work counts it */
    /* How many steps had cost_knot(k) rows; one of a number between two knots counts to
     * both, in parts, so that what is linear between them sums up the same. */
    double steps_at[COST_N_KNOTS];
    double span_us; /* from the first arrival to the last answer */
    double busy_us; /* of it, in steps */
    /* sums over steps of time x requests running, tokens they hold, tokens they have room
     * for */
    double running_us, live_us, reserved_us;
    int32_t most_running;
} serving_result;

/* O(steps x running + tokens). QUIRE_NO_MEMORY, QUIRE_INVALID for options out of range or
 * a trace of which nothing fits; QUIRE_INTERNAL when the planner stands still.
 * serving_result_deinit frees what *out got, which is nothing after a failure. */
quire_err serving_run(const trace *t, const serving_options *o, serving_result *out, quire_error *err);
/* An empty result with room for the times of n_requests. NO_MEMORY: serving_result_deinit
 * frees what there is. */
quire_err serving_result_init(serving_result *r, int32_t n_requests);
void serving_result_deinit(serving_result *r);

/* ---- for those who really serve a trace ---- */
/* When request i arrives on the simulated clock, which starts with the first. */
double serving_arrival(const trace *t, const serving_options *o, int32_t i);
/* An answer's length: at least 1. */
int32_t serving_output(const trace_request *r);
/* Request i was answered. */
void serving_note(serving_result *r, const trace_request *q, double arrival, double first, double end);
/* Adds a step's work to the result's. */
void serving_count_work(serving_result *r, const step_work *w);

#endif
