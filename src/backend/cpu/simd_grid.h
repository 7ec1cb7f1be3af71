/* Looks up rows of a grid for the product kernels: 4 numbers per column, each row two
 * bytes of a lane.
 *
 *   AVX-512 with VBMI: the table is in registers. vpermi2b looks up 64 bytes among 128,
 *     and the bits above select among its results: for 8 bits two look-ups per half of
 *     the rows and one selection, for 10 bits eight and seven.
 *   AVX2, NEON: loads the number, then its row. Gathers are slower. */
#ifndef CPU_SIMD_GRID_H
#define CPU_SIMD_GRID_H

#include "backend/cpu/simd_int.h"

#define GRID_ROWS   1024 /* rows of the largest grid */
#define N_GRID_SIDE 4    /* registers of columns looked up at once */

#if defined(__AVX512VBMI__) || defined(SIMD_EMULATE)

typedef struct n_grid {
    _Alignas(64) uint8_t halves[2][GRID_ROWS];
} n_grid;

/* Sets rows from i on, two bytes each. */
INLINE void n_grid_put(n_grid *g, int i, ni rows) {
    _mm256_store_si256((__m256i *)(void *)(g->halves[0] + i), _mm512_cvtepi16_epi8(rows));
    _mm256_store_si256((__m256i *)(void *)(g->halves[1] + i), _mm512_cvtepi16_epi8(n_shr(rows, 8)));
}

/* found[i] = entries of a table of 128 << n_tops bytes for the numbers at[i], whose bits
 * from 7 on are in tops[i]. */
INLINE void n_grid_bytes(const uint8_t *table, int n, const ni *at, int n_tops,
                         __mmask64 tops[N_GRID_SIDE][3], ni *found) {
    ni among[N_GRID_SIDE][4]; /* [d]: results within 128 << d bytes */
    UNROLL
    for (int i = 0; i < 1 << n_tops; i++) {
        const ni low = n_load(table + 128 * i), high = n_load(table + 128 * i + 64);
        UNROLL
        for (int j = 0; j < n; j++) {
            ni v = _mm512_permutex2var_epi8(low, at[j], high);
            bool is_last = true; /* last of its 128 << d bytes */
            UNROLL
            for (int d = 0; d <= n_tops; d++) {
                if (is_last && (i >> d & 1) != 0) {
                    v = _mm512_mask_blend_epi8(tops[j][d], among[j][d], v);
                } else if (is_last) {
                    among[j][d] = v;
                    is_last = false;
                }
            }
        }
    }
    UNROLL
    for (int j = 0; j < n; j++) {
        found[j] = among[j][n_tops];
    }
}

/* Looks up rows for numbers of `bits` bits in n adjacent registers of columns, n at most
 * N_GRID_SIDE. low: low eight bits of numbers u = 0..3 of each column (pack_weights.h).
 * high: in each lane, bit 8 of number u at bit 16 (u % 2) + 2 (u / 2), bit 9 four bits
 * above. out[..][u / 2]: the two bytes of row u in half u % 2 of each lane. */
INLINE void n_grid_rows(const n_grid *g, int bits, int n, const uint8_t *const *low, const ni *high,
                        ni out[N_GRID_SIDE][2]) {
    ni at[N_GRID_SIDE], first[N_GRID_SIDE], second[N_GRID_SIDE];
    __mmask64 tops[N_GRID_SIDE][3];
    UNROLL
    for (int j = 0; j < n; j++) {
        at[j] = n_load(low[j]);
        tops[j][0] = _mm512_movepi8_mask(at[j]);
        UNROLL
        for (int i = 0; i < bits - 8; i++) {
            tops[j][i + 1] = _mm512_movepi8_mask(
                _mm512_packs_epi16(n_shl(high[j], 15 - 4 * i), n_shl(high[j], 13 - 4 * i)));
        }
    }
    n_grid_bytes(g->halves[0], n, at, bits - 7, tops, first);
    n_grid_bytes(g->halves[1], n, at, bits - 7, tops, second);
    UNROLL
    for (int j = 0; j < n; j++) {
        out[j][0] = _mm512_unpacklo_epi8(first[j], second[j]);
        out[j][1] = _mm512_unpackhi_epi8(first[j], second[j]);
    }
}

#else

typedef struct n_grid {
    uint16_t rows[GRID_ROWS];
} n_grid;

INLINE void n_grid_put(n_grid *g, int i, ni rows) {
    n_store(g->rows + i, rows);
}

INLINE void n_grid_rows(const n_grid *g, int bits, int n, const uint8_t *const *low, const ni *high,
                        ni out[N_GRID_SIDE][2]) {
    UNROLL
    for (int j = 0; j < 2 * n; j++) {
        ni at[2];
        uint16_t numbers[2 * N_LANES], rows[2 * N_LANES];
        n_widen(n_load(low[j / 2]), at);
        UNROLL
        for (int i = 0; i < bits - 8; i++) {
            at[j % 2] = n_or(at[j % 2],
                             n_shl(n_and(n_shr(high[j / 2], 4 * i + 2 * (j % 2)), n_set1(0x10001)), 8 + i));
        }
        n_store(numbers, at[j % 2]);
        /* forces a store: otherwise gcc extracts them from the register one by one, which
         * is slower than loads */
        __asm__("" : "+m"(numbers));
        UNROLL
        for (int i = 0; i < 2 * N_LANES; i++) {
            rows[i] = g->rows[numbers[i]];
        }
        out[j / 2][j % 2] = n_of_words(rows);
    }
}

#endif

#endif
