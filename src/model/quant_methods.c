/* The methods of quantisation, and what they share: finding a layer's tensors, checking
 * their shapes, reading scales. */
#include "model/quant_method.h"

#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "core/quant.h"

/* The first whose tensors are there. GPTQ and AWQ have tensors of the same names; without
 * a configuration it is GPTQ. */
static const quant_method *const methods[] = {&quant_awq,          &quant_gptq,         &quant_int_packed,
                                              &quant_int_groups,   &quant_int_zeros,    &quant_nvfp4_packed,
                                              &quant_mxfp4_packed, &quant_fp8,          &quant_nvfp4_modelopt,
                                              &quant_mxfp4_quark,  &quant_bitsandbytes, &quant_mxfp4_stacked};

#define N_METHODS (sizeof methods / sizeof *methods)

/* ---- which method ---- */

static bool is_method(const model_file *f, const quant_method *m) {
    static const char awq[] = "auto_round:auto_awq", old_awq[] = "auto_round:awq";
    str name, packing = {0};
    (void)model_file_str(f, QUANT_CONFIG ".packing_format", &packing);
    return m->only_for == NULL ||
           (model_file_str(f, QUANT_CONFIG ".quant_method", &name) == QUIRE_OK &&
            str_is(name, m->only_for)) ||
           (m == &quant_awq && (str_is(packing, awq) || str_is(packing, old_awq)));
}

/* Whether the tensor that tells this form from others is there. */
static bool has_beside(const loader *l, const quant_method *m, weight_name name, int32_t layer) {
    const tensor_view *t = m->beside != NULL ? loader_look(l, name, layer, m->beside) : NULL;
    return m->beside == NULL ||
           (t != NULL && (!m->has_groups || (t->n_dims > 1 && t->dims[t->n_dims - 1] > 1)));
}

/* The method in whose form the file has the layer, and the tensor of its codes. NULL:
 * none. */
static const quant_method *find_method(const loader *l, weight_name name, int32_t layer,
                                       const tensor_view **codes) {
    for (size_t i = 0; i < N_METHODS && model_file_format(l->file) == MODEL_HF; i++) {
        const quant_method *m = methods[i];
        *codes = loader_look(l, name, layer, m->suffix);
        if (*codes != NULL && (*codes)->type == m->type && has_beside(l, m, name, layer) &&
            is_method(l->file, m)) {
            return m;
        }
    }
    return NULL;
}

bool quant_linear_is(const loader *l, weight_name name, int32_t layer) {
    const tensor_view *codes;
    return find_method(l, name, layer, &codes) != NULL;
}

/* Marks the tensors used that say how the checkpoint rounds rows, and bitsandbytes' name
 * for the order of codes. */
static quire_err skip_rounding(loader *l, weight_name name, int32_t layer) {
    static const char *const suffixes[] = {".input_scale", ".input_scale_ub", ".input_zero_point",
                                           ".weight_format"};
    quire_err e = QUIRE_OK;
    for (size_t i = 0; i < sizeof suffixes / sizeof *suffixes && e == QUIRE_OK; i++) {
        const tensor_view *t;
        e = loader_find(l, name, layer, suffixes[i], &t);
    }
    return e;
}

quire_err quant_linear_find(loader *l, weight_name name, int32_t layer, const weight_part *part,
                            int64_t n_out, int64_t n_in, quant_linear *out, bool *found) {
    *out = (quant_linear){.l = l,
                          .name = name,
                          .layer = layer,
                          .part = part,
                          .n_out = part != NULL ? part->n_rows : n_out,
                          .n_in = n_in};
    const quant_method *m = find_method(l, name, layer, &out->whole);
    *found = m != NULL;
    if (m == NULL) {
        return QUIRE_OK;
    }
    out->m = (quant_matrix){.n_rows = out->n_out, .n_in = n_in, .scale_rows = 1, .factor = 1.0f};
    out->m.first = part != NULL ? part->first : 0;
    out->m.block = part != NULL ? part->block : n_out;
    out->m.step = part != NULL ? part->step : n_out;
    bool fits = n_in <= INT32_MAX && out->n_out <= INT32_MAX;
    quire_err e = fits ? m->read(out)
                       : quant_error(out, m->suffix, "a layer of over %d inputs or outputs is not supported",
                                     INT32_MAX);
    TRY_DONE(e, skip_rounding(l, name, layer));
done:
    if (e != QUIRE_OK) {
        quant_linear_deinit(out);
    }
    return e;
}

