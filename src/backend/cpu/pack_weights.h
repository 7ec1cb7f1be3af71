/* Packed weights: the layout of a matrix [n_out, n_in] in memory for the product kernels.
 * Made once at load; the same on every instruction set.
 *
 * Columns (outputs) go in blocks of 16, one a lane. A block is one contiguous run of
 * block_bytes, a multiple of 64. The last block is padded with zeros. k counts along
 * n_in. Inside a block:
 *
 *   F32   [k][16] f32
 *   F16   [k][16] f16
 *   BF16  [k/2][16][2] bf16, k padded to 2
 *   INT8  [k/4][16][4] int8, k padded to 32; value = q * scale[column], the f32 scales
 *         lie apart
 *
 * The others hold groups of 32 along k in three areas: quants, scales, supers. A group's
 * quants are 8 quads: quad t holds k 4t..4t+3 as [16][4] bytes. Only the bits that a form
 * has are kept, as planes of 64 bytes, byte for byte like a quad:
 *   nibbles (4 planes): plane v has quad v in the low bits and quad v + 4 in the high
 *   ones
 *   pairs   (2 planes): plane v has quad 4v + j at bits 2j and 2j + 1
 *   bits    (1 plane):  quad t at bit t
 *   threes  (3 planes): plane v has quads 2v and 2v + 1 in its nibbles, below bits v of
 *   quads 6 and 7
 * A code of b bits takes: 1 bits; 2 pairs; 3 threes; 4 nibbles; 5 nibbles + bits;
 * 6 nibbles + pairs; 8 the 8 unchanged quads.
 *
 * value = scale * number + min (core/quant.h), one scale and min for every `group` of k
 * (16 or 32), or for several:
 *   SCALE_F16      scales [k/32 >> shift, rounded up][16] f16
 *   SCALE_F16_ZERO the same, and supers [..][16] bytes: the zeros of 4 groups of 2 bits,
 *   the first in the lowest; of 2 groups, a nibble
 *                  each, where codes have 3 or 4 bits; a signed byte each where they have
 *                  8; all 1 less where the rule says so
 *   SCALE_F16_MIN  scales [k/32][2][16] f16: scale, min
 *   SCALE_FOUR     scales [k/16][16] bytes: low nibble scale, high nibble min; times
 *                  supers [k/256][2][16] f16: d and -dmin
 *   SCALE_SIX      scales [k/(4 group)][3][16] bytes: four numbers of 6 bits, the scales
 *                  of a group of k each plus 32; times supers [k/256][16] f16
 *   SCALE_SIX_MIN  scales [k/64][3][16] bytes: scale, scale, min, min of the two groups;
 *                  times supers [k/256][2][16] f16: d and -dmin
 *   SCALE_EIGHT    scales [k/16][16] int8; times supers [k/256][16] f16
 *   SCALE_ODD      scales [k/(2 group)][16] bytes: low nibble the first group, high
 *                  nibble the second; times supers [k/256][16] f16
 *   SCALE_ODD_SPARE  no scales, see grids; supers [k/256][16] f16
 *   SCALE_E8M0     scales [k/32][16] bytes
 *   SCALE_E4M3     scales [k/group][16] bytes of 5 bits of exponent and 3 of mantissa,
 *                  the exponents 3 more, subnormals normalised
 * Four numbers of 6 bits take three bytes: the low six bits of byte i = 0..2 are number
 * i, the high two are bits 2i and 2i + 1 of number 3.
 *
 * Grids keep numbers of rows and signs. A group has 4 numbers of rows of 8 elements or 8
 * of rows of 4, a plane of 64 bytes for each 4 of all columns: the low eight bits of
 * number u = 0..3 of column c are byte 16 (c / 4) + 8 (u / 2) + 2 (c % 4) + u % 2. Then
 * come [16] words of signs, that of element i of eight j at bit pack_sign_at. Forms with
 * 7 signs of 8 (quant_has_even_signs) have, in place of the last of eight j, bit 8 of
 * number j, or with SCALE_ODD_SPARE bit j of the group's scale. The others have [16]
 * bytes more: of rows of 8, bit 8 of number u at bit u and bit 9 at 4 + u; of rows of 4,
 * bit 8 of number u = 0..7 at bit u. In this order look-ups and interleavings of
 * registers leave the rows' elements where they are multiplied (linear_grid_read.inc.h).
 *
 * E4M3 and T4_FLOAT are floats with f32 scales, one for each stretch of k, or with a
 * stretch of 0 for the whole row. value = scale * number, where a code of E4M3 has the
 * number core/half.h says, and one of T4_FLOAT an entry of a table of floats:
 *   quants         E4M3 [k/2][16][2] bytes, k padded to 2; T4_FLOAT [k/8][16] words, k
 *                  padded to 8, the first code in the lowest bits
 *   scales         [stretch][16] f32; of E4M3_TILE [stretch] f32, for all 16 columns; of
 *                  E4M3_E8M0 [stretch][16] bytes e: 2^(e - 127); of T4_NESTED, which is
 *                  T4_FLOAT otherwise, [stretch][16] bytes i: table[i] * outer + offset
 *                  (core/quant_matrix.h)
 *   supers         of E4M3 [16] f32 that the columns' sums start from: 0, or NaN where a
 *                  column has a code that is NaN, in whose place lies 0; of T4_NESTED
 *                  [16] f32, the place of a column's first scale within NESTED_BLOCK of
 *                  them, and [n_outer][16] f32
 * After all blocks lie the numbers of T4_FLOAT, [16] f32 by code, and of T4_NESTED then
 * [256] f32 by code of a scale, and the offset.
 *
 * So a form takes as many bits as in its file, but for IQ1 and TQ1_0, whose codes
 * are unpacked, and for grids on processors that find rows slowly (quant_unpacked). Every
 * d * code is exact in f32. dmin is stored unchanged; the reader flips its sign. */
