#include "model/loader.h"

#include <stdio.h>
#include <string.h>

#include "base/mem.h"

quire_err loader_init(loader *l, const model_file *f, backend *b, int32_t max_positions, quire_error *err) {
    *l = (loader){.file = f, .b = b, .err = err, .max_positions = max_positions};
    l->cap_used = model_file_n_tensors(f) + 1;
    l->used = mem_new((size_t)l->cap_used, sizeof *l->used);
    return l->used ? QUIRE_OK : err_set(err, QUIRE_NO_MEMORY, -1, "out of memory while loading");
}

void loader_deinit(loader *l) {
    mem_free(l->used);
    *l = (loader){0};
}

/* NULL when the tensor was not used. */
static used_tensor *find_used(const loader *l, const tensor_view *t) {
    for (int32_t i = 0; i < l->n_used; i++) {
        if (l->used[i].view == t) {
            return &l->used[i];
        }
    }
    return NULL;
}

/* The full name of a tensor, in the file's own convention. */
static void full_name(const loader *l, weight_name name, int32_t layer, const char *suffix, char out[128]) {
    const char *pattern = model_file_format(l->file) == MODEL_GGUF ? name.gguf : name.hf;
    const char *hole = strstr(pattern, "%d");
    if (hole) {
        snprintf(out, 128, "%.*s%d%s%s", (int)(hole - pattern), pattern, (int)layer, hole + 2, suffix);
    } else {
        snprintf(out, 128, "%s%s", pattern, suffix);
    }
}

quire_err loader_find(loader *l, weight_name name, int32_t layer, const char *suffix, const tensor_view **out) {
    char full[128];
    full_name(l, name, layer, suffix, full);
    const char *why = model_file_why_unread(l->file, full);
    if (why) {
        return err_set(l->err, QUIRE_UNSUPPORTED, -1, "%s: tensor %s cannot be read by this version: %s", model_file_path(l->file), full,
                       why);
    }
    *out = model_file_find(l->file, full);
    if (*out && !find_used(l, *out)) {
        l->used[l->n_used++] = (used_tensor){.view = *out};
    }
    return QUIRE_OK;
}

static quire_err missing(const loader *l, weight_name name, int32_t layer) {
    char full[128];
    full_name(l, name, layer, ".weight", full);
    return err_set(l->err, QUIRE_BAD_FILE, -1, "%s: tensor %s is missing: the file is incomplete", model_file_path(l->file), full);
}

static quire_err check_shape(const loader *l, const tensor_view *t, int32_t n_dims, int64_t d0, int64_t d1) {
    bool fits = t->n_dims == n_dims && t->dims[0] == d0 && (n_dims < 2 || t->dims[1] == d1);
    if (fits) {
        return QUIRE_OK;
    }
    char want[64];
    if (n_dims == 1) {
        snprintf(want, sizeof want, "[%lld]", (long long)d0);
    } else {
        snprintf(want, sizeof want, "[%lld, %lld]", (long long)d0, (long long)d1);
    }
    return err_set(l->err, QUIRE_BAD_FILE, -1, "%s: tensor %s has shape [%lld, %lld] (%d dimensions); the model's numbers ask for %s",
                   model_file_path(l->file), t->name, (long long)t->dims[0], (long long)t->dims[1], (int)t->n_dims, want);
}

/* scale: the scales of int8 weights, or NULL. */
static quire_err load_linear(loader *l, const tensor_view *w, const tensor_view *scale, const tensor_view *bias, int64_t n_out,
                             int64_t n_in, linear **out) {
    tensor_view scaled = *w;
    scaled.scale = scale;
    TRY(check_shape(l, w, 2, n_out, n_in));
    if (bias) {
        TRY(check_shape(l, bias, 1, n_out, 1));
        find_used(l, bias)->as_is = true;
    }
    TRY(l->b->ops->linear_load(l->b, &(linear_spec){.weight = &scaled, .bias = bias}, out, l->err));
    find_used(l, w)->packed = *out;
    return QUIRE_OK;
}