void quant_linear_deinit(quant_linear *q) {
    assert(q != NULL);
    for (int i = 0; i < q->n_memory; i++) {
        mem_free(q->memory[i]);
    }
    q->n_memory = 0;
}

/* ---- int8 with a scale a row ---- */

/* Finds the tensor of w's scales; NULL: w has none. */
static quire_err find_row_scales(loader *l, const tensor_view *w, weight_name name, int32_t layer,
                                 const tensor_view **out, bool *is_bnb) {
    TRY(loader_find(l, name, layer, ".weight_scale", out));
    if (*out == NULL) {
        TRY(loader_find(l, name, layer, ".SCB", out));
        *is_bnb = *out != NULL;
    }
    if (*out != NULL && w->type != DTYPE_I8) {
        return err_set(l->err, QUIRE_UNSUPPORTED, -1,
                       "%s: tensor %s: scales beside weights of type %s are not supported",
                       model_file_path(l->file), w->name, dtype_name(w->type));
    }
    if (*out == NULL && w->type == DTYPE_I8) {
        return err_set(l->err, QUIRE_BAD_FILE, -1,
                       "%s: tensor %s: int8 weights need scales, and the layer has neither .weight_scale "
                       "nor .SCB",
                       model_file_path(l->file), w->name);
    }
    return *out != NULL ? skip_rounding(l, name, layer) : QUIRE_OK;
}

quire_err quant_row_scales(loader *l, const tensor_view *w, weight_name name, int32_t layer,
                           const weight_part *part, int64_t n_out, float **out) {
    const tensor_view *t;
    bool is_bnb = false;
    *out = NULL;
    TRY(find_row_scales(l, w, name, layer, &t, &is_bnb));
    if (t == NULL) {
        return QUIRE_OK;
    }
    const int64_t n_slabs = part != NULL && part->n_slabs > 0 ? part->n_slabs : 1,
                  n_rows = part != NULL ? part->n_rows : n_out, slab = n_slabs > 1 ? part->slab : 0;
    int64_t n = 1;
    for (int32_t i = 0; i < t->n_dims; i++) {
        n *= t->dims[i];
    }
    if (n != n_slabs * n_rows && n != n_slabs && n != 1) {
        return err_set(l->err, QUIRE_UNSUPPORTED, -1,
                       "%s: tensor %s: scales of int8 weights must be one for each of the %lld rows, or one",
                       model_file_path(l->file), t->name, (long long)n_rows);
    }
    float *all = mem_new((size_t)n, sizeof *all);
    if (all == NULL || dtype_is_quantised(t->type) ||
        quant_dequantise(t->type, t->data, (size_t)n, all) != QUIRE_OK) {
        mem_free(all);
        return err_set(l->err, all == NULL ? QUIRE_NO_MEMORY : QUIRE_UNSUPPORTED, -1,
                       "%s: tensor %s: no memory, or scales of type %s", model_file_path(l->file), t->name,
                       dtype_name(t->type));
    }
    float *scales = mem_new((size_t)n_out, sizeof *scales);
    for (int64_t r = 0; scales != NULL && r < n_out; r++) {
        const int64_t row = part != NULL ? part->first + r / part->block * part->step + r % part->block : r;
        const float scale = all[n == 1 ? 0 : n == n_slabs * n_rows ? slab * n_rows + row : slab];
        scales[r] = is_bnb ? scale / 127.0f : scale;
    }
    mem_free(all);
    *out = scales;
    return scales != NULL ? QUIRE_OK : err_set(l->err, QUIRE_NO_MEMORY, -1, "out of memory while loading");
}