#ifndef CPU_PACK_H
#define CPU_PACK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "core/quant.h"
#include "core/tensor.h"

/* of this layout, and of what linear_ops_load.c puts at its end; stored packed weights
 * record it */
#define PACK_VERSION 7
#define PACK_LANES   16
#define PACK_GROUP   32 /* k of one activation scale */

#define PACK_MOST_STRETCH 1024 /* of scaled kinds: kernels widen a stretch as a whole */

typedef enum pack_kind {
    PACK_F32,
    PACK_F16,
    PACK_BF16,
    PACK_INT8,
#define PACK_NAME(name, group, bits, table, zero, dot, scale, run) PACK_##name,
    FORM_LIST(PACK_NAME)
#undef PACK_NAME
        PACK_E4M3,
    PACK_E4M3_TILE,
    PACK_E4M3_E8M0,
    PACK_T4_FLOAT,
    PACK_T4_NESTED,
    N_PACKS
} pack_kind;

/* True for the kinds of FORM_LIST. */
static inline bool pack_is_grouped(pack_kind kind) {
    return kind > PACK_INT8 && kind < PACK_E4M3;
}

/* True for floats with scales: E4M3 and T4_FLOAT. */
static inline bool pack_is_scaled(pack_kind kind) {
    return kind >= PACK_E4M3 && kind < N_PACKS;
}

/* True for codes of a table of 16 floats: T4_FLOAT and T4_NESTED. */
static inline bool pack_is_fours(pack_kind kind) {
    return kind == PACK_T4_FLOAT || kind == PACK_T4_NESTED;
}

/* How many floats lie after the blocks of a kind. */
static inline size_t pack_n_numbers(pack_kind kind) {
    return kind == PACK_T4_FLOAT ? 16 : kind == PACK_T4_NESTED ? 16 + 256 + 1 : 0;
}

static inline pack_kind pack_kind_of(quant_form form) {
    return (pack_kind)(PACK_INT8 + 1 + (int)form);
}

/* The format of a grouped kind. */
static inline const quant_format *pack_format(pack_kind kind) {
    return &quant_formats[kind - PACK_INT8 - 1];
}

/* Bytes of the quants of a group. */
static inline size_t pack_group_bytes(const quant_format *f) {
    if (f->run > 1) {
        return (size_t)(64 * (8 / f->run) + 64 + (quant_has_even_signs(f) ? 0 : PACK_LANES));
    }
    return (size_t)f->bits * PACK_GROUP * PACK_LANES / 8;
}

/* Which bit of a code of 1 or 5 bits its plane of single bits holds. */
static inline int pack_single_bit(int bits) {
    return bits == 1 ? 1 : bits - 1;
}

/* The bit of element i of eight j (of a group's four) in a column's word of signs. */
static inline int pack_sign_at(const quant_format *f, int j, int i) {
    const int bit = 8 * (i % 2) + 4 * (i / 2 % 2);
    return f->run == 8 ? bit + i / 4 + 16 * (j % 2) + 2 * (j / 2) : bit + 16 * (i / 4) + j;
}

/* Bits of a zero in memory. */
static inline int pack_zero_bits(int bits) {
    return bits == 3 ? 4 : bits;
}