/* Finds a product's weight, in its packed form where the file has one. */
static quire_err find_weight(loader *l, weight_name name, int32_t layer, const tensor_view **out) {
    TRY(loader_find(l, name, layer, ".weight" PACKED_SUFFIX, out));
    return *out ? QUIRE_OK : loader_find(l, name, layer, ".weight", out);
}

/* Loads a linear layer. or_name: a second name for the weight, or NULL. */
static quire_err find_linear(loader *l, weight_name name, const weight_name *or_name, int32_t layer, int64_t n_out, int64_t n_in,
                             linear **out) {
    const tensor_view *w, *scale, *bias;
    TRY(find_weight(l, name, layer, &w));
    if (!w && or_name) {
        TRY(find_weight(l, *or_name, layer, &w));
    }
    TRY(loader_find(l, name, layer, ".weight_scale", &scale));
    TRY(loader_find(l, name, layer, ".bias", &bias));
    return w ? load_linear(l, w, scale, bias, n_out, n_in, out) : missing(l, name, layer);
}

quire_err loader_linear(loader *l, weight_name name, int32_t layer, int64_t n_out, int64_t n_in, linear **out) {
    return find_linear(l, name, NULL, layer, n_out, n_in, out);
}

quire_err loader_head(loader *l, weight_name name, const weight_name *or_name, int64_t n_vocab, int64_t width, linear **out) {
    return find_linear(l, name, or_name, NO_LAYER, n_vocab, width, out);
}

quire_err loader_norm(loader *l, weight_name name, int32_t layer, norm_kind kind, int64_t width, float eps, norm **out) {
    const tensor_view *w;
    TRY(loader_find(l, name, layer, ".weight", &w));
    if (!w) {
        return missing(l, name, layer);
    }
    TRY(check_shape(l, w, 1, width, 1));
    find_used(l, w)->as_is = true;
    const norm_spec spec = {.kind = kind, .width = (int32_t)width, .eps = eps, .weight = w};
    return l->b->ops->norm_load(l->b, &spec, out, l->err);
}

quire_err loader_embedding(loader *l, weight_name name, const weight_name *or_name, int64_t n_vocab, int64_t width, embedding **out) {
    const tensor_view *w;
    TRY(loader_find(l, name, NO_LAYER, ".weight", &w));
    if (!w && or_name) {
        TRY(loader_find(l, *or_name, NO_LAYER, ".weight", &w));
    }
    if (!w) {
        return missing(l, name, NO_LAYER);
    }
    TRY(check_shape(l, w, 2, n_vocab, width));
    find_used(l, w)->as_is = true;
    return l->b->ops->embedding_load(l->b, w, out, l->err);
}

quire_err loader_image(const loader *l, packed_image *image) {
    for (int32_t i = 0; i < model_file_n_tensors(l->file); i++) {
        const tensor_view *t = model_file_tensor(l->file, i);
        const used_tensor *u = find_used(l, t);
        if (u && u->packed) {
            tensor_view packed = *t;
            packed.data = l->b->ops->linear_packed(u->packed, &packed.n_bytes, &packed.packing);
            TRY(packed_image_add(image, &packed));
        }
        if (!u || u->as_is) {
            TRY(packed_image_add(image, t));
        }
    }
    return QUIRE_OK;
}

quire_err loader_finish(const loader *l) {
    static const char *const derived[] = {"rotary_emb.inv_freq", "rope_freqs.weight", ".attn.bias", ".masked_bias"};
    for (int32_t i = 0; i < model_file_n_tensors(l->file); i++) {
        const tensor_view *t = model_file_tensor(l->file, i);
        bool known = find_used(l, t) != NULL;
        for (size_t d = 0; d < sizeof derived / sizeof *derived && !known; d++) {
            known = str_ends(str_of(t->name), derived[d]);
        }
        if (!known) {
            return err_set(l->err, QUIRE_UNSUPPORTED, -1, "%s: tensor %s belongs to no part of this architecture that this build computes",
                           model_file_path(l->file), t->name);
        }
    }
    return QUIRE_OK;
}
