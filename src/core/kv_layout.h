/* The layout of KV pages: groups of caches, and planes inside a page (docs/design.md,
 * Pages).
 *
 * A page is one contiguous extent of page_bytes that holds page_tokens tokens of one
 * group: for each cache of the group its planes, in order. All pages have the same size,
 * so any free page serves any group; what a group does not use is padding. Plane offsets
 * are multiples of 64.
 *
 * Caches of one kind and window are cut into groups that fit a page. The size of a page
 * is the one with the least padding in pages of tokens; of equals the largest, for fewer
 * block tables. A recurrent state has no tokens: all states are one group, in a fixed
 * number of whole pages a sequence, one cache after another, unit by unit. A unit never
 * straddles a page, so a kernel has one pointer to each; what that leaves over, and the
 * rest of the last page, is padding too, but a sequence's and not a token's. A page is as
 * large as the largest unit at least, and in a model without caches that hold tokens as
 * large as all states.
 *
 * kv uses counts and bytes only; the backend decides the layout inside a plane. */
#ifndef CORE_KV_LAYOUT_H
#define CORE_KV_LAYOUT_H

#include <stdint.h>

#include "base/err.h"
#include "core/dtype.h"
#include "core/model_desc.h"

#define KV_MAX_GROUPS      64
#define KV_MAX_PAGE_TOKENS 256
#define KV_LAYOUT_VERSION  4 /* version of the layout inside a plane: part of every stored page's identity */

/* The types of keys and of values, and of recurrent states: F32, or BF16, to which a
 * state is rounded after each token unless its cache stays_wide. Those of latents are the
 * keys'. */
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
    /* of them; of I8 the width is rounded up to 4, of I4 it is 17 bytes for each 32,
     * rounded up to 4 */
    int64_t row_bytes;
    int32_t scale_bytes; /* a row's scale: 4 for F8_E4M3, I8 and I4, else 0 */
    /* n_heads * page_tokens * (row_bytes + scale_bytes), rounded up to 64; a head's
     * scales after its rows */
    int64_t bytes;
    int64_t offset; /* from the page's start */
} kv_plane;

/* Where the units of a cache's state lie in its group's pages, those of one sequence: the
 * first n_first in page `page` from `offset` on, then per_page in each of the next. */
typedef struct kv_state_place {
    int32_t n_units, page, n_first, per_page;
    int64_t offset, unit_bytes; /* multiples of 64; of 32 in BF16 */
    int32_t element_bytes;
} kv_state_place;

/* Where a cache's tokens lie. A latent cache has one plane, key, of one head; a state has
 * none. */
typedef struct kv_planes {
    layer_kind kind;
    int32_t group;       /* its pages are those of this group's block table */
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
    /* of a page; for LAYER_STATE of the state's pages, to the end of the last unit. The
     * rest is padding */
    int64_t used_bytes;
} kv_group;

typedef struct kv_layout {
    kv_types types;
    char type_name[32];  /* "int8"; "int8/int4" where values have another type than keys */
    int32_t page_tokens; /* power of two, 1..256 */
    int64_t page_bytes;  /* used bytes of the largest group that holds tokens, or a unit's */
    int32_t n_groups, n_caches;
    kv_group groups[KV_MAX_GROUPS];
    kv_planes caches[DESC_MAX_CACHES];
} kv_layout;

/* Fills *out for a model, groups in the order of layer_kind. QUIRE_INVALID (err says what
 * is wrong, *out unchanged) unless page_tokens is a power of two in 1..256, the types are
 * those of a plane and the description's counts are such that sizes stay far from
 * overflow; QUIRE_UNSUPPORTED for caches of too many kinds and sizes. */
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
/* The same in the caches of group g; 0 for a state group. */
int64_t kv_layout_group_token_bytes(const kv_layout *l, int32_t g);
/* The most heads of keys that a cache has; 0: none has any. */
int32_t kv_layout_most_heads(const kv_layout *l);
/* Pages that n_tokens need in one group, rounded up. */
static inline int64_t kv_pages_for(int64_t n_tokens, int32_t page_tokens) {
    return (n_tokens + page_tokens - 1) / page_tokens;
}

#endif
