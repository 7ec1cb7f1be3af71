#include "backend/cpu/attention_pages.h"

#include <assert.h>
#include <string.h>

#include "backend/cpu/pages.h"
#include "base/mem.h"
#include "base/size.h"

/* kernels read whole vectors past the last value, and unpack whole int4 groups past the
 * last row */
#define READ_AHEAD_BYTES 1024

/* The type as which kernels read a plane. */
static dtype type_read(const kv_plane *plane) {
    return plane->type == DTYPE_I4 ? DTYPE_I8 : plane->type;
}

/* Bytes of a row in that type. */
static size_t row_read(const kv_plane *plane) {
    return plane->type == DTYPE_I4 ? (size_t)attn_int8_stride(plane->width) : (size_t)plane->row_bytes;
}

static size_t block_bytes(const kv_plane *plane) {
    return row_read(plane) * ATTN_BLOCK;
}

/* Bytes of a plane's copies; for fp8, of its f16. */
static size_t copies_bytes(const kv_plane *plane) {
    const size_t n = plane->type == DTYPE_F8_E4M3 ? 2 * ATTN_BLOCKS : ATTN_BLOCKS;
    return size_align(n * block_bytes(plane) + READ_AHEAD_BYTES, MEM_ALIGN);
}

/* Bytes of the largest copies of keys, or of values, in any cache. */
static size_t largest_copies(const kv_layout *l, kv_plane_kind kind) {
    size_t most = 0;
    for (int32_t i = 0; i < l->n_caches; i++) {
        const kv_planes *p = &l->caches[i];
        const bool has_values = kind == KV_PLANE_V && p->kind != LAYER_LATENT;
        const size_t n = p->n_heads > 0 ? copies_bytes(has_values ? &p->value : &p->key) : 0;
        most = n > most ? n : most;
    }
    return most;
}

size_t attn_copies_bytes(const kv_layout *l) {
    return 2 * sizeof(float) * ATTN_CHUNK + largest_copies(l, KV_PLANE_K) + largest_copies(l, KV_PLANE_V);
}

void attn_copies_init(const kv_layout *l, uint8_t *memory, attn_copies *c) {
    assert(c != NULL);
    c->k_scales = (float *)(void *)memory;
    c->v_scales = c->k_scales + ATTN_CHUNK;
    c->keys = (uint8_t *)(c->v_scales + ATTN_CHUNK);
    c->values = c->keys + largest_copies(l, KV_PLANE_K);
}

/* with more queries, unpacking fp8 codes once costs less than unpacking them in every
 * product */
#define UNPACKING_QUERIES 12

/* One of a tile's two planes (keys or values), and its copies. */
typedef struct side {
    kv_plane_kind kind;
    const kv_plane *plane;
    const void **blocks;  /* the tile's */
    const float **scales; /* the tile's */
    uint8_t *copies;
    float *copied_scales;
    dtype read; /* type as which the kernels read blocks in pages */
} side;

static side side_of(const kv_planes *l, kv_plane_kind kind, const attn_copies *c, attn_tile *tile) {
    return kind == KV_PLANE_V
               ? (side){kind, &l->value, tile->v_blocks, tile->v_scales, c->values, c->v_scales, tile->v_type}
               : (side){kind, &l->key, tile->k_blocks, tile->k_scales, c->keys, c->k_scales, tile->k_type};
}

/* Points the block's rows and scales to copies, which the caller fills. */
static void use_copy(side s, int32_t block) {
    s.blocks[block] = s.copies + block_bytes(s.plane) * (size_t)block;
    s.scales[block] = s.copied_scales + block * ATTN_BLOCK;
}

static void copy_block(side s, int32_t block) {
    const void *rows = s.blocks[block];
    const float *scales = s.scales[block];
    use_copy(s, block);
    if (s.blocks[block] != rows) {
        memcpy(s.copies + block_bytes(s.plane) * (size_t)block, rows, block_bytes(s.plane));
    }
    if (s.plane->scale_bytes > 0 && s.scales[block] != scales) {
        memcpy(s.copied_scales + block * ATTN_BLOCK, scales, sizeof *scales * ATTN_BLOCK);
    }
}

