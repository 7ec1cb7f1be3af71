/* Packed weights: the layout of a matrix [n_out, n_in] in memory for the product kernels.
 * Made once at load; the same on every instruction set.
 *
 * Columns (outputs) are in blocks of 16, one per SIMD lane. A block is contiguous and has
 * block_bytes bytes, a multiple of 64. The last block is padded with zeros. k counts
 * along n_in. Inside a block:
 *
 *   F32   [k][16] f32
 *   F16   [k][16] f16
 *   BF16  [k/2][16][2] bf16, k padded to 2
 *   INT8  [k/4][16][4] int8, k padded to 32; value = q * scale[column], with f32 scales
 *         after all blocks
 *
 * The others hold groups of 32 along k in three areas: quants, scales, supers. A group's
 * quants are 8 quads: quad t holds k 4t..4t+3 as [16][4] bytes. Only the bits that a code
 * has are stored, in planes of 64 bytes laid out like a quad:
 *   nibbles (4 planes): plane v has quad v in the low 4 bits, quad v + 4 in the high 4
 *   pairs   (2 planes): plane v has quad 4v + j at bits 2j and 2j + 1
 *   bits    (1 plane):  quad t at bit t
 *   threes  (3 planes): plane v has quads 2v and 2v + 1 in the low 3 bits of its nibbles,
 *                       and bit v of quads 6 and 7 above them
 * A code of b bits takes: 1 bits; 2 pairs; 3 threes; 4 nibbles; 5 nibbles + bits;
 * 6 nibbles + pairs; 8 the 8 unchanged quads.
 *
 * value = scale * number + min (core/quant.h), with one scale and min per `group` of k
 * (16 or 32), or per several groups:
 *   SCALE_F16      scales [k/32 >> shift, rounded up][16] f16
 *   SCALE_F16_ZERO the same, and supers [..][16] bytes of zeros, stored less 1 if the
 *                  rule says so. A byte has 4 zeros of 2-bit codes, first in the lowest
 *                  bits, 2 zeros of 3- or 4-bit codes, a nibble each, or one of 8-bit codes
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
 * Four 6-bit numbers take three bytes: the low six bits of byte i = 0..2 are number i,
 * the high two are bits 2i and 2i + 1 of number 3.
 *
 * Grids store row numbers and signs. A group has 4 numbers of rows of 8 elements or 8 of
 * rows of 4, with a plane of 64 bytes for every 4 numbers of all columns: byte
 * 16 (c / 4) + 8 (u / 2) + 2 (c % 4) + u % 2 is the low eight bits of number u = 0..3 of
 * column c. [16] words of signs follow, with the sign of element i of eight j at bit
 * pack_sign_at. Forms with 7 signs of 8 (quant_has_even_signs) use the last sign bit of
 * eight j for bit 8 of number j, or with SCALE_ODD_SPARE for bit j of the group's scale.
 * Other forms have [16] more bytes: for rows of 8, bit 8 of number u at bit u and bit 9
 * at 4 + u; for rows of 4, bit 8 of number u = 0..7 at bit u. With this order, look-ups
 * and register interleavings leave a row's elements where products need them
 * (linear_grid_read.inc.h).
 *
 * E4M3 and T4_FLOAT are floats with f32 scales, one per stretch of k, or one for the
 * whole row if stretch is 0. value = scale * number; the number of an E4M3 code is that
 * of core/half.h, and T4_FLOAT codes index a table of floats:
 *   quants         E4M3 [k/2][16][2] bytes, k padded to 2; T4_FLOAT [k/8][16] words, k
 *                  padded to 8, the first code in the lowest bits
 *   scales         [stretch][16] f32; E4M3_TILE: [stretch] f32 for all 16 columns;
 *                  E4M3_E8M0: [stretch][16] bytes e, 2^(e - 127); T4_NESTED, otherwise
 *                  like T4_FLOAT: [stretch][16] bytes i, table[i] * outer + offset
 *                  (core/quant_matrix.h)
 *   supers         E4M3: [16] f32 from which the columns' sums start: 0, or NaN if the
 *                  column has a NaN code, which is stored as 0; T4_NESTED: [16] f32, the
 *                  index of a column's first scale within its NESTED_BLOCK, and
 *                  [n_outer][16] f32
 * All blocks of T4_FLOAT are followed by its numbers, [16] f32 by code; those of
 * T4_NESTED also by [256] f32 by code of a scale, and the offset.
 *
 * A form takes as many bits as in its file, except IQ1 and TQ1_0, whose codes are
 * unpacked, and grids on processors with slow row look-ups (quant_unpacked). Every
 * d * code is exact in f32. dmin is stored unchanged; the reader flips its sign. */
#ifndef CPU_PACK_H
#define CPU_PACK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "core/quant.h"
#include "core/tensor.h"

/* version of this layout and of what linear_ops_load.c appends to it; recorded in stored
 * packed weights */
#define PACK_VERSION 7
#define PACK_LANES   16
#define PACK_GROUP   32 /* elements of k per activation scale */

#define PACK_MOST_STRETCH 1024 /* for scaled kinds: kernels convert a whole stretch at once */

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

/* Whether the kind is in FORM_LIST. */
static inline bool pack_is_grouped(pack_kind kind) {
    return kind > PACK_INT8 && kind < PACK_E4M3;
}

/* Whether the kind is floats with scales: E4M3 and T4_FLOAT kinds. */
static inline bool pack_is_scaled(pack_kind kind) {
    return kind >= PACK_E4M3 && kind < N_PACKS;
}

/* Whether the kind is codes of a table of 16 floats: T4_FLOAT and T4_NESTED. */
static inline bool pack_is_fours(pack_kind kind) {
    return kind == PACK_T4_FLOAT || kind == PACK_T4_NESTED;
}

