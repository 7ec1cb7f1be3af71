#include "file/gguf.h"

#include <assert.h>

#include "base/mem.h"
#include "base/size.h"
#include "file/map.h"
#include "file/not_a_model.h"
#include "file/show.h"

#define DEFAULT_ALIGNMENT     32
#define MAX_ARRAY_DEPTH       4
#define MAX_KEY_BYTES         65535
#define MAX_TENSOR_NAME_BYTES 255
#define MIN_KEY_BYTES         (8 + 4 + 1)         /* length, type, one byte */
#define MIN_TENSOR_BYTES      (8 + 4 + 8 + 4 + 8) /* length, n_dims, one dim, type, offset */

static const struct {
    const char *name;
    uint8_t bytes; /* size of a value; 0: variable */
} types[N_GGUF_TYPES] = {
    [GGUF_U8] = {"u8", 1},       [GGUF_I8] = {"i8", 1},     [GGUF_U16] = {"u16", 2},
    [GGUF_I16] = {"i16", 2},     [GGUF_U32] = {"u32", 4},   [GGUF_I32] = {"i32", 4},
    [GGUF_F32] = {"f32", 4},     [GGUF_BOOL] = {"bool", 1}, [GGUF_STRING] = {"string", 0},
    [GGUF_ARRAY] = {"array", 0}, [GGUF_U64] = {"u64", 8},   [GGUF_I64] = {"i64", 8},
    [GGUF_F64] = {"f64", 8},
};

const char *gguf_type_name(gguf_type t) {
    return types[t].name;
}

size_t gguf_type_bytes(gguf_type t) {
    return types[t].bytes;
}

/* Names, for messages, ggml's tensor types that this build lacks. */
static const char *foreign_type_name(uint32_t ggml_type) {
    static const struct {
        uint32_t number;
        const char *name;
    } others[] = {{9, "Q8_1"}, {15, "Q8_K"}};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        if (others[i].number == ggml_type) {
            return others[i].name;
        }
    }
    return "unknown";
}

static quire_err gguf_bad(cursor *c, size_t at, str key, const char *what) {
    return err_set(c->err, QUIRE_BAD_FILE, (int64_t)at,
                   "%s: key %s at byte %s: %s; the file is damaged or wrongly converted", c->file,
                   show_name(key).text, show_count(at).text, what);
}

/* ---- values ---- */

static quire_err check_bools(cursor *c, str key, const uint8_t *p, size_t n) {
    for (size_t i = 0; i < n; i++) {
        if (p[i] > 1) {
            return gguf_bad(c, (size_t)(p + i - c->p), key, "a bool is neither 0 nor 1");
        }
    }
    return QUIRE_OK;
}

static quire_err read_strings(cursor *c, str key, gguf_value *v) {
    if (v->n > (c->n - c->at) / sizeof(uint64_t)) {
        return gguf_bad(c, c->at, key, "the array has more strings than the file has room for");
    }
    v->strings = mem_new(v->n, sizeof *v->strings);
    TRY(err_set(c->err, mem_check(v->strings), -1, "%s: no memory for key %s", c->file, show_name(key).text));
    for (size_t i = 0; i < v->n; i++) {
        TRY(cursor_str(c, "a string of an array", &v->strings[i]));
    }
    return QUIRE_OK;
}

static quire_err gguf_read_array(cursor *c, str key, int depth, gguf_value *v);

/* Checks and skips the elements of nested arrays. */
static quire_err skip_arrays(cursor *c, str key, int depth, size_t n) {
    for (size_t i = 0; i < n; i++) {
        gguf_value inner = {0};
        quire_err e = gguf_read_array(c, key, depth + 1, &inner);
        mem_free(inner.strings);
        TRY(e);
    }
    return QUIRE_OK;
}

static quire_err gguf_read_array(cursor *c, str key, int depth, gguf_value *v) {
    uint32_t item_type;
    uint64_t n;
    size_t at = c->at, n_bytes;
    if (depth > MAX_ARRAY_DEPTH) {
        return gguf_bad(c, at, key, "arrays are nested too deep");
    }
    TRY(cursor_u32(c, "an array's type", &item_type));
    TRY(cursor_u64(c, "an array's length", &n));
    if (item_type >= N_GGUF_TYPES) {
        return gguf_bad(c, at, key, "the array's elements have a type that GGUF does not define");
    }
    v->type = GGUF_ARRAY;
    v->item_type = (gguf_type)item_type;
    v->n = (size_t)n;
    v->data = c->p + c->at;
    if (item_type == GGUF_STRING) {
        return read_strings(c, key, v);
    }
    if (item_type == GGUF_ARRAY) {
        return skip_arrays(c, key, depth, v->n);
    }
    if (!size_mul(v->n, types[item_type].bytes, &n_bytes)) {
        return gguf_bad(c, at, key, "the array is impossibly long");
    }
    TRY(cursor_take(c, n_bytes, "an array", &v->data));
    return item_type == GGUF_BOOL ? check_bools(c, key, v->data, v->n) : QUIRE_OK;
}

