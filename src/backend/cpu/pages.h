/* The layout of key and value elements inside a page: KV_LAYOUT_VERSION of core/kv_layout.h.
 *
 * K plane: [head][block][d_head][positions a block], blocks of 16 positions (of page_tokens positions where a page holds fewer), so that
 * positions lie across lanes for the scores. V plane: [head][position][d_head].
 *
 * int8: a head's key or value of a token is row_bytes int8 (zeros behind d_head) times one float. K plane: [head][block][row_bytes / 4]
 * [positions a block][4]: a quad of elements for each position. V plane: [head][positions / 4][row_bytes][4]: a quad of positions for each
 * element (of page_tokens positions where a page holds fewer than 4). A head's scales [position] lie behind its rows: among other heads'
 * scales, reading each would also load the adjacent cache line.
 *
 * Keys and values of a cache are of one type and width: step_open refuses others. The functions below read those of the keys. */
#ifndef CPU_PAGES_H
#define CPU_PAGES_H

#include "backend/cpu/cpu.h"

#define CPU_KV_BLOCK 16

static inline int32_t cpu_kv_block(const kv_planes *p) {
    return p->page_tokens < CPU_KV_BLOCK ? p->page_tokens : CPU_KV_BLOCK;
}

static inline size_t cpu_kv_element_bytes(const kv_planes *p) {
    return (size_t)dtype_block_bytes(p->key.type);
}

/* The K or V plane of a cache in a page. */
static inline uint8_t *cpu_kv_plane(const cpu_backend *b, int32_t page, int32_t cache, kv_plane_kind kind) {
    const kv_planes *p = &b->layout.caches[cache];
    return b->kv + (int64_t)page * b->layout.page_bytes + (kind == KV_PLANE_V ? p->value.offset : p->key.offset);
}

/* Bytes from a plane's start to a head's: its rows, and of int8 their scales. */
static inline int64_t cpu_kv_head(const kv_planes *p, int32_t head) {
    return (int64_t)head * p->page_tokens * (p->key.row_bytes + p->key.scale_bytes);
}

/* Element index in a K plane; the elements of a head's key are cpu_kv_block apart. */
static inline int64_t cpu_k_index(const kv_planes *p, int32_t head, int32_t offset) {
    int32_t block = cpu_kv_block(p);
    int64_t n_blocks = p->page_tokens / block;
    return (head * n_blocks + offset / block) * p->key.width * block + offset % block;
}

/* Element index in a V plane; a head's value is contiguous. */
static inline int64_t cpu_v_index(const kv_planes *p, int32_t head, int32_t offset) {
    return ((int64_t)head * p->page_tokens + offset) * p->key.width;
}

/* ---- int8 ---- */

static inline int64_t cpu_k_int8_index(const kv_planes *p, int32_t head, int32_t offset, int32_t e) {
    int32_t block = cpu_kv_block(p), lane = offset % block;
    return cpu_kv_head(p, head) + (int64_t)(offset - lane) * p->key.row_bytes + e / 4 * 4 * block + lane * 4 + e % 4;
}

/* Positions whose bytes of an element lie side by side. */
static inline int32_t cpu_v_int8_quad(const kv_planes *p) {
    return p->page_tokens < 4 ? p->page_tokens : 4;
}

static inline int64_t cpu_v_int8_index(const kv_planes *p, int32_t head, int32_t offset, int32_t e) {
    int32_t quad = cpu_v_int8_quad(p), lane = offset % quad;
    return cpu_kv_head(p, head) + (int64_t)(offset - lane) * p->key.row_bytes + e * quad + lane;
}

static inline float *cpu_int8_scales(const kv_planes *p, uint8_t *plane, int32_t head) {
    return (float *)(void *)(plane + cpu_kv_head(p, head) + (int64_t)p->page_tokens * p->key.row_bytes);
}

/* Store, move and load a head's key and value of one token (d_head floats each). A token whose key or value is not finite gets scales of
 * NaN, so that every query that sees it is not finite either. */
void cpu_int8_store(const cpu_backend *b, int32_t cache, int32_t head, kv_slot slot, const float *k, const float *v);
void cpu_int8_move(const cpu_backend *b, int32_t cache, int32_t head, kv_slot src, kv_slot dst);
void cpu_int8_read(const cpu_backend *b, int32_t cache, int32_t head, kv_slot slot, float *k, float *v);

/* Quantises query t of the tile. */
void cpu_int8_query(const cpu_backend *b, attn_tile *tile, int32_t t);

#endif
