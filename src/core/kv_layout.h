/* The layout of KV pages: groups of caches, and planes inside a page (docs/design.md,
 * Pages).
 *
 * A page is page_bytes contiguous bytes that hold page_tokens tokens of one group: the
 * planes of each of its caches, in order. All pages have the same size, so any free page
 * serves any group; bytes that a group does not use are padding. Plane offsets are
 * multiples of 64.
 *
 * Caches of one kind and window are split into groups that fit a page. The page size is
 * the one with the least padding in pages of tokens; of equal ones the largest, for fewer
 * block tables. Recurrent states form a single group, with a fixed number of whole pages
 * per sequence: one cache after another, unit by unit. A unit never straddles two pages,
 * so a kernel has one pointer to each. The gaps that this leaves, and the rest of the
 * last page, are padding per sequence. A page is at least as large as the largest unit;
 * in a model that has only states, one page holds all of them.
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
#define KV_LAYOUT_VERSION  4 /* version of the layout inside a plane: part of the identity of stored pages */

/* The types of keys, values and recurrent states. Latents have the type of keys. A state
 * is F32, or BF16: then it is rounded after each token, unless its cache stays_wide. */
typedef struct kv_types {
    dtype key, value, state;
} kv_types;

static inline kv_types kv_both(dtype t) {
    return (kv_types){t, t, DTYPE_F32};
}

/* A latent's plane is KV_PLANE_K. */
typedef enum kv_plane_kind { KV_PLANE_K, KV_PLANE_V } kv_plane_kind;

/* One plane of a cache: the keys, the values or the latents of a page's tokens. */
typedef struct kv_plane {
    dtype type;    /* F32, F16, BF16, F8_E4M3, I8 or I4 */
    int32_t width; /* elements of a head's row */
    /* bytes of a head's row; I8: the width rounded up to 4; I4: 17 bytes per 32 elements,
     * rounded up to 4 */
    int64_t row_bytes;
    int32_t scale_bytes; /* bytes of a row's scale: 4 for F8_E4M3, I8 and I4, else 0 */
    /* n_heads * page_tokens * (row_bytes + scale_bytes), rounded up to 64; each head has
     * its rows, then their scales */
    int64_t bytes;
    int64_t offset; /* from the start of the page */
} kv_plane;

/* Where the units of a cache's state lie in a sequence's state pages: the first n_first
 * from `offset` in page `page` on, then per_page in each page after it. */
typedef struct kv_state_place {
    int32_t n_units, page, n_first, per_page;
    int64_t offset, unit_bytes; /* multiples of 64; for BF16, of 32 */
    int32_t element_bytes;
} kv_state_place;

/* Where a cache's tokens lie. A latent cache has one plane, of keys with one head; a
 * state has none. */
typedef struct kv_planes {
    layer_kind kind;
    int32_t group;       /* the group whose block table lists its pages */
    int32_t page_tokens; /* tokens of a page, as in the layout */
    int32_t n_heads;
    kv_plane key, value;
    kv_state_place state;
} kv_planes;

typedef struct kv_group {
    layer_kind kind;
    int32_t window; /* LAYER_WINDOW: tokens of the window */
    int32_t n_caches;
    int32_t state_pages; /* LAYER_STATE: pages of one sequence's state */
    /* used bytes of a page; LAYER_STATE: of all state pages, up to the last unit's end */
    int64_t used_bytes;
} kv_group;

typedef struct kv_layout {
    kv_types types;
    char type_name[32];  /* "int8", or "int8/int4" if the types of keys and values differ */
    int32_t page_tokens; /* a power of two, 1..256 */
    int64_t page_bytes;  /* used bytes of the largest group of tokens, or a unit's bytes if larger */
    int32_t n_groups, n_caches;
    kv_group groups[KV_MAX_GROUPS];
    kv_planes caches[DESC_MAX_CACHES];
} kv_layout;

/* Computes the layout for a model; groups are in the order of layer_kind. QUIRE_INVALID
 * (reason in err, *out unchanged) if page_tokens is no power of two in 1..256, a type is
 * not valid for planes, or a size would come near overflow. QUIRE_UNSUPPORTED if the
 * caches have too many kinds and sizes. */
quire_err kv_layout_init(const model_desc *d, kv_types types, int32_t page_tokens, kv_layout *out,
                         quire_error *err);

/* Where unit i of a state lies: returns its offset in the page, and sets *page to the
 * page's index among the sequence's state pages. */
static inline int64_t kv_state_unit(const kv_planes *p, int32_t i, int32_t *page) {
    const kv_state_place *s = &p->state;
    if (i < s->n_first) {
        *page = s->page;
        return s->offset + i * s->unit_bytes;
    }
    *page = s->page + 1 + (i - s->n_first) / s->per_page;
    return (i - s->n_first) % s->per_page * s->unit_bytes;
}

/* KV bytes of one token in this cache: its keys and values, or its latent, with scales; 0
 * for a state. */
int64_t kv_planes_token_bytes(const kv_planes *p);
/* KV bytes of one token in all caches, without padding; for plain Llama, 2 * n_layers *
 * n_kv_heads * (bytes of a row and its scale). */
int64_t kv_layout_token_bytes(const kv_layout *l);
/* KV bytes of one token in group g; 0 for a state group. */
int64_t kv_layout_group_token_bytes(const kv_layout *l, int32_t g);
/* The largest number of key heads in any cache; 0 if none has keys. */
int32_t kv_layout_most_heads(const kv_layout *l);
/* Pages that n_tokens take in one group, rounded up. */
static inline int64_t kv_pages_for(int64_t n_tokens, int32_t page_tokens) {
    return (n_tokens + page_tokens - 1) / page_tokens;
}

#endif
