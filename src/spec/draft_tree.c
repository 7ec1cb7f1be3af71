#include "spec/draft_tree.h"

int32_t draft_tree_add(draft_tree *t, int32_t parent, int32_t token) {
    int32_t i = t->n++;
    t->tokens[i] = token;
    t->parents[i] = (int8_t)parent;
    t->depths[i] = (int8_t)(parent == DRAFT_ROOT ? 1 : t->depths[parent] + 1);
    return i;
}

int32_t draft_tree_next(const draft_tree *t, int32_t n, int32_t at, int32_t after) {
    for (int32_t i = (after > at ? after : at) + 1; i < n; i++) {
        if (t->parents[i] == at) {
            return i;
        }
    }
    return DRAFT_ROOT;
}

int32_t draft_tree_child(const draft_tree *t, int32_t n, int32_t at, int32_t token) {
    int32_t i = draft_tree_next(t, n, at, DRAFT_ROOT);
    while (i != DRAFT_ROOT && t->tokens[i] != token) {
        i = draft_tree_next(t, n, at, i);
    }
    return i;
}

void draft_tree_sort(draft_tree *t) {
    draft_tree sorted = {0};
    int32_t from[DRAFT_MAX]; /* old number of each node of the sorted tree */
    int32_t parent = DRAFT_ROOT, old = DRAFT_ROOT, child = draft_tree_next(t, t->n, DRAFT_ROOT, DRAFT_ROOT);
    while (sorted.n < t->n) {
        while (child == DRAFT_ROOT) { /* everything below `parent` is done: continues with its next sibling */
            child = old;
            parent = sorted.parents[parent];
            old = parent == DRAFT_ROOT ? DRAFT_ROOT : from[parent];
            child = draft_tree_next(t, t->n, old, child);
        }
        parent = draft_tree_add(&sorted, parent, t->tokens[child]);
        old = from[parent] = child;
        child = draft_tree_next(t, t->n, old, DRAFT_ROOT);
    }
    *t = sorted;
}
