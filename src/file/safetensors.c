/* safetensors: reads the tensor directory of one file in memory.
 *
 *   u64 n, n bytes of JSON {"name": {"dtype", "shape", "data_offsets": [begin, end]},
 *   ..., "__metadata__": {}}, data.
 *
 * Tensors with a dtype, rank or zero dimension that a tensor_view cannot describe are
 * recorded as unread. */
#include <stdlib.h>

#include "base/mem.h"
#include "base/size.h"
#include "file/json_doc.h"
#include "file/map.h"
#include "file/show.h"
#include "file/tensors.h"

#define MAX_HEADER_BYTES 100000000
#define MAX_RANK         16

typedef struct byte_range {
    uint64_t begin, end; /* in the data */
    const char *name;
} byte_range;

typedef struct reader {
    const char *file;
    const uint8_t *data;
    size_t n_data;
    int32_t part;
    tensor_dir *dir;
    byte_range *ranges;
    size_t n_ranges;
    quire_error *err;
} reader;

static quire_err safetensors_bad(const reader *r, const char *name, const char *what) {
    return err_set(r->err, QUIRE_BAD_FILE, -1, "%s: tensor %s: %s; the file is damaged, download it again",
                   r->file, show_name(str_of(name)).text, what);
}

/* True for a whole number from 0 on. */
static bool safetensors_whole(meta_value v, uint64_t *out) {
    if (v.kind != META_INT || v.i < 0) {
        return false;
    }
    *out = (uint64_t)v.i;
    return true;
}

static quire_err safetensors_read_range(reader *r, const char *name, json_value *entry, byte_range *out) {
    json_value *offsets = json_get(entry, "data_offsets");
    if (!json_is(offsets, JSON_KIND_ARRAY) || json_length(offsets) != 2 ||
        !safetensors_whole(json_doc_item(offsets, 0), &out->begin) ||
        !safetensors_whole(json_doc_item(offsets, 1), &out->end) || out->begin > out->end) {
        return safetensors_bad(r, name, "data_offsets is not [begin, end]");
    }
    if (out->end > r->n_data) {
        return err_set(
            r->err, QUIRE_BAD_FILE, -1,
            "%s: tensor %s ends at byte %s of the data, the file has %s: it is cut short; download it again",
            r->file, show_name(str_of(name)).text, show_count(out->end).text, show_count(r->n_data).text);
    }
    out->name = name;
    return QUIRE_OK;
}

/* Reads the shape into dims[0..*rank), up to MAX_RANK, and the number of elements. */
static quire_err safetensors_read_shape(reader *r, const char *name, json_value *entry, int64_t *dims,
                                        size_t *rank, size_t *n_elements) {
    json_value *shape = json_get(entry, "shape");
    if (!json_is(shape, JSON_KIND_ARRAY) || json_length(shape) > MAX_RANK) {
        return safetensors_bad(r, name, "shape is no array of dimensions");
    }
    *rank = json_length(shape);
    *n_elements = 1;
    for (size_t i = 0; i < *rank; i++) {
        uint64_t dim;
        if (!safetensors_whole(json_doc_item(shape, i), &dim) ||
            !size_mul(*n_elements, (size_t)dim, n_elements)) {
            return safetensors_bad(r, name, "shape has a dimension that is absurd");
        }
        dims[i] = (int64_t)dim;
    }
    return QUIRE_OK;
}

/* Why a tensor_view cannot describe this tensor, or NULL. */
static const char *why_unread(bool known, const char *dtype_text, size_t rank, size_t n_elements) {
    if (!known) {
        return dtype_text;
    }
    if (rank > TENSOR_MAX_DIMS) {
        return "more than 4 dimensions";
    }
    return n_elements == 0 ? "no elements" : NULL;
}

