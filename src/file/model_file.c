#include "file/model_file.h"

#include <assert.h>
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/log.h"
#include "base/mem.h"
#include "file/not_a_model.h"
#include "file/open_file.h"
#include "file/show.h"
#include "file/vocab_files.h"

/* ---- for the readers ---- */

quire_err open_file_join(strbuf *out, const char *dir, const char *name, quire_error *err) {
    return err_set(err, strbuf_addf(out, "%s/%s", dir, name), -1, "%s: no memory for the path of %s", dir,
                   name);
}

quire_err open_file_map(model_file *f, const char *path, size_t max_bytes, file_map *out, quire_error *err) {
    assert(f != NULL);
    TRY(err_set(err, mem_grow(&f->maps, &f->cap_maps, f->n_maps + 1, sizeof *f->maps), -1,
                "%s: no memory to map it", path));
    TRY(file_map_open(path, max_bytes, out, err));
    foreign is = foreign_of_content(file_map_text(out));
    if (str_begins(file_map_text(out), "version https://git-lfs.github.com/spec/")) {
        file_map_close(out);
        return err_set(err, QUIRE_BAD_FILE, 0, "%s: %s; %s", path, is.what, is.instead);
    }
    f->maps[f->n_maps++] = *out;
    return QUIRE_OK;
}

/* ---- open and close ---- */

static model_file *new_file(const char *path, size_t n_path, const model_overrides *given) {
    model_file *f = mem_new(1, sizeof *f);
    if (f == NULL) {
        return NULL;
    }
    f->n_users = 1;
    f->given = given;
    f->path = mem_dup(path, n_path);
    f->quantise =
        given != NULL && given->quantise != NULL ? mem_dup(given->quantise, strlen(given->quantise)) : NULL;
    if (f->path == NULL || (f->quantise == NULL && given != NULL && given->quantise != NULL)) {
        mem_free(f->path);
        mem_free(f->quantise);
        mem_free(f);
        return NULL;
    }
    return f;
}

/* Opens the directory that contains path, a file that is not GGUF. */
static quire_err open_parent(model_file *f, const char *path, str content, quire_error *err) {
    const char *slash = strrchr(path, '/');
    str dir = slash == NULL ? str_of(".") : (str){path, slash == path ? 1 : (size_t)(slash - path)};
    char *parent = mem_dup(dir.p, dir.n);
    TRY(err_set(err, mem_check(parent), -1, "%s: no memory for its path", path));
    if (!hf_is_directory(parent)) {
        foreign is = foreign_of_content(content);
        is = is.what != NULL ? is : foreign_of_name(str_of(path));
        mem_free(parent);
        if (is.what != NULL) {
            return err_set(err, QUIRE_UNSUPPORTED, 0, "%s: %s; %s", path, is.what, is.instead);
        }
        return err_set(err, QUIRE_BAD_FILE, 0,
                       "%s: neither a GGUF file nor part of a Hugging Face model (no config.json beside it)",
                       path);
    }
    mem_free(f->path);
    f->path = parent;
    return hf_open(f, parent, err);
}

/* Whether path has neither a directory nor a file extension. It may then be meant as a
 * name at the hub, since other programs have short names: "gemma3", "qwen2.5:7b". */
static bool is_short_name(const char *path) {
    const char *dot = strrchr(path, '.');
    return strchr(path, '/') == NULL && (dot == NULL || (dot[1] >= '0' && dot[1] <= '9'));
}

static quire_err no_such_model(const char *path, quire_error *err) {
    if (is_short_name(path)) {
        return err_set(err, QUIRE_NOT_FOUND, -1,
                       "%s: no such file or directory, and not a name on the hub, which would be ORG/NAME: "
                       "`quire pull ggml-org/gemma-3-1b-it-GGUF` fetches one, `quire list` shows what the "
                       "cache has, and `builtin` is part of the program",
                       path);
    }
    return err_set(
        err, QUIRE_NOT_FOUND, -1,
        "%s: no such file; name a GGUF file, the directory of a Hugging Face model, or ORG/NAME of the hub",
        path);
}

