/* Plain C twin of the attention kernels: the reference of attention_kernels.inc.h.
 *
 * Score of a position: s = sum_e q[e] k[e], by fma in ascending e, from 0; then s *
 * scale; then the soft cap; then slope (position - query); then the program that changes
 * scores. max: over the visible positions, 16 lanes by position mod 16 in ascending
 * order, then the tree; 0 if that is -infinity, so that the sum is 0; NaN if a score is
 * NaN. sum: likewise over exp(s - max). acc[d] = sum over visible positions, ascending,
 * of exp(s - max) v[d], by fma, from 0.
 *
 * fp8 keys: s = (the sum over their codes as f16) * the key's scale, then as above. fp8
 * values: acc[d] as above over their codes as f16, with the rounded product exp(s - max)
 * * the value's scale as the weight.
 *
 * int8 keys, with int8 queries: s = ((sum_e q[e] k[e]) k's scale) q's scale, with the sum
 * exact in int32. int8 values: u = exp(s - max) * the value's scale. With top the largest
 * u, weights are u 126 / top as integers, by lane as above. The rounding error of a
 * position is carried to the next in its lane, so that many small weights are not lost.
 * acc[d] = (sum of integer weight v[d]) (top / 126), with the sum exact. int4 is a
 * compact form of int8: attention_pages.c and unpack_int4 widen it. */
#include "backend/cpu/kv_rows.h"
#include "backend/cpu/math.h"
#include "core/half.h"
#include "core/math_plain.h"

static float element(dtype type, const void *p, int32_t i) {
    if (type == DTYPE_F32) {
        return ((const float *)p)[i];
    }
    if (type == DTYPE_F8_E4M3) {
        return f16_to_f32(e4m3_to_f16_bits(((const uint8_t *)p)[i]));
    }
    uint16_t half = ((const uint16_t *)p)[i];
    return type == DTYPE_BF16 ? bf16_to_f32(half) : f16_to_f32(half);
}

static float float_score(const attn_tile *t, int32_t query, int32_t p) {
    const void *block = t->k_blocks[p / ATTN_BLOCK];
    float s = 0.0f;
    for (int32_t e = 0; e < t->d_head; e++) {
        s = fmaf(t->q[query][e], element(t->k_type, block, e * ATTN_BLOCK + p % ATTN_BLOCK), s);
    }
    return t->k_type == DTYPE_F8_E4M3 ? s * t->k_scales[p / ATTN_BLOCK][p % ATTN_BLOCK] : s;
}

static float int8_score(const attn_tile *t, int32_t query, int32_t p) {
    const int8_t *q = t->q_int8 + query * attn_int8_stride(t->d_head), *keys = t->k_blocks[p / ATTN_BLOCK];
    int32_t sum = 0;
    for (int32_t e = 0; e < t->d_head; e++) {
        sum += q[e] * keys[e / 4 * 4 * ATTN_BLOCK + p % ATTN_BLOCK * 4 + e % 4];
    }
    return (float)sum * t->k_scales[p / ATTN_BLOCK][p % ATTN_BLOCK] * t->q_scale[query];
}

static void score_query(const attn_tile *t, int32_t query, float *scores) {
    for (int32_t p = t->first[query]; p < t->end[query]; p++) {
        float s = (t->k_type == DTYPE_I8 ? int8_score(t, query, p) : float_score(t, query, p)) * t->scale;
        if (t->soft_cap > 0.0f) {
            s = t->soft_cap * plain_tanh(s / t->soft_cap);
        }
        if (t->has_slopes) {
            s = fmaf(t->slopes[query], (float)(p - t->position[query]), s);
        }
        scores[p] = s;
    }
    if (t->change != NULL) {
        attn_change_scores(t, query);
    }
}

/* The first visible position from p on; `end` if there is none. */
static int32_t next_seen(const attn_tile *t, int32_t query, int32_t p) {
    while (p < t->end[query] && !attn_sees(t, query, p)) {
        p++;
    }
    return p;
}

