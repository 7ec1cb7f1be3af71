#include "file/templates.h"

#include <assert.h>
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/log.h"
#include "file/open_file.h"

#define DIRECTORY          TEMPLATES_DIRECTORY
#define ENDING             ".jinja"
#define GGUF_KEY           "tokenizer.chat_template."
#define MAX_TEMPLATE_BYTES ((size_t)4 << 20)

/* Adds a template unless there is one of its name, or no room for its name or for one
 * more. */
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

/* The name in "NAME.jinja"; empty for another file. */
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

/* The names of the directory's templates, sorted; at most MAX_TEMPLATES. */
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

/* The templates of tokenizer_config.json or chat_template.json: one string, or several of
 * names. */
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
    templates_add_configured(f, &f->template_json); /* checkpoints with images have theirs there */
    return QUIRE_OK;
}

/* A list in place of the default template: texts, which tokenizer.chat_templates names
 * where it is as long. The one named "default" counts, else the first. */
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

/* A template that is neither a text nor a list of them is none: the model is of use
 * without. */
static void read_gguf_default(model_file *f) {
    meta_value v = open_file_meta(f, "tokenizer.chat_template");
    if (v.kind == META_STR) {
        f->chat_template = v.s;
    } else if (v.kind == META_ARRAY) {
        add_gguf_list(f, &v);
    }
    if (v.kind != META_ABSENT && v.kind != META_STR && f->chat_template.n == 0) {
        log_line(LOG_WARN, "%s: tokenizer.chat_template is neither a text nor a list of texts: ignored",
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
