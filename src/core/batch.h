/* A batch is the input of one step: rows of any number of sequences side by side
 * (varlen), with all slots resolved.
 *
 * A row is one token of one sequence: prefill chunks have many, a decode one, a
 * verification of drafts a few. Rows of a sequence are adjacent, and their keys and
 * values lie in the last n_rows slots of its block tables, in order. Their positions
 * ascend and equal their indices in the block table, except in a tree of drafts. There,
 * rows that could follow the same token have the same position, and a row attends to its
 * own ancestors, each at its own slot, in the order of their positions. The engine fills
 * the batch and owns all arrays; model and backend only read them. No pointer in it
 * points into a KV pool. */
#ifndef CORE_BATCH_H
#define CORE_BATCH_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "core/attn_program.h"
#include "core/kv_layout.h"

/* positions; attention cuts every sequence at multiples of this (docs/design.md,
 * Determinism) */
#define ATTN_CHUNK     256
#define BATCH_POS_AXES 4
/* levels of items that continue a state: the most shared parts into which a row's prefix
 * is cut */
#define BATCH_MAX_LEVELS 8

/* The slot of one token's K and V in a group: page * page_tokens + offset. */
typedef struct kv_slot {
    int64_t v;
} kv_slot;

/* A copy of a sequence's states, made within a step: after one of its rows (not the last)
 * the states are also written to separate pages. */
typedef struct batch_snapshot {
    int32_t row; /* of the sequence's rows, counted from 0 */
    /* the state_pages pages of the state group; written by each op that has a state */
    const int32_t *pages;
} batch_snapshot;

typedef struct batch_seq {
    int32_t row0, n_rows; /* its rows in this batch */
    /* tokens in the cache after this step has written its rows: slots of its tables in
     * use */
    int32_t n_tokens;
    bool two_sided; /* its rows, which are all of its tokens, attend to later ones too */
    /* a tree of drafts: [n_rows] the index of each row's parent among these rows, an
     * earlier one; the first row's is unused. NULL: a line */
    const int32_t *parents;
    /* its own mask and change of scores, which apply in every layer in addition to the
     * layer's attn_spec (backend.h); NULL: none. b: their input b */
    const attn_mods *mods;
    int32_t b;
    /* block table of each group: page ids, kv_pages_for(n_tokens) of them. Of a state
     * group: the state_pages pages that hold the state after the tokens before its rows,
     * undefined where there are none (row 0 is at position 0), and get the state after
     * the last row */
    const int32_t *pages[KV_MAX_GROUPS];
    int32_t n_snapshots; /* copies of its states, in ascending order of rows; a tree of drafts has none */
    const batch_snapshot *snapshots;
} batch_seq;

/* Attention of n_rows rows from row0 on, in the order of batch.work_rows, over chunks
 * chunk0..chunk0+n_chunks of ATTN_CHUNK positions each. The rows belong to sequence seq,
 * or to several that hold these chunks in the same pages, entirely before their rows.
 *
 * partial < 0: the item merges its chunks, if chunk0 > 0 into the row's state from
 * earlier items. With ATTN_WHOLE these are the last chunks that its rows attend to, and
 * it writes the result; with ATTN_CARRY it keeps the state for the item that continues at
 * chunk0 + n_chunks. Otherwise it writes (max, sum, accumulator) of each row and chunk to
 * partial buffer partial + (row - row0) * n_chunks + (chunk - chunk0), and one merge
 * entry for each row lists them. */
typedef struct attn_item {
    int32_t seq, row0, n_rows, chunk0, n_chunks, partial;
} attn_item;

#define ATTN_WHOLE (-1)
#define ATTN_CARRY (-2)

/* The result of row `row` is the merge, in this order, of partial buffers of ascending
 * chunks. */
typedef struct attn_merge {
    int32_t row, n_partials;
    const int32_t *partials;
} attn_merge;

struct adapter; /* of a backend (backend.h) */

