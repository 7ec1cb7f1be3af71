#include "backend/cpu/pages_int8.h"

#include <float.h>
#include <math.h>
#include <string.h>

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
