/* Cascade: the attention work list of a batch whose sequences share pages. Chunks that several sequences hold in the same pages become one item over
 * all their rows, so that their keys and values are read once; each row goes on from there alone. Which rows meet in an item shows in no bit.
 *
 * Sequences in the order of their tables form a tree, common prefixes its inner nodes (32 that share 4k, of which 8 share 1k more: two nodes on one
 * path). A level of it is a wave of items (batch.h), which goes on from the states that the level above left.
 *
 * Owner: whoever fills batches, one thread. Planning reads tables, allocates nothing, and takes as long as comparing the tables while sorting them. */
#ifndef CORE_CASCADE_H
#define CORE_CASCADE_H

#include "core/batch.h"

/* Room to plan in, for batches of at most max_rows rows of max_seqs sequences. */
typedef struct cascade {
    const kv_layout *layout;
    int32_t max_rows, max_seqs, tile_rows;
    attn_item *items; /* [max_items] */
    int32_t max_items;
    int32_t *rows;    /* [max_rows] rows in the order of their sequences below */
    int32_t *order;   /* [max_seqs] sequences in the order of their tables */
    int32_t *common;  /* [max_seqs] whole chunks that one shares with the one before it in that order */
    int32_t *done;    /* [max_seqs] chunks that shared items have computed for it */
} cascade;

/* The layout must outlive c. QUIRE_NO_MEMORY leaves *c closed. */
quire_err cascade_open(const kv_layout *layout, int32_t max_rows, int32_t max_seqs, int32_t tile_rows, cascade *c);
void cascade_close(cascade *c);

/* Sets the batch's work (items, their waves, the order of their rows) for its sequences, at most tile_rows rows of one sequence an item but where a
 * prefix is shared. The work lies in c until the next call. */
void cascade_plan(cascade *c, batch *b);

#endif
