/* The engine runs sequences in steps, as the scheduler plans them, on one thread. Its
 * input and output are token ids; it never sees text.
 *
 * Any thread may submit a request; it enters through the in-ring. Its tokens reach the
 * reader that it names through that reader's output table (output.h). A sequence's tokens
 * are in its own array, allocated in full length at submission; the output table only
 * says how many there are. The table has an index for every request, and a request keeps
 * its output index until its end is read. So nothing overflows, and the engine never
 * waits for a reader. The engine thread owns every sequence, page and device buffer. */
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

/* What other sequences may reuse of a finished or running sequence. */
typedef enum prefix_cache {
    PREFIX_CACHE_NONE,
    PREFIX_CACHE_PAGE /* whole pages only */,
    PREFIX_CACHE_TOKEN
} prefix_cache;

/* A public prefix: first tokens of prompts, whose whole pages all tenants share. */
typedef struct engine_prefix {
    const int32_t *tokens;
    int32_t n_tokens; /* at least page_tokens */
} engine_prefix;

/* When pages are written to tiers that outlive the process. */
typedef enum tier_write {
    TIER_WRITE_EVICT /* pages are written when they leave the pool */,
    TIER_WRITE_THROUGH /* pages are written soon after they are computed */
} tier_write;

/* The tiers that receive evicted pages (kv/tier.h). All zero: no tiers. */
typedef struct engine_tiers {
    const char *version; /* identifies the model and its numeric configuration; read by engine_open only */
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
    /* target time of a step: while any sequence decodes, prefills are shortened to stay
     * within it; 0: no limit */
    int64_t step_target_us;
    admission_policy schedule; /* order of admission */
    double schedule_lambda;    /* ADMISSION_PREFIX: cached tokens that outweigh a second of waiting */
    kv_policy eviction;        /* policy for evicting cached pages */
    /* interval of snapshots of recurrent states, in tokens (0: no periodic ones); most
     * bytes of all snapshots (0: half of the pool, or all of it if no group has
     * tokens) */
    int32_t snapshot_tokens;
    int64_t snapshot_bytes;
    const engine_prefix *prefixes; /* [n_prefixes] public prefixes, copied */
    int32_t n_prefixes;
    /* file that records each allocation of pages (kv/audit.h); NULL: none */
    const char *audit_path;
    int32_t page_tokens, n_pages, max_model_len; /* max_model_len is lowered to what the pool holds */
    /* memory budget of the pages, shared with the draft model and the team's other
     * engines (kv/budget.h); must outlive the engine. NULL: the engine's pages have
     * memory of their own */
    kv_budget *budget;
    /* if engines share the budget: number of guaranteed pages, enough for the longest
     * sequence, and bytes of the budget that weights and buffers take. Otherwise 0 */
    int32_t floor_pages;
    int64_t fixed_bytes;
    int32_t max_batched_tokens, max_seqs, prefill_chunk;
    /* most adapters in use at once (sched/adapter_slots.h); 0: requests can have none */
    int32_t max_adapters;
    /* no step runs before engine_release: requests submitted until then start together */
    bool starts_paused;
    /* team whose thread runs the steps; a reference is taken. NULL: a team of its own */
    engine_team *team;
    /* no thread is started; the caller runs the steps through state.h */
    bool no_thread;
    bool no_chunked_prefill; /* a prompt is computed in one step: max_batched_tokens must hold the longest */
    bool no_cascade;         /* attention reads a shared prefix for each sequence separately */
    engine_ablations ablations;
    engine_tiers tiers;
    draft_options draft;
    int64_t swap_bytes;   /* host memory for swapped-out sequences; 0: preempted ones are computed again */
    preempt_mode preempt; /* which preempted sequences are swapped out, if there is room */
    /* most bytes of pages that all parks hold (0: half of the pool), and that the parks
     * of one tenant hold (0: no limit of its own) */
    int64_t parked_bytes, parked_tenant_bytes;
    /* most requests that are waiting, running, or ended but not yet read; further ones
     * are refused with QUIRE_BUSY */
    int32_t max_requests;
} engine_options;

/* The most rows of one sequence in a step with these options, drafts included;
 * kv/most_pages.h derives the most pages of a sequence from it. Reads max_batched_tokens,
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

/* An event: one token, the end of a request (once, after its last token), or progress of
 * its prompt (before its first token, if the request asks for it). */
