/* A batch is the input of one step: rows of any number of sequences side by side
 * (varlen), with all slots resolved.
 *
 * A row is one token of one sequence: a prefill chunk has many, a decode has one, a
 * verification of drafts a few. A sequence's rows are adjacent, and their keys and values
 * lie in the last n_rows slots of its block tables, in order. Positions ascend and equal
 * the indices in the block table, except in a tree of drafts. There, alternatives for the
 * same token have the same position, and a row attends to its own ancestors, each at its
 * own slot, in the order of their positions. The engine fills the batch and owns all
 * arrays; model and backend only read them. No pointer in it points into a KV pool. */
#ifndef CORE_BATCH_H
#define CORE_BATCH_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "core/attn_program.h"
#include "core/kv_layout.h"

/* Attention splits every sequence at multiples of this many positions (docs/design.md,
 * Determinism). */
#define ATTN_CHUNK     256
#define BATCH_POS_AXES 4
/* Most levels of work items; a level continues from the states of the one before. So a
 * row's prefix is cut into at most this many shared parts. */
#define BATCH_MAX_LEVELS 8

/* The slot of one token's K and V in a group: page * page_tokens + offset. */
typedef struct kv_slot {
    int64_t v;
} kv_slot;

/* A copy of a sequence's recurrent states, made within a step: after one of the rows (not
 * the last), the states are also written to separate pages. */
typedef struct batch_snapshot {
    int32_t row; /* the row after which to copy, counted from the sequence's first in this batch */
    /* [state_pages] destination pages of the state group; each op with a state writes its
     * part */
    const int32_t *pages;
} batch_snapshot;

typedef struct batch_seq {
    int32_t row0, n_rows; /* the sequence's rows in this batch */
    /* tokens in the cache after this step, so the used slots of the block tables */
    int32_t n_tokens;
    /* bidirectional: rows also attend to later ones; they are the whole text */
    bool two_sided;
    /* [n_rows] a tree of drafts: the index among these rows of each row's parent, an
     * earlier row; the first entry is unused. NULL: no branches */
    const int32_t *parents;
    /* the sequence's own mask and change of scores, applied in every layer in addition to
     * the layer's attn_spec (backend.h); NULL: none. b: the input b of these programs */
    const attn_mods *mods;
    int32_t b;
    /* block table of each group: kv_pages_for(n_tokens) page ids. State group:
     * state_pages pages, which hold the state before the sequence's first row (undefined
     * at position 0) and get the state after its last row */
    const int32_t *pages[KV_MAX_GROUPS];
    int32_t n_snapshots; /* copies of the states, in ascending order of rows; none in a tree of drafts */
    const batch_snapshot *snapshots;
} batch_seq;

/* One item of attention's work: n_rows rows from row0 on, in the order of
 * batch.work_rows, over n_chunks chunks of ATTN_CHUNK positions from chunk0 on. The rows
 * belong to sequence seq, or to several that share the pages of these chunks, all before
 * their rows.
 *
 * partial < 0: the item merges its chunks, if chunk0 > 0 into the row's state from
 * earlier items. With ATTN_WHOLE these are the last chunks that its rows attend to, and
 * it writes the result; with ATTN_CARRY it keeps the state for the item that continues at
 * chunk0 + n_chunks. Otherwise it writes (max, sum, accumulator) of each row and chunk to
 * partial buffer partial + (row - row0) * n_chunks + (chunk - chunk0), and one attn_merge
 * per row lists them. */
typedef struct attn_item {
    int32_t seq, row0, n_rows, chunk0, n_chunks, partial;
} attn_item;

#define ATTN_WHOLE (-1)
#define ATTN_CARRY (-2)

/* The result of row `row` is the merge of these partial buffers, in ascending order of
 * their chunks. */
typedef struct attn_merge {
    int32_t row, n_partials;
    const int32_t *partials;
} attn_merge;

struct adapter; /* defined by the backend (backend.h) */

