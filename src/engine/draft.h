/* Drafts: tokens that are guessed to come next, so that one step can verify several (verify.h) where it would have computed one.
 *
 * A drafter is asked, once a step, for the sequences that decode: it leaves a tree of guesses with each (draft_tree.h), a line unless the
 * options allow branches. Known tokens of a sequence that it is asked for never change, so what a drafter keeps of these stays true; a
 * rolled back or steered stream goes on as another sequence. Where a drafter wrote on, tokens[0..draft.n_agreed) are still what it saw.
 * Drafts change how fast tokens come, never which ones (docs/design.md, Drafts), so a drafter may guess as it likes; it must guess the same
 * in every run of the same requests, for figures to repeat.
 *
 * How deep they are asked to go adapts to each sequence: at first the most that the options allow; twice as deep as before where they were
 * accepted to the end, up to that; one deeper than they were accepted where not. After DRAFT_PATIENCE times in a row in which none was, the
 * sequence pauses for 1, 2, 4 .. 16 steps, longer each time, until one is accepted again.
 *
 * Forced tokens (jump.h) are drafts too, and need no drafter. Owner: the engine thread. */
#ifndef ENGINE_DRAFT_H
#define ENGINE_DRAFT_H

#include <stdbool.h>
#include <stdint.h>

#include "backend/backend.h"
#include "spec/draft_tree.h"
#include "spec/suffix_tree.h"
#include "kv/table.h"
#include "model/model.h"

#define DRAFT_PATIENCE 3

typedef enum draft_method { DRAFT_METHOD_NONE, DRAFT_METHOD_NGRAM, DRAFT_METHOD_SUFFIX, DRAFT_METHOD_MODEL } draft_method;

/* When a draft is accepted. */
typedef enum draft_rule {
    DRAFT_RULE_EXACT,   /* it is what the target picks with its own noise: output as without drafts, to the bit */
    DRAFT_RULE_STANDARD /* by rejection sampling (rejection.h): output distributed as without drafts */
} draft_rule;

/* The draft model: all its owner's, who opened the backend with this layout, these pages, max_rows = max_batched_tokens and max_out =
 * max_seqs. They outlive the engine, whose thread runs them. */
typedef struct draft_model_options {
    model *m;
    backend *b;
    const kv_layout *layout;
    int32_t n_pages, max_len; /* max_len: tokens that a sequence may have to be drafted for */
} draft_model_options;

typedef struct draft_options {
    draft_method method;
    draft_rule rule;
    int32_t n_tokens;               /* most drafts a sequence and step, 1..DRAFT_MAX; 0 where there is no method */
    int32_t tree_width;             /* most that may follow one token, up to DRAFT_MAX_WIDTH; 0 or 1: one, so drafts are a line */
    bool fixed_length;              /* always ask for n_tokens: do not adapt */
    bool no_jump_forward;           /* forced tokens are not drafted */
    int32_t lookup_min, lookup_max; /* ngram: lengths of the suffix that is looked for */
    int32_t suffix_depth;           /* suffix: tokens of a run, 2..SUFFIX_MAX_DEPTH */
    int32_t suffix_texts;           /* recent outputs that are kept */
    double suffix_factor;           /* tokens guessed for each that matched */
    double suffix_min_prob;         /* of all guessed tokens together */
    draft_model_options model;      /* model */
} draft_options;

/* A sequence's part. */
typedef struct draft_seq {
    int32_t n_jump_forward; /* 0, or all of it, a line: nothing but the request's own rules decides them */
    int32_t n_agreed; /* model: tokens that are still what the drafter last saw */
    draft_bounds wanted; /* what it is asked for; no nodes: it is not */
    int32_t length;   /* how deep to ask for; 0: not asked yet */
    int32_t n_misses, n_pauses, pause;
    suffix_cursor own;  /* suffix: the sequence's own tree, root SUFFIX_NONE before it has one */
    int32_t n_indexed;  /* its tokens that are in it */
    bool own_failed;    /* there was no room for it */
    int32_t model_seq;       /* model: its sequence + 1; 0: none */
    /* rejection sampling: what the first branch was drawn from, [its nodes][n_vocab]; all else, and where NULL, for sure */
    const float *distributions;
    /* rejection sampling: the next token is chosen behind node `at` of a tree of which the first n_rows nodes were computed; n_rows 0: else
     */
    int32_t at, n_rows;
    draft_tree tree;  /* what is guessed now */
} draft_seq;

struct engine;
struct sequence;
typedef struct drafter drafter;

typedef struct draft_ops {
    /* For each of seqs[0..n): guesses into draft.tree, which is empty, no more than draft.wanted. The tokens behind the known ones may be
     * used to write on. */
    void (*propose)(drafter *d, struct engine *e, struct sequence *const *seqs, int32_t n);
    /* s gives its pages back (over: it ends, else it is preempted): forget what is kept of it. NULL: nothing is. */
    void (*forget)(drafter *d, struct sequence *s, bool over);
    void (*close)(drafter *d);
} draft_ops;

/* The head of every drafter's own struct. */
struct drafter {
    const draft_ops *ops;
};

/* Rows a step whose logits are wanted, for the backend's step_open: what max_seqs sequences with all their drafts take, at most max_rows.
 */
int32_t draft_max_out(const draft_options *o, int32_t max_seqs, int32_t max_rows);

/* Opens the drafter that e->options.draft names, e->drafter; needs e->layout and e->limits. QUIRE_UNSUPPORTED where a layer's state cannot
 * be rolled back. */
quire_err draft_open(struct engine *e, quire_error *err);
void draft_close(struct engine *e);

/* The part of a new sequence. */
draft_seq draft_begin(void);
/* Once a step, before it is planned: sets draft.tree and draft.n_jump_forward of every running sequence. O(running) and the drafter's own
 * work. */
void draft_propose(struct engine *e);
/* What became of a sequence's drafts, or forced tokens. */
typedef struct draft_outcome {
    int32_t n, n_accepted; /* nodes that were verified; of these, now known tokens */
    int32_t n_first;       /* the first of those, on the branch of first children */
    bool is_jump_forward, to_end;   /* they were no guesses; they are a whole branch: nothing was guessed behind the last */
} draft_outcome;

/* s may have ended with them. */
void draft_report(struct engine *e, struct sequence *s, const draft_outcome *o);
/* s gives its pages back. */
void draft_forget(struct engine *e, struct sequence *s, bool over);

#endif
