/* Opens packed models. */
#include <assert.h>
#include <stddef.h>

#include "base/mem.h"
#include "base/size.h"
#include "file/checksum.h"
#include "file/map.h"
#include "file/open_file.h"
#include "file/packed.h"
#include "file/show.h"

#define MIN_ENTRY_BYTES 24
#define MAX_NAME_BYTES  255

bool packed_is(file_map map) {
    return map.n >= strlen(PACKED_MAGIC) && memcmp(map.p, PACKED_MAGIC, strlen(PACKED_MAGIC)) == 0;
}

static quire_err open_packed_bad(const model_file *f, const char *what, quire_error *err) {
    return err_set(err, QUIRE_BAD_FILE, -1, "%s: %s: the file is damaged; pack the model again", f->path,
                   what);
}

static quire_err check_header(const model_file *f, file_map map, packed_header *h, quire_error *err) {
    uint8_t digest[SHA256_BYTES];
    if (map.n < sizeof *h) {
        return err_set(err, QUIRE_BAD_FILE, (int64_t)map.n,
                       "%s: %s bytes are no packed model: it is cut short; pack the model again", f->path,
                       show_count(map.n).text);
    }
    memcpy(h, map.p, sizeof *h);
    if (h->version != PACKED_VERSION) {
        return err_set(
            err, QUIRE_UNSUPPORTED, 8,
            "%s: packed by another version of quire (format %u, this one reads %u): pack the model again",
            f->path, (unsigned)h->version, PACKED_VERSION);
    }
    sha256(h, offsetof(packed_header, header_digest), digest);
    if (memcmp(digest, h->header_digest, sizeof digest) != 0) {
        return open_packed_bad(f, "its first bytes are not those that were written", err);
    }
    if (h->file_bytes != map.n) {
        return err_set(err, QUIRE_BAD_FILE, (int64_t)map.n,
                       "%s: has %s bytes of %s: it is cut short; pack or copy the model again", f->path,
                       show_count(map.n).text, show_count(h->file_bytes).text);
    }
    if (h->format > MODEL_HF || h->compute > COMPUTE_INT8 || h->packing == 0 || h->directory_at > map.n ||
        h->directory_bytes > map.n - h->directory_at) {
        return open_packed_bad(f, "its header contradicts itself", err);
    }
    sha256((const uint8_t *)map.p + h->directory_at, (size_t)h->directory_bytes, digest);
    return memcmp(digest, h->directory_digest, sizeof digest) == 0
               ? QUIRE_OK
               : open_packed_bad(f, "its directory is not what was written", err);
}

/* Reads the location of a section or tensor: *data and *n, inside the file. */
static quire_err read_place(cursor *c, const model_file *f, file_map map, const char **data, size_t *n) {
    uint64_t at, bytes;
    TRY(cursor_u64(c, "an offset", &at));
    TRY(cursor_u64(c, "a size", &bytes));
    if (at % PACKED_ALIGN != 0 || at > map.n || bytes > map.n - at) {
        return open_packed_bad(f, "a part of it is outside", c->err);
    }
    *data = (const char *)map.p + at;
    *n = (size_t)bytes;
    return QUIRE_OK;
}

/* Reads a count of entries and checks that the rest of the directory has room for
 * them. */
static quire_err open_packed_read_count(cursor *c, const model_file *f, uint32_t *n) {
    TRY(cursor_u32(c, "a count", n));
    return *n <= (c->n - c->at) / MIN_ENTRY_BYTES
               ? QUIRE_OK
               : open_packed_bad(f, "its directory counts more than it lists", c->err);
}

static quire_err read_sections(cursor *c, model_file *f, file_map map) {
    uint32_t n;
    TRY(open_packed_read_count(c, f, &n));
    f->sections = mem_new(n, sizeof *f->sections);
    if (f->sections == NULL) {
        return err_set(c->err, QUIRE_NO_MEMORY, -1, "%s: no memory for its directory", f->path);
    }
    for (uint32_t i = 0; i < n; i++) {
        file_section *s = &f->sections[i];
        TRY(cursor_str(c, "a section's name", &s->name));
        TRY(read_place(c, f, map, &s->data.p, &s->data.n));
        f->n_sections++;
    }
    return QUIRE_OK;
}

static bool open_packed_type_of(str name, dtype *out) {
    for (int t = 0; t < N_DTYPES; t++) {
        if (str_is(name, dtype_name((dtype)t))) {
            *out = (dtype)t;
            return true;
        }
    }
    return false;
}

