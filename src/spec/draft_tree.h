/* A tree of guesses behind a sequence's last known token: tokens that may come next, behind each of them those that may come then, and so
 * on. A line is a tree in which nothing has two children.
 *
 * Nodes are numbered so that a node comes behind the one before it; so the first n nodes of a tree are a tree too, which is how it is cut
 * where rows or pages are short. Small enough for a sequence to hold it; nothing here is allocated. Owner: whoever holds it. */
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
    int8_t parents[DRAFT_MAX]; /* the node before each; DRAFT_ROOT: the last known token */
    int8_t depths[DRAFT_MAX];  /* tokens between the last known one and what follows the node: 1.. */
} draft_tree;

/* How large a tree may get. */
typedef struct draft_bounds {
    int32_t nodes, depth, width; /* width: children of a node */
} draft_bounds;

/* A new last node; returns its number. The tree has less than DRAFT_MAX. */
int32_t draft_tree_add(draft_tree *t, int32_t parent, int32_t token);
/* Which of the first n nodes is the child of `at` that is `token`; DRAFT_ROOT: none is. O(n). */
int32_t draft_tree_child(const draft_tree *t, int32_t n, int32_t at, int32_t token);
/* The first child of `at` behind node `after` (or, DRAFT_ROOT, at all) among the first n nodes; DRAFT_ROOT: there is none. O(n). */
int32_t draft_tree_next(const draft_tree *t, int32_t n, int32_t at, int32_t after);
/* The greatest depth of the first n nodes. O(n). */
int32_t draft_tree_depth(const draft_tree *t, int32_t n);
/* Renumbers: every node is followed by its first child with all that descends from it, then by its next child, in the order in which they
 * were added. So the branch of first children comes first and lies where it would as a line. O(n). */
void draft_tree_sort(draft_tree *t);

#endif
