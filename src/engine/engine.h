/* The engine runs sequences in steps on one thread, by the scheduler's plan: token ids
 * in, token ids out. It never sees text.
 *
 * Requests arrive through one in-ring; any thread may submit. Tokens leave by the output
 * table of the reader that the request names (output.h). A sequence's tokens lie in its
 * own array, which has its full length from the start; the output table only holds how
 * far it has grown. The table has an index for every request, and a request keeps its
 * output index until its end is read. So nothing overflows and the engine never waits for
 * a reader. One thread owns every sequence, page and device buffer. */
#ifndef ENGINE_ENGINE_H
#define ENGINE_ENGINE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "backend/backend.h"
#include "base/ring.h"
#include "core/adapter_ref.h"
#include "core/params.h"
#include "engine/ablations.h"
#include "kv/evict.h"
#include "kv/tier.h"
#include "model/model.h"
#include "quire_stats.h"
#include "sample/constraint.h"
#include "sample/logprobs.h"
#include "sched/admission_policy.h"
#include "sched/step_cost.h"
#include "spec/draft.h"

typedef struct engine engine;
typedef struct engine_team engine_team; /* team.h */
typedef struct engine_out engine_out;
typedef struct sequence engine_fork;
typedef struct engine_park engine_park; /* park.c */

/* What others may reuse of a finished or running sequence. */
typedef enum prefix_cache {
    PREFIX_CACHE_NONE,
    PREFIX_CACHE_PAGE /* whole pages only */,
    PREFIX_CACHE_TOKEN
} prefix_cache;

/* A public prefix: tokens with which prompts of all tenants begin. Its whole pages are
 * shared by all tenants. */
typedef struct engine_prefix {
    const int32_t *tokens;
    int32_t n_tokens; /* at least a page */
} engine_prefix;

/* When pages are written to tiers that outlive the process. */
typedef enum tier_write {
    TIER_WRITE_EVICT /* when they leave the pool */,
    TIER_WRITE_THROUGH /* soon after they were computed */
} tier_write;

/* Where pages go that leave the pool (kv/tier.h). All zero: no tiers. */
typedef struct engine_tiers {
    const char *version; /* names the model and its numeric configuration; read by engine_open only */
    int64_t host_bytes;
    const char *file_path; /* a directory, or NULL */
    int64_t file_bytes;
    const char *redis_url; /* or NULL */
    int64_t redis_bytes;
    tier_write write;
    int64_t wait_us; /* how long a request waits for pages from tiers before it computes their tokens */
} engine_tiers;

typedef struct engine_options {
    prefix_cache prefix_cache;
    /* while a sequence decodes, prefills take only so many rows that a step stays within
     * this time; 0: no limit */
    int64_t step_target_us;
    admission_policy schedule; /* order of admission */
    double schedule_lambda;    /* ADMISSION_PREFIX: cached tokens that a second of waiting is worth */
    kv_policy eviction;        /* order of eviction */
    /* a snapshot of recurrent states every so many tokens (0: none in between); most
     * bytes of all snapshots (0: half of the pool, or all of it if no group has
     * tokens) */
    int32_t snapshot_tokens;
    int64_t snapshot_bytes;
    const engine_prefix *prefixes; /* [n_prefixes], copied */
    int32_t n_prefixes;
    /* file that records each allocation of pages (kv/audit.h); NULL: none */
    const char *audit_path;
    int32_t page_tokens, n_pages, max_model_len; /* a sequence ends earlier if the pool holds less */
    /* memory for the pages, shared with the draft model and with the team's other engines
     * (kv/budget.h); it outlives the engine. NULL: the engine has memory of its own */
    kv_budget *budget;
    /* beside other engines: number of guaranteed pages, enough for the longest sequence,
     * and bytes of the budget that weights and buffers take. 0: alone in the budget */
    int32_t floor_pages;
    int64_t fixed_bytes;
    int32_t max_batched_tokens, max_seqs, prefill_chunk;
    /* most different adapters that run at once (adapter_slots.h); 0: requests have
     * none */
    int32_t max_adapters;
    /* no step runs before engine_release: requests submitted until then start together */
    bool starts_paused;
    /* team whose thread runs the steps; a reference is taken. NULL: a team of its own */
    engine_team *team;
    /* the caller runs the steps through state.h, for measurements on a virtual clock */
    bool no_thread;
    bool no_chunked_prefill; /* a prompt is computed in one step: max_batched_tokens must hold the longest */
    bool no_cascade;         /* attention reads a shared prefix for each sequence separately */
    engine_ablations ablations;
    engine_tiers tiers;
    draft_options draft;
    int64_t swap_bytes;   /* host memory for preempted sequences; 0: they are computed again */
    preempt_mode preempt; /* when preempted sequences are swapped out, if there is room */
    /* most bytes of pages that parks hold, for all tenants and for one; 0: half of the
     * pool, and no separate limit */
    int64_t parked_bytes, parked_tenant_bytes;
    /* requests that are waiting, running, or ended and not yet read; more are refused
     * with QUIRE_BUSY */
    int32_t max_requests;
} engine_options;

