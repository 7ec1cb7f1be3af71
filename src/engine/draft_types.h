/* Options of speculative decoding, and what a sequence keeps of its drafts (draft.h). */
#ifndef ENGINE_DRAFT_TYPES_H
#define ENGINE_DRAFT_TYPES_H

#include <stdbool.h>
#include <stdint.h>

#include "backend/backend.h"
#include "model/model.h"
#include "spec/draft_tree.h"
#include "spec/suffix_tree.h"

typedef struct drafter drafter;

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

/* The drafts of a new sequence: none. */
static inline draft_seq draft_begin(void) {
    return (draft_seq){.own = {.root = SUFFIX_NONE}};
}

#endif
