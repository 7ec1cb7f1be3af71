/* One tile of attention: queries of one kv head, and what they make of one chunk of positions.
 *
 * Owner: a worker of the thread pool, which fills its scratch anew for every tile. attention.c says which tiles and chunks there are, and
 * joins the chunks. */
#ifndef CPU_ATTENTION_TILE_H
#define CPU_ATTENTION_TILE_H

#include "backend/cpu/attention_pages.h"
#include "backend/cpu/cpu.h"
#include "backend/cpu/math.h"

/* What a tile of queries is computed in. */
typedef struct attn_scratch {
    attn_tile tile;
    int32_t kv_head;
    attn_state states[ATTN_TILE];
    int32_t first[ATTN_TILE], end[ATTN_TILE]; /* positions each query sees */
    int32_t row[ATTN_TILE];                   /* of its sequence's rows, the one each query belongs to; read in a tree's chunks only */
    int64_t row_head[ATTN_TILE];              /* row of the batch * max_heads + head of each query */
    float *out[ATTN_TILE];                    /* its result */
    attn_copies copies;
    attn_tile branch;                         /* those of the tile's queries whose rows are one branch of a draft tree */
} attn_scratch;

/* One attention op. */
typedef struct attn_job {
    const cpu_backend *b;
    struct cpu_attention_state *state;
    const attn_spec *spec;
    const attn_item *items; /* of the wave that runs */
    int32_t layer, n_heads, max_heads, group_size; /* group_size: query heads that share a kv head */
    int32_t n_together;     /* kv heads that a task has */
    buffer q, out;
} attn_job;

/* Sets the tile's queries: those from number `from` on of the item's rows x the kv head's query heads. They have seen nothing yet. */
void attn_set_queries(const attn_job *job, const attn_item *item, int32_t kv_head, int32_t from, int32_t n, attn_scratch *s);

/* What comes after a chunk, and is asked for meanwhile: positions of chunk `chunk` up to `end`, of kv head kv_head. */
typedef struct attn_next {
    int32_t kv_head, chunk, end;
} attn_next;

/* One chunk of the tile's queries, into the tile's results. false: none of them sees any of it. */
bool attn_compute_chunk(const attn_job *job, const batch_seq *seq, int32_t chunk, attn_next next, attn_scratch *s);

#endif