/* ---- for the methods ---- */

quire_err quant_error(const quant_linear *q, const char *suffix, const char *format, ...) {
    assert(q != NULL);
    char what[256];
    va_list list;
    va_start(list, format);
    (void)vsnprintf(what, sizeof what, format, list);
    va_end(list);
    const tensor_view *t = loader_look(q->l, q->name, q->layer, suffix);
    return err_set(q->l->err, QUIRE_BAD_FILE, -1, "%s: tensor %s: %s", model_file_path(q->l->file),
                   t != NULL ? t->name : q->whole->name, what);
}

void *quant_memory(quant_linear *q, size_t n, size_t size) {
    assert(q != NULL);
    void *p = q->n_memory < QUANT_LINEAR_BLOCKS ? mem_new(n, size) : NULL;
    if (p == NULL) {
        (void)err_set(q->l->err, QUIRE_NO_MEMORY, -1, "%s: tensor %s: out of memory",
                      model_file_path(q->l->file), q->whole->name);
        return NULL;
    }
    q->memory[q->n_memory++] = p;
    return p;
}

quire_err quant_find(quant_linear *q, const char *suffix, tensor_view *out) {
    const tensor_view *t;
    *out = (tensor_view){.data = NULL};
    TRY(loader_find(q->l, q->name, q->layer, suffix, &t));
    if (t == NULL) {
        return QUIRE_OK;
    }
    *out = *t;
    if (q->part == NULL || q->part->n_slabs == 0) {
        return QUIRE_OK;
    }
    if (t->n_dims < 1 || t->dims[0] != q->part->n_slabs) {
        return quant_error(q, suffix, "its first dimension must be the %d experts", (int)q->part->n_slabs);
    }
    out->n_dims--;
    memmove(out->dims, out->dims + 1, (TENSOR_MAX_DIMS - 1) * sizeof out->dims[0]);
    out->dims[TENSOR_MAX_DIMS - 1] = 1;
    out->n_bytes /= (size_t)q->part->n_slabs;
    out->data = (const uint8_t *)t->data + (size_t)q->part->slab * out->n_bytes;
    return QUIRE_OK;
}

/* Checks that t is there, and [rows, columns]: trailing dimensions may be split
 * further. */
static quire_err quant_check_shape(const quant_linear *q, const char *suffix, const tensor_view *t,
                                   int64_t rows, int64_t columns) {
    int64_t inside = 1;
    for (int32_t i = 1; i < t->n_dims; i++) {
        inside *= t->dims[i];
    }
    if (t->data == NULL) {
        return err_set(q->l->err, QUIRE_BAD_FILE, -1,
                       "%s: tensor %s: the layer has no tensor %s: the file is incomplete",
                       model_file_path(q->l->file), q->whole->name, suffix);
    }
    if (t->n_dims < 1 || t->dims[0] != rows || inside != columns) {
        return quant_error(
            q, suffix,
            "its shape is [%lld, %lld]; a layer of %lld inputs and %lld outputs needs [%lld, %lld]",
            (long long)(t->n_dims > 0 ? t->dims[0] : 1), (long long)inside, (long long)q->n_in,
            (long long)q->n_out, (long long)rows, (long long)columns);
    }
    return QUIRE_OK;
}

quire_err quant_need(quant_linear *q, const char *suffix, dtype type, int64_t rows, int64_t columns,
                     tensor_view *out) {
    TRY(quant_find(q, suffix, out));
    TRY(quant_check_shape(q, suffix, out, rows, columns));
    return out->type == type ? QUIRE_OK
                             : quant_error(q, suffix, "its type is %s, must be %s", dtype_name(out->type),
                                           dtype_name(type));
}

