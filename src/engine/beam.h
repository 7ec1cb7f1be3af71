/* Beam search: several continuations of one prompt, of which each step keeps the likeliest (beam_select.h has the rules).
 *
 *   one sequence (the prompt) -> every live beam has its row's logits -> choose: who goes on, who ends -> every live beam ... -> results
 *
 * A beam is a sequence that runs like any other: it decodes, is planned, and holds pages. When the last live beam of a search has the
 * logits of its newest token, the next tokens are chosen for all: a beam with several continuations is forked, which shares its pages
 * (kv/table.h copies the part-filled one when it is written), and one with none gives its pages back at once. Until then a beam stands with
 * n_computed == n_known and no rows to compute.
 *
 * Beams with pages are in the running list. Those that lost them stand in no list, and join again one after the other by forking
 * the beam with which they share most. Places to run are kept for all when the first is admitted. When no beam of a search has pages, one
 * of them waits for all (`listed`). Whole searches are preempted, but for beams that compute in that very step. By the rule
 * (docs/design.md, Determinism) none of this changes a bit of what is found.
 *
 * The first n_results sequences have readers; they are shown nothing before the search is over. Everything is sized when the search is
 * made. Owner: the engine's thread; freed with the last of its sequences. */
#ifndef ENGINE_BEAM_H
#define ENGINE_BEAM_H

#include "engine/beam_select.h"
#include "engine/state.h"

typedef struct beam_candidate {
    int32_t token;
    double logprob;    /* of the row as the model gave it, changed by what the request bans, biases and penalises */
    token_logprob own; /* as reported, where that is wanted */
} beam_candidate;

typedef struct beam {
    sequence *seq;
    struct explain *spare; /* what its reader is told in, while seq->explain is the reporter's alone; or NULL */
    double score, sum;     /* of its tokens: by which it is ranked, and without diversity penalties */
    bool is_live, is_taken;
    int32_t n_list;
    beam_candidate *list; /* [n_list] likely continuations, valid while n_computed == n_known */
    token_logprob *tops;  /* [width - 1] the row's likeliest, where those are wanted */
} beam;

typedef struct beam_set {
    bool is_open;
    int32_t n_live;
    beam **live; /* best first */
    beam_finished finished;
} beam_set;

/* A continuation that goes on, and the beam that it becomes. */
typedef struct beam_child {
    beam *parent, *place;
    beam_set *set;
    int32_t entry;
    double score, sum;
} beam_child;

typedef struct beams {
    atomic_int holders; /* its sequences */
    beam_params params;
    engine_ending ending;
    beam_rules rules;
    int32_t n_results;
    int32_t n_beams, n_sets, list_length, width; /* width: of reported log-probabilities, or 0 */
    int32_t n_generated;
    beam *beams;
    beam_set *sets, *choosing; /* choosing: the one whose turn it is */
    sequence *listed;          /* the one in the ring or the waiting list, while none of its beams run */
    sequence *reporter;          /* the one that collects what the readers are told of the search (explain.h) */
    bool is_short;             /* a beam has lost its pages since the last choice */
    bool is_over;
    int32_t n_cached;
    int32_t n_behind; /* pages that the others take beside those of `listed` */
    /* scratch and stores: what the pointers above and the choice stand on */
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
/* Whether a search for r fits this engine, r->sampling.max_tokens being what *n_max, its tokens in all, came from; lowers *n_max to what
 * the pool holds where the request names no limit. QUIRE_BAD_REQUEST, QUIRE_TOO_LARGE. */
quire_err beam_check(const engine *e, const engine_request *r, int32_t n, int32_t *n_max, quire_error *err);
/* Makes a search of the chain's sequences (r->beams.width of them, by `next_child`), of which the first n have readers. On failure they are
 * as they were. */
quire_err beam_open(const engine *e, const engine_request *r, int32_t n, sequence *first);
/* Pages of one group of layers that beams share whatever happens: the prompt's whole ones; behind a window they may have to be computed for
 * each again. */
int32_t beam_pages_shared(const engine *e, int32_t n_prompt);
/* The chain was numbered: its sequences stand alone from now on. */
void beam_unchain(sequence *first);
/* A sequence of g is freed. NULL does nothing. */
void beams_drop(beams *g);

/* ---- the engine's thread ---- */
/* The rules' ends_too, context being the beams: what the request's ending says of a continuation of g->choosing. */
bool beam_ending(void *g, const beam_choice *choice);
/* The search's first sequence, whose tenant and priority are known, begins to wait. */
void beam_enter(const sequence *first);
/* Whether a reader has cancelled one of the results. */
bool beam_is_cancelled(const engine *e, const beams *g);
/* Once a step, before planning: beams without pages join where they can. */
void beam_resume(engine *e);
/* What planning must know of s beside what any sequence tells: the pages that its next row takes to copy shared ones; the places and pages
 * of the search's beams that run beside it sooner or later. */
void beam_describe(const engine *e, const sequence *s, sched_seq *d);
/* s, which is in no list any more, gives up its pages. */
void beam_preempt(engine *e, sequence *s);
/* After preempting: searches that lost some beams' pages give up all, unless a beam of theirs computes in this step. */
void beam_settle(engine *e);
/* s has the logits of its last token, which are changed. */
void beam_take(engine *e, sequence *s, float *logits);
/* Whether what s has computed is made findable already: the prompt is, for beams may be given up again. */
static inline bool beam_publishes(const sequence *s) {
    return s->beams == NULL || s->n_known == s->n_prompt;
}
/* Ends the search for all: pages back, readers told. FINISH_LENGTH: with what it has found. */
void beam_finish(engine *e, beams *g, finish_reason reason, quire_err error);

#endif
