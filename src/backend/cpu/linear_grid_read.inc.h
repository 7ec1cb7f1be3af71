/* Reads weights of a grid (pack_weights.h) for the product kernels. Part of
 * linear_groups.inc.h.
 *
 * Rows are looked up as two bytes each: rows of 8 have four 2-bit numbers per byte, rows
 * of 4 two 4-bit numbers. With the two bytes of another row they fill a lane; its
 * nibbles, with the signs added on top, are codes for a table of 16. Four nibbles at one
 * shift are a quad that mixes two rows: elements 2t, 2t + 1, 8 + 2t and 9 + 2t of 16, or
 * 2t, 2t + 1, 4 + 2t and 5 + 2t of 8. For few rows of activations, these are permuted to
 * that order (grid_order); for many, the quads are reordered while they are unpacked. */
#include "backend/cpu/simd_grid.h"

/* Prepares the look-up of a form's rows: even elements in the first byte, odd ones in the
 * second. */
INLINE void open_grid(int bits, int run, const uint16_t *rows, n_grid *out) {
    const int32_t stay = run == 8 ? (int32_t)0xcc33cc33u : (int32_t)0xf00ff00fu,
                  down = run == 8 ? 0x00cc00cc : 0x00f000f0;
    const int32_t up = run == 8 ? 0x33003300 : 0x0f000f00;
    for (int i = 0; i < 1 << bits; i += 2 * N_LANES) {
        const ni v = n_load(rows + i), moved = n_or(n_and(n_shr(v, run == 8 ? 6 : 4), n_set1(down)),
                                                    n_and(n_shl(v, run == 8 ? 6 : 4), n_set1(up)));
        n_grid_put(out, i, n_or(n_and(v, n_set1(stay)), moved));
    }
}

INLINE bool has_even_signs(group_format f) {
    return f.run == 8 ? f.bits < 10 : f.bits < 9;
}

/* The words of signs, with the eighth sign derived from seven: it makes the number of
 * minus signs even. */
INLINE ni whole_signs(group_format f, ni word) {
    const ni eighths = n_set1(f.run == 8 ? (int32_t)0xa000a000u : (int32_t)0xf0000000u);
    const ni sevens = n_and(word, n_xor(eighths, n_set1(-1)));
    ni odd = n_xor(sevens, n_shl(sevens, f.run == 8 ? 4 : 16));
    odd = n_xor(odd, n_shl(odd, 8));
    odd = n_xor(odd, n_shl(odd, f.run == 8 ? 1 : 4));
    return n_select(eighths, odd, sevens);
}

/* The bits stored in place of the eighth signs: bit j belongs to eight j. */
INLINE ni spare_bits(group_format f, ni word) {
    return f.run == 4 ? n_shr(word, 28)
                      : n_or(n_and(n_shr(word, 13), n_set1(5)), n_and(n_shr(word, 28), n_set1(10)));
}

INLINE const uint8_t *sign_words(group_format f, const uint8_t *planes) {
    return planes + 64 * (8 / f.run);
}

/* The codes of a group for n registers of columns, from lane[c] on, with planes at p[c]:
 * quad t, in mixed order, is in nibbles[c][t / 2], at bit 4 (t % 2) of each byte. Bit 2
 * of 2-bit codes is undefined. */
