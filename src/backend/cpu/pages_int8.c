#include "backend/cpu/pages_int8.h"

#include <float.h>
#include <math.h>
#include <string.h>

#define READ_AHEAD_BYTES 64 /* attention reads whole vectors, past the last value */

/* ---- one head of one token ---- */

/* The planes of a slot's page, and its offset in them. */
typedef struct place {
    uint8_t *k, *v;
    int32_t offset;
} place;

static place place_of(const cpu_backend *b, int32_t layer, kv_slot slot) {
    int32_t page = (int32_t)(slot.v / b->layout.page_tokens);
    return (place){cpu_kv_plane(b, page, layer, KV_PLANE_K), cpu_kv_plane(b, page, layer, KV_PLANE_V), (int32_t)(slot.v % b->layout.page_tokens)};
}

float cpu_int8_scale(const float *x, int32_t n) {
    float largest = 0.0f;
    for (int32_t i = 0; i < n; i++) {
        float a = fabsf(x[i]);
        if (!(a <= FLT_MAX)) {
            return NAN;
        }
        largest = a > largest ? a : largest;
    }
    return largest > ATTN_INT8_LEAST ? largest / 127.0f : 0.0f;
}

/* 1 / scale, or 0 where nothing is to be kept. */
static float inverse_of(float scale) {
    return scale > 0.0f ? 1.0f / scale : 0.0f;
}

static int8_t rounded(float x, float inverse) {
    float whole = inverse > 0.0f ? rintf(x * inverse) : 0.0f;
    return (int8_t)(whole > 127.0f ? 127.0f : whole < -127.0f ? -127.0f : whole);
}

void cpu_int8_store(const cpu_backend *b, int32_t layer, int32_t head, kv_slot slot, const float *k, const float *v) {
    const kv_layout *l = &b->layout;
    place to = place_of(b, layer, slot);
    float k_scale = cpu_int8_scale(k, l->d_head), v_scale = cpu_int8_scale(v, l->d_head);
    float k_inverse = inverse_of(k_scale), v_inverse = inverse_of(v_scale);
    if (isnan(k_scale) || isnan(v_scale)) {
        k_scale = v_scale = NAN;
    }
    for (int32_t e = 0; e < (int32_t)l->row_bytes; e++) {
        to.k[cpu_k_int8_index(l, head, to.offset, e)] = (uint8_t)(e < l->d_head ? rounded(k[e], k_inverse) : 0);
        to.v[cpu_v_int8_index(l, head, to.offset, e)] = (uint8_t)(e < l->d_head ? rounded(v[e], v_inverse) : 0);
    }
    cpu_int8_scales(l, to.k, head)[to.offset] = k_scale;
    cpu_int8_scales(l, to.v, head)[to.offset] = v_scale;
}

void cpu_int8_move(const cpu_backend *b, int32_t layer, int32_t head, kv_slot src, kv_slot dst) {
    const kv_layout *l = &b->layout;
    place from = place_of(b, layer, src), to = place_of(b, layer, dst);
    for (int32_t e = 0; e < (int32_t)l->row_bytes; e++) {
        to.k[cpu_k_int8_index(l, head, to.offset, e)] = from.k[cpu_k_int8_index(l, head, from.offset, e)];
        to.v[cpu_v_int8_index(l, head, to.offset, e)] = from.v[cpu_v_int8_index(l, head, from.offset, e)];
    }
    cpu_int8_scales(l, to.k, head)[to.offset] = cpu_int8_scales(l, from.k, head)[from.offset];
    cpu_int8_scales(l, to.v, head)[to.offset] = cpu_int8_scales(l, from.v, head)[from.offset];
}

void cpu_int8_read(const cpu_backend *b, int32_t layer, int32_t head, kv_slot slot, float *k, float *v) {
    const kv_layout *l = &b->layout;
    place at = place_of(b, layer, slot);
    float k_scale = cpu_int8_scales(l, at.k, head)[at.offset], v_scale = cpu_int8_scales(l, at.v, head)[at.offset];
    for (int32_t e = 0; e < l->d_head; e++) {
        k[e] = (float)(int8_t)at.k[cpu_k_int8_index(l, head, at.offset, e)] * k_scale;
        v[e] = (float)(int8_t)at.v[cpu_v_int8_index(l, head, at.offset, e)] * v_scale;
    }
}

/* ---- what attention reads ---- */

static size_t block_bytes(const kv_layout *l) {
    return (size_t)l->row_bytes * ATTN_BLOCK;
}

size_t cpu_int8_scratch_bytes(const kv_layout *l) {
    size_t q = (size_t)ATTN_TILE * (size_t)attn_int8_stride(l->d_head), rows = ATTN_BLOCKS * block_bytes(l) + READ_AHEAD_BYTES;
    return 2 * sizeof(float) * ATTN_CHUNK + q + ATTN_TILE * ATTN_CHUNK + 2 * rows;
}

