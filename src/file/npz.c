#include "file/npz.h"

#include <assert.h>
#include <string.h>

#include "base/mem.h"
#include "base/size.h"
#include "core/half.h"
#include "file/map.h"

/* Records of the zip format (PKWARE APPNOTE, 4.3). All numbers are little-endian. */
enum {
    END_SIGNATURE = 0x06054b50,
    ENTRY_SIGNATURE = 0x02014b50,
    LOCAL_SIGNATURE = 0x04034b50,
    END_BYTES = 22,
    ENTRY_BYTES = 46,
    LOCAL_BYTES = 30,
    MOST_COMMENT = 65535,
    MOST_HEADER = 4096 /* most bytes of a .npy header */
};

typedef struct reader {
    const char *file;
    const uint8_t *p;
    size_t n;
    quire_error *err;
} reader;

static uint32_t u16_at(const uint8_t *p) {
    return (uint32_t)p[0] | (uint32_t)p[1] << 8;
}

static uint32_t u32_at(const uint8_t *p) {
    return u16_at(p) | u16_at(p + 2) << 16;
}

static uint64_t u64_at(const uint8_t *p) {
    return (uint64_t)u32_at(p) | (uint64_t)u32_at(p + 4) << 32;
}

/* Returns the n bytes at offset `at`; NULL: the file ends before. */
static const uint8_t *bytes_at(const reader *r, uint64_t at, uint64_t n) {
    return at <= r->n && n <= r->n - at ? r->p + at : NULL;
}

static quire_err no_npz(const reader *r, const char *what) {
    return err_set(r->err, QUIRE_BAD_FILE, -1, "%s: %s; it must be an .npz file such as numpy.savez writes",
                   r->file, what);
}

/* ---- .npy ---- */

/* One member of the zip. */
typedef struct member {
    str name; /* the member's name without ".npy" */
    const uint8_t *p;
    size_t n;
} member;

static quire_err bad_member(const reader *r, const member *m, const char *what) {
    int n = m->name.n > ATTN_ARRAY_NAME ? ATTN_ARRAY_NAME : (int)m->name.n;
    return err_set(r->err, QUIRE_BAD_FILE, -1, "%s: member '%.*s' %s", r->file, n, m->name.p, what);
}

/* Returns the text after 'key': in a header, without leading spaces; empty: no such
 * key. */
static str npz_value_of(str header, const char *key) {
    size_t n = strlen(key);
    for (size_t i = 0; i + n <= header.n; i++) {
        if (memcmp(header.p + i, key, n) == 0) {
            str rest = {header.p + i + n, header.n - i - n};
            while (rest.n > 0 && (*rest.p == ' ' || *rest.p == ':')) {
                rest = (str){rest.p + 1, rest.n - 1};
            }
            return rest;
        }
    }
    return (str){header.p, 0};
}

static bool npz_begins(str text, const char *with) {
    return text.n >= strlen(with) && memcmp(text.p, with, strlen(with)) == 0;
}

/* Reads "(80, 256)" into the dimensions. False: another text, or too many dimensions. */
static bool parse_shape(str text, attn_array *a) {
    size_t i = 1;
    if (!npz_begins(text, "(")) {
        return false;
    }
    for (a->n_dims = 0; i < text.n && text.p[i] != ')';) {
        int64_t v = 0;
        size_t first = i;
        for (; i < text.n && text.p[i] >= '0' && text.p[i] <= '9' && v <= INT32_MAX; i++) {
            v = v * 10 + (text.p[i] - '0');
        }
        if (i == first || v > INT32_MAX || a->n_dims == ATTN_ARRAY_DIMS) {
            return false;
        }
        a->dims[a->n_dims++] = (int32_t)v;
        while (i < text.n && (text.p[i] == ',' || text.p[i] == ' ')) {
            i++;
        }
    }
    if (a->n_dims == 0) {
        a->dims[a->n_dims++] = 1;
    }
    return i < text.n;
}

/* The supported element types: name, size in bytes, whether it is a float. */
static const struct element_type {
    const char *name;
    size_t bytes;
    bool is_float;
} element_types[] = {{"'<i4'", 4, false}, {"'<i8'", 8, false}, {"'<f4'", 4, true},  {"'<f8'", 8, true},
                     {"'<f2'", 2, true},  {"'|b1'", 1, false}, {"'|i1'", 1, false}, {"'|u1'", 1, false},
                     {"'<i2'", 2, false}, {"'<u2'", 2, false}, {"'<u4'", 4, false}};

