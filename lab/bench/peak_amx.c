/* AMX loops: products of int8 in tiles. */
#include "backend/cpu/amx_tiles.h"
#include "lab/bench/peak_avx512.h"

/* row_bytes: elements of k per product. */
static float run_tiles(int32_t n, int row_bytes) {
    _Alignas(64) int32_t sums[AMX_ROWS * AMX_BYTES / 4] = {0};
    amx_config c = {0};
    for (int i = 0; i < PEAK_TILES; i++) {
        amx_shape(&c, i, AMX_ROWS, AMX_BYTES);
    }
    amx_shape(&c, 4, AMX_ROWS, row_bytes);
    amx_shape(&c, 5, row_bytes / 4, AMX_BYTES);
    amx_configure(&c);
    amx_load(4, sums, AMX_BYTES);
    amx_load(5, sums, AMX_BYTES);
    for (int32_t r = 0; r < n; r++) {
        amx_dot(0, 4, 5);
        amx_dot(1, 4, 5);
        amx_dot(2, 4, 5);
        amx_dot(3, 4, 5);
    }
    amx_store(3, sums, AMX_BYTES);
    amx_release();
    return (float)sums[0];
}

float peak_tiles(int32_t n) {
    return run_tiles(n, AMX_BYTES);
}

float peak_half_tiles(int32_t n) {
    return run_tiles(n, AMX_BYTES / 2);
}
