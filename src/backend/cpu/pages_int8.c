/* KV pages of int8 values: writes, reads and moves rows with a scale a head and token. */
#include "backend/cpu/pages.h"

#include <math.h>
#include <string.h>

/* ---- one head of one token ---- */

/* The planes of a slot's page, and its offset in them. */
typedef struct place {
    uint8_t *k, *v;
    int32_t offset;
} place;

static place place_of(const cpu_backend *b, int32_t cache, kv_slot slot) {
    int32_t page = (int32_t)(slot.v / b->layout.page_tokens);
    return (place){cpu_kv_plane(b, page, cache, KV_PLANE_K), cpu_kv_plane(b, page, cache, KV_PLANE_V),
                   (int32_t)(slot.v % b->layout.page_tokens)};
}

void cpu_int8_store(const cpu_backend *b, int32_t cache, int32_t head, kv_slot slot, const float *k, const float *v) {
    const kv_planes *l = &b->layout.caches[cache];
    const int32_t block = cpu_kv_block(l), quad = cpu_v_int8_quad(l), n = (int32_t)l->key.row_bytes;
    place to = place_of(b, cache, slot);
    int8_t k_bytes[DESC_MAX_HEAD + 3], v_bytes[DESC_MAX_HEAD + 3];
    int32_t sum;
    memset(k_bytes + l->key.width, 0, (size_t)(n - l->key.width));
    memset(v_bytes + l->key.width, 0, (size_t)(n - l->key.width));
    float k_scale = b->math->narrow_int8(k, l->key.width, k_bytes, &sum), v_scale = b->math->narrow_int8(v, l->key.width, v_bytes, &sum);
    if (isnan(k_scale) || isnan(v_scale)) {
        k_scale = v_scale = NAN;
    }
    uint8_t *k_to = to.k + cpu_k_int8_index(l, head, to.offset, 0), *v_to = to.v + cpu_v_int8_index(l, head, to.offset, 0);
    for (int32_t e = 0; e < n; e += 4, k_to += 4 * block) {
        memcpy(k_to, k_bytes + e, 4);
    }
    for (int32_t e = 0; e < n; e++, v_to += quad) {
        *v_to = (uint8_t)v_bytes[e];
    }
    cpu_int8_scales(l, to.k, head)[to.offset] = k_scale;
    cpu_int8_scales(l, to.v, head)[to.offset] = v_scale;
}

void cpu_int8_move(const cpu_backend *b, int32_t cache, int32_t head, kv_slot src, kv_slot dst) {
    const kv_planes *l = &b->layout.caches[cache];
    place from = place_of(b, cache, src), to = place_of(b, cache, dst);
    for (int32_t e = 0; e < (int32_t)l->key.row_bytes; e++) {
        to.k[cpu_k_int8_index(l, head, to.offset, e)] = from.k[cpu_k_int8_index(l, head, from.offset, e)];
        to.v[cpu_v_int8_index(l, head, to.offset, e)] = from.v[cpu_v_int8_index(l, head, from.offset, e)];
    }
    cpu_int8_scales(l, to.k, head)[to.offset] = cpu_int8_scales(l, from.k, head)[from.offset];
    cpu_int8_scales(l, to.v, head)[to.offset] = cpu_int8_scales(l, from.v, head)[from.offset];
}

void cpu_int8_read(const cpu_backend *b, int32_t cache, int32_t head, kv_slot slot, float *k, float *v) {
    const kv_planes *l = &b->layout.caches[cache];
    place at = place_of(b, cache, slot);
    float k_scale = cpu_int8_scales(l, at.k, head)[at.offset], v_scale = cpu_int8_scales(l, at.v, head)[at.offset];
    for (int32_t e = 0; e < l->key.width; e++) {
        k[e] = (float)(int8_t)at.k[cpu_k_int8_index(l, head, at.offset, e)] * k_scale;
        v[e] = (float)(int8_t)at.v[cpu_v_int8_index(l, head, at.offset, e)] * v_scale;
    }
}

/* ---- what attention reads ---- */

void cpu_int8_query(const cpu_backend *b, attn_tile *tile, int32_t t) {
    int32_t stride = attn_int8_stride(tile->d_head);
    int8_t *out = tile->q_int8 + (int64_t)t * stride;
    memset(out + tile->d_head, 0, (size_t)(stride - tile->d_head));
    tile->q_scale[t] = b->math->narrow_int8(tile->q[t], tile->d_head, out, &tile->q_sum[t]);
}
