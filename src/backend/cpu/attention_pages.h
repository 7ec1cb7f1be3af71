/* Locates a chunk's keys and values for the attention kernels, block by block: in the
 * pages, or in copies where the pages do not have the kernels' layout. Copied are pages
 * with fewer tokens than a block; for many queries, rows of int4 (to int8) and fp8 (to
 * f16); and tokens on a branch of a draft tree. */
#ifndef CPU_ATTENTION_PAGES_H
#define CPU_ATTENTION_PAGES_H

#include "backend/cpu/cpu.h"

/* A worker's memory for copies of one chunk of any cache. */
typedef struct attn_copies {
    uint8_t *keys, *values;     /* [ATTN_BLOCKS][16 * bytes of a row] */
    float *k_scales, *v_scales; /* [ATTN_CHUNK], for types with scales */
} attn_copies;

/* attn_copies_bytes: size of the memory; attn_copies_init sets the pointers into it. */
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

/* Sets the types as which the tile's keys and values are read. n_queries: queries that
 * share the rows; 0: int4 is read as int8, fp8 as fp8. */
void attn_pages_types(const kv_planes *l, const math_kernels *math, int32_t n_queries, attn_tile *tile);

/* Sets the tile's blocks, types and scales for positions first..end of the chunk at
 * position `base`. Values of latents are copies of the first d_value elements of the
 * keys. n_queries: as above. */
void attn_pages_find(const attn_pages *a, int32_t base, int32_t first, int32_t end, int32_t n_queries,
                     attn_copies *c, attn_tile *tile);
/* Sets what to prefetch while the tile's blocks are multiplied: their own values, then
 * the keys at positions base..base + n, unless those would be copied. If the tile's
 * values are converted copies, prefetches keys and then values at base..base + n
 * instead. */
void attn_pages_fetch_next(const attn_pages *a, int32_t base, int32_t n, attn_tile *tile);
/* Like attn_pages_fetch_next, for n_heads heads from a->head on: share `part` of n_heads
 * of all their keys and values at positions base..base + n, in page order. Pages have at
 * least ATTN_BLOCK tokens. */
void attn_pages_fetch_part(const attn_pages *a, int32_t base, int32_t n, int32_t n_heads, int32_t part,
                           attn_tile *tile);
/* Prefetches these heads' keys and values at positions first..end. */
void attn_pages_fetch_all(const attn_pages *a, int32_t first, int32_t end, int32_t n_heads);
/* Copies the token at index `place` of the sequence's pages to position p of the chunk,
 * in a copy of p's block. Call attn_pages_placed after the last one of a chunk. */
void attn_pages_place(const attn_pages *a, int32_t place, int32_t p, attn_copies *c, attn_tile *tile);
/* Copies n > 0 tokens, given by indices into the sequence's pages, to positions 0.. of
 * the chunk; the copies become the tile's blocks. */
void attn_pages_gather(const attn_pages *a, const int32_t *places, int32_t n, attn_copies *c,
                       attn_tile *tile);
void attn_pages_placed(const attn_pages *a, int32_t first, int32_t end, attn_copies *c, attn_tile *tile);

#endif