void cpu_int8_scratch_init(const kv_layout *l, uint8_t *memory, cpu_int8_scratch *s, attn_tile *tile) {
    size_t q = (size_t)ATTN_TILE * (size_t)attn_int8_stride(l->d_head);
    s->k_scales = (float *)(void *)memory;
    s->v_scales = s->k_scales + ATTN_CHUNK;
    tile->q_int8 = (int8_t *)(s->v_scales + ATTN_CHUNK);
    tile->weights = (uint8_t *)(tile->q_int8 + q);
    s->keys = (int8_t *)(tile->weights + ATTN_TILE * ATTN_CHUNK);
    s->values = s->keys + ATTN_BLOCKS * block_bytes(l) + READ_AHEAD_BYTES;
}

void cpu_int8_query(attn_tile *tile, int32_t t) {
    int32_t stride = attn_int8_stride(tile->d_head);
    int8_t *out = tile->q_int8 + (int64_t)t * stride;
    float scale = cpu_int8_scale(tile->q[t], tile->d_head), inverse = inverse_of(scale);
    tile->q_scale[t] = scale;
    tile->q_sum[t] = 0;
    for (int32_t e = 0; e < stride; e++) {
        out[e] = e < tile->d_head ? rounded(tile->q[t][e], inverse) : 0;
        tile->q_sum[t] += out[e];
    }
}

void cpu_int8_find(const cpu_backend *b, int32_t layer, const int32_t *pages, int32_t head, int32_t base, int32_t first, int32_t end,
                   cpu_int8_scratch *s, attn_tile *tile) {
    const kv_layout *l = &b->layout;
    for (int32_t block = first / ATTN_BLOCK; block * ATTN_BLOCK < end; block++) {
        int32_t position = base + block * ATTN_BLOCK, offset = position % l->page_tokens;
        if (l->page_tokens < ATTN_BLOCK) {
            tile->k_blocks[block] = s->keys + block_bytes(l) * (size_t)block;
            tile->v_blocks[block] = s->values + block_bytes(l) * (size_t)block;
            tile->k_scales[block] = s->k_scales + block * ATTN_BLOCK;
            tile->v_scales[block] = s->v_scales + block * ATTN_BLOCK;
            continue;
        }
        uint8_t *k = cpu_kv_plane(b, pages[position / l->page_tokens], layer, KV_PLANE_K);
        uint8_t *v = cpu_kv_plane(b, pages[position / l->page_tokens], layer, KV_PLANE_V);
        tile->k_blocks[block] = k + cpu_k_int8_index(l, head, offset, 0);
        tile->v_blocks[block] = (int8_t *)v + cpu_v_int8_index(l, head, offset, 0);
        tile->k_scales[block] = cpu_int8_scales(l, k, head) + offset;
        tile->v_scales[block] = cpu_int8_scales(l, v, head) + offset;
    }
    for (int32_t p = first; p < end && l->page_tokens < ATTN_BLOCK; p++) {
        int32_t position = base + p;
        int64_t slot = (int64_t)pages[position / l->page_tokens] * l->page_tokens + position % l->page_tokens;
        cpu_int8_place(b, layer, head, (kv_slot){slot}, p, s, tile);
    }
}

/* Block `block` is a copy of itself from now on. */
static void own_block(const kv_layout *l, int32_t block, cpu_int8_scratch *s, attn_tile *tile) {
    int8_t *keys = s->keys + block_bytes(l) * (size_t)block, *values = s->values + block_bytes(l) * (size_t)block;
    float *k_scales = s->k_scales + block * ATTN_BLOCK, *v_scales = s->v_scales + block * ATTN_BLOCK;
    if (tile->k_blocks[block] == keys) {
        return;
    }
    memcpy(keys, tile->k_blocks[block], block_bytes(l));
    memcpy(values, tile->v_blocks[block], block_bytes(l));
    memcpy(k_scales, tile->k_scales[block], sizeof *k_scales * ATTN_BLOCK);
    memcpy(v_scales, tile->v_scales[block], sizeof *v_scales * ATTN_BLOCK);
    tile->k_blocks[block] = keys;
    tile->v_blocks[block] = values;
    tile->k_scales[block] = k_scales;
    tile->v_scales[block] = v_scales;
}

void cpu_int8_place(const cpu_backend *b, int32_t layer, int32_t head, kv_slot slot, int32_t p, cpu_int8_scratch *s, attn_tile *tile) {
    const kv_layout *l = &b->layout;
    place from = place_of(b, layer, slot);
    int32_t lane = p % ATTN_BLOCK;
    own_block(l, p / ATTN_BLOCK, s, tile);
    int8_t *keys = s->keys + block_bytes(l) * (size_t)(p / ATTN_BLOCK), *values = s->values + block_bytes(l) * (size_t)(p / ATTN_BLOCK);
    for (int32_t e = 0; e < (int32_t)l->row_bytes; e++) {
        keys[e / 4 * 4 * ATTN_BLOCK + lane * 4 + e % 4] = (int8_t)from.k[cpu_k_int8_index(l, head, from.offset, e)];
        values[(lane / 4 * (int32_t)l->row_bytes + e) * 4 + lane % 4] = (int8_t)from.v[cpu_v_int8_index(l, head, from.offset, e)];
    }
    s->k_scales[p] = cpu_int8_scales(l, from.k, head)[from.offset];
    s->v_scales[p] = cpu_int8_scales(l, from.v, head)[from.offset];
}