/* U8 is E8M0 where it stands for a scale. */
static quire_err quant_read_floats(const quant_linear *q, const char *suffix, const tensor_view *t, size_t n,
                                   float *out) {
    dtype type = t->type == DTYPE_U8 ? DTYPE_F8_E8M0 : t->type;
    bool is_float = type == DTYPE_F32 || type == DTYPE_F16 || type == DTYPE_BF16 || type == DTYPE_F8_E4M3 ||
                    type == DTYPE_F8_E8M0;
    if (!is_float || quant_dequantise(type, t->data, n, out) != QUIRE_OK) {
        return quant_error(q, suffix, "scales cannot be of type %s", dtype_name(t->type));
    }
    return QUIRE_OK;
}

quire_err quant_scales(quant_linear *q, const char *suffix, const tensor_view *t, int64_t rows,
                       int64_t columns, bool down) {
    TRY(quant_check_shape(q, suffix, t, down ? columns : rows, down ? rows : columns));
    size_t n = (size_t)rows * (size_t)columns;
    float *scales = quant_memory(q, n, sizeof *scales),
          *stored = down && scales != NULL ? mem_new(n, sizeof *stored) : scales;
    if (stored == NULL) {
        return scales == NULL ? QUIRE_NO_MEMORY
                              : err_set(q->l->err, QUIRE_NO_MEMORY, -1, "out of memory while loading");
    }
    quire_err e = quant_read_floats(q, suffix, t, n, stored);
    for (size_t i = 0; i < n && down && e == QUIRE_OK; i++) {
        scales[i % (size_t)rows * (size_t)columns + i / (size_t)rows] = stored[i];
    }
    if (down) {
        mem_free(stored);
    }
    q->m.scales = scales;
    q->m.n_groups = (int32_t)columns;
    return e;
}

quire_err quant_factor(quant_linear *q, const char *suffix, float *out) {
    tensor_view t;
    TRY(quant_find(q, suffix, &t));
    int64_t n = 1;
    for (int32_t i = 0; i < t.n_dims; i++) {
        n *= t.dims[i];
    }
    if (t.data == NULL) {
        return QUIRE_OK;
    }
    return n == 1 ? quant_read_floats(q, suffix, &t, 1, out)
                  : quant_error(q, suffix, "it must have one element");
}

int32_t quant_shared_by(int64_t n, int64_t n_scales, int64_t size) {
    bool fits = size > 0 && n_scales > 0 && n / size + (n % size != 0) == n_scales;
    return fits ? (int32_t)(size < n ? size : n) : 0;
}

/* The configuration's size of groups, compressed-tensors' config group i's, that gives
 * n_groups; whole: no group may be shorter. 0: it does not. */
static int32_t said_group(const quant_linear *q, int i, int64_t n_groups, bool whole) {
    char key[QUANT_KEY_BYTES];
    int64_t size = 0;
    (void)model_file_i64(q->l->file,
                         i < 0 ? QUANT_CONFIG ".group_size" : quant_group_key(i, ".weights.group_size", key),
                         &size);
    return size > 0 && whole && q->n_in % size != 0 ? 0 : quant_shared_by(q->n_in, n_groups, size);
}

quire_err quant_groups(quant_linear *q, const char *suffix, int64_t n_groups) {
    int32_t group = 0;
    for (int i = -1; i < 2 * QUANT_GROUPS && group == 0; i++) { /* twice: the last group may be shorter */
        group = said_group(q, i < QUANT_GROUPS ? i : i - QUANT_GROUPS, n_groups, i >= 0 && i < QUANT_GROUPS);
    }
    /* another of the configuration's groups, or a row */
    if (group == 0 && n_groups > 0 && q->n_in % n_groups == 0) {
        group = (int32_t)(q->n_in / n_groups);
    }
    q->m.group = group;
    return group > 0 ? QUIRE_OK
                     : quant_error(q, suffix, "%lld inputs cannot be split into %lld equal groups",
                                   (long long)q->n_in, (long long)n_groups);
}