/* The row of the chunk's position p among the copies. */
static cpu_row copied_row(side s, int32_t p) {
    uint8_t *rows = s.copies + block_bytes(s.plane) * (size_t)(p / ATTN_BLOCK);
    return cpu_row_at(type_read(s.plane), s.kind, (int64_t)row_read(s.plane), ATTN_BLOCK, rows,
                      p % ATTN_BLOCK);
}

static void copy_int4(side s, cpu_row from, int32_t p) {
    uint8_t bytes[CPU_MAX_ROW];
    int8_t integers[CPU_MAX_ROW];
    cpu_row_get(from, bytes);
    cpu_int4_decode(bytes, s.plane->width, integers);
    cpu_row_put(copied_row(s, p), (const uint8_t *)integers);
}

/* Copies n tokens of a page's block, from `offset` on, to positions p.. of the chunk. */
static void copy_tokens(const attn_pages *a, side s, int32_t page, int32_t offset, int32_t n, int32_t p) {
    const kv_planes *l = attn_pages_planes(a);
    uint8_t *plane = cpu_kv_plane(a->b, page, a->cache, s.kind),
            *rows = plane + cpu_kv_head(l, s.kind, a->head);
    const float *scales = cpu_kv_scales(l, s.kind, plane, a->head);
    const int32_t run = s.plane->type == DTYPE_I4 ? 1 : cpu_row_run(s.plane->type, s.kind, l->page_tokens);
    for (int32_t i = 0; i < n; i += run) {
        const cpu_row from =
            cpu_row_at(s.plane->type, s.kind, s.plane->row_bytes, l->page_tokens, rows, offset + i);
        if (s.plane->type == DTYPE_I4) {
            copy_int4(s, from, p + i);
        } else {
            cpu_row_copy(from, copied_row(s, p + i), run < n - i ? run : n - i);
        }
    }
    if (scales != NULL) {
        memcpy(s.copied_scales + p, scales + offset, sizeof *scales * (size_t)n);
    }
}

/* Copies blocks from pages that have fewer tokens than a block. */
static void find_copies(const attn_pages *a, side s, int32_t base, int32_t first, int32_t end) {
    int32_t n = a->b->layout.page_tokens;
    for (int32_t block = first / ATTN_BLOCK; block * ATTN_BLOCK < end; block++) {
        use_copy(s, block);
    }
    for (int32_t p = first - first % n; p < end; p += n) {
        copy_tokens(a, s, a->pages[(base + p) / n], 0, n, p);
    }
}

/* Uses a block of rows of a page, as stored or unpacked to int8. */
static void find_block(const attn_pages *a, side s, const uint8_t *rows, const float *scales, int32_t block) {
    s.blocks[block] = rows;
    s.scales[block] = scales;
    if (s.plane->type == DTYPE_I4 && s.read != DTYPE_I4) {
        uint8_t *to = s.copies + block_bytes(s.plane) * (size_t)block;
        a->b->math->unpack_int4(s.kind == KV_PLANE_V, rows, s.plane->width, (int32_t)s.plane->row_bytes,
                                (int8_t *)to);
        s.blocks[block] = to;
    }
}

/* Unpacks fp8 blocks in pages to f16. */
static void unpack_fp8(const attn_pages *a, side s, int32_t first, int32_t end) {
    const int32_t n = (int32_t)block_bytes(s.plane);
    for (int32_t block = first / ATTN_BLOCK; block * ATTN_BLOCK < end; block++) {
        uint16_t *to = (uint16_t *)(void *)s.copies + (size_t)n * (size_t)block;
        a->b->math->unpack_fp8(s.blocks[block], n, to);
        s.blocks[block] = to;
    }
}

