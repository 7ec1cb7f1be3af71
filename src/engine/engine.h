/* The engine: sequences, scheduler and steps on one thread; token ids in, token ids out. It never sees text.
 *
 * Requests arrive through one in-ring (any thread may submit). Tokens leave by the board of the reader that the request names (out.h): a
 * sequence's tokens stand in its own array, of full length from the start, and the board only says how far it has grown. It has a place for
 * every request, and a request keeps its place until its end was read, so that nothing fills and the engine never waits for a reader. One
 * thread owns every sequence, page and device buffer. */
#ifndef ENGINE_ENGINE_H
#define ENGINE_ENGINE_H

#include <stdbool.h>
#include <stdint.h>

#include "backend/backend.h"
#include "base/ring.h"
#include "base/wake.h"
#include "core/params.h"
#include "engine/draft_types.h"
#include "sample/logprobs.h"
#include "sched/preempt_cost.h"
#include "sched/admission_policy.h"
#include "kv/evict.h"
#include "kv/tier.h"
#include "model/model.h"

typedef struct engine engine;
typedef struct engine_out engine_out;
typedef struct sequence engine_fork;

/* What of a finished or running sequence others may reuse. */
typedef enum prefix_cache { PREFIX_CACHE_NONE, PREFIX_CACHE_PAGE /* whole pages only */, PREFIX_CACHE_TOKEN } prefix_cache;

/* Tokens with which prompts of all tenants begin: whole pages of them are shared by all. */
typedef struct engine_prefix {
    const int32_t *tokens;
    int32_t n_tokens; /* at least a page */
} engine_prefix;

/* When pages go to the tiers that outlive the process. */
typedef enum tier_write {
    TIER_WRITE_EVICT /* when they leave the pool */,
    TIER_WRITE_THROUGH /* soon after they were computed */
} tier_write;

/* Where pages go that leave the pool (kv/tier.h). All zero: nowhere. */
typedef struct engine_tiers {
    const char *version; /* names the model and its numeric configuration; needed while engine_open runs */
    int64_t host_bytes;
    const char *file_path; /* a directory, or NULL */
    int64_t file_bytes;
    const char *redis_url; /* or NULL */
    int64_t redis_bytes;
    tier_write write;
    int64_t wait_us;     /* how long a request waits for its pages before it computes them */
} engine_tiers;

typedef struct engine_options {
    prefix_cache prefix_cache;
    /* while something decodes, prefills take no more rows than keep a step within this; 0: all rows there are */
    int64_t step_target_us;
    admission_policy schedule;          /* who is admitted first */
    double schedule_lambda;         /* ADMISSION_PREFIX: cached tokens that a second of waiting is worth */
    kv_policy eviction;             /* which cached page goes first */
    const engine_prefix *prefixes;  /* [n_prefixes], copied */
    int32_t n_prefixes;
    const char *audit_path;         /* where each allocation of pages is written (audit_file.h); NULL: nowhere */
    int32_t page_tokens, n_pages, max_model_len;
    int32_t max_batched_tokens, max_seqs, prefill_chunk;
    bool starts_paused;        /* no step is taken before engine_release: what is submitted until then starts together */
    bool no_chunked_prefill; /* a prompt is computed in one step or not yet: max_batched_tokens holds the longest */
    bool no_fork_sharing;    /* samples of one prompt are requests of their own; beams have pages of their own as far as there is room */
    bool no_cascade;         /* attention reads a shared prefix for each sequence by itself */
    engine_tiers tiers;
    draft_options draft;
    int64_t swap_bytes;   /* host memory for preempted sequences; 0: they are computed again */
    preempt_mode preempt; /* whether they go there, where there is room */
    int32_t max_requests; /* waiting, running, or ended and not yet read; more are QUIRE_BUSY */
} engine_options;

typedef enum finish_reason { FINISH_NONE, FINISH_STOP, FINISH_LENGTH, FINISH_CANCELLED, FINISH_ERROR } finish_reason;

/* A request's name: which entry of the engine's table, and which use of it. */
typedef struct request_id {
    uint32_t index, generation;
} request_id;