typedef struct batch {
    int32_t n_rows; /* rows in use; buffers are sized for the limit given at open */
    int32_t n_seqs, n_out;
    /* some rows are pooled: the pass keeps the rows after the model's last norm
     * (model_hidden) */
    bool wants_rows;
    const int32_t *tokens;    /* [n_rows] token id, or -1 - e: row e of embeddings */
    const float *embeddings;  /* [.., d_model] external rows, or NULL */
    const int32_t *positions; /* [n_rows][n_axes] ; axis 0 is the position in the sequence */
    int32_t n_axes;           /* 1..BATCH_POS_AXES */
    const int32_t *types;     /* [n_rows] token type (segment); NULL: all rows are of type 0 */
    /* each [n_rows]: the slot of a row's K and V; v < 0: not written. NULL: a state
     * group */
    const kv_slot *slots[KV_MAX_GROUPS];
    const batch_seq *seqs; /* [n_seqs] */
    /* [n_adapters] the distinct adapters of this step's rows; all stay loaded until
     * step_wait */
    const struct adapter *const *adapters;
    int32_t n_adapters;
    /* [n_rows] the index of the row's adapter; -1: none. NULL: no row has one */
    const int16_t *row_adapters;
    const int32_t *out_rows; /* [n_out] rows whose logits are wanted, ascending */
    /* [n_rows] attention adds the faults of a row's programs here (attn_program.h); the
     * result of a row with faults is undefined. The caller clears them. NULL: not
     * wanted */
    atomic_uint *faults;
    int32_t n_work, n_merges, n_partials;
    const attn_item *work;    /* [n_work] */
    const int32_t *work_rows; /* [n_rows] the row at each place of the items' order; NULL: 0, 1, 2 .. */
    /* items before level_ends[0] are the first level, those before level_ends[1] the next
     * .., the rest the last */
    int32_t n_levels, level_ends[BATCH_MAX_LEVELS];
    const attn_merge *merges; /* [n_merges] */
} batch;

/* Fills items[0..] for a batch's sequences: at most tile_rows rows per item, each with
 * all its chunks (ATTN_WHOLE). Returns the number of items, or -1 if max_items is too
 * small. */
int32_t batch_plan_work(const batch_seq *seqs, int32_t n_seqs, int32_t tile_rows, attn_item *items,
                        int32_t max_items);

/* The number of positions whose keys and values the batch's work list (without partial
 * buffers) reads in a full layer: each sequence's once, those of a shared item once for
 * all its rows. */
int64_t batch_read_tokens(const batch *b);

/* ---- cascade attention ---- */

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
 * Owner: the thread that fills batches. Planning reads tables and allocates nothing. Its
 * cost is that of sorting the tables; if the order has not changed since the previous
 * plan, as in most steps, each table is compared only with the one before it. */

typedef struct cascade_limits {
    int32_t max_rows, max_seqs; /* limits of a batch */
    int32_t tile_rows;          /* most rows of one sequence that share an item */
    int32_t n_workers;          /* threads, each of which takes items one KV head at a time */
} cascade_limits;

/* Scratch memory of the planning, and its result. */
typedef struct cascade {
    const kv_layout *layout;
    cascade_limits limits;
    /* pieces into which a shared prefix's rows are cut, so that there are enough pieces
     * times KV heads for all threads */
    int32_t n_pieces;
    attn_item *items; /* [max_items] */
    int32_t max_items;
    int32_t *rows;   /* [max_rows] rows in the order of their sequences below */
    int32_t *order;  /* [max_seqs] sequences in the order of their tables */
    int32_t *before; /* [n_before] the order of the previous plan */
    int32_t n_before;
    int32_t *common; /* [max_seqs] whole chunks that a sequence shares with its predecessor in that order */
    int32_t *done;   /* [max_seqs] chunks of a sequence that shared items have computed */
} cascade;

/* Opens a cascade. The layout must outlive c. QUIRE_NO_MEMORY leaves *c closed. */
quire_err cascade_open(const kv_layout *layout, const cascade_limits *limits, cascade *c);
void cascade_close(cascade *c);

/* Plans the batch's work for its sequences: items, their levels, the order of their rows.
 * c owns the work until the next call. */
void cascade_plan(cascade *c, batch *b);

#endif
