/* The quantisation methods, and what they share: finding a layer's tensors, checking
 * their shapes, reading scales. */
#include <assert.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "core/quant.h"
#include "file/json_doc.h"
#include "model/quant_method.h"

/* The first method whose tensors are present is used. GPTQ and AWQ have the same tensor
 * names; without a configuration it is GPTQ. */
static const quant_method *const methods[] = {
    &quant_awq,          &quant_gptq,          &quant_int_packed,  &quant_int_groups,     &quant_int_zeros,
    &quant_nvfp4_packed, &quant_mxfp4_packed,  &quant_fp8,         &quant_nvfp4_modelopt, &quant_mxfp4_quark,
    &quant_bitsandbytes, &quant_mxfp4_stacked, &quant_fp8_stacked, &quant_nvfp4_stacked};

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

/* Whether the layer has the tensor that distinguishes this form. */
static bool has_beside(const loader *l, const quant_method *m, weight_name name, int32_t layer) {
    const tensor_view *t = m->beside != NULL ? loader_look(l, name, layer, m->beside) : NULL;
    return m->beside == NULL ||
           (t != NULL && (!m->has_groups || (t->n_dims > 1 && t->dims[t->n_dims - 1] > 1)));
}

/* The method of the layer in the file, and the tensor of its codes. NULL: none. */
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

static int64_t quant_n_elements(const tensor_view *t) {
    int64_t n = 1;
    for (int32_t i = 0; i < t->n_dims; i++) {
        n *= t->dims[i];
    }
    return n;
}

bool quant_linear_is(const loader *l, weight_name name, int32_t layer) {
    const tensor_view *codes;
    return find_method(l, name, layer, &codes) != NULL;
}

/* Marks as used the tensors that describe how the checkpoint rounds activations, and the
 * one that names bitsandbytes' order of codes. */
