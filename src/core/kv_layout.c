#include "core/kv_layout.h"

#include <assert.h>
#include <stdio.h>

#include "base/size.h"

#define PLANE_ALIGN 64
/* limit that keeps sizes of groups, padding included, far from overflow */
#define MAX_CACHE_BYTES ((int64_t)1 << 40)

static int64_t kv_layout_divide_up(int64_t a, int64_t b) {
    return (a + b - 1) / b;
}

/* Bytes of a cache in a page; of a state in all of its pages, ignoring gaps between
 * units. */
static int64_t bytes_of(const kv_planes *p) {
    return p->key.bytes + p->value.bytes + p->state.n_units * p->state.unit_bytes;
}

/* Whether each row of this type has a scale. */
static bool has_scales(dtype type) {
    return type == DTYPE_F8_E4M3 || type == DTYPE_I8 || type == DTYPE_I4;
}

static quire_err kv_layout_check_type(dtype type, quire_error *err) {
    if (type != DTYPE_F32 && type != DTYPE_F16 && type != DTYPE_BF16 && !has_scales(type)) {
        return err_set(err, QUIRE_INVALID, -1,
                       "keys and values of type %s: must be F32, F16, BF16, F8_E4M3, I8 or I4",
                       dtype_name(type));
    }
    return QUIRE_OK;
}

static quire_err kv_layout_check_options(kv_types types, int32_t page_tokens, quire_error *err) {
    if (page_tokens < 1 || page_tokens > KV_MAX_PAGE_TOKENS || (page_tokens & (page_tokens - 1)) != 0) {
        return err_set(err, QUIRE_INVALID, -1, "a page of %d tokens: must be a power of two from 1 to %d",
                       page_tokens, KV_MAX_PAGE_TOKENS);
    }
    if (types.state != DTYPE_F32 && types.state != DTYPE_BF16) {
        return err_set(err, QUIRE_INVALID, -1, "recurrent states of type %s: must be F32 or BF16",
                       dtype_name(types.state));
    }
    TRY(kv_layout_check_type(types.key, err));
    return kv_layout_check_type(types.value, err);
}

static int64_t row_bytes_of(dtype type, int32_t width) {
    switch (type) {
    case DTYPE_I8:
        return kv_layout_divide_up(width, 4) * 4;
    case DTYPE_I4:
        return kv_layout_divide_up(
                   kv_layout_divide_up(width, dtype_block_elements(type)) * dtype_block_bytes(type), 4) *
               4;
    default:
        return width * (int64_t)dtype_block_bytes(type);
    }
}

/* Sets the sizes of a plane that stores n_heads rows of `width` elements per token. */
static quire_err measure_plane(const char *what, int32_t n_heads, int32_t width, dtype type,
                               int32_t page_tokens, kv_plane *out, quire_error *err) {
    size_t bytes = 0;
    *out = (kv_plane){
        .type = type, .width = width, .scale_bytes = has_scales(type) ? (int32_t)sizeof(float) : 0};
    out->row_bytes = row_bytes_of(type, width);
    bool fits = n_heads > 0 && width > 0 &&
                size_mul((size_t)n_heads, (size_t)(out->row_bytes + out->scale_bytes), &bytes) &&
                size_mul(bytes, (size_t)page_tokens, &bytes) &&
                bytes <= (size_t)MAX_CACHE_BYTES / 2 - PLANE_ALIGN;
    if (!fits) {
        return err_set(err, QUIRE_INVALID, -1,
                       "%s of %d x %d elements: must be at least 1 x 1 and fit in a page", what, n_heads,
                       width);
    }
    out->bytes = (int64_t)size_align(bytes, PLANE_ALIGN);
    return QUIRE_OK;
}

