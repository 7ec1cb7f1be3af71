/* Building blocks of packing: a row holds one word of each of a block's 16 columns. Loops
 * move, mask and shift all columns at once, so the compiler vectorises them. */
#ifndef CPU_PACK_LANES_H
#define CPU_PACK_LANES_H

#include <string.h>
#if defined(__SSE2__)
#include <immintrin.h>
#endif

#include "backend/cpu/pack_weights.h"

#define PACK_QUADS       8                        /* quads in a group */
#define PACK_PLANE_BYTES ((size_t)4 * PACK_LANES) /* bytes of a plane: a row of words */
#define PACK_EACH(c)     for (int c = 0; c < PACK_LANES; c++)

/* A row: element c is the word of column c, bytes in memory order. */
typedef uint32_t pack_row[PACK_LANES];

/* Address of element k in a column (a row of the file). k must be a multiple of the
 * type's block. */
static inline const uint8_t *pack_column(const tensor_view *w, int32_t n_in, int32_t column, int32_t k) {
    const size_t elements = (size_t)dtype_block_elements(w->type), bytes = (size_t)dtype_block_bytes(w->type);
    return (const uint8_t *)w->data + ((size_t)column * (size_t)n_in + (size_t)k) / elements * bytes;
}

/* Number of elements in the chunk of QUANT_SUPER that begins at k0. */
static inline int32_t pack_chunk(const pack_layout *plan, int32_t k0) {
    return plan->n_in - k0 < QUANT_SUPER ? plan->n_in - k0 : QUANT_SUPER;
}

/* Number of scales in a row of n_in, for scaled kinds. */
static inline int32_t pack_n_stretches(const quant_rule *rule, int32_t n_in) {
    return rule->stretch == 0 ? 1 : (n_in - 1) / rule->stretch + 1;
}

/* ---- rows ---- */

/* out[t] = words t = 0..3 at columns[c] + at, for every column c. */
static inline void pack_load(const uint8_t *const columns[PACK_LANES], size_t at, uint8_t *out) {
    for (size_t c = 0; c < PACK_LANES; c += 4, out += 16) {
#if defined(__SSE2__)
        const __m128i x0 = _mm_loadu_si128((const __m128i *)(const void *)(columns[c] + at)),
                      x1 = _mm_loadu_si128((const __m128i *)(const void *)(columns[c + 1] + at)),
                      x2 = _mm_loadu_si128((const __m128i *)(const void *)(columns[c + 2] + at)),
                      x3 = _mm_loadu_si128((const __m128i *)(const void *)(columns[c + 3] + at)),
                      low0 = _mm_unpacklo_epi32(x0, x1), low1 = _mm_unpacklo_epi32(x2, x3),
                      high0 = _mm_unpackhi_epi32(x0, x1), high1 = _mm_unpackhi_epi32(x2, x3);
        __m128i *to = (__m128i *)(void *)out;
        _mm_storeu_si128(to, _mm_unpacklo_epi64(low0, low1));
        _mm_storeu_si128(to + 4, _mm_unpackhi_epi64(low0, low1));
        _mm_storeu_si128(to + 8, _mm_unpacklo_epi64(high0, high1));
        _mm_storeu_si128(to + 12, _mm_unpackhi_epi64(high0, high1));
#else
        for (size_t i = 0; i < 4; i++) {
            for (size_t t = 0; t < 4; t++) {
                memcpy(out + PACK_PLANE_BYTES * t + 4 * i, columns[c + i] + at + 4 * t, 4);
            }
        }
#endif
    }
}

/* Like pack_load, for n words, a multiple of 4. */
static inline void pack_load_rows(const uint8_t *const columns[PACK_LANES], size_t at, size_t n,
                                  pack_row *out) {
    for (size_t i = 0; i < n; i += 4) {
        pack_load(columns, at + 4 * i, (uint8_t *)out[i]);
    }
}

/* ---- rows to bytes: bits from at_bit on of each word ---- */

static inline void pack_put_halves(const pack_row x, int at_bit, uint8_t *out) {
    uint16_t halves[PACK_LANES];
    PACK_EACH(c) {
        halves[c] = (uint16_t)(x[c] >> at_bit);
    }
    memcpy(out, halves, sizeof halves);
}

static inline void pack_put_bytes(const pack_row x, int at_bit, uint8_t *out) {
    uint8_t bytes[PACK_LANES];
    PACK_EACH(c) {
        bytes[c] = (uint8_t)(x[c] >> at_bit);
    }
    memcpy(out, bytes, sizeof bytes);
}

