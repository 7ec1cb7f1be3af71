/* Suffix tree: which tokens followed which, in several texts. A trie of every run of up to `depth` tokens, with how often each occurs; a
 * text's runs hang under a root, and several texts may share one. Texts grow at their end, and can be taken out again.
 *
 * Nodes come from a slab of fixed size: nothing is allocated after open, and when it is full a text is left as far as it got.
 * Owner: one thread. Invariant: a node's count is at least the sum of its children's; none is 0. */
#ifndef SPEC_SUFFIX_TREE_H
#define SPEC_SUFFIX_TREE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "spec/draft_tree.h"

#define SUFFIX_MAX_DEPTH 32
#define SUFFIX_NONE      (-1)

typedef struct suffix_tree suffix_tree;

/* A text that grows: the nodes of its last 1, 2 .. n_active tokens. */
typedef struct suffix_cursor {
    int32_t root, n_active;
    int32_t active[SUFFIX_MAX_DEPTH];
} suffix_cursor;

/* 1 <= depth <= SUFFIX_MAX_DEPTH. About 40 bytes a node. */
quire_err suffix_tree_open(int32_t max_nodes, int32_t depth, suffix_tree **out);
void suffix_tree_close(suffix_tree *t);

/* A new root, or SUFFIX_NONE when there is no node left. */
int32_t suffix_tree_root(suffix_tree *t);
/* Takes a root out with all that hangs under it. The nodes become free as they are needed: O(1). */
void suffix_tree_drop(suffix_tree *t, int32_t root);

/* Whether one more token of a text is sure to find its nodes. */
bool suffix_tree_has_room(suffix_tree *t);

/* The empty text under a root. */
void suffix_cursor_init(suffix_cursor *c, int32_t root);
/* Adds the next token. False when nodes are lacking: the text ends here, and this token counts for its shorter runs only. O(depth). */
bool suffix_tree_add(suffix_tree *t, suffix_cursor *c, int32_t token);

/* Counts the runs of a text of n tokens once more under root: those that begin at tokens[from..n), as far as nodes suffice. Returns where
 * it got to, n: all are in. O(n depth). */
int32_t suffix_tree_put(suffix_tree *t, int32_t root, const int32_t *tokens, int32_t n, int32_t from);
/* Takes the runs that begin at tokens[0..end) of a text of n tokens out again. O(end depth). */
void suffix_tree_take(suffix_tree *t, int32_t root, const int32_t *tokens, int32_t n, int32_t end);
bool suffix_tree_has_children(const suffix_tree *t, int32_t node);

/* The node of a run under root, or SUFFIX_NONE. O(n). */
int32_t suffix_tree_find(const suffix_tree *t, int32_t root, const int32_t *tokens, int32_t n);
/* The longest suffix of tokens[0..n) that occurs and has something behind it; its node, SUFFIX_NONE without one, and its length. O(depth
 * log depth). */
int32_t suffix_tree_match(const suffix_tree *t, int32_t root, const int32_t *tokens, int32_t n, int32_t *length);
int32_t suffix_tree_count(const suffix_tree *t, int32_t node);

/* Guesses what follows behind tokens[0..n), which ends with the `length` tokens of `node`, into an empty tree: of all that may follow what
 * is guessed already the likeliest each time, while its probability, with all before it, is at least min_prob. Returns the sum of these
 * probabilities: how many to expect right. */
double suffix_tree_guess(const suffix_tree *t, int32_t root, int32_t node, const int32_t *tokens, int32_t n, const draft_bounds *most,
                         double min_prob, draft_tree *out);

/* For tests: whether counts, links and the number of nodes agree. O(nodes). */
bool suffix_tree_check(const suffix_tree *t);

#endif
