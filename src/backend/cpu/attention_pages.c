#include "backend/cpu/attention_pages.h"

#include <string.h>

#include "backend/cpu/pages.h"
#include "base/mem.h"

#define READ_AHEAD_BYTES 64 /* kernels read whole vectors, past the last value */

static size_t block_bytes(const kv_planes *l) {
    return (size_t)l->key.row_bytes * ATTN_BLOCK;
}

size_t attn_copies_bytes(const kv_planes *l) {
    return 2 * sizeof(float) * ATTN_CHUNK + 2 * (ATTN_BLOCKS * block_bytes(l) + READ_AHEAD_BYTES);
}

void attn_copies_init(const kv_planes *l, uint8_t *memory, attn_copies *c) {
    c->k_scales = (float *)(void *)memory;
    c->v_scales = c->k_scales + ATTN_CHUNK;
    c->keys = (uint8_t *)(c->v_scales + ATTN_CHUNK);
    c->values = c->keys + ATTN_BLOCKS * block_bytes(l) + READ_AHEAD_BYTES;
}

/* Makes the block's keys, values and scales point to copies. The caller fills them. */
static void use_copy(const kv_planes *l, int32_t block, const attn_copies *c, attn_tile *tile) {
    tile->k_blocks[block] = c->keys + block_bytes(l) * (size_t)block;
    tile->v_blocks[block] = c->values + block_bytes(l) * (size_t)block;
    tile->k_scales[block] = c->k_scales + block * ATTN_BLOCK;
    tile->v_scales[block] = c->v_scales + block * ATTN_BLOCK;
}

static void copy_block(const kv_planes *l, int32_t block, const attn_copies *c, attn_tile *tile) {
    attn_tile *t = tile;
    size_t bytes = block_bytes(l), scales = sizeof(float) * ATTN_BLOCK;
    if (t->k_blocks[block] == c->keys + bytes * (size_t)block) {
        return;
    }
    memcpy(c->keys + bytes * (size_t)block, t->k_blocks[block], bytes);
    memcpy(c->values + bytes * (size_t)block, t->v_blocks[block], bytes);
    if (l->key.type == DTYPE_I8) {
        memcpy(c->k_scales + block * ATTN_BLOCK, t->k_scales[block], scales);
        memcpy(c->v_scales + block * ATTN_BLOCK, t->v_scales[block], scales);
    }
    use_copy(l, block, c, t);
}

/* Copies n tokens from `offset` of a page on, all of one of its blocks, into the copies from the chunk's position p on. */
static void copy_floats(const attn_pages *a, const uint8_t *k, const uint8_t *v, int32_t offset, int32_t n, int32_t p,
                        const attn_copies *c) {
    const kv_planes *l = attn_pages_planes(a);
    size_t size = cpu_kv_element_bytes(l), stride = size * (size_t)cpu_kv_block(l), row = (size_t)l->key.row_bytes;
    const uint8_t *from = k + size * (size_t)cpu_k_index(l, a->head, offset);
    uint8_t *to = c->keys + block_bytes(l) * (size_t)(p / ATTN_BLOCK) + size * (size_t)(p % ATTN_BLOCK);
    for (size_t e = 0; e < (size_t)l->key.width; e++) {
        memcpy(to + e * size * ATTN_BLOCK, from + e * stride, size * (size_t)n);
    }
    memcpy(c->values + row * (size_t)p, v + size * (size_t)cpu_v_index(l, a->head, offset), row * (size_t)n);
}

static void copy_int8(const attn_pages *a, uint8_t *k, uint8_t *v, int32_t offset, int32_t p, const attn_copies *c) {
    const kv_planes *l = attn_pages_planes(a);
    int32_t lane = p % ATTN_BLOCK, row = (int32_t)l->key.row_bytes;
    uint8_t *keys = c->keys + block_bytes(l) * (size_t)(p / ATTN_BLOCK), *values = c->values + block_bytes(l) * (size_t)(p / ATTN_BLOCK);
    for (int32_t e = 0; e < row; e++) {
        keys[e / 4 * 4 * ATTN_BLOCK + lane * 4 + e % 4] = k[cpu_k_int8_index(l, a->head, offset, e)];
        values[(lane / 4 * row + e) * 4 + lane % 4] = v[cpu_v_int8_index(l, a->head, offset, e)];
    }
    c->k_scales[p] = cpu_int8_scales(l, k, a->head)[offset];
    c->v_scales[p] = cpu_int8_scales(l, v, a->head)[offset];
}

static void copy_tokens(const attn_pages *a, int32_t page, int32_t offset, int32_t n, int32_t p, const attn_copies *c) {
    uint8_t *k = cpu_kv_plane(a->b, page, a->cache, KV_PLANE_K), *v = cpu_kv_plane(a->b, page, a->cache, KV_PLANE_V);
    if (attn_pages_planes(a)->key.type != DTYPE_I8) {
        copy_floats(a, k, v, offset, n, p, c);
        return;
    }
    for (int32_t i = 0; i < n; i++) {
        copy_int8(a, k, v, offset + i, p + i, c);
    }
}

/* Copies blocks from pages of fewer tokens than a block. */
static void find_copies(const attn_pages *a, int32_t base, int32_t first, int32_t end, attn_copies *c, attn_tile *tile) {
    int32_t n = a->b->layout.page_tokens;
    for (int32_t block = first / ATTN_BLOCK; block * ATTN_BLOCK < end; block++) {
        use_copy(attn_pages_planes(a), block, c, tile);
    }
    for (int32_t p = first - first % n; p < end; p += n) {
        copy_tokens(a, a->pages[(base + p) / n], 0, n, p, c);
    }
}

