#include "model/loader.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "base/size.h"
#include "core/quant.h"
#include "model/left_out.h"
#include "model/quant_method.h"
#include "model/quantise_load.h"
#include "model/weight_table.h"

quire_err loader_init(loader *l, const model_file *f, const arch_names *names, backend *b,
                      int32_t max_positions, quire_error *err) {
    *l = (loader){.file = f,
                  .b = b,
                  .err = err,
                  .max_positions = max_positions,
                  .names = names,
                  .root = loader_root(f, names)};
    l->is_quantised = quant_is(f);
    l->used = mem_new((size_t)model_file_n_tensors(f) + 1, sizeof *l->used);
    for (int32_t i = 0; i < model_file_n_tensors(f); i++) {
        l->n_all_bytes += (double)model_file_tensor(f, i)->n_bytes;
    }
    return l->used ? QUIRE_OK : err_set(err, QUIRE_NO_MEMORY, -1, "out of memory while loading");
}

void loader_deinit(loader *l) {
    mem_free(l->used);
    mem_free(l->linears);
    *l = (loader){0};
}

/* Finds a weight or bias. Some files store stacked ones without ".weight" and with
 * "_bias". */
static quire_err find_either(loader *l, weight_name name, int32_t layer, bool bias, const tensor_view **out) {
    TRY(loader_find(l, name, layer, bias ? ".bias" : ".weight", out));
    return *out ? QUIRE_OK : loader_find(l, name, layer, bias ? "_bias" : "", out);
}

/* Also tries names without ".weight" (stacked tensors) and parts (packed models). */
bool loader_has(const loader *l, weight_name name, int32_t layer) {
    static const char *const ends[] = {"",
                                       PACKED_SUFFIX,
                                       ".q" PACKED_SUFFIX,
                                       ".gate" PACKED_SUFFIX,
                                       ".0.gate" PACKED_SUFFIX,
                                       ".0.head" PACKED_SUFFIX,
                                       ".0.down" PACKED_SUFFIX,
                                       ".b" PACKED_SUFFIX};
    bool found = false;
    for (size_t i = 0; i < sizeof ends / sizeof *ends && !found; i++) {
        char suffix[32];
        (void)snprintf(suffix, sizeof suffix, ".weight%s", ends[i]);
        found = loader_look(l, name, layer, suffix) != NULL || loader_look(l, name, layer, ends[i]) != NULL;
    }
    return found || quant_linear_is(l, name, layer);
}

quire_err loader_required(const loader *l, const void *found, weight_name name, int32_t layer,
                          const char *suffix) {
    assert(l != NULL);
    char full[LOADER_NAME_BYTES];
    if (found != NULL) {
        return QUIRE_OK;
    }
    loader_full_name(l, name, layer, suffix, full);
    return err_set(l->err, QUIRE_BAD_FILE, -1, "%s: tensor %s is missing: the file is incomplete",
                   model_file_path(l->file), full);
}

/* ---- shapes ---- */

/* Whether t has the dimensions `want`. GGUF files drop leading dimensions of 1: a matrix
 * of one row is a vector. */
static bool fits(const loader *l, const tensor_view *t, int32_t n_dims, const int64_t *want) {
    int32_t left_out =
        model_file_format(l->file) == MODEL_GGUF && t->n_dims < n_dims ? n_dims - t->n_dims : 0;
    bool same = t->n_dims + left_out == n_dims;
    for (int32_t i = 0; i < n_dims && same; i++) {
        same = want[i] == (i < left_out ? 1 : t->dims[i - left_out]);
    }
    return same;
}

quire_err loader_check_shape(const loader *l, const tensor_view *t, int32_t n_dims, int64_t d0, int64_t d1,
                             int64_t d2) {
    const int64_t want[] = {d0, d1, d2};
    if (fits(l, t, n_dims, want)) {
        return QUIRE_OK;
    }
    char has[LOADER_SHAPE_BYTES], wanted[LOADER_SHAPE_BYTES];
    return err_set(l->err, QUIRE_BAD_FILE, -1,
                   "%s: tensor %s has shape %s; the model's configuration requires %s",
                   model_file_path(l->file), t->name, loader_shape(t->dims, t->n_dims, has),
                   loader_shape(want, n_dims, wanted));
}

/* t, which fits [n_out, n_in], with both dimensions. */
static tensor_view as_matrix(const tensor_view *t, int64_t n_out, int64_t n_in) {
    tensor_view m = *t;
    m.n_dims = 2;
    m.dims[0] = n_out;
    m.dims[1] = n_in;
    return m;
}

/* Bytes of n elements of a type, in whole blocks. */
static size_t loader_bytes_of(dtype type, int64_t n) {
    return (size_t)(n / dtype_block_elements(type)) * (size_t)dtype_block_bytes(type);
}

/* ---- parts ---- */