static void find_side(const attn_pages *a, side s, int32_t base, int32_t first, int32_t end) {
    const kv_planes *l = attn_pages_planes(a);
    if (l->page_tokens < ATTN_BLOCK) {
        find_copies(a, s, base, first, end);
        return;
    }
    int32_t block = first / ATTN_BLOCK, position = base + block * ATTN_BLOCK,
            page = position / l->page_tokens, offset = position % l->page_tokens;
    for (; block * ATTN_BLOCK < end; page++, offset = 0) {
        uint8_t *plane = cpu_kv_plane(a->b, a->pages[page], a->cache, s.kind),
                *rows = plane + cpu_kv_head(l, s.kind, a->head);
        const float *scales = cpu_kv_scales(l, s.kind, plane, a->head);
        for (; offset < l->page_tokens && block * ATTN_BLOCK < end; offset += ATTN_BLOCK, block++) {
            find_block(a, s, rows + offset * s.plane->row_bytes, scales != NULL ? scales + offset : NULL,
                       block);
        }
    }
}

/* Copies the values of latents from the tile's keys, for blocks block to block1. */
static void find_latents(const attn_pages *a, int32_t block, int32_t block1, attn_copies *c,
                         attn_tile *tile) {
    const dtype type = tile->k_type;
    const size_t row = type == DTYPE_I8 ? (size_t)attn_int8_stride(tile->d_value)
                                        : (size_t)dtype_block_bytes(type) * (size_t)tile->d_value;
    for (; block < block1; block++) {
        uint8_t *to = c->values + (size_t)block * ATTN_BLOCK * row;
        a->b->math->values_of_keys(type, tile->k_blocks[block], tile->d_value, to);
        tile->v_blocks[block] = to;
        tile->v_scales[block] = tile->k_scales[block];
    }
}

/* The type as which n_queries read a plane of pages with whole blocks. most_int4: most
 * queries that read int4 codes directly. */
static dtype type_shared(const kv_plane *plane, const math_kernels *math, int32_t n_queries,
                         int32_t most_int4) {
    if (plane->type == DTYPE_I4 && n_queries > 0 && n_queries <= most_int4) {
        return DTYPE_I4;
    }
    return plane->type == DTYPE_F8_E4M3 && n_queries > UNPACKING_QUERIES && math->unpack_fp8 != NULL
               ? DTYPE_F16
               : type_read(plane);
}

void attn_pages_types(const kv_planes *l, const math_kernels *math, int32_t n_queries, attn_tile *tile) {
    const bool is_latent = l->kind == LAYER_LATENT;
    const kv_plane *value = is_latent ? &l->key : &l->value;
    const int32_t n = l->page_tokens >= ATTN_BLOCK ? n_queries : 0;
    tile->k_type = type_shared(&l->key, math, n, is_latent ? 0 : math->int4_key_queries);
    tile->v_type = type_shared(value, math, n, is_latent ? 0 : math->int4_value_queries);
    tile->k_is_scaled = l->key.scale_bytes > 0;
    tile->v_is_scaled = value->scale_bytes > 0;
}

void attn_pages_find(const attn_pages *a, int32_t base, int32_t first, int32_t end, int32_t n_queries,
                     attn_copies *c, attn_tile *tile) {
    const kv_planes *l = attn_pages_planes(a);
    attn_pages_types(l, a->b->math, n_queries, tile);
    const side keys = side_of(l, KV_PLANE_K, c, tile), values = side_of(l, KV_PLANE_V, c, tile);
    find_side(a, keys, base, first, end);
    if (keys.read == DTYPE_F16 && keys.plane->type == DTYPE_F8_E4M3) {
        unpack_fp8(a, keys, first, end);
    }
    if (l->kind == LAYER_LATENT) {
        find_latents(a, first / ATTN_BLOCK, (end + ATTN_BLOCK - 1) / ATTN_BLOCK, c, tile);
        return;
    }
    find_side(a, values, base, first, end);
    if (values.read == DTYPE_F16 && values.plane->type == DTYPE_F8_E4M3) {
        unpack_fp8(a, values, first, end);
    }
}

/* Sets what to prefetch while block i is multiplied: a head's block in a page, from token
 * `offset` on; with the keys if i is below ATTN_BLOCKS, else with the values. */