/* Reads element i of an array of integers. */
static int64_t integer_at(const struct element_type *t, const uint8_t *p, size_t i) {
    bool is_signed = t->name[2] == 'i';
    p += i * t->bytes;
    switch (t->bytes) {
    case 1:
        return is_signed ? (int8_t)*p : *p;
    case 2:
        return is_signed ? (int16_t)u16_at(p) : (int64_t)u16_at(p);
    case 4:
        return is_signed ? (int32_t)u32_at(p) : (int64_t)u32_at(p);
    default:
        return (int64_t)u64_at(p);
    }
}

static float npz_float_at(const struct element_type *t, const uint8_t *p, size_t i) {
    double wide;
    uint64_t bits;
    p += i * t->bytes;
    if (t->bytes == 8) {
        bits = u64_at(p);
        memcpy(&wide, &bits, sizeof wide);
        return (float)wide;
    }
    return t->bytes == 4 ? float_of_bits(u32_at(p)) : f16_to_f32((uint16_t)u16_at(p));
}

/* Converts n elements into a new array *out, owned by the caller. */
static quire_err npz_convert(const reader *r, const member *m, const struct element_type *t,
                             const uint8_t *from, size_t n, void **out) {
    uint32_t *to = mem_new(n > 0 ? n : 1, sizeof *to);
    TRY(mem_check_for(to, "an array", r->err));
    for (size_t i = 0; i < n; i++) {
        float f = t->is_float ? npz_float_at(t, from, i) : 0.0f;
        int64_t v = t->is_float ? 0 : integer_at(t, from, i);
        if (v < INT32_MIN || v > INT32_MAX) {
            mem_free(to);
            return bad_member(r, m, "has an integer that does not fit in 32 bits");
        }
        to[i] = t->is_float ? float_bits(f) : (uint32_t)(int32_t)v;
    }
    *out = to;
    return QUIRE_OK;
}

/* Finds the header's text, and the offset *start of the elements. */
static quire_err find_header(const reader *r, const member *m, str *header, size_t *start) {
    size_t at = m->n >= 8 && m->p[6] == 1 ? 10 : 12;
    if (m->n < at || memcmp(m->p, "\x93NUMPY", 6) != 0 || m->p[6] < 1 || m->p[6] > 3) {
        return bad_member(r, m, "is not a .npy file");
    }
    size_t n = at == 10 ? u16_at(m->p + 8) : u32_at(m->p + 8);
    if (n > MOST_HEADER || n > m->n - at) {
        return bad_member(r, m, "has a header that is cut short or too long");
    }
    *header = (str){(const char *)m->p + at, n};
    *start = at + n;
    return QUIRE_OK;
}

static quire_err read_npy(const reader *r, const member *m, attn_array *a) {
    const struct element_type *t = NULL;
    str header;
    size_t start = 0, n = 1, n_bytes;
    TRY(find_header(r, m, &header, &start));
    str descr = npz_value_of(header, "'descr'");
    for (size_t i = 0; i < sizeof element_types / sizeof *element_types; i++) {
        t = npz_begins(descr, element_types[i].name) ? &element_types[i] : t;
    }
    if (t == NULL) {
        return bad_member(r, m, "has elements that are not little-endian integers, bools or floats");
    }
    if (!npz_begins(npz_value_of(header, "'fortran_order'"), "False")) {
        return bad_member(r, m, "is in Fortran order; numpy.ascontiguousarray changes that");
    }
    if (!parse_shape(npz_value_of(header, "'shape'"), a)) {
        return bad_member(r, m, "has a malformed shape, or one of more than 4 dimensions");
    }
    for (int32_t i = 0; i < a->n_dims; i++) {
        if (!size_mul(n, (size_t)a->dims[i], &n)) {
            return bad_member(r, m, "has too many elements");
        }
    }
    if (!size_mul(n, t->bytes, &n_bytes) || n_bytes != m->n - start) {
        return bad_member(r, m, "has a number of bytes that does not match its shape");
    }
    a->is_float = t->is_float;
    void *data = NULL;
    TRY(npz_convert(r, m, t, m->p + start, n, &data));
    a->data = data;
    return QUIRE_OK;
}

/* ---- the zip ---- */