/* The tensor's row that is row r of the part. */
static int64_t part_row(const weight_part *p, int64_t r) {
    return p->first + r / p->block * p->step + r % p->block;
}

/* Copies the part's rows, [n_out, n_in], from one slab of a tensor. */
static void copy_rows(const weight_part *p, const uint8_t *from, dtype type, int64_t n_out, int64_t n_in,
                      uint8_t *to) {
    size_t row = loader_bytes_of(type, n_in), size = (size_t)dtype_block_bytes(type);
    for (int64_t r = 0; r < n_out; r++) {
        int64_t at = part_row(p, r);
        if (!p->transposed) {
            memcpy(to + (size_t)r * row, from + (size_t)at * row, row);
            continue;
        }
        for (int64_t i = 0; i < n_in; i++) {
            memcpy(to + (size_t)r * row + (size_t)i * size,
                   from + ((size_t)i * (size_t)p->n_rows + (size_t)at) * size, size);
        }
    }
}

/* Views the part of t as [n_out, n_in] (n_in 0: a vector [n_out]). *copy: memory that the
 * view needs, freed by the caller; NULL: the view is in the tensor. */
static quire_err take_part(const loader *l, const tensor_view *t, const weight_part *p, int64_t n_out,
                           int64_t n_in, tensor_view *out, void **copy) {
    bool is_vector = n_in == 0;
    int64_t width = is_vector ? 1 : n_in, n_rows = p->n_rows;
    int32_t n_slabs = p->n_slabs > 0 ? 1 : 0;
    *copy = NULL;
    if (is_vector) {
        TRY(loader_check_shape(l, t, 1 + n_slabs, n_slabs ? p->n_slabs : n_rows, n_rows, 1));
    } else {
        int64_t d0 = p->transposed ? n_in : n_rows, d1 = p->transposed ? n_rows : n_in;
        TRY(loader_check_shape(l, t, 2 + n_slabs, n_slabs ? p->n_slabs : d0, n_slabs ? d0 : d1, d1));
    }
    if (p->transposed && !is_vector && dtype_block_elements(t->type) != 1) {
        return err_set(l->err, QUIRE_UNSUPPORTED, -1,
                       "%s: tensor %s is stored transposed, which is not supported for type %s",
                       model_file_path(l->file), t->name, dtype_name(t->type));
    }
    if ((is_vector ? n_rows : width) % dtype_block_elements(t->type) != 0 ||
        (is_vector && dtype_is_quantised(t->type))) {
        return err_set(l->err, QUIRE_UNSUPPORTED, -1,
                       "%s: tensor %s has type %s, which cannot be split into parts",
                       model_file_path(l->file), t->name, dtype_name(t->type));
    }
    const uint8_t *slab =
        (const uint8_t *)t->data + (n_slabs ? (size_t)p->slab * loader_bytes_of(t->type, n_rows * width) : 0);
    *out = *t;
    out->n_dims = is_vector ? 1 : 2;
    out->dims[0] = n_out;
    out->dims[1] = width;
    out->dims[2] = 1;
    out->n_bytes = loader_bytes_of(t->type, n_out * width);
    bool whole = (!p->transposed || is_vector) && p->block >= n_out;
    if (whole) {
        out->data = slab + loader_bytes_of(t->type, p->first * width);
        return QUIRE_OK;
    }
    uint8_t *memory = mem_new(out->n_bytes, 1);
    TRY(err_set(l->err, mem_check(memory), -1, "%s: tensor %s: out of memory", model_file_path(l->file),
                t->name));
    weight_part plain = *p;
    plain.transposed = p->transposed && !is_vector;
    copy_rows(&plain, slab, t->type, n_out, width, memory);
    out->data = *copy = memory;
    out->stays = false;
    return QUIRE_OK;
}

/* ---- products ---- */

/* Records weights under the name and type that a packed model gives them. name: the
 * tensor's, or what it would be unquantised. */
static quire_err note_linear(loader *l, const char *name, const weight_part *p, dtype type,
                             const tensor_view *w, const linear *made) {
    TRY(err_set(l->err, mem_grow(&l->linears, &l->cap_linears, l->n_linears + 1, sizeof *l->linears), -1,
                "out of memory while loading"));
    loaded_linear *note = &l->linears[l->n_linears++];
    *note = (loaded_linear){.type = type, .dims = {w->dims[0], w->dims[1]}, .w = made};
    size_t n = strlen(name), suffix = w->packing != 0 ? strlen(PACKED_SUFFIX) : 0;
    (void)snprintf(note->name, sizeof note->name, "%.*s%s%s", (int)(n - suffix), name,
                   p && !w->packing ? "." : "", p && !w->packing ? p->suffix : "");
    return QUIRE_OK;
}

/* Kind of a linear layer: how it is computed, and whether it may be quantised at load. */
typedef struct linear_kind {
    matrix_use use;
    bool exact;              /* computed in f32 in every mode */
    const tensor_view *bias; /* replaces the file's bias; NULL: the file's */
} linear_kind;

