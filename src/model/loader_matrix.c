/* Vectors and matrices that are read as f32: of norms' kin, pooling and recurrences. */
#include "base/mem.h"
#include "base/size.h"
#include "core/quant.h"
#include "model/loader.h"

quire_err loader_need_vector(loader *l, weight_name name, const char *suffix, int64_t n, float **out) {
    TRY(loader_vector(l, name, NO_LAYER, suffix, n, out));
    return *out != NULL ? QUIRE_OK : loader_missing(l, name, NO_LAYER, suffix);
}

/* n 0: one matrix. */
static quire_err find_matrices(loader *l, weight_name name, int32_t layer, const char *suffix, int64_t n,
                               int64_t n_out, int64_t n_in, float **out) {
    const tensor_view *t;
    size_t count;
    TRY(loader_find(l, name, layer, suffix, &t));
    if (t == NULL) {
        return loader_missing(l, name, layer, suffix);
    }
    TRY(loader_check_shape(l, t, n > 0 ? 3 : 2, n > 0 ? n : n_out, n > 0 ? n_out : n_in, n_in));
    loader_use(l, t)->as_is = true;
    float *rows =
        size_mul((size_t)n_out, (size_t)n_in, &count) && size_mul(count, n > 0 ? (size_t)n : 1, &count)
            ? mem_new(count, sizeof *rows)
            : NULL;
    if (rows == NULL) {
        return err_set(l->err, QUIRE_NO_MEMORY, -1, "out of memory while loading");
    }
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
