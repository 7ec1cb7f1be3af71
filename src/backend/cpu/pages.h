/* The layout of key and value elements inside a page: KV_LAYOUT_VERSION of core/kv_layout.h. pages_int8.h has the layout of int8.
 *
 * K plane: [head][block][d_head][positions a block], blocks of 16 positions (of page_tokens positions where a page holds fewer), so that
 * positions lie across lanes for the scores. V plane: [head][position][d_head]. */
#ifndef CPU_PAGES_H
#define CPU_PAGES_H

#include "backend/cpu/cpu.h"

#define CPU_KV_BLOCK 16

static inline int32_t cpu_kv_block(const kv_layout *l) {
    return l->page_tokens < CPU_KV_BLOCK ? l->page_tokens : CPU_KV_BLOCK;
}

static inline size_t cpu_kv_element_bytes(const kv_layout *l) {
    return (size_t)dtype_block_bytes(l->type);
}

/* The K or V plane of a layer in a page. */
static inline uint8_t *cpu_kv_plane(const cpu_backend *b, int32_t page, int32_t layer, kv_plane_kind kind) {
    int64_t plane = 2 * (int64_t)b->layout.layer_index[layer] + (kind == KV_PLANE_V ? 1 : 0);
    return b->kv + (int64_t)page * b->layout.page_bytes + plane * b->layout.plane_bytes;
}

/* Bytes from a plane's start to a head's: its rows, and of int8 their scales. */
static inline int64_t cpu_kv_head(const kv_layout *l, int32_t head) {
    return (int64_t)head * l->page_tokens * (l->row_bytes + l->scale_bytes);
}

/* Element index in a K plane; the elements of a head's key are cpu_kv_block apart. */
static inline int64_t cpu_k_index(const kv_layout *l, int32_t head, int32_t offset) {
    int32_t block = cpu_kv_block(l);
    int64_t n_blocks = l->page_tokens / block;
    return (head * n_blocks + offset / block) * l->d_head * block + offset % block;
}

/* Element index in a V plane; a head's value is contiguous. */
static inline int64_t cpu_v_index(const kv_layout *l, int32_t head, int32_t offset) {
    return ((int64_t)head * l->page_tokens + offset) * l->d_head;
}

#endif