/* w: the weight's tensor, [n_out, n_in] or the one of which p is a part. */
static quire_err load_linear(loader *l, const tensor_view *w, const tensor_view *scale,
                             const tensor_view *bias, const weight_part *p, linear_kind kind, int64_t n_out,
                             int64_t n_in, linear **out) {
    tensor_view weight = *w, bias_view;
    void *copy = NULL, *bias_copy = NULL;
    quantised q = {.memory = NULL};
    quire_err e = QUIRE_OK;
    if (p != NULL && w->packing == 0) {
        e = take_part(l, w, p, n_out, n_in, &weight, &copy);
    } else {
        e = loader_check_shape(l, w, 2, n_out, n_in, 1);
        weight = as_matrix(w, n_out, n_in);
    }
    weight.scale = scale;
    if (e == QUIRE_OK && bias != NULL && bias != kind.bias) {
        loader_use(l, bias)->as_is = true;
        e = p ? take_part(l, bias, p, n_out, 0, &bias_view, &bias_copy)
              : loader_check_shape(l, bias, 1, n_out, 1, 1);
        bias = p ? &bias_view : bias;
    }
    TRY_DONE(e, quantise_matrix(l, kind.use, &weight, &q));
    const bool left_out = l->is_quantised || (l->quantise_to != DTYPE_F32 && q.type == w->type);
    const linear_spec spec = {
        .weight = &weight, .bias = bias, .exact = kind.exact, .rounding = q.rounding, .left_out = left_out};
    TRY_DONE(e, l->b->ops->linear_load(l->b, &spec, out, l->err));
    TRY_DONE(e, note_linear(l, w->name, p, q.type, &weight, *out));
done:
    mem_free(q.memory);
    mem_free(copy);
    mem_free(bias_copy);
    return e;
}

/* Finds a product's weight in packed form; NULL: the file is not packed. */
static quire_err find_packed(loader *l, weight_name name, int32_t layer, const weight_part *p,
                             const tensor_view **out) {
    char suffix[64];
    (void)snprintf(suffix, sizeof suffix, ".weight%s%s" PACKED_SUFFIX, p ? "." : "", p ? p->suffix : "");
    TRY(loader_find(l, name, layer, suffix, out));
    return *out || !p ? QUIRE_OK : loader_find(l, name, layer, suffix + strlen(".weight"), out);
}

/* Loads a weight that several tensors store in quantised form. */
static quire_err load_quantised(loader *l, const quant_linear *q, const tensor_view *bias, linear_kind kind,
                                int64_t n_out, linear **out) {
    char full[LOADER_NAME_BYTES];
    tensor_view weight = {.name = full,
                          .type = DTYPE_F32,
                          .n_dims = 2,
                          .dims = {n_out, q->n_in, 1, 1},
                          .quant = &q->m},
                bias_view;
    void *bias_copy = NULL;
    quire_err e = QUIRE_OK;
    loader_full_name(l, q->name, q->layer, ".weight", full);
    if (bias != NULL && bias != kind.bias) {
        loader_use(l, bias)->as_is = true;
        e = q->part ? take_part(l, bias, q->part, n_out, 0, &bias_view, &bias_copy)
                    : loader_check_shape(l, bias, 1, n_out, 1, 1);
        bias = q->part ? &bias_view : bias;
    }
    e = e ? e
          : l->b->ops->linear_load(
                l->b,
                &(linear_spec){.weight = &weight, .bias = bias, .exact = kind.exact, .rounding = q->rounding},
                out, l->err);
    e = e ? e
          : note_linear(l, full, q->part, q->m.kind == CODE_E4M3 ? DTYPE_F8_E4M3 : DTYPE_F32, &weight, *out);
    mem_free(bias_copy);
    return e;
}

/* Loads a linear layer. or_name: a second name for the weight, or NULL. */
static quire_err find_and_load(loader *l, weight_name name, const weight_name *or_name, int32_t layer,
                               const weight_part *p, linear_kind kind, int64_t n_out, int64_t n_in,
                               linear **out) {
    const tensor_view *w = NULL, *bias;
    tensor_view scale = {.name = "scale", .type = DTYPE_F32, .n_dims = 1, .dims = {n_out, 1, 1, 1}};
    float *scales = NULL;
    quant_linear q;
    bool is_quantised = false;
    for (const weight_name *n = &name; n != NULL && w == NULL && !is_quantised;
         n = n == &name ? or_name : NULL) {
        TRY(find_packed(l, *n, layer, p, &w));
        if (w == NULL) {
            TRY(quant_linear_find(l, *n, layer, p, n_out, n_in, &q, &is_quantised));
        }
        if (w == NULL && !is_quantised) {
            TRY(find_either(l, *n, layer, false, &w));
        }
    }
    quire_err e =
        w != NULL && w->packing == 0 ? quant_row_scales(l, w, name, layer, p, n_out, &scales) : QUIRE_OK;
    TRY_DONE(e, find_either(l, name, layer, true, &bias));
    if (!bias && or_name) {
        TRY_DONE(e, find_either(l, *or_name, layer, true, &bias));
    }
    bias = kind.bias != NULL ? kind.bias : bias;
    scale.data = scales;
    scale.n_bytes = (size_t)n_out * sizeof *scales;
    e = is_quantised ? load_quantised(l, &q, bias, kind, n_out, out)
        : w          ? load_linear(l, w, scales != NULL ? &scale : NULL, bias, p, kind, n_out, n_in, out)
                     : loader_required(l, NULL, name, layer, ".weight");
done:
    if (is_quantised) {
        quant_linear_deinit(&q);
    }
    mem_free(scales);
    return e;
}

