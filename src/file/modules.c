/* Reads the modules of a sentence-transformers model. */
#include "file/modules.h"

#include <assert.h>
#include <stdio.h>
#include <unistd.h>

#include "base/mem.h"
#include "file/open_file.h"
#include "file/show.h"

#define MAX_BYTES ((size_t)1 << 20)

/* "DIRECTORY/NAME". */
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

void modules_deinit(model_file *f) {
    assert(f != NULL);
    for (int32_t i = 0; i < f->n_modules; i++) {
        json_doc_deinit(&f->modules[i].config);
    }
    json_doc_deinit(&f->modules_list);
    f->n_modules = 0;
}

/* ---- weights ---- */

static quire_err check_pickle(const model_file *f, const file_module *m, quire_error *err) {
    strbuf path = {0};
    quire_err e = strbuf_addf(&path, "%s/%s/pytorch_model.bin", f->path, m->path);
    if (e == QUIRE_OK && access(path.p, F_OK) == 0) {
        e = err_set(
            err, QUIRE_UNSUPPORTED, -1,
            "%s: a module's weights as a PyTorch pickle, which is a program; convert it to safetensors",
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
