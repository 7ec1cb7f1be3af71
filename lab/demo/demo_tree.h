/* The prefix tree that `quire demo` shows: all entries, those that a scene added and
 * used, and the evicted ones at their old position.
 *
 * Read from a quire_kv_view of one namespace, with pages of at most 16 tokens. Entries
 * are in an array, parents before children. */
#ifndef LAB_DEMO_DEMO_TREE_H
#define LAB_DEMO_DEMO_TREE_H

#include <stdbool.h>

#include "base/str.h"
#include "quire_kv.h"

#define DEMO_MAX_ENTRIES 256
#define DEMO_MAX_TOKENS  128 /* of a path */

typedef enum demo_mark { DEMO_KEPT, DEMO_NEW, DEMO_TOUCHED, DEMO_EVICTED } demo_mark;

typedef struct demo_entry {
    int32_t up; /* index; -1: none */
    int32_t n_tokens, tokens[QUIRE_KV_VIEW_LABEL];
    demo_mark mark;
} demo_entry;

typedef struct demo_tree {
    int32_t n;
    demo_entry entries[DEMO_MAX_ENTRIES];
} demo_tree;

/* One sequence of a scene: its prompt and its response. */
typedef struct demo_path {
    int32_t n, tokens[DEMO_MAX_TOKENS];
} demo_path;

/* Reads the tree of v, with all entries marked as kept. QUIRE_INTERNAL when it does not
 * fit. */
quire_err demo_tree_read(const quire_kv_view *v, demo_tree *out);
/* Adds to `now` the entries that only `before` has, as evicted, and marks the others:
 * new, or touched where one of paths[0..n) contains them. */
quire_err demo_tree_mark(const demo_tree *before, const demo_path *paths, int32_t n, demo_tree *now);
/* The number of tokens in entries with that mark. */
int32_t demo_tree_count(const demo_tree *t, demo_mark mark);

/* One piece of a drawn line: tokens with the same mark. */
typedef struct demo_part {
    demo_mark mark;
    int32_t n, tokens[DEMO_MAX_TOKENS];
} demo_part;

/* Receives the drawing line by line. A line is a path without a branch; `last[0..depth]`
 * says for each level whether it is the last of its siblings. */
typedef quire_err demo_line_fn(void *context, int32_t depth, const bool *last, const demo_part *parts,
                               int32_t n_parts);
quire_err demo_tree_draw(const demo_tree *t, demo_line_fn *fn, void *context);

#endif
