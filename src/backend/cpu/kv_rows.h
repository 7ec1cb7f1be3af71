/* Rows of keys and values: their bytes, and their layout in pages and in copied blocks.
 * Part of KV_LAYOUT_VERSION of core/kv_layout.h.
 *
 * A row is the key, value or latent of one token and head, as bytes of its plane's type;
 * a latent is laid out like a key. Rows consist of units of a few bytes, interleaved with
 * those of other tokens:
 *
 *   keys    [block][units of a row][positions of a block], in blocks of 16 positions
 *           (page_tokens if a page has fewer), so that positions run across SIMD lanes.
 *           A unit is one float, or 4 bytes of int8 and int4.
 *   values  [position] contiguous; int8 and int4 are [positions / 4][bytes of a row][4]:
 *           four positions for each byte (fewer if the page has fewer).
 * Bytes by type:
 *
 *   floats  f32, f16, bf16: the numbers. fp8_e4m3: codes. The bits of a code, widened to
 *           f16, give 2^-8 times the value (e4m3_to_f16_bits); the row's scale
 *           multiplies it.
 *   int8    integers -127..127, padded with zeros to a multiple of 4; the row's scale
 *           multiplies them.
 *   int4    an int8 row in less memory. Groups of 32 elements: 16 bytes, whose byte i has
 *           the code of element i in its lower 4 bits and of element 16 + i in its upper.
 *           After all groups a byte for each, (m - 1) + 16 z: multiplier m, 1..16, and
 *           zero z, 0..15. An element is the int8 m (code - z), and 0 past the width. */
#ifndef CPU_KV_ROWS_H
#define CPU_KV_ROWS_H

#include "core/kv_layout.h"

#define CPU_KV_BLOCK 16
#define INT4_GROUP   32
#define KV_LEAST     1e-30f /* a row is stored as all 0 if no magnitude is larger */
#define CPU_MAX_ROW  (4 * (DESC_MAX_LATENT + INT4_GROUP)) /* most bytes of a row; int4: as int8 */

static inline bool cpu_kv_is_bytes(dtype type) {
    return type == DTYPE_I8 || type == DTYPE_I4;
}

/* Location of one row: n units, `stride` bytes apart. */
typedef struct cpu_row {
    uint8_t *at;
    int32_t unit, n;
    int64_t stride;
} cpu_row;

/* Number of successive positions whose units are adjacent; a run that begins at a
 * multiple of it is copied unit by unit. */
int32_t cpu_row_run(dtype type, kv_plane_kind kind, int32_t page_tokens);
/* The row at `offset` among the page_tokens rows of a head, row_bytes bytes each, that
 * begin at `rows`. */
cpu_row cpu_row_at(dtype type, kv_plane_kind kind, int64_t row_bytes, int32_t page_tokens, uint8_t *rows,
                   int32_t offset);
/* Copies n successive rows of one type and width that lie in a single run in both
 * places. */
void cpu_row_copy(cpu_row from, cpu_row to, int32_t n);
void cpu_row_put(cpu_row to, const uint8_t *bytes);
void cpu_row_get(cpu_row from, uint8_t *bytes);

/* Rounds x[0..n) to codes of fp8_e4m3. Returns the row's scale; NaN if some x is not
 * finite. fixed: a given scale, for which values over 448 times it are clamped; 0: the
 * scale is chosen so that the largest value becomes 448. */
float cpu_fp8_encode(const float *x, int32_t n, float fixed, uint8_t *codes);
/* Rounds x[0..plane->width) to a row of int4. Returns the row's scale; NaN if some x is
 * not finite. */
float cpu_int4_encode(const kv_plane *plane, const float *x, uint8_t *bytes);
/* Converts a row of int4 to int8, with zeros after the width up to a multiple of 32. */
void cpu_int4_decode(const uint8_t *bytes, int32_t width, int8_t *out);

#endif