static quire_err open_any(model_file *f, const char *path, quire_error *err) {
    struct stat st;
    if (stat(path, &st) == 0 && S_ISDIR(st.st_mode)) {
        return hf_open(f, path, err);
    }
    file_map map;
    quire_err e = open_file_map(f, path, SIZE_MAX, &map, err);
    if (e == QUIRE_NOT_FOUND) {
        return no_such_model(path, err);
    }
    TRY(e);
    if (packed_is(map)) {
        return packed_open(f, map, err);
    }
    if (str_begins(file_map_text(&map), "GGUF") || str_ends(str_of(path), ".gguf")) {
        return gguf_open(f, map, err);
    }
    return open_parent(f, path, file_map_text(&map), err);
}

/* Passes f to the caller if e is success, otherwise closes it. */
static quire_err model_file_finish(model_file *f, quire_err e, model_file **out) {
    if (e != QUIRE_OK) {
        model_file_close(f);
        return e;
    }
    f->given = NULL;
    *out = f;
    return QUIRE_OK;
}

quire_err model_file_open_with(const char *path, const model_overrides *set, model_file **out,
                               quire_error *err) {
    size_t n = strlen(path);
    while (n > 1 && path[n - 1] == '/') { /* messages show "dir/" as "dir" */
        n--;
    }
    model_file *f = new_file(path, n, set);
    TRY(err_set(err, mem_check(f), -1, "%s: no memory to open it", path));
    return model_file_finish(f, open_any(f, f->path, err), out);
}

/* Opens a tokenizer file alone, with the tokenizer_config.json beside it if there is
 * one. */
static quire_err open_vocab_file(model_file *f, const char *path, file_map map, quire_error *err) {
    f->format = MODEL_HF;
    TRY(vocab_files_open(f, path, map, err));
    const char *slash = strrchr(path, '/');
    char *dir = slash == NULL ? mem_dup(".", 1) : mem_dup(path, slash == path ? 1 : (size_t)(slash - path));
    TRY(err_set(err, mem_check(dir), -1, "%s: no memory to open it", path));
    quire_err e = hf_read_config(f, dir, err);
    mem_free(dir);
    return e;
}

static quire_err open_vocabulary(model_file *f, const char *path, quire_error *err) {
    struct stat st;
    file_map map;
    if (stat(path, &st) == 0 && S_ISDIR(st.st_mode)) {
        return hf_open_vocabulary(f, path, err);
    }
    quire_err e = open_file_map(f, path, SIZE_MAX, &map, err);
    if (e == QUIRE_NOT_FOUND) {
        return is_short_name(path)
                   ? no_such_model(path, err)
                   : err_set(err, e, -1,
                             "%s: no such file; name a tokenizer file, a GGUF file or a directory", path);
    }
    TRY(e);
    if (packed_is(map)) {
        return packed_open(f, map, err);
    }
    return str_begins(file_map_text(&map), "GGUF") ? gguf_open_vocabulary(f, map, err)
                                                   : open_vocab_file(f, path, map, err);
}

quire_err model_file_open_vocabulary(const char *path, model_file **out, quire_error *err) {
    size_t n = strlen(path);
    while (n > 1 && path[n - 1] == '/') {
        n--;
    }
    model_file *f = new_file(path, n, NULL);
    TRY(err_set(err, mem_check(f), -1, "%s: no memory to open it", path));
    return model_file_finish(f, open_vocabulary(f, f->path, err), out);
}

quire_err model_file_open(const char *path, model_file **out, quire_error *err) {
    return model_file_open_with(path, NULL, out, err);
}

