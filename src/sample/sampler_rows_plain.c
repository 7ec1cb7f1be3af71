/* The sampler's passes for any processor: the reference for the others. */
#include "sample/sampler_append.h"

static uint64_t reaches(const float *x, float bound) {
    uint64_t bits = 0;
    for (int i = 0; i < GROUP; i++) {
        bits |= (uint64_t)(x[i] >= bound) << i;
    }
    return bits;
}

static void keep_only(float *x, uint64_t set) {
    for (int i = 0; i < GROUP; i++) {
        x[i] = set >> i & 1 ? x[i] : -INFINITY;
    }
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
#include "sample/sampler_rows.inc.h"
