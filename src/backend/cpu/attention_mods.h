/* Runs a sequence's own mask and change of scores (core/attn_program.h) for tiles of
 * queries.
 *
 * The map holds a mask's result for each rectangle of queries and chunks, found once per
 * step for all layers and heads. Tiles skip chunks that the mask hides entirely, and do
 * not test keys in chunks that it shows entirely. In the others the program runs over the
 * chunk; if each query's visible positions are contiguous, as with causal masks and
 * windows, the tile is computed as with the layer's own mask.
 *
 * Owner: the map is written by the thread that begins a step, and read by the workers;
 * registers and changes are a worker's. */
#ifndef CPU_ATTENTION_MODS_H
#define CPU_ATTENTION_MODS_H

#include "backend/cpu/math.h"

/* The registers of the program that a worker runs, and the faults of its row and key
 * code. */
typedef struct attn_registers {
    int64_t *rows;    /* [ATTN_PROGRAM_ROW_REGS][ATTN_PROGRAM_QUERIES] */
    int64_t *vectors; /* [ATTN_PROGRAM_VECTORS][ATTN_PROGRAM_KEYS] */
    uint8_t row_faults[ATTN_PROGRAM_QUERIES], key_faults[ATTN_PROGRAM_KEYS], faults[ATTN_PROGRAM_KEYS];
} attn_registers;

/* A program whose row and key code has run for a tile of queries and the keys at
 * positions lane0..lane0 + n of a chunk. */
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

/* Runs the program's row and key code. first..end: positions of the chunk at position
 * `base`. c->regs, run and functions are set. */
void attn_change_begin(const attn_program *p, const attn_asked *q, int32_t base, int32_t first, int32_t end,
                       attn_change *c);
/* Narrows first..end of the chunk at position `base`, and that of the tile's queries, to
 * where the mask may show a key to any of them. For a narrow band, some ten evaluations
 * of ranges replace running the program over the whole chunk. */
void attn_change_narrow(const attn_program *p, const attn_asked *q, int32_t base, attn_tile *t,
                        int32_t *first, int32_t *end);
/* Runs a mask's program for all queries of a tile: narrows their first..end to the
 * visible positions and fills seen [n_queries][ATTN_BLOCKS]. True: some query sees only a
 * part of its first..end. */
bool attn_change_mask(const attn_asked *q, attn_change *c, attn_tile *t, uint16_t *seen);

/* ---- the map ---- */

#define ATTN_MAP_BYTES (256 * 1024) /* items whose chunks do not fit are evaluated tile by tile */

/* The chunks of an item: those before `first` and from `end` on are empty. */
typedef struct attn_mapped {
    const uint8_t *verdicts; /* an attn_seen for each from item->chunk0 on; NULL: nothing is known */
    int32_t first, end;
} attn_mapped;

typedef struct attn_map {
    uint8_t *verdicts;  /* [ATTN_MAP_BYTES] */
    attn_mapped *items; /* [max_items] of the batch's work list */
    int32_t max_items, n_items;
    attn_range heads; /* fewest and most query heads of a layer */
} attn_map;

/* Fills the map for a batch. Does nothing if no sequence has a mask. */
void attn_map_fill(const batch *step, attn_map *m);
#endif