/* The most rows that one sequence has in a step with these options, drafts included; the
 * most pages of a sequence follow from it (kv/most_pages.h). Reads max_batched_tokens,
 * prefill_chunk and no_chunked_prefill. */
int32_t engine_most_rows(const engine_options *o, const model_desc *d);

typedef enum finish_reason {
    FINISH_NONE,
    FINISH_STOP,
    FINISH_LENGTH,
    FINISH_CANCELLED,
    FINISH_ERROR
} finish_reason;

/* A request's id: an entry of the engine's table, and a generation, which counts the uses
 * of that entry. */
typedef struct request_id {
    uint32_t index, generation;
} request_id;

/* An event: one token, an end, or progress (token -1). The end comes after the last
 * token, once; progress before the first token, if the request wants it. */
typedef struct engine_event {
    void *user; /* as given at submit */
    request_id id;
    int32_t token;
    int32_t position;      /* of the token; at the end: number of tokens in the sequence */
    finish_reason finish;  /* FINISH_NONE for a token */
    quire_err error;       /* at FINISH_ERROR */
    int32_t retry_after_s; /* with QUIRE_BUSY: after how long the same request might be accepted */
    /* A token's log-probabilities, if the request wants them, else NULL: logprobs_width
     * of them, the token's own first, then the likeliest. prompt_logprobs has
     * prompt_logprobs_width for each prompt token from prompt_logprobs_start on; with an
     * end at FINISH_STOP and FINISH_LENGTH only. Valid until the next pop. */
    const token_logprob *logprobs, *prompt_logprobs;
    /* FINISH_STOP: by one of the model's eos tokens rather than a stop token of the
     * request */
    bool stopped_by_eos;
    float *row; /* [n_row] at FINISH_STOP of a pooled request: the result, mem_new'd; the reader owns it */
    int32_t n_row;
    /* at the end, if the request wants it (explain.h): the report, mem_new'd; the reader
     * owns it */
    struct explain *explain;
    /* at the end: how many requests of this engine ended before this one; ends need not
     * be read in the order in which they happened */
    uint64_t n_ended_before;
    /* at the end of a beam search's result: the score by which it is ranked, and the sum
     * of its tokens' log-probabilities */
    double beam_score, beam_sum;
    /* tokens of the prediction that were drafted and accepted, or rejected, up to this
     * event */
    prediction_counts predicted;
    int32_t n_cached;       /* prompt tokens found in the prefix cache when the request was first admitted */
    int64_t queue_us;       /* time from submission to that admission */
    int64_t admitted_us;    /* time of that admission (clock_us); 0: it was never admitted */
    int64_t first_token_us; /* 0: not yet */
    int64_t ended_us;       /* this and the next two members: only with the end */
    int32_t n_prefilled;    /* prompt tokens that were computed for this request */
    int32_t n_preempted;    /* how often it was preempted */
    /* progress: given tokens that are computed or were cached; it grows from event to
     * event up to all of them; otherwise 0 */
    int32_t n_processed;
    int64_t processed_us; /* time from admission until that many were processed */
} engine_event;

#define ENGINE_NAMESPACE_BYTES 240