#define EACH_SEEN(p)                                                                                         \
    for (int32_t p = next_seen(t, query, t->first[query]); p < t->end[query]; p = next_seen(t, query, p + 1))

static void soften_query(const attn_tile *t, int32_t query, float *scores) {
    float lanes[ATTN_BLOCK], sums[ATTN_BLOCK] = {0};
    for (int32_t i = 0; i < ATTN_BLOCK; i++) {
        lanes[i] = -INFINITY;
    }
    EACH_SEEN(p) {
        lanes[p % ATTN_BLOCK] = plain_max(lanes[p % ATTN_BLOCK], scores[p]);
    }
    float highest = plain_tree_max(lanes);
    t->max[query] = highest == -INFINITY ? 0.0f : highest;
    EACH_SEEN(p) {
        scores[p] = plain_exp(scores[p] - t->max[query]);
        sums[p % ATTN_BLOCK] = sums[p % ATTN_BLOCK] + scores[p];
    }
    t->sum[query] = plain_tree_sum(sums);
}

static void weigh_query(const attn_tile *t, int32_t query, const float *scores) {
    float *acc = t->acc + (int64_t)query * t->acc_stride;
    memset(acc, 0, sizeof *acc * (size_t)t->acc_stride);
    EACH_SEEN(p) {
        const float weight =
            t->v_type == DTYPE_F8_E4M3 ? scores[p] * t->v_scales[p / ATTN_BLOCK][p % ATTN_BLOCK] : scores[p];
        for (int32_t d = 0; d < t->d_value; d++) {
            acc[d] =
                fmaf(weight, element(t->v_type, t->v_blocks[p / ATTN_BLOCK], p % ATTN_BLOCK * t->d_value + d),
                     acc[d]);
        }
    }
}

static void weigh_int8_query(const attn_tile *t, int32_t query, const float *scores) {
    float *acc = t->acc + (int64_t)query * t->acc_stride, carry[ATTN_BLOCK] = {0}, u[ATTN_CHUNK], top = 0.0f;
    int32_t weights[ATTN_CHUNK], row = attn_int8_stride(t->d_value);
    EACH_SEEN(p) {
        u[p] = scores[p] * t->v_scales[p / ATTN_BLOCK][p % ATTN_BLOCK];
        top = plain_max(top, u[p]);
    }
    float inverse = top > ATTN_INT8_LEAST ? ATTN_INT8_TOP / top : 0.0f,
          step = top > ATTN_INT8_LEAST ? top / ATTN_INT8_TOP : 0.0f;
    EACH_SEEN(p) {
        float x = carry[p % ATTN_BLOCK] + plain_min(plain_max(u[p] * inverse, 0.0f), ATTN_INT8_TOP),
              whole = rintf(x);
        carry[p % ATTN_BLOCK] = x - whole;
        weights[p] = (int32_t)whole;
    }
    for (int32_t d = 0; d < t->d_value; d++) {
        int32_t sum = 0;
        EACH_SEEN(p) {
            const int8_t *values = t->v_blocks[p / ATTN_BLOCK];
            sum += weights[p] * values[(p % ATTN_BLOCK / 4 * row + d) * 4 + p % 4];
        }
        acc[d] = (float)sum * step;
    }
}

void attention_tile_plain(const attn_tile *t) {
    for (int32_t query = 0; query < t->n_queries; query++) {
        float *scores = t->scores + query * ATTN_CHUNK;
        t->sum[query] = 0.0f;
        if (t->first[query] >= t->end[query]) {
            continue;
        }
        score_query(t, query, scores);
        soften_query(t, query, scores);
        if (t->sum[query] == 0.0f) {
            continue;
        }
        if (t->v_type == DTYPE_I8) {
            weigh_int8_query(t, query, scores);
        } else {
            weigh_query(t, query, scores);
        }
    }
}

