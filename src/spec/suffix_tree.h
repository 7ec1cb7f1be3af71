/* A suffix tree counts which tokens followed which in several texts: a trie of all runs
 * of up to `depth` tokens with their numbers of occurrences.
 *
 * A text's runs lie under a root, and several texts may share one. Texts grow at their
 * end, and can be taken out again. Nodes come from a slab of fixed size: nothing is
 * allocated after open, and when the slab is full the rest of a text is left out.
 * Owner: one thread. Invariant: a node's count is at least the sum of its children's;
 * none is 0. */
#ifndef SPEC_SUFFIX_TREE_H
#define SPEC_SUFFIX_TREE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "spec/draft_tree.h"

#define SUFFIX_MAX_DEPTH 32
#define SUFFIX_NONE      (-1)

/* A run of tokens: its last token, and how often the run occurs. The fields are the
 * tree's own. */
typedef struct suffix_node {
    int32_t parent, token, count;
    int32_t child, next, previous; /* its first child; its siblings */
    int32_t best;                  /* the last child that reached the highest count */
    /* the next in its hash bucket; in the free list or the dropped list the next there */
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

/* Whether there are surely enough nodes for one more token of a text. */
bool suffix_tree_has_room(suffix_tree *t);

/* Makes c the end of an empty text under a root. */
void suffix_cursor_init(suffix_cursor *c, int32_t root);
/* Adds the next token. False when there are too few nodes: the text ends here, and this
 * token is counted in its shorter runs only. O(depth). */
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
 * an empty tree. It adds the likeliest continuation of the guesses so far again and
 * again, while its probability, with all before it, is at least min_prob. Returns the sum
 * of these probabilities: the expected number of right tokens. */
double suffix_tree_guess(const suffix_tree *t, int32_t root, int32_t node, const int32_t *tokens, int32_t n,
                         const draft_bounds *most, double min_prob, draft_tree *out);

#endif
