/* Opens models of every format: GGUF (one file, or the parts NAME-00001-of-0000N.gguf of
 * a split model), Hugging Face directories, packed files. */
#include <assert.h>
#include <dirent.h>
#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/mem.h"
#include "file/checksum.h"
#include "file/map.h"
#include "file/model_file.h"
#include "file/not_a_model.h"
#include "file/open_file.h"
#include "file/packed.h"
#include "file/show.h"
#include "file/vocab_files.h"
#include "json/json_out.h"

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

/* Derives the path of part `no` (from 0) from the path of the first part. */
static quire_err part_path(const char *first, int64_t no, int64_t count, strbuf *out, quire_error *err) {
    char suffix[64];
    size_t n = strlen(first);
    snprintf(suffix, sizeof suffix, "-%05d-of-%05d.gguf", 1, (int)count);
    if (n < SUFFIX_BYTES || strcmp(first + n - SUFFIX_BYTES, suffix) != 0) {
        return err_set(
            err, QUIRE_BAD_FILE, -1,
            "%s: is the first of %d parts, but its name does not end in %s: restore the parts' names", first,
            (int)count, suffix);
    }
    quire_err e =
        strbuf_addf(out, "%.*s-%05d-of-%05d.gguf", (int)(n - SUFFIX_BYTES), first, (int)no + 1, (int)count);
    return err_set(err, e, -1, "%s: no memory for a path", first);
}

