/* Runs a sequence's own mask_mod and score_mod (core/attn_program.h) for tiles of
 * queries.
 *
 * The map has a mask's result for each rectangle of queries and chunks, computed once per
 * step for all layers and heads. Tiles skip chunks that the mask hides entirely, and do
 * not test keys in chunks that it shows entirely. In other chunks the program runs per
 * key; if each query's visible positions are contiguous, as with causal masks and
 * windows, the tile is computed as with the layer's own mask.
 *
 * Owner: the thread that begins a step writes the map, and workers read it; registers and
 * changes belong to a worker. */
#ifndef CPU_ATTENTION_MODS_H
#define CPU_ATTENTION_MODS_H

#include "backend/cpu/math.h"

/* Registers of the program that a worker runs, and faults of its row and key code. */
typedef struct attn_registers {
    int64_t *rows;    /* [ATTN_PROGRAM_ROW_REGS][ATTN_PROGRAM_QUERIES] */
    int64_t *vectors; /* [ATTN_PROGRAM_VECTORS][ATTN_PROGRAM_KEYS] */
    uint8_t row_faults[ATTN_PROGRAM_QUERIES], key_faults[ATTN_PROGRAM_KEYS], faults[ATTN_PROGRAM_KEYS];
} attn_registers;

/* A program whose row and key code has run for a tile of queries and the chunk's
 * positions lane0..lane0 + n. */
typedef struct attn_change {
    const attn_program *program;
    attn_run_fn *run;
    attn_functions functions;
    attn_registers *regs;
    int32_t lane0, n;          /* multiples of ATTN_BLOCK */
    uint8_t faults[ATTN_TILE]; /* of each query */
} attn_change;

/* A program's inputs for a tile's queries; only `position` differs between chunks. */
typedef struct attn_asked {
    int32_t n, b, n_heads;
    int32_t position[ATTN_TILE], head[ATTN_TILE], n_kv[ATTN_TILE];
} attn_asked;

/* Runs the program's row and key code for positions first..end of the chunk at position
 * `base`. Set c->regs, run and functions before. */
void attn_change_begin(const attn_program *p, const attn_asked *q, int32_t base, int32_t first, int32_t end,
                       attn_change *c);
/* Narrows first..end of the chunk at position `base`, and each query's range, to where
 * the mask may show a key. For a narrow band, about ten range evaluations replace running
 * the program over the whole chunk. */
void attn_change_narrow(const attn_program *p, const attn_asked *q, int32_t base, attn_tile *t,
                        int32_t *first, int32_t *end);
/* Runs a mask's program for all queries of a tile. Narrows each query's first..end to the
 * visible positions and fills seen [n_queries][ATTN_BLOCKS]. Returns whether some query
 * sees only part of its first..end. */
bool attn_change_mask(const attn_asked *q, attn_change *c, attn_tile *t, uint16_t *seen);

/* ---- the map ---- */

#define ATTN_MAP_BYTES (256 * 1024) /* items whose chunks don't fit are evaluated tile by tile */

/* The chunks of an item. Those before `first` and from `end` on are entirely hidden. */
typedef struct attn_mapped {
    const uint8_t *verdicts; /* an attn_seen per chunk from item->chunk0 on; NULL: unknown */
    int32_t first, end;
} attn_mapped;

typedef struct attn_map {
    uint8_t *verdicts;  /* [ATTN_MAP_BYTES] */
    attn_mapped *items; /* [max_items] of the batch's work list */
    int32_t max_items, n_items;
    attn_range heads; /* fewest and most query heads of a layer */
} attn_map;

/* Fills the map for a batch; does nothing if no sequence has a mask. */
void attn_map_fill(const batch *step, attn_map *m);
#endif