static quire_err measure_cache(const cache_desc *d, const kv_layout *l, kv_planes *out, quire_error *err) {
    *out = (kv_planes){.kind = d->kind, .page_tokens = l->page_tokens};
    switch (d->kind) {
    case LAYER_WINDOW:
        if (d->window < 1) {
            return err_set(err, QUIRE_INVALID, -1, "a window of %d tokens: must be 1 or more", d->window);
        }
        /* fallthrough */
    case LAYER_FULL:
        out->n_heads = d->n_kv_heads;
        TRY(measure_plane("key heads", d->n_kv_heads, d->d_key, l->types.key, l->page_tokens, &out->key,
                          err));
        return measure_plane("value heads", d->n_kv_heads, d->d_value, l->types.value, l->page_tokens,
                             &out->value, err);
    case LAYER_LATENT:
        out->n_heads = 1;
        return measure_plane("latents", 1, d->d_latent, l->types.key, l->page_tokens, &out->key, err);
    case LAYER_STATE:
        if (d->n_units < 1 || d->unit_bytes < 1 || d->unit_bytes > DESC_MAX_UNIT_BYTES ||
            d->unit_bytes + PLANE_ALIGN > MAX_CACHE_BYTES / 2 / d->n_units) {
            return err_set(err, QUIRE_INVALID, -1,
                           "a state of %d times %lld bytes: must be at least 1 byte and fit in the pages",
                           d->n_units, (long long)d->unit_bytes);
        }
        out->state.n_units = d->n_units;
        bool is_f32 = d->stays_wide || l->types.state == DTYPE_F32;
        out->state.element_bytes = dtype_block_bytes(is_f32 ? DTYPE_F32 : l->types.state);
        out->state.unit_bytes =
            (int64_t)size_align((size_t)(is_f32 ? d->unit_bytes : (d->unit_bytes + 1) / 2),
                                is_f32 ? PLANE_ALIGN : PLANE_ALIGN / 2);
        return QUIRE_OK;
    }
    return err_set(err, QUIRE_INVALID, -1, "a cache of an unknown kind");
}

/* Sorts the caches by group: by kind, then by window, then by number. */
static void sort_caches(const model_desc *d, int16_t *order) {
    for (int32_t i = 0; i < d->n_caches; i++) {
        const cache_desc *c = &d->caches[i];
        int32_t to = i;
        for (; to > 0; to--) {
            const cache_desc *before = &d->caches[order[to - 1]];
            if (before->kind < c->kind || (before->kind == c->kind && before->window <= c->window)) {
                break;
            }
            order[to] = order[to - 1];
        }
        order[to] = (int16_t)i;
    }
}

/* Splits the sorted caches into groups of at most `capacity` bytes, and sets the layout's
 * groups, page_bytes and each cache's place. *padding: unused bytes in pages of tokens.
 * False if a cache exceeds the capacity or there would be too many groups. */
static bool kv_layout_cut(const model_desc *d, const int16_t *order, int64_t capacity, kv_layout *l,
                          int64_t *padding) {
    int64_t used = 0;
    int32_t n_token_groups = 0;
    l->n_groups = 0;
    l->page_bytes = 0;
    for (int32_t i = 0; i < d->n_caches; i++) {
        const cache_desc *c = &d->caches[order[i]];
        kv_planes *p = &l->caches[order[i]];
        kv_group *g = l->n_groups > 0 ? &l->groups[l->n_groups - 1] : NULL;
        bool is_state = c->kind == LAYER_STATE;
        bool joins = g != NULL && g->kind == c->kind && g->window == c->window &&
                     (is_state || g->used_bytes + bytes_of(p) <= capacity);
        if (!joins) {
            if (l->n_groups == KV_MAX_GROUPS || (!is_state && bytes_of(p) > capacity)) {
                return false;
            }
            g = &l->groups[l->n_groups++];
            *g = (kv_group){.kind = c->kind, .window = c->window};
            n_token_groups += !is_state;
        }
        p->group = l->n_groups - 1;
        p->key.offset = g->used_bytes;
        p->value.offset = g->used_bytes + p->key.bytes;
        g->used_bytes += bytes_of(p);
        g->n_caches++;
        used += is_state ? 0 : bytes_of(p);
        l->page_bytes = (!is_state || n_token_groups == 0) && g->used_bytes > l->page_bytes ? g->used_bytes
                                                                                            : l->page_bytes;
    }
    *padding = n_token_groups * l->page_bytes - used;
    return true;
}

/* Tries every page size that exactly holds the first caches of some kind and window.
 * Keeps the one with the least padding; of equal ones the largest. */
static quire_err cut_best(const model_desc *d, const int16_t *order, kv_layout *l, quire_error *err) {
    int64_t sum = 0, best = 0, least = INT64_MAX, best_page = 0, padding;
    for (int32_t i = 0; i < d->n_caches; i++) {
        const cache_desc *c = &d->caches[order[i]], *before = i > 0 ? &d->caches[order[i - 1]] : c;
        sum = before->kind == c->kind && before->window == c->window ? sum : 0;
        sum += bytes_of(&l->caches[order[i]]);
        if (kv_layout_cut(d, order, sum, l, &padding) &&
            (padding < least || (padding == least && l->page_bytes > best_page))) {
            best = sum;
            least = padding;
            best_page = l->page_bytes;
        }
    }
    if (least == INT64_MAX || !kv_layout_cut(d, order, best, l, &padding)) {
        return err_set(err, QUIRE_UNSUPPORTED, -1,
                       "the layers' caches have too many kinds and sizes for %d groups", KV_MAX_GROUPS);
    }
    return QUIRE_OK;
}

