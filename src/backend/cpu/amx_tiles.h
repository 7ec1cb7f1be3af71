/* Tile instructions of AMX: the processor's, or with AMX_MODEL those of a plain C model
 * (amx_model.h).
 *
 * A thread has 8 tiles of up to 16 rows of 64 bytes. A configuration sets each tile's
 * number of rows and bytes per row; tiles without rows must not be used. Loading a
 * configuration clears all tiles. amx_release removes it, so that the kernel saves no
 * tiles when it switches threads. Tile numbers are literals: instructions contain them.
 *
 *   amx_load(tile, p, stride)   rows from p, p + stride..; clears the rest of the 64
 *                               bytes of a row and of the 16 rows
 *   amx_load_once               the same, of what need not stay in the L1
 *   amx_store(tile, p, stride)  rows to p, p + stride..
 *   amx_zero(tile)              clears a tile
 *   amx_dot(sums, a, b)         sums[r][c] += the products of 4 int8 of a[r] with 4 of b,
 *                               in int32: for each quad i, a[r][4i..4i+3] with
 *                               b[i][4c..4c+3]. b has a row for each quad of a's rows */
#ifndef CPU_AMX_TILES_H
#define CPU_AMX_TILES_H

#include <stdint.h>

#define AMX_ROWS  16 /* most rows of a tile */
#define AMX_BYTES 64 /* most bytes per row */

/* The operand of LDTILECFG. Palette 1 is the one that has these tiles. */
typedef struct amx_config {
    uint8_t palette, start_row, reserved[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
} amx_config;

_Static_assert(sizeof(amx_config) == 64, "what ldtilecfg reads");

static inline void amx_shape(amx_config *c, int tile, int rows, int row_bytes) {
    c->palette = 1;
    c->rows[tile] = (uint8_t)rows;
    c->row_bytes[tile] = (uint16_t)(rows > 0 ? row_bytes : 0);
}

#ifdef AMX_MODEL
#include "backend/cpu/amx_model.h"
#else
#include <immintrin.h>

/* Orders memory accesses: gcc's intrinsics don't say which memory they read. */
#define AMX_ORDER(p) __asm__ volatile("" ::"r"(p) : "memory")

static inline void amx_configure(const amx_config *c) {
    AMX_ORDER(c);
    _tile_loadconfig(c);
    AMX_ORDER(c);
}

static inline void amx_release(void) {
    _tile_release();
}

#define amx_load(tile, p, stride)                                                                            \
    do {                                                                                                     \
        AMX_ORDER(p);                                                                                        \
        _tile_loadd(tile, p, stride);                                                                        \
        AMX_ORDER(p);                                                                                        \
    } while (0)
#define amx_load_once(tile, p, stride)                                                                       \
    do {                                                                                                     \
        AMX_ORDER(p);                                                                                        \
        _tile_stream_loadd(tile, p, stride);                                                                 \
        AMX_ORDER(p);                                                                                        \
    } while (0)
#define amx_store(tile, p, stride)                                                                           \
    do {                                                                                                     \
        _tile_stored(tile, p, stride);                                                                       \
        AMX_ORDER(p);                                                                                        \
    } while (0)
#define amx_zero(tile)      _tile_zero(tile)
#define amx_dot(sums, a, b) _tile_dpbssd(sums, a, b)
#endif

#endif
