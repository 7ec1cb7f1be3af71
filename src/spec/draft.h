/* Drafts are guesses of a sequence's next tokens. One step verifies several of them
 * (verify.h) where it would otherwise compute one token.
 *
 * Once a step the engine calls the drafter for the sequences that decode. It fills a tree
 * of guesses for each (draft_tree.h), which is a line unless the options allow branches.
 * Known tokens of a sequence never change, so what a drafter stores about them stays
 * true; a stream that is rolled back or steered continues as another sequence. A drafter
 * may write after the known tokens; tokens[0..n_agreed) are still what it saw.
 *
 * Drafts change how fast tokens come, never which ones (docs/design.md, Drafts), so a
 * drafter may guess anything. It must guess the same in every run of the same requests,
 * so that measurements repeat. Guesses of a constraint (draft_guess) are an exception:
 * measured times decide which are worth their rows, so they may differ from run to run.
 * Under DRAFT_RULE_STANDARD the draws depend on the guesses, so then tokens may differ
 * too. Logits rows never depend on drafts.
 *
 * The depth adapts to each sequence. It starts at the limit of the options. After a draft
 * that was accepted completely it doubles, up to that limit; otherwise it becomes one
 * more than the accepted length. After DRAFT_PATIENCE drafts in a row without an accepted
 * token the sequence pauses for 1, 2, 4 .. 16 steps, longer each time, until one is
 * accepted again.
 *
 * Jump-forward tokens (jump_forward.h) and the ids of a request's prediction
 * (prediction.h) are drafts too, but need no drafter. Owner: the engine thread. */
#ifndef SPEC_DRAFT_H
#define SPEC_DRAFT_H

#include <stdbool.h>
#include <stdint.h>

#include "backend/backend.h"
#include "base/err.h"
#include "kv/kv_cache.h"
#include "model/model.h"
#include "sample/sampler.h"
#include "spec/draft_tree.h"
#include "spec/prediction.h"

/* ---- draft_suffix.c: a suffix tree of sequences ---- */

#define SUFFIX_MAX_DEPTH 32
#define SUFFIX_NONE      (-1)

/* A node stands for a run of tokens: it has the run's last token, and how often the run
 * occurs. The fields are private to the tree. */
typedef struct suffix_node {
    int32_t parent, token, count;
    int32_t child, next, previous; /* first child; next and previous sibling */
    int32_t best;                  /* the last child that reached the highest count */
    /* next node in its hash bucket, the free list or the dropped list */
    int32_t bucket;
    uint8_t depth;
} suffix_node;

typedef struct suffix_tree {
    suffix_node *nodes;
    int32_t *buckets; /* [mask + 1] first node of each hash bucket */
    uint32_t mask;
    /* n_used: nodes that were ever in use; n_free: length of the free list */
    int32_t max_nodes, n_used, n_free;
    int32_t free, dropped; /* heads of lists; dropped: roots of subtrees to free */
    int32_t depth;
} suffix_tree;

/* The end of a growing text: the nodes of its last 1, 2 .. n_active tokens. */
typedef struct suffix_cursor {
    int32_t root, n_active;
    int32_t active[SUFFIX_MAX_DEPTH];
} suffix_cursor;

/* Opens a tree; 1 <= depth <= SUFFIX_MAX_DEPTH. About 40 bytes a node. */
quire_err suffix_tree_open(int32_t max_nodes, int32_t depth, suffix_tree **out);
void suffix_tree_close(suffix_tree *t);

/* Makes a new root; SUFFIX_NONE: no node is left. */
int32_t suffix_tree_root(suffix_tree *t);
/* Removes a root and all nodes below it. O(1): the nodes are freed later, as they are
 * needed. */
void suffix_tree_drop(suffix_tree *t, int32_t root);

/* Sets c to the end of an empty text under a root. */
void suffix_cursor_init(suffix_cursor *c, int32_t root);
/* Appends the next token to the text at c. False: nodes ran out; the text ends here, and
 * this token is counted only in its shorter runs. O(depth). */
bool suffix_tree_add(suffix_tree *t, suffix_cursor *c, int32_t token);

/* Counts, under root, the runs that begin at tokens[from..n) of a text of n tokens, until
 * nodes run out. Returns the index where it stopped; n: all are counted. O(n depth). */
int32_t suffix_tree_put(suffix_tree *t, int32_t root, const int32_t *tokens, int32_t n, int32_t from);
/* Undoes the counting of the runs that begin at tokens[0..end) of a text of n tokens.
 * O(end depth). */
void suffix_tree_take(suffix_tree *t, int32_t root, const int32_t *tokens, int32_t n, int32_t end);

/* Returns the node of a run under root, or SUFFIX_NONE. O(n). */
int32_t suffix_tree_find(const suffix_tree *t, int32_t root, const int32_t *tokens, int32_t n);
/* Returns the node of the longest suffix of tokens[0..n) that occurs with a token after
 * it, and sets *length; SUFFIX_NONE: there is none. O(depth log depth). */
