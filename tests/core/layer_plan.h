/* Model descriptions for tests of KV layouts: layers of given kinds, a cache for each. */
#ifndef TESTS_CORE_LAYER_PLAN_H
#define TESTS_CORE_LAYER_PLAN_H

#include "core/kv_layout.h"

/* kinds: [n_layers]; NULL: full attention. Sizes of absent kinds are not read. */
typedef struct layer_plan {
    int32_t n_layers, n_kv_heads, d_head;
    const layer_kind *kinds;
    int32_t window, d_latent;
    int32_t n_units;
    int64_t unit_bytes;
} layer_plan;

/* Makes a description. Layer counts that are invalid for a model are passed on. */
static inline model_desc desc_of_plan(const layer_plan *p) {
    model_desc d = {.n_layers = p->n_layers, .n_caches = p->n_layers};
    for (int32_t i = 0; i < p->n_layers && i < DESC_MAX_CACHES; i++) {
        layer_kind kind = p->kinds != NULL ? p->kinds[i] : LAYER_FULL;
        cache_desc *c = &d.caches[i];
        *c = (cache_desc){.kind = kind};
        d.layers[i] = (layer_desc){.caches = NO_CACHES, .rope = NO_ROPE};
        d.layers[i].caches[kind == LAYER_STATE ? CACHE_STATE : CACHE_ATTENTION] = (int16_t)i;
        switch (kind) {
        case LAYER_WINDOW:
            c->window = p->window; /* fallthrough */
        case LAYER_FULL:
            c->n_kv_heads = p->n_kv_heads;
            c->d_key = c->d_value = p->d_head;
            d.layers[i].n_heads = p->n_kv_heads;
            break;
        case LAYER_LATENT:
            c->d_latent = p->d_latent;
            break;
        case LAYER_STATE:
            c->n_units = p->n_units;
            c->unit_bytes = p->unit_bytes;
            break;
        }
    }
    return d;
}

static inline quire_err lay_out(const layer_plan *p, dtype type, int32_t page_tokens, kv_layout *out,
                                quire_error *err) {
    model_desc d = desc_of_plan(p);
    return kv_layout_init(&d, kv_both(type), page_tokens, out, err);
}

#endif
