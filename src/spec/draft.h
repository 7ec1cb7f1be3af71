/* Drafts are guesses of the next tokens, so that one step can verify several tokens
 * (verify.h) where it would have computed one.
 *
 * Once a step the engine calls the drafter for the sequences that decode. It fills a tree
 * of guesses for each (draft_tree.h), which is a line unless the options allow branches.
 * Known tokens of a sequence never change, so what a drafter keeps about them stays true;
 * a stream that is rolled back or steered continues as another sequence. Where a drafter
 * wrote after the known tokens, tokens[0..n_agreed) are still what it saw. Drafts change
 * how fast tokens come, never which ones (docs/design.md, Drafts), so a drafter may guess
 * freely. It must guess the same in every run of the same requests, so that figures
 * repeat. Guesses of a constraint (draft_guess) may differ from run to run, since
 * measured times decide which are worth their rows; under DRAFT_RULE_STANDARD, whose
 * draws depend on the guesses, the tokens may then differ too. No row of logits depends
 * on it.
 *
 * The depth adapts to each sequence. It begins at the most that the options allow. It
 * doubles, up to that, after a draft that was accepted completely; otherwise it becomes
 * one more than the accepted length. After DRAFT_PATIENCE drafts in a row without an
 * accepted token the sequence pauses for 1, 2, 4 .. 16 steps, longer each time, until one
 * is accepted again.
 *
 * Jump-forward tokens (jump_forward.h) and the ids of a request's prediction
 * (prediction.h) are drafts too, and need no drafter. Owner: one thread, the engine's. */
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

/* A run of tokens: its last token, and how often the run occurs. The fields are the
 * tree's own. */
typedef struct suffix_node {
    int32_t parent, token, count;
    int32_t child, next, previous; /* first child; siblings */
    int32_t best;                  /* the last child that reached the highest count */
    /* the next one in its hash bucket, in the free list or in the dropped list */
    int32_t bucket;
    uint8_t depth;
} suffix_node;

