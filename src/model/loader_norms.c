/* Loads norms: plain ones, ones with scaled weights, and ones with a tensor per head. */
#include <assert.h>
#include <string.h>

#include "base/mem.h"
#include "base/size.h"
#include "core/quant.h"
#include "model/loader.h"
#include "model/weight_table.h"

/* Finds a norm's weight or bias. BERT's first checkpoints call a layer norm's gamma and
 * beta. */
static quire_err find_norm(loader *l, weight_name name, int32_t layer, norm_kind kind, bool bias,
                           const tensor_view **out) {
    TRY(loader_find(l, name, layer, bias ? ".bias" : ".weight", out));
    if (*out == NULL && !bias && model_file_format(l->file) == MODEL_GGUF) {
        return loader_find(l, name, layer, "", out); /* some of Falcon-H1's */
    }
    bool may_be_old = *out == NULL && kind == NORM_LAYER && model_file_format(l->file) == MODEL_HF;
    return may_be_old ? loader_find(l, name, layer, bias ? ".beta" : ".gamma", out) : QUIRE_OK;
}

quire_err loader_norm(loader *l, weight_name name, int32_t layer, const norm_spec *spec, int64_t n,
                      norm **out) {
    assert(spec != NULL);
    const tensor_view *w;
    norm_spec s = *spec;
    tensor_view flat;
    TRY(find_norm(l, name, layer, s.kind, false, &w));
    TRY(loader_required(l, w, name, layer, ".weight"));
    flat = *w;
    if (w->n_dims == 2 && w->dims[0] * w->dims[1] == n) { /* a weight per head */
        flat.n_dims = 1;
        flat.dims[0] = n;
        flat.dims[1] = 1;
    }
    TRY(loader_check_shape(l, &flat, 1, n, 1, 1));
    loader_use(l, w)->as_is = true;
    s.weight = &flat;
    if (s.kind == NORM_LAYER) {
        TRY(find_norm(l, name, layer, s.kind, true, &s.bias));
    }
    if (s.bias) {
        TRY(loader_check_shape(l, s.bias, 1, n, 1, 1));
        loader_use(l, s.bias)->as_is = true;
    }
    TRY(l->b->ops->norm_load(l->b, &s, out, l->err));
    weight_entry entry = {.nm = *out, .n_out = n, .norm = *spec};
    if (s.bias != NULL && l->weights != NULL) {
        TRY(loader_read_floats(l, w, n, &entry.weight));
    }
    return loader_note(l, entry, NULL, name, layer);
}

quire_err loader_scaled_norm(loader *l, weight_name name, int32_t layer, const norm_spec *spec, float scale,
                             norm **out) {
    assert(spec != NULL);
    float *scaled;
    norm_spec s = *spec;
    TRY(loader_vector(l, name, layer, ".weight", s.width, &scaled));
    TRY(loader_required(l, scaled, name, layer, ".weight"));
    for (int32_t i = 0; i < s.width; i++) {
        scaled[i] *= scale;
    }
    tensor_view weight = {
        .name = name.hf, .type = DTYPE_F32, .n_dims = 1, .dims = {s.width, 1, 1, 1}, .data = scaled};
    weight.n_bytes = (size_t)s.width * sizeof *scaled;
    s.weight = &weight;
    quire_err e = l->b->ops->norm_load(l->b, &s, out, l->err);
    mem_free(scaled);
    TRY(e);
    return loader_note(l, (weight_entry){.nm = *out, .n_out = s.width, .norm = *spec, .scale = scale}, NULL,
                       name, layer);
}

/* Copies the heads' weights, all F32, into one vector. */
static quire_err join_heads(loader *l, weight_name name, int32_t layer, int32_t width, int32_t n, float *to) {
    char memory[WEIGHT_NAME_BYTES];
    for (int32_t head = 0; head < n; head++) {
        const weight_name of_head = weight_name_at(name, layer, head, memory);
        float *one;
        TRY(loader_vector(l, of_head, layer, ".weight", width, &one));
        TRY(loader_required(l, one, of_head, layer, ".weight"));
        memcpy(to + (int64_t)head * width, one, (size_t)width * sizeof *to);
        mem_free(one);
    }
    return QUIRE_OK;
}

quire_err loader_norm_by_head(loader *l, weight_name name, int32_t layer, const norm_spec *spec, int32_t n,
                              norm **out) {
    assert(spec != NULL);
    size_t count = (size_t)n * (size_t)spec->width;
    float *all = mem_new(count, sizeof *all);
    TRY(err_set(l->err, mem_check(all), -1, "out of memory while loading"));
    tensor_view joined = {
        .name = name.hf, .type = DTYPE_F32, .n_dims = 1, .dims = {(int64_t)count, 1, 1, 1}, .data = all};
    joined.n_bytes = count * sizeof *all;
    norm_spec s = *spec;
    s.weight = &joined;
    quire_err e = join_heads(l, name, layer, spec->width, n, all);
    TRY_DONE(e, l->b->ops->norm_load(l->b, &s, out, l->err));
done:
    mem_free(all);
    return e;
}

/* Vectors and matrices that are read as f32: for norms, pooling and recurrences. */

quire_err loader_need_vector(loader *l, weight_name name, const char *suffix, int64_t n, float **out) {
    TRY(loader_vector(l, name, NO_LAYER, suffix, n, out));
    return loader_required(l, *out, name, NO_LAYER, suffix);
}

/* n 0: one matrix. */
static quire_err find_matrices(loader *l, weight_name name, int32_t layer, const char *suffix, int64_t n,
                               int64_t n_out, int64_t n_in, float **out) {
    const tensor_view *t;
    size_t count = 0;
    TRY(loader_find(l, name, layer, suffix, &t));
    TRY(loader_required(l, t, name, layer, suffix));
    TRY(loader_check_shape(l, t, n > 0 ? 3 : 2, n > 0 ? n : n_out, n > 0 ? n_out : n_in, n_in));
    loader_use(l, t)->as_is = true;
    float *rows =
        size_mul((size_t)n_out, (size_t)n_in, &count) && size_mul(count, n > 0 ? (size_t)n : 1, &count)
            ? mem_new(count, sizeof *rows)
            : NULL;
    TRY(err_set(l->err, mem_check(rows), -1, "out of memory while loading"));
    if (quant_dequantise(t->type, t->data, count, rows) != QUIRE_OK) {
        mem_free(rows);
        return err_set(l->err, QUIRE_UNSUPPORTED, -1, "%s: tensor %s cannot be of type %s",
                       model_file_path(l->file), t->name, dtype_name(t->type));
    }
    *out = rows;
    return QUIRE_OK;
}

quire_err loader_matrix(loader *l, weight_name name, int32_t layer, const char *suffix, int64_t n_out,
                        int64_t n_in, float **out) {
    return find_matrices(l, name, layer, suffix, 0, n_out, n_in, out);
}

quire_err loader_matrices(loader *l, weight_name name, int32_t layer, const char *suffix, int64_t n,
                          int64_t n_out, int64_t n_in, float **out) {
    return find_matrices(l, name, layer, suffix, n, n_out, n_in, out);
}
