/* Cascade attention: the attention work list of a batch whose sequences share pages.
 * Chunks that several sequences hold in the same pages become one item over all their
 * rows, so that their keys and values are read once; then each row continues alone. Which
 * rows share an item changes no bit.
 *
 * Sequences in the order of their tables form a tree, whose inner nodes are common
 * prefixes (32 that share 4k, of which 8 share 1k more: two nodes on one path). A level
 * of the tree is a level of items (batch.h), which continues from the states that the
 * level above left.
 *
 * Owner: the thread that fills batches. Planning reads tables and allocates nothing. It
 * takes as long as comparing the tables while sorting them; where the order is that of
 * the plan before, as in most steps, each is compared with the one before it only. */
#ifndef CORE_CASCADE_H
#define CORE_CASCADE_H

#include "core/batch.h"

typedef struct cascade_limits {
    int32_t max_rows, max_seqs; /* limits of a batch */
    int32_t tile_rows;          /* most rows of one sequence that share an item */
    int32_t n_workers;          /* threads, each of which takes items one KV head at a time */
} cascade_limits;

/* Scratch memory of the planning, and its result. */
typedef struct cascade {
    const kv_layout *layout;
    cascade_limits limits;
    /* pieces into which a shared prefix's rows are cut, so that every thread has a KV
     * head of one to compute */
    int32_t n_pieces;
    attn_item *items; /* [max_items] */
    int32_t max_items;
    int32_t *rows;   /* [max_rows] rows in the order of their sequences below */
    int32_t *order;  /* [max_seqs] sequences in the order of their tables */
    int32_t *before; /* [n_before] the order of the previous plan */
    int32_t n_before;
    int32_t *common; /* [max_seqs] whole chunks that a sequence shares with the one before it in that order */
    int32_t *done;   /* [max_seqs] chunks of a sequence that shared items have computed */
} cascade;

/* Opens a cascade. The layout must outlive c. QUIRE_NO_MEMORY leaves *c closed. */
quire_err cascade_open(const kv_layout *layout, const cascade_limits *limits, cascade *c);
void cascade_close(cascade *c);

/* Plans the batch's work for its sequences: items, their levels, the order of their rows.
 * c owns the work until the next call. */
void cascade_plan(cascade *c, batch *b);

#endif