/* Places a state's units from byte `at` of the group's pages on, or from the next page if
 * the first unit no longer fits. Returns the byte after the last unit; -1: too many
 * pages. */
static int64_t place_units(kv_state_place *s, int64_t page_bytes, int64_t at) {
    int64_t left = page_bytes - at % page_bytes, n_here = left / s->unit_bytes;
    if (n_here == 0) {
        at += left;
        n_here = page_bytes / s->unit_bytes;
    }
    int64_t per_page = page_bytes / s->unit_bytes, page = at / page_bytes;
    n_here = n_here < s->n_units ? n_here : s->n_units;
    int64_t n_more = s->n_units - n_here, n_full = n_more > 0 ? (n_more - 1) / per_page : 0;
    if (page + n_full + 2 > INT32_MAX / KV_MAX_GROUPS) {
        return -1;
    }
    s->page = (int32_t)page;
    s->offset = at % page_bytes;
    s->n_first = (int32_t)n_here;
    s->per_page = (int32_t)(per_page < s->n_units ? per_page : s->n_units);
    return n_more == 0 ? at + n_here * s->unit_bytes
                       : (page + 1 + n_full) * page_bytes + (n_more - n_full * per_page) * s->unit_bytes;
}

/* Grows pages to the largest unit, and places the units of all states, cache after
 * cache. */
static quire_err place_states(const int16_t *order, kv_layout *l, quire_error *err) {
    int64_t at = 0;
    for (int32_t i = 0; i < l->n_caches; i++) {
        int64_t bytes = l->caches[i].state.unit_bytes;
        l->page_bytes = bytes > l->page_bytes ? bytes : l->page_bytes;
    }
    l->page_bytes = (int64_t)size_align((size_t)l->page_bytes, PLANE_ALIGN);
    for (int32_t i = 0; i < l->n_caches; i++) {
        kv_planes *p = &l->caches[order[i]];
        if (p->kind != LAYER_STATE) {
            continue;
        }
        at = place_units(&p->state, l->page_bytes, at);
        if (at < 0) {
            return err_set(err, QUIRE_INVALID, -1,
                           "states of %d times %lld bytes in pages of %lld: too many pages", p->state.n_units,
                           (long long)p->state.unit_bytes, (long long)l->page_bytes);
        }
        l->groups[p->group].used_bytes = at;
        l->groups[p->group].state_pages = (int32_t)kv_layout_divide_up(at, l->page_bytes);
    }
    return QUIRE_OK;
}

quire_err kv_layout_init(const model_desc *d, kv_types types, int32_t page_tokens, kv_layout *out,
                         quire_error *err) {
    TRY(kv_layout_check_options(types, page_tokens, err));
    if (d->n_caches < 1 || d->n_caches > DESC_MAX_CACHES) {
        return err_set(err, QUIRE_INVALID, -1, "%d caches: must be from 1 to %d", d->n_caches,
                       DESC_MAX_CACHES);
    }
    kv_layout l = {.types = types, .page_tokens = page_tokens, .n_caches = d->n_caches};
    (void)snprintf(l.type_name, sizeof l.type_name, types.key == types.value ? "%s" : "%s/%s",
                   dtype_flag_name(types.key), dtype_flag_name(types.value));
    int16_t order[DESC_MAX_CACHES];
    for (int32_t i = 0; i < d->n_caches; i++) {
        TRY(measure_cache(&d->caches[i], &l, &l.caches[i], err));
    }
    sort_caches(d, order);
    TRY(cut_best(d, order, &l, err));
    TRY(place_states(order, &l, err));
    *out = l;
    return QUIRE_OK;
}

int64_t kv_planes_token_bytes(const kv_planes *p) {
    assert(p != NULL);
    return p->n_heads * (p->key.row_bytes + p->key.scale_bytes + p->value.row_bytes + p->value.scale_bytes);
}

int64_t kv_layout_group_token_bytes(const kv_layout *l, int32_t g) {
    assert(l != NULL);
    int64_t bytes = 0;
    for (int32_t i = 0; i < l->n_caches; i++) {
        bytes += l->caches[i].group == g ? kv_planes_token_bytes(&l->caches[i]) : 0;
    }
    return bytes;
}

int64_t kv_layout_token_bytes(const kv_layout *l) {
    assert(l != NULL);
    int64_t bytes = 0;
    for (int32_t i = 0; i < l->n_caches; i++) {
        bytes += kv_planes_token_bytes(&l->caches[i]);
    }
    return bytes;
}

int32_t kv_layout_most_heads(const kv_layout *l) {
    assert(l != NULL);
    int32_t most = 0;
    for (int32_t i = 0; i < l->n_caches; i++) {
        most = l->caches[i].n_heads > most ? l->caches[i].n_heads : most;
    }
    return most;
}
