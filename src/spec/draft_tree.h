/* A draft tree: guesses of the tokens that follow a sequence's last known token, and for
 * each guess the guesses that follow it. In a line every node has at most one child.
 *
 * A node has a larger number than its parent, so the first n nodes are a tree too, which
 * is used when rows or pages are short. The tree is small enough to be a member of a
 * sequence, and allocates nothing. Owner: the struct that holds it. */
#ifndef SPEC_DRAFT_TREE_H
#define SPEC_DRAFT_TREE_H

#include <stdbool.h>
#include <stdint.h>

#define DRAFT_MAX       32 /* most nodes */
#define DRAFT_MAX_WIDTH 8  /* most children of a node */
#define DRAFT_ROOT      (-1)

typedef struct draft_tree {
    int32_t n;
    int32_t tokens[DRAFT_MAX];
    int8_t parents[DRAFT_MAX]; /* parent of each node; DRAFT_ROOT: the last known token */
    int8_t depths[DRAFT_MAX];  /* distance of each node from the last known token, from 1 */
} draft_tree;

/* Limits on the size of a tree. */
typedef struct draft_bounds {
    int32_t nodes, depth, width; /* width: most children of a node */
} draft_bounds;

/* Adds a node and returns its number. The tree has fewer than DRAFT_MAX nodes. */
int32_t draft_tree_add(draft_tree *t, int32_t parent, int32_t token);
/* Returns the child of `at` with this token among the first n nodes; DRAFT_ROOT: none.
 * O(n). */
int32_t draft_tree_child(const draft_tree *t, int32_t n, int32_t at, int32_t token);
/* Returns the first child of `at` after node `after` (DRAFT_ROOT: its first child) among
 * the first n nodes; DRAFT_ROOT: none. O(n). */
int32_t draft_tree_next(const draft_tree *t, int32_t n, int32_t at, int32_t after);
/* Number of nodes on the branch of first children, which come first in a sorted tree. */
static inline int32_t draft_tree_first_branch(const draft_tree *t) {
    int32_t n = 0;
    while (n < t->n && t->parents[n] == n - 1) {
        n++;
    }
    return n;
}
/* Renumbers the nodes depth first, siblings in the order in which they were added. The
 * branch of first children then comes first, in the places where a line would be.
 * O(n). */
void draft_tree_sort(draft_tree *t);

#endif