/* Finds the bytes of the member that an entry of the directory describes. */
static quire_err find_member(const reader *r, const uint8_t *entry, member *m) {
    uint32_t method = u16_at(entry + 10), packed = u32_at(entry + 20), n = u32_at(entry + 24),
             at = u32_at(entry + 42);
    m->name = (str){(const char *)entry + ENTRY_BYTES, u16_at(entry + 28)};
    if (m->name.n > 4 && memcmp(m->name.p + m->name.n - 4, ".npy", 4) == 0) {
        m->name.n -= 4;
    }
    if (m->name.n == 0 || m->name.n > ATTN_ARRAY_NAME || memchr(m->name.p, 0, m->name.n) != NULL) {
        return bad_member(r, m, "has a name that is empty or too long");
    }
    if (method != 0 || packed != n || (u16_at(entry + 8) & 1) != 0) {
        return bad_member(
            r, m, "is compressed or encrypted; write the file with numpy.savez, not savez_compressed");
    }
    const uint8_t *local = bytes_at(r, at, LOCAL_BYTES);
    if (local == NULL || u32_at(local) != LOCAL_SIGNATURE) {
        return bad_member(r, m, "is not where the zip directory says");
    }
    uint64_t data = (uint64_t)at + LOCAL_BYTES + u16_at(local + 26) + u16_at(local + 28);
    m->p = bytes_at(r, data, n);
    m->n = n;
    return m->p != NULL ? QUIRE_OK : bad_member(r, m, "is cut short");
}

/* Finds the record at the end of the zip, which a comment may follow; NULL: none. */
static const uint8_t *npz_find_end(const reader *r) {
    for (size_t back = END_BYTES; back <= r->n && back <= END_BYTES + MOST_COMMENT; back++) {
        const uint8_t *end = r->p + r->n - back;
        if (u32_at(end) == END_SIGNATURE && u16_at(end + 20) == back - END_BYTES) {
            return end;
        }
    }
    return NULL;
}

static quire_err npz_read_members(const reader *r, npz *out) {
    const uint8_t *end = npz_find_end(r);
    if (end == NULL) {
        return no_npz(r, "it has no zip directory");
    }
    uint32_t n = u16_at(end + 10);
    uint64_t at = u32_at(end + 16), n_data = 0;
    if (n > NPZ_MAX_MEMBERS) {
        return err_set(r->err, QUIRE_BAD_FILE, -1, "%s: %u members; at most %d are allowed", r->file,
                       (unsigned)n, NPZ_MAX_MEMBERS);
    }
    out->arrays = mem_new(n > 0 ? n : 1, sizeof *out->arrays);
    TRY(mem_check_for(out->arrays, "arrays", r->err));
    for (uint32_t i = 0; i < n; i++) {
        const uint8_t *entry = bytes_at(r, at, ENTRY_BYTES);
        uint64_t n_entry = entry != NULL ? (uint64_t)ENTRY_BYTES + u16_at(entry + 28) + u16_at(entry + 30) +
                                               u16_at(entry + 32)
                                         : 0;
        if (entry == NULL || u32_at(entry) != ENTRY_SIGNATURE || bytes_at(r, at, n_entry) == NULL) {
            return no_npz(r, "its zip directory is broken");
        }
        member m = {0};
        TRY(find_member(r, entry, &m));
        n_data += m.n;
        if (n_data > r->n) {
            return no_npz(r, "its members overlap");
        }
        attn_array *a = &out->arrays[out->n];
        memcpy(a->name, m.name.p, m.name.n);
        TRY(read_npy(r, &m, a));
        out->n++;
        at += n_entry;
    }
    return QUIRE_OK;
}

quire_err npz_parse(const char *name, const void *bytes, size_t n, npz *out, quire_error *err) {
    const reader r = {name, bytes, n, err};
    *out = (npz){0};
    quire_err e = npz_read_members(&r, out);
    if (e != QUIRE_OK) {
        npz_close(out);
    }
    return e;
}

quire_err npz_open(const char *path, npz *out, quire_error *err) {
    file_map map = {0};
    *out = (npz){0};
    TRY(file_map_open(path, NPZ_MAX_BYTES, &map, err));
    quire_err e = npz_parse(path, map.p, map.n, out, err);
    file_map_close(&map);
    return e;
}

void npz_close(npz *z) {
    assert(z != NULL);
    for (int32_t i = 0; i < z->n; i++) {
        mem_free((void *)(uintptr_t)z->arrays[i].data);
    }
    mem_free(z->arrays);
    *z = (npz){0};
}

const attn_array *npz_find(const npz *z, const char *name) {
    assert(z != NULL);
    for (int32_t i = 0; i < z->n; i++) {
        if (strcmp(z->arrays[i].name, name) == 0) {
            return &z->arrays[i];
        }
    }
    return NULL;
}