/* The same, and adds it to the model's table; a tied head is added under the head's
 * name. */
static quire_err find_linear(loader *l, weight_name name, const weight_name *or_name, int32_t layer,
                             const weight_part *p, linear_kind kind, int64_t n_out, int64_t n_in,
                             linear **out) {
    TRY(find_and_load(l, name, or_name, layer, p, kind, n_out, n_in, out));
    const weight_entry entry = {.w = *out, .n_out = n_out, .n_in = n_in, .exact = kind.exact};
    return loader_note(l, entry, p, or_name != NULL ? *or_name : name, layer);
}

quire_err loader_linear(loader *l, weight_name name, int32_t layer, const weight_part *part, int64_t n_out,
                        int64_t n_in, linear **out) {
    return find_linear(l, name, NULL, layer, part, (linear_kind){.use = MATRIX_PRODUCT}, n_out, n_in, out);
}

/* Transposes n_rows rows of n elements. */
static void turn_floats(const uint8_t *from, size_t size, int64_t n_rows, int64_t n, uint8_t *to) {
    for (int64_t r = 0; r < n_rows; r++) {
        for (int64_t i = 0; i < n; i++) {
            memcpy(to + (size_t)(i * n_rows + r) * size, from + (size_t)(r * n + i) * size, size);
        }
    }
}

/* The rows of a quantised matrix, or of a tensor of blocks or scaled int8, as floats;
 * NULL: out of memory, or a type that cannot be read. */
static float *read_rows(const quant_linear *q, const tensor_view *t, int64_t n_rows, int64_t n) {
    size_t all = 0;
    float *rows = size_mul((size_t)n_rows, (size_t)n, &all) ? mem_new(all, sizeof *rows) : NULL;
    for (int64_t r = 0; rows != NULL && t == NULL && r < n_rows; r++) {
        quant_matrix_read(&q->m, r, 0, n, rows + r * n);
    }
    const bool has_scales = t != NULL && t->type == DTYPE_I8 && t->scale != NULL;
    for (size_t i = 0; rows != NULL && has_scales && i < all; i++) {
        rows[i] = (float)((const int8_t *)t->data)[i] * ((const float *)t->scale->data)[i / (size_t)n];
    }
    if (rows != NULL && t != NULL && !has_scales &&
        quant_dequantise(t->type, t->data, all, rows) != QUIRE_OK) {
        mem_free(rows);
        rows = NULL;
    }
    return rows;
}

/* Loads the transpose of n_in rows of n_out elements: of a tensor or, if t is NULL, of a
 * quantised matrix, which becomes floats. name: of the tensor that has them. */
static quire_err load_turned(loader *l, const quant_linear *q, const tensor_view *t, const char *name,
                             const weight_part *p, int64_t n_out, int64_t n_in, linear **out) {
    const bool is_float = t != NULL && dtype_block_elements(t->type) == 1 && !dtype_is_quantised(t->type) &&
                          t->type != DTYPE_I8;
    float *rows = is_float ? NULL : read_rows(q, t, n_in, n_out);
    tensor_view turned = {
        .name = name, .type = is_float ? t->type : DTYPE_F32, .n_dims = 2, .dims = {n_out, n_in, 1, 1}};
    turned.n_bytes = loader_bytes_of(turned.type, n_out * n_in);
    uint8_t *memory = is_float || rows != NULL ? mem_new(turned.n_bytes, 1) : NULL;
    quantised made = {.memory = NULL};
    if (memory == NULL) {
        mem_free(rows);
        return err_set(l->err, QUIRE_NO_MEMORY, -1, "%s: tensor %s: out of memory, or of a type without rows",
                       model_file_path(l->file), name);
    }
    turn_floats(is_float ? t->data : (const void *)rows, (size_t)dtype_block_bytes(turned.type), n_in, n_out,
                memory);
    turned.data = memory;
    quire_err e = quantise_matrix(l, MATRIX_PRODUCT, &turned, &made);
    const linear_spec spec = {.weight = &turned, .rounding = made.rounding, .left_out = l->is_quantised};
    TRY_DONE(e, l->b->ops->linear_load(l->b, &spec, out, l->err));
    TRY_DONE(e, note_linear(l, name, p, made.type, &turned, *out));
done:
    mem_free(made.memory);
    mem_free(memory);
    mem_free(rows);
    return e;
}

