/* Appends the members of a 64-bit set to an array one by one, for processors that cannot
 * compress bytes. */
#ifndef SAMPLE_SAMPLER_APPEND_H
#define SAMPLE_SAMPLER_APPEND_H

#include "sample/sampler_block.h"

#define AT_A_TIME 4 /* members written at a time, whether or not there are that many */

/* No branch per member, since membership is unpredictable: always writes AT_A_TIME
 * members, and the next call overwrites the surplus. */
static inline int32_t append(int32_t *ids, float *values, int32_t n, int32_t first, const float *x,
                             uint64_t set) {
    int32_t end = n + __builtin_popcountll(set);
    while (n < end) {
        UNROLL for (int i = 0; i < AT_A_TIME; i++) {
            int place = __builtin_ctzll(set | (uint64_t)1 << (GROUP - 1));
            ids[n + i] = first + place;
            values[n + i] = x[place];
            set &= set - 1;
        }
        n += AT_A_TIME;
    }
    return end;
}

static inline int32_t append_inside(candidate *inside, int32_t n, int32_t first, const float *w,
                                    uint64_t set) {
    int32_t end = n + __builtin_popcountll(set);
    while (n < end) {
        UNROLL for (int i = 0; i < AT_A_TIME; i++) {
            int place = __builtin_ctzll(set | (uint64_t)1 << (GROUP - 1));
            inside[n + i] = (candidate){float_bits(w[place]), first + place};
            set &= set - 1;
        }
        n += AT_A_TIME;
    }
    return end;
}

#endif
