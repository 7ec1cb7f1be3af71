/* A server that answers a trace without a model: the engine's scheduler (step_plan) and
 * KV cache carry the requests from step to step as src/engine/step.c does, and a cost
 * model (lab/sim/cost.h) gives the time of each step. Nothing else is assumed, so the
 * result is a prediction: throughput, times to first token, requests at once, memory in
 * use.
 *
 * For comparison there are two baselines: contiguous keys and values, reserved at
 * admission (first fit in the same memory; otherwise the same planner), and static
 * batches padded on the left, which use no planner.
 *
 * Simulated time is a double of microseconds. Answers have the trace's lengths. Tokens of
 * answers that the trace does not identify count as new text. */
#ifndef LAB_SIM_SERVING_H
#define LAB_SIM_SERVING_H

#include "kv/index.h"
#include "lab/sim/cost.h"
#include "lab/sim/reservation.h"
#include "lab/sim/trace_read.h"
#include "sched/scheduler.h"
#include "sched/step_cost.h"

typedef enum batching {
    /* a batch starts when the previous one has ended; its answers are delivered when its
     * longest is done */
    BATCH_STATIC,
    BATCH_ITERATION, /* the planner fills every step anew; memory depends on the reservation */
    BATCH_N
} batching;

/* A static batch: requests first .. first + n of the trace, except refused ones. */
typedef struct serving_batch {
    int32_t first, n, n_taken;
    int32_t prompt, output; /* the longest of the batch */
    int64_t reserved;       /* tokens reserved */
} serving_batch;

/* Executes steps for real; the simulated clock then advances by the time they took. A
 * failing call ends the run. */
typedef struct serving_execution {
    void *context;
    /* Called before a step is planned. */
    void (*begin)(void *context);
    /* Moves a piece's first n_tokens from token `from` of the memory to token `to`; if
     * the two overlap, `to` is lower. */
    quire_err (*move)(void *context, int64_t from, int64_t to, int32_t n_tokens);
    /* Executes the step that s has planned. pieces[i]: first token, in the memory, of the
     * piece of item i; NULL: items have pages. *us: time since its begin. */
    quire_err (*step)(void *context, const scheduler *s, const int64_t *pieces, double *us);
    /* Executes step `made` of a static batch: its prompts, or one more token of each. */
    quire_err (*batch_step)(void *context, const serving_batch *b, int32_t made, double *us);
} serving_execution;

typedef enum serving_cache { SERVING_CACHE_NONE, SERVING_CACHE_PAGE, SERVING_CACHE_TOKEN } serving_cache;

enum { SERVING_MAX_DRAFTS = 32 };

typedef struct serving_options {
    const cost_model *cost;
    batching batching;
    /* RESERVE_GROWING: every step moves each sequence's keys and values to a piece one
     * token longer. With piece_tokens, a full piece is moved to the first gap that holds
     * it; if there is none, the newest sequence is preempted until another has ended */
    reservation reservation;
    serving_cache cache; /* with RESERVE_PAGED only */
    kv_policy eviction;
    int64_t kv_tokens; /* memory for keys and values, in tokens */
    /* static batches: attention reads no padding; false: decodes read as if all prompts
     * were as long as the longest */
    bool pads_unread;
    int32_t piece_tokens; /* alignment of pieces in tokens; 0: none */
    /* max_model_len: what RESERVE_MAX reserves, and the longest sequence accepted */
    int32_t page_tokens, max_model_len;
    int32_t max_rows, max_chunk, max_seqs;
    int64_t step_target_us; /* 0: none */
    /* with RESERVE_PAGED only: */
    int64_t swap_tokens;  /* host memory for preempted requests; 0: they are recomputed */
    preempt_mode preempt; /* swap or recompute, if there is host memory; auto: whichever costs less */
    int32_t n_drafts;     /* draft tokens per step of each decoding request; 0: none */
    /* [n_drafts] probability that a draft token is right if all before it are */
    double acceptance[SERVING_MAX_DRAFTS];
    double draft_us; /* time to make a step's drafts */
    double speed;    /* the trace's clock runs this many times as fast */
    bool checks;     /* check every invariant after every step; slow, for tests */
    /* called when a step that computes something was planned; or NULL */
    void (*on_plan)(void *context, const scheduler *s);
    void *context;
    const serving_execution *execution; /* NULL: the cost model gives the time of a step */
} serving_options;

/* Times in microseconds of answered requests. */
typedef struct serving_times {
    double *first;     /* from arrival to the first token */
    double *gap;       /* mean time between tokens; 0 for answers of one token */
    double *per_token; /* time from arrival to the end divided by the answer's tokens: "normalised latency" */
    int32_t n;
} serving_times;

typedef struct serving_result {
    serving_times times;
    int32_t n_requests, n_refused; /* refused: longer than max_model_len or than the memory */
    /* totals of answered requests; hit: found in the prefix cache at first admission */
    int64_t prompt_tokens, output_tokens, hit_tokens;
    int64_t n_steps, n_rows, n_preemptions, n_copied; /* copied: tokens whose keys and values moved */
    /* swapped: tokens whose keys and values went to host memory or came back */
    int64_t n_swapped, n_drafted, n_accepted;
    /* sums over steps of requests running, tokens they hold, and tokens they have room
     * for. Dead rows of a static batch hold none */
    int64_t step_running, step_live, step_reserved;
    step_work work; /* total of all steps, as counted by step_work */
    /* Number of steps with cost_knot(k) rows. A number of rows between two knots counts
     * for both in parts, so that sums of linear functions are exact. */
    double steps_at[COST_N_KNOTS];
    double span_us; /* from the first arrival to the last answer */
    double busy_us; /* part of span_us in steps */
    /* sums over steps of time x requests running, tokens they hold, and tokens they have
     * room for */
    double running_us, live_us, reserved_us;
    int32_t most_running;
} serving_result;

/* Serves t. O(steps x running + tokens). QUIRE_NO_MEMORY; QUIRE_INVALID: an option is out
 * of range, or nothing of the trace fits; QUIRE_INTERNAL: the planner makes no progress.
 * Free *out with serving_result_deinit; on failure it is empty. */
quire_err serving_run(const trace *t, const serving_options *o, serving_result *out, quire_error *err);
/* An empty result with room for the times of n_requests. NO_MEMORY: serving_result_deinit
 * frees the rest. */
quire_err serving_result_init(serving_result *r, int32_t n_requests);
void serving_result_deinit(serving_result *r);

/* ---- for callers that really serve a trace ---- */
/* When request i arrives on the simulated clock, which starts with the first arrival. */
double serving_arrival(const trace *t, const serving_options *o, int32_t i);
/* An answer's length: at least 1. */
int32_t serving_output(const trace_request *r);
/* Records that request i was answered. */
void serving_note(serving_result *r, const trace_request *q, double arrival, double first, double end);
/* Adds a step to the sums: requests running, tokens they hold, tokens they have room for,
 * and its time. */
void serving_count_step(serving_result *r, int32_t n_running, int64_t live, int64_t reserved, double us);
/* Adds a step's work to the result's. */
void serving_count_work(serving_result *r, const step_work *w);

#endif