INLINE void grid_nibbles(group_format f, int n, const uint8_t *const *p, const int *lane, ni nibbles[][4]) {
    ni signs[N_GRID_SIDE], high[N_GRID_SIDE];
    UNROLL
    for (int c = 0; c < n; c++) {
        const ni word = n_load(sign_words(f, p[c]));
        signs[c] = has_even_signs(f) ? whole_signs(f, word) : word;
        if (f.bits > 8 && has_even_signs(f)) {
            high[c] = n_shr(word, 13);
        } else if (f.bits > 8) {
            high[c] = n_load_u8(sign_words(f, p[c]) + 64 - 3 * lane[c]);
            high[c] = n_or(high[c], n_shl(high[c], 15));
        }
    }
    UNROLL
    for (int i = 0; i < 8 / f.run; i++) {
        const uint8_t *low[N_GRID_SIDE];
        ni rows[N_GRID_SIDE][2];
        UNROLL
        for (int c = 0; c < n; c++) {
            low[c] = p[c] + 64 * i;
            high[c] = i > 0 && f.bits > 8 ? n_shr(high[c], 4) : high[c];
        }
        n_grid_rows(f.grid, f.bits, n, low, high, rows);
        UNROLL
        for (int j = 0; j < 2 * n; j++) {
            if (f.run == 8) {
                nibbles[j / 2][2 * (j % 2)] = rows[j / 2][j % 2];
                nibbles[j / 2][2 * (j % 2) + 1] = n_shr(rows[j / 2][j % 2], 2);
            } else {
                nibbles[j / 2][2 * i + j % 2] = rows[j / 2][j % 2];
            }
        }
    }
    UNROLL
    for (int j = 0; j < 4 * n; j++) {
        ni *to = &nibbles[j / 4][j % 4];
        *to = n_select(n_set1((int32_t)0x88888888u),
                       j % 4 < 3 ? n_shl(signs[j / 4], 3 - j % 4) : signs[j / 4], *to);
    }
}

INLINE ni nibbles_quad(group_format f, const ni nibbles[4], int t) {
    const ni codes = t % 2 == 0 ? nibbles[t / 2] : n_shr(nibbles[t / 2], 4);
    return n_lookup(n_and(codes, n_set1_bytes(15)), f.table);
}

/* The order of 16 elements in quads that mix rows. */
INLINE const uint8_t *grid_order(group_format f) {
    static const uint8_t of_8[16] = {0, 1, 8, 9, 2, 3, 10, 11, 4, 5, 12, 13, 6, 7, 14, 15};
    static const uint8_t of_4[16] = {0, 1, 4, 5, 2, 3, 6, 7, 8, 9, 12, 13, 10, 11, 14, 15};
    return f.run == 8 ? of_8 : of_4;
}

#if N_WORDS
/* Computes a row's words from its numbers. */
INLINE void put_words(row_group *x) {
    const n_bytes q = n_load(x->q), four[] = {q, q, q, q};
    n_four_ints halves[2];
    const n_row_words words = n_words_of(four, halves);
    const n_four_ints starts = {words.pairs_8[0], words.pairs_32[0][0], words.pairs_32[1][0], words.large[0]};
    memcpy(x->pairs_8, &starts, sizeof starts);
}
#endif

/* A row with its numbers in the order of a group's packed quads. */
INLINE void reorder_row(row_group *to, const row_group *from, const uint8_t order[16]) {
    *to = *from;
    n_reorder(to->q, from->q, order);
#if N_WORDS
    put_words(to);
#endif
}

/* A group's quads in natural order. */
INLINE void grid_quads(group_format f, const ni nibbles[4], ni quads[QUADS]) {
    UNROLL
    for (int t = 0; t < QUADS; t += 2) {
        const ni a = nibbles_quad(f, nibbles, t), b = nibbles_quad(f, nibbles, t + 1);
        const int to = f.run == 8 ? t / 4 * 4 + t % 4 / 2 : t;
        quads[to] = n_select(n_set1(0xffff), a, n_shl(b, 16));
        quads[to + (f.run == 8 ? 2 : 1)] = n_select(n_set1(0xffff), n_shr(a, 16), b);
    }
}

/* Like load_scales, also for forms whose scales are beside the signs in the planes at
 * p. */
INLINE void load_group_scales(group_format f, const uint8_t *p, const uint8_t *scales, const uint8_t *supers,
                              const group_supers *d, int32_t group, int odd, int lane, group_scales *out) {
    if (f.coding == SCALE_ODD_SPARE) {
        out->scale[0] = odd_scale(d->scale, spare_bits(f, n_load(sign_words(f, p))));
    } else {
        load_scales(f, scales, supers, d, group, odd, lane, out);
    }
}