void attn_pages_find(const attn_pages *a, int32_t base, int32_t first, int32_t end, attn_copies *c, attn_tile *tile) {
    const kv_planes *l = attn_pages_planes(a);
    if (l->page_tokens < ATTN_BLOCK) {
        find_copies(a, base, first, end, c, tile);
        return;
    }
    int32_t block = first / ATTN_BLOCK, position = base + block * ATTN_BLOCK, page = position / l->page_tokens,
            offset = position % l->page_tokens;
    for (; block * ATTN_BLOCK < end; page++, offset = 0) {
        uint8_t *k = cpu_kv_plane(a->b, a->pages[page], a->cache, KV_PLANE_K),
                *v = cpu_kv_plane(a->b, a->pages[page], a->cache, KV_PLANE_V);
        for (; offset < l->page_tokens && block * ATTN_BLOCK < end; offset += ATTN_BLOCK, block++) {
            int64_t at = cpu_kv_head(l, a->head) + offset * l->key.row_bytes;
            tile->k_blocks[block] = k + at;
            tile->v_blocks[block] = v + at;
            if (l->key.type == DTYPE_I8) {
                tile->k_scales[block] = cpu_int8_scales(l, k, a->head) + offset;
                tile->v_scales[block] = cpu_int8_scales(l, v, a->head) + offset;
            }
        }
    }
}

/* The block of a head in a plane of a page that begins with its token `offset`: fetched while block i is multiplied, with its keys where i
 * is below ATTN_BLOCKS, else with its values. */
static void fetch_with(const kv_planes *l, uint8_t *plane, int32_t head, int32_t offset, int32_t i, attn_tile *tile) {
    const uint8_t *rows = plane + cpu_kv_head(l, head) + offset * l->key.row_bytes;
    const float *scales = l->key.type == DTYPE_I8 ? cpu_int8_scales(l, plane, head) + offset : NULL;
    if (i < ATTN_BLOCKS) {
        tile->fetch_k[i] = rows;
        tile->fetch_k_scales[i] = scales;
    } else {
        tile->fetch_v[i - ATTN_BLOCKS] = rows;
        tile->fetch_v_scales[i - ATTN_BLOCKS] = scales;
    }
}

/* What is at hand already: nothing else is to be fetched. */
static void fetch_own(attn_tile *tile) {
    memcpy(tile->fetch_k, tile->v_blocks, sizeof tile->fetch_k);
    memcpy(tile->fetch_v, tile->v_blocks, sizeof tile->fetch_v);
    memcpy(tile->fetch_k_scales, tile->v_scales, sizeof tile->fetch_k_scales);
    memcpy(tile->fetch_v_scales, tile->v_scales, sizeof tile->fetch_v_scales);
}

void attn_pages_fetch_next(const attn_pages *a, int32_t base, int32_t n, attn_tile *tile) {
    const kv_planes *l = attn_pages_planes(a);
    fetch_own(tile);
    for (int32_t p = 0, page = base / l->page_tokens; p < n && l->page_tokens >= ATTN_BLOCK; page++) {
        uint8_t *k = cpu_kv_plane(a->b, a->pages[page], a->cache, KV_PLANE_K);
        for (int32_t offset = 0; offset < l->page_tokens && p < n; offset += ATTN_BLOCK, p += ATTN_BLOCK) {
            fetch_with(l, k, a->head, offset, ATTN_BLOCKS + p / ATTN_BLOCK, tile);
        }
    }
}

void attn_pages_fetch_part(const attn_pages *a, int32_t base, int32_t n, int32_t n_heads, int32_t part, attn_tile *tile) {
    const kv_planes *l = attn_pages_planes(a);
    int32_t n_blocks = l->page_tokens / ATTN_BLOCK, plane_blocks = n_heads * n_blocks; /* of a head and of these heads, in a plane */
    int32_t page = base / l->page_tokens, end = page + (n + l->page_tokens - 1) / l->page_tokens, at = part * 2 * ATTN_BLOCKS;
    fetch_own(tile);
    page += at / (2 * plane_blocks);
    at %= 2 * plane_blocks;
    for (int32_t i = 0; i < 2 * ATTN_BLOCKS && page < end; i++) {
        uint8_t *plane = cpu_kv_plane(a->b, a->pages[page], a->cache, at < plane_blocks ? KV_PLANE_K : KV_PLANE_V);
        int32_t block = at % plane_blocks;
        fetch_with(l, plane, a->head + block / n_blocks, block % n_blocks * ATTN_BLOCK, i, tile);
        at = at + 1 < 2 * plane_blocks ? at + 1 : 0;
        page += at == 0;
    }
}

void attn_pages_fetch_all(const attn_pages *a, int32_t first, int32_t end, int32_t n_heads) {
    const kv_planes *l = attn_pages_planes(a);
    int64_t from = cpu_kv_head(l, a->head), to = cpu_kv_head(l, a->head + n_heads);
    for (int32_t page = first / l->page_tokens; page * l->page_tokens < end; page++) {
        for (int v = 0; v < 2; v++) {
            const uint8_t *plane = cpu_kv_plane(a->b, a->pages[page], a->cache, v == 1 ? KV_PLANE_V : KV_PLANE_K);
            for (int64_t at = from; at < to; at += MEM_ALIGN) {
                __builtin_prefetch(plane + at, 0, 2);
            }
        }
    }
}

void attn_pages_place(const attn_pages *a, int32_t place, int32_t p, attn_copies *c, attn_tile *tile) {
    int32_t n = a->b->layout.page_tokens;
    copy_block(attn_pages_planes(a), p / ATTN_BLOCK, c, tile);
    copy_tokens(a, a->pages[place / n], place % n, 1, p, c);
}
