/* Plain C twin of the attention kernels: the reference of attention_kernels.inc.h.
 *
 * Score of a position: s = sum_e q[e] k[e] by fma in ascending e, from 0; then s scale; then soft cap; then slope (position - query).
 * max: over the visible positions, 16 lanes by position mod 16 in ascending order, then the tree. sum: likewise over exp(s - max).
 * acc[d] = sum over visible positions, ascending, of exp(s - max) v[d] by fma, from 0. */
#include "backend/cpu/math.h"
#include "backend/cpu/math_plain.h"
#include "core/half.h"

static float element(dtype type, const void *p, int32_t i) {
    if (type == DTYPE_F32) {
        return ((const float *)p)[i];
    }
    uint16_t half = ((const uint16_t *)p)[i];
    return type == DTYPE_BF16 ? bf16_to_f32(half) : f16_to_f32(half);
}

static void score_query(const attn_tile *t, int32_t query, float *scores) {
    for (int32_t p = t->first[query]; p < t->end[query]; p++) {
        const void *block = t->k_blocks[p / ATTN_BLOCK];
        float s = 0.0f;
        for (int32_t e = 0; e < t->d_head; e++) {
            s = fmaf(t->q[query][e], element(t->type, block, e * ATTN_BLOCK + p % ATTN_BLOCK), s);
        }
        s = s * t->scale;
        if (t->soft_cap > 0.0f) {
            s = t->soft_cap * plain_tanh(s / t->soft_cap);
        }
        if (t->has_slopes) {
            s = fmaf(t->slopes[query], (float)(p - t->position[query]), s);
        }
        scores[p] = s;
    }
}

static void soften_query(const attn_tile *t, int32_t query, float *scores) {
    float lanes[ATTN_BLOCK], sums[ATTN_BLOCK] = {0};
    for (int32_t i = 0; i < ATTN_BLOCK; i++) {
        lanes[i] = -INFINITY;
    }
    for (int32_t p = t->first[query]; p < t->end[query]; p++) {
        lanes[p % ATTN_BLOCK] = plain_max(lanes[p % ATTN_BLOCK], scores[p]);
    }
    t->max[query] = plain_tree_max(lanes);
    for (int32_t p = t->first[query]; p < t->end[query]; p++) {
        scores[p] = plain_exp(scores[p] - t->max[query]);
        sums[p % ATTN_BLOCK] = sums[p % ATTN_BLOCK] + scores[p];
    }
    t->sum[query] = plain_tree_sum(sums);
}

static void weigh_query(const attn_tile *t, int32_t query, const float *scores) {
    float *acc = t->acc + (int64_t)query * t->acc_stride;
    memset(acc, 0, sizeof *acc * (size_t)t->acc_stride);
    for (int32_t p = t->first[query]; p < t->end[query]; p++) {
        for (int32_t d = 0; d < t->d_head; d++) {
            acc[d] = fmaf(scores[p], element(t->type, t->v_rows[p], d), acc[d]);
        }
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
        weigh_query(t, query, scores);
    }
}

/* max' = max(to, chunk), a = exp(to.max - max'), b = exp(chunk.max - max'); to' = to a + chunk b, the second product rounded first. */
void attention_merge_plain(attn_state *to, const attn_state *chunk, int32_t acc_stride) {
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

void attention_finish_plain(attn_state *s, const float *sink, int32_t d_head, float *out) {
    if (s->sum == 0.0f) {
        memset(out, 0, sizeof *out * (size_t)d_head);
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
    for (int32_t i = 0; i < d_head; i++) {
        out[i] = s->acc[i] * factor;
    }
}
