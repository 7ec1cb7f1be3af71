#include "file/tensors.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/mem.h"
#include "base/size.h"
#include "file/json_doc.h"
#include "file/map.h"
#include "file/show.h"

void tensor_dir_deinit(tensor_dir *d) {
    mem_free(d->views);
    mem_free(d->parts);
    mem_free(d->name_at);
    mem_free(d->unread);
    mem_free(d->by_name);
    strbuf_deinit(&d->names);
    *d = (tensor_dir){0};
}

/* Appends prefix, name and a 0 byte to d->names. */
static quire_err tensors_add_name(tensor_dir *d, str name) {
    size_t was = d->names.n;
    quire_err e = d->prefix != NULL ? strbuf_add_str(&d->names, d->prefix) : QUIRE_OK;
    TRY_DONE(e, strbuf_add(&d->names, name.p, name.n));
    TRY_DONE(e, strbuf_add(&d->names, "", 1));
done:
    if (e != QUIRE_OK) {
        d->names.n = was;
    }
    return e;
}

quire_err tensor_dir_add(tensor_dir *d, str name, const tensor_view *view, int32_t part) {
    assert(d != NULL);
    size_t i = (size_t)d->n;
    if (d->n == INT32_MAX) {
        return QUIRE_NO_MEMORY;
    }
    TRY(mem_grow(&d->views, &d->cap_views, i + 1, sizeof *d->views));
    TRY(mem_grow(&d->parts, &d->cap_parts, i + 1, sizeof *d->parts));
    TRY(mem_grow(&d->name_at, &d->cap_name_at, i + 1, sizeof *d->name_at));
    size_t at = d->names.n;
    TRY(tensors_add_name(d, name));
    d->views[i] = *view;
    d->parts[i] = part;
    d->name_at[i] = at;
    d->n++;
    return QUIRE_OK;
}

quire_err tensor_dir_add_unread(tensor_dir *d, str name, const char *why) {
    assert(d != NULL);
    TRY(mem_grow(&d->unread, &d->cap_unread, d->n_unread + 1, sizeof *d->unread));
    size_t at = d->names.n;
    TRY(tensors_add_name(d, name));
    unread_tensor *u = &d->unread[d->n_unread++];
    u->name_at = at;
    snprintf(u->why, sizeof u->why, "%s", why);
    return QUIRE_OK;
}

quire_err tensor_dir_finish(tensor_dir *d, const char *file, quire_error *err) {
    assert(d != NULL);
    d->by_name = mem_new((size_t)d->n, sizeof *d->by_name);
    TRY(err_set(err, mem_check(d->by_name), -1, "%s: no memory for %d tensors", file, (int)d->n));
    for (int32_t i = 0; i < d->n; i++) {
        d->views[i].name = d->names.p + d->name_at[i];
        d->by_name[i] = (name_ref){str_of(d->views[i].name), i};
    }
    int32_t twice = names_sort(d->by_name, d->n);
    if (twice >= 0) {
        return err_set(err, QUIRE_BAD_FILE, -1,
                       "%s: two tensors are named %s: the file is damaged or wrongly converted", file,
                       show_name(str_of(d->views[twice].name)).text);
    }
    return QUIRE_OK;
}

int32_t tensor_dir_find(const tensor_dir *d, str name) {
    return names_find(d->by_name, d->n, name);
}

const char *tensor_dir_why_unread(const tensor_dir *d, str name) {
    assert(d != NULL);
    for (size_t i = 0; i < d->n_unread; i++) {
        if (str_is(name, d->names.p + d->unread[i].name_at)) {
            return d->unread[i].why;
        }
    }
    return NULL;
}

bool tensor_bytes(dtype t, const int64_t *dims, int32_t n_dims, size_t *n_bytes) {
    size_t block = (size_t)dtype_block_elements(t), n = 1;
    for (int32_t i = 0; i < n_dims; i++) {
        if (dims[i] < 1 || !size_mul(n, (size_t)dims[i], &n)) {
            return false;
        }
    }
    if ((n_dims > 0 ? (size_t)dims[n_dims - 1] : 1) % block != 0) {
        return false;
    }
    return size_mul(n / block, (size_t)dtype_block_bytes(t), n_bytes);
}

/* ---- an index of names ---- */

static int names_compare(str a, str b) {
    size_t n = a.n < b.n ? a.n : b.n;
    int order = n > 0 ? memcmp(a.p, b.p, n) : 0;
    if (order != 0) {
        return order;
    }
    return (a.n > b.n) - (a.n < b.n);
}

static int compare_refs(const void *a, const void *b) {
    const name_ref *x = a, *y = b;
    int order = names_compare(x->name, y->name);
    return order != 0 ? order : (x->i > y->i) - (x->i < y->i);
}

int32_t names_sort(name_ref *refs, int32_t n) {
    if (n > 0) {
        qsort(refs, (size_t)n, sizeof *refs, compare_refs);
    }
    for (int32_t i = 1; i < n; i++) {
        if (str_eq(refs[i - 1].name, refs[i].name)) {
            return refs[i].i;
        }
    }
    return -1;
}

int32_t names_find(const name_ref *refs, int32_t n, str name) {
    assert(n >= 0);
    int32_t low = 0, high = n;
    while (low < high) {
        int32_t middle = low + (high - low) / 2;
        int order = names_compare(refs[middle].name, name);
        if (order == 0) {
            return refs[middle].i;
        }
        if (order < 0) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return -1;
}

/* safetensors: reads the tensor directory of one file in memory.
 *
 *   u64 n, n bytes of JSON {"name": {"dtype", "shape", "data_offsets": [begin, end]},
 *   ..., "__metadata__": {}}, data.
 *
 * Tensors that a tensor_view cannot describe (dtype, rank, a zero dimension) are recorded
 * as unread. */

#define MAX_HEADER_BYTES 100000000
#define MAX_RANK         16

typedef struct byte_range {
    uint64_t begin, end; /* offsets in the data */
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

/* Reads a whole number from 0 on; false: another value. */
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

/* Reads the shape into dims[0..*rank), at most MAX_RANK, and the number of elements. */
static quire_err safetensors_read_shape(reader *r, const char *name, json_value *entry, int64_t *dims,
                                        size_t *rank, size_t *n_elements) {
    json_value *shape = json_get(entry, "shape");
    if (!json_is(shape, JSON_KIND_ARRAY) || json_length(shape) > MAX_RANK) {
        return safetensors_bad(r, name, "shape is not an array of dimensions");
    }
    *rank = json_length(shape);
    *n_elements = 1;
    for (size_t i = 0; i < *rank; i++) {
        uint64_t dim;
        if (!safetensors_whole(json_doc_item(shape, i), &dim) ||
            !size_mul(*n_elements, (size_t)dim, n_elements)) {
            return safetensors_bad(r, name, "shape has a dimension that is too large");
        }
        dims[i] = (int64_t)dim;
    }
    return QUIRE_OK;
}

/* Says why a tensor_view cannot describe this tensor; NULL: it can. */
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
    TRY(err_set(r->err, mem_check(r->ranges), -1, "%s: no memory for its tensors", r->file));
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
                       "%s: the header's length is %s bytes, over the limit of %s: this is not a safetensors "
                       "file, or it is damaged",
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