quire_err quant_group_index(quant_linear *q, const char *suffix) {
    tensor_view t;
    TRY(quant_find(q, suffix, &t));
    if (t.data == NULL) {
        return QUIRE_OK;
    }
    TRY(quant_need(q, suffix, DTYPE_I32, q->n_in, 1, &t));
    int32_t *index = quant_memory(q, (size_t)q->n_in, sizeof *index);
    bool plain = true;
    if (index == NULL) {
        return QUIRE_NO_MEMORY;
    }
    memcpy(index, t.data, (size_t)q->n_in * sizeof *index);
    for (int64_t i = 0; i < q->n_in; i++) {
        if (index[i] < 0 || index[i] >= q->m.n_groups) {
            return quant_error(q, suffix, "input %lld is in group %d; there are %d groups", (long long)i,
                               (int)index[i], (int)q->m.n_groups);
        }
        plain = plain && index[i] == (int32_t)(i / q->m.group);
    }
    q->m.group_of = plain ? NULL : index;
    return QUIRE_OK;
}

/* ---- counts ---- */

bool quant_written_shape(const tensor_view *t, int64_t dims[2]) {
    assert(t != NULL);
    int32_t small[2];
    if (t->type == DTYPE_I64 && t->n_bytes == 2 * sizeof *dims) {
        memcpy(dims, t->data, 2 * sizeof *dims);
        return true;
    }
    if (t->type != DTYPE_I32 || t->n_bytes != sizeof small) {
        return false;
    }
    memcpy(small, t->data, sizeof small);
    dims[0] = small[0];
    dims[1] = small[1];
    return true;
}

/* How many codes of compressed-tensors' words are weights: the tensor beside them says
 * it, for they may fill the last word in part. */
static int64_t n_packed(const model_file *f, const tensor_view *t) {
    char name[LOADER_NAME_BYTES];
    int64_t dims[2];
    (void)snprintf(name, sizeof name, "%.*s_shape", (int)(strlen(t->name) - strlen("_packed")), t->name);
    const tensor_view *shape = model_file_find(f, name);
    bool fits = shape != NULL && t->n_dims == 2 && quant_written_shape(shape, dims) &&
                dims[0] == t->dims[0] && dims[1] > 0 && dims[1] <= t->dims[1] * 32;
    return fits ? dims[0] * dims[1] : (int64_t)t->n_bytes * 2;
}

int64_t quant_n_weights(const model_file *f, const tensor_view *t) {
    static const char *const beside[] = {".qzeros",
                                         ".scales",
                                         ".g_idx",
                                         ".weight_g_idx",
                                         ".weight_zero_point",
                                         ".weight_scale",
                                         ".weight_scale_inv",
                                         ".weight_scale_2",
                                         ".weight_global_scale",
                                         ".input_global_scale",
                                         ".input_scale",
                                         ".input_scale_ub",
                                         ".input_zero_point",
                                         ".SCB",
                                         ".weight_format",
                                         "_scales",
                                         ".weight_shape",
                                         ".absmax",
                                         ".quant_map",
                                         ".nested_absmax",
                                         ".nested_quant_map",
                                         ".k_scale",
                                         ".v_scale",
                                         ".q_scale",
                                         ".kv_scale",
                                         ".output_scale",
                                         "__nf4",
                                         "__fp4"};
    str name = str_of(t->name);
    int64_t n = 1, bits = 4;
    for (int32_t i = 0; i < t->n_dims; i++) {
        n *= t->dims[i];
    }
    if (model_file_format(f) != MODEL_HF) {
        return n;
    }
    for (size_t i = 0; i < sizeof beside / sizeof *beside; i++) {
        if (str_ends(name, beside[i])) {
            return 0;
        }
    }
    if (str_ends(name, ".qweight")) {
        (void)model_file_i64(f, QUANT_CONFIG ".bits", &bits);
        return bits > 0 ? (int64_t)t->n_bytes * 8 / bits : n;
    }
    if (str_ends(name, ".weight_packed")) {
        return n_packed(f, t);
    }
    return t->type == DTYPE_U8 && (str_ends(name, ".weight") || str_ends(name, "_blocks"))
               ? (int64_t)t->n_bytes * 2
               : n;
}