/* Number of floats after the blocks. */
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

/* Bytes of a group's quants. */
static inline size_t pack_group_bytes(const quant_format *f) {
    if (f->run > 1) {
        return (size_t)(64 * (8 / f->run) + 64 + (quant_has_even_signs(f) ? 0 : PACK_LANES));
    }
    return (size_t)f->bits * PACK_GROUP * PACK_LANES / 8;
}

/* Which bit of a 1-bit or 5-bit code is in the plane of single bits. */
static inline int pack_single_bit(int bits) {
    return bits == 1 ? 1 : bits - 1;
}

/* Position, in a column's word of signs, of element i in eight j of a group. */
static inline int pack_sign_at(const quant_format *f, int j, int i) {
    const int bit = 8 * (i % 2) + 4 * (i / 2 % 2);
    return f->run == 8 ? bit + i / 4 + 16 * (j % 2) + 2 * (j / 2) : bit + 16 * (i / 4) + j;
}

/* Bits of a stored zero. */
static inline int pack_zero_bits(int bits) {
    return bits == 3 ? 4 : bits;
}

/* Layout of one packed matrix. Offsets are from a block's start. Invariant: block_bytes *
 * n_blocks fits size_t. */
typedef struct pack_layout {
    pack_kind kind;
    int32_t n_out, n_in;
    int32_t n_blocks; /* n_out / 16, rounded up */
    int32_t k_padded;
    quant_rule rule; /* grouped kinds: the rule; scaled kinds: only its stretch */
    int32_t n_outer; /* T4_NESTED: capacity for outer scales per column */
    size_t scales_at, supers_at, block_bytes;
} pack_layout;

/* Callback that reads codes k..k+n of a row; k is a multiple of QUANT_SUPER, n of
 * QUANT_GROUP; *out is zeroed before. Any thread. */
typedef struct pack_source {
    void (*read)(const void *context, int32_t row, int32_t k, int32_t n, quant_codes *out);
    const void *context;
} pack_source;

/* Callbacks that read codes and scales for scaled kinds. Any thread. */
typedef struct scaled_source {
    /* out[0..n) = codes k..k+n of a row, n at most QUANT_SUPER. */
    void (*codes)(const void *context, int32_t row, int32_t k, int32_t n, uint8_t *out);
    /* E8M0: must be a power of two from 2^-127 to 2^127; TILE: depends on row / 16
     * only */
    float (*scale)(const void *context, int32_t row, int32_t k);
    const float *table;          /* T4_FLOAT: [16] */
    const nested_scales *nested; /* T4_NESTED: replaces scale */
    /* T4_NESTED: index of a row's first scale among all scales */
    size_t (*first)(const void *context, int32_t row);
    const void *context;
} scaled_source;

/* Chooses the kind for weights of type `from` under a compute mode. QUIRE_UNSUPPORTED:
 * the type cannot be a weight's. */
quire_err pack_choose(dtype from, compute_mode mode, pack_kind *out);

/* The rule for integers of 2, 3, 4 or 8 bits with an f16 scale for every `group` of k, a
 * multiple of 32; 0: the whole row. has_zeros: with stored zeros, else the constant zero
 * 2^(bits - 1). Codes and zeros of 8 bits are signed bytes. If group is not a power of
 * two, its scale is stored once for each of several parts. QUIRE_UNSUPPORTED: other bits
 * or groups. */
quire_err pack_integers(int bits, int32_t group, bool has_zeros, quant_rule *out);

/* The stretch of a scaled kind for scales per `group` of k; group 0, the whole row: 0. If
 * the group is too long, the largest equal part, with the group's scale repeated. -1:
 * none, because a stretch must be even and at least 8, for T4_FLOAT a multiple of 8. */
int32_t pack_stretch_of(pack_kind kind, int32_t group);

/* Elements of k per scale, for scaled kinds; if the whole row shares one, more than it
 * has. */
static inline int32_t pack_stretch(const pack_layout *plan) {
    return plan->rule.stretch > 0 ? plan->rule.stretch : INT32_MAX;
}

/* Computes a layout. rule: for a grouped kind, its rule; for a scaled one, its stretch;
 * otherwise ignored. On failure *out is unchanged. QUIRE_INVALID: a dimension is not
 * positive or does not fit the kind's groups. QUIRE_TOO_LARGE: a size overflows, or an
 * INT8 row is so long that its products could overflow int32. */
quire_err pack_plan(pack_kind kind, const quant_rule *rule, int32_t n_out, int32_t n_in, pack_layout *out);

/* Packs columns 16*block .. 16*block+15 of w into out[0..block_bytes), zeroed by the
 * caller. w has plan's shape and a type that the kind accepts. scales[16]: for INT8
 * receives the columns' scales, else unchanged. Exact, except INT8 from floats
 * (symmetric, absmax / 127, ties to even) and BF16 (ties to even). I8 weights with scales
 * (w->scale) are unchanged in INT8. Any thread. */
void pack_block(const pack_layout *plan, const tensor_view *w, int32_t block, uint8_t *out, float *scales);

/* The same for grouped kinds, from codes that a source reads. */
void pack_block_of(const pack_layout *plan, const pack_source *from, int32_t block, uint8_t *out);

/* Writes the numbers after the blocks of T4_FLOAT and T4_NESTED to
 * out[pack_n_numbers]. */
void pack_numbers(pack_kind kind, const scaled_source *from, float *out);

/* The same for scaled kinds. */
void pack_block_scaled(const pack_layout *plan, const scaled_source *from, int32_t block, uint8_t *out);

#endif