/* The layout of one packed matrix. Invariant: block_bytes * n_blocks fits size_t; offsets
 * are from a block's start. */
typedef struct pack_layout {
    pack_kind kind;
    int32_t n_out, n_in;
    int32_t n_blocks; /* n_out / 16, rounded up */
    int32_t k_padded;
    quant_rule rule; /* of grouped kinds; of scaled ones its stretch alone */
    int32_t n_outer; /* of T4_NESTED: how many outer scales a column has room for */
    size_t scales_at, supers_at, block_bytes;
} pack_layout;

/* Codes of a matrix's elements k..k+n of a row, k a multiple of QUANT_SUPER and n of
 * QUANT_GROUP; *out is zeroed. Called on any thread. */
typedef struct pack_source {
    void (*read)(const void *context, int32_t row, int32_t k, int32_t n, quant_codes *out);
    const void *context;
} pack_source;

/* Codes and scales of a matrix for the scaled kinds. Called on any thread. */
typedef struct scaled_source {
    /* out[0..n) = the codes of a row's elements k..k+n, n at most QUANT_SUPER. */
    void (*codes)(const void *context, int32_t row, int32_t k, int32_t n, uint8_t *out);
    /* E8M0: a power of two from 2^-127 to 2^127; TILE: as of row / 16 */
    float (*scale)(const void *context, int32_t row, int32_t k);
    const float *table;          /* [16] of T4_FLOAT */
    const nested_scales *nested; /* of T4_NESTED, in place of scale */
    /* of T4_NESTED: which of all scales is a row's first */
    size_t (*first)(const void *context, int32_t row);
    const void *context;
} scaled_source;

/* Chooses the kind for weights of type `from` under a compute mode. QUIRE_UNSUPPORTED for
 * types that cannot be weights. */
quire_err pack_choose(dtype from, compute_mode mode, pack_kind *out);

/* The rule of integers of 2, 3, 4 or 8 bits with a half for every `group` of k: 32 or
 * more, a multiple of it; 0: for the whole row. With zeros, or with the constant zero
 * 2^(bits - 1); codes of 8 bits are signed bytes, and so are their zeros. A group that is
 * no power of two has its half stored for several parts. QUIRE_UNSUPPORTED for other bits
 * and groups. */
quire_err pack_integers(int bits, int32_t group, bool has_zeros, quant_rule *out);

/* The stretch of a scaled kind whose scales are for every `group` of k; 0: for the whole
 * row, whose stretch is 0. Of a group that is too long the largest equal part, each with
 * the group's scale. -1: none, as stretches are even and 8 or more, of T4_FLOAT multiples
 * of 8. */
int32_t pack_stretch_of(pack_kind kind, int32_t group);

/* How much of k shares a scale; more than there is where the whole row does. Of scaled
 * kinds. */
static inline int32_t pack_stretch(const pack_layout *plan) {
    return plan->rule.stretch > 0 ? plan->rule.stretch : INT32_MAX;
}

/* Computes the layout. rule: that of a grouped kind, the stretch of a scaled one, else
 * ignored. QUIRE_INVALID when a dimension is not positive or does not fit the kind's
 * groups. QUIRE_TOO_LARGE when a size overflows, or an INT8 row is so long that its
 * products could overflow int32. On an error *out is unchanged. */
quire_err pack_plan(pack_kind kind, const quant_rule *rule, int32_t n_out, int32_t n_in, pack_layout *out);

/* Packs columns 16*block .. 16*block+15 of w into out[0..block_bytes), which the caller
 * has zeroed. w has plan's shape and a type that goes into its kind. scales[16]: the
 * columns' scales when kind is INT8, else unchanged. Any thread. Exact, but for INT8 of
 * floats (symmetric, absmax / 127, ties to even) and BF16 (ties to even). I8 weights,
 * which have scales (w->scale), stay unchanged in INT8. */
void pack_block(const pack_layout *plan, const tensor_view *w, int32_t block, uint8_t *out, float *scales);

/* As above, of codes that a source reads, for grouped kinds. */
void pack_block_of(const pack_layout *plan, const pack_source *from, int32_t block, uint8_t *out);

/* The numbers after the blocks of T4_FLOAT and T4_NESTED: out[pack_n_numbers]. */
void pack_numbers(pack_kind kind, const scaled_source *from, float *out);

/* As above, for scaled kinds. */
void pack_block_scaled(const pack_layout *plan, const scaled_source *from, int32_t block, uint8_t *out);

#endif
