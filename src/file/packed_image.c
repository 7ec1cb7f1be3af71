#include "file/packed_image.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdio.h>
#include <unistd.h>

#include "base/mem.h"
#include "file/map.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "base/mem.h"
#include "file/open_file.h"
#include "file/vocab_files.h"

/* Bytes and their place in the file. The gaps between pieces are zeros. */
typedef struct piece {
    uint64_t at;
    const void *p;
    uint64_t n;
    bool is_owned;
} piece;

struct packed_image {
    piece *pieces; /* pieces in the order of their places; the first is the header */
    size_t n_pieces, cap_pieces;
    uint64_t at; /* end of the last piece */
    packed_header header;
    strbuf sections, tensors; /* the two halves of the directory */
    uint32_t n_sections, n_tensors;
    /* layout of the file: `end`, the checksums of n_blocks blocks, and the checksum of
     * these */
    uint64_t *checksums;
    int32_t n_blocks;
};

/* ---- the directory's entries ---- */

static quire_err packed_image_put_u32(strbuf *b, uint32_t v) {
    return strbuf_add(b, &v, sizeof v);
}

static quire_err packed_image_put_u64(strbuf *b, uint64_t v) {
    return strbuf_add(b, &v, sizeof v);
}

static quire_err put_str(strbuf *b, str s) {
    TRY(packed_image_put_u64(b, s.n));
    return strbuf_add(b, s.p, s.n);
}

static quire_err packed_image_put_tensor(strbuf *b, const tensor_view *t, uint64_t at) {
    const char *suffix = t->packing != 0 ? PACKED_SUFFIX : "";
    TRY(packed_image_put_u64(b, strlen(t->name) + strlen(suffix)));
    TRY(strbuf_add_str(b, t->name));
    TRY(strbuf_add_str(b, suffix));
    TRY(put_str(b, str_of(dtype_name(t->type))));
    TRY(packed_image_put_u32(b, t->packing != 0));
    TRY(packed_image_put_u32(b, (uint32_t)t->n_dims));
    for (int32_t i = 0; i < t->n_dims; i++) {
        TRY(packed_image_put_u64(b, (uint64_t)t->dims[i]));
    }
    TRY(packed_image_put_u64(b, at));
    return packed_image_put_u64(b, t->n_bytes);
}

/* ---- pieces ---- */

/* Adds a piece at the next multiple of PACKED_ALIGN. */
static quire_err packed_image_add_piece(packed_image *i, const void *p, size_t n, bool is_owned) {
    TRY(mem_grow(&i->pieces, &i->cap_pieces, i->n_pieces + 1, sizeof *i->pieces));
    piece *last = &i->pieces[i->n_pieces++];
    *last = (piece){.at = i->at + (-i->at & (PACKED_ALIGN - 1)), .p = p, .n = n, .is_owned = is_owned};
    i->at = last->at + n;
    return QUIRE_OK;
}

quire_err packed_image_add(packed_image *i, const tensor_view *view) {
    assert(view != NULL);
    TRY(packed_image_add_piece(i, view->data, view->n_bytes, false));
    i->header.packing = view->packing != 0 ? view->packing : i->header.packing;
    i->n_tensors++;
    return packed_image_put_tensor(&i->tensors, view, i->pieces[i->n_pieces - 1].at);
}

static quire_err add_section(packed_image *i, const char *name, str data) {
    if (data.p == NULL) {
        return QUIRE_OK; /* the source has no such file */
    }
    char *copy = mem_dup(data.p, data.n);
    quire_err e = copy != NULL ? packed_image_add_piece(i, copy, data.n, true) : QUIRE_NO_MEMORY;
    if (e != QUIRE_OK) {
        mem_free(copy);
        return e;
    }
    i->n_sections++;
    TRY(put_str(&i->sections, str_of(name)));
    TRY(packed_image_put_u64(&i->sections, i->pieces[i->n_pieces - 1].at));
    return packed_image_put_u64(&i->sections, data.n);
}

