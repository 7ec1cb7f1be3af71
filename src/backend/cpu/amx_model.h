/* A plain C model of AMX's tiles, for tests on processors without them: LDTILECFG
 * (palette 1), TILELOADD, TILESTORED, TILEZERO, TDPBSSD and TILERELEASE as defined in
 * Intel's manual. What would fault is an assertion. Tiles are per thread. */
#ifndef CPU_AMX_MODEL_H
#define CPU_AMX_MODEL_H

#include <assert.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>

#include "backend/cpu/amx_tiles.h"

#define AMX_TILES 8

typedef struct amx_state {
    amx_config config; /* palette 0: no configuration is loaded */
    uint8_t tiles[AMX_TILES][AMX_ROWS][AMX_BYTES];
} amx_state;

static _Thread_local amx_state amx_here;

static inline bool amx_has_shape(const amx_config *c, int tile) {
    return tile >= 0 && tile < AMX_TILES && c->palette == 1 && c->rows[tile] > 0;
}

static inline void amx_release(void) {
    memset(&amx_here, 0, sizeof amx_here);
}

static inline void amx_configure(const amx_config *c) {
    static const uint8_t none[sizeof c->reserved];
    assert(c->palette == 1 && c->start_row == 0 && memcmp(c->reserved, none, sizeof none) == 0);
    for (int i = 0; i < 16; i++) {
        assert(c->rows[i] <= AMX_ROWS && c->row_bytes[i] <= AMX_BYTES &&
               (c->rows[i] == 0) == (c->row_bytes[i] == 0));
        assert(i < AMX_TILES || c->rows[i] == 0);
    }
    amx_release();
    amx_here.config = *c;
}

static inline void amx_zero(int tile) {
    assert(amx_has_shape(&amx_here.config, tile));
    memset(amx_here.tiles[tile], 0, sizeof amx_here.tiles[tile]);
}

static inline void amx_load(int tile, const void *p, size_t stride) {
    amx_zero(tile);
    for (size_t r = 0; r < amx_here.config.rows[tile]; r++) {
        memcpy(amx_here.tiles[tile][r], (const uint8_t *)p + r * stride, amx_here.config.row_bytes[tile]);
    }
}

static inline void amx_load_once(int tile, const void *p, size_t stride) {
    amx_load(tile, p, stride);
}

static inline void amx_store(int tile, void *p, size_t stride) {
    assert(amx_has_shape(&amx_here.config, tile));
    for (size_t r = 0; r < amx_here.config.rows[tile]; r++) {
        memcpy((uint8_t *)p + r * stride, amx_here.tiles[tile][r], amx_here.config.row_bytes[tile]);
    }
}

/* Adds the products of one row of a to one row of n_columns sums. */
static inline void amx_dot_row(uint8_t sums[AMX_BYTES], const uint8_t a[AMX_BYTES],
                               uint8_t b[AMX_ROWS][AMX_BYTES], int n_quads, int n_columns) {
    int32_t row[AMX_BYTES / 4];
    memcpy(row, sums, sizeof row);
    for (int i = 0; i < n_quads; i++) {
        const int8_t *x = (const int8_t *)a + 4 * i, *w = (const int8_t *)b[i];
        for (int c = 0; c < n_columns; c++) {
            row[c] += x[0] * w[4 * c] + x[1] * w[4 * c + 1] + x[2] * w[4 * c + 2] + x[3] * w[4 * c + 3];
        }
    }
    memcpy(sums, row, (size_t)n_columns * sizeof *row);
}

static inline void amx_dot(int sums, int a, int b) {
    const amx_config *c = &amx_here.config;
    assert(sums != a && sums != b && a != b);
    assert(amx_has_shape(c, sums) && amx_has_shape(c, a) && amx_has_shape(c, b));
    assert(c->row_bytes[sums] % 4 == 0 && c->row_bytes[a] % 4 == 0 && c->row_bytes[b] % 4 == 0);
    assert(c->rows[a] == c->rows[sums] && c->row_bytes[a] / 4 == c->rows[b] &&
           c->row_bytes[b] == c->row_bytes[sums]);
    for (int r = 0; r < c->rows[sums]; r++) {
        amx_dot_row(amx_here.tiles[sums][r], amx_here.tiles[a][r], amx_here.tiles[b], c->rows[b],
                    c->row_bytes[sums] / 4);
    }
}

#endif
