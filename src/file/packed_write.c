/* Writes packed models: data in order of arrival, then the directory, and last the header, which makes the file valid. */
#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <unistd.h>

#include "base/mem.h"
#include "base/size.h"
#include "file/open_file.h"
#include "file/packed.h"

#define MAX_WRITERS 100 /* of one file at once, including those that were killed */

struct packed_writer {
    char *path, *own_path; /* the final path, and the path that is written */
    FILE *file;
    uint64_t at;
    packed_header header;
    strbuf sections, tensors; /* the directory's two halves */
    uint32_t n_sections, n_tensors;
    quire_error *err; /* of the running call */
};

static quire_err failed(const packed_writer *w) {
    return err_set(w->err, QUIRE_IO, -1, "%s: could not be written: %s", w->own_path, strerror(errno));
}

static quire_err no_memory(const packed_writer *w) {
    return err_set(w->err, QUIRE_NO_MEMORY, -1, "%s: out of memory", w->path);
}

/* ---- the directory's entries ---- */

static quire_err put_u32(strbuf *b, uint32_t v) {
    return strbuf_add(b, &v, sizeof v);
}

static quire_err put_u64(strbuf *b, uint64_t v) {
    return strbuf_add(b, &v, sizeof v);
}

static quire_err put_str(strbuf *b, str s) {
    TRY(put_u64(b, s.n));
    return strbuf_add(b, s.p, s.n);
}

/* ---- data ---- */

static quire_err write_bytes(packed_writer *w, const void *p, size_t n) {
    if (n > 0 && fwrite(p, 1, n, w->file) != n) {
        return failed(w);
    }
    w->at += n;
    return QUIRE_OK;
}

/* Writes bytes at the next multiple of PACKED_ALIGN, which is *at. */
static quire_err write_aligned(packed_writer *w, const void *p, size_t n, uint64_t *at) {
    static const uint8_t zeros[PACKED_ALIGN];
    TRY(write_bytes(w, zeros, (size_t)(-w->at % PACKED_ALIGN)));
    *at = w->at;
    return write_bytes(w, p, n);
}

static quire_err add_section(packed_writer *w, const char *name, str data) {
    uint64_t at;
    if (data.p == NULL) {
        return QUIRE_OK; /* the source has no such file */
    }
    TRY(write_aligned(w, data.p, data.n, &at));
    w->n_sections++;
    bool ok = put_str(&w->sections, str_of(name)) == QUIRE_OK && put_u64(&w->sections, at) == QUIRE_OK &&
              put_u64(&w->sections, data.n) == QUIRE_OK;
    return ok ? QUIRE_OK : no_memory(w);
}

static quire_err put_tensor(strbuf *b, const tensor_view *t, uint64_t at) {
    const char *suffix = t->packing != 0 ? PACKED_SUFFIX : "";
    TRY(put_u64(b, strlen(t->name) + strlen(suffix)));
    TRY(strbuf_add_str(b, t->name));
    TRY(strbuf_add_str(b, suffix));
    TRY(put_str(b, str_of(dtype_name(t->type))));
    TRY(put_u32(b, t->packing != 0));
    TRY(put_u32(b, (uint32_t)t->n_dims));
    for (int32_t i = 0; i < t->n_dims; i++) {
        TRY(put_u64(b, (uint64_t)t->dims[i]));
    }
    TRY(put_u64(b, at));
    return put_u64(b, t->n_bytes);
}

quire_err packed_writer_add(packed_writer *w, const tensor_view *view, quire_error *err) {
    uint64_t at;
    w->err = err;
    w->header.packing = view->packing != 0 ? view->packing : w->header.packing;
    TRY(write_aligned(w, view->data, view->n_bytes, &at));
    w->n_tensors++;
    return put_tensor(&w->tensors, view, at) == QUIRE_OK ? QUIRE_OK : no_memory(w);
}

/* ---- metadata ---- */

static quire_err put_items(strbuf *b, const gguf_value *v) {
    TRY(put_u32(b, v->item_type));
    TRY(put_u64(b, v->n));
    for (size_t i = 0; v->item_type == GGUF_STRING && i < v->n; i++) {
        TRY(put_str(b, v->strings[i]));
    }
    return strbuf_add(b, v->data, v->n * gguf_type_bytes(v->item_type));
}

static quire_err put_key(strbuf *b, const gguf_key *k) {
    const gguf_value *v = &k->value;
    TRY(put_str(b, k->name));
    TRY(put_u32(b, v->type));
    if (v->type == GGUF_ARRAY) {
        return put_items(b, v);
    }
    return v->type == GGUF_STRING ? put_str(b, (str){(const char *)v->data, v->n}) : strbuf_add(b, v->data, gguf_type_bytes(v->type));
}

/* True for the lists that the tables replace, and for arrays of arrays, which nothing reads. */
static bool is_left_out(const gguf_key *k, bool has_tables) {
    static const char *const lists[] = {"tokenizer.ggml.tokens", "tokenizer.ggml.scores", "tokenizer.ggml.merges"};
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
        n += !is_left_out(&g->keys[i], has_tables);
    }
    TRY(strbuf_add(b, "GGUF", 4));
    TRY(put_u32(b, 3));
    TRY(put_u64(b, 0));
    TRY(put_u64(b, n));
    for (int32_t i = 0; i < g->n_keys; i++) {
        TRY(is_left_out(&g->keys[i], has_tables) ? QUIRE_OK : put_key(b, &g->keys[i]));
    }
    if (has_tables) {
        TRY(put_str(b, str_of(PACKED_N_TOKENS)));
        TRY(put_u32(b, GGUF_U32));
        TRY(put_u32(b, tokens != NULL ? (uint32_t)tokens->n : 0));
    }
    return QUIRE_OK;
}

