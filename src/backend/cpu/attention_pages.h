/* Finds a chunk's keys and values for the attention kernels, block by block: in the
 * pages, or in copies. Copies are made if the pages do not have the kernels' layout:
 * pages of fewer tokens than a block; for many queries, rows of int4, which become int8,
 * and of fp8, which become f16; and tokens of a draft tree's branch. */
#ifndef CPU_ATTENTION_PAGES_H
#define CPU_ATTENTION_PAGES_H

#include "backend/cpu/cpu.h"

/* Memory for copies of one chunk, of any cache. Each worker of the thread pool has
 * one. */
typedef struct attn_copies {
    uint8_t *keys, *values;     /* [ATTN_BLOCKS][16 * bytes of a row] */
    float *k_scales, *v_scales; /* [ATTN_CHUNK], of types with scales */
} attn_copies;

/* attn_copies_bytes is the size of that memory. attn_copies_init sets the pointers into
 * it. */
size_t attn_copies_bytes(const kv_layout *l);
void attn_copies_init(const kv_layout *l, uint8_t *memory, attn_copies *c);

/* The pages of one sequence for one kv head of one cache. */
typedef struct attn_pages {
    const cpu_backend *b;
    const int32_t *pages;
    int32_t cache, head;
} attn_pages;

static inline const kv_planes *attn_pages_planes(const attn_pages *a) {
    return &a->b->layout.caches[a->cache];
}

/* Sets the types in which the tile's keys and values are read. n_queries: the number that
 * share rows in pages; 0: rows of int4 are read as int8, those of fp8 as fp8. */
void attn_pages_types(const kv_planes *l, const math_kernels *math, int32_t n_queries, attn_tile *tile);

/* Sets the tile's blocks, their types and scales for positions first..end of the chunk at
 * position `base`. Values of latents are copies of the first d_value elements of the
 * keys. n_queries: as above. */
void attn_pages_find(const attn_pages *a, int32_t base, int32_t first, int32_t end, int32_t n_queries,
                     attn_copies *c, attn_tile *tile);
/* Sets what to prefetch while the tile's blocks, found before, are multiplied: their own
 * values, then the keys at positions base..base + n (none if they would be copied). If
 * the values have been converted to another type: the keys there, then the values
 * there. */
void attn_pages_fetch_next(const attn_pages *a, int32_t base, int32_t n, attn_tile *tile);
/* Likewise, but for n_heads heads from a->head on: the part-th of n_heads shares of their
 * keys and values at positions base..base + n, in the order of the pages, so pieces are
 * n_heads times as large. Pages have at least ATTN_BLOCK tokens. */
void attn_pages_fetch_part(const attn_pages *a, int32_t base, int32_t n, int32_t n_heads, int32_t part,
                           attn_tile *tile);
/* Prefetches these heads' keys and values at positions first..end. */
void attn_pages_fetch_all(const attn_pages *a, int32_t first, int32_t end, int32_t n_heads);
/* Copies the token at index `place` of the sequence's pages into the chunk's position p,
 * in a copy of p's block. After all such copies of a chunk comes attn_pages_placed. */
void attn_pages_place(const attn_pages *a, int32_t place, int32_t p, attn_copies *c, attn_tile *tile);
/* Copies the tokens at n indices of the sequence's pages to the chunk's positions from 0
 * on; the copies become the tile's blocks. n > 0. */
void attn_pages_gather(const attn_pages *a, const int32_t *places, int32_t n, attn_copies *c,
                       attn_tile *tile);
void attn_pages_placed(const attn_pages *a, int32_t first, int32_t end, attn_copies *c, attn_tile *tile);

#endif
