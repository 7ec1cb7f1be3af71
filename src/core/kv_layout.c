#include "core/kv_layout.h"

#include "base/size.h"

#define PLANE_ALIGN     64
#define N_KINDS         4
#define MAX_LAYER_BYTES ((int64_t)1 << 40) /* so that a group's bytes, and the padding of all groups, fit int64_t by far */

/* The inputs of the cut. A layer's bytes are those in a page, for LAYER_STATE those of its state. */
typedef struct cut_input {
    int32_t n_layers, n_of_kind[N_KINDS];
    int64_t layer_bytes[N_KINDS];
} cut_input;

static layer_kind kind_of(const model_desc *d, int32_t layer) {
    return d->layer_kinds != NULL ? d->layer_kinds[layer] : LAYER_FULL;
}

static int32_t min_i32(int32_t a, int32_t b) {
    return a < b ? a : b;
}

static int64_t divide_up(int64_t a, int64_t b) {
    return (a + b - 1) / b;
}

/* ---- how many layers a group has ---- */

/* Bytes of the largest group, among those that hold tokens if there are any. */
static int64_t page_bytes_of(const cut_input *in, int32_t size) {
    int64_t page = 0;
    for (int k = 0; k < LAYER_STATE; k++) {
        int64_t group = in->layer_bytes[k] * min_i32(size, in->n_of_kind[k]);
        page = group > page ? group : page;
    }
    return page > 0 ? page : in->layer_bytes[LAYER_STATE] * min_i32(size, in->n_of_kind[LAYER_STATE]);
}

/* Groups of at most `size` layers, and the bytes of padding in a page of each that holds tokens. */
static void cut(const cut_input *in, int32_t size, int32_t *n_groups, int64_t *padding_bytes) {
    int64_t page = page_bytes_of(in, size);
    *n_groups = 0;
    *padding_bytes = 0;
    for (int k = 0; k < N_KINDS; k++) {
        int32_t n = (in->n_of_kind[k] + size - 1) / size;
        *n_groups += n;
        *padding_bytes += k != LAYER_STATE ? n * page - in->n_of_kind[k] * in->layer_bytes[k] : 0;
    }
}

/* The size of least padding that gives at most KV_MAX_GROUPS groups; of equals the largest. */
static int32_t choose_size(const cut_input *in) {
    int32_t best = in->n_layers;
    int64_t least = INT64_MAX;
    for (int32_t size = in->n_layers; size >= 1; size--) {
        int32_t n_groups;
        int64_t padding;
        cut(in, size, &n_groups, &padding);
        if (n_groups <= KV_MAX_GROUPS && padding < least) {
            best = size;
            least = padding;
        }
    }
    return best;
}

/* ---- the layout ---- */

static quire_err check_options(dtype type, int32_t page_tokens, quire_error *err) {
    if (page_tokens < 1 || page_tokens > KV_MAX_PAGE_TOKENS || (page_tokens & (page_tokens - 1)) != 0) {
        return err_set(err, QUIRE_INVALID, -1, "a page of %d tokens: must be a power of two from 1 to %d", page_tokens, KV_MAX_PAGE_TOKENS);
    }
    if (type != DTYPE_F32 && type != DTYPE_F16 && type != DTYPE_BF16 && type != DTYPE_I8) {
        return err_set(err, QUIRE_INVALID, -1, "keys and values of type %s: must be F32, F16, BF16 or I8", dtype_name(type));
    }
    return QUIRE_OK;
}

static quire_err count_kinds(const model_desc *d, cut_input *in, quire_error *err) {
    if (d->n_layers < 1 || d->n_layers > DESC_MAX_LAYERS) {
        return err_set(err, QUIRE_INVALID, -1, "%d layers: must be 1 to %d", d->n_layers, DESC_MAX_LAYERS);
    }
    in->n_layers = d->n_layers;
    for (int32_t layer = 0; layer < d->n_layers; layer++) {
        if ((unsigned)kind_of(d, layer) >= N_KINDS) {
            return err_set(err, QUIRE_INVALID, -1, "layer %d is of an unknown kind", layer);
        }
        in->n_of_kind[kind_of(d, layer)]++;
    }
    if (in->n_of_kind[LAYER_WINDOW] > 0 && d->window < 1) {
        return err_set(err, QUIRE_INVALID, -1, "a window of %d tokens: must be 1 or more", d->window);
    }
    return QUIRE_OK;
}

