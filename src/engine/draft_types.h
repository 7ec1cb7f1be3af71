/* The options of speculative decoding, and a sequence's draft state (draft.h). */
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
    DRAFT_RULE_EXACT,   /* it is what the target samples with its own noise: output as without drafts, to the bit */
    DRAFT_RULE_STANDARD /* by rejection sampling (rejection.h): output distributed as without drafts */
} draft_rule;

/* The draft model. The caller owns all of it, and has opened the backend with this layout, these pages, max_rows = max_batched_tokens and
 * max_out = max_seqs. All of it outlives the engine, whose thread runs it. */
typedef struct draft_model_options {
    model *m;
    backend *b;
    const kv_layout *layout;
    int32_t n_pages, max_len; /* max_len: most tokens of a sequence that is drafted for */
} draft_model_options;

typedef struct draft_options {
    draft_method method;
    draft_rule rule;
    int32_t n_tokens;               /* most drafts a sequence and step, 1..DRAFT_MAX; 0 where there is no method */
    int32_t tree_width;             /* most children of one token, up to DRAFT_MAX_WIDTH; 0 or 1: one, so drafts are lines */
    int32_t lookup_min, lookup_max; /* ngram: lengths of the suffix that is searched for */
    int32_t suffix_depth;           /* suffix: tokens of a run, 2..SUFFIX_MAX_DEPTH */
    int32_t suffix_texts;           /* recent outputs that are kept */
    double suffix_factor;           /* tokens guessed for each token that matched */
    double suffix_min_prob;         /* least probability of all guessed tokens together */
    draft_model_options model;      /* model */
} draft_options;

/* The draft state of a sequence. */
typedef struct draft_seq {
    int32_t n_jump_forward; /* 0, or the whole draft, which is a line: the request's own rules alone decide these tokens */
    int32_t n_agreed; /* model: tokens that are still what the drafter last saw */
    draft_bounds wanted; /* bounds of the next draft; no nodes: none is wanted */
    int32_t length;   /* depth of the next draft; 0: there was none yet */
    int32_t n_misses, n_pauses, pause;
    suffix_cursor own;  /* suffix: the sequence's own tree; its root is SUFFIX_NONE before there is one */
    int32_t n_indexed;  /* its tokens that are in that tree */
    bool own_failed;    /* there was no memory for that tree */
    int32_t model_seq;       /* model: the number of its kv_seq in the draft model's cache + 1; 0: none */
    /* rejection sampling: the distributions that the first branch was drawn from, [its nodes][n_vocab]. NULL, and all other nodes: the
     * drafter gave the token probability 1. */
    const float *distributions;
    /* rejection sampling: the next token is sampled behind node `at` of a tree, whose first n_rows nodes were computed. n_rows 0: by plain
     * sampling. */
    int32_t at, n_rows;
    draft_tree tree;  /* the current draft */
} draft_seq;

/* The draft state of a new sequence: no drafts. */
static inline draft_seq draft_begin(void) {
    return (draft_seq){.own = {.root = SUFFIX_NONE}};
}

#endif
