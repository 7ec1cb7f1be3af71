/* A sequence: one request's tokens, its block tables and where it stands.
 *
 *   WAITING --admitted--> PREFILL --prompt computed--> DECODE --finished--> DONE      (preempted: back to WAITING)
 *
 * Made whole by the submitting thread, so that the engine thread allocates nothing for it. Owner: the engine thread, but for what is
 * said to be the reader's, or for both. Two holders, engine and reader; the last one frees it. Invariant: kv.n_computed < n_known <= n_max
 * while it runs. */
#ifndef ENGINE_SEQUENCE_H
#define ENGINE_SEQUENCE_H

#include <stdatomic.h>

#include "base/mem.h"
#include "engine/draft_types.h"
#include "engine/engine.h"
#include "kv/kv_seq.h"

typedef enum seq_state { SEQ_WAITING, SEQ_PREFILL, SEQ_DECODE, SEQ_DONE } seq_state;

/* A waiting sequence and its pages in the tiers: not asked for yet, on their way, here or given up. */
typedef enum tier_wait { TIER_WAIT_NONE, TIER_WAITS, TIER_WAIT_OVER } tier_wait;

typedef struct sequence {
    /* The engine's, and looked at in every step, which goes through hundreds of sequences. */
    seq_state state;
    int32_t n_known;
    kv_seq kv;                /* its pages, and n_computed of the known tokens that they hold */
    int32_t n_preempted;      /* times */
    struct sequence *next_child; /* the next of its group, see fork.h; or NULL */
    struct beams *beams;      /* the beam search that it is beam number `beam` of, see beam.h; or NULL */
    void (*drop_beams)(struct beams *); /* one holder of beams less; where beams are */
    int64_t last_token_us;
    int32_t tenant_slot;            /* its tenant's slot (order.h) */
    bool is_sampled;           /* its next token was chosen ahead (presample.h) */
    int32_t sampled;
    quire_err sample_error;
    float mirostat_mu;
    /* what its request is told (explain.h), or NULL. The engine thread's until the end is shown, then the reader's */
    struct explain *explain;
    float *logits_out;
    int32_t logits_first;
    int64_t deadline_us;      /* when its first token must be there (clock_us); 0: whenever */

    /* For both, engine and reader, and the same from when the engine has it. */
    _Alignas(MEM_ALIGN) int32_t n_prompt;
    int32_t n_max;            /* tokens at which it ends: prompt + max_tokens */
    int32_t *tokens;          /* [n_max]; those that its reader was shown are final, those behind n_known drafts */
    token_logprob *logprobs, *prompt_logprobs; /* [n_max - n_prompt][logprobs_width], [n_prompt - 1][prompt_logprobs_width], or NULL */
    engine_out *out;
    void *user;
    request_id id;
    int32_t logprobs_width, prompt_logprobs_width; /* 0: none */
    int32_t n_given;          /* tokens that it began with: the prompt, and for a branch what comes before its own */
    uint32_t sample_index;
    uint64_t arrival;         /* order of arrival, never changes: preemption keeps a sequence's place */

    /* The reader's in every step; and what both write, but seldom. */
    _Alignas(MEM_ALIGN) int32_t n_read; /* tokens that its reader has been given */
    atomic_int holders;
    int32_t n_cached;         /* tokens reused at the first admission; written before the first token is shown */
    finish_reason finish;     /* written before the end is shown, as what follows */
    quire_err error;
    int32_t retry_after_s;    /* QUIRE_BUSY only */
    bool stopped_by_eos;
    uint64_t n_ended_before;
    double beam_score, beam_sum;

    /* The engine's again: what is seldom looked at, then what is large. */
    _Alignas(MEM_ALIGN) int32_t priority; /* of order.h; 0 under other policies than that */
    int32_t beam;
    int64_t submitted_us;
    float *mus;               /* with mirostat: [n_max - n_prompt] what it was before each token of the answer, for branches; else NULL */
    int32_t n_found;          /* tokens that the cache held when it came */
    /* until the engine thread has it: whose tokens its first fork_position are (branch.h); held. NULL: nobody's */
    struct sequence *fork_from;
    int32_t fork_position;
    bool fork_replaces;
    int32_t swap_frames;      /* its first frame in the swap space + 1, or 0: it left nothing there */
    int32_t swap_from, swap_tokens; /* which of its tokens they hold: from..tokens, from is a page's start */
    tier_wait tier_wait;
    int64_t tier_deadline_us; /* it waits for tiers no longer than that; 0: it has not begun to */
    bool retains;
    kv_retention retention;
    int32_t n_admitted;       /* times it was; more than once after preemption */
    int32_t n_reused;         /* tokens that the last admission took from the cache */
    /* while it waits: the arrival of the sequence that computes its tokens up to blocked_until, 0: nobody (hold.h) */
    uint64_t blocked_on;
    int32_t blocked_on_priority;    /* that one's */
    int32_t blocked_until;
    draft_seq draft;
    sampling_params sampling;
    uint8_t namespace[ENGINE_NAMESPACE_BYTES];
    size_t n_namespace;
} sequence;

/* Whether logits of the prompt are still to be looked at, from logits_first on. Not once a token was sampled, though a preempted sequence
 * is computed again: its reader may have taken them and gone. */
static inline bool sequence_wants_logits(const sequence *s) {
    return (s->logits_out != NULL || s->prompt_logprobs != NULL) && s->n_known == s->n_prompt;
}

/* Tokens of s that may be reused, wherever they are: all but the last known one, and none whose logits are wanted. */
static inline int32_t sequence_reusable(const sequence *s) {
    int32_t n = s->n_known - 1;
    return sequence_wants_logits(s) && s->logits_first < n ? s->logits_first : n;
}

/* Takes r->tokens, grown to n_max, unless it fails. */
quire_err sequence_new(const engine_request *r, int32_t n_max, int32_t n_groups, int32_t page_tokens, sequence **out);
/* One holder less; the last frees it. Its tables must be empty by then. */
void sequence_drop(sequence *s);

#endif