static quire_err find_turned(loader *l, weight_name name, int32_t layer, const weight_part *rows,
                             int64_t n_out, int64_t n_in, linear **out) {
    const tensor_view *w;
    tensor_view part;
    quant_linear q;
    bool is_quantised;
    void *copy = NULL;
    float *scales;
    char full[LOADER_NAME_BYTES];
    TRY(find_packed(l, name, layer, rows, &w));
    if (w != NULL) {
        return load_linear(l, w, NULL, NULL, rows, (linear_kind){.use = MATRIX_PRODUCT}, n_out, n_in, out);
    }
    TRY(quant_linear_find(l, name, layer, rows, n_in, n_out, &q, &is_quantised));
    if (is_quantised) {
        loader_full_name(l, name, layer, ".weight", full);
        const quire_err e = load_turned(l, &q, NULL, full, rows, n_out, n_in, out);
        quant_linear_deinit(&q);
        return e;
    }
    TRY(find_either(l, name, layer, false, &w));
    TRY(loader_required(l, w, name, layer, ".weight"));
    TRY(quant_row_scales(l, w, name, layer, rows, n_in, &scales));
    const tensor_view scale = {.data = scales};
    quire_err e = take_part(l, w, rows, n_in, n_out, &part, &copy);
    part.scale = scales != NULL ? &scale : NULL;
    TRY_DONE(e, load_turned(l, NULL, &part, w->name, rows, n_out, n_in, out));
done:
    mem_free(copy);
    mem_free(scales);
    return e;
}

quire_err loader_turned_linear(loader *l, weight_name name, int32_t layer, const weight_part *rows,
                               int64_t n_out, int64_t n_in, linear **out) {
    TRY(find_turned(l, name, layer, rows, n_out, n_in, out));
    const weight_entry entry = {.w = *out, .n_out = n_out, .n_in = n_in, .turned = true};
    return loader_note(l, entry, rows, name, layer);
}

quire_err loader_biased_linear(loader *l, weight_name name, int32_t layer, const float *bias, int64_t n_out,
                               int64_t n_in, linear **out) {
    tensor_view own = {
        .name = "bias", .type = DTYPE_F32, .n_dims = 1, .dims = {n_out, 1, 1, 1}, .data = bias};
    own.n_bytes = (size_t)n_out * sizeof *bias;
    return find_linear(l, name, NULL, layer, NULL, (linear_kind){.use = MATRIX_PRODUCT, .bias = &own}, n_out,
                       n_in, out);
}

quire_err loader_kept_linear(loader *l, weight_name name, int32_t layer, const weight_part *part,
                             int64_t n_out, int64_t n_in, linear **out) {
    return find_linear(l, name, NULL, layer, part, (linear_kind){.use = MATRIX_KEPT}, n_out, n_in, out);
}

quire_err loader_router(loader *l, weight_name name, int32_t layer, int64_t n_out, int64_t n_in,
                        linear **out) {
    return loader_router_part(l, name, layer, NULL, n_out, n_in, out);
}

quire_err loader_router_part(loader *l, weight_name name, int32_t layer, const weight_part *part,
                             int64_t n_out, int64_t n_in, linear **out) {
    return find_linear(l, name, NULL, layer, part, (linear_kind){.use = MATRIX_KEPT, .exact = true}, n_out,
                       n_in, out);
}

quire_err loader_head(loader *l, weight_name name, const weight_name *or_name, int64_t n_vocab, int64_t width,
                      linear **out) {
    return find_linear(l, name, or_name, NO_LAYER, NULL, (linear_kind){.use = MATRIX_HEAD}, n_vocab, width,
                       out);
}

/* ---- short convolutions ---- */

/* Views channels of a tensor of n_all rows of `width` elements. Dimensions of 1 are
 * ignored: a channel has one input, which GGUF files leave out. */
static quire_err channels_of(const loader *l, const tensor_view *t, conv_channels at, int64_t width,
                             tensor_view *out) {
    tensor_view flat = *t;
    flat.n_dims = 0;
    for (int32_t i = 0; i < t->n_dims; i++) {
        bool counts = t->dims[i] != 1 || (flat.n_dims == 0 && at.n_all == 1);
        flat.dims[flat.n_dims] = t->dims[i];
        flat.n_dims += counts ? 1 : 0;
    }
    TRY(loader_check_shape(l, &flat, width > 1 ? 2 : 1, at.n_all, width, 1));
    if (dtype_block_elements(t->type) != 1) {
        return err_set(l->err, QUIRE_UNSUPPORTED, -1, "%s: tensor %s cannot be of type %s",
                       model_file_path(l->file), t->name, dtype_name(t->type));
    }
    size_t row = loader_bytes_of(t->type, width);
    *out = flat;
    out->dims[0] = at.n;
    out->n_bytes = (size_t)at.n * row;
    out->data = (const uint8_t *)t->data + (size_t)at.first * row;
    return QUIRE_OK;
}