/* Packs 6-bit numbers, four in the bytes of each word, into three bytes. */
static inline void pack_put_sixes(const pack_row x, uint8_t *out) {
    for (int i = 0; i < 3; i++) {
        pack_row byte;
        PACK_EACH(c) {
            byte[c] = (x[c] >> (8 * i) & 63u) | (x[c] >> (24 + 2 * i) & 3u) << 6;
        }
        pack_put_bytes(byte, 0, out + i * PACK_LANES);
    }
}

/* Converts E4M3 to a format with 5 exponent bits, exponent + 3. All numbers but 0 then
 * have a nonzero exponent, so reading them never makes a subnormal float. */
static inline uint8_t pack_e5m3_of(uint8_t e4m3) {
    static const uint8_t least[8] = {0, 8, 16, 20, 24, 26, 28, 30}; /* for numbers with exponent 0 */
    return e4m3 >= 8 ? (uint8_t)(e4m3 + 24) : least[e4m3];
}

/* ---- a group's quads to planes: bits from at_bit on of each byte ---- */

/* Writes four planes of 4 bits. */
static inline void pack_put_nibbles(pack_row q[PACK_QUADS], int at_bit, uint8_t *out) {
    for (int v = 0; v < 4; v++) {
        pack_row plane;
        PACK_EACH(c) {
            plane[c] = (q[v][c] >> at_bit & 0x0f0f0f0fu) | (q[v + 4][c] >> at_bit & 0x0f0f0f0fu) << 4;
        }
        memcpy(out + PACK_PLANE_BYTES * (size_t)v, plane, sizeof plane);
    }
}

/* Writes two planes of 2 bits. */
static inline void pack_put_pairs(pack_row q[PACK_QUADS], int at_bit, uint8_t *out) {
    for (int v = 0; v < 2; v++) {
        pack_row *from = q + 4 * v;
        pack_row plane;
        PACK_EACH(c) {
            plane[c] = (from[0][c] >> at_bit & 0x03030303u) | (from[1][c] >> at_bit & 0x03030303u) << 2 |
                       (from[2][c] >> at_bit & 0x03030303u) << 4 | (from[3][c] >> at_bit & 0x03030303u) << 6;
        }
        memcpy(out + PACK_PLANE_BYTES * (size_t)v, plane, sizeof plane);
    }
}

/* Writes one plane of single bits. */
static inline void pack_put_bits(pack_row q[PACK_QUADS], int at_bit, uint8_t *out) {
    const uint32_t lowest = 0x01010101u;
    pack_row plane;
    PACK_EACH(c) {
        plane[c] = (q[0][c] >> at_bit & lowest) | (q[1][c] >> at_bit & lowest) << 1 |
                   (q[2][c] >> at_bit & lowest) << 2 | (q[3][c] >> at_bit & lowest) << 3 |
                   (q[4][c] >> at_bit & lowest) << 4 | (q[5][c] >> at_bit & lowest) << 5 |
                   (q[6][c] >> at_bit & lowest) << 6 | (q[7][c] >> at_bit & lowest) << 7;
    }
    memcpy(out, plane, sizeof plane);
}

/* Writes three planes of 3-bit codes, which are in the low bits. */
static inline void pack_put_threes(pack_row q[PACK_QUADS], uint8_t *out) {
    for (int v = 0; v < 3; v++) {
        pack_row plane;
        PACK_EACH(c) {
            plane[c] = (q[2 * v][c] & 0x07070707u) | (q[2 * v + 1][c] & 0x07070707u) << 4 |
                       (q[6][c] >> v & 0x01010101u) << 3 | (q[7][c] >> v & 0x01010101u) << 7;
        }
        memcpy(out + PACK_PLANE_BYTES * (size_t)v, plane, sizeof plane);
    }
}

/* Permutes the bits of x by swapping bits a < b of each bit's index. */
static inline uint32_t pack_swap_places(uint32_t x, int a, int b) {
    static const uint32_t with_bit[5] = {0xaaaaaaaau, 0xccccccccu, 0xf0f0f0f0u, 0xff00ff00u, 0xffff0000u};
    const int by = (1 << b) - (1 << a);
    const uint32_t moved = (x ^ x >> by) & with_bit[a] & ~with_bit[b];
    return x ^ moved ^ moved << by;
}

#endif