typedef struct engine_event {
    void *user; /* engine_request.user */
    request_id id;
    int32_t token;
    int32_t position;      /* of the token; in an end event: number of tokens in the sequence */
    finish_reason finish;  /* FINISH_NONE in events other than the end */
    quire_err error;       /* the reason of FINISH_ERROR */
    int32_t retry_after_s; /* with QUIRE_BUSY: seconds after which the same request may be accepted */
    /* logprobs: [logprobs_width] the token's own log-probability, then those of the
     * likeliest tokens. prompt_logprobs: [prompt_logprobs_width] for each prompt token
     * from prompt_logprobs_start on, in an end with FINISH_STOP or FINISH_LENGTH. Both
     * NULL unless the request asks for them. Valid until the next pop. */
    const token_logprob *logprobs, *prompt_logprobs;
    /* with FINISH_STOP: by an eos token of the model, not a stop token of the request */
    bool stopped_by_eos;
    float *row; /* [n_row] at FINISH_STOP of a pooled request: the result, mem_new'd; the reader owns it */
    int32_t n_row;
    /* in an end event, if requested: the report (explain.h), mem_new'd; the reader's */
    struct explain *explain;
    /* in an end event: number of requests that ended before this one */
    uint64_t n_ended_before;
    /* in the end event of a beam search's result: the score that ranks it, and the sum of
     * its tokens' log-probabilities */
    double beam_score, beam_sum;
    /* tokens of the prediction that were accepted and rejected so far */
    prediction_counts predicted;
    int32_t n_cached;       /* prompt tokens found in the prefix cache when the request was first admitted */
    int64_t queue_us;       /* time from submission to that admission */
    int64_t admitted_us;    /* time of that admission (clock_us); 0: it was never admitted */
    int64_t first_token_us; /* time of the first token (clock_us); 0: it has not come */
    int64_t ended_us;       /* this and the next two members: in the end event only */
    int32_t n_prefilled;    /* prompt tokens that were computed for this request */
    int32_t n_preempted;    /* number of preemptions of the request */
    /* in a progress event: number of given tokens that are computed or were cached, which
     * grows to all of them; otherwise 0 */
    int32_t n_processed;
    int64_t processed_us; /* time from admission until n_processed tokens were processed */
} engine_event;

#define ENGINE_NAMESPACE_BYTES 240

/* An additional condition that ends a beam. is_over returns whether tokens[0..n), of
 * which the first n_prompt are the prompt, are complete. It runs on the engine thread: it
 * must not allocate or block, and must return the same for the same tokens. */
typedef struct engine_ending {
    /* NULL: there is no such condition */
    bool (*is_over)(void *context, const int32_t *tokens, int32_t n_prompt, int32_t n);
    void *context; /* alive until the last end event */
} engine_ending;

/* Work on a request's constraint that takes too long for a step. */
typedef struct engine_work {
    void (*run)(struct engine_work *w);
    uint64_t tenant;
    const atomic_bool *is_off; /* set once the result is no longer needed; run must still be called */
    void *of_outside[12];      /* storage for the implementation of engine_outside */
} engine_work;

/* The interface to threads that can run an engine_work. */
typedef struct engine_outside {
    /* Makes another thread call w->run(w) soon. It neither waits nor allocates. w stays
     * valid until run is called. NULL: no such threads, so steps do all the work */
    void (*add)(void *context, engine_work *w);
    void *context;   /* outlives the engine thread */
    uint64_t tenant; /* engine_work.tenant of the request's work */
} engine_outside;

#define ENGINE_MARKS 8