quire_err model_file_open_memory_with(const void *bytes, size_t n, const char *name,
                                      const model_overrides *set, model_file **out, quire_error *err) {
    model_file *f = new_file(name, strlen(name), set);
    TRY(err_set(err, mem_check(f), -1, "%s: no memory to open it", name));
    file_map map = {.p = bytes, .n = n};
    return model_file_finish(
        f, packed_is(map) ? packed_open(f, map, err) : gguf_open_memory(f, bytes, n, err), out);
}

quire_err model_file_open_memory(const void *bytes, size_t n, const char *name, model_file **out,
                                 quire_error *err) {
    return model_file_open_memory_with(bytes, n, name, NULL, out, err);
}

static void modules_deinit(model_file *f) {
    assert(f != NULL);
    for (int32_t i = 0; i < f->n_modules; i++) {
        json_doc_deinit(&f->modules[i].config);
    }
    json_doc_deinit(&f->modules_list);
    f->n_modules = 0;
}

void model_file_close(model_file *f) {
    if (f == NULL || --f->n_users > 0) {
        return;
    }
    tensor_dir_deinit(&f->tensors);
    gguf_deinit(&f->gguf);
    json_doc_deinit(&f->config);
    strbuf_deinit(&f->config_joined);
    json_doc_deinit(&f->generation);
    json_doc_deinit(&f->tokenizer_config);
    json_doc_deinit(&f->template_json);
    json_doc_deinit(&f->index);
    modules_deinit(f);
    overrides_close(f->overrides);
    mem_free(f->sections);
    mem_free(f->scores);
    mem_free(f->types);
    for (size_t i = 0; i < f->n_maps; i++) {
        file_map_close(&f->maps[i]);
    }
    mem_free(f->maps);
    mem_free(f->path);
    mem_free(f->quantise);
    mem_free(f);
}

model_file *model_file_share(model_file *f) {
    f->n_users++;
    return f;
}

/* ---- contents ---- */

model_format model_file_format(const model_file *f) {
    return f->format;
}

bool model_file_packed_for(const model_file *f, compute_mode *out) {
    *out = f->is_packed ? f->compute : *out;
    return f->is_packed;
}

void model_file_watch(model_file *f, load_watch watch) {
    f->watch = watch;
}

load_watch model_file_watcher(const model_file *f) {
    return f->watch;
}

const char *model_file_quantise(const model_file *f) {
    return f->quantise != NULL ? f->quantise : "";
}

const char *model_file_path(const model_file *f) {
    return f->path;
}

int32_t model_file_n_tensors(const model_file *f) {
    return f->tensors.n;
}

const tensor_view *model_file_tensor(const model_file *f, int32_t i) {
    return &f->tensors.views[i];
}

const tensor_view *model_file_find(const model_file *f, const char *name) {
    int32_t i = tensor_dir_find(&f->tensors, str_of(name));
    return i < 0 ? NULL : &f->tensors.views[i];
}

const char *model_file_why_unread(const model_file *f, const char *name) {
    const char *why = tensor_dir_why_unread(&f->tensors, str_of(name));
    bool is_named = why == NULL && tensor_dir_find(&f->tensors, str_of(name)) < 0 &&
                    json_has(json_doc_find(&f->index, "weight_map"), name);
    return is_named ? "the index names it, but no file has it; download the model again" : why;
}

const vocab *model_file_vocab(const model_file *f) {
    return &f->vocab;
}

str model_file_chat_template(const model_file *f) {
    return f->chat_template;
}

/* Reads the modules of a sentence-transformers model. */

#define MAX_BYTES ((size_t)1 << 20)

/* Appends "DIRECTORY/NAME". */
static quire_err modules_join(const file_module *m, const char *name, strbuf *out, quire_error *err) {
    return open_file_join(out, m->path, name, err);
}

static quire_err read_config(model_file *f, file_module *m, quire_error *err) {
    strbuf name = {0};
    TRY(modules_join(m, "config.json", &name, err));
    quire_err e = hf_read_json(f, name.p, MAX_BYTES, &m->config_text, &m->config, err);
    strbuf_deinit(&name);
    return e;
}

