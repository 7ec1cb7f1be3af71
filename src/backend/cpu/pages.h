/* The layout of key and value elements inside a page: KV_LAYOUT_VERSION of core/kv_layout.h.
 *
 * A row is one head's key or value of one token, as the bytes of its plane's type. Rows lie in units of a few bytes, among other tokens':
 *
 *   keys    [head][block][units of a row][positions a block], blocks of 16 positions (of page_tokens where a page holds fewer), so that
 *           positions lie across lanes for the scores. A unit is one float, or 4 bytes of int8 and int4.
 *   values  [head][position] in one piece; of int8 and int4 [head][positions / 4][bytes of a row][4]: four positions for each byte (as many
 *           as a page has, where it has fewer).
 *
 * What the bytes are:
 *   f32, f16, bf16: the numbers.
 *   fp8_e4m3: codes, which an f16 holds as it is 2^-8 times as large (e4m3_to_f16_bits); the row's scale multiplies those.
 *   int8: integers -127..127, zeros behind the width up to a multiple of 4; times the row's scale.
 *   int4: rows of int8, smaller. Groups of 32 elements: 16 bytes, whose byte i has the code of element i in its lower 4 bits and of element
 *         16 + i in its upper. Behind all groups a byte for each, (m - 1) + 16 z: the multiplier m, 1..16, and the zero z, 0..15. An
 * element is the int8 m (code - z); behind the width it is 0. The scales, floats, of a head [position] lie behind its rows: among other
 * heads' scales, reading each would also load the adjacent cache line. A token whose key or value is not finite has a key that is not
 * finite, so that every query that sees it is not finite either. */
#ifndef CPU_PAGES_H
#define CPU_PAGES_H

#include "backend/cpu/cpu.h"

#define CPU_KV_BLOCK 16
#define INT4_GROUP   32
#define CPU_MAX_ROW  (4 * (DESC_MAX_HEAD + INT4_GROUP)) /* bytes of a row, and of one of int4 as int8 */

/* The K or V plane of a cache in a page. */
static inline uint8_t *cpu_kv_plane(const cpu_backend *b, int32_t page, int32_t cache, kv_plane_kind kind) {
    const kv_planes *p = &b->layout.caches[cache];
    return b->kv + (int64_t)page * b->layout.page_bytes + (kind == KV_PLANE_V ? p->value.offset : p->key.offset);
}

static inline const kv_plane *cpu_plane_of(const kv_planes *p, kv_plane_kind kind) {
    return kind == KV_PLANE_V ? &p->value : &p->key;
}

/* Bytes from a plane's start to a head's: its rows, and their scales where rows have some. */
static inline int64_t cpu_kv_head(const kv_planes *p, kv_plane_kind kind, int32_t head) {
    const kv_plane *plane = cpu_plane_of(p, kind);
    return (int64_t)head * p->page_tokens * (plane->row_bytes + plane->scale_bytes);
}

/* A head's scales in a plane, by position; NULL: rows have none. */
static inline float *cpu_kv_scales(const kv_planes *p, kv_plane_kind kind, uint8_t *plane, int32_t head) {
    const kv_plane *l = cpu_plane_of(p, kind);
    return l->scale_bytes == 0 ? NULL : (float *)(void *)(plane + cpu_kv_head(p, kind, head) + (int64_t)p->page_tokens * l->row_bytes);
}

static inline bool cpu_kv_is_bytes(dtype type) {
    return type == DTYPE_I8 || type == DTYPE_I4;
}

/* Where one row lies: n units, `stride` bytes apart. */
typedef struct cpu_row {
    uint8_t *at;
    int32_t unit, n;
    int64_t stride;
} cpu_row;

/* How many successive positions have their units side by side: a run that begins at a multiple of it is copied with each unit's copy. */
int32_t cpu_row_run(dtype type, kv_plane_kind kind, int32_t page_tokens);
/* The row at `offset` of the page_tokens rows of row_bytes bytes that begin at `rows`, a head's. */
cpu_row cpu_row_at(dtype type, kv_plane_kind kind, int64_t row_bytes, int32_t page_tokens, uint8_t *rows, int32_t offset);
/* Copies n successive rows of the same type and width, all of one run in both places. */
void cpu_row_copy(cpu_row from, cpu_row to, int32_t n);
void cpu_row_put(cpu_row to, const uint8_t *bytes);
void cpu_row_get(cpu_row from, uint8_t *bytes);

/* Rounds x[0..width) to the plane's type: its row's bytes. Returns the row's scale: NaN where some x isn't finite; 0 of types without.
 * fixed: the scale that fp8_e4m3 takes, numbers beyond 448 times it becoming that; 0: the one by which the largest becomes 448. */
float cpu_row_encode(const cpu_backend *b, const kv_plane *plane, const float *x, float fixed, uint8_t *bytes);
/* The numbers of a row. */
void cpu_row_decode(const kv_plane *plane, const uint8_t *bytes, float scale, float *x);
/* The int8 of a row of int4, zeros behind the width up to a multiple of 32. */
void cpu_int4_decode(const uint8_t *bytes, int32_t width, int8_t *out);

/* Quantises query t of the tile. */
void cpu_int8_query(const cpu_backend *b, attn_tile *tile, int32_t t);

#endif