typedef struct engine_request {
    int32_t *tokens; /* the prompt, at least one token; mem_new'd; the engine owns it after submit */
    int32_t n_tokens;
    sampling_params sampling; /* has_seed is true: api gives a seed to requests without one */
    /* number of log-probabilities reported with each token: its own, those of the
     * likeliest tokens, and those of `sampling`'s scored ids; 0: none */
    int32_t logprobs_width, prompt_logprobs_width;
    /* first prompt token with log-probabilities; earlier ones, except the last two, may
     * come from the cache. 0 means 1, since the first token has none */
    int32_t prompt_logprobs_start;
    int32_t priority; /* ADMISSION_PRIORITY: lower numbers are admitted first */
    /* the first token must come within this time after submit, otherwise the request ends
     * with QUIRE_BUSY; 0: no deadline */
    int64_t deadline_us;
    /* if not POOLING_NONE, the end event carries one row pooled from the prompt's rows
     * and no token is generated: sampling, beams and logits do not apply */
    pooling_params pooling;
    /* [n_tokens] of a pooled prompt: each token's type; copied. NULL: all are of type
     * 0 */
    const int32_t *types;
    beam_params beams;     /* width 0: tokens are sampled */
    engine_ending ending;  /* an additional condition that ends beams, from min_tokens on */
    uint32_t sample_index; /* index of the sample in the request: part of the noise's key */
    /* constraint on the tokens after the prompt, or NULL; held as long as the request
     * runs. Given tokens of a branch must obey it */
    constraint *constraint;
    /* the constraint's state after `tokens` (engine_constraint_state); NULL: submit
     * computes it */
    const void *constraint_state;
    engine_outside outside; /* threads for the work of its constraint */
    /* the answer that the client expects, as a source of drafts, or NULL; held as long as
     * the request runs. Its ids must be in the vocabulary. Not with beams */
    prediction *prediction;
    /* [n_tokens, n_vocab] buffer for the prompt's logits, or NULL; the caller's, valid
     * until the end event */
    float *logits_out;
    /* first position written to logits_out; earlier tokens may come from the cache */
    int32_t logits_first;
    /* the request's own attention mask and score change, or NULL; held as long as it
     * runs. Requests with different mods must have different namespaces */
    attn_mods *mods;
    int32_t mods_b; /* the value of b in mods */
    /* no other request has these mods: their cost is measured apart from steps */
    bool mods_are_own;
    /* adapter applied to its rows, or NULL; held until the request has ended. The draft
     * model ignores it */
    adapter_ref *adapter;
    /* rows before this position use the base weights (activated LoRA), and only pages up
     * to there are shared. 0: all rows have the adapter, and the namespace must be the
     * adapter's own */
    int32_t adapter_from;
    /* [n_namespace] bytes that identify the tenant; copied. Prefixes are shared only
     * within a namespace */
    const void *namespace;
    size_t n_namespace; /* size of `namespace`, at most ENGINE_NAMESPACE_BYTES */
    /* `retention` is set: how its pages are kept in the prefix cache (kv/evict.h) */
    bool retains;
    kv_retention retention;
    /* lengths of prefixes that other prompts may share, with their recurrent states */
    int32_t marks[ENGINE_MARKS], n_marks;
    bool explain; /* the end event carries a report */
    /* the first sample reports progress, unless it is a branch that replaces its
     * parent */
    bool shows_progress;
    /* For a branch (branch.h), otherwise NULL and 0. Its first fork_position tokens are
     * those of the fork parent, whose pages it shares. The first n_prompt of n_tokens are
     * the prompt; for max_tokens, min_tokens and penalties the others count as generated.
     * If fork_replaces, the fork parent ends as cancelled, and the branch's events
     * include all tokens from fork_position on, the given ones without
     * log-probabilities. */
    engine_fork *fork_from;
    int32_t fork_position, n_prompt;
    bool fork_replaces; /* the branch replaces its fork parent; only with a single sample */
    /* [number of samples] the park that takes each sample's pages when it ends, or NULL;
     * held until then. The array may be NULL. Not with beams or pooling */
    engine_park *const *parks;
    /* nothing is sampled: the request ends (FINISH_LENGTH) once all of `tokens` are
     * computed or cached. If the logits after them were computed, its park keeps them,
     * and a request with exactly these tokens samples from them. Only with a single
     * sample, without logits, beams or pooling */
    bool no_tokens;
    /* id of the program that the request is a step of (0: none), and the request's depth
     * in the program's tree (admission_policy.h) */
    uint64_t tree;
    int32_t depth;
    bool has_waited; /* the request may use places saved by engine_out_await_places */
    engine_out *out;
    void *user;
} engine_request;

/* Starts an engine for a model and a backend. The backend's step_open and kv_open must
 * have been called with this layout and these limits (max_rows = max_batched_tokens,
 * max_out = draft_max_out). The caller owns model, backend and layout and closes them
 * after the engine; until then only the engine thread uses the backend. */
quire_err engine_open(model *m, backend *b, const kv_layout *layout, const engine_options *o, engine **out,
                      quire_error *err);
/* Starts the steps of an engine that was opened with starts_paused. Any thread. */
void engine_release(engine *e);
/* Before the next step is planned, drops all cached pages that no request holds: requests
 * submitted from now on do not find them in the pool. The memory of free pages goes back
 * to the system. With tiers, the pages move there, as they do on eviction. Any thread. */
void engine_drop_cache(engine *e);
/* As engine_drop_cache, for the pages of one tenant: namespaces whose names are these n
 * bytes, or begin with them and a 0 byte. The pages' memory is not given back. Any
 * thread. QUIRE_NO_MEMORY. */
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