quire_err loader_conv(loader *l, weight_name name, int32_t layer, conv_channels at, int32_t n_taps,
                      conv_taps **out) {
    const tensor_view *w, *bias;
    tensor_view taps, biases;
    TRY(loader_find(l, name, layer, ".weight", &w));
    TRY(loader_required(l, w, name, layer, ".weight"));
    loader_use(l, w)->as_is = true;
    TRY(channels_of(l, w, at, n_taps, &taps));
    TRY(loader_find(l, name, layer, ".bias", &bias));
    if (bias != NULL) {
        loader_use(l, bias)->as_is = true;
        TRY(channels_of(l, bias, at, 1, &biases));
    }
    return l->b->ops->conv_load(l->b, &taps, bias != NULL ? &biases : NULL, out, l->err);
}

/* Appends a tensor's taps to the first *n of at most n_all channels. */
static quire_err add_taps(loader *l, weight_name name, int32_t layer, int32_t n_all, int32_t n_taps,
                          float *to, int32_t *n) {
    const tensor_view *w;
    int64_t n_elements = 1;
    TRY(loader_find(l, name, layer, ".weight", &w));
    TRY(loader_required(l, w, name, layer, ".weight"));
    loader_use(l, w)->as_is = true;
    for (int32_t i = 0; i < w->n_dims; i++) {
        n_elements *= w->dims[i];
    }
    bool fits = w->dims[w->n_dims - 1] == n_taps && n_elements / n_taps <= n_all - *n;
    if (!fits) {
        TRY(loader_check_shape(l, w, 3, n_all - *n, 1, n_taps));
    }
    if (dtype_is_quantised(w->type) || quant_dequantise(w->type, w->data, (size_t)n_elements,
                                                        to + (size_t)*n * (size_t)n_taps) != QUIRE_OK) {
        return err_set(l->err, QUIRE_UNSUPPORTED, -1, "%s: tensor %s cannot be of type %s",
                       model_file_path(l->file), w->name, dtype_name(w->type));
    }
    *n += (int32_t)(n_elements / n_taps);
    return QUIRE_OK;
}

quire_err loader_taps(loader *l, const weight_name *names, int32_t n_names, int32_t layer, int32_t n_all,
                      int32_t n_taps, float **out) {
    int32_t n = 0;
    float *taps = *out = mem_new((size_t)n_all * (size_t)n_taps, sizeof *taps);
    quire_err e =
        taps == NULL ? err_set(l->err, QUIRE_NO_MEMORY, -1, "out of memory while loading") : QUIRE_OK;
    for (int32_t i = 0; i < n_names && e == QUIRE_OK; i++) {
        e = add_taps(l, names[i], layer, n_all, n_taps, taps, &n);
    }
    if (e == QUIRE_OK && n != n_all) {
        e = err_set(l->err, QUIRE_BAD_FILE, -1,
                    "%s: layer %d has convolutions of %d channels; the model's configuration requires %d",
                    model_file_path(l->file), (int)layer, (int)n, (int)n_all);
    }
    if (e != QUIRE_OK) {
        mem_free(taps);
        *out = NULL;
    }
    return e;
}

/* ---- rows, vectors ---- */

/* Finds a table of rows as a matrix. or_name: a second name, or NULL. */
static quire_err find_rows(loader *l, weight_name name, const weight_name *or_name, int64_t n_rows,
                           int64_t width, const tensor_view **whole, tensor_view *out) {
    TRY(loader_find(l, name, NO_LAYER, ".weight", whole));
    if (!*whole && or_name) {
        TRY(loader_find(l, *or_name, NO_LAYER, ".weight", whole));
    }
    TRY(loader_required(l, *whole, name, NO_LAYER, ".weight"));
    TRY(loader_check_shape(l, *whole, 2, n_rows, width, 1));
    *out = as_matrix(*whole, n_rows, width);
    return QUIRE_OK;
}

quire_err loader_rows(loader *l, weight_name name, int64_t n_rows, int64_t width, embedding **out) {
    const tensor_view *w;
    tensor_view rows;
    TRY(find_rows(l, name, NULL, n_rows, width, &w, &rows));
    loader_use(l, w)->as_is = true;
    TRY(l->b->ops->embedding_load(l->b, &rows, out, l->err));
    return loader_note(l, (weight_entry){.rows = *out, .n_out = n_rows, .n_in = width}, NULL, name, NO_LAYER);
}