/* A further condition that ends a beam: whether tokens[0..n), of which n_prompt are the
 * prompt, end with the last one. Called on the engine thread: it allocates nothing, never
 * blocks, and returns the same for the same tokens. */
typedef struct engine_ending {
    /* NULL: no condition */
    bool (*is_over)(void *context, const int32_t *tokens, int32_t n_prompt, int32_t n);
    void *context; /* alive until the last end event */
} engine_ending;

/* Work on a request's rule that does not fit into a step. */
typedef struct engine_work {
    void (*run)(struct engine_work *w);
    uint64_t tenant;
    const atomic_bool *is_off; /* set once the result is no longer needed; run must be called all the same */
    void *of_outside[12];      /* for the thread that runs it */
} engine_work;

/* Threads that can run such work. */
typedef struct engine_outside {
    /* Makes another thread call run(w) soon. It never waits and allocates nothing; w
     * must stay valid until run is called. NULL: no such threads, a step does all of
     * its work */
    void (*add)(void *context, engine_work *w);
    void *context;   /* outlives the engine thread */
    uint64_t tenant; /* the tenant whose work it is */
} engine_outside;

#define ENGINE_MARKS 8

typedef struct engine_request {
    int32_t *tokens; /* the prompt, at least one token; mem_new'd; the engine owns it after submit */
    int32_t n_tokens;
    sampling_params sampling; /* has_seed is true: api gives a seed to requests without one */
    /* log-probabilities to report with each token: its own, those of the likeliest, and
     * those of `sampling`'s scored ids, width in all; 0: none */
    int32_t logprobs_width, prompt_logprobs_width;
    /* first prompt token with log-probabilities; tokens up to two positions before it may
     * come from the cache. 0 means 1, since the first token has none */
    int32_t prompt_logprobs_start;
    int32_t priority; /* ADMISSION_PRIORITY: lower numbers are admitted first */
    /* the first token must come within this time after submit, otherwise the request ends
     * with QUIRE_BUSY; 0: no deadline */
    int64_t deadline_us;
    /* The prompt's rows are pooled into one, which its end event carries, and it gets no
     * token: sampling, beams and logits do not apply */
    pooling_params pooling;
    /* [n_tokens] of a pooled prompt: each token's type; copied. NULL: all are of type
     * 0 */
    const int32_t *types;
    beam_params beams;     /* width 0: tokens are sampled */
    engine_ending ending;  /* a further condition that ends beams, from min_tokens on */
    uint32_t sample_index; /* index of the sample in the request: part of the noise's key */
    /* which tokens may come after the prompt, or NULL; held as long as the request runs.
     * Given tokens of a branch must obey it */
    constraint *constraint;
    /* the constraint's state after `tokens` (engine_constraint_state), or NULL: submit
     * computes it */
    const void *constraint_state;
    engine_outside outside; /* for its constraint */
    /* the answer that the client expects, used for drafts, or NULL; held as long as the
     * request runs. Its ids are in the vocabulary; not with beams */
    prediction *prediction;
    /* [n_tokens, n_vocab] for prompt logits, or NULL; the caller's, alive until the end
     * event */
    float *logits_out;
    /* rows from this position on are written to logits_out; earlier tokens may come from
     * the cache */
    int32_t logits_first;
    /* the request's own attention mask and score change, or NULL; held as long as it
     * runs. Its namespace must be different for different ones */
    attn_mods *mods;
    int32_t mods_b; /* the value of b in mods */
    /* no other request has these mods: their cost is measured apart from that of steps */
    bool mods_are_own;
    /* adapter of its rows, or NULL; held until the request has ended. The draft model
     * ignores it */
    adapter_ref *adapter;
    /* rows before this position use the base weights (activated LoRA), and only pages up
     * to there are shared. 0: all rows have the adapter, and the namespace must be the
     * adapter's own */
    int32_t adapter_from;
    /* names the tenant: prefixes are shared within a namespace only. n_namespace bytes,
     * copied */
    const void *namespace;
    size_t n_namespace; /* at most ENGINE_NAMESPACE_BYTES */
    /* `retention`, which is valid, applies to its pages in the prefix cache
     * (kv/evict.h) */
    bool retains;
    kv_retention retention;
    /* lengths of prefixes that other prompts may share; a model with recurrent states
     * also keeps its states after them */
    int32_t marks[ENGINE_MARKS], n_marks;
    bool explain;        /* the end event carries a report */
    bool shows_progress; /* for the first sample only; not for a branch that replaces its parent */
    /* A branch (branch.h). Its first fork_position tokens are those of the fork parent,
     * whose pages it shares. The first n_prompt of n_tokens are a prompt; the others
     * count as generated before, for max_tokens, min_tokens and penalties. A branch that
     * replaces its fork parent takes over: the fork parent ends as cancelled, and tokens
     * from fork_position on are events of the branch, the given ones without
     * log-probabilities. NULL and 0: no branch. */
    engine_fork *fork_from;
    int32_t fork_position, n_prompt;
    bool fork_replaces; /* only with a single sample */
    /* [samples] where each one parks when it ends, NULL: nowhere; or NULL. Held until
     * then. Not with beams or pooling */
    engine_park *const *parks;
    /* nothing is sampled: the request ends (FINISH_LENGTH) when all of `tokens` are
     * computed, or at once if they are cached. Its park keeps the logits after them if
     * they were computed, and a request with exactly these tokens samples from those.
     * Only with a single sample, without logits, beams or pooling */
    bool no_tokens;
    /* the program of which it is a step (0: none), and its depth in the program's tree
     * (admission_policy.h) */
    uint64_t tree;
    int32_t depth;
    bool has_waited; /* it may use places saved by engine_out_await_places */
    engine_out *out;
    void *user;
} engine_request;