static quire_err gguf_read_value(cursor *c, str key, gguf_value *v) {
    uint32_t type;
    size_t at = c->at;
    TRY(cursor_u32(c, "a value's type", &type));
    if (type >= N_GGUF_TYPES) {
        return gguf_bad(c, at, key, "its value has a type that GGUF does not define");
    }
    v->type = (gguf_type)type;
    if (type == GGUF_ARRAY) {
        return gguf_read_array(c, key, 1, v);
    }
    if (type == GGUF_STRING) {
        str s;
        TRY(cursor_str(c, "a string", &s));
        v->data = (const uint8_t *)s.p;
        v->n = s.n;
        return QUIRE_OK;
    }
    TRY(cursor_take(c, types[type].bytes, "a value", &v->data));
    return type == GGUF_BOOL ? check_bools(c, key, v->data, 1) : QUIRE_OK;
}

/* ---- keys ---- */

static quire_err read_keys(cursor *c, gguf *g, uint64_t n) {
    if (n > (c->n - c->at) / MIN_KEY_BYTES || n > INT32_MAX) {
        return err_set(c->err, QUIRE_BAD_FILE, 16,
                       "%s: the header claims %s keys, more than the file has room for: it is damaged; "
                       "download it again",
                       c->file, show_count(n).text);
    }
    g->keys = mem_new((size_t)n, sizeof *g->keys);
    g->by_name = mem_new((size_t)n, sizeof *g->by_name);
    if (g->keys == NULL || g->by_name == NULL) {
        return err_set(c->err, QUIRE_NO_MEMORY, -1, "%s: no memory for %s keys", c->file, show_count(n).text);
    }
    for (int32_t i = 0; i < (int32_t)n; i++) {
        gguf_key *k = &g->keys[i];
        size_t at = c->at;
        TRY(cursor_str(c, "a key", &k->name));
        if (k->name.n == 0 || k->name.n > MAX_KEY_BYTES) {
            return gguf_bad(c, at, k->name, "a key must have 1 to 65,535 bytes");
        }
        g->n_keys = i + 1;
        g->by_name[i] = (name_ref){k->name, i};
        TRY(gguf_read_value(c, k->name, &k->value));
    }
    int32_t twice = names_sort(g->by_name, g->n_keys);
    if (twice >= 0) {
        str name = g->keys[twice].name;
        return gguf_bad(c, (size_t)((const uint8_t *)name.p - c->p) - sizeof(uint64_t), name,
                        "the key occurs twice");
    }
    return QUIRE_OK;
}

static quire_err read_alignment(cursor *c, const gguf *g, size_t *out) {
    const gguf_value *v = gguf_find(g, "general.alignment");
    *out = DEFAULT_ALIGNMENT;
    if (v == NULL) {
        return QUIRE_OK;
    }
    uint32_t a = 0;
    if (v->type == GGUF_U32) {
        memcpy(&a, v->data, sizeof a);
    }
    if (a == 0 || (a & (a - 1)) != 0) {
        return gguf_bad(c, (size_t)(v->data - c->p), str_of("general.alignment"),
                        "it must be a u32 and a power of two");
    }
    *out = a;
    return QUIRE_OK;
}

/* ---- tensors ---- */

static quire_err bad_tensor(cursor *c, size_t at, str name, const char *what) {
    return err_set(c->err, QUIRE_BAD_FILE, (int64_t)at,
                   "%s: tensor %s at byte %s: %s; the file is damaged or wrongly converted", c->file,
                   show_name(name).text, show_count(at).text, what);
}

