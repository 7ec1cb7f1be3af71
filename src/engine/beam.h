/* Beam search: several continuations of one prompt; each step keeps the likeliest ones
 * (beam_select.h has the rules).
 *
 *   one sequence (the prompt) -> every live beam has its row's logits
 *       -> choose: which continue, which end -> every live beam ... -> results
 *
 * A beam is a sequence like any other: it is planned, decodes and holds pages. When the
 * last live beam of a search has the logits of its newest token, the next tokens are
 * chosen for all beams. A beam with several continuations is forked, which shares its
 * pages (kv/table.h copies a part-filled page when it is written). A beam without
 * continuation releases its pages at once. Until the choice, a beam has n_computed ==
 * n_known and no rows to compute.
 *
 * Beams with pages are in the running list. Beams that lost their pages are in no list;
 * they resume one after the other by forking the beam with which they share most. When
 * the first beam is admitted, places to run are reserved for all. When no beam of a
 * search has pages, one of them waits for all (`listed`). A search is preempted as a
 * whole, except for beams that compute in the same step. None of this changes a bit of
 * the results (docs/design.md, Determinism).
 *
 * The first n_results sequences have readers, which get nothing before the search is
 * over. All memory is allocated when the search is made. Owner: the engine thread; freed
 * with the last of its sequences. */
#ifndef ENGINE_BEAM_H
#define ENGINE_BEAM_H

#include "engine/state.h"
#include "sample/beam_select.h"

typedef struct beam_candidate {
    int32_t token;
    /* of the token, from logits after the request's bans, biases and penalties */
    double logprob;
    token_logprob own; /* the reported log-probability of this token, if requested */
} beam_candidate;

typedef struct beam {
    sequence *seq;
    /* this result's report, unused while the reporter's is in use; or NULL */
    struct explain *spare;
    double score, sum; /* score ranks the beam; sum lacks diversity penalties */
    bool is_live, is_taken;
    int32_t n_list;
    beam_candidate *list; /* [n_list] likely continuations, valid while n_computed == n_known */
    token_logprob *tops;  /* [width - 1] the row's likeliest tokens, if requested */
} beam;

typedef struct beam_set {
    bool is_open;
    int32_t n_live;
    beam **live; /* best first */
    beam_finished finished;
} beam_set;

/* A continuation that is kept, and the beam that it becomes. */
typedef struct beam_child {
    beam *parent, *place;
    beam_set *set;
    int32_t entry;
    double score, sum;
} beam_child;

typedef struct beams {
    atomic_int holders; /* number of its sequences that are not yet freed */
    beam_params params;
    engine_ending ending;
    beam_rules rules;
    int32_t n_results;
    /* width: number of reported log-probabilities of a token, or 0 */
    int32_t n_beams, n_sets, list_length, width;
    int32_t n_generated;
    beam *beams;
    beam_set *sets, *choosing; /* choosing: the set that is being processed */
    sequence *listed;          /* the sequence in the in-ring or waiting list while no beam runs */
    sequence *reporter;        /* collects the report of the search (explain.h) */
    bool is_short;             /* a beam has lost its pages since the last choice */
    bool is_over;
    int32_t n_behind; /* pages that the other beams need in addition to those of `listed` */
    /* Scratch and storage that the pointers above and the choice use. */
    beam_candidate *lists;
    token_logprob *tops, *best, *result_logprobs;
    beam **lives;
    beam_result *results, **result_order;
    int32_t *result_tokens, *ends, *chosen;
    beam_choice *choices;
    beam_outcome outcome;
    beam_child *children;
    int32_t n_chosen, n_children;
} beams;

/* ---- any thread ---- */
/* Checks that a search with n results for r fits this engine. *n_max: the most tokens of
 * a beam; if r sets no max_tokens, it is lowered to what the pool can hold.
 * QUIRE_INVALID, QUIRE_BAD_REQUEST, QUIRE_TOO_LARGE. */
quire_err beam_check(const engine *e, const engine_request *r, int32_t n, int32_t *n_max, quire_error *err);
/* Makes a search of r->beams.width sequences, chained from first by `next_child`; only
 * the first n have readers. On failure the sequences are unchanged. */
quire_err beam_open(const engine *e, const engine_request *r, int32_t n, sequence *first);
/* The most pages of all groups that a beam of n_max tokens shares with no other beam. */
int64_t beam_pages_own(const engine *e, int32_t n_prompt, int32_t n_max);
/* Unlinks the sequences chained from first, once they have their arrival numbers. */
void beam_unchain(sequence *first);
/* Drops a reference of g: one of its sequences is freed. NULL does nothing. */
void beams_drop(beams *g);

/* ---- the engine thread ---- */
/* Whether the request's engine_ending ends a continuation of g->choosing:
 * beam_rules.ends_too, with the beams as context. */
bool beam_ending(void *g, const beam_choice *choice);
/* Adds the first sequence, whose tenant and priority are set, to the waiting list. */
void beam_enter(const sequence *first);
/* Whether a reader has cancelled one of the results. */
bool beam_is_cancelled(const engine *e, const beams *g);
/* Resumes beams without pages where they fit. Call it once a step, before planning. */
void beam_resume(engine *e);
/* Adds to d what the planner needs to know about a beam s: the pages that its next row
 * takes to copy shared ones, and the places and pages of the search's other beams, which
 * will run beside it. */
void beam_describe(const engine *e, const sequence *s, sched_seq *d);
/* Releases the pages of s, which is already in no list. */
void beam_preempt(engine *e, sequence *s);
/* Completes preemption: a search that lost some beams' pages releases all, unless one of
 * its beams computes in this step. Call it when the step is planned and its preemptions
 * are done. */
void beam_settle(engine *e);
/* Passes the logits of s's last token to its search, which changes them. */
void beam_take(engine *e, sequence *s, float *logits);
/* Whether the computed tokens of s may be published already. Of a beam, which may be
 * dropped, only the prompt may. */
static inline bool beam_publishes(const sequence *s) {
    return s->beams == NULL || s->task.n_known == s->task.n_prompt;
}
/* Ends the search: releases the pages of all beams and publishes each reader's end, with
 * results if reason is FINISH_LENGTH. */
void beam_finish(engine *e, beams *g, finish_reason reason, quire_err error);

#endif