static quire_err bad_module(const model_file *f, int32_t i, const char *what, quire_error *err) {
    return err_set(err, QUIRE_BAD_FILE, -1, "%s/modules.json: module %d: %s", f->path, (int)i, what);
}

static quire_err add_module(model_file *f, json_value *entry, quire_error *err) {
    int32_t i = f->n_modules;
    file_module *m = &f->modules[i];
    str path = json_get_str(entry, "path");
    m->type = json_get_str(entry, "type");
    if (!json_is(entry, JSON_KIND_OBJECT) || m->type.n == 0 || memchr(m->type.p, 0, m->type.n) != NULL) {
        return bad_module(f, i, "it names no type", err);
    }
    if (path.n >= sizeof m->path || (path.n > 0 && !hf_is_plain_name(path))) {
        return bad_module(f, i, "its path must be a plain name inside the directory", err);
    }
    mem_copy(m->path, path.p, path.n);
    m->path[path.n] = 0;
    f->n_modules++;
    return path.n > 0 ? read_config(f, m, err) : QUIRE_OK;
}

quire_err modules_read(model_file *f, quire_error *err) {
    TRY(hf_read_list(f, "modules.json", MAX_BYTES, &f->modules_text, &f->modules_list, err));
    const json_value *list = f->modules_list.root;
    size_t n = list != NULL ? json_length(list) : 0;
    if (n > MAX_MODULES) {
        return err_set(err, QUIRE_BAD_FILE, -1, "%s/modules.json: %s modules are more than any model has",
                       f->path, show_count(n).text);
    }
    for (size_t i = 0; i < n; i++) {
        TRY(add_module(f, json_at(list, i), err));
    }
    return QUIRE_OK;
}

/* ---- weights ---- */

static quire_err check_pickle(const model_file *f, const file_module *m, quire_error *err) {
    strbuf path = {0};
    quire_err e = strbuf_addf(&path, "%s/%s/pytorch_model.bin", f->path, m->path);
    if (e == QUIRE_OK && access(path.p, F_OK) == 0) {
        e = err_set(err, QUIRE_UNSUPPORTED, -1,
                    "%s: a module's weights are a PyTorch pickle, a program that Quire never runs; convert "
                    "it to safetensors",
                    path.p);
    } else if (e != QUIRE_OK) {
        err_set(err, e, -1, "%s: no memory for the path of %s", f->path, m->path);
    }
    strbuf_deinit(&path);
    return e;
}

static quire_err file_modules_add_weights(model_file *f, const file_module *m, int32_t part,
                                          quire_error *err) {
    strbuf path = {0};
    file_map map = {0};
    quire_error why = {0};
    char prefix[sizeof m->path + 1];
    quire_err e = strbuf_addf(&path, "%s/%s/model.safetensors", f->path, m->path);
    if (e != QUIRE_OK) {
        return err_set(err, e, -1, "%s: no memory for the path of %s", f->path, m->path);
    }
    (void)snprintf(prefix, sizeof prefix, "%s/", m->path);
    e = open_file_map(f, path.p, SIZE_MAX, &map, &why);
    if (e == QUIRE_OK) {
        f->tensors.prefix = prefix;
        e = safetensors_parse(map.p, map.n, path.p, part, &f->tensors, err);
        f->tensors.prefix = NULL;
    } else if (e == QUIRE_NOT_FOUND) {
        e = check_pickle(f, m, err);
    } else if (err != NULL) {
        *err = why;
    }
    strbuf_deinit(&path);
    return e;
}

quire_err modules_add_weights(model_file *f, int32_t part, quire_error *err) {
    assert(f != NULL);
    for (int32_t i = 0; i < f->n_modules; i++) {
        if (f->modules[i].path[0] != 0) {
            TRY(file_modules_add_weights(f, &f->modules[i], part + i, err));
        }
    }
    return QUIRE_OK;
}

/* ---- what they say ---- */