/* Reads one entry of the directory. *offset stays relative to the data. */
static quire_err gguf_read_tensor(cursor *c, str *name, tensor_view *t, uint64_t *offset) {
    size_t at = c->at;
    uint32_t n_dims, type;
    TRY(cursor_str(c, "a tensor's name", name));
    if (name->n == 0 || name->n > MAX_TENSOR_NAME_BYTES || memchr(name->p, 0, name->n) != NULL) {
        return bad_tensor(c, at, *name, "a name must have 1 to 255 bytes, none of them 0");
    }
    TRY(cursor_u32(c, "a tensor's number of dimensions", &n_dims));
    if (n_dims < 1 || n_dims > TENSOR_MAX_DIMS) {
        return bad_tensor(c, at, *name, "a tensor must have 1 to 4 dimensions");
    }
    *t = (tensor_view){.n_dims = (int32_t)n_dims, .dims = {1, 1, 1, 1}};
    for (uint32_t i = 0; i < n_dims; i++) {
        uint64_t dim;
        TRY(cursor_u64(c, "a tensor's dimension", &dim));
        if (dim == 0 || dim > INT64_MAX) {
            return bad_tensor(c, at, *name, "a dimension is zero or too large");
        }
        t->dims[n_dims - 1 - i] = (int64_t)dim;
    }
    TRY(cursor_u32(c, "a tensor's type", &type));
    TRY(cursor_u64(c, "a tensor's offset", offset));
    if (!dtype_from_ggml(type, &t->type)) {
        return err_set(c->err, QUIRE_UNSUPPORTED, (int64_t)at,
                       "%s: tensor %s has type %u (%s), which this build does not read; convert the model to "
                       "another type, such as Q4_K or Q8_0",
                       c->file, show_name(*name).text, (unsigned)type, foreign_type_name(type));
    }
    if (!tensor_bytes(t->type, t->dims, t->n_dims, &t->n_bytes)) {
        return bad_tensor(c, at, *name,
                          "its size is too large, or its rows are not whole blocks of its type");
    }
    return QUIRE_OK;
}

/* Points the view's data at the bytes at start + offset, if they lie inside the file and
 * are aligned. */
static quire_err place_tensor(cursor *c, size_t start, size_t alignment, uint64_t offset, const char *name,
                              tensor_view *t) {
    size_t begin, end;
    if (offset % alignment != 0) {
        return err_set(
            c->err, QUIRE_BAD_FILE, (int64_t)c->at,
            "%s: tensor %s has offset %s, which is not a multiple of the alignment %s; the file is damaged",
            c->file, show_name(str_of(name)).text, show_count(offset).text, show_count(alignment).text);
    }
    if (!size_add(start, (size_t)offset, &begin) || !size_add(begin, t->n_bytes, &end)) {
        return bad_tensor(c, c->at, str_of(name), "its offset is too large");
    }
    if (end > c->n) {
        return err_set(c->err, QUIRE_BAD_FILE, (int64_t)c->n,
                       "%s: tensor %s ends at byte %s, the file has %s: it is cut short; download it again",
                       c->file, show_name(str_of(name)).text, show_count(end).text, show_count(c->n).text);
    }
    t->data = c->p + begin;
    return QUIRE_OK;
}

static quire_err gguf_read_tensors(cursor *c, uint64_t n, size_t alignment, int32_t part, tensor_dir *dir,
                                   uint64_t *offsets) {
    int32_t first = dir->n;
    for (size_t i = 0; i < n; i++) {
        str name = {0};
        tensor_view t;
        TRY(gguf_read_tensor(c, &name, &t, &offsets[i]));
        TRY(err_set(c->err, tensor_dir_add(dir, name, &t, part), -1, "%s: no memory for its %s tensors",
                    c->file, show_count(n).text));
    }
    size_t start = size_align(c->at, alignment);
    for (int32_t i = 0; i < (int32_t)n; i++) {
        tensor_view *t = &dir->views[first + i];
        TRY(place_tensor(c, start, alignment, offsets[i], dir->names.p + dir->name_at[first + i], t));
    }
    return QUIRE_OK;
}

/* ---- the file ---- */

static quire_err gguf_read_header(cursor *c, uint64_t *n_tensors, uint64_t *n_keys) {
    const uint8_t *magic;
    uint32_t version;
    TRY(cursor_take(c, 4, "GGUF's magic number", &magic));
    if (memcmp(magic, "GGUF", 4) != 0) {
        foreign is = foreign_of_content((str){(const char *)magic, c->n});
        return is.what != NULL ? err_set(c->err, QUIRE_BAD_FILE, 0, "%s: %s, not a GGUF file; %s", c->file,
                                         is.what, is.instead)
                               : err_set(c->err, QUIRE_BAD_FILE, 0,
                                         "%s: does not begin with GGUF: this is not a GGUF file", c->file);
    }
    TRY(cursor_u32(c, "the version", &version));
    if (version >> 16 != 0 && (version & 0xffff) == 0) {
        return err_set(c->err, QUIRE_UNSUPPORTED, 4,
                       "%s: a big-endian GGUF file; convert the model again for little-endian machines",
                       c->file);
    }
    if (version != 2 && version != 3) {
        return err_set(c->err, QUIRE_UNSUPPORTED, 4,
                       "%s: GGUF version %u; this build reads 2 and 3: convert the model again", c->file,
                       (unsigned)version);
    }
    TRY(cursor_u64(c, "the number of tensors", n_tensors));
    return cursor_u64(c, "the number of keys", n_keys);
}