static quire_err add_tensor(reader *r, const char *name, json_value *entry) {
    str dtype_text = json_get_str(entry, "dtype");
    if (dtype_text.n == 0 || memchr(dtype_text.p, 0, dtype_text.n) != NULL) {
        return safetensors_bad(r, name, "it has no dtype");
    }
    int64_t dims[MAX_RANK];
    size_t rank = 0, n_elements = 0, n_bytes;
    byte_range range = {0};
    TRY(safetensors_read_range(r, name, entry, &range));
    TRY(safetensors_read_shape(r, name, entry, dims, &rank, &n_elements));
    r->ranges[r->n_ranges++] = range;

    dtype type = DTYPE_F32;
    bool known = dtype_from_name(dtype_text.p, dtype_text.n, &type) && !dtype_is_quantised(type);
    if (known && (!size_mul(n_elements, (size_t)dtype_block_bytes(type), &n_bytes) ||
                  n_bytes != range.end - range.begin)) {
        return safetensors_bad(r, name, "shape and dtype do not give the bytes of data_offsets");
    }
    const char *why = why_unread(known, dtype_text.p, rank, n_elements);
    if (why != NULL) {
        return tensor_dir_add_unread(r->dir, str_of(name), why);
    }
    tensor_view t = {.type = type,
                     .n_dims = (int32_t)rank,
                     .dims = {1, 1, 1, 1},
                     .data = r->data + range.begin,
                     .n_bytes = (size_t)(range.end - range.begin)};
    memcpy(t.dims, dims, rank * sizeof *dims);
    return tensor_dir_add(r->dir, str_of(name), &t, r->part);
}

static int safetensors_compare_ranges(const void *a, const void *b) {
    const byte_range *x = a, *y = b;
    int order = (x->begin > y->begin) - (x->begin < y->begin);
    return order != 0 ? order : (x->end > y->end) - (x->end < y->end);
}

static quire_err check_overlap(reader *r) {
    if (r->n_ranges > 0) {
        qsort(r->ranges, r->n_ranges, sizeof *r->ranges, safetensors_compare_ranges);
    }
    for (size_t i = 1; i < r->n_ranges; i++) {
        if (r->ranges[i].begin < r->ranges[i - 1].end) {
            return safetensors_bad(r, r->ranges[i].name, "its data overlap another tensor's");
        }
    }
    return QUIRE_OK;
}

static quire_err add_tensors(reader *r, json_value *root) {
    r->ranges = mem_new(json_length(root), sizeof *r->ranges);
    if (r->ranges == NULL) {
        return err_set(r->err, QUIRE_NO_MEMORY, -1, "%s: no memory for its tensors", r->file);
    }
    for (json_member m = {0}; json_next(root, &m);) {
        if (strcmp(m.name, "__metadata__") == 0) {
            continue;
        }
        quire_err e =
            m.name[0] == 0 ? safetensors_bad(r, m.name, "the name is empty") : add_tensor(r, m.name, m.value);
        if (e == QUIRE_NO_MEMORY) {
            return err_set(r->err, e, -1, "%s: no memory for its tensors", r->file);
        }
        TRY(e);
    }
    return check_overlap(r);
}

quire_err safetensors_parse(const void *bytes, size_t n, const char *file, int32_t part, tensor_dir *dir,
                            quire_error *err) {
    cursor c = {.file = file, .p = bytes, .n = n, .err = err};
    uint64_t n_header;
    const uint8_t *header;
    json_doc doc = {0};
    TRY(cursor_u64(&c, "the header's length", &n_header));
    if (n_header > MAX_HEADER_BYTES) {
        return err_set(err, QUIRE_BAD_FILE, 0,
                       "%s: the header's length is %s bytes, over the limit of %s: this is no safetensors "
                       "file, or a damaged one",
                       file, show_count(n_header).text, show_count(MAX_HEADER_BYTES).text);
    }
    TRY(cursor_take(&c, n_header, "the header", &header));
    TRY(json_doc_parse(&doc, (str){(const char *)header, (size_t)n_header}, JSON_NAMES_UNIQUE, file, err));
    reader r = {.file = file, .data = c.p + c.at, .n_data = c.n - c.at, .part = part, .dir = dir, .err = err};
    quire_err e = add_tensors(&r, doc.root);
    mem_free(r.ranges);
    json_doc_deinit(&doc);
    return e;
}