/* ---- metadata ---- */

static quire_err put_items(strbuf *b, const gguf_value *v) {
    TRY(packed_image_put_u32(b, v->item_type));
    TRY(packed_image_put_u64(b, v->n));
    for (size_t i = 0; v->item_type == GGUF_STRING && i < v->n; i++) {
        TRY(put_str(b, v->strings[i]));
    }
    return strbuf_add(b, v->data, v->n * gguf_type_bytes(v->item_type));
}

static quire_err packed_image_put_key(strbuf *b, const gguf_key *k) {
    const gguf_value *v = &k->value;
    TRY(put_str(b, k->name));
    TRY(packed_image_put_u32(b, v->type));
    if (v->type == GGUF_ARRAY) {
        return put_items(b, v);
    }
    return v->type == GGUF_STRING ? put_str(b, (str){(const char *)v->data, v->n})
                                  : strbuf_add(b, v->data, gguf_type_bytes(v->type));
}

/* Whether a key is left out: a list that the tables replace, or an array of arrays, which
 * nothing reads. */
static bool packed_image_is_left_out(const gguf_key *k, bool has_tables) {
    static const char *const lists[] = {"tokenizer.ggml.tokens", "tokenizer.ggml.scores",
                                        "tokenizer.ggml.merges"};
    bool listed = false;
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) {
        listed |= str_is(k->name, lists[i]);
    }
    return (listed && has_tables) || (k->value.type == GGUF_ARRAY && k->value.item_type == GGUF_ARRAY);
}

static quire_err put_gguf(strbuf *b, const gguf *g, bool has_tables) {
    const gguf_value *tokens = gguf_find(g, "tokenizer.ggml.tokens");
    uint64_t n = has_tables;
    for (int32_t i = 0; i < g->n_keys; i++) {
        n += !packed_image_is_left_out(&g->keys[i], has_tables);
    }
    TRY(strbuf_add(b, "GGUF", 4));
    TRY(packed_image_put_u32(b, 3));
    TRY(packed_image_put_u64(b, 0));
    TRY(packed_image_put_u64(b, n));
    for (int32_t i = 0; i < g->n_keys; i++) {
        if (!packed_image_is_left_out(&g->keys[i], has_tables)) {
            TRY(packed_image_put_key(b, &g->keys[i]));
        }
    }
    if (has_tables) {
        TRY(put_str(b, str_of(PACKED_N_TOKENS)));
        TRY(packed_image_put_u32(b, GGUF_U32));
        TRY(packed_image_put_u32(b, tokens != NULL ? (uint32_t)tokens->n : 0));
    }
    return QUIRE_OK;
}

static quire_err packed_image_add_gguf(packed_image *i, const gguf *g, bool has_tables) {
    strbuf b = {0};
    quire_err e = put_gguf(&b, g, has_tables);
    TRY_DONE(e, add_section(i, PACKED_GGUF, (str){b.p, b.n}));
done:
    strbuf_deinit(&b);
    return e;
}

static quire_err packed_image_add_templates(packed_image *i, const model_file *f) {
    for (size_t k = 0; k < f->n_templates; k++) {
        char name[sizeof TEMPLATES_DIRECTORY + MAX_TEMPLATE_NAME + sizeof ".jinja"];
        (void)snprintf(name, sizeof name, TEMPLATES_DIRECTORY "/%s.jinja", f->templates[k].name);
        TRY(add_section(i, name, f->templates[k].text));
    }
    return QUIRE_OK;
}

static quire_err add_modules(packed_image *i, const model_file *f) {
    TRY(add_section(i, "modules.json", f->modules_text));
    for (int32_t k = 0; k < f->n_modules; k++) {
        const file_module *m = &f->modules[k];
        char name[sizeof m->path + 16];
        (void)snprintf(name, sizeof name, "%s/config.json", m->path);
        TRY(add_section(i, name, m->config_text));
    }
    return QUIRE_OK;
}

