/* Cascade: the attention work list of a batch whose sequences share pages. Chunks that several sequences hold in the same pages become one
 * item over all their rows, so that their keys and values are read once; each row goes on from there alone. Which rows meet in an item
 * shows in no bit.
 *
 * Sequences in the order of their tables form a tree, common prefixes its inner nodes (32 that share 4k, of which 8 share 1k more: two
 * nodes on one path). A level of it is a level of items (batch.h), which goes on from the states that the level above left.
 *
 * Owner: whoever fills batches, one thread. Planning reads tables, allocates nothing, and takes as long as comparing the tables
 * while sorting them: each with the one before it where the order is that of the plan before, as in most steps. */
#ifndef CORE_CASCADE_H
#define CORE_CASCADE_H

#include "core/batch.h"

typedef struct cascade_limits {
    int32_t max_rows, max_seqs; /* of a batch */
    int32_t tile_rows;          /* rows of one sequence that share an item at most */
    int32_t n_workers;          /* threads, which take items KV head by KV head */
} cascade_limits;

/* Room to plan in. */
typedef struct cascade {
    const kv_layout *layout;
    cascade_limits limits;
    int32_t n_pieces; /* that a shared prefix's rows are cut into, so that every thread has a KV head of one to compute */
    attn_item *items; /* [max_items] */
    int32_t max_items;
    int32_t *rows;   /* [max_rows] rows in the order of their sequences below */
    int32_t *order;  /* [max_seqs] sequences in the order of their tables */
    int32_t *before; /* [n_before] the order of the plan before */
    int32_t n_before;
    int32_t *common; /* [max_seqs] whole chunks that one shares with the one before it in that order */
    int32_t *done;   /* [max_seqs] chunks that shared items have computed for it */
} cascade;

/* The layout must outlive c. QUIRE_NO_MEMORY leaves *c closed. */
quire_err cascade_open(const kv_layout *layout, const cascade_limits *limits, cascade *c);
void cascade_close(cascade *c);

/* Sets the batch's work (items, their levels, the order of their rows) for its sequences. The work lies in c until the next call. */
void cascade_plan(cascade *c, batch *b);

#endif