/* One token, or an end (token -1). The end comes after the last token, once. */
typedef struct engine_event {
    void *user;           /* as given at submit */
    request_id id;
    int32_t token;
    int32_t position;     /* of the token in the sequence; at the end: tokens in the sequence */
    finish_reason finish; /* FINISH_NONE for a token */
    quire_err error;      /* at FINISH_ERROR */
    int32_t retry_after_s; /* at QUIRE_BUSY: when the same might be served */
    /* A token's log-probabilities, where the request asked for them, else NULL: logprobs_width of them, its own first, then those
     * of the likeliest. And those of the prompt: prompt_logprobs_width for each token but the first; not with the
     * end. Valid until the next pop. */
    const token_logprob *logprobs, *prompt_logprobs;
    bool stopped_by_eos;  /* FINISH_STOP: by one of the model's eos tokens rather than a stop token of the request */
    struct explain *explain; /* at the end of a request that asked (explain.h): mem_new'd, the reader's from now on */
    /* at the end: how many requests of this engine had ended before this one. Ends are read in another order than they came in */
    uint64_t n_ended_before;
    double beam_score, beam_sum; /* at the end of a beam search's result: by which it was ranked; of its tokens' log-probabilities */
    int32_t n_cached;     /* prompt tokens that were not computed but found in the prefix cache when the request was first admitted */
} engine_event;

#define ENGINE_NAMESPACE_BYTES 192

/* What ends a beam beside its tokens: whether tokens[0..n), n_prompt of them the prompt, are over with the last. Called on the engine's
 * thread: it allocates nothing, waits for nothing, and gives the same answer to the same tokens. */
typedef struct engine_ending {
    bool (*is_over)(void *context, const int32_t *tokens, int32_t n_prompt, int32_t n); /* NULL: nothing does */
    void *context; /* alive until the last end event */
} engine_ending;

typedef struct engine_request {
    int32_t *tokens;       /* the prompt, at least one; mem_new'd, owned by the engine from submit on */
    int32_t n_tokens;
    sampling_params sampling; /* has_seed is true: api gives a seed to requests without one */
    /* log-probabilities to report with each token: its own and width - 1 of the likeliest; 0: none */
    int32_t logprobs_width, prompt_logprobs_width;
    int32_t priority;      /* ADMISSION_PRIORITY: the lower goes first */
    int64_t deadline_us;   /* after which time from now on a first token is of no use; 0: none. What cannot make it ends with QUIRE_BUSY */
    beam_params beams;     /* width 0: tokens are sampled */
    engine_ending ending;  /* of beams, from min_tokens on */
    uint32_t sample_index; /* which sample of the request this is: part of the noise's key */
    float *logits_out;     /* [n_tokens, n_vocab] for prompt logits, or NULL; the caller's, alive until the end event */
    int32_t logits_first;  /* rows from this position on are written to logits_out; earlier tokens may come from the cache */
    const void *namespace;     /* names the tenant: prefixes are shared within a namespace only. n_namespace bytes, copied */
    size_t n_namespace;        /* at most ENGINE_NAMESPACE_BYTES */
    bool retains;          /* its pages in the prefix cache are kept as retention, which is valid, says (kv/evict.h) */
    kv_retention retention;
    bool explain;          /* its end tells how it went */
    /* A branch (branch.h): its first fork_position tokens are those of the fork parent, whose pages it shares; n_prompt of n_tokens were a
     * prompt, the others count as generated before, for max_tokens, min_tokens and penalties. One that replaces its fork parent takes over:
     * the fork parent ends as cancelled, and tokens from fork_position on are events of the branch, those given without log-probabilities.
     * NULL and 0: no branch. */
    engine_fork *fork_from;     /* the caller's */
    int32_t fork_position, n_prompt;
    bool fork_replaces;    /* one sample only */
    engine_out *out;
    void *user;
} engine_request;

/* Starts the engine's thread over a model and a backend whose step_open and kv_open were called with this layout and these limits (max_rows
 * = max_batched_tokens, max_out = draft_max_out). All three stay the caller's and must outlive the engine; from now on the engine's thread
 * runs the backend. */
quire_err engine_open(model *m, backend *b, const kv_layout *layout, const engine_options *o, engine **out, quire_error *err);
/* Lets an engine that was opened with starts_paused begin. Any thread. */
void engine_release(engine *e);
/* Stops the thread; requests that stand end with FINISH_CANCELLED. Readers pop and close their boards before. */
void engine_close(engine *e);

