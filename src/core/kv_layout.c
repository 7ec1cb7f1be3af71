#include "core/kv_layout.h"

#include "base/size.h"

#define LAYOUT_VERSION 1
#define PLANE_ALIGN    64
#define N_KINDS        4

static layer_kind kind_of(const model_desc *d, int32_t layer) {
    return d->layer_kinds != NULL ? d->layer_kinds[layer] : LAYER_FULL;
}

/* Groups and padding layers when every kind's layers are cut into groups of `size`. */
static void cut(const int32_t n_of_kind[N_KINDS], int32_t size, int32_t *n_groups, int32_t *n_padding) {
    *n_groups = *n_padding = 0;
    for (int k = 0; k < N_KINDS; k++) {
        int32_t groups = (n_of_kind[k] + size - 1) / size;
        *n_groups += groups;
        *n_padding += groups * size - n_of_kind[k];
    }
}

/* The size of least padding that gives at most KV_MAX_GROUPS groups; of equals the largest, for fewer block tables. */
static int32_t choose_size(const int32_t n_of_kind[N_KINDS], int32_t n_layers) {
    int32_t best = n_layers, least = INT32_MAX;
    for (int32_t size = n_layers; size >= 1; size--) {
        int32_t n_groups, n_padding;
        cut(n_of_kind, size, &n_groups, &n_padding);
        if (n_groups <= KV_MAX_GROUPS && n_padding < least) {
            best = size;
            least = n_padding;
        }
    }
    return best;
}

/* Groups of full layers first, then those of a window; layers keep their order inside a kind. */
static void assign_layers(const model_desc *d, int32_t size, kv_layout *l) {
    for (int k = 0; k < N_KINDS; k++) {
        kv_group *g = NULL;
        for (int32_t layer = 0; layer < d->n_layers; layer++) {
            if (kind_of(d, layer) != (layer_kind)k) {
                continue;
            }
            if (g == NULL || g->n_layers == size) {
                g = &l->groups[l->n_groups++];
                *g = (kv_group){.kind = (layer_kind)k, .window = k == LAYER_WINDOW ? d->window : 0};
            }
            l->layer_group[layer] = (int16_t)(l->n_groups - 1);
            l->layer_index[layer] = (int16_t)g->n_layers++;
        }
    }
}

quire_err kv_layout_init(const model_desc *d, dtype type, int32_t page_tokens, kv_layout *out, quire_error *err) {
    if (page_tokens < 1 || page_tokens > KV_MAX_PAGE_TOKENS || (page_tokens & (page_tokens - 1)) != 0) {
        return err_set(err, QUIRE_INVALID, -1, "a page of %d tokens: must be a power of two from 1 to %d", page_tokens, KV_MAX_PAGE_TOKENS);
    }
    if (type != DTYPE_F32 && type != DTYPE_F16 && type != DTYPE_BF16) {
        return err_set(err, QUIRE_INVALID, -1, "keys and values of type %s: must be F32, F16 or BF16", dtype_name(type));
    }
    int32_t n_of_kind[N_KINDS] = {0};
    for (int32_t layer = 0; layer < d->n_layers; layer++) {
        n_of_kind[kind_of(d, layer)]++;
    }
    if (n_of_kind[LAYER_LATENT] > 0 || n_of_kind[LAYER_STATE] > 0) {
        return err_set(err, QUIRE_UNSUPPORTED, -1, "layers that remember a compressed latent or a recurrent state have no page layout yet");
    }
    kv_layout l = {.version = LAYOUT_VERSION,
                   .type = type,
                   .page_tokens = page_tokens,
                   .n_kv_heads = d->n_kv_heads,
                   .d_head = d->d_head,
                   .n_layers = d->n_layers};
    size_t plane = (size_t)d->n_kv_heads * (size_t)d->d_head * (size_t)page_tokens * (size_t)dtype_block_bytes(type);
    int32_t size = choose_size(n_of_kind, d->n_layers);
    l.plane_bytes = (int64_t)size_align(plane, PLANE_ALIGN);
    l.page_bytes = 2 * size * l.plane_bytes;
    assign_layers(d, size, &l);
    *out = l;
    return QUIRE_OK;
}

int64_t kv_layout_token_bytes(const kv_layout *l) {
    return (int64_t)2 * l->n_layers * l->n_kv_heads * l->d_head * dtype_block_bytes(l->type);
}
