/* Packed weights: the layout of a matrix [n_out, n_in] in memory for the product kernels. Made once at load; the same on every instruction
 * set.
 *
 * Columns (outputs) go in blocks of 16, one a lane. A block is one contiguous run of block_bytes, a multiple of 64. The last block is
 * padded with zeros. k counts along n_in. Inside a block:
 *
 *   F32   [k][16] f32                    F16   [k][16] f16                 BF16  [k/2][16][2] bf16, k padded to 2
 *   INT8  [k/4][16][4] int8, k padded to 32; value = q * scale[column], the f32 scales lie apart
 *
 * The others hold groups of 32 along k in three areas: quants, scales, supers. A group's quants are 8 quads: quad t holds k 4t..4t+3 as
 * [16][4] bytes. Only the bits that a format has are kept, as planes of 64 bytes, byte for byte like a quad:
 *   nibbles (4 planes): plane v has quad v in the low bits and quad v + 4 in the high ones
 *   pairs   (2 planes): plane v has quad 4v + j at bits 2j and 2j + 1
 *   bits    (1 plane):  quad t at bit t
 * A number of b bits takes: 2 pairs; 3 pairs + bits; 4 nibbles; 5 nibbles + bits; 6 nibbles + pairs; 8 the 8 unchanged quads. value = scale
 * * (q - zero) + min, one scale and min for every `group` of k (16 or 32):
 *   SCALE_F16      scales [k/32][16] f16
 *   SCALE_F16_MIN  scales [k/32][2][16] f16: scale, min
 *   SCALE_FOUR     scales [k/16][16] bytes: low nibble scale, high nibble min; times supers [k/256][2][16] f16: d and -dmin
 *   SCALE_SIX      scales [k/64][3][16] bytes: four numbers of 6 bits, the scales of 16 k each plus 32; times supers [k/256][16] f16
 *   SCALE_SIX_MIN  the same bytes: scale, scale, min, min of the two groups; times supers [k/256][2][16] f16: d and -dmin
 *   SCALE_EIGHT    scales [k/16][16] int8; times supers [k/256][16] f16
 * Four numbers of 6 bits take three bytes: the low six bits of byte i = 0..2 are number i, the high two are bits 2i and 2i + 1 of number 3.
 *
 * So a format takes as many bits as in its file, and every d * code is exact in f32. dmin is stored unchanged; the reader flips its
 * sign. */
#ifndef CPU_PACK_H
#define CPU_PACK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "core/quant.h"
#include "core/tensor.h"

#define PACK_VERSION 1 /* version of this layout; stored packed weights record it */
#define PACK_LANES   16
#define PACK_GROUP   32 /* k of one activation scale */

typedef enum pack_kind {
    PACK_F32,
    PACK_F16,
    PACK_BF16,
    PACK_INT8,
#define PACK_NAME(name, group, bits, zero, scale) PACK_##name,
    QUANT_LIST(PACK_NAME)
#undef PACK_NAME
        N_PACKS
} pack_kind;

/* The formats of the grouped kinds. */
extern const quant_format pack_formats[N_PACKS];

/* True for the kinds of QUANT_LIST. */
static inline bool pack_is_grouped(pack_kind kind) {
    return kind > PACK_INT8;
}

/* The layout of one packed matrix. Invariant: block_bytes * n_blocks fits size_t; offsets are from a block's start. */
typedef struct pack_layout {
    pack_kind kind;
    int32_t n_out, n_in;
    int32_t n_blocks; /* n_out / 16, rounded up */
    int32_t k_padded;
    size_t scales_at, supers_at, block_bytes;
} pack_layout;

/* Chooses the kind for weights of type `from` under a compute mode. QUIRE_UNSUPPORTED for types that cannot be weights. */
quire_err pack_choose(dtype from, compute_mode mode, pack_kind *out);

/* Computes the layout. QUIRE_INVALID when a dimension is not positive or does not fit the kind's groups. QUIRE_TOO_LARGE when a size
 * overflows, or an INT8 row is so long that its products could overflow int32. On an error *out is unchanged. */
quire_err pack_plan(pack_kind kind, int32_t n_out, int32_t n_in, pack_layout *out);

/* Packs columns 16*block .. 16*block+15 of w into out[0..block_bytes), which the caller has zeroed. w has plan's shape and a type that goes
 * into its kind. scales[16]: the columns' scales when kind is INT8, else unchanged. Any thread. Exact, but for INT8 of floats (symmetric,
 * absmax / 127, ties to even) and BF16 (ties to even). I8 weights, which have scales (w->scale), stay unchanged in INT8. */
void pack_block(const pack_layout *plan, const tensor_view *w, int32_t block, uint8_t *out, float *scales);

#endif