int32_t suffix_tree_match(const suffix_tree *t, int32_t root, const int32_t *tokens, int32_t n,
                          int32_t *length);

/* Guesses, into an empty tree, what follows tokens[0..n); `node` is the run of its last
 * `length` tokens. Repeatedly adds the most likely continuation of the guesses so far,
 * while the probability of its whole path is at least min_prob. Returns the sum of these
 * probabilities, the expected number of correct tokens. */
double suffix_tree_guess(const suffix_tree *t, int32_t root, int32_t node, const int32_t *tokens, int32_t n,
                         const draft_bounds *most, double min_prob, draft_tree *out);

/* ---- drafts ---- */

#define DRAFT_PATIENCE 3
/* most drafts from a prediction in a step, if there is no method */
#define DRAFT_PREDICTED 16

typedef enum draft_method {
    DRAFT_METHOD_NONE,
    DRAFT_METHOD_NGRAM,
    DRAFT_METHOD_SUFFIX,
    DRAFT_METHOD_MODEL
} draft_method;

/* The rule by which drafts are accepted. */
typedef enum draft_rule {
    /* accepts a draft that equals the token that the target samples with its own noise:
     * the output is the same, bit for bit, as without drafts */
    DRAFT_RULE_EXACT,
    DRAFT_RULE_STANDARD /* rejection sampling (verify.h): the output is distributed as without drafts */
} draft_rule;

/* The draft model. The caller owns everything here, which outlives the drafter; the
 * drafter's thread runs it. The backend must be open with this layout, these pages,
 * max_rows = max_batched_tokens and max_out = max_seqs. */
typedef struct draft_model_options {
    model *m;
    backend *b;
    const kv_layout *layout;
    int32_t n_pages, max_len; /* max_len: most tokens of a sequence with drafts */
    /* budget of the pages' memory, as a spare pool (kv/budget.h); NULL: own memory */
    kv_budget *budget;
} draft_model_options;

typedef struct draft_options {
    draft_method method;
    draft_rule rule;
    /* most drafts of a sequence in a step, 1..DRAFT_MAX; 0: no method */
    int32_t n_tokens;
    /* most children of one token, up to DRAFT_MAX_WIDTH; 0 or 1: drafts are lines */
    int32_t tree_width;
    int32_t lookup_min, lookup_max; /* ngram: shortest and longest suffix to search for */
    int32_t suffix_depth;           /* suffix: most tokens of a run, 2..SUFFIX_MAX_DEPTH */
    int32_t suffix_texts;           /* suffix: most recent outputs to keep */
    double suffix_factor;           /* suffix: tokens to guess per matched token */
    double suffix_min_prob;         /* suffix: least probability of a guess with its whole path */
    draft_model_options model;      /* used by the method "model" */
} draft_options;

/* Tokens that a constraint forces, or makes likely, after the first n_known tokens
 * (jump_forward.h). */
typedef struct draft_outlook {
    int32_t n_known; /* 0: not computed yet */
    bool is_forced;  /* the tokens are forced; false: they are guesses */
    draft_tree tree;
} draft_outlook;

/* The draft state of a sequence, and what drafters read about it. */
typedef struct draft_seq {
    /* The sequence itself, owned by the caller, which sets n_known before each call. The
     * other members up to n_namespace are constant. */
    /* prompt and output; drafters use the space after n_known as scratch memory, as far
     * as a draft may reach */
    int32_t *tokens;
    int32_t n_known;
    const sample_context *context; /* parameters and state for sampling its tokens */
    /* copy of the constraint's state that drafters may change; NULL: no constraint */
    void *constraint_state;
    /* [n_namespace <= KV_NAMESPACE_BYTES] only outputs of this namespace become its
     * drafts */
    const uint8_t *namespace;
    size_t n_namespace;

    /* length of the draft if it is jump-forward tokens, else 0 */
    int32_t n_jump_forward;
    bool is_guess;     /* the draft was guessed by the constraint */
    bool samples_each; /* every token must be sampled for its log-probability, so none is forced */
    bool is_predicted; /* the draft comes from the prediction */
    /* the request's prediction, whose ids are drafts while the output follows them; NULL:
     * none */
    prediction_walk *prediction;
    /* recent share of guesses whose likeliest token was right; 0: no guess yet */
    float guess_first;
    /* method "model": number of leading tokens that are still as the drafter last saw
     * them; the caller adds those accepted on the first branch */
    int32_t n_agreed;
    draft_bounds wanted; /* bounds of the next draft; 0 nodes: no draft */
    int32_t length;      /* depth of the next draft; 0: there was no draft yet */
    int32_t n_misses, n_pauses, pause;
    suffix_cursor own; /* method "suffix": the sequence's own tree; root SUFFIX_NONE: none yet */
    int32_t n_indexed; /* number of its tokens in that tree */
    bool own_failed;   /* nodes for that tree ran out */
    int32_t model_seq; /* method "model": index of its kv_seq in the draft model's cache + 1; 0: none */
    /* rejection sampling: [nodes of the first branch][n_vocab] distributions from which
     * these nodes were drawn. For other nodes, or if NULL, the drafter gave the token
     * probability 1. */
    const float *distributions;
    draft_tree tree;       /* the current draft */
    draft_outlook outlook; /* owned, until it is proposed, by the thread that samples for the sequence */
} draft_seq;

