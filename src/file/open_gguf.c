/* Opens GGUF models: one file, or the parts NAME-00001-of-0000N.gguf of a split one. */
#include <assert.h>
#include <stdio.h>

#include "base/mem.h"
#include "file/model_file.h"
#include "file/not_a_model.h"
#include "file/open_file.h"
#include "file/show.h"

#define SUFFIX_BYTES 20 /* "-00001-of-00003.gguf" */

/* Reads split.no and split.count: 0 and 1 for a file that is not split. */
static quire_err open_gguf_read_split(const gguf *g, const char *file, int64_t *no, int64_t *count,
                                      quire_error *err) {
    meta_value v = gguf_meta(gguf_find(g, "split.no"));
    meta_value w = gguf_meta(gguf_find(g, "split.count"));
    *no = v.kind == META_INT ? v.i : 0;
    *count = w.kind == META_INT ? w.i : 1;
    if ((v.kind != META_INT && v.kind != META_ABSENT) || (w.kind != META_INT && w.kind != META_ABSENT) ||
        *no < 0 || *count < 0 || *count > UINT16_MAX || *no >= (*count > 0 ? *count : 1)) {
        return err_set(err, QUIRE_BAD_FILE, -1,
                       "%s: split.no and split.count contradict; the file is damaged", file);
    }
    return QUIRE_OK;
}

/* Writes the path of part no (from 0) to out, from the path of the first. */
static quire_err part_path(const char *first, int64_t no, int64_t count, strbuf *out, quire_error *err) {
    char suffix[64];
    size_t n = strlen(first);
    snprintf(suffix, sizeof suffix, "-%05d-of-%05d.gguf", 1, (int)count);
    if (n < SUFFIX_BYTES || strcmp(first + n - SUFFIX_BYTES, suffix) != 0) {
        return err_set(
            err, QUIRE_BAD_FILE, -1,
            "%s: is the first of %d parts, but its name does not end in %s: give the parts their names back",
            first, (int)count, suffix);
    }
    quire_err e =
        strbuf_addf(out, "%.*s-%05d-of-%05d.gguf", (int)(n - SUFFIX_BYTES), first, (int)no + 1, (int)count);
    return e == QUIRE_OK ? e : err_set(err, e, -1, "%s: no memory for a path", first);
}

static quire_err open_gguf_add_part(model_file *f, const char *path, int64_t no, int64_t count,
                                    quire_error *err) {
    file_map map;
    gguf g = {0};
    int64_t its_no = 0, its_count = 0;
    quire_err e = open_file_map(f, path, SIZE_MAX, &map, err);
    if (e == QUIRE_NOT_FOUND) {
        return err_set(err, e, -1, "%s: part %d of %d is not there; download it too", path, (int)no + 1,
                       (int)count);
    }
    TRY(e);
    e = gguf_parse(&g, map.p, map.n, path, (int32_t)no, &f->tensors, err);
    if (e == QUIRE_OK) {
        e = open_gguf_read_split(&g, path, &its_no, &its_count, err);
    }
    gguf_deinit(&g);
    TRY(e);
    if (its_no != no || its_count != count) {
        return err_set(err, QUIRE_BAD_FILE, -1,
                       "%s: claims to be part %d of %d; its name is wrong, or it belongs to another model",
                       path, (int)its_no + 1, (int)its_count);
    }
    return QUIRE_OK;
}

static quire_err check_first(const model_file *f, int64_t no, int64_t count, quire_error *err) {
    return no == 0 ? QUIRE_OK
                   : err_set(err, QUIRE_INVALID, -1,
                             "%s: is part %d of %d; name the first part, ...-00001-of-%05d.gguf", f->path,
                             (int)no + 1, (int)count, (int)count);
}

/* Opens the other parts of a split model. */
static quire_err open_gguf_add_parts(model_file *f, quire_error *err) {
    int64_t no, count, n_tensors;
    TRY(open_gguf_read_split(&f->gguf, f->path, &no, &count, err));
    TRY(check_first(f, no, count, err));
    for (int64_t i = 1; i < count; i++) {
        strbuf path = {0};
        quire_err e = part_path(f->path, i, count, &path, err);
        if (e == QUIRE_OK) {
            e = open_gguf_add_part(f, path.p, i, count, err);
        }
        strbuf_deinit(&path);
        TRY(e);
    }
    if (count > 1 && model_file_i64(f, "split.tensors.count", &n_tensors) == QUIRE_OK &&
        n_tensors != f->tensors.n) {
        return err_set(err, QUIRE_BAD_FILE, -1,
                       "%s: its parts have %d tensors together, split.tensors.count is %lld: the parts are "
                       "of different models",
                       f->path, (int)f->tensors.n, (long long)n_tensors);
    }
    return QUIRE_OK;
}

static str open_gguf_text_of(const gguf *g, const char *key) {
    meta_value v = gguf_meta(gguf_find(g, key));
    return v.kind == META_STR ? v.s : (str){"", 0};
}

static quire_err open_gguf_check_kind(const model_file *f, quire_error *err) {
    foreign is = foreign_of_gguf(open_gguf_text_of(&f->gguf, "general.type"),
                                 open_gguf_text_of(&f->gguf, "general.architecture"));
    return is.what == NULL ? QUIRE_OK
                           : err_set(err, QUIRE_UNSUPPORTED, -1, "%s: %s; %s", f->path, is.what, is.instead);
}

quire_err gguf_open(model_file *f, file_map first, quire_error *err) {
    assert(f != NULL);
    f->format = MODEL_GGUF;
    TRY(gguf_parse(&f->gguf, first.p, first.n, f->path, 0, &f->tensors, err));
    TRY(open_gguf_check_kind(f, err));
    TRY(open_gguf_add_parts(f, err));
    TRY(tensor_dir_finish(&f->tensors, f->path, err));
    return gguf_read_vocab(f, err);
}

quire_err gguf_open_vocabulary(model_file *f, file_map first, quire_error *err) {
    assert(f != NULL);
    int64_t no, count;
    f->format = MODEL_GGUF;
    TRY(gguf_parse(&f->gguf, first.p, first.n, f->path, 0, NULL, err));
    TRY(open_gguf_read_split(&f->gguf, f->path, &no, &count, err));
    TRY(check_first(f, no, count, err));
    return gguf_read_vocab(f, err);
}

quire_err gguf_open_memory(model_file *f, const void *bytes, size_t n, quire_error *err) {
    assert(f != NULL);
    int64_t no, count;
    f->format = MODEL_GGUF;
    TRY(gguf_parse(&f->gguf, bytes, n, f->path, 0, &f->tensors, err));
    TRY(open_gguf_read_split(&f->gguf, f->path, &no, &count, err));
    if (count > 1) {
        return err_set(err, QUIRE_UNSUPPORTED, -1,
                       "%s: one part of a split model cannot be opened from memory", f->path);
    }
    TRY(tensor_dir_finish(&f->tensors, f->path, err));
    return gguf_read_vocab(f, err);
}