static void fetch_with(const attn_pages *a, kv_plane_kind kind, int32_t page, int32_t head, int32_t offset,
                       int32_t i, attn_tile *tile) {
    const kv_planes *l = attn_pages_planes(a);
    uint8_t *plane = cpu_kv_plane(a->b, a->pages[page], a->cache, kind);
    const uint8_t *rows = plane + cpu_kv_head(l, kind, head) + offset * cpu_plane_of(l, kind)->row_bytes;
    const float *scales = cpu_kv_scales(l, kind, plane, head);
    scales = scales != NULL ? scales + offset : NULL;
    if (i < ATTN_BLOCKS) {
        tile->fetch_k[i] = rows;
        tile->fetch_k_scales[i] = scales;
    } else {
        tile->fetch_v[i - ATTN_BLOCKS] = rows;
        tile->fetch_v_scales[i - ATTN_BLOCKS] = scales;
    }
}

/* Prefetches blocks that are already cached, that is nothing. k_bytes, v_bytes: sizes of
 * such a block. */
static void fetch_own(int64_t k_bytes, int64_t v_bytes, attn_tile *tile) {
    tile->fetch_k_bytes = (int32_t)k_bytes;
    tile->fetch_v_bytes = (int32_t)v_bytes;
    memcpy(tile->fetch_k, tile->v_blocks, sizeof tile->fetch_k);
    memcpy(tile->fetch_v, tile->v_blocks, sizeof tile->fetch_v);
    memcpy(tile->fetch_k_scales, tile->v_scales, sizeof tile->fetch_k_scales);
    memcpy(tile->fetch_v_scales, tile->v_scales, sizeof tile->fetch_v_scales);
}

/* Sets the rows of one plane at positions base..base + n to be prefetched with blocks
 * from i on. */
static void fetch_side(const attn_pages *a, kv_plane_kind kind, int32_t base, int32_t n, int32_t i,
                       attn_tile *tile) {
    const kv_planes *l = attn_pages_planes(a);
    for (int32_t p = 0; p < n; p += ATTN_BLOCK) {
        fetch_with(a, kind, (base + p) / l->page_tokens, a->head, (base + p) % l->page_tokens,
                   i + p / ATTN_BLOCK, tile);
    }
}

void attn_pages_fetch_next(const attn_pages *a, int32_t base, int32_t n, attn_tile *tile) {
    const kv_planes *l = attn_pages_planes(a);
    const int64_t k_bytes = l->key.row_bytes * ATTN_BLOCK, v_bytes = l->value.row_bytes * ATTN_BLOCK;
    const bool is_latent = l->kind == LAYER_LATENT, has_values = is_latent || tile->v_type != l->value.type;
    fetch_own(has_values ? k_bytes : v_bytes, has_values ? v_bytes : k_bytes, tile);
    if (l->page_tokens < ATTN_BLOCK) {
        return;
    }
    if (is_latent) {
        fetch_side(a, KV_PLANE_K, base, n, 0, tile);
    } else if (has_values) {
        fetch_side(a, KV_PLANE_K, base, n, 0, tile);
        fetch_side(a, KV_PLANE_V, base, n, ATTN_BLOCKS, tile);
    } else {
        fetch_side(a, KV_PLANE_K, base, n, ATTN_BLOCKS, tile);
    }
}

void attn_pages_fetch_part(const attn_pages *a, int32_t base, int32_t n, int32_t n_heads, int32_t part,
                           attn_tile *tile) {
    const kv_planes *l = attn_pages_planes(a);
    /* blocks of one head, and of these heads, in a plane */
    int32_t n_blocks = l->page_tokens / ATTN_BLOCK, plane_blocks = n_heads * n_blocks;
    int32_t page = base / l->page_tokens, end = page + (n + l->page_tokens - 1) / l->page_tokens,
            at = part * 2 * ATTN_BLOCKS;
    const int64_t bytes =
        ATTN_BLOCK * (l->key.row_bytes > l->value.row_bytes ? l->key.row_bytes : l->value.row_bytes);
    fetch_own(bytes, bytes, tile);
    page += at / (2 * plane_blocks);
    at %= 2 * plane_blocks;
    for (int32_t i = 0; i < 2 * ATTN_BLOCKS && page < end; i++) {
        int32_t block = at % plane_blocks;
        fetch_with(a, at < plane_blocks ? KV_PLANE_K : KV_PLANE_V, page, a->head + block / n_blocks,
                   block % n_blocks * ATTN_BLOCK, i, tile);
        at = at + 1 < 2 * plane_blocks ? at + 1 : 0;
        page += at == 0;
    }
}

