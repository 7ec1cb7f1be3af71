/* Layout of planes in pages on the CPU: KV_LAYOUT_VERSION of core/kv_layout.h.
 *
 * A plane has its heads one after the other: a head's rows (kv_rows.h), then their float
 * scales by position. Scales are not stored together for all heads, since reading one
 * would also load its neighbours' cache lines. A token with a key or value that is not
 * finite gets a key that is not finite, so that the result of every query that sees it is
 * not finite either. */
#ifndef CPU_PAGES_H
#define CPU_PAGES_H

#include "backend/cpu/cpu.h"
#include "backend/cpu/kv_rows.h"

/* The K or V plane of a cache in a page. */
static inline uint8_t *cpu_kv_plane(const cpu_backend *b, int32_t page, int32_t cache, kv_plane_kind kind) {
    const kv_planes *p = &b->layout.caches[cache];
    return b->kv + (int64_t)page * b->layout.page_bytes +
           (kind == KV_PLANE_V ? p->value.offset : p->key.offset);
}

static inline const kv_plane *cpu_plane_of(const kv_planes *p, kv_plane_kind kind) {
    return kind == KV_PLANE_V ? &p->value : &p->key;
}

/* Rounds x to the plane's type and writes it as a head's row of a token. fixed: a given
 * scale for fp8_e4m3; 0: computed from the row. False: the type has scales and x is not
 * finite. */
bool cpu_kv_write_row(const cpu_backend *b, int32_t cache, kv_plane_kind kind, int32_t head, kv_slot slot,
                      const float *x, float fixed);
/* Scales the n_heads heads of a row's queries, q[0..width), by the row's position. */
void cpu_scale_queries(const cpu_backend *b, const query_scale *s, int32_t row, int32_t n_heads, float *q,
                       int32_t width);

/* Offset in bytes of a head in a plane: rows and scales of the heads before it. */
static inline int64_t cpu_kv_head(const kv_planes *p, kv_plane_kind kind, int32_t head) {
    const kv_plane *plane = cpu_plane_of(p, kind);
    return (int64_t)head * p->page_tokens * (plane->row_bytes + plane->scale_bytes);
}

/* A head's scales in a plane, by position; NULL: the type has no scales. */
static inline float *cpu_kv_scales(const kv_planes *p, kv_plane_kind kind, uint8_t *plane, int32_t head) {
    const kv_plane *l = cpu_plane_of(p, kind);
    return l->scale_bytes == 0 ? NULL
                               : (float *)(void *)(plane + cpu_kv_head(p, kind, head) +
                                                   (int64_t)p->page_tokens * l->row_bytes);
}

#endif