typedef struct drafter drafter;
typedef struct draft_ops {
    /* Fills the empty tree of each of seqs[0..n) with guesses, within its `wanted`. */
    void (*propose)(drafter *d, draft_seq *const *seqs, int32_t n);
    /* Drops all data about s, which is about to release its pages. over: s has ended;
     * else it is preempted. NULL: the drafter stores nothing. */
    void (*forget)(drafter *d, draft_seq *s, bool over);
    /* Checks the drafter's pages like kv_cache_check. NULL: it has no pages. */
    quire_err (*check)(const drafter *d, quire_error *err);
    /* Returns the drafter's KV cache, which the engine adds to its budget and removes
     * from it. NULL: it has none. */
    kv_cache *(*cache)(drafter *d);
    void (*close)(drafter *d);
} draft_ops;

/* The first member of every drafter's own struct. */
struct drafter {
    const draft_ops *ops;
};

/* The model that verifies the drafts. Owned by the caller, and outlives the drafter;
 * `samples` is used only within `propose`. */
typedef struct draft_target {
    const model_desc *desc;
    const kv_layout *layout;
    const sample_pool *samples;
    int32_t max_seqs, max_rows;
} draft_target;

/* Opens the drafter that the options name; *out is NULL for DRAFT_METHOD_NONE.
 * QUIRE_INVALID: options out of range. QUIRE_UNSUPPORTED: the draft model has another
 * vocabulary. */
quire_err draft_open(const draft_options *o, const draft_target *t, drafter **out, quire_error *err);

/* Opens the drafter of draft_model.c; o->model has the model, its backend, layout and
 * pages. QUIRE_UNSUPPORTED: its vocabulary is not the target's. */
quire_err draft_model_open(const draft_options *o, const draft_target *t, drafter **out, quire_error *err);

/* The most logits rows of a step, for the backend's step_open: the rows of max_seqs
 * sequences with all their drafts or, without a method, with those of one request's
 * prediction; at most max_rows. */
int32_t draft_max_out(const draft_options *o, int32_t max_seqs, int32_t max_rows);
/* Whether rejection sampling decides on the drafts of a sequence with these
 * parameters. */
bool draft_by_rejection(const draft_options *o, const sampling_params *p);

/* Sets s->wanted for a step that has room for `room` drafts of s, whose tree is empty.
 * False: s pauses in this step. */
bool draft_want(draft_seq *s, const draft_options *o, int32_t room);

/* The result of verifying a sequence's draft or its jump-forward tokens. */
typedef struct draft_outcome {
    int32_t n, n_accepted; /* nodes that were verified; those of them that became known tokens */
    int32_t n_first;       /* accepted nodes on the branch of first children */
    /* the nodes were jump-forward tokens; a branch was accepted up to its last node */
    bool is_jump_forward, to_end;
} draft_outcome;

/* Bounds on the guesses of a constraint that are worth their rows (guess_bounds). */
typedef struct guess_worth {
    float least, row;
} guess_worth;

/* Fills an empty tree with up to `most` tokens that s's constraint makes likely and that
 * are worth their rows; needs no drafter. The tree's shape depends on how often the
 * likeliest token was right: a model that spells texts as its tokenizer does gets lines,
 * others get branches. */
void draft_guess(const draft_seq *s, int32_t most, const guess_worth *worth, draft_tree *out);

/* Adapts s to the result of a draft: its depth and pause, or guess_first after a
 * guess. */
void draft_adapt(draft_seq *s, const draft_options *o, const draft_outcome *result);

/* Drops the nodes of s's tree that its constraint (sample/constraint.h) forbids after the
 * tokens before them, with all nodes below. A branch of first children that was drawn
 * under the constraint stays unchanged. states: [DRAFT_MAX][CONSTRAINT_MAX_STATE_BYTES]
 * scratch memory, aligned for any object: the state after each node. O(nodes). */
void draft_constrain(draft_seq *s, uint8_t *states);

/* ---- draft.c, draft_suffix.c: the methods without a model ---- */
quire_err draft_ngram_open(const draft_options *o, drafter **out);

/* Guesses the tokens after tokens[0..n) into an empty tree: as many as `wanted` allows,
 * or none. 1 <= lookup_min <= lookup_max. Pure. O(n (lookup_max + width)) at worst. */
void draft_ngram(const int32_t *tokens, int32_t n, int32_t lookup_min, int32_t lookup_max,
                 const draft_bounds *wanted, draft_tree *out);

#define SUFFIX_NODES (1 << 19)
#define SUFFIX_OWN   8192
#define SUFFIX_TEXTS (1 << 16)
#define SUFFIX_WORK  2048

quire_err draft_suffix_open(const draft_options *o, drafter **out);

#endif