/* Starts an engine over a model and a backend. The backend's step_open and
 * kv_open were called with this layout and these limits (max_rows = max_batched_tokens,
 * max_out = draft_max_out). The caller owns all three and closes them after the engine;
 * from now on the engine thread runs the backend. */
quire_err engine_open(model *m, backend *b, const kv_layout *layout, const engine_options *o, engine **out,
                      quire_error *err);
/* Starts the steps of an engine that was opened with starts_paused. Any thread. */
void engine_release(engine *e);
/* Drops all pages that are cached and that no request holds, before the next step is
 * planned: requests submitted from now on find none of them. The memory of free pages
 * goes back to the system. With tiers the pages move there, as always when they leave the
 * pool. Any thread. */
void engine_drop_cache(engine *e);
/* Does the same for the pages of one tenant: namespaces whose names are these n bytes, or
 * begin with them and a 0 byte. Their memory is kept. Any thread. QUIRE_NO_MEMORY. */
quire_err engine_drop_tenant(engine *e, const char *tenant, size_t n);
/* The team whose thread runs e's steps; borrowed, as long as e is open. */
engine_team *engine_team_of(const engine *e);
/* Ends all steps; unfinished requests end with FINISH_CANCELLED. From now on no work is
 * given to a request's `outside`; work given before must have run before engine_close.
 * NULL does nothing. */
void engine_stop(engine *e);
/* Ends all steps, and frees the engine. Readers must have popped their events and closed
 * their output tables. */
void engine_close(engine *e);

/* Opens an output table for one reader. The engine wakes `reader` once a step in which
 * one of its requests has grown. */
quire_err engine_out_open(engine *e, wake *reader, engine_out **out);
/* Closes an output table. Every request that names it must have ended, and its end must
 * have been popped. */
void engine_out_close(engine_out *o);
/* Has the reader of o wait until n more sequences (1 to max_requests) have places; 0:
 * ends the wait. True: n places are free now. Otherwise the reader is woken once they
 * are. While it is first among the waiting readers, every other place that becomes free
 * is saved for it, and others may take the rest. Only requests of o with has_waited may
 * use saved places. The wait lasts until such requests have taken n places, or this is
 * called again. The reader's thread. */
bool engine_out_await_places(engine_out *o, int32_t n);
/* Pops the next event. False: there is none. The reader's thread. */
bool engine_out_pop(engine_out *o, engine_event *event);