void attention_products_plain(const attn_tile *t) {
    for (int32_t query = 0; query < t->n_queries; query++) {
        float *scores = t->scores + query * ATTN_CHUNK;
        for (int32_t p = t->first[query]; p < t->end[query]; p++) {
            scores[p] = t->k_type == DTYPE_I8 ? int8_score(t, query, p) : float_score(t, query, p);
        }
    }
}

void attention_values_of_keys_plain(dtype type, const void *keys, int32_t d_value, void *values) {
    const int32_t size = type == DTYPE_I8 ? 1 : dtype_block_bytes(type), row = attn_int8_stride(d_value);
    const uint8_t *from = keys;
    uint8_t *to = values;
    for (int32_t p = 0; p < ATTN_BLOCK; p++) {
        for (int32_t d = 0; d < (type == DTYPE_I8 ? row : d_value); d++) {
            if (type == DTYPE_I8) {
                to[(p / 4 * row + d) * 4 + p % 4] = from[(d / 4 * ATTN_BLOCK + p) * 4 + d % 4];
            } else {
                memcpy(to + (p * d_value + d) * size, from + (d * ATTN_BLOCK + p) * size, (size_t)size);
            }
        }
    }
}

void attention_unpack_int4_plain(bool values, const uint8_t *block, int32_t width, int32_t row_bytes,
                                 int8_t *out) {
    const kv_plane_kind kind = values ? KV_PLANE_V : KV_PLANE_K;
    for (int32_t p = 0; p < ATTN_BLOCK; p++) {
        uint8_t bytes[CPU_MAX_ROW];
        int8_t integers[CPU_MAX_ROW];
        cpu_row_get(cpu_row_at(DTYPE_I4, kind, row_bytes, ATTN_BLOCK, (uint8_t *)(uintptr_t)block, p), bytes);
        cpu_int4_decode(bytes, width, integers);
        cpu_row_put(cpu_row_at(DTYPE_I8, kind, attn_int8_stride(width), ATTN_BLOCK, (uint8_t *)out, p),
                    (const uint8_t *)integers);
    }
}

/* max' = max(to, chunk), a = exp(to.max - max'), b = exp(chunk.max - max'); to' = to a +
 * chunk b, the second product rounded first. */
static void merge_state(attn_state *to, const attn_state *chunk, int32_t acc_stride) {
    if (chunk->sum == 0.0f) {
        return;
    }
    if (to->sum == 0.0f) {
        to->max = chunk->max;
        to->sum = chunk->sum;
        memcpy(to->acc, chunk->acc, sizeof *to->acc * (size_t)acc_stride);
        return;
    }
    float max = plain_max(to->max, chunk->max);
    float a = plain_exp(to->max - max);
    float b = plain_exp(chunk->max - max);
    to->max = max;
    to->sum = fmaf(to->sum, a, chunk->sum * b);
    for (int32_t i = 0; i < acc_stride; i++) {
        to->acc[i] = fmaf(to->acc[i], a, chunk->acc[i] * b);
    }
}

void attention_merge_plain(attn_state *to, const attn_state *chunk, int32_t n, int32_t acc_stride) {
    for (int32_t i = 0; i < n; i++) {
        merge_state(&to[i], &chunk[i], acc_stride);
    }
}

void attention_finish_plain(attn_state *s, const float *sink, int32_t d_value, float *out) {
    if (s->sum == 0.0f) {
        memset(out, 0, sizeof *out * (size_t)d_value);
        return;
    }
    float a = 1.0f;
    if (sink != NULL) {
        float max = plain_max(s->max, *sink);
        a = plain_exp(s->max - max);
        s->sum = fmaf(s->sum, a, plain_exp(*sink - max));
        s->max = max;
    }
    float factor = a / s->sum;
    for (int32_t i = 0; i < d_value; i++) {
        out[i] = s->acc[i] * factor;
    }
}
