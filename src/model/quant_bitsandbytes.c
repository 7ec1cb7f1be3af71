/* bitsandbytes' 4-bit forms (NF4 of arXiv:2305.14314, FP4): codes of the whole matrix run
 * on in bytes, the first of two in the high half, with a scale for each block of them,
 * mostly 64. "Double" quantisation stores the scales as bytes into a table, with scales
 * of their own for each 256. What their numbers are stands in a tensor of JSON. */
#include <math.h>
#include <string.h>

#include "file/json_doc.h"
#include "model/quant_method.h"

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

/* The sizes of blocks and the offset of nested scales. */
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
    return quant_error(q, ".weight",
                       "bytes without the quant_state of bitsandbytes' 4-bit forms beside them");
}

/* Scales that are bytes: map[byte] * nested_absmax[i / block] + offset. */
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
    q->m.place = CODES_NIBBLES_HIGH;
    q->m.kind = CODE_TABLE;
    q->m.bits = 4;
    q->m.codes = codes.data;
    q->m.group = (int32_t)s.block;
    q->m.runs_on = true;
    return QUIRE_OK;
}

const quant_method quant_bitsandbytes = {
    .suffix = ".weight", .type = DTYPE_U8, .beside = ".weight.absmax", .read = read_bnb};