/* Opens an output table for one reader. After each step in which one of its requests got
 * an event, the engine wakes `reader` once. */
quire_err engine_out_open(engine *e, wake *reader, engine_out **out);
/* Closes an output table. Every request that names it must have ended, and its end must
 * have been popped. */
void engine_out_close(engine_out *o);
/* Registers that the reader of o waits for n free places for sequences (1 to
 * max_requests); 0 ends the wait. True: n places are free now; otherwise the reader is
 * woken once they are. While it is first among the waiting readers, every second place
 * that becomes free is saved for it; other readers may take the rest. Only requests of o
 * with has_waited may use saved places. The wait lasts until such requests have taken n
 * places or this is called again. The reader's thread. */
bool engine_out_await_places(engine_out *o, int32_t n);
/* Pops the next event. False: there is none. The reader's thread. */
bool engine_out_pop(engine_out *o, engine_event *event);

/* Submits a request. QUIRE_TOO_LARGE: it can never fit: the prompt plus one token, or a
 * pooled prompt alone, exceeds the length limit or the pool or, in a model whose rows see
 * later ones, a step. QUIRE_UNSUPPORTED: it wants tokens, and the model has no head for
 * them. QUIRE_BAD_REQUEST also if its constraint forbids a given token of a branch.
 * QUIRE_BUSY: the engine is full. On failure r->tokens stays the caller's. Any thread. */
quire_err engine_submit(engine *e, const engine_request *r, request_id *id, quire_error *err);
/* Computes the state of r's constraint after r's tokens, for r->constraint_state: the
 * given tokens of a branch are appended one by one, so the time grows with their
 * number. r needs its tokens, n_prompt, sampling and constraint. state: [state_bytes].
 * QUIRE_BAD_REQUEST when a token is forbidden, and errors of the constraint. Any
 * thread. */
quire_err engine_constraint_state(const engine *e, const engine_request *r, void *state, quire_error *err);
/* Submits one request with n outputs: a beam search if r->beams is set, otherwise n
 * samples.
 *
 * A beam search has n results, at most its width, best first. Their tokens arrive all at
 * once when the search is over; if it found fewer than n, the others are empty.
 * Cancelling one of them ends the search. QUIRE_TOO_LARGE also if its beams could outgrow
 * the pool; if r sets no max_tokens, they get as many as fit.
 *
 * Samples are n requests with sample_index counting up from r's, and users[i] as the user
 * of request i. The prompt is computed once and its pages are shared. Either all are
 * submitted or none. Errors as engine_submit, and QUIRE_INVALID if n > 1 and r has an
 * option for a single sample (logits and log-probabilities of the prompt). */
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
/* Opens an empty park; its owner closes it before the engine. QUIRE_NO_MEMORY. */
quire_err engine_park_open(engine *e, engine_park **out);
/* Closes the owner's handle; the engine thread empties the park. NULL does nothing. */
void engine_park_close(engine_park *p);
/* Adds (hold) or drops a reference for a request that parks there, besides the owner's.
 * References may outlive the engine. NULL does nothing. */
engine_park *engine_park_hold(engine_park *p);
void engine_park_drop(engine_park *p);
/* The engine in which p was opened. */
const engine *engine_park_engine(const engine_park *p);
/* What a park holds; n_parked: how often sequences were parked in it; n_bounded: how
 * often a limit emptied it or kept a sequence out. */
typedef struct engine_park_info {
    int32_t n_tokens, n_pages;
    int64_t n_parked, n_bounded;
} engine_park_info;
engine_park_info engine_park_look(const engine_park *p);

/* Counters for measurements, besides quire_stats. */
typedef struct engine_profile {
    int64_t steps, n_pages_held_most; /* the most pages of any step so far */
    /* total time of steps before the forward pass, in sampling, and otherwise after it */
    int64_t plan_ns, sample_ns, commit_ns;
} engine_profile;

/* How long the present step has been running; 0 between steps. Any thread. */
int64_t engine_busy_us(const engine *e);

/* The engine's counters after its last step. requests_finished is indexed by
 * finish_reason - 1. Any thread. */
void engine_stats_read(engine *e, quire_stats *out);
void engine_snapshots_read(engine *e, quire_snapshot_stats *out);
void engine_page_memory_read(engine *e, quire_page_memory *out);
void engine_parked_read(engine *e, quire_parked_stats *out);
void engine_profile_read(engine *e, engine_profile *out);

#endif