int32_t model_file_n_modules(const model_file *f) {
    return f->n_modules;
}

str model_module_type(const model_file *f, int32_t i) {
    return f->modules[i].type;
}

const char *model_module_path(const model_file *f, int32_t i) {
    return f->modules[i].path;
}

meta_value model_module_value(const model_file *f, int32_t i, const char *key) {
    return json_doc_meta(json_doc_find(&f->modules[i].config, key));
}

#define DIRECTORY          TEMPLATES_DIRECTORY
#define ENDING             ".jinja"
#define GGUF_KEY           "tokenizer.chat_template."
#define MAX_TEMPLATE_BYTES ((size_t)4 << 20)

/* Adds a template, unless there is one of that name, its name is too long or the list is
 * full. */
static void templates_add(model_file *f, str name, str text) {
    bool fits =
        name.n > 0 && name.n < sizeof f->templates[0].name && f->n_templates < MAX_TEMPLATES && text.n > 0;
    for (size_t i = 0; i < f->n_templates; i++) {
        fits = fits && !str_is(name, f->templates[i].name);
    }
    if (fits && !str_is(name, "default")) {
        file_template *t = &f->templates[f->n_templates++];
        memcpy(t->name, name.p, name.n);
        t->name[name.n] = '\0';
        t->text = text;
    }
}

/* Returns NAME of "NAME.jinja"; empty for another file. */
static str name_of(str file) {
    return str_ends(file, ENDING) ? (str){file.p, file.n - strlen(ENDING)} : (str){0};
}

static void add_packed(model_file *f) {
    for (size_t i = 0; i < f->n_sections; i++) {
        str s = f->sections[i].name;
        size_t n = strlen(DIRECTORY "/");
        if (str_begins(s, DIRECTORY "/")) {
            templates_add(f, name_of((str){s.p + n, s.n - n}), f->sections[i].data);
        }
    }
}

static int templates_compare_names(const void *a, const void *b) {
    return strcmp(a, b);
}

/* Lists the names of the directory's templates, sorted; at most MAX_TEMPLATES. */
static size_t templates_list_directory(const model_file *f, char names[MAX_TEMPLATES][MAX_TEMPLATE_NAME]) {
    strbuf path = {0};
    DIR *d = open_file_join(&path, f->path, DIRECTORY, NULL) == QUIRE_OK ? opendir(path.p) : NULL;
    strbuf_deinit(&path);
    size_t n = 0;
    for (struct dirent *entry; d != NULL && n < MAX_TEMPLATES && (entry = readdir(d)) != NULL;) {
        str name = name_of(str_of(entry->d_name));
        if (name.n > 0 && name.n < MAX_TEMPLATE_NAME) {
            memcpy(names[n], name.p, name.n);
            names[n++][name.n] = '\0';
        }
    }
    if (d != NULL) {
        closedir(d);
    }
    qsort(names, n, MAX_TEMPLATE_NAME, templates_compare_names);
    return n;
}

static quire_err templates_add_directory(model_file *f, quire_error *err) {
    char names[MAX_TEMPLATES][MAX_TEMPLATE_NAME], file[sizeof DIRECTORY + MAX_TEMPLATE_NAME + sizeof ENDING];
    size_t n = templates_list_directory(f, names);
    for (size_t i = 0; i < n; i++) {
        str text = {0};
        (void)snprintf(file, sizeof file, "%s/%.*s%s", DIRECTORY, MAX_TEMPLATE_NAME - 1, names[i], ENDING);
        TRY(hf_read_text(f, file, MAX_TEMPLATE_BYTES, &text, err));
        templates_add(f, str_of(names[i]), text);
    }
    return QUIRE_OK;
}

/* Adds the templates of tokenizer_config.json or chat_template.json: one string, or a
 * list with names. */
