/* A sequence: the tokens of one request, its block tables and its state.
 *
 *   WAITING --admitted--> PREFILL --prompt computed--> DECODE --finished--> DONE      (preempted: back to WAITING)
 *
 * The submitting thread allocates all of it, so that the engine thread allocates nothing for it. Owner: the engine thread, except for
 * fields marked as the reader's or as shared. Engine and reader have one reference each; the last one frees it. Invariant: kv.n_computed <
 * n_known <= n_max while it runs. */
#ifndef ENGINE_SEQUENCE_H
#define ENGINE_SEQUENCE_H

#include <stdatomic.h>

#include "base/mem.h"
#include "engine/draft_types.h"
#include "engine/engine.h"
#include "kv/kv_seq.h"

typedef enum seq_state { SEQ_WAITING, SEQ_PREFILL, SEQ_DECODE, SEQ_DONE } seq_state;

/* The wait of a sequence for its pages in the tiers: not begun, under way, over. */
typedef enum tier_wait { TIER_WAIT_NONE, TIER_WAITS, TIER_WAIT_OVER } tier_wait;

typedef struct sequence {
    /* The engine thread's, read in every step, which goes through hundreds of sequences. */
    seq_state state;
    int32_t n_known;
    kv_seq kv;                /* its pages, and n_computed of the known tokens that they hold */
    int32_t n_preempted;      /* how often it was preempted */
    struct sequence *next_child; /* the next child in the chain of its fork parent (fork.h), or NULL */
    struct beams *beams;      /* the beam search of which it is beam number `beam` (beam.h), or NULL */
    void (*drop_beams)(struct beams *); /* drops its reference to `beams`, where that is set */
    int64_t last_token_us;
    int32_t tenant_slot;            /* its tenant's slot (admission_policy.h) */
    bool is_sampled;           /* batch_sample has sampled its next token (batch_sample.h) */
    int32_t sampled;
    quire_err sample_error;
    float mirostat_mu;
    /* its report (explain.h), or NULL. The engine thread's until the end is published, then the reader's */
    struct explain *explain;
    float *logits_out;
    int32_t logits_first;
    int64_t deadline_us;      /* when its first token must be there (clock_us); 0: no deadline */

    /* Shared by engine and reader; constant once the engine has it, except for the content of the arrays. */
    _Alignas(MEM_ALIGN) int32_t n_prompt;
    int32_t n_max;            /* tokens at which it ends: prompt + max_tokens */
    int32_t *tokens;          /* [n_max]; published ones are final, those behind n_known are drafts */
    token_logprob *logprobs, *prompt_logprobs; /* [n_max - n_prompt][logprobs_width], [n_prompt - 1][prompt_logprobs_width], or NULL */
    engine_out *out;
    void *user;
    request_id id;
    int32_t logprobs_width, prompt_logprobs_width; /* 0: none */
    int32_t n_given;          /* tokens at submission: the prompt, and for a branch the tokens generated before */
    uint32_t sample_index;
    uint64_t arrival;         /* order of arrival; constant, so a preempted sequence keeps its turn */

    /* The reader's, used in every step; and what both write, but seldom. */
    _Alignas(MEM_ALIGN) int32_t n_read; /* tokens that its reader has popped */
    atomic_int holders;
    int32_t n_cached;         /* tokens reused at the first admission; written before the first token is published */
    finish_reason finish;     /* written before the end is published, as what follows */
    quire_err error;
    int32_t retry_after_s;    /* QUIRE_BUSY only */
    bool stopped_by_eos;
    uint64_t n_ended_before;
    double beam_score, beam_sum;

    /* The engine thread's again: what is seldom read, then what is large. */
    _Alignas(MEM_ALIGN) int32_t priority; /* ADMISSION_PRIORITY only, else 0 */
    int32_t beam;
    int64_t submitted_us;
    float *mus;               /* with mirostat: [n_max - n_prompt] mu before each generated token, for branches; else NULL */
    int32_t n_found;          /* tokens that the cache held when it arrived */
    /* the fork parent of a branch, whose first fork_position tokens are its own too (branch.h): a reference, held until the engine thread
     * takes it in. NULL: no branch */
    struct sequence *fork_from;
    int32_t fork_position;
    bool fork_replaces;
    int32_t swap_frames;      /* its first frame in the swap space + 1, or 0: it has none */
    int32_t swap_from, swap_tokens; /* which of its tokens the frames hold: swap_from..swap_tokens; swap_from is a page's start */
    tier_wait tier_wait;
    int64_t tier_deadline_us; /* it waits for tiers until then; 0: the wait has not begun */
    bool retains;
    kv_retention retention;
    int32_t n_admitted;       /* how often it was admitted; more than once after preemption */
    int32_t n_reused;         /* tokens that the last admission took from the cache */
    /* while it waits: the arrival of the sequence that computes its tokens up to blocked_until; blocked_until 0: none (prefix_wait.h) */
    uint64_t blocked_on;
    int32_t blocked_on_priority;    /* the priority of that sequence */
    int32_t blocked_until;
    draft_seq draft;
    sampling_params sampling;
    uint8_t namespace[ENGINE_NAMESPACE_BYTES];
    size_t n_namespace;
} sequence;

/* Whether logits of the prompt are still wanted, from logits_first on. Not once a token was sampled, though a preempted sequence is
 * computed again: its reader may have taken them already. */
static inline bool sequence_wants_logits(const sequence *s) {
    return (s->logits_out != NULL || s->prompt_logprobs != NULL) && s->n_known == s->n_prompt;
}

/* Tokens of s that may be reused, wherever they are: not the last known one, and none whose logits are wanted. */
static inline int32_t sequence_reusable(const sequence *s) {
    int32_t n = s->n_known - 1;
    return sequence_wants_logits(s) && s->logits_first < n ? s->logits_first : n;
}

/* Makes a sequence, which takes r->tokens and grows them to n_max. On failure r->tokens stays the caller's. */
quire_err sequence_new(const engine_request *r, int32_t n_max, int32_t n_groups, int32_t page_tokens, sequence **out);
/* Drops a reference; the last one frees the sequence. Its tables must be empty by then. */
void sequence_drop(sequence *s);

#endif