/* A board for one reader, with the wake call that tells it: rung once a step that had something for it. */
quire_err engine_out_open(engine *e, wake *reader, engine_out **out);
/* Every request that names it must have ended, and its end been popped. */
void engine_out_close(engine_out *o);
/* The next event, or false when there is none now. The reader's thread. */
bool engine_out_pop(engine_out *o, engine_event *event);

/* Hands a request over. QUIRE_TOO_LARGE when it can never fit (prompt plus one token over the length limit or the pool), QUIRE_BUSY when
 * the engine is full: r->tokens then stays the caller's. Any thread. */
quire_err engine_submit(engine *e, const engine_request *r, request_id *id, quire_error *err);
/* With r->beams, the n (at most its width) best results of a beam search instead of samples, the best first: their tokens come all at once
 * when the search is over, an empty one where it found fewer. Cancelling one of them ends the search. QUIRE_TOO_LARGE also when its beams
 * could outgrow the pool; where r names no max_tokens, they get as many as fit.
 *
 * Else n samples of one prompt: as n requests that differ in their sample_index, r's and those that follow, and in their users. The prompt
 * is computed once and its pages are shared. All are handed over or none; errors as above, and QUIRE_INVALID for what belongs to one alone
 * (logits and log-probabilities of the prompt) where n > 1. */
quire_err engine_submit_samples(engine *e, const engine_request *r, int32_t n, void *const *users, request_id *ids, quire_error *err);
/* Holds a request so that branches can go on from it, even when it ends meanwhile. The thread of its reader, before that has popped its
 * end: QUIRE_NOT_FOUND after. */
quire_err engine_fork_acquire(engine *e, request_id id, engine_fork **out);
/* Any thread, also after the engine was closed. NULL does nothing. */
void engine_fork_release(engine_fork *fork_from);
/* Ends a request; unknown or finished ids are ignored. Any thread. */
void engine_cancel(engine *e, request_id id);

/* Totals and gauges. Times in microseconds; histograms count by ENGINE_BOUNDS_US, not cumulative. Read from any thread, each value by
 * itself exact. */
#define ENGINE_N_BOUNDS 16
extern const int64_t ENGINE_BOUNDS_US[ENGINE_N_BOUNDS];

typedef struct engine_histogram {
    int64_t buckets[ENGINE_N_BOUNDS], sum_us, count;
} engine_histogram;

typedef struct engine_stats {
    int64_t n_running, n_waiting;
    int64_t n_pages, n_pages_free, n_pages_held, n_pages_cached;
    int64_t n_pages_held_most;                             /* of any step so far */
    int64_t prompt_tokens, generation_tokens, finished[5]; /* by finish_reason */
    int64_t prompt_tokens_queried, prompt_tokens_reused;   /* at first admissions: looked up in the prefix cache, and found there */
    int64_t known_tokens_queried, known_tokens_reused;     /* the same when a preempted sequence comes back */
    int64_t steps, step_rows, step_us, preemptions;
    /* of steps: before the forward pass; choosing tokens; the rest of what follows it */
    int64_t plan_ns, sample_ns, commit_ns;
    int64_t deadlines_refused;                             /* requests that could not have made their deadline */
    int64_t swapped_out, swapped_in;                       /* preempted sequences */
    int64_t swapped_pages, swap_us;                        /* copied either way, and how long that took */
    /* times a sequence's drafts were verified, how many tokens, how many were accepted */
    int64_t drafts, draft_tokens, draft_accepted;
    int64_t draft_accepted_at[DRAFT_MAX];                  /* the same by place in the draft */
    int64_t jump_forward_tokens;                                 /* accepted without being chosen */
    int64_t promoted_tokens;                               /* that came back into the pool from a tier */
    kv_tier_stats tiers[KV_N_TIERS];
    engine_histogram first_token, gap, whole; /* time to first token, between tokens, of whole requests */
} engine_stats;

/* How long the step that now runs has been running; 0 between steps. Any thread. */
int64_t engine_busy_us(const engine *e);

void engine_stats_read(engine *e, engine_stats *out);

#endif