static quire_err add_gguf(packed_writer *w, const gguf *g, bool has_tables) {
    strbuf b = {0};
    quire_err e = put_gguf(&b, g, has_tables) == QUIRE_OK ? add_section(w, PACKED_GGUF, (str){b.p, b.n}) : no_memory(w);
    strbuf_deinit(&b);
    return e;
}

quire_err packed_writer_metadata(packed_writer *w, const model_file *f, str tables, str json, quire_error *err) {
    const vocab *v = &f->vocab;
    w->err = err;
    w->header.format = f->format;
    TRY(add_section(w, PACKED_TABLES, tables.n > 0 ? tables : (str){0}));
    if (f->format == MODEL_GGUF) {
        return add_gguf(w, &f->gguf, tables.n > 0);
    }
    TRY(add_section(w, "config.json", f->config_text));
    TRY(add_section(w, "generation_config.json", f->generation_text));
    TRY(add_section(w, "tokenizer_config.json", v->tokenizer_config_json));
    TRY(add_section(w, "special_tokens_map.json", v->special_tokens_map_json));
    TRY(add_section(w, "tokenizer.json", tables.n > 0 ? json : v->tokenizer_json));
    return add_section(w, "chat_template.jinja", f->template_text);
}

/* ---- the file ---- */

/* Only an older packed model or an empty file may be replaced: another file there is a mistake, perhaps the model itself. */
static quire_err check_place(const char *path, quire_error *err) {
    file_map there;
    quire_err e = file_map_open(path, SIZE_MAX, &there, err);
    if (e != QUIRE_OK) {
        return e == QUIRE_NOT_FOUND ? QUIRE_OK : e;
    }
    bool is_packed = there.n >= strlen(PACKED_MAGIC) && memcmp(there.p, PACKED_MAGIC, strlen(PACKED_MAGIC)) == 0;
    bool is_empty = there.n == 0;
    file_map_close(&there);
    return is_packed || is_empty
               ? QUIRE_OK
               : err_set(err, QUIRE_INVALID, -1, "%s: stands there already and is no packed model: give another name", path);
}

/* Creates the file under a name that no other writer has. */
static quire_err create(packed_writer *w) {
    for (int i = 0; w->file == NULL && i < MAX_WRITERS; i++) {
        strbuf own = {0};
        if (strbuf_addf(&own, "%s.%d.part", w->path, i) != QUIRE_OK) {
            strbuf_deinit(&own);
            return no_memory(w);
        }
        mem_free(w->own_path);
        w->own_path = own.p;
        w->file = fopen(w->own_path, "wbx");
        if (w->file == NULL && errno != EEXIST) {
            break;
        }
    }
    return w->file != NULL ? QUIRE_OK : failed(w);
}

quire_err packed_writer_open(const char *path, compute_mode compute, packed_writer **out, quire_error *err) {
    TRY(check_place(path, err));
    packed_writer *w = mem_new(1, sizeof *w);
    if (w != NULL) {
        w->err = err;
        w->path = mem_dup(path, strlen(path));
    }
    if (w == NULL || w->path == NULL) {
        packed_writer_discard(w);
        return err_set(err, QUIRE_NO_MEMORY, -1, "%s: out of memory", path);
    }
    w->header = (packed_header){.version = PACKED_VERSION, .compute = (uint32_t)compute};
    memcpy(w->header.magic, PACKED_MAGIC, sizeof w->header.magic);
    quire_err e = create(w);
    e = e != QUIRE_OK ? e : write_bytes(w, &(packed_header){0}, sizeof w->header);
    if (e != QUIRE_OK) {
        packed_writer_discard(w);
        return e;
    }
    *out = w;
    return QUIRE_OK;
}

static quire_err write_directory(packed_writer *w) {
    strbuf b = {0};
    packed_header *h = &w->header;
    bool ok = put_u32(&b, w->n_sections) == QUIRE_OK && strbuf_add(&b, w->sections.p, w->sections.n) == QUIRE_OK &&
              put_u32(&b, w->n_tensors) == QUIRE_OK && strbuf_add(&b, w->tensors.p, w->tensors.n) == QUIRE_OK;
    quire_err e = ok ? write_aligned(w, b.p, b.n, &h->directory_at) : no_memory(w);
    h->directory_bytes = b.n;
    h->file_bytes = w->at;
    sha256(b.p, b.n, h->directory_digest);
    sha256(h, offsetof(packed_header, header_digest), h->header_digest);
    strbuf_deinit(&b);
    return e;
}

static quire_err complete(packed_writer *w) {
    TRY(write_directory(w));
    bool written = fseek(w->file, 0, SEEK_SET) == 0 && fwrite(&w->header, sizeof w->header, 1, w->file) == 1 && fflush(w->file) == 0 &&
                   fsync(fileno(w->file)) == 0;
    if (!written || rename(w->own_path, w->path) != 0) {
        return failed(w);
    }
    (void)fclose(w->file); /* all data is written already */
    w->file = NULL;
    return QUIRE_OK;
}

quire_err packed_writer_finish(packed_writer *w, int64_t *n_bytes, quire_error *err) {
    w->err = err;
    quire_err e = complete(w);
    *n_bytes = (int64_t)w->at;
    packed_writer_discard(w);
    return e;
}

void packed_writer_discard(packed_writer *w) {
    if (w == NULL) {
        return;
    }
    if (w->file != NULL) {
        (void)fclose(w->file);
        (void)remove(w->own_path);
    }
    strbuf_deinit(&w->sections);
    strbuf_deinit(&w->tensors);
    mem_free(w->path);
    mem_free(w->own_path);
    mem_free(w);
}