static void templates_add_configured(model_file *f, const json_doc *doc) {
    json_value *v = json_doc_find(doc, "chat_template");
    meta_value whole = json_doc_meta(v);
    if (whole.kind == META_STR && f->chat_template.n == 0) {
        f->chat_template = whole.s;
    }
    for (size_t i = 0; whole.kind == META_ARRAY && i < whole.n; i++) {
        json_value *entry = json_at(v, i);
        meta_value text = json_doc_meta(json_get(entry, "template"));
        const char *name =
            json_is(json_get(entry, "name"), JSON_KIND_TEXT) ? json_str(json_get(entry, "name")).p : "";
        if (text.kind == META_STR && strcmp(name, "default") == 0 && f->chat_template.n == 0) {
            f->chat_template = text.s;
        } else if (text.kind == META_STR) {
            templates_add(f, str_of(name), text.s);
        }
    }
}

quire_err hf_read_templates(model_file *f, quire_error *err) {
    TRY(hf_read_text(f, "chat_template.jinja", MAX_TEMPLATE_BYTES, &f->template_text, err));
    f->chat_template = f->template_text;
    if (f->is_packed) {
        add_packed(f);
    } else {
        TRY(templates_add_directory(f, err));
    }
    templates_add_configured(f, &f->tokenizer_config);
    TRY(hf_read_json(f, "chat_template.json", MAX_TEMPLATE_BYTES, &f->template_json_text, &f->template_json,
                     err));
    templates_add_configured(f, &f->template_json); /* image models have their templates there */
    return QUIRE_OK;
}

/* Adds a list of texts in place of the default template. tokenizer.chat_templates names
 * them if it has the same length. The default is the text named "default", else the
 * first. */
static void add_gguf_list(model_file *f, const meta_value *list) {
    str first = {0}, name, text;
    size_t n_names = 0;
    bool is_named = model_file_str_at(f, "tokenizer.chat_templates", 0, &name, &n_names) == QUIRE_OK &&
                    n_names == list->n;
    for (size_t i = 0; i < list->n; i++) {
        if (model_file_str_at(f, "tokenizer.chat_template", i, &text, NULL) != QUIRE_OK || text.n == 0) {
            continue;
        }
        first = first.n == 0 ? text : first;
        if (is_named && model_file_str_at(f, "tokenizer.chat_templates", i, &name, NULL) == QUIRE_OK &&
            str_is(name, "default")) {
            f->chat_template = f->chat_template.n == 0 ? text : f->chat_template;
        } else if (is_named) {
            templates_add(f, name, text);
        }
    }
    f->chat_template = f->chat_template.n == 0 ? first : f->chat_template;
}

/* Reads the default template. Ignores one that is neither a text nor a list of texts,
 * because the model can be used without it. */
static void read_gguf_default(model_file *f) {
    meta_value v = open_file_meta(f, "tokenizer.chat_template");
    if (v.kind == META_STR) {
        f->chat_template = v.s;
    } else if (v.kind == META_ARRAY) {
        add_gguf_list(f, &v);
    }
    if (v.kind != META_ABSENT && v.kind != META_STR && f->chat_template.n == 0) {
        log_line(LOG_WARN, "%s: tokenizer.chat_template is neither a string nor a list of strings: ignored",
                 f->path);
    }
}

void gguf_read_templates(model_file *f) {
    assert(f != NULL);
    read_gguf_default(f);
    for (int32_t i = 0; i < f->gguf.n_keys; i++) {
        const gguf_key *k = &f->gguf.keys[i];
        meta_value v = gguf_meta(&k->value);
        if (str_begins(k->name, GGUF_KEY) && v.kind == META_STR) {
            size_t n = strlen(GGUF_KEY);
            templates_add(f, (str){k->name.p + n, k->name.n - n}, v.s);
        }
    }
}

size_t model_file_n_templates(const model_file *f) {
    return f->n_templates;
}

void model_file_template(const model_file *f, size_t i, str *name, str *text) {
    *name = str_of(f->templates[i].name);
    *text = f->templates[i].text;
}