static quire_err open_gguf_add_part(model_file *f, const char *path, int64_t no, int64_t count,
                                    quire_error *err) {
    file_map map;
    gguf g = {0};
    int64_t its_no = 0, its_count = 0;
    quire_err e = open_file_map(f, path, SIZE_MAX, &map, err);
    if (e == QUIRE_NOT_FOUND) {
        return err_set(err, e, -1, "%s: part %d of %d is missing; download it too", path, (int)no + 1,
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
                       "%s: its parts have %d tensors together, but split.tensors.count is %lld: the parts "
                       "belong to different models",
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

#define MEBIBYTE            ((size_t)1 << 20)
#define MAX_JSON_BYTES      (64 * MEBIBYTE)
#define MAX_TOKENIZER_BYTES (512 * MEBIBYTE)
#define MAX_SHARDS          10000

static bool exists(const char *dir, const char *name) {
    strbuf path = {0};
    bool there = open_file_join(&path, dir, name, NULL) == QUIRE_OK && access(path.p, F_OK) == 0;
    strbuf_deinit(&path);
    return there;
}

bool hf_is_directory(const char *dir) {
    return exists(dir, "config.json") || exists(dir, "tokenizer.json");
}

/* ---- the small files ---- */

/* Reads the bytes of dir/name; empty: there is no such file. */
static quire_err read_optional(model_file *f, const char *dir, const char *name, size_t max_bytes, str *out,
                               quire_error *err) {
    strbuf path = {0};
    file_map map = {0};
    quire_error why;
    if (f->is_packed) {
        *out = packed_section(f, name);
        return QUIRE_OK;
    }
    TRY(open_file_join(&path, dir, name, err));
    quire_err e = open_file_map(f, path.p, max_bytes, &map, &why);
    strbuf_deinit(&path);
    if (e != QUIRE_OK && e != QUIRE_NOT_FOUND && err != NULL) {
        *err = why;
    }
    *out = file_map_text(&map);
    return e == QUIRE_NOT_FOUND ? QUIRE_OK : e;
}

quire_err hf_read_text(model_file *f, const char *name, size_t max_bytes, str *out, quire_error *err) {
    return read_optional(f, f->path, name, max_bytes, out, err);
}

/* Parses text, the content of dir/name. If the file is absent (p NULL), *out stays
 * absent. */
static quire_err open_hf_parse(const char *dir, const char *name, str text, json_names names, json_doc *out,
                               quire_error *err) {
    strbuf path = {0};
    if (text.p == NULL) {
        return QUIRE_OK;
    }
    TRY(open_file_join(&path, dir, name, err));
    quire_err e = json_doc_parse(out, text, names, path.p, err);
    strbuf_deinit(&path);
    return e;
}

quire_err hf_read_json(model_file *f, const char *name, size_t max_bytes, str *text, json_doc *out,
                       quire_error *err) {
    TRY(read_optional(f, f->path, name, max_bytes, text, err));
    return open_hf_parse(f->path, name, *text, JSON_NAMES_LAST, out, err);
}

quire_err hf_read_list(model_file *f, const char *name, size_t max_bytes, str *text, json_doc *out,
                       quire_error *err) {
    strbuf path = {0};
    TRY(read_optional(f, f->path, name, max_bytes, text, err));
    if (text->p == NULL) {
        return QUIRE_OK;
    }
    TRY(open_file_join(&path, f->path, name, err));
    quire_err e = json_doc_parse_list(out, *text, path.p, err);
    strbuf_deinit(&path);
    return e;
}

/* Files in which some programs write what others put into config.json's
 * quantization_config, and the method that each file implies. */
static const struct {
    const char *name, *method;
} quant_files[] = {
    {"quantize_config.json", "gptq"}, {"quant_config.json", "awq"}, {"hf_quant_config.json", "modelopt"}};

/* Appends `, "quantization_config": {"quant_method": method, ..}`, with the members of
 * the object's text, to config.json's text. */
static quire_err join_quantisation(strbuf *out, str config, const char *method, str object, bool is_empty) {
    size_t open = (size_t)((const char *)memchr(object.p, '{', object.n) - object.p) + 1, end = config.n;
    while (config.p[end - 1] != '}') {
        end--;
    }
    TRY(strbuf_add(out, config.p, end - 1));
    TRY(strbuf_addf(out, ",\"quantization_config\":{\"quant_method\":\"%s\"%s", method, is_empty ? "" : ","));
    TRY(strbuf_add(out, object.p + open, object.n - open));
    return strbuf_add_char(out, '}');
}

/* Puts the members of an object's text into config.json as its quantization_config. */
static quire_err take_quantisation(model_file *f, const char *method, str object, bool is_empty,
                                   quire_error *err) {
    if (join_quantisation(&f->config_joined, f->config_text, method, object, is_empty) != QUIRE_OK) {
        return err_set(err, QUIRE_NO_MEMORY, -1, "%s: no memory for its settings", f->path);
    }
    f->config_text = (str){f->config_joined.p, f->config_joined.n};
    json_doc_deinit(&f->config);
    f->config.root = NULL;
    return open_hf_parse(f->path, "config.json", f->config_text, JSON_NAMES_LAST, &f->config, err);
}

/* Looks for quantization_config in other places of config.json: the text part of a
 * composite model, and where an old compressed-tensors wrote it. */
static quire_err read_elsewhere(model_file *f, quire_error *err) {
    static const char *const places[] = {"text_config.quantization_config", "compression_config"};
    const json_value *found = NULL;
    strbuf text = {0};
    json_member first = {0};
    for (size_t i = 0; i < sizeof places / sizeof *places && found == NULL; i++) {
        const json_value *there = json_doc_find(&f->config, places[i]);
        found = json_is(there, JSON_KIND_OBJECT) ? there : NULL;
    }
    if (found == NULL) {
        return QUIRE_OK;
    }
    json_out out = {.to = &text};
    const bool is_empty = !json_next(found, &first);
    json_add(&out, found);
    quire_err e = out.err != QUIRE_OK ? err_set(err, out.err, -1, "%s: no memory for its settings", f->path)
                                      : take_quantisation(f, "", (str){text.p, text.n}, is_empty, err);
    strbuf_deinit(&text);
    return e;
}

/* If config.json has no quantization_config at its root, reads it from elsewhere in
 * config.json or from a file of its own. A packed model has it at the root. */
static quire_err open_hf_read_quantisation(model_file *f, quire_error *err) {
    json_member first = {0}, of_quantisation = {0};
    bool has_members = json_next(f->config.root, &first);
    if (has_members && json_doc_find(&f->config, "quantization_config") == NULL) {
        TRY(read_elsewhere(f, err));
    }
    for (size_t i = 0; i < sizeof quant_files / sizeof *quant_files && has_members; i++) {
        json_doc doc = {0};
        str text;
        if (json_doc_find(&f->config, "quantization_config") != NULL) {
            return QUIRE_OK;
        }
        TRY(hf_read_json(f, quant_files[i].name, MAX_JSON_BYTES, &text, &doc, err));
        if (doc.root == NULL) {
            continue;
        }
        bool is_empty = !json_next(doc.root, &of_quantisation);
        json_doc_deinit(&doc);
        return take_quantisation(f, quant_files[i].method, text, is_empty, err);
    }
    return QUIRE_OK;
}

/* Reads the small files of a Hugging Face directory or of a packed one. */
static quire_err hf_read_texts(model_file *f, quire_error *err) {
    assert(f != NULL);
    vocab *v = &f->vocab;
    const char *dir = f->path;
    vocab_init(v);
    TRY(hf_read_json(f, "config.json", MAX_JSON_BYTES, &f->config_text, &f->config, err));
    TRY(open_hf_read_quantisation(f, err));
    TRY(open_file_overrides(f, err));
    TRY(hf_read_json(f, "generation_config.json", MAX_JSON_BYTES, &f->generation_text, &f->generation, err));
    TRY(hf_read_json(f, "tokenizer_config.json", MAX_JSON_BYTES, &v->tokenizer_config_json,
                     &f->tokenizer_config, err));
    TRY(modules_read(f, err));
    TRY(read_optional(f, dir, "special_tokens_map.json", MAX_JSON_BYTES, &v->special_tokens_map_json, err));
    TRY(read_optional(f, dir, "tokenizer.json", MAX_TOKENIZER_BYTES, &v->tokenizer_json, err));
    TRY(vocab_files_read(f, err));
    TRY(hf_read_templates(f, err));
    v->tables = packed_section(f, PACKED_TABLES);
    return QUIRE_OK;
}

/* ---- the weights ---- */

/* Sorted names of the safetensors files. Part i of the tensor directory is shard i. */
typedef struct shard_list {
    char **names;
    size_t n, cap;
} shard_list;

static void shards_deinit(shard_list *l) {
    for (size_t i = 0; i < l->n; i++) {
        mem_free(l->names[i]);
    }
    mem_free(l->names);
}

static int open_hf_compare_texts(const void *a, const void *b) {
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static bool shards_add(shard_list *l, const char *name) {
    if (mem_grow(&l->names, &l->cap, l->n + 1, sizeof *l->names) != QUIRE_OK) {
        return false;
    }
    char *copy = mem_dup(name, strlen(name));
    if (copy != NULL) {
        l->names[l->n++] = copy;
    }
    return copy != NULL;
}

static int32_t shards_find(const shard_list *l, const char *name) {
    char *const *at =
        l->n > 0 ? bsearch(&name, l->names, l->n, sizeof *l->names, open_hf_compare_texts) : NULL;
    return at == NULL ? -1 : (int32_t)(at - l->names);
}

bool hf_is_plain_name(str name) {
    return name.n > 0 && name.p[0] != '.' && memchr(name.p, '/', name.n) == NULL &&
           memchr(name.p, '\\', name.n) == NULL && memchr(name.p, 0, name.n) == NULL;
}

/* Lists the shards that the index names, each once. */
static quire_err list_indexed(const model_file *f, const json_doc *index, shard_list *out, quire_error *err) {
    json_value *map = json_doc_find(index, "weight_map");
    if (!json_is(map, JSON_KIND_OBJECT)) {
        return err_set(err, QUIRE_BAD_FILE, -1,
                       "%s/model.safetensors.index.json: no weight_map; download it again", f->path);
    }
    const char *last = "";
    for (json_member m = {0}; json_next(map, &m);) {
        if (!hf_is_plain_name(json_str(m.value))) {
            return err_set(err, QUIRE_BAD_FILE, -1,
                           "%s/model.safetensors.index.json: tensor %s: its file must be a plain name inside "
                           "the directory",
                           f->path, show_name(str_of(m.name)).text);
        }
        const char *name = json_str(m.value).p;
        if (strcmp(name, last) != 0 && !shards_add(out, name)) { /* tensors in sequence mostly share a file */
            return err_set(err, QUIRE_NO_MEMORY, -1, "%s: no memory for its files", f->path);
        }
        last = name;
    }
    return QUIRE_OK;
}

/* Sorts the names and drops repetitions. */
static void shards_unique(shard_list *l) {
    if (l->n == 0) {
        return;
    }
    qsort(l->names, l->n, sizeof *l->names, open_hf_compare_texts);
    size_t n = 1;
    for (size_t i = 1; i < l->n; i++) {
        if (strcmp(l->names[i], l->names[n - 1]) == 0) {
            mem_free(l->names[i]);
        } else {
            l->names[n++] = l->names[i];
        }
    }
    l->n = n;
}

/* Checks that every tensor is in the file that the index names for it. A tensor that no
 * file has may be unused; model_file_why_unread reports it if it is needed. */
static quire_err check_index(const model_file *f, const json_doc *index, const shard_list *shards,
                             quire_error *err) {
    for (json_member m = {0}; json_next(json_doc_find(index, "weight_map"), &m);) {
        str tensor = str_of(m.name), file = json_str(m.value);
        int32_t i = tensor_dir_find(&f->tensors, tensor);
        if (i >= 0 && f->tensors.parts[i] != shards_find(shards, file.p)) {
            return err_set(err, QUIRE_BAD_FILE, -1,
                           "%s/model.safetensors.index.json: tensor %s is not in %s; the files belong to "
                           "different models",
                           f->path, show_name(tensor).text, show_name(file).text);
        }
    }
    return QUIRE_OK;
}

/* Lists every model*.safetensors of the directory. */
static quire_err open_hf_list_directory(const model_file *f, shard_list *out, quire_error *err) {
    DIR *d = opendir(f->path);
    if (d == NULL) {
        return err_set(err, QUIRE_IO, -1, "%s: %s", f->path, strerror(errno));
    }
    bool ok = true;
    for (struct dirent *entry = readdir(d); entry != NULL && ok; entry = readdir(d)) {
        const char *name = entry->d_name;
        if (strncmp(name, "model", 5) == 0 && str_ends(str_of(name), ".safetensors")) {
            ok = shards_add(out, name);
        }
    }
    closedir(d);
    shards_unique(out);
    return ok ? QUIRE_OK : err_set(err, QUIRE_NO_MEMORY, -1, "%s: no memory for its files", f->path);
}

/* Checks shards that have no index: if there is model-00001-of-00003.safetensors, all
 * three must exist. */
static quire_err check_complete(const model_file *f, const shard_list *l, quire_error *err) {
    for (size_t i = 0; i < l->n; i++) {
        int no, count;
        if (sscanf(l->names[i], "model-%5d-of-%5d.safetensors", &no, &count) == 2 && count != (int)l->n) {
            return err_set(err, QUIRE_BAD_FILE, -1,
                           "%s: %s is one of %d files, but there are %d: download the others too", f->path,
                           l->names[i], count, (int)l->n);
        }
    }
    return QUIRE_OK;
}

/* Refuses weights in forms of other programs: by config.json and, once they are listed,
 * by the tensors. */
static quire_err check_quantised(model_file *f, quire_error *err) {
    char base[FOREIGN_BASE_BYTES] = "";
    str card = {0};
    if (foreign_weights_check(f->config.root, &f->tensors, f->path, base, NULL) == QUIRE_OK) {
        return QUIRE_OK;
    }
    (void)read_optional(f, f->path, "README.md", MAX_JSON_BYTES, &card, NULL); /* the card may be missing */
    foreign_base_of_card(card, base);
    return foreign_weights_check(f->config.root, &f->tensors, f->path, base, err);
}

static quire_err open_hf_add_shards(model_file *f, const shard_list *l, quire_error *err) {
    if (l->n > MAX_SHARDS) {
        return err_set(err, QUIRE_BAD_FILE, -1, "%s: %d weight files are more than any model has", f->path,
                       (int)l->n);
    }
    for (size_t i = 0; i < l->n; i++) {
        strbuf path = {0};
        file_map map = {0};
        TRY(open_file_join(&path, f->path, l->names[i], err));
        quire_err e = open_file_map(f, path.p, SIZE_MAX, &map, err);
        if (e == QUIRE_NOT_FOUND) {
            e = err_set(err, e, -1, "%s: the index names this file, but it is missing; download it too",
                        path.p);
        }
        if (e == QUIRE_OK) {
            e = safetensors_parse(map.p, map.n, path.p, (int32_t)i, &f->tensors, err);
        }
        strbuf_deinit(&path);
        TRY(e);
    }
    TRY(modules_add_weights(f, (int32_t)l->n, err));
    TRY(tensor_dir_finish(&f->tensors, f->path, err));
    return check_quantised(f, err);
}

static quire_err open_indexed(model_file *f, shard_list *l, quire_error *err) {
    str text;
    TRY(read_optional(f, f->path, "model.safetensors.index.json", MAX_JSON_BYTES, &text, err));
    TRY(open_hf_parse(f->path, "model.safetensors.index.json", text, JSON_NAMES_UNIQUE, &f->index, err));
    quire_err e = list_indexed(f, &f->index, l, err);
    shards_unique(l);
    TRY(e);
    TRY(open_hf_add_shards(f, l, err));
    return check_index(f, &f->index, l, err);
}

static quire_err open_hf_open_listed(model_file *f, shard_list *l, quire_error *err) {
    TRY(open_hf_list_directory(f, l, err));
    foreign is = l->n == 0 ? foreign_of_directory(f->path) : (foreign){.what = NULL};
    if (is.what != NULL) {
        return err_set(err, QUIRE_UNSUPPORTED, -1, "%s: no model*.safetensors, but %s; %s", f->path, is.what,
                       is.instead);
    }
    TRY(check_complete(f, l, err));
    return open_hf_add_shards(f, l, err);
}

/* Opens model.safetensors, else the shards of the index, else every
 * model*.safetensors. */
static quire_err open_weights(model_file *f, quire_error *err) {
    shard_list shards = {0};
    quire_err e;
    if (exists(f->path, "model.safetensors")) {
        e = shards_add(&shards, "model.safetensors")
                ? open_hf_add_shards(f, &shards, err)
                : err_set(err, QUIRE_NO_MEMORY, -1, "%s: no memory for its files", f->path);
    } else if (exists(f->path, "model.safetensors.index.json")) {
        e = open_indexed(f, &shards, err);
    } else {
        e = open_hf_open_listed(f, &shards, err);
    }
    shards_deinit(&shards);
    return e;
}

quire_err hf_open(model_file *f, const char *dir, quire_error *err) {
    assert(f != NULL);
    f->format = MODEL_HF;
    if (!hf_is_directory(dir)) {
        foreign is = foreign_of_directory(dir);
        is = is.what != NULL ? is : foreign_part_of_directory(dir);
        return is.what != NULL
                   ? err_set(err, QUIRE_UNSUPPORTED, -1,
                             "%s: a directory with %s and without config.json; %s", dir, is.what, is.instead)
                   : err_set(err, QUIRE_BAD_FILE, -1,
                             "%s: a directory without config.json; name a GGUF file or the directory of a "
                             "Hugging Face model",
                             dir);
    }
    TRY(hf_read_texts(f, err));
    TRY(check_quantised(f, err));
    return open_weights(f, err);
}

quire_err hf_read_config(model_file *f, const char *dir, quire_error *err) {
    vocab *v = &f->vocab;
    TRY(read_optional(f, dir, "special_tokens_map.json", MAX_JSON_BYTES, &v->special_tokens_map_json, err));
    return read_optional(f, dir, "tokenizer_config.json", MAX_JSON_BYTES, &v->tokenizer_config_json, err);
}

quire_err hf_open_vocabulary(model_file *f, const char *dir, quire_error *err) {
    assert(f != NULL);
    f->format = MODEL_HF;
    TRY(hf_read_texts(f, err));
    return f->vocab.source != VOCAB_NONE
               ? QUIRE_OK
               : err_set(err, QUIRE_NOT_FOUND, -1,
                         "%s: no tokenizer in this directory: neither tokenizer.json, nor a .model file, "
                         "ranks (.tiktoken) or tekken.json",
                         dir);
}

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
                       "%s: %s bytes are too few for a packed model: it is cut short; pack the model again",
                       f->path, show_count(map.n).text);
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
        return open_packed_bad(f, "its first bytes have changed since it was written", err);
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
               : open_packed_bad(f, "its directory has changed since it was written", err);
}

/* Reads the place of a section or tensor, which must lie inside the file, into *data and
 * *n. */
static quire_err read_place(cursor *c, const model_file *f, file_map map, const char **data, size_t *n) {
    uint64_t at, bytes;
    TRY(cursor_u64(c, "an offset", &at));
    TRY(cursor_u64(c, "a size", &bytes));
    if (at % PACKED_ALIGN != 0 || at > map.n || bytes > map.n - at) {
        return open_packed_bad(f, "one of its sections lies outside the file", c->err);
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
    TRY(err_set(c->err, mem_check(f->sections), -1, "%s: no memory for its directory", f->path));
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
        return open_packed_bad(f, "its directory describes an impossible tensor", c->err);
    }
    t.n_dims = (int32_t)n_dims;
    for (uint32_t i = 0; i < n_dims; i++) {
        uint64_t dim;
        TRY(cursor_u64(c, "a tensor's dimension", &dim));
        t.dims[i] = dim <= INT64_MAX ? (int64_t)dim : 0;
    }
    TRY(read_place(c, f, map, &data, &t.n_bytes));
    if (!tensor_bytes(t.type, t.dims, t.n_dims, &n_bytes) || (is_packed == 0 && n_bytes != t.n_bytes)) {
        return open_packed_bad(f, "a tensor's size does not match its shape", c->err);
    }
    t.data = data;
    t.packing = is_packed != 0 ? packing : 0;
    return err_set(c->err, tensor_dir_add(&f->tensors, name, &t, 0), -1, "%s: no memory for its tensors",
                   f->path);
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