typedef struct suffix_tree {
    suffix_node *nodes;
    int32_t *buckets; /* [mask + 1] */
    uint32_t mask;
    /* n_used: nodes that were ever in use; n_free: nodes in the free list */
    int32_t max_nodes, n_used, n_free;
    int32_t free, dropped; /* dropped: subtrees whose nodes are to be freed */
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

/* A new root, or SUFFIX_NONE when there is no node left. */
int32_t suffix_tree_root(suffix_tree *t);
/* Removes a root and all nodes below it. They are freed one by one as nodes are needed:
 * O(1). */
void suffix_tree_drop(suffix_tree *t, int32_t root);

/* Makes c the end of an empty text under a root. */
void suffix_cursor_init(suffix_cursor *c, int32_t root);
/* Adds the next token. False if there are too few nodes: the text ends here, and this
 * token counts only in its shorter runs. O(depth). */
bool suffix_tree_add(suffix_tree *t, suffix_cursor *c, int32_t token);

/* Counts the runs of a text of n tokens under root: those that begin at
 * tokens[from..n), as long as there are free nodes. Returns the index at which it
 * stopped; n: all are counted. O(n depth). */
int32_t suffix_tree_put(suffix_tree *t, int32_t root, const int32_t *tokens, int32_t n, int32_t from);
/* Uncounts the runs that begin at tokens[0..end) of a text of n tokens. O(end depth). */
void suffix_tree_take(suffix_tree *t, int32_t root, const int32_t *tokens, int32_t n, int32_t end);

/* The node of a run under root, or SUFFIX_NONE. O(n). */
int32_t suffix_tree_find(const suffix_tree *t, int32_t root, const int32_t *tokens, int32_t n);
/* The node of the longest suffix of tokens[0..n) that occurs with a token after it, and
 * its length; SUFFIX_NONE: there is none. O(depth log depth). */
int32_t suffix_tree_match(const suffix_tree *t, int32_t root, const int32_t *tokens, int32_t n,
                          int32_t *length);

/* Guesses what follows tokens[0..n), which ends with the `length` tokens of `node`, into
 * an empty tree. Keeps adding the most likely continuation of the guesses so far, while
 * the probability of the whole path is at least min_prob. Returns the sum of these
 * probabilities: the expected number of correct tokens. */
double suffix_tree_guess(const suffix_tree *t, int32_t root, int32_t node, const int32_t *tokens, int32_t n,
                         const draft_bounds *most, double min_prob, draft_tree *out);

/* ---- drafts ---- */

#define DRAFT_PATIENCE 3
/* most drafts of a prediction in a step, unless the method has its own limit */
#define DRAFT_PREDICTED 16

typedef enum draft_method {
    DRAFT_METHOD_NONE,
    DRAFT_METHOD_NGRAM,
    DRAFT_METHOD_SUFFIX,
    DRAFT_METHOD_MODEL
} draft_method;

/* The rule by which drafts are accepted. */
typedef enum draft_rule {
    /* a draft must equal what the target samples with its own noise: the output is the
     * same, bit for bit, as without drafts */
    DRAFT_RULE_EXACT,
    DRAFT_RULE_STANDARD /* by rejection sampling (verify.h): output distributed as without drafts */
} draft_rule;

/* The draft model. The caller owns all of it, and has opened the backend with this
 * layout, these pages, max_rows = max_batched_tokens and max_out = max_seqs. All of it
 * outlives the drafter, whose thread runs it. */
typedef struct draft_model_options {
    model *m;
    backend *b;
    const kv_layout *layout;
    int32_t n_pages, max_len; /* max_len: most tokens of a sequence that is drafted for */
    /* budget from which the pages take memory, as spare pages (kv/budget.h). NULL: memory
     * of their own */
    kv_budget *budget;
} draft_model_options;

typedef struct draft_options {
    draft_method method;
    draft_rule rule;
    /* most drafts of a sequence in a step, 1..DRAFT_MAX; 0 if there is no method */
    int32_t n_tokens;
    /* most children of one token, up to DRAFT_MAX_WIDTH; 0 or 1: one, so drafts are
     * lines */
    int32_t tree_width;
    int32_t lookup_min, lookup_max; /* ngram: lengths of the suffix that is searched for */
    int32_t suffix_depth;           /* suffix: tokens of a run, 2..SUFFIX_MAX_DEPTH */
    int32_t suffix_texts;           /* recent outputs that are kept */
    double suffix_factor;           /* tokens guessed for each token that matched */
    double suffix_min_prob;         /* least probability of all guessed tokens together */
    draft_model_options model;      /* model */
} draft_options;

/* What a constraint forces or guesses after the first n_known tokens (jump_forward.h). */
typedef struct draft_outlook {
    int32_t n_known; /* 0: it was not queried yet */
    bool is_forced;  /* otherwise it is a guess */
    draft_tree tree;
} draft_outlook;

/* The draft state of a sequence, and what drafters read of it. */
typedef struct draft_seq {
    /* The sequence; the caller's, which sets n_known before each call. All else is
     * constant. */
    /* prompt and output; what lies after n_known is scratch memory for drafters, as far
     * as a draft may reach */
    int32_t *tokens;
    int32_t n_known;
    const sample_context *context; /* context of its samples */
    /* a drafter's own copy of the constraint's state, which its guesses change; NULL: no
     * constraint */
    void *constraint_state;
    /* [n_namespace <= KV_NAMESPACE_BYTES] outputs are shared within a namespace only */
    const uint8_t *namespace;
    size_t n_namespace;

    /* 0, or the whole draft, which is a line: the request's own rules alone decide these
     * tokens */
    int32_t n_jump_forward;
    bool is_guess;     /* the draft is a guess of the constraint */
    bool samples_each; /* each token is sampled, for its log-probability: none is forced */
    bool is_predicted; /* the draft comes from the prediction */
    /* the request's own prediction, whose ids are drafted as long as the output
     * follows them; NULL: none */
    prediction_walk *prediction;
    /* recent share of guesses whose likeliest next token was right; 0: no guess was
     * made yet */
    float guess_first;
    /* model: leading tokens that are still as the drafter last saw them; the caller adds
     * those accepted on the first branch */
    int32_t n_agreed;
    draft_bounds wanted; /* bounds of the next draft; no nodes: none is wanted */
    int32_t length;      /* depth of the next draft; 0: there was none yet */
    int32_t n_misses, n_pauses, pause;
    suffix_cursor own; /* suffix: the sequence's own tree; its root is SUFFIX_NONE before there is one */
    int32_t n_indexed; /* its tokens that are in that tree */
    bool own_failed;   /* out of memory for that tree */
    int32_t model_seq; /* model: the number of its kv_seq in the draft model's cache + 1; 0: none */
    /* rejection sampling: the distributions from which the first branch was drawn, [its
     * nodes][n_vocab]. For all other nodes, or if NULL, the drafter gave the token
     * probability 1. */
    const float *distributions;
    draft_tree tree;       /* the current draft */
    draft_outlook outlook; /* owned by the thread that samples for the sequence, until it is proposed */
} draft_seq;

typedef struct drafter drafter;
typedef struct draft_ops {
    /* For each of seqs[0..n): puts guesses into its tree, which is empty, within
     * `wanted`. */
    void (*propose)(drafter *d, draft_seq *const *seqs, int32_t n);
    /* Drops what is kept about s, which is releasing its pages (over: it ends; otherwise
     * it is preempted). NULL: nothing is kept. */
    void (*forget)(drafter *d, draft_seq *s, bool over);
    /* Checks its pages as kv_cache_check does. NULL: it has no pages. */
    quire_err (*check)(const drafter *d, quire_error *err);
    /* Its KV cache, which the engine adds to its budget and removes from it. NULL: it has
     * none. */
    kv_cache *(*cache)(drafter *d);
    void (*close)(drafter *d);
} draft_ops;

/* The first member of every drafter's own struct. */
struct drafter {
    const draft_ops *ops;
};

/* The target of drafts. Owned by the caller, and outlives the drafter; `samples` is used
 * within `propose`. */
typedef struct draft_target {
    const model_desc *desc;
    const kv_layout *layout;
    const sample_pool *samples;
    int32_t max_seqs, max_rows;
} draft_target;

/* Opens the drafter that the options name; NULL where they name none. QUIRE_INVALID for
 * options out of range, QUIRE_UNSUPPORTED where the draft model has another
 * vocabulary. */
quire_err draft_open(const draft_options *o, const draft_target *t, drafter **out, quire_error *err);

/* Opens the drafter of draft_model.c. o->model has the model, its backend, layout and
 * pages. QUIRE_UNSUPPORTED when its vocabulary is not the target's. */
quire_err draft_model_open(const draft_options *o, const draft_target *t, drafter **out, quire_error *err);

/* The most rows with logits in a step, for the backend's step_open: those of max_seqs
 * sequences with all their drafts or, without a method, of one request's prediction; at
 * most max_rows. */
int32_t draft_max_out(const draft_options *o, int32_t max_seqs, int32_t max_rows);
/* Whether the drafts of a sequence with these parameters are accepted by rejection
 * sampling. */
bool draft_by_rejection(const draft_options *o, const sampling_params *p);

/* Sets s->wanted for a step with room for `room` drafts of s, whose tree is empty. False:
 * s pauses in this step. */
bool draft_want(draft_seq *s, const draft_options *o, int32_t room);

/* The result of verifying a sequence's draft or its jump-forward tokens. */
typedef struct draft_outcome {
    int32_t n, n_accepted; /* nodes that were verified; how many of them became known tokens */
    int32_t n_first;       /* how many of the accepted are on the branch of first children */
    /* they were jump-forward tokens; a whole branch was accepted, up to its last node */
    bool is_jump_forward, to_end;
} draft_outcome;

/* Which guesses of a constraint are worth their rows (guess_bounds). */
typedef struct guess_worth {
    float least, row;
} guess_worth;

/* Fills an empty tree with up to `most` tokens that s's constraint makes likely and that
 * are worth their rows: a draft without a drafter. Its shape depends on how often the
 * likeliest token was right: a model that spells texts as its tokenizer does gets lines,
 * others get branches. */
void draft_guess(const draft_seq *s, int32_t most, const guess_worth *worth, draft_tree *out);

/* Adapts s's depth to the result of a draft, from the drafter, the prediction or a
 * guess. */
void draft_adapt(draft_seq *s, const draft_options *o, const draft_outcome *result);

/* Removes the drafts that a sequence's constraint forbids (sample/constraint.h). */

/* Drops those nodes of s's tree that its constraint forbids after the tokens before them,
 * with all below them. A branch of first children that was drawn under the constraint
 * stays as it is. states: [DRAFT_MAX][CONSTRAINT_MAX_STATE_BYTES] scratch memory, aligned
 * as for any object: the state after each node. O(nodes) */
void draft_constrain(draft_seq *s, uint8_t *states);

/* ---- draft.c, draft_suffix.c: the methods without a model ---- */
quire_err draft_ngram_open(const draft_options *o, drafter **out);

/* Guesses the tokens after tokens[0..n) into an empty tree: as many as are wanted, or
 * none. 1 <= lookup_min <= lookup_max. Pure. O(n (lookup_max + width)) at worst. */
void draft_ngram(const int32_t *tokens, int32_t n, int32_t lookup_min, int32_t lookup_max,
                 const draft_bounds *wanted, draft_tree *out);

#define SUFFIX_NODES (1 << 19)
#define SUFFIX_OWN   8192
#define SUFFIX_TEXTS (1 << 16)
#define SUFFIX_WORK  2048

quire_err draft_suffix_open(const draft_options *o, drafter **out);

#endif