quire_err packed_image_metadata(packed_image *i, const model_file *f, str tables, str json) {
    assert(i != NULL && f != NULL);
    const vocab *v = &f->vocab;
    i->header.format = f->format;
    TRY(add_section(i, PACKED_TABLES, tables.n > 0 ? tables : (str){0}));
    TRY(add_section(i, PACKED_OVERRIDES, model_file_overrides(f)));
    if (f->format == MODEL_GGUF) {
        return packed_image_add_gguf(i, &f->gguf, tables.n > 0);
    }
    TRY(add_section(i, "config.json", f->config_text));
    TRY(add_section(i, "generation_config.json", f->generation_text));
    TRY(add_section(i, "tokenizer_config.json", v->tokenizer_config_json));
    TRY(add_section(i, "special_tokens_map.json", v->special_tokens_map_json));
    TRY(add_section(i, "tokenizer.json", tables.n > 0 ? json : v->tokenizer_json));
    TRY(add_section(i, VOCAB_MODEL_SECTION, v->model_bytes));
    TRY(add_section(i, "chat_template.jinja", f->template_text));
    TRY(add_section(i, "chat_template.json", f->template_json_text));
    TRY(packed_image_add_templates(i, f));
    return add_modules(i, f);
}

quire_err packed_image_key(packed_image *i, const char *key, const char *source) {
    TRY(add_section(i, PACKED_SOURCE, str_of(source)));
    return add_section(i, PACKED_KEY, str_of(key));
}

/* ---- the file's bytes ---- */

/* Takes the next n bytes. False ends the reading. */
typedef bool (*take_bytes)(void *context, const void *p, size_t n);

