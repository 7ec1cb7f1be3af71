/* The sampler's passes for any processor: what those of sampler_rows_avx2.c are held against. */
#include "engine/sampler_block.h"

#define AT_A_TIME 8 /* ids written without asking how many there are */

/* Bit i: whether x[i] of a group is at least the bound. */
static uint64_t reaches(const float *x, float bound) {
    uint64_t bits = 0;
    for (int i = 0; i < GROUP; i++) {
        bits |= (uint64_t)(x[i] >= bound) << i;
    }
    return bits;
}

/* Without a branch a token, as whether one is in the range cannot be guessed: so many places are written in any case, those too many written
 * over by the next. */
static int32_t append_group(const sampler *s, int32_t *ids, int32_t n, int32_t first, const float *x, side which, float bound) {
    uint64_t bits = which == FROM ? reaches(x, bound) : ~reaches(x, bound);
    int32_t end = n + __builtin_popcountll(bits);
    (void)s;
    while (n < end) {
        for (int j = 0; j < AT_A_TIME; j++) {
            ids[n + j] = first + __builtin_ctzll(bits | (uint64_t)1 << 63);
            bits &= bits - 1;
        }
        n += AT_A_TIME;
    }
    return end;
}

static block_scan scan_block(const float *x, float base, float scale, float *largest) {
    block_scan b = {.largest = -INFINITY};
    float sums[LANES] = {0};
    for (int32_t g = 0; g < BLOCK; g += GROUP) {
        float most = -INFINITY;
        for (int32_t j = g; j < g + GROUP; j++) {
            most = x[j] > most ? x[j] : most;
            b.is_nan |= isnan(x[j]) != 0;
        }
        for (int32_t i = g; i < g + GROUP; i += LANES) {
            for (int32_t j = 0; j < LANES; j++) {
                sums[j] += power_of_2((x[i + j] - base) * scale);
            }
        }
        b.largest = most > b.largest ? most : b.largest;
        largest[g / GROUP] = most;
    }
    b.sum = sum_of_lanes(sums);
    return b;
}

#define SAMPLER_ROWS sampler_rows_plain
#include "engine/sampler_rows.inc.h"