quire_err gguf_parse(gguf *g, const void *bytes, size_t n, const char *file, int32_t part, tensor_dir *dir,
                     quire_error *err) {
    cursor c = {.file = file, .p = bytes, .n = n, .err = err};
    uint64_t n_tensors, n_keys;
    size_t alignment;
    TRY(gguf_read_header(&c, &n_tensors, &n_keys));
    TRY(read_keys(&c, g, n_keys));
    TRY(read_alignment(&c, g, &alignment));
    if (dir == NULL) {
        return QUIRE_OK;
    }
    if (n_tensors > (c.n - c.at) / MIN_TENSOR_BYTES || n_tensors > (uint64_t)(INT32_MAX - dir->n)) {
        return err_set(err, QUIRE_BAD_FILE, 8,
                       "%s: the header claims %s tensors, more than the file has room for: it is damaged; "
                       "download it again",
                       file, show_count(n_tensors).text);
    }
    uint64_t *offsets = mem_new((size_t)n_tensors, sizeof *offsets);
    TRY(err_set(err, mem_check(offsets), -1, "%s: no memory for %s tensors", file,
                show_count(n_tensors).text));
    quire_err e = gguf_read_tensors(&c, n_tensors, alignment, part, dir, offsets);
    mem_free(offsets);
    return e;
}

void gguf_deinit(gguf *g) {
    assert(g != NULL);
    for (int32_t i = 0; i < g->n_keys; i++) {
        mem_free(g->keys[i].value.strings);
    }
    mem_free(g->keys);
    mem_free(g->by_name);
    *g = (gguf){0};
}

const gguf_value *gguf_find(const gguf *g, const char *key) {
    int32_t i = names_find(g->by_name, g->n_keys, str_of(key));
    return i < 0 ? NULL : &g->keys[i].value;
}

static meta_value of_int(int64_t i) {
    return (meta_value){.kind = META_INT, .i = i, .f = (double)i};
}

static meta_value gguf_meta_of_float(double f) {
    return (meta_value){.kind = META_FLOAT, .f = f};
}

/* Reads a number or bool at p, which may be unaligned. */
static meta_value scalar_at(gguf_type type, const uint8_t *p) {
    switch (type) {
    case GGUF_BOOL:
        return (meta_value){.kind = META_BOOL, .i = p[0], .f = p[0]};
#define NUMBER(name, number, of)                                                                             \
    case GGUF_##name: {                                                                                      \
        number v;                                                                                            \
        memcpy(&v, p, sizeof v);                                                                             \
        return of;                                                                                           \
    }
        NUMBER(U8, uint8_t, of_int(v))
        NUMBER(I8, int8_t, of_int(v))
        NUMBER(U16, uint16_t, of_int(v))
        NUMBER(I16, int16_t, of_int(v))
        NUMBER(U32, uint32_t, of_int(v))
        NUMBER(I32, int32_t, of_int(v))
        NUMBER(U64, uint64_t, v <= INT64_MAX ? of_int((int64_t)v) : gguf_meta_of_float((double)v))
        NUMBER(I64, int64_t, of_int(v))
        NUMBER(F32, float, gguf_meta_of_float((double)v))
        NUMBER(F64, double, gguf_meta_of_float(v))
#undef NUMBER
    default:
        return (meta_value){.kind = META_OTHER};
    }
}

meta_value gguf_meta(const gguf_value *v) {
    if (v == NULL) {
        return (meta_value){.kind = META_ABSENT};
    }
    if (v->type == GGUF_STRING) {
        return (meta_value){.kind = META_STR, .s = {(const char *)v->data, v->n}};
    }
    if (v->type == GGUF_ARRAY) {
        return (meta_value){.kind = META_ARRAY, .n = v->n, .node = v};
    }
    return scalar_at(v->type, v->data);
}

meta_value gguf_item(const gguf_value *array, size_t i) {
    assert(array != NULL);
    if (array->item_type == GGUF_STRING) {
        return (meta_value){.kind = META_STR, .s = array->strings[i]};
    }
    if (array->item_type == GGUF_ARRAY) {
        return (meta_value){.kind = META_OTHER};
    }
    return scalar_at(array->item_type, array->data + i * gguf_type_bytes(array->item_type));
}