/* Submits a request. QUIRE_TOO_LARGE when it can never fit (the prompt plus one token, or
 * a pooled prompt alone, exceeds the length limit or the pool, or a step in a model whose
 * rows see later ones), QUIRE_UNSUPPORTED when it needs tokens from a model that has rows
 * only, QUIRE_BAD_REQUEST also when its constraint forbids a given token of a branch,
 * QUIRE_BUSY when the engine is full; on failure r->tokens stays the caller's. Any
 * thread. */
quire_err engine_submit(engine *e, const engine_request *r, request_id *id, quire_error *err);
/* Computes the state of r's constraint after r's tokens, for r->constraint_state: the
 * given tokens of a branch are appended one by one, so the time grows with their
 * number. r needs its tokens, n_prompt, sampling and constraint. state: [state_bytes].
 * QUIRE_BAD_REQUEST when a token is forbidden, and errors of the constraint. Any
 * thread. */
quire_err engine_constraint_state(const engine *e, const engine_request *r, void *state, quire_error *err);
/* Submits several sequences of one request: with r->beams a beam search, else n samples.
 *
 * With r->beams: returns the n (at most its width) best results of a search, the best
 * first. Their tokens come all at once when the search is over, an empty result where it
 * found fewer. Cancelling one of them ends the search. QUIRE_TOO_LARGE also when its
 * beams could outgrow the pool; where r names no max_tokens, they get as many as fit.
 *
 * Else n samples of one prompt, as n requests with consecutive values of sample_index,
 * from r's on, and with users of their own. The prompt is computed once and its pages are
 * shared. All are submitted or none. Errors as above, and QUIRE_INVALID for options of
 * one sample only (logits and log-probabilities of the prompt) if n > 1. */
quire_err engine_submit_samples(engine *e, const engine_request *r, int32_t n, void *const *users,
                                request_id *ids, quire_error *err);
/* Takes a reference to a request, so that it can be a fork parent even after it ended.
 * Call it on the reader's thread before the end is popped; QUIRE_NOT_FOUND after that. */
quire_err engine_fork_acquire(engine *e, request_id id, engine_fork **out);
/* Drops the reference. Any thread, even after the engine is closed. NULL does nothing. */
void engine_fork_release(engine_fork *fork_from);
/* Ends a request; unknown or finished ids are ignored. Any thread. */
void engine_cancel(engine *e, request_id id);

/* ---- parks: any thread ---- */
/* Opens an empty park, which its owner closes before the engine. NO_MEMORY. */
quire_err engine_park_open(engine *e, engine_park **out);
/* Closes the owner's handle; the engine thread then empties the park. NULL does
 * nothing. */
void engine_park_close(engine_park *p);
/* References for requests that park there, besides the owner's; may outlive the engine.
 * NULL does nothing. */
engine_park *engine_park_hold(engine_park *p);
void engine_park_drop(engine_park *p);
/* The engine in which p was opened. */
const engine *engine_park_engine(const engine_park *p);
/* What a park holds, how often sequences were parked in it, and how often a limit emptied
 * it or kept a sequence out. */
typedef struct engine_park_info {
    int32_t n_tokens, n_pages;
    int64_t n_parked, n_bounded;
} engine_park_info;
engine_park_info engine_park_look(const engine_park *p);

/* Counters for measurements, besides quire_stats. */
typedef struct engine_profile {
    int64_t steps, n_pages_held_most; /* the most pages of any step so far */
    /* times of steps: before the forward pass; sampling; the rest after it */
    int64_t plan_ns, sample_ns, commit_ns;
} engine_profile;

/* How long the present step has been running; 0 between steps. Any thread. */
int64_t engine_busy_us(const engine *e);

/* The engine's counters as they were after its last step. requests_finished counts by
 * finish_reason - 1. Any thread. */
void engine_stats_read(engine *e, quire_stats *out);
void engine_snapshots_read(engine *e, quire_snapshot_stats *out);
void engine_page_memory_read(engine *e, quire_page_memory *out);
void engine_parked_read(engine *e, quire_parked_stats *out);
void engine_profile_read(engine *e, engine_profile *out);

#endif