typedef struct batch {
    int32_t n_rows; /* rows in use; buffers are sized for the limit that was given at open */
    int32_t n_seqs, n_out;
    /* some rows will be pooled: the forward pass keeps the rows after the model's last
     * norm (model_hidden) */
    bool wants_rows;
    const int32_t *tokens;    /* [n_rows] a token id, or -1 - e for row e of embeddings */
    const float *embeddings;  /* [.., d_model] external rows, or NULL */
    const int32_t *positions; /* [n_rows][n_axes] ; axis 0 is the position in the sequence */
    int32_t n_axes;           /* 1..BATCH_POS_AXES */
    const int32_t *types;     /* [n_rows] token type (segment); NULL: all rows are of type 0 */
    /* [n_rows] in each group: a row's slot of K and V; v < 0: not written. NULL: a state
     * group */
    const kv_slot *slots[KV_MAX_GROUPS];
    const batch_seq *seqs; /* [n_seqs] */
    /* [n_adapters] distinct adapters of this step's rows; loaded until step_wait */
    const struct adapter *const *adapters;
    int32_t n_adapters;
    /* [n_rows] the index of the row's adapter; -1: none. NULL: no row has one */
    const int16_t *row_adapters;
    const int32_t *out_rows; /* [n_out] rows that get logits, ascending */
    /* [n_rows] attention ORs the faults of a row's programs into this (attn_program.h);
     * the result of a row with faults is undefined. The caller clears it. NULL: not
     * wanted */
    atomic_uint *faults;
    int32_t n_work, n_merges, n_partials;
    const attn_item *work;    /* [n_work] */
    const int32_t *work_rows; /* [n_rows] items number rows in this order: place -> row. NULL: 0, 1, 2 .. */
    /* exclusive ends of the levels in `work`; the last level extends to n_work */
    int32_t n_levels, level_ends[BATCH_MAX_LEVELS];
    const attn_merge *merges; /* [n_merges] */
} batch;

/* Fills items[] for the sequences of a batch: at most tile_rows rows per item, with all
 * chunks of these rows (ATTN_WHOLE). Returns the number of items, or -1 if max_items is
 * too small. */
int32_t batch_plan_work(const batch_seq *seqs, int32_t n_seqs, int32_t tile_rows, attn_item *items,
                        int32_t max_items);

/* Positions whose keys and values the batch's work list (without partial buffers) reads
 * in a full-attention layer: those of a shared item count once for all its rows. */
int64_t batch_read_tokens(const batch *b);

/* ---- cascade attention ---- */

/* Cascade attention: the attention work list of a batch whose sequences share pages.
 * Chunks that several sequences hold in the same pages become one item over all their
 * rows, so their keys and values are read once; then each row continues alone. Which rows
 * share an item does not change a bit of the result.
 *
 * Sequences sorted by their tables form a tree whose inner nodes are common prefixes (32
 * that share 4k, 8 of which share 1k more: two nodes on one path). Each level of the tree
 * is a level of items, which continues from the states of the level above.
 *
 * Owner: the thread that fills batches. Planning reads tables and allocates nothing. It
 * costs a sort of the tables. If the order has not changed since the previous plan, as in
 * most steps, each table is compared only with the one before it. */

typedef struct cascade_limits {
    int32_t max_rows, max_seqs; /* limits of a batch */
    int32_t tile_rows;          /* most rows of one sequence that share an item */
    int32_t n_workers;          /* threads, each of which takes items one KV head at a time */
} cascade_limits;

/* Scratch memory of the planner, and the planned work. */
typedef struct cascade {
    const kv_layout *layout;
    cascade_limits limits;
    /* Number of items into which the rows of a shared prefix are cut, so that items times
     * KV heads keep all threads busy. */
    int32_t n_pieces;
    attn_item *items; /* [max_items] */
    int32_t max_items;
    int32_t *rows;   /* [max_rows] rows in the order of their sequences in `order` */
    int32_t *order;  /* [max_seqs] sequences sorted by their tables */
    int32_t *before; /* [n_before] the order of the previous plan */
    int32_t n_before;
    int32_t *common; /* [max_seqs] whole chunks that each sequence shares with its predecessor in `order` */
    int32_t *done;   /* [max_seqs] chunks of each sequence that shared items cover */
} cascade;

/* Allocates for these limits. The layout must outlive c. QUIRE_NO_MEMORY leaves *c
 * closed. */
quire_err cascade_open(const kv_layout *layout, const cascade_limits *limits, cascade *c);
void cascade_close(cascade *c);

/* Plans the attention work of a filled batch: items, levels and the order of rows. The
 * work belongs to c and is valid until the next call. */
void cascade_plan(cascade *c, batch *b);

#endif