/* Reads the rows of a table that several tensors store in quantised form. *floats: the
 * rows, freed by the caller; NULL: the file has no such form of it. */
static quire_err read_quantised_rows(loader *l, weight_name name, int64_t n_rows, int64_t width,
                                     const char *full, float **floats, tensor_view *out) {
    quant_linear q;
    bool is_quantised;
    *floats = NULL;
    TRY(quant_linear_find(l, name, NO_LAYER, NULL, n_rows, width, &q, &is_quantised));
    if (!is_quantised) {
        return QUIRE_OK;
    }
    *floats = read_rows(&q, NULL, n_rows, width);
    quant_linear_deinit(&q);
    *out = (tensor_view){
        .name = full, .type = DTYPE_F32, .n_dims = 2, .dims = {n_rows, width, 1, 1}, .data = *floats};
    out->n_bytes = loader_bytes_of(DTYPE_F32, n_rows * width);
    return err_set(l->err, mem_check(*floats), -1, "%s: tensor %s: out of memory", model_file_path(l->file),
                   full);
}

/* Marks the scales of int8 rows as used unchanged, for a packed model. */
static void keep_scales(loader *l, weight_name name) {
    static const char *const suffixes[] = {".weight_scale", ".SCB"};
    for (size_t i = 0; i < sizeof suffixes / sizeof *suffixes; i++) {
        const tensor_view *t = loader_look(l, name, NO_LAYER, suffixes[i]);
        if (t != NULL) {
            loader_use(l, t)->as_is = true;
        }
    }
}

quire_err loader_embedding(loader *l, weight_name name, const weight_name *or_name, int64_t n_vocab,
                           int64_t width, embedding **out) {
    const tensor_view *w = NULL;
    tensor_view rows;
    quantised q = {.memory = NULL};
    float *floats, *scales = NULL;
    char full[LOADER_NAME_BYTES];
    loader_full_name(l, name, NO_LAYER, ".weight", full);
    TRY(read_quantised_rows(l, name, n_vocab, width, full, &floats, &rows));
    if (floats == NULL) {
        TRY(find_rows(l, name, or_name, n_vocab, width, &w, &rows));
        TRY(quantise_matrix(l, MATRIX_TABLE, &rows, &q));
    }
    if (rows.type == DTYPE_I8) {
        TRY(quant_row_scales(l, w, name, NO_LAYER, NULL, n_vocab, &scales));
        keep_scales(l, name);
    }
    const tensor_view scale = {.type = DTYPE_F32, .n_dims = 1, .dims = {n_vocab, 1, 1, 1}, .data = scales};
    rows.scale = scales != NULL ? &scale : NULL;
    quire_err e = l->b->ops->embedding_load(l->b, &rows, out, l->err);
    if (q.memory == NULL && w != NULL) {
        loader_use(l, w)->as_is = true;
    } else if (e == QUIRE_OK) {
        assert(l->n_tables < MAX_LOADED_TABLES);
        loaded_table *made = &l->tables[l->n_tables++];
        *made = (loaded_table){.type = rows.type, .dims = {n_vocab, width}, .e = *out};
        (void)snprintf(made->name, sizeof made->name, "%s", w != NULL ? w->name : full);
    }
    mem_free(q.memory);
    mem_free(floats);
    mem_free(scales);
    TRY(e);
    return loader_note(l, (weight_entry){.rows = *out, .n_out = n_vocab, .n_in = width}, NULL, name,
                       NO_LAYER);
}

quire_err loader_tied_embedding(loader *l, weight_name name, const weight_name *or_name, int64_t n_vocab,
                                int64_t width, const linear *head, embedding **out) {
    assert(l != NULL);
    const tensor_view *table;
    const dtype type = l->linears[l->n_linears - 1].type;
    quire_err e =
        l->b->ops->embedding_of != NULL ? l->b->ops->embedding_of(l->b, head, type, out) : QUIRE_UNSUPPORTED;
    if (e == QUIRE_UNSUPPORTED) {
        return loader_embedding(l, name, or_name, n_vocab, width, out);
    }
    e = e ? err_set(l->err, e, -1, "out of memory while loading")
          : loader_find(l, name, NO_LAYER, ".weight", &table);
    /* marks both as used */
    TRY(e || or_name == NULL ? e : loader_find(l, *or_name, NO_LAYER, ".weight", &table));
    return loader_note(l, (weight_entry){.rows = *out, .n_out = n_vocab, .n_in = width}, NULL, name,
                       NO_LAYER);
}

/* Whether the tensor's n elements are along one dimension and all others are 1. */
static bool is_line(const tensor_view *t, int64_t n) {
    int64_t longest = 1;
    int n_longer = 0;
    for (int32_t i = 0; i < t->n_dims; i++) {
        n_longer += t->dims[i] != 1;
        longest = t->dims[i] != 1 ? t->dims[i] : longest;
    }
    return n_longer <= 1 && longest == n;
}