/* Index of the first piece that ends after `at`. */
static size_t packed_image_find_piece(const packed_image *i, uint64_t at) {
    size_t low = 0, high = i->n_pieces;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (i->pieces[middle].at + i->pieces[middle].n > at) {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    return low;
}

/* Passes the bytes [from, to) to `take`, in order. False: it refused them. */
static bool packed_image_read_bytes(const packed_image *i, uint64_t from, uint64_t to, take_bytes take,
                                    void *context) {
    static const uint8_t zeros[PACKED_ALIGN];
    for (size_t k = packed_image_find_piece(i, from); from < to;) {
        const piece *p = k < i->n_pieces ? &i->pieces[k] : NULL;
        uint64_t begin = p != NULL ? p->at : to, end = p != NULL ? p->at + p->n : to;
        const void *bytes = zeros;
        uint64_t n;
        if (from < begin) {
            n = (begin < to ? begin : to) - from;
            n = n < sizeof zeros ? n : sizeof zeros;
        } else {
            bytes = (const uint8_t *)p->p + (from - begin);
            n = (end < to ? end : to) - from;
            k += from + n == end;
        }
        if (!take(context, bytes, (size_t)n)) {
            return false;
        }
        from += n;
    }
    return true;
}

static bool take_hash(void *context, const void *p, size_t n) {
    return XXH3_64bits_update(context, p, n) == XXH_OK;
}

static bool take_write(void *context, const void *p, size_t n) {
    const int *fd = context;
    for (size_t done = 0; done < n;) {
        ssize_t now = write(*fd, (const uint8_t *)p + done, n - done);
        if (now < 0 && errno != EINTR) {
            return false;
        }
        done += now > 0 ? (size_t)now : 0;
    }
    return true;
}

quire_err packed_image_write(const packed_image *i, int fd, uint64_t from, uint64_t n) {
    return packed_image_read_bytes(i, from, from + n, take_write, &fd) ? QUIRE_OK : QUIRE_IO;
}

uint64_t packed_image_data_bytes(const packed_image *i) {
    return i->at;
}

uint64_t packed_image_bytes(const packed_image *i) {
    return i->header.file_bytes;
}

/* ---- checksums ---- */

quire_err packed_image_measure(packed_image *i, int32_t *n_blocks) {
    assert(i != NULL);
    uint64_t n = i->at > PACKED_ALIGN ? (i->at - PACKED_ALIGN + PACKED_BLOCK - 1) / PACKED_BLOCK : 0;
    if (n > INT32_MAX) {
        return QUIRE_TOO_LARGE;
    }
    i->checksums = mem_new((size_t)n + 2, sizeof *i->checksums);
    if (i->checksums == NULL) {
        return QUIRE_NO_MEMORY;
    }
    i->checksums[0] = i->at;
    *n_blocks = i->n_blocks = (int32_t)n;
    return QUIRE_OK;
}

void packed_image_hash(packed_image *i, int32_t block) {
    uint64_t from = PACKED_ALIGN + (uint64_t)block * PACKED_BLOCK, end = i->checksums[0];
    XXH3_state_t state;
    XXH3_64bits_reset(&state);
    (void)packed_image_read_bytes(i, from, end - from < PACKED_BLOCK ? end : from + PACKED_BLOCK, take_hash,
                                  &state);
    i->checksums[1 + block] = XXH3_64bits_digest(&state);
}

static quire_err add_checksums(packed_image *i) {
    size_t n = ((size_t)i->n_blocks + 1) * sizeof *i->checksums;
    i->checksums[1 + i->n_blocks] = XXH3_64bits(i->checksums, n);
    return add_section(i, PACKED_CHECKSUMS, (str){(const char *)i->checksums, n + sizeof *i->checksums});
}

static quire_err packed_image_add_directory(packed_image *i) {
    strbuf b = {0};
    packed_header *h = &i->header;
    bool ok = packed_image_put_u32(&b, i->n_sections) == QUIRE_OK &&
              strbuf_add(&b, i->sections.p, i->sections.n) == QUIRE_OK &&
              packed_image_put_u32(&b, i->n_tensors) == QUIRE_OK &&
              strbuf_add(&b, i->tensors.p, i->tensors.n) == QUIRE_OK &&
              packed_image_add_piece(i, b.p, b.n, true) == QUIRE_OK;
    if (!ok) {
        strbuf_deinit(&b);
        return QUIRE_NO_MEMORY;
    }
    h->directory_at = i->pieces[i->n_pieces - 1].at;
    h->directory_bytes = b.n;
    h->file_bytes = i->at;
    sha256(b.p, b.n, h->directory_digest);
    return QUIRE_OK;
}

quire_err packed_image_seal(packed_image *i) {
    TRY(add_checksums(i));
    TRY(packed_image_add_directory(i));
    sha256(&i->header, offsetof(packed_header, header_digest), i->header.header_digest);
    return QUIRE_OK;
}

quire_err packed_image_finish(packed_image *i) {
    int32_t n_blocks;
    TRY(packed_image_measure(i, &n_blocks));
    for (int32_t block = 0; block < n_blocks; block++) {
        packed_image_hash(i, block);
    }
    return packed_image_seal(i);
}

/* ---- open and close ---- */

quire_err packed_image_open(compute_mode compute, packed_image **out) {
    packed_image *i = mem_new(1, sizeof *i);
    if (i == NULL) {
        return QUIRE_NO_MEMORY;
    }
    i->header = (packed_header){.version = PACKED_VERSION, .compute = (uint32_t)compute};
    memcpy(i->header.magic, PACKED_MAGIC, sizeof i->header.magic);
    quire_err e = packed_image_add_piece(i, &i->header, sizeof i->header, false);
    if (e != QUIRE_OK) {
        packed_image_close(i);
        return e;
    }
    *out = i;
    return QUIRE_OK;
}

void packed_image_close(packed_image *i) {
    if (i == NULL) {
        return;
    }
    for (size_t k = 0; k < i->n_pieces; k++) {
        if (i->pieces[k].is_owned) {
            mem_free((void *)(uintptr_t)i->pieces[k].p);
        }
    }
    mem_free(i->pieces);
    strbuf_deinit(&i->sections);
    strbuf_deinit(&i->tensors);
    mem_free(i->checksums);
    mem_free(i);
}

#define MAX_WRITERS 100 /* most writers of one file at once, killed ones included */

struct packed_writer {
    char *path, *own_path; /* the final path, and the temporary one */
    int fd;                /* -1: not open */
};

static quire_err packed_write_failed(const packed_writer *w, quire_error *err) {
    return err_set(err, QUIRE_IO, -1, "%s: could not be written: %s", w->own_path, strerror(errno));
}

static quire_err packed_write_no_memory(const char *path, quire_error *err) {
    return err_set(err, QUIRE_NO_MEMORY, -1, "%s: out of memory", path);
}

/* Fails unless the existing file is empty or an older packed model: any other file there
 * is a mistake, perhaps the model itself. */
static quire_err check_place(const char *path, quire_error *err) {
    file_map there;
    quire_err e = file_map_open(path, SIZE_MAX, &there, err);
    if (e != QUIRE_OK) {
        return e == QUIRE_NOT_FOUND ? QUIRE_OK : e;
    }
    bool is_packed =
        there.n >= strlen(PACKED_MAGIC) && memcmp(there.p, PACKED_MAGIC, strlen(PACKED_MAGIC)) == 0;
    bool is_empty = there.n == 0;
    file_map_close(&there);
    return is_packed || is_empty
               ? QUIRE_OK
               : err_set(err, QUIRE_INVALID, -1,
                         "%s: exists already and is not a packed model: give another name", path);
}

/* Creates the file under a name that no other writer has. */
static quire_err create(packed_writer *w, quire_error *err) {
    for (int i = 0; w->fd < 0 && i < MAX_WRITERS; i++) {
        strbuf own = {0};
        if (strbuf_addf(&own, "%s.%d.part", w->path, i) != QUIRE_OK) {
            strbuf_deinit(&own);
            return packed_write_no_memory(w->path, err);
        }
        mem_free(w->own_path);
        w->own_path = own.p;
        w->fd = open(w->own_path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
        if (w->fd < 0 && errno != EEXIST) {
            break;
        }
    }
    return w->fd >= 0 ? QUIRE_OK : packed_write_failed(w, err);
}

quire_err packed_writer_open(const char *path, packed_writer **out, quire_error *err) {
    TRY(check_place(path, err));
    packed_writer *w = mem_new(1, sizeof *w);
    if (w == NULL) {
        return packed_write_no_memory(path, err);
    }
    w->fd = -1;
    w->path = mem_dup(path, strlen(path));
    quire_err e = w->path != NULL ? create(w, err) : packed_write_no_memory(path, err);
    if (e != QUIRE_OK) {
        packed_writer_discard(w);
        return e;
    }
    *out = w;
    return QUIRE_OK;
}

quire_err packed_writer_finish(packed_writer *w, const packed_image *i, quire_error *err) {
    assert(w != NULL);
    bool written = packed_image_write(i, w->fd, 0, packed_image_bytes(i)) == QUIRE_OK && fsync(w->fd) == 0;
    quire_err e = written && rename(w->own_path, w->path) == 0 ? QUIRE_OK : packed_write_failed(w, err);
    if (e == QUIRE_OK) {
        (void)close(w->fd); /* all data has been written */
        w->fd = -1;
    }
    packed_writer_discard(w);
    return e;
}

void packed_writer_discard(packed_writer *w) {
    if (w == NULL) {
        return;
    }
    if (w->fd >= 0) {
        (void)close(w->fd);
        (void)unlink(w->own_path);
    }
    mem_free(w->path);
    mem_free(w->own_path);
    mem_free(w);
}