void attn_pages_fetch_all(const attn_pages *a, int32_t first, int32_t end, int32_t n_heads) {
    const kv_planes *l = attn_pages_planes(a);
    for (int32_t page = first / l->page_tokens; page * l->page_tokens < end; page++) {
        for (kv_plane_kind kind = KV_PLANE_K; kind <= KV_PLANE_V; kind++) {
            const uint8_t *plane = cpu_kv_plane(a->b, a->pages[page], a->cache, kind);
            const int64_t to = cpu_kv_head(l, kind, a->head + n_heads);
            for (int64_t at = cpu_kv_head(l, kind, a->head); at < to; at += MEM_ALIGN) {
                __builtin_prefetch(plane + at, 0, 2);
            }
        }
    }
}

void attn_pages_place(const attn_pages *a, int32_t place, int32_t p, attn_copies *c, attn_tile *tile) {
    const kv_planes *l = attn_pages_planes(a);
    const kv_plane_kind last = l->kind == LAYER_LATENT ? KV_PLANE_K : KV_PLANE_V;
    for (kv_plane_kind kind = KV_PLANE_K; kind <= last; kind++) {
        const side s = side_of(l, kind, c, tile);
        copy_block(s, p / ATTN_BLOCK);
        copy_tokens(a, s, a->pages[place / l->page_tokens], place % l->page_tokens, 1, p);
    }
}

/* Number of consecutive places at the start of the n, within a block of the pages. */
static int32_t gather_stretch(const int32_t *places, int32_t n) {
    int32_t i = 1;
    while (i < n && places[i] == places[0] + i && places[i] % ATTN_BLOCK != 0) {
        i++;
    }
    return i;
}

/* Makes a block of the tokens at n <= ATTN_BLOCK places: a block of the pages if it
 * starts with them, else a copy. */
static void gather_block(const attn_pages *a, side s, const int32_t *places, int32_t n, int32_t block) {
    const kv_planes *l = attn_pages_planes(a);
    const int32_t page = places[0] / l->page_tokens, offset = places[0] % l->page_tokens;
    if (l->page_tokens >= ATTN_BLOCK && offset % ATTN_BLOCK == 0 && gather_stretch(places, n) == n) {
        uint8_t *plane = cpu_kv_plane(a->b, a->pages[page], a->cache, s.kind);
        const float *scales = cpu_kv_scales(l, s.kind, plane, a->head);
        find_block(a, s, plane + cpu_kv_head(l, s.kind, a->head) + offset * s.plane->row_bytes,
                   scales != NULL ? scales + offset : NULL, block);
        return;
    }
    use_copy(s, block);
    for (int32_t i = 0; i < n; i++) {
        copy_tokens(a, s, a->pages[places[i] / l->page_tokens], places[i] % l->page_tokens, 1,
                    block * ATTN_BLOCK + i);
    }
}

void attn_pages_gather(const attn_pages *a, const int32_t *places, int32_t n, attn_copies *c,
                       attn_tile *tile) {
    const kv_planes *l = attn_pages_planes(a);
    const kv_plane_kind last = l->kind == LAYER_LATENT ? KV_PLANE_K : KV_PLANE_V;
    for (kv_plane_kind kind = KV_PLANE_K; kind <= last; kind++) {
        const side s = side_of(l, kind, c, tile);
        for (int32_t i = 0; i < n; i += ATTN_BLOCK) {
            gather_block(a, s, places + i, n - i < ATTN_BLOCK ? n - i : ATTN_BLOCK, i / ATTN_BLOCK);
        }
    }
    attn_pages_placed(a, 0, n, c, tile);
    fetch_own(0, 0, tile);
}

void attn_pages_placed(const attn_pages *a, int32_t first, int32_t end, attn_copies *c, attn_tile *tile) {
    if (attn_pages_planes(a)->kind == LAYER_LATENT) {
        find_latents(a, first / ATTN_BLOCK, (end + ATTN_BLOCK - 1) / ATTN_BLOCK, c, tile);
    }
}
