/* A sequence: one request as a task of the scheduler, with all that the engine knows
 * about it.
 *
 * The submitting thread allocates all its memory; the engine thread allocates nothing.
 * Owner: the engine thread, except for fields marked as the reader's or as shared. Engine
 * and reader have one reference each; the last one frees it. */
#ifndef ENGINE_SEQUENCE_H
#define ENGINE_SEQUENCE_H

#include <stdatomic.h>
#include <stddef.h>

#include "base/mem.h"
#include "engine/engine.h"
#include "sample/sampler.h"
#include "sched/task.h"
#include "spec/draft.h"

/* Who holds a sequence's rule: the engine thread, an outside thread, or neither: it was
 * returned but not yet taken back. */
typedef enum rule_place { RULE_HERE, RULE_OUTSIDE, RULE_BACK } rule_place;

typedef struct sequence {
    sched_task task;
    /* The engine thread's, read in every step. */
    /* next in the chain of its fork parent's children (fork.h), or NULL */
    _Alignas(MEM_ALIGN) struct sequence *next_child;
    struct beams *beams;                /* the beam search (beam.h) in which it is number `beam`, or NULL */
    void (*drop_beams)(struct beams *); /* drops its reference to `beams`, if that is set */
    int64_t last_token_us, ended_us;
    /* results of step_lines_sample for its next n_line tokens, until they are
     * committed */
    const sample_result *line;
    int32_t n_line;
    uint8_t line_end; /* end_kind of the last of these tokens; the others are not end tokens */
    bool is_checked;  /* all its rows in this step are known to be finite */
    bool shows_progress;
    float mirostat_mu;
    /* its report (explain.h), or NULL. Owned by the engine thread until the end is
     * published, then by the reader */
    struct explain *explain;
    float *logits_out;
    /* constraint states after its last token: its own, then its drafter's; or NULL */
    uint8_t *constraint_states;
    constraint *constraint; /* constraint on its tokens, a reference; or NULL. `context` has its state */
    /* which thread may access the state and `rule` (rule_step.h); set by that thread */
    _Atomic(rule_place) rule_place;
    quire_err rule_error; /* the error of its rule; QUIRE_OK: none */
    sample_rule rule;     /* the mask after its last token */
    attn_mods *mods;      /* its own attention mask and score change, a reference; or NULL */
    int32_t mods_b;
    int32_t adapter_from;        /* the first position whose row has the adapter */
    adapter_ref *adapter;        /* a reference until its end; or NULL */
    struct row_pooling *pooling; /* state of its row pooling (row_pooling.h); NULL: it generates tokens */

    /* Shared by engine and reader; constant once submitted, except for arrays'
     * content. */
    /* [n_max - n_prompt][logprobs_width]; [n_prompt - prompt_logprobs_start]
     * [prompt_logprobs_width]; or NULL */
    _Alignas(MEM_ALIGN) token_logprob *logprobs, *prompt_logprobs;
    prediction_token *predicted; /* [n_max - n_prompt]; NULL: no prediction */
    engine_out *out;
    void *user;
    request_id id;
    int32_t logprobs_width, prompt_logprobs_width; /* 0: none */
    /* first prompt token with log-probabilities: 1 to n_prompt */
    int32_t prompt_logprobs_start;
    int32_t n_prefilled; /* computed rows of its prompt; the engine thread's until its end */
    /* preemptions of this sequence; task.n_preempted of a beam counts its search's */
    int32_t n_preempted;
    atomic_llong first_token_us; /* 0 before the first token; a branch has given tokens before it */
    /* tokens at submission: the prompt and, for a branch, tokens generated before */
    int32_t n_given;

    /* n_read is the reader's, used in every step; both write the others, but rarely. */
    _Alignas(MEM_ALIGN) int32_t n_read; /* tokens that its reader has popped */
    atomic_int holders;
    finish_reason finish; /* this and the members below are written before the end is published */
    quire_err error;
    int32_t retry_after_s; /* set with QUIRE_BUSY only */
    bool stopped_by_eos;
    uint64_t n_ended_before;
    double beam_score, beam_sum;
    /* progress, written by the engine: at most n_given, stored after processed_us */
    atomic_int n_processed;
    int32_t n_processed_read; /* the progress that the reader has seen */
    atomic_llong processed_us;

    /* The engine thread's again: members that are seldom read, then large ones. */
    _Alignas(MEM_ALIGN) int32_t beam;
    /* computed tokens before this position are in the tenant's service counter already */
    int32_t n_charged;
    /* with mirostat: [n_max - n_prompt] mu before each generated token, for branches;
     * otherwise NULL */
    float *mus;
    /* the fork parent of a branch (branch.h), with which it shares the first
     * fork_position tokens: a reference, held until the engine thread takes s in. NULL:
     * no branch */
    struct sequence *fork_from;
    int32_t fork_position;
    bool fork_replaces;
    bool retains;
    kv_retention retention;
    engine_park *park; /* the park where it parks at its end, a reference; NULL: none */
    bool no_tokens;    /* the sequence ends when its given tokens are computed */
    /* [n_vocab] with no_tokens and a park: the logits after its last token, for the park;
     * otherwise NULL */
    float *last_row;
    bool has_last_row;      /* last_row was computed */
    engine_outside outside; /* text threads that can work on its rule; its `add` is NULL: none */
    engine_work rule_work;
    const wake *rule_wake; /* the engine's wake, rung when the rule is returned */
    atomic_bool rule_is_off;
    draft_seq draft;
    sample_context context; /* context of its samples; n_tokens and noise are set for each */
    sampling_params sampling;
    uint8_t namespace[ENGINE_NAMESPACE_BYTES];
    size_t n_namespace;
} sequence;

/* Prefetches the members of s that a step without drafts reads, since sampling has
 * displaced them from the processor's cache. */
static inline void sequence_prefetch(const sequence *s) {
    const char *first = (const char *)s;
    for (size_t at = 0; at < offsetof(sequence, n_read); at += MEM_ALIGN) {
        __builtin_prefetch(first + at, 1);
    }
    __builtin_prefetch(&s->draft.n_jump_forward, 1);
}
/* Prefetches its drafts and its outlook. */
static inline void sequence_prefetch_drafts(const sequence *s) {
    const char *first = (const char *)s;
    for (size_t at = offsetof(sequence, draft.wanted); at < offsetof(sequence, draft.outlook.tree.parents);
         at += MEM_ALIGN) {
        __builtin_prefetch(first + at, 1);
    }
}

/* Makes a sequence; it takes over r->tokens, grown to n_max tokens. Each of its n_groups
 * tables has room for cap_pages. constraint_state: of r->constraint after r->tokens;
 * copied. QUIRE_NO_MEMORY: r->tokens stays the caller's. */
quire_err sequence_new(const engine_request *r, const void *constraint_state, const model_desc *desc,
                       int32_t n_max, int32_t n_groups, int32_t cap_pages, sequence **out);
/* Drops a reference; the last one frees the sequence, whose tables must be empty. */
void sequence_drop(sequence *s);

#endif
