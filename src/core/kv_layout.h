/* The layout of KV pages: groups of layers, and planes inside a page (docs/design.md, Pages).
 *
 * A page is one contiguous extent of page_bytes that holds page_tokens tokens of one group: for each layer of the group its planes, in
 * order. All pages have the same size, so any free page serves any group; what a group does not use is padding. Plane offsets are
 * multiples of 64.
 *
 * Layers of each kind are cut into groups of at most L, one L for the model: the one with the least padding in pages of tokens; of equals
 * the largest, for fewer block tables. A recurrent state has no tokens: a sequence's state of a group is a fixed number of whole pages,
 * with its layers one after another; the rest of the last page is padding too, but a sequence's and not a token's. In a model without
 * layers that hold tokens a page is as large as a group's state.
 *
 * kv uses counts and bytes only; the backend decides the layout inside a plane. */
#ifndef CORE_KV_LAYOUT_H
#define CORE_KV_LAYOUT_H

#include <stdint.h>

#include "base/err.h"
#include "core/dtype.h"
#include "core/model_desc.h"

#define KV_MAX_GROUPS 64
#define KV_MAX_PAGE_TOKENS 256
#define KV_LAYOUT_VERSION  2 /* version of the layout inside a plane: part of every stored page's identity */

typedef enum kv_plane_kind { KV_PLANE_K, KV_PLANE_V, KV_PLANE_LATENT, KV_PLANE_STATE } kv_plane_kind;

/* A page of a group of n layers: n times (one K plane, one V plane), the plane of layer i of the group and kind k at (2 i + k) *
 * plane_bytes; of a latent group: n latent planes, that of layer i at i * latent_bytes. A state group's layer i is at i * state_bytes of
 * its pages. */
typedef struct kv_group {
    layer_kind kind;
    int32_t window;      /* tokens, LAYER_WINDOW only */
    int32_t n_layers;    /* L, or fewer in the last of a kind */
    int32_t state_pages; /* pages that one sequence's state takes, LAYER_STATE only */
    int64_t used_bytes;  /* of a page, of the state's pages for LAYER_STATE; the rest is padding */
} kv_group;

typedef struct kv_layout {
    dtype type;           /* F32, F16, BF16 or I8 */
    int32_t page_tokens;  /* power of two, 1..256 */
    int32_t n_kv_heads, d_head;
    int64_t row_bytes;    /* a head's key or value: d_head elements, I8 rounded up to 4 */
    int32_t scale_bytes;  /* its scale: 4 for I8, else 0 */
    int64_t plane_bytes;  /* n_kv_heads * page_tokens * (row_bytes + scale_bytes), rounded up to 64; a head's scales behind its rows */
    int32_t d_latent;     /* elements a token of a latent layer; 0: the model has none */
    int64_t latent_bytes; /* a latent plane: d_latent * page_tokens * element bytes, rounded up to 64 */
    int64_t state_bytes;  /* a state layer's, rounded up to 64; 0: the model has none */
    int64_t page_bytes;   /* used bytes of the largest group that holds tokens: n_layers * 2 * plane_bytes for a plain model */
    int32_t n_groups;
    kv_group groups[KV_MAX_GROUPS];
    int32_t n_layers;
    int16_t layer_group[DESC_MAX_LAYERS]; /* the group of a layer's K and V */
    int16_t layer_index[DESC_MAX_LAYERS]; /* the layer's index inside that group */
} kv_layout;

/* Fills *out for a model, groups in the order of layer_kind. QUIRE_INVALID (err says what is wrong, *out unchanged) unless page_tokens is a
 * power of two in 1..256, type is F32, F16, BF16 or (without latent layers) I8, and the description's counts are such that sizes stay far
 * from overflow. */
quire_err kv_layout_init(const model_desc *d, dtype type, int32_t page_tokens, kv_layout *out, quire_error *err);

/* KV bytes of one token in all layers, without padding: 2 * n_layers * n_kv_heads * (row + scale bytes) for a plain Llama. */
int64_t kv_layout_token_bytes(const kv_layout *l);
/* The same in the layers of group g; 0 for a state group. */
int64_t kv_layout_group_token_bytes(const kv_layout *l, int32_t g);
/* Pages that n_tokens need in one group, rounded up. */
static inline int64_t kv_pages_for(int64_t n_tokens, int32_t page_tokens) {
    return (n_tokens + page_tokens - 1) / page_tokens;
}

#endif
