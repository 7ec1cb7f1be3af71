/* A draft tree: guesses of the tokens after a sequence's last known token, and after each
 * of them guesses of the next. A line is a tree whose nodes have one child each.
 *
 * A node has a larger number than its parent. So the first n nodes of a tree are a tree
 * too, which is used when rows or pages are short. It is small enough to be a member of a
 * sequence, and needs no allocation. Owner: the struct that holds it. */
#ifndef SPEC_DRAFT_TREE_H
#define SPEC_DRAFT_TREE_H

#include <stdbool.h>
#include <stdint.h>

#define DRAFT_MAX       32 /* nodes */
#define DRAFT_MAX_WIDTH 8  /* children of a node */
#define DRAFT_ROOT      (-1)

typedef struct draft_tree {
    int32_t n;
    int32_t tokens[DRAFT_MAX];
    int8_t parents[DRAFT_MAX]; /* a node's parent; DRAFT_ROOT: the last known token */
    int8_t depths[DRAFT_MAX];  /* distance from the last known token: 1.. */
} draft_tree;

/* Limits on the size of a tree. */
typedef struct draft_bounds {
    int32_t nodes, depth, width; /* width: children of a node */
} draft_bounds;

/* Adds a node at the end and returns its number. The tree has less than DRAFT_MAX
 * nodes. */
int32_t draft_tree_add(draft_tree *t, int32_t parent, int32_t token);
/* The child of `at` with this token among the first n nodes; DRAFT_ROOT: there is none.
 * O(n). */
int32_t draft_tree_child(const draft_tree *t, int32_t n, int32_t at, int32_t token);
/* The first child of `at` after node `after` (DRAFT_ROOT: the first of all) among the
 * first n nodes; DRAFT_ROOT: there is none. O(n). */
int32_t draft_tree_next(const draft_tree *t, int32_t n, int32_t at, int32_t after);
/* How many nodes the branch of first children has, which come first in a sorted tree. */
static inline int32_t draft_tree_first_branch(const draft_tree *t) {
    int32_t n = 0;
    while (n < t->n && t->parents[n] == n - 1) {
        n++;
    }
    return n;
}
/* Renumbers the nodes depth first, children in the order in which they were added. So the
 * branch of first children comes first and lies where a line would. O(n). */
void draft_tree_sort(draft_tree *t);

#endif
