/* One tile of attention: queries of one kv head, and their result over one chunk of
 * positions.
 *
 * Owner: a worker, whose scratch is refilled for every tile. attention.c chooses tiles
 * and chunks, and merges the chunks. */
#ifndef CPU_ATTENTION_TILE_H
#define CPU_ATTENTION_TILE_H

#include "backend/cpu/attention_mods.h"
#include "backend/cpu/attention_pages.h"
#include "backend/cpu/cpu.h"

/* A worker's memory to compute a tile. */
typedef struct attn_scratch {
    attn_tile tile;
    int32_t kv_head;
    float *acc;                   /* accumulators of the current chunk: [ATTN_TILE, acc_stride] */
    attn_state states[ATTN_TILE]; /* states over all chunks so far, with accumulators laid out like acc */
    bool has_states;              /* states are not empty: a chunk was merged, or they were carried over */
    int32_t first[ATTN_TILE], end[ATTN_TILE]; /* positions each query sees */
    /* index of each query's row in its sequence; used for draft trees only */
    int32_t row[ATTN_TILE];
    int64_t row_head[ATTN_TILE]; /* row of the batch * max_heads + head of each query */
    float *out[ATTN_TILE];       /* result of the query */
    attn_copies copies;
    const attn_mods *mods; /* programs of the queries' sequence, or NULL; with programs: */
    attn_asked asked;
    attn_mapped map;
    int32_t map_chunk0; /* first chunk in map.verdicts */
    attn_change change;
    uint16_t seen[ATTN_TILE * ATTN_BLOCKS];
    attn_tile branch; /* queries of the tile whose rows form one branch of a draft tree */
} attn_scratch;

#define MOST_TOGETHER 4 /* most kv heads in a task */

/* The keys that the rows of a step have selected: n_lists lists per row, one for each KV
 * head or one for all. */
typedef struct attn_choice {
    int32_t most_lists, most; /* capacity: lists per row, keys per list */
    int32_t n_lists;          /* lists of the last selection */
    int64_t step;             /* step of the last selection */
    int32_t *n, *n_seen;      /* [max_rows][most_lists] selected keys, [max_rows] visible keys */
    /* [max_rows][most_lists][most]: indices into the sequence's pages, in ascending order
     * of position */
    int32_t *places;
    /* [workers][2 most + ATTN_CHUNK]: candidates in ascending order of position, and
     * their scores */
    int32_t *candidates;
    float *scores, *sorted; /* sorted: scratch of the selection */
} attn_choice;

/* The index of a row's list. */
static inline int32_t attn_choice_at(const attn_choice *c, int32_t row, int32_t list) {
    return row * c->most_lists + list;
}

/* Scratch, softmax states that items pass on to the next level, and partial results. */
typedef struct cpu_attention_state {
    attn_scratch *scratch;            /* [workers][MOST_TOGETHER] */
    int32_t acc_stride, max_heads;    /* those of the widest cache */
    float *carried_max, *carried_sum; /* [max_rows, max_heads] */
    float *partial_max, *partial_sum; /* [max_partials, max_heads] */
    float *partial_acc;               /* [max_partials, max_heads, acc_stride] */
    attn_map map;                     /* mask results for the chunks of the work list */
    attn_choice choice;
} cpu_attention_state;

/* One attention op. */
typedef struct attn_job {
    const cpu_backend *b;
    cpu_attention_state *state;
    const attn_spec *spec;
    const attn_item *items; /* [n_items] of the current level */
    int32_t n_items;
    const kv_planes *planes;                       /* of the cache */
    int32_t cache, n_heads, max_heads, group_size; /* group_size: query heads per kv head */
    int32_t d_value;                               /* width of a head's value */
    int32_t n_together;                            /* kv heads per task */
    int32_t n_parts;                               /* tasks that share an item's queries */
    buffer q, out;
} attn_job;

/* Sets the tile's sizes from the job. */
void attn_tile_begin(const attn_job *job, attn_tile *tile);
/* Sets query t of the tile to head `head` of a row of the batch, with an empty state. */
void attn_set_query(const attn_job *job, int32_t row, int32_t head, int32_t t, attn_scratch *s);

/* Sets the tile's queries to n queries from `from` on, counting an item's rows x the kv
 * head's query heads. Their states start empty. */
void attn_set_queries(const attn_job *job, const attn_item *item, int32_t kv_head, int32_t from, int32_t n,
                      attn_scratch *s);
/* Prefetches the rows of these queries and the places of their results. */
void attn_fetch_queries(const attn_job *job, const attn_item *item, int32_t kv_head, int32_t from, int32_t n);

/* What to prefetch while a chunk is computed: its own values, then the keys of kv_head in
 * chunk `chunk` up to `end`. If n_heads > 0: share `part` of n_heads of the keys and
 * values there of n_heads kv heads from kv_head on. */
typedef struct attn_next {
    int32_t kv_head, chunk, end, n_heads, part;
} attn_next;

/* A sequence's pages for one kv head. */
attn_pages attn_pages_of(const attn_job *job, const batch_seq *seq, int32_t kv_head);

/* Computes one chunk for the tile's queries into the tile's results. False: no query sees
 * any of it. like: the tile of the same rows for another kv head that was just computed
 * over this chunk, or NULL; a mask that does not depend on the head is then not run
 * again. */
bool attn_compute_chunk(const attn_job *job, const batch_seq *seq, int32_t chunk, attn_next next,
                        const attn_scratch *like, attn_scratch *s);

#endif
