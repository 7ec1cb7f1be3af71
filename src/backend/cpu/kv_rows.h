/* Rows of keys and values: how they lie beside each other, in pages and in copies of
 * their blocks, and what their bytes are. Part of KV_LAYOUT_VERSION of core/kv_layout.h.
 *
 * A row is one head's key or value of one token, or its latent, which lies as a key, as
 * the bytes of its plane's type. Rows lie in units of a few bytes, among other tokens':
 *
 *   keys    [block][units of a row][positions a block], blocks of 16 positions (of
 *           page_tokens where a page holds fewer), so that positions lie across lanes for
 *           the scores. A unit is one float, or 4 bytes of int8 and int4.
 *   values  [position] in one piece; of int8 and int4 [positions / 4][bytes of a row][4]:
 *           four positions for each byte (as many as a page has, where it has fewer).
 *
 * What the bytes are:
 *
 *   floats  f32, f16, bf16: the numbers. fp8_e4m3: codes; an f16 of the same bits, apart
 *           from the exponent's width, is 2^-8 times as large (e4m3_to_f16_bits), and the
 *           row's scale multiplies that.
 *   int8    integers -127..127, padded with zeros to a multiple of 4; the row's scale
 *           multiplies them.
 *   int4    an int8 row in less memory. Groups of 32 elements: 16 bytes, whose byte i has
 *           the code of element i in its lower 4 bits and of element 16 + i in its upper.
 *           After all groups a byte for each, (m - 1) + 16 z: the multiplier m, 1..16,
 *           and the zero z, 0..15. An element is the int8 m (code - z); after the width
 *           it is 0. */
#ifndef CPU_KV_ROWS_H
#define CPU_KV_ROWS_H

#include "core/kv_layout.h"

#define CPU_KV_BLOCK 16
#define INT4_GROUP   32
#define KV_LEAST     1e-30f                               /* a row is all 0 where no number is larger */
#define CPU_MAX_ROW  (4 * (DESC_MAX_LATENT + INT4_GROUP)) /* bytes of a row, and of one of int4 as int8 */

static inline bool cpu_kv_is_bytes(dtype type) {
    return type == DTYPE_I8 || type == DTYPE_I4;
}

/* Where one row lies: n units, `stride` bytes apart. */
typedef struct cpu_row {
    uint8_t *at;
    int32_t unit, n;
    int64_t stride;
} cpu_row;

/* How many successive positions have their units side by side: a run that begins at a
 * multiple of it is copied with each unit's copy. */
int32_t cpu_row_run(dtype type, kv_plane_kind kind, int32_t page_tokens);
/* The row at `offset` of the page_tokens rows of row_bytes bytes that begin at `rows`, a
 * head's. */
cpu_row cpu_row_at(dtype type, kv_plane_kind kind, int64_t row_bytes, int32_t page_tokens, uint8_t *rows,
                   int32_t offset);
/* Copies n successive rows of the same type and width, all of one run in both places. */
void cpu_row_copy(cpu_row from, cpu_row to, int32_t n);
void cpu_row_put(cpu_row to, const uint8_t *bytes);
void cpu_row_get(cpu_row from, uint8_t *bytes);

/* Rounds x[0..n) to codes of fp8_e4m3. Returns the row's scale: NaN where some x isn't
 * finite. fixed: what codes are multiplied by, numbers beyond 448 times it becoming that;
 * 0: the number by which the largest becomes 448. */
float cpu_fp8_encode(const float *x, int32_t n, float fixed, uint8_t *codes);
/* Rounds x[0..plane->width) to a row of int4. Returns the row's scale: NaN where some x
 * isn't finite. */
float cpu_int4_encode(const kv_plane *plane, const float *x, uint8_t *bytes);
/* The int8 of a row of int4, zeros after the width up to a multiple of 32. */
void cpu_int4_decode(const uint8_t *bytes, int32_t width, int8_t *out);

#endif
