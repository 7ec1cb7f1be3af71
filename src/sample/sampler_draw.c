/* Draws a token from the kept weights, and selects the row passes that this processor
 * supports. */
#include "sample/sampler_parts.h"

#if defined(__x86_64__)
static bool sampler_draw_has_avx2(void) {
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("bmi") &&
           __builtin_cpu_supports("popcnt");
}

static bool sampler_draw_has_avx512(void) {
#ifdef SIMD_EMULATE /* compiled through SIMDe, for tests */
    return sampler_draw_has_avx2();
#else
    return sampler_draw_has_avx2() && __builtin_cpu_supports("avx512f") &&
           __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512vbmi2");
#endif
}
#endif

int32_t sampler_rows_here(const sampler_rows *all[SAMPLER_ROWS_MOST]) {
    int32_t n = 0;
    all[n++] = &sampler_rows_plain;
#if defined(__x86_64__)
    if (sampler_draw_has_avx2()) {
        all[n++] = &sampler_rows_avx2;
    }
    if (sampler_draw_has_avx512()) {
        all[n++] = &sampler_rows_avx512;
    }
#endif
    return n;
}

/* The block, of n, in whose part of the total `target` falls; where rounding exhausts the
 * walk, the last one of some weight. *before is the sum of the blocks before it. */
static int32_t sampler_draw_find_block(const double *sums, int32_t n, double target, double *before) {
    int32_t last = 0, b = 0;
    for (int32_t i = 0; i < n; i++) {
        last = sums[i] > 0.0 ? i : last;
    }
    while (b < last && *before + sums[b] <= target) {
        *before += sums[b++];
    }
    return b;
}

/* The index of the weight, of n, on which `target` falls. Some weight is not 0. */
static int32_t sampler_draw_find_place(const float *w, int32_t n, double target, double before) {
    int32_t place = 0;
    for (int32_t i = 0; i < n; i++) {
        before += (double)w[i];
        place = w[i] > 0.0f ? i : place;
        if (w[i] > 0.0f && before > target) {
            break;
        }
    }
    return place;
}

/* The same with the sums of the weights' groups. */
static int32_t find_in_groups(const float *w, int32_t n, const double *sums, double target) {
    double before = 0.0;
    int32_t first = GROUP * sampler_draw_find_block(sums, (n + GROUP - 1) / GROUP, target, &before);
    return first + sampler_draw_find_place(w + first, n - first < GROUP ? n - first : GROUP, target, before);
}

int32_t sampler_draw(sampler *s, const float *logits, float uniform) {
    if (!s->is_whole) {
        double total = s->rows->sum_blocks(s->weights, s->n_kept, s->sums);
        return s->ids[find_in_groups(s->weights, s->n_kept, s->sums, (double)uniform * total)];
    }
    double target = (double)uniform * s->total, before = 0.0;
    int32_t first =
        BLOCK * sampler_draw_find_block(s->sums, (s->n_vocab + BLOCK - 1) / BLOCK, target, &before);
    int32_t n = s->n_vocab - first < BLOCK ? s->n_vocab - first : BLOCK;
    memcpy(s->weights, logits + first, (size_t)n * sizeof *logits);
    s->rows->weigh(s->weights, n, s->max, s->scale);
    (void)s->rows->sum_blocks(s->weights, n, s->sums);
    return first + find_in_groups(s->weights, n, s->sums, target - before);
}