static quire_err open_packed_read_tensor(cursor *c, model_file *f, file_map map, uint32_t packing) {
    str name, type;
    const char *data;
    uint32_t is_packed, n_dims;
    size_t n_bytes, n_suffix = strlen(PACKED_SUFFIX);
    tensor_view t = {.dims = {1, 1, 1, 1}, .stays = true};
    TRY(cursor_str(c, "a tensor's name", &name));
    TRY(cursor_str(c, "a tensor's type", &type));
    TRY(cursor_u32(c, "a tensor's form", &is_packed));
    TRY(cursor_u32(c, "a tensor's number of dimensions", &n_dims));
    bool has_suffix = name.n > n_suffix && memcmp(name.p + name.n - n_suffix, PACKED_SUFFIX, n_suffix) == 0;
    if (name.n == 0 || name.n > MAX_NAME_BYTES || memchr(name.p, 0, name.n) != NULL ||
        !open_packed_type_of(type, &t.type) || n_dims > TENSOR_MAX_DIMS || is_packed != has_suffix) {
        return open_packed_bad(f, "its directory describes a tensor that cannot be", c->err);
    }
    t.n_dims = (int32_t)n_dims;
    for (uint32_t i = 0; i < n_dims; i++) {
        uint64_t dim;
        TRY(cursor_u64(c, "a tensor's dimension", &dim));
        t.dims[i] = dim <= INT64_MAX ? (int64_t)dim : 0;
    }
    TRY(read_place(c, f, map, &data, &t.n_bytes));
    if (!tensor_bytes(t.type, t.dims, t.n_dims, &n_bytes) || (is_packed == 0 && n_bytes != t.n_bytes)) {
        return open_packed_bad(f, "a tensor's size is not that of its shape", c->err);
    }
    t.data = data;
    t.packing = is_packed != 0 ? packing : 0;
    quire_err e = tensor_dir_add(&f->tensors, name, &t, 0);
    return e == QUIRE_OK ? e : err_set(c->err, e, -1, "%s: no memory for its tensors", f->path);
}

static quire_err open_packed_read_tensors(cursor *c, model_file *f, file_map map, uint32_t packing) {
    uint32_t n;
    TRY(open_packed_read_count(c, f, &n));
    for (uint32_t i = 0; i < n; i++) {
        TRY(open_packed_read_tensor(c, f, map, packing));
    }
    return tensor_dir_finish(&f->tensors, f->path, c->err);
}

str packed_section(const model_file *f, const char *name) {
    assert(f != NULL);
    for (size_t i = 0; i < f->n_sections; i++) {
        if (str_is(f->sections[i].name, name)) {
            return f->sections[i].data;
        }
    }
    return (str){0};
}

static quire_err read_gguf(model_file *f, quire_error *err) {
    str section = packed_section(f, PACKED_GGUF);
    TRY(gguf_parse(&f->gguf, section.p, section.n, f->path, 0, NULL, err));
    return gguf_read_vocab(f, err);
}

quire_err packed_open(model_file *f, file_map map, quire_error *err) {
    packed_header h;
    TRY(check_header(f, map, &h, err));
    cursor c = {.file = f->path,
                .p = (const uint8_t *)map.p + h.directory_at,
                .n = (size_t)h.directory_bytes,
                .err = err};
    f->format = (model_format)h.format;
    f->is_packed = true;
    f->whole = map;
    f->compute = (compute_mode)h.compute;
    TRY(read_sections(&c, f, map));
    TRY(open_packed_read_tensors(&c, f, map, h.packing));
    return f->format == MODEL_GGUF ? read_gguf(f, err) : hf_read_texts(f, err);
}

/* Checks the data of packed models, block by block. */

static uint64_t packed_check_word_at(str section, size_t i) {
    uint64_t word;
    memcpy(&word, section.p + i * sizeof word, sizeof word);
    return word;
}

int32_t packed_n_blocks(const model_file *f) {
    str s = packed_section(f, PACKED_CHECKSUMS);
    if (s.n < 3 * sizeof(uint64_t) || s.n % sizeof(uint64_t) != 0 || s.n / sizeof(uint64_t) > INT32_MAX) {
        return 0;
    }
    uint64_t n = s.n / sizeof(uint64_t) - 2, end = packed_check_word_at(s, 0),
             at = (uint64_t)(s.p - (const char *)f->whole.p);
    bool fits =
        end > PACKED_ALIGN && end <= at && n == (end - PACKED_ALIGN + PACKED_BLOCK - 1) / PACKED_BLOCK;
    return fits && checksum(s.p, s.n - sizeof(uint64_t)) == packed_check_word_at(s, (size_t)n + 1)
               ? (int32_t)n
               : 0;
}

bool packed_block_is_whole(const model_file *f, int32_t block) {
    str s = packed_section(f, PACKED_CHECKSUMS);
    uint64_t from = PACKED_ALIGN + (uint64_t)block * PACKED_BLOCK, end = packed_check_word_at(s, 0);
    size_t n = (size_t)(end - from < PACKED_BLOCK ? end - from : PACKED_BLOCK);
    return checksum((const uint8_t *)f->whole.p + from, n) == packed_check_word_at(s, (size_t)block + 1);
}
