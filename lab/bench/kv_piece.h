/* Keys and values of one sequence in one cache, in one piece: what baselines have in
 * place of pages.
 *
 * The blocks are the CPU's (backend/cpu/pages.h), so that the engine's own kernels read
 * them. Elements are f32, f16 or bf16. */
#ifndef LAB_BENCH_KV_PIECE_H
#define LAB_BENCH_KV_PIECE_H

#include <stdbool.h>
#include <stdint.h>

#include "backend/cpu/pages.h"

/* k: [kv heads][blocks of 16][d_head][16], v: [kv heads][cap][d_head]. All zero: empty,
 * with room for nothing. */
typedef struct kv_piece {
    uint8_t *k, *v;
    int32_t n, cap; /* tokens it holds, tokens it has room for */
    bool borrowed;  /* k and v lie in memory of somebody else's */
} kv_piece;

/* Bytes of memory for a piece that kv_piece_in makes there, a multiple of 64. */
size_t kv_piece_room(const kv_planes *l, int32_t cap);
/* An empty piece in memory[0..kv_piece_room), which outlives it. */
kv_piece kv_piece_in(const kv_planes *l, int32_t cap, uint8_t *memory);
/* Makes an empty piece with room for cap tokens. false without memory: free it all the
 * same. */
bool kv_piece_new(const kv_planes *l, int32_t cap, kv_piece *out);
void kv_piece_free(kv_piece *p);
/* Bytes of keys and values of a piece with room for cap tokens. */
int64_t kv_piece_bytes(const kv_planes *l, int32_t cap);
/* The same of n tokens alone. */
int64_t kv_piece_token_bytes(const kv_planes *l, int32_t n);
/* Copies all that p holds into one with more room, head by head. */
void kv_piece_copy(const kv_planes *l, const kv_piece *from, kv_piece *to);
/* Adds a token behind those it holds, for which it has room: key and value of every head,
 * as f32, rounded to the cache's type. */
void kv_piece_store(const kv_planes *l, kv_piece *p, const float *key, const float *value);
/* Points the tile's blocks to the positions of a head from base on, a multiple of a
 * block. */
void kv_piece_find(const kv_planes *l, const kv_piece *p, int32_t head, int32_t base, attn_tile *tile);

static inline int32_t kv_piece_blocks(int32_t n) {
    return (n + CPU_KV_BLOCK - 1) / CPU_KV_BLOCK;
}

#endif