quire_err loader_read_floats(const loader *l, const tensor_view *t, int64_t n, float **out) {
    float *v = mem_new((size_t)n, sizeof *v);
    TRY(err_set(l->err, mem_check(v), -1, "out of memory while loading"));
    if (dtype_is_quantised(t->type) || quant_dequantise(t->type, t->data, (size_t)n, v) != QUIRE_OK) {
        mem_free(v);
        return err_set(l->err, QUIRE_UNSUPPORTED, -1, "%s: tensor %s cannot be of type %s",
                       model_file_path(l->file), t->name, dtype_name(t->type));
    }
    *out = v;
    return QUIRE_OK;
}

quire_err loader_vector(loader *l, weight_name name, int32_t layer, const char *suffix, int64_t n,
                        float **out) {
    const tensor_view *t;
    *out = NULL;
    TRY(loader_find(l, name, layer, suffix, &t));
    if (!t) {
        return QUIRE_OK;
    }
    loader_use(l, t)->as_is = true;
    tensor_view flat = *t;
    if (is_line(t, n)) {
        flat.n_dims = 1;
        flat.dims[0] = n;
    }
    TRY(loader_check_shape(l, &flat, 1, n, 1, 1));
    return loader_read_floats(l, t, n, out);
}

quire_err loader_first_row(loader *l, weight_name name, int32_t layer, const char *suffix, int64_t n_rows,
                           int64_t n, float **out) {
    const tensor_view *t;
    *out = NULL;
    TRY(loader_find(l, name, layer, suffix, &t));
    if (!t) {
        return QUIRE_OK;
    }
    loader_use(l, t)->as_is = true;
    TRY(loader_check_shape(l, t, 2, n_rows, n, 1));
    return loader_read_floats(l, t, n, out);
}

/* ---- the whole file ---- */

quire_err loader_image(const loader *l, packed_image *image) {
    assert(l != NULL);
    for (size_t i = 0; i < l->n_linears; i++) {
        const loaded_linear *made = &l->linears[i];
        tensor_view packed = {.name = made->name,
                              .type = made->type,
                              .n_dims = 2,
                              .dims = {made->dims[0], made->dims[1], 1, 1}};
        packed.data = l->b->ops->linear_packed(made->w, &packed.n_bytes, &packed.packing);
        TRY(packed_image_add(image, &packed));
    }
    for (int32_t i = 0; i < l->n_tables; i++) {
        const loaded_table *made = &l->tables[i];
        tensor_view rows = {.name = made->name,
                            .type = made->type,
                            .n_dims = 2,
                            .dims = {made->dims[0], made->dims[1], 1, 1}};
        rows.data = l->b->ops->embedding_rows(made->e, &rows.n_bytes);
        TRY(packed_image_add(image, &rows));
    }
    for (int32_t i = 0; i < model_file_n_tensors(l->file); i++) {
        if (!l->used[i].used || l->used[i].as_is) {
            TRY(packed_image_add(image, model_file_tensor(l->file, i)));
        }
    }
    return QUIRE_OK;
}

quire_err loader_finish(const loader *l, const model_desc *d) {
    /* scales of 8-bit keys and values, unused by pages of other types; derived data, and
     * tensors that the description reads */
    static const char *const derived[] = {".k_scale",
                                          ".v_scale",
                                          ".q_scale",
                                          ".kv_scale",
                                          ".output_scale",
                                          ".prob_output_scale",
                                          ".k_zero_point",
                                          ".v_zero_point",
                                          "rotary_emb.inv_freq",
                                          "mlp.act_fn.alpha_p",
                                          "mlp.act_fn.alpha_n",
                                          "mlp.act_fn.beta",
                                          "mlp.act_fn.eps",
                                          "lerope.alpha",
                                          "ple_embedding.layer_multipliers",
                                          "ple_embedding.ngram_heads_offsets",
                                          "ple_embedding.ngram_heads_vocab_sizes",
                                          "rope_freqs.weight",
                                          "rope_factors_long.weight",
                                          "rope_factors_short.weight"};
    for (int32_t i = 0; i < model_file_n_tensors(l->file); i++) {
        const tensor_view *t = model_file_tensor(l->file, i);
        int32_t next_token;
        bool known = l->used[i].used ||
                     tensor_part_of(l->file, d, l->names, l->root, t->name, &next_token) != PART_TEXT;
        for (size_t k = 0; k < sizeof derived / sizeof *derived && !known; k++) {
            known = str_ends(str_of(t->name), derived[k]);
        }
        if (!known) {
            return err_set(l->err, QUIRE_UNSUPPORTED, -1,
                           "%s: tensor %s belongs to no part of this architecture that this build supports",
                           model_file_path(l->file), t->name);
        }
    }
    return QUIRE_OK;
}