/* *out = a * b * c * d rounded up to PLANE_ALIGN. */
static quire_err plane_size(int64_t a, int64_t b, int64_t c, int64_t d, const char *what, int64_t *out, quire_error *err) {
    size_t bytes = 0;
    bool fits = a > 0 && b > 0 && size_mul((size_t)a, (size_t)b, &bytes) && size_mul(bytes, (size_t)c, &bytes) &&
                size_mul(bytes, (size_t)d, &bytes) && bytes <= (size_t)MAX_LAYER_BYTES / 2 - PLANE_ALIGN;
    if (!fits) {
        return err_set(err, QUIRE_INVALID, -1, "%s of %lld x %lld: more than a page can hold, or nothing", what, (long long)a,
                       (long long)b);
    }
    *out = (int64_t)size_align(bytes, PLANE_ALIGN);
    return QUIRE_OK;
}

/* Computes the sizes of planes and states of the kinds that the model has. */
static quire_err measure_layers(const model_desc *d, kv_layout *l, cut_input *in, quire_error *err) {
    int64_t element_bytes = dtype_block_bytes(l->type);
    if (in->n_of_kind[LAYER_FULL] + in->n_of_kind[LAYER_WINDOW] > 0) {
        int64_t row_bytes = l->type == DTYPE_I8 ? ((int64_t)d->d_head + 3) / 4 * 4 : d->d_head * element_bytes;
        int32_t scale_bytes = l->type == DTYPE_I8 ? (int32_t)sizeof(float) : 0;
        TRY(plane_size(d->n_kv_heads, d->d_head > 0 ? row_bytes + scale_bytes : 0, l->page_tokens, 1, "key-value heads", &l->plane_bytes,
                       err));
        l->row_bytes = row_bytes;
        l->scale_bytes = scale_bytes;
    }
    if (in->n_of_kind[LAYER_LATENT] > 0 && l->type == DTYPE_I8) {
        return err_set(err, QUIRE_UNSUPPORTED, -1, "int8 keys and values: not for layers that keep latents");
    }
    if (in->n_of_kind[LAYER_LATENT] > 0) {
        TRY(plane_size(1, d->d_latent, l->page_tokens, element_bytes, "latents", &l->latent_bytes, err));
        l->d_latent = d->d_latent;
    }
    if (in->n_of_kind[LAYER_STATE] > 0) {
        TRY(plane_size(1, d->state_bytes, 1, 1, "states", &l->state_bytes, err));
    }
    in->layer_bytes[LAYER_FULL] = in->layer_bytes[LAYER_WINDOW] = 2 * l->plane_bytes;
    in->layer_bytes[LAYER_LATENT] = l->latent_bytes;
    in->layer_bytes[LAYER_STATE] = l->state_bytes;
    return QUIRE_OK;
}

/* Groups of full layers first, then those of a window, latent ones, states; layers keep their order inside a kind. */
static void assign_layers(const model_desc *d, const cut_input *in, int32_t size, kv_layout *l) {
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
            g->used_bytes += in->layer_bytes[k];
        }
    }
}

quire_err kv_layout_init(const model_desc *d, dtype type, int32_t page_tokens, kv_layout *out, quire_error *err) {
    TRY(check_options(type, page_tokens, err));
    kv_layout l = {.type = type,
                   .page_tokens = page_tokens,
                   .n_kv_heads = d->n_kv_heads,
                   .d_head = d->d_head,
                   .n_layers = d->n_layers};
    cut_input in = {0};
    TRY(count_kinds(d, &in, err));
    TRY(measure_layers(d, &l, &in, err));
    int32_t size = choose_size(&in);
    l.page_bytes = page_bytes_of(&in, size);
    if (divide_up(in.n_of_kind[LAYER_STATE] * l.state_bytes, l.page_bytes) > INT32_MAX - KV_MAX_GROUPS) {
        return err_set(err, QUIRE_INVALID, -1, "states of %lld bytes a layer in pages of %lld: too many pages", (long long)l.state_bytes,
                       (long long)l.page_bytes);
    }
    assign_layers(d, &in, size, &l);
    for (int32_t g = 0; g < l.n_groups; g++) {
        if (l.groups[g].kind == LAYER_STATE) {
            l.groups[g].state_pages = (int32_t)divide_up(l.groups[g].used_bytes, l.page_bytes);
        }
    }
    *out = l;
    return QUIRE_OK;
}

/* ---- figures ---- */

int64_t kv_layout_group_token_bytes(const kv_layout *l, int32_t g) {
    const kv_group *group = &l->groups[g];
    if (group->kind == LAYER_STATE) {
        return 0;
    }
    if (group->kind == LAYER_LATENT) {
        return (int64_t)group->n_layers * l->d_latent * dtype_block_bytes(l->type);
    }
    return (int64_t)group->n_layers * 2 * l->n_kv_heads * (l->row_bytes + l->scale_bytes);
}

int64_t kv_layout_token_bytes(const kv_layout *l) {
    int64_t bytes = 0;
    for (int32_t g = 0; g < l->n_groups; g++) {
        bytes += kv_layout_group_token_bytes(l, g);
    }
    return bytes;
}
