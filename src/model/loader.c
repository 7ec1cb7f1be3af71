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

static bool is_used(const loader *l, const tensor_view *t) {
    for (int32_t i = 0; i < l->n_used; i++) {
        if (l->used[i] == t) {
            return true;
        }
    }
    return false;
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
    if (*out && !is_used(l, *out)) {
        l->used[l->n_used++] = *out;
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

static quire_err load_linear(loader *l, const tensor_view *w, const tensor_view *bias, int64_t n_out, int64_t n_in, linear **out) {
    TRY(check_shape(l, w, 2, n_out, n_in));
    if (bias) {
        TRY(check_shape(l, bias, 1, n_out, 1));
    }
    return l->b->ops->linear_load(l->b, w, bias, out, l->err);
}

quire_err loader_linear(loader *l, weight_name name, int32_t layer, int64_t n_out, int64_t n_in, linear **out) {
    const tensor_view *w, *bias;
    TRY(loader_find(l, name, layer, ".weight", &w));
    TRY(loader_find(l, name, layer, ".bias", &bias));
    if (!w) {
        return missing(l, name, layer);
    }
    return load_linear(l, w, bias, n_out, n_in, out);
}

quire_err loader_norm(loader *l, weight_name name, int32_t layer, norm_kind kind, int64_t width, float eps, norm **out) {
    const tensor_view *w;
    TRY(loader_find(l, name, layer, ".weight", &w));
    if (!w) {
        return missing(l, name, layer);
    }
    TRY(check_shape(l, w, 1, width, 1));
    return l->b->ops->norm_load(l->b, kind, w, NULL, eps, false, out, l->err);
}

/* The weight of one name or the other. */
static quire_err find_either(loader *l, weight_name name, const weight_name *or_name, const tensor_view **out) {
    TRY(loader_find(l, name, NO_LAYER, ".weight", out));
    if (!*out && or_name) {
        TRY(loader_find(l, *or_name, NO_LAYER, ".weight", out));
    }
    return *out ? QUIRE_OK : missing(l, name, NO_LAYER);
}

quire_err loader_embedding(loader *l, weight_name name, const weight_name *or_name, int64_t n_vocab, int64_t width, embedding **out) {
    const tensor_view *w;
    TRY(find_either(l, name, or_name, &w));
    TRY(check_shape(l, w, 2, n_vocab, width));
    return l->b->ops->embedding_load(l->b, w, out, l->err);
}

quire_err loader_head(loader *l, weight_name name, const weight_name *or_name, int64_t n_vocab, int64_t width, linear **out) {
    const tensor_view *w, *bias;
    TRY(find_either(l, name, or_name, &w));
    TRY(loader_find(l, name, NO_LAYER, ".bias", &bias));
    return load_linear(l, w, bias, n_vocab, width, out);
}

static bool ends_with(const char *s, const char *end) {
    size_t n = strlen(s), m = strlen(end);
    return n >= m && strcmp(s + n - m, end) == 0;
}

quire_err loader_finish(const loader *l) {
    static const char *const derived[] = {"rotary_emb.inv_freq", "rope_freqs.weight", ".attn.bias", ".masked_bias"};
    for (int32_t i = 0; i < model_file_n_tensors(l->file); i++) {
        const tensor_view *t = model_file_tensor(l->file, i);
        bool known = is_used(l, t);
        for (size_t d = 0; d < sizeof derived / sizeof *derived && !known; d++) {
            known = ends_with(t->name, derived[d]);
        }
        if (!known) {
            return err_set(l->err, QUIRE_UNSUPPORTED, -1, "%s: tensor %s belongs to no part of this architecture that this build computes",
                           model_file_path(l->file), t->name);
        }
    }
    return QUIRE_OK;
}
