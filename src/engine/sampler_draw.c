/* The draw, and which passes suit this processor. */
#include "engine/sampler_parts.h"

const sampler_rows *sampler_rows_best(void) {
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx2")) {
        return &sampler_rows_avx2;
    }
#endif
    return &sampler_rows_plain;
}

/* A group's weight lies where its first and last token do, so a draw looks into one group only. */
int32_t sampler_draw(sampler *s, float uniform) {
    double target = (double)uniform * s->rows->sum(s), before = 0.0;
    int32_t n_groups = (s->n_vocab + GROUP - 1) / GROUP, g = 0, last = -1;
    for (int32_t k = 0; k < n_groups; k++) {
        last = s->sums[k] > 0.0 ? k : last;
    }
    while (g < last && before + s->sums[g] <= target) {
        before += s->sums[g++];
    }
    int32_t token = -1;
    for (; token < 0 || g <= last; g++) { /* the last token kept stands where rounding lets the walk run out */
        int32_t end = (g + 1) * GROUP < s->n_vocab ? (g + 1) * GROUP : s->n_vocab;
        for (int32_t i = g * GROUP; i < end; i++) {
            before += (double)s->weights[i];
            token = s->weights[i] > 0.0f ? i : token;
            if (s->weights[i] > 0.0f && before > target) {
                return i;
            }
        }
    }
    return token;
}
