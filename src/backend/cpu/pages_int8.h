/* The layout of int8 keys and values inside a page (pages.h has the other types).
 *
 * A head's key or value of a token is row_bytes int8 (zeros behind d_head) times one float. K plane: [head][block][row_bytes / 4][positions
 * a block][4]: a quad of elements for each position. V plane: [head][positions / 4][row_bytes][4]: a quad of positions for each element (of
 * page_tokens positions where a page holds fewer than 4). A head's scales [position] lie behind its rows: among other heads' scales,
 * reading each would also load the adjacent cache line. */
#ifndef CPU_PAGES_INT8_H
#define CPU_PAGES_INT8_H

#include "backend/cpu/math.h"
#include "backend/cpu/pages.h"

static inline int64_t cpu_k_int8_index(const kv_layout *l, int32_t head, int32_t offset, int32_t e) {
    int32_t block = cpu_kv_block(l), lane = offset % block;
    return cpu_kv_head(l, head) + (int64_t)(offset - lane) * l->row_bytes + e / 4 * 4 * block + lane * 4 + e % 4;
}

/* Positions whose bytes of an element lie side by side. */
static inline int32_t cpu_v_int8_quad(const kv_layout *l) {
    return l->page_tokens < 4 ? l->page_tokens : 4;
}

static inline int64_t cpu_v_int8_index(const kv_layout *l, int32_t head, int32_t offset, int32_t e) {
    int32_t quad = cpu_v_int8_quad(l), lane = offset % quad;
    return cpu_kv_head(l, head) + (int64_t)(offset - lane) * l->row_bytes + e * quad + lane;
}

static inline float *cpu_int8_scales(const kv_layout *l, uint8_t *plane, int32_t head) {
    return (float *)(void *)(plane + cpu_kv_head(l, head) + (int64_t)l->page_tokens * l->row_bytes);
}

/* Store, move and load a head's key and value of one token (d_head floats each). A token whose key or value is not finite gets scales of
 * NaN, so that every query that sees it is not finite either. */
void cpu_int8_store(const cpu_backend *b, int32_t layer, int32_t head, kv_slot slot, const float *k, const float *v);
void cpu_int8_move(const cpu_backend *b, int32_t layer, int32_t head, kv_slot src, kv_slot dst);
void cpu_int8_read(const cpu_backend *b, int32_t layer, int32_t head, kv_slot slot, float *k, float *v);

/* Quantises query t of the tile. */
void cpu_int8_query(const cpu_backend *b, attn_tile *tile, int32_t t);

#endif
