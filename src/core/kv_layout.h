/* The layout of KV pages: groups of caches, and planes inside a page (docs/design.md,
 * Pages).
 *
 * A page is one contiguous extent of page_bytes that holds page_tokens tokens of one
 * group: for each cache of the group its planes, in order. All pages have the same size,
 * so any free page serves any group; the bytes that a group does not use are padding.
 * Plane offsets are multiples of 64.
 *
 * Caches of one kind and window are cut into groups that fit a page. The page size is the
 * one with the least padding in pages of tokens; ties go to the largest, for fewer block
 * tables. A recurrent state has no tokens: all states are one group, in a fixed number of
 * whole pages per sequence, one cache after another, unit by unit. A unit never straddles
 * two pages, so a kernel has one pointer to each; the gaps that this leaves, and the rest
 * of the last page, are padding too, per sequence rather than per token. A page is at
 * least as large as the largest unit; in a model without caches of tokens it holds all
 * states.
 *
 * src/kv uses counts and bytes only; the backend decides the layout inside a plane. */
#ifndef CORE_KV_LAYOUT_H
#define CORE_KV_LAYOUT_H

#include <stdint.h>

#include "base/err.h"
#include "core/dtype.h"
#include "core/model_desc.h"

#define KV_MAX_GROUPS      64
#define KV_MAX_PAGE_TOKENS 256
#define KV_LAYOUT_VERSION  4 /* version of the layout inside a plane: part of every stored page's identity */

/* The types of keys, of values and of recurrent states. State: F32, or BF16, to which a
 * state is rounded after each token unless its cache stays_wide. Latents have the keys'
 * type. */
typedef struct kv_types {
    dtype key, value, state;
} kv_types;

static inline kv_types kv_both(dtype t) {
    return (kv_types){t, t, DTYPE_F32};
}

/* A latent's plane is of keys. */
typedef enum kv_plane_kind { KV_PLANE_K, KV_PLANE_V } kv_plane_kind;

/* One plane of a cache: the keys, the values or the latents of a page's tokens. */
typedef struct kv_plane {
    dtype type;    /* F32, F16, BF16, F8_E4M3, I8 or I4 */
    int32_t width; /* elements of a head's row */
    /* bytes of a head's row; I8: the width rounded up to 4; I4: 17 bytes per 32 elements,
     * rounded up to 4 */
    int64_t row_bytes;
    int32_t scale_bytes; /* a row's scale: 4 for F8_E4M3, I8 and I4, else 0 */
    /* n_heads * page_tokens * (row_bytes + scale_bytes), rounded up to 64; a head's
     * scales come after its rows */
    int64_t bytes;
    int64_t offset; /* from the page's start */
} kv_plane;

/* Where the units of a cache's state lie in one sequence's pages of its group: the first
 * n_first in page `page` from `offset` on, then per_page in each of the next. */
typedef struct kv_state_place {
    int32_t n_units, page, n_first, per_page;
    int64_t offset, unit_bytes; /* multiples of 64; of 32 in BF16 */
    int32_t element_bytes;
} kv_state_place;

/* Where a cache's tokens lie. A latent cache has one plane, key, of one head; a state has
 * none. */
typedef struct kv_planes {
    layer_kind kind;
    int32_t group;       /* the group whose block table lists its pages */
    int32_t page_tokens; /* the layout's */
    int32_t n_heads;
    kv_plane key, value;
    kv_state_place state;
} kv_planes;

typedef struct kv_group {
    layer_kind kind;
    int32_t window; /* tokens, LAYER_WINDOW only */
    int32_t n_caches;
    int32_t state_pages; /* pages that one sequence's state takes, LAYER_STATE only */
    /* used bytes of a page; for LAYER_STATE of the state's pages, up to the end of the
     * last unit */
    int64_t used_bytes;
} kv_group;

typedef struct kv_layout {
    kv_types types;
    char type_name[32];  /* "int8"; "int8/int4" if values have another type than keys */
    int32_t page_tokens; /* power of two, 1..256 */
    int64_t page_bytes;  /* used bytes of the largest group with tokens, or a unit's bytes */
    int32_t n_groups, n_caches;
    kv_group groups[KV_MAX_GROUPS];
    kv_planes caches[DESC_MAX_CACHES];
} kv_layout;

/* Fills *out for a model, groups in the order of layer_kind. QUIRE_INVALID (with a reason
 * in err, *out unchanged) unless page_tokens is a power of two in 1..256, the types are
 * valid for planes and the description's counts keep all sizes far from overflow;
 * QUIRE_UNSUPPORTED for caches of too many kinds and sizes. */
quire_err kv_layout_init(const model_desc *d, kv_types types, int32_t page_tokens, kv_layout *out,
                         quire_error *err);

/* Where unit i of a state lies: the index of its page among the sequence's state pages,
 * and the bytes from that page's start. */
static inline int64_t kv_state_unit(const kv_planes *p, int32_t i, int32_t *page) {
    const kv_state_place *s = &p->state;
    if (i < s->n_first) {
        *page = s->page;
        return s->offset + i * s->unit_bytes;
    }
    *page = s->page + 1 + (i - s->n_first) / s->per_page;
    return (i - s->n_first) % s->per_page * s->unit_bytes;
}

/* KV bytes of one token in one cache: its keys and values, or its latent, with their
 * scales; 0 for a state. */
int64_t kv_planes_token_bytes(const kv_planes *p);
/* KV bytes of one token in all caches, without padding: 2 * n_layers * n_kv_heads * (row
 * + scale bytes) for a plain Llama. */
int64_t kv_layout_token_bytes(const kv_layout *l);
/* KV bytes of one token in the caches of group g; 0 for a state group. */
int64_t kv_layout_group_token_bytes(const kv_layout *l, int32_t g);
/* The largest number of key heads of any cache; 0: none has keys. */
int32_t kv_layout_most_heads(const kv_layout *l);
/* Pages that n_tokens need in one group, rounded up. */
static inline int64_t kv_pages_for(int64_t n_tokens, int32_t page_tokens) {
    return (n_tokens + page_tokens - 1) / page_tokens;
}

#endif
