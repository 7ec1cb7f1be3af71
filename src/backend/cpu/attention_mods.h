/* Runs a sequence's own mask and change of scores (core/attn_program.h) for tiles of
 * queries.
 *
 * What a mask makes of a rectangle of queries and chunks is found once a step, for all
 * layers and heads: the map. Tiles skip chunks that it empties, and do not look at keys
 * in those that it fills. In the others the program runs over the chunk; where every
 * query then sees one stretch of positions, as with causal masks and windows, the tile is
 * the same as with a mask of the layer's.
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

/* What a program is told of a tile's queries; all but `position` is the same in every
 * chunk. */
typedef struct attn_asked {
    int32_t n, b, n_heads;
    int32_t position[ATTN_TILE], head[ATTN_TILE], n_kv[ATTN_TILE];
} attn_asked;

/* Runs the program's row and key code. first..end: positions of the chunk at position
 * `base`. c->regs, run and functions are set. */
void attn_change_begin(const attn_program *p, const attn_asked *q, int32_t base, int32_t first, int32_t end,
                       attn_change *c);
/* Cuts first..end of the chunk at position `base`, and the tile's queries', down to where
 * the mask is not certainly empty for all of them. Some ten looks at ranges save what
 * running the program over the whole chunk takes where it is a narrow band. */
void attn_change_narrow(const attn_program *p, const attn_asked *q, int32_t base, attn_tile *t,
                        int32_t *first, int32_t *end);
/* Runs a mask's program for all queries of a tile: cuts their first..end down to what
 * they see and fills seen [n_queries][ATTN_BLOCKS]. True: some query sees only some of
 * its first..end. */
bool attn_change_mask(const attn_asked *q, attn_change *c, attn_tile *t, uint16_t *seen);

/* ---- the map ---- */

#define ATTN_MAP_BYTES (256 * 1024) /* items whose chunks have no room are looked at tile by tile */

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

/* Fills the map for a batch. Does nothing where no sequence has a mask. */
void attn_map_fill(const batch *step, attn_map *m);
#endif