static quire_err skip_rounding(loader *l, weight_name name, int32_t layer) {
    static const char *const suffixes[] = {".input_scale",      "_input_scale",  ".activation_scale",
                                           "_activation_scale", ".qscale_act",   ".input_scale_ub",
                                           ".input_zero_point", ".weight_format"};
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
    quire_err e =
        fits ? m->read(out)
             : quant_error(out, m->suffix, "a layer with more than %d inputs or outputs is not supported",
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

/* ---- int8 with a scale per row ---- */

/* Finds the tensor of w's scales; NULL: none. */
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
    const int64_t n = quant_n_elements(t);
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
    return err_set(l->err, mem_check(scales), -1, "out of memory while loading");
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
    if (quant_n_elements(t) == 1) { /* it is for all of them */
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

/* Checks that t exists and is [rows, columns]; trailing dimensions may be split
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
                             : quant_error(q, suffix, "its type is %s; it must be %s", dtype_name(out->type),
                                           dtype_name(type));
}

/* Reads scales as floats; U8 is read as E8M0. */
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

void quant_set_codes(quant_linear *q, code_place place, code_kind kind, int32_t bits, const void *codes) {
    assert(q != NULL);
    q->m.place = place;
    q->m.kind = kind;
    q->m.bits = bits;
    q->m.codes = codes;
}

quire_err quant_zeros(quant_linear *q, const quant_words *first, size_t step, int64_t n_groups,
                      int32_t added) {
    int16_t *zeros = quant_memory(q, (size_t)(n_groups * q->n_out), sizeof *zeros);
    uint8_t *codes = quant_memory(q, (size_t)q->n_out, 1);
    if (zeros == NULL || codes == NULL) {
        return QUIRE_NO_MEMORY;
    }
    quant_words group = *first;
    for (int64_t g = 0; g < n_groups; g++, group.words += step) {
        quant_words_read(&group, 0, (size_t)q->n_out, codes);
        for (int64_t o = 0; o < q->n_out; o++) {
            zeros[o * n_groups + g] = (int16_t)(codes[o] + added);
        }
    }
    q->m.zeros = zeros;
    return QUIRE_OK;
}

quire_err quant_factor(quant_linear *q, const char *suffix, float *out) {
    tensor_view t;
    TRY(quant_find(q, suffix, &t));
    if (t.data == NULL) {
        return QUIRE_OK;
    }
    return quant_n_elements(&t) == 1 ? quant_read_floats(q, suffix, &t, 1, out)
                                     : quant_error(q, suffix, "it must have one element");
}

/* How many of n elements share one of n_scales, if each but the last has `size` elements:
 * size, or n if that is less. 0: it does not fit. */
static int32_t quant_shared_by(int64_t n, int64_t n_scales, int64_t size) {
    bool fits = size > 0 && n_scales > 0 && n / size + (n % size != 0) == n_scales;
    return fits ? (int32_t)(size < n ? size : n) : 0;
}

/* The group size in the configuration (i >= 0: in compressed-tensors' config group i), if
 * it gives n_groups; else 0. whole: the last group must not be shorter. */
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
    /* second round: the last group may be shorter */
    for (int i = -1; i < 2 * QUANT_GROUPS && group == 0; i++) {
        group = said_group(q, i < QUANT_GROUPS ? i : i - QUANT_GROUPS, n_groups, i >= 0 && i < QUANT_GROUPS);
    }
    /* equal groups of another size, such as whole rows */
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

/* How many codes in compressed-tensors' words are weights. The tensor beside them says
 * it, since the last word may be partly filled. */
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
                                         "weight_scale",
                                         "_scale_inv",
                                         "weight_scale_2",
                                         ".weight_global_scale",
                                         ".input_global_scale",
                                         "input_scale",
                                         "activation_scale",
                                         ".qscale_weight",
                                         ".qscale_act",
                                         ".input_scale_ub",
                                         ".input_zero_point",
                                         ".SCB",
                                         ".weight_format",
                                         "_scales",
                                         "_proj_scale",
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
    int64_t n = quant_n_elements(t), bits = 4;
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
    return t->type == DTYPE_U8 &&
                   (str_ends(name, ".weight") || str_ends(name, "_blocks") || str_ends(name, "_proj"))
               ? (int64_t)t->n_bytes * 2
               : n;
}

/* FP8: E4M3 weights with a scale for the tensor, a row, a block of 128 x 128
 * (DeepSeek-V3) or 32 inputs of a row (MXFP8). The shape of the scales tells which. */

/* The block size along a dimension in the configuration; compressed-tensors: in the first
 * config group that has one. */
static int64_t scaled_block(const quant_linear *q, int dimension) {
    int64_t sizes[2] = {128, 128};
    size_t n;
    quire_err e = model_file_i64s(q->l->file, QUANT_CONFIG ".weight_block_size", sizes, 2, &n);
    for (int i = 0; i < QUANT_GROUPS && e != QUIRE_OK; i++) {
        char key[QUANT_KEY_BYTES];
        e = model_file_i64s(q->l->file, quant_group_key(i, ".weights.block_structure", key), sizes, 2, &n);
    }
    return e == QUIRE_OK && n == 2 ? sizes[dimension] : 128;
}

/* How many of n elements share one of n_scales. 0: none fits. */
static int64_t shared_by(int64_t n, int64_t n_scales, int64_t block) {
    return n_scales == 1 ? n : n_scales == n ? 1 : quant_shared_by(n, n_scales, block);
}

/* What the tensors of a layer are called. */
typedef struct fp8_names {
    const char *codes, *scales[4], *inputs[4]; /* the first of `scales` that exists is used */
} fp8_names;

static const fp8_names fp8_of_layers = {".weight",
                                        {".weight_scale_inv", ".weight_scale", ".qscale_weight"},
                                        {".input_scale", ".activation_scale", ".qscale_act"}};
static const fp8_names fp8_of_stacks = {
    "", {"_scale_inv", "_weight_scale", "_scale"}, {"_input_scale", "_activation_scale"}};

/* How the checkpoint rounds rows: by the row, by groups as wide as the weights', or by a
 * scale for all rows. is_mx: scales are powers of two. */
static quire_err read_fp8_rounding(quant_linear *q, const fp8_names *names, bool is_mx) {
    str format = {0}; /* DeepSeek V3.1's: powers of two, whatever type its weights' are of */
    (void)model_file_str(q->l->file, QUANT_CONFIG ".scale_fmt", &format);
    q->rounding = (row_rounding){.to = ROUND_E4M3,
                                 .scale = is_mx || str_is(format, "ue8m0") ? ROUND_POWER : ROUND_LARGEST,
                                 .group = q->m.group < q->n_in ? q->m.group : 0};
    for (size_t i = 0; names->inputs[i] != NULL; i++) {
        TRY(quant_factor(q, names->inputs[i], &q->rounding.fixed));
    }
    q->rounding.scale = q->rounding.fixed != 0.0f ? ROUND_FIXED : q->rounding.scale;
    return QUIRE_OK;
}

/* Reads the scales. down: of a stack of [inputs, outputs], where a row may be a scale
 * per output. *is_mx: they are powers of two. */
static quire_err read_fp8_scales(quant_linear *q, const fp8_names *names, bool down, bool *is_mx) {
    const char *suffix = NULL;
    tensor_view scales = {.data = NULL};
    for (size_t i = 0; scales.data == NULL && names->scales[i] != NULL; i++) {
        suffix = names->scales[i];
        TRY(quant_find(q, suffix, &scales));
    }
    if (scales.data == NULL) {
        return quant_error(q, names->codes, "FP8 weights need scales, and the layer has neither %s nor %s",
                           names->scales[0] + 1, names->scales[1] + 1);
    }
    int64_t rows = scales.n_dims > 0 ? scales.dims[0] : 1, columns = 1;
    for (int32_t i = 1; i < scales.n_dims; i++) {
        columns *= scales.dims[i]; /* ModelOpt has [rows, 1, columns, 1] */
    }
    if (down && rows == 1) {
        rows = columns;
        columns = 1;
    }
    if (down && columns > 1) {
        return quant_error(q, suffix,
                           "scales of blocks are not supported for weights stored [inputs, outputs]");
    }
    *is_mx = scales.type == DTYPE_U8 || scales.type == DTYPE_F8_E8M0;
    int64_t a_row = shared_by(q->n_out, rows, scaled_block(q, 0));
    int64_t a_column =
        *is_mx && columns * 32 == q->n_in ? 32 : shared_by(q->n_in, columns, scaled_block(q, 1));
    if (a_row == 0 || a_column == 0) {
        return quant_error(q, suffix,
                           "its shape [%lld, %lld] does not fit weights of shape [%lld, %lld]: scales are "
                           "for the tensor, a row or a block",
                           (long long)rows, (long long)columns, (long long)q->n_out, (long long)q->n_in);
    }
    scales.n_dims = 2;
    scales.dims[0] = rows;
    scales.dims[1] = columns;
    TRY(quant_scales(q, suffix, &scales, rows, columns, false));
    q->m.scale_rows = (int32_t)a_row;
    q->m.group = (int32_t)a_column;
    return QUIRE_OK;
}

static quire_err read_fp8_named(quant_linear *q, const fp8_names *names, bool down) {
    tensor_view codes;
    bool is_mx = false;
    TRY(quant_need(q, names->codes, DTYPE_F8_E4M3, down ? q->n_in : q->n_out, down ? q->n_out : q->n_in,
                   &codes));
    TRY(read_fp8_scales(q, names, down, &is_mx));
    quant_set_codes(q, down ? CODES_BYTES_DOWN : CODES_BYTES, CODE_E4M3, 8, codes.data);
    return quant_rounds_rows(q, "float", 8) ? read_fp8_rounding(q, names, is_mx) : QUIRE_OK;
}

static quire_err read_fp8(quant_linear *q) {
    return read_fp8_named(q, &fp8_of_layers, false);
}

/* Stacks of experts: of Llama 4 by fbgemm_fp8 and ModelOpt, [inputs, outputs] each, and
 * of Mistral 4, [outputs, inputs]. */
static quire_err read_fp8_stacked(quant_linear *q) {
    return read_fp8_named(q, &fp8_of_stacks, q->part != NULL && q->part->transposed);
}

const quant_method quant_fp8 = {.suffix = ".weight", .type = DTYPE_F8_E4M3, .read = read_fp8};
const quant_method quant_fp8_stacked = {.suffix = "", .type = DTYPE_F8_E4M3, .read = read_fp8_stacked};

/* GPTQ (arXiv:2210.17323), as AutoGPTQ and GPTQModel store it: codes packed along the
 * inputs, zero points along the outputs. Format "gptq" stores zero points minus 1,
 * "gptq_v2" unchanged. */

/* Reads the zero points: words [groups][n_out * bits / 32], first output in the lowest
 * bits; some 3-bit ones span two words. */
static quire_err gptq_read_zeros(quant_linear *q, int64_t n_groups) {
    int32_t bits = q->m.bits;
    int64_t words = (q->n_out * bits + 31) / 32;
    str format;
    tensor_view t;
    bool is_v2 = model_file_str(q->l->file, QUANT_CONFIG ".checkpoint_format", &format) == QUIRE_OK &&
                 str_is(format, "gptq_v2");
    TRY(quant_need(q, ".qzeros", DTYPE_I32, n_groups, words, &t));
    return quant_zeros(q, &(quant_words){t.data, 1, (uint32_t)bits, 32}, 4 * (size_t)words, n_groups, !is_v2);
}

static quire_err read_gptq(quant_linear *q) {
    tensor_view scales, codes;
    int64_t words = q->whole->n_dims == 2 ? q->whole->dims[0] : 0, bits = words * 32 / q->n_in;
    if ((bits != 2 && bits != 3 && bits != 4 && bits != 8) || words * 32 != bits * q->n_in) {
        return quant_error(q, ".qweight", "%lld rows of words do not hold 2, 3, 4 or 8 bits for %lld inputs",
                           (long long)words, (long long)q->n_in);
    }
    TRY(quant_need(q, ".qweight", DTYPE_I32, words, q->n_out, &codes));
    quant_set_codes(q, CODES_WORDS_DOWN, CODE_INTEGER, (int32_t)bits, codes.data);
    TRY(quant_find(q, ".scales", &scales));
    int64_t n_groups = scales.n_dims == 2 ? scales.dims[0] : 0;
    TRY(quant_scales(q, ".scales", &scales, q->n_out, n_groups, true));
    TRY(quant_groups(q, ".scales", n_groups));
    TRY(gptq_read_zeros(q, n_groups));
    return quant_group_index(q, ".g_idx");
}

const quant_method quant_gptq = {.suffix = ".qweight", .type = DTYPE_I32, .read = read_gptq};

/* AWQ (arXiv:2306.00978), as AutoAWQ stores it ("gemm"): 4-bit codes and zero points
 * packed along the outputs, in the order of its original kernels. */

static quire_err read_awq(quant_linear *q) {
    tensor_view codes, zeros, scales;
    if (q->n_out % 8 != 0) {
        return quant_error(q, ".qweight", "%lld outputs are not a multiple of 8", (long long)q->n_out);
    }
    TRY(quant_need(q, ".qweight", DTYPE_I32, q->n_in, q->n_out / 8, &codes));
    quant_set_codes(q, CODES_WORDS_AWQ, CODE_INTEGER, 4, codes.data);
    TRY(quant_find(q, ".scales", &scales));
    int64_t n_groups = scales.n_dims == 2 ? scales.dims[0] : 0;
    TRY(quant_scales(q, ".scales", &scales, q->n_out, n_groups, true));
    TRY(quant_groups(q, ".scales", n_groups));
    TRY(quant_need(q, ".qzeros", DTYPE_I32, n_groups, q->n_out / 8, &zeros));
    int16_t *to = quant_memory(q, (size_t)(n_groups * q->n_out), sizeof *to);
    if (to == NULL) {
        return QUIRE_NO_MEMORY;
    }
    quant_matrix packed = q->m; /* a matrix whose inputs are the groups */
    packed.codes = zeros.data;
    for (int64_t o = 0; o < q->n_out; o++) {
        for (int64_t g = 0; g < n_groups; g++) {
            to[o * n_groups + g] = (int16_t)quant_matrix_code(&packed, o, g);
        }
    }
    q->m.zeros = to;
    return QUIRE_OK;
}

const quant_method quant_awq = {.suffix = ".qweight", .type = DTYPE_I32, .only_for = "awq", .read = read_awq};

/* bitsandbytes' 4-bit forms (NF4 of arXiv:2305.14314, FP4): codes of the whole matrix are
 * packed in bytes, the first of two in the high half, with a scale per block, usually of
 * 64. "Double" quantisation stores scales as bytes that index a table, with a second
 * scale per 256. A tensor of JSON has the parameters. */

static quire_err read_map(quant_linear *q, const char *suffix, int64_t n, const float **out) {
    tensor_view t;
    TRY(quant_need(q, suffix, DTYPE_F32, n, 1, &t));
    float *map = quant_memory(q, (size_t)n, sizeof *map);
    if (map == NULL) {
        return QUIRE_NO_MEMORY;
    }
    memcpy(map, t.data, (size_t)n * sizeof *map);
    *out = map;
    return QUIRE_OK;
}

/* Block sizes, and the offset of nested scales. */
typedef struct bnb_state {
    int64_t block, nested_block;
    float offset;
} bnb_state;

static quire_err parse_state(quant_linear *q, const char *suffix, const tensor_view *t, bnb_state *out) {
    json_doc doc = {0};
    TRY(json_doc_parse(&doc, (str){t->data, t->n_bytes}, JSON_NAMES_LAST, t->name, q->l->err));
    meta_value block = json_doc_meta(json_doc_find(&doc, "blocksize")),
               nested = json_doc_meta(json_doc_find(&doc, "nested_blocksize"));
    const json_value *given = json_doc_find(&doc, "nested_offset");
    meta_value offset = json_doc_meta(given);
    bool is_number = offset.kind == META_FLOAT || offset.kind == META_INT;
    out->block = block.kind == META_INT ? block.i : 0;
    out->nested_block = nested.kind == META_INT ? nested.i : 256;
    out->offset = is_number ? (float)offset.f : 0.0f;
    json_doc_deinit(&doc);
    if (out->block <= 0 || out->block > INT32_MAX || out->nested_block <= 0 ||
        out->nested_block > INT32_MAX) {
        return quant_error(q, suffix, "it has no valid blocksize");
    }
    bool fits = given == NULL || (is_number && isfinite(out->offset));
    return fits ? QUIRE_OK : quant_error(q, suffix, "its nested_offset must be a finite number");
}

static quire_err bnb_read_state(quant_linear *q, bnb_state *out) {
    static const char *const suffixes[] = {".weight.quant_state.bitsandbytes__nf4",
                                           ".weight.quant_state.bitsandbytes__fp4"};
    for (size_t i = 0; i < sizeof suffixes / sizeof *suffixes; i++) {
        tensor_view t;
        TRY(quant_find(q, suffixes[i], &t));
        if (t.data != NULL) {
            return parse_state(q, suffixes[i], &t, out);
        }
    }
    return quant_error(q, ".weight", "the quant_state of bitsandbytes' 4-bit formats is missing");
}

/* Reads scales stored as bytes: map[byte] * nested_absmax[i / block] + offset. */
static quire_err read_nested(quant_linear *q, const bnb_state *s, const tensor_view *bytes, int64_t n) {
    tensor_view absmax;
    const float *map;
    const int64_t n_outer = (n + s->nested_block - 1) / s->nested_block;
    TRY(read_map(q, ".weight.nested_quant_map", 256, &map));
    TRY(quant_need(q, ".weight.nested_absmax", DTYPE_F32, n_outer, 1, &absmax));
    float *scales = quant_memory(q, (size_t)n, sizeof *scales),
          *outer = quant_memory(q, (size_t)n_outer, sizeof *outer);
    if (scales == NULL || outer == NULL) {
        return QUIRE_NO_MEMORY;
    }
    memcpy(outer, absmax.data, (size_t)n_outer * sizeof *outer);
    for (int64_t i = 0; i < n; i++) {
        scales[i] = map[((const uint8_t *)bytes->data)[i]] * outer[i / s->nested_block] + s->offset;
    }
    q->m.scales = scales;
    q->nested = (nested_scales){.codes = bytes->data, .table = map, .outer = outer, .offset = s->offset};
    q->m.nested = s->nested_block == NESTED_BLOCK ? &q->nested : NULL;
    return QUIRE_OK;
}

static quire_err read_bnb(quant_linear *q) {
    bnb_state s = {0};
    tensor_view codes, absmax;
    int64_t n_values = q->n_out * q->n_in;
    TRY(quant_need(q, ".weight", DTYPE_U8, (n_values + 1) / 2, 1, &codes));
    TRY(bnb_read_state(q, &s));
    int64_t n_scales = (n_values + s.block - 1) / s.block;
    TRY(read_map(q, ".weight.quant_map", 16, &q->m.table));
    TRY(quant_find(q, ".weight.absmax", &absmax));
    if (absmax.type == DTYPE_U8) {
        TRY(quant_need(q, ".weight.absmax", DTYPE_U8, n_scales, 1, &absmax));
        TRY(read_nested(q, &s, &absmax, n_scales));
    } else {
        TRY(quant_need(q, ".weight.absmax", DTYPE_F32, n_scales, 1, &absmax));
        TRY(quant_scales(q, ".weight.absmax", &absmax, n_scales, 1, false));
    }
    quant_set_codes(q, CODES_NIBBLES_HIGH, CODE_TABLE, 4, codes.data);
    q->m.group = (int32_t)s.block;
    q->m.runs_on = true;
    return QUIRE_OK;
}

const quant_method quant_bitsandbytes = {
    .suffix = ".weight", .type = DTYPE_U8, .beside = ".weight.absmax", .read = read_bnb};
