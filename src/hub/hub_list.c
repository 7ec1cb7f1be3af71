/* quire_hub_list: the models of the cache, one for each revision's safetensors and one
 * for each GGUF model. */
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "base/mem.h"
#include "file/map.h"
#include "hub/hub_cache.h"
#include "hub/hub_choose.h"
#include "hub/hub_name.h"
#include "json/json.h"

#define MAX_CONFIG_BYTES ((size_t)16 << 20)

typedef struct listing_of_cache {
    const char *cache;
    quire_error *err;        /* of a directory that cannot be read */
    quire_hub_model *models; /* mem_new'd */
    size_t n, cap;
    /* the current path */
    char repo[194];
    hub_repo at;
    hub_listing files;
    char commit[41];
    bool has_snapshot;
} listing_of_cache;

/* Appends a model of this snapshot. */
static quire_err hub_list_add(listing_of_cache *x, quire_hub_model **out) {
    TRY(mem_grow(&x->models, &x->cap, x->n + 1, sizeof *x->models));
    *out = &x->models[x->n++];
    **out = (quire_hub_model){.is_whole = false};
    hub_repo_name_commit(&x->at, x->commit, (*out)->revision);
    return QUIRE_OK;
}

static void hub_list_count(quire_hub_model *m, const hub_file *f) {
    m->bytes += f->n_bytes;
    m->used_unix_s = f->used_unix_s > m->used_unix_s ? f->used_unix_s : m->used_unix_s;
}

/* ---- GGUF ---- */

/* How many models of the snapshot have this quantisation. */
static int count_of_quant(const hub_listing *l, str quant) {
    int n = 0;
    hub_gguf g;
    for (size_t i = 0; i < l->n; i++) {
        n += hub_gguf_read(str_of(l->files[i].path), &g) && hub_quant_same(g.quant, quant) && g.part == 1;
    }
    return n;
}

/* Adds the model whose part file i is, unless an earlier file is of it. */
static quire_err hub_list_add_gguf(listing_of_cache *x, size_t i, const hub_gguf *g) {
    const hub_listing *l = &x->files;
    hub_gguf other;
    quire_hub_model *m;
    for (size_t k = 0; k < i; k++) {
        if (hub_gguf_read(str_of(l->files[k].path), &other) && str_eq(other.stem, g->stem) &&
            other.n_parts == g->n_parts) {
            return QUIRE_OK;
        }
    }
    TRY(hub_list_add(x, &m));
    bool by_quant = g->quant.n > 0 && count_of_quant(l, g->quant) <= 1;
    str label = by_quant ? g->quant : str_of(l->files[i].path);
    (void)snprintf(m->name, sizeof m->name, "%s:%.*s", x->repo, (int)label.n, label.p);
    (void)snprintf(m->quantisation, sizeof m->quantisation, "%.*s", (int)g->quant.n, g->quant.p);
    int32_t n_parts = 0;
    for (size_t k = i; k < l->n; k++) {
        if (hub_gguf_read(str_of(l->files[k].path), &other) && str_eq(other.stem, g->stem) &&
            other.n_parts == g->n_parts) {
            hub_list_count(m, &l->files[k]);
            n_parts++;
        }
    }
    m->is_whole = n_parts == g->n_parts;
    return QUIRE_OK;
}

/* ---- safetensors ---- */

/* config.json's quantisation, else its type of weights. */
static void hub_list_read_quantisation(const listing_of_cache *x, char *out, size_t n) {
    strbuf path = {0};
    file_map map = {0};
    bool is_there = hub_repo_file(&x->at, x->commit, "config.json", &path, NULL) == QUIRE_OK &&
                    file_map_open(path.p, MAX_CONFIG_BYTES, &map, NULL) == QUIRE_OK;
    strbuf_deinit(&path);
    if (!is_there) {
        return;
    }
    json_value *root = json_document(file_map_text(&map));
    const json_value *text = json_get(root, "text_config");
    const str found[] = {json_get_str(json_get(root, "quantization_config"), "quant_method"),
                         json_get_str(root, "torch_dtype"), json_get_str(root, "dtype"),
                         json_get_str(text, "torch_dtype"), json_get_str(text, "dtype")};
    for (size_t i = 0; i < sizeof found / sizeof *found && out[0] == 0; i++) {
        (void)snprintf(out, n, "%.*s", (int)found[i].n, found[i].n > 0 ? found[i].p : "");
    }
    json_drop(root);
    file_map_close(&map);
}

/* Whether the snapshot has all shards that its index names, where it has one. */
static bool has_all_shards(const listing_of_cache *x, hub_choice *c) {
    strbuf path = {0};
    file_map map = {0};
    bool has = hub_repo_file(&x->at, x->commit, HUB_INDEX, &path, NULL) == QUIRE_OK &&
               file_map_open(path.p, (size_t)256 << 20, &map, NULL) == QUIRE_OK;
    if (has) {
        has = hub_choose_shards(&x->files, x->repo, file_map_text(&map), c, NULL) == QUIRE_OK;
        file_map_close(&map);
    }
    strbuf_deinit(&path);
    return has;
}

/* Adds a model that is not in GGUF, if there is a config or weights. */
static quire_err hub_list_add_directory(listing_of_cache *x) {
    hub_choice c;
    hub_gguf g;
    quire_hub_model *m;
    quire_err e = hub_choose(&x->files, x->repo, "", &c, NULL);
    bool is_one = e == QUIRE_OK && c.first < 0;
    bool is_whole =
        is_one && c.has_weights && hub_has_texts(&x->files) && (c.index < 0 || has_all_shards(x, &c));
    hub_choice_deinit(&c);
    if (!is_one) {
        return e == QUIRE_NO_MEMORY ? e : QUIRE_OK;
    }
    TRY(hub_list_add(x, &m));
    (void)snprintf(m->name, sizeof m->name, "%s", x->repo);
    for (size_t i = 0; i < x->files.n; i++) {
        if (!hub_gguf_read(str_of(x->files.files[i].path), &g)) {
            hub_list_count(m, &x->files.files[i]);
        }
    }
    hub_list_read_quantisation(x, m->quantisation, sizeof m->quantisation);
    m->is_whole = is_whole;
    return QUIRE_OK;
}

/* ---- the walk ---- */

static quire_err add_snapshot(listing_of_cache *x) {
    hub_gguf g;
    TRY(hub_list_add_directory(x));
    for (size_t i = 0; i < x->files.n; i++) {
        if (hub_gguf_read(str_of(x->files.files[i].path), &g)) {
            TRY(hub_list_add_gguf(x, i, &g));
        }
    }
    return QUIRE_OK;
}

static quire_err hub_list_visit_snapshot(void *user, const char *name) {
    listing_of_cache *x = user;
    if (!hub_is_hex(str_of(name), 40)) {
        return QUIRE_OK;
    }
    memcpy(x->commit, name, sizeof x->commit);
    quire_err e = hub_repo_list(&x->at, name, &x->files, x->err);
    size_t n = x->n;
    e = e == QUIRE_OK ? add_snapshot(x) : e == QUIRE_NOT_FOUND ? QUIRE_OK : e;
    x->has_snapshot = x->has_snapshot || x->n > n;
    hub_listing_deinit(&x->files);
    return e;
}

/* Adds up blobs without a snapshot, left by an interrupted pull. */
static quire_err hub_list_visit_blob(void *user, const char *name) {
    listing_of_cache *x = user;
    struct stat st;
    strbuf path = {0};
    quire_err e = hub_repo_blob(&x->at, name, "", &path, NULL);
    if (e == QUIRE_OK && lstat(path.p, &st) == 0 && S_ISREG(st.st_mode)) {
        const hub_file f = {.n_bytes = (int64_t)st.st_size, .used_unix_s = (int64_t)st.st_mtime};
        hub_list_count(&x->models[x->n - 1], &f);
    }
    strbuf_deinit(&path);
    return e;
}

static quire_err add_interrupted(listing_of_cache *x) {
    strbuf path = {0};
    quire_err e = mem_grow(&x->models, &x->cap, x->n + 1, sizeof *x->models);
    TRY_DONE(e, hub_repo_directory(&x->at, "blobs", &path));
    quire_hub_model *m = &x->models[x->n++];
    *m = (quire_hub_model){.is_whole = false};
    (void)snprintf(m->name, sizeof m->name, "%s", x->repo);
    e = hub_visit_all(path.p, hub_list_visit_blob, x, x->err);
    x->n -= x->models[x->n - 1].bytes == 0; /* no blob either */
done:
    strbuf_deinit(&path);
    return e;
}

static quire_err visit_repo(void *user, const char *name) {
    listing_of_cache *x = user;
    strbuf path = {0};
    if (!hub_repo_of_directory(name, x->repo)) {
        return QUIRE_OK;
    }
    x->has_snapshot = false;
    quire_err e = hub_repo_init(x->cache, x->repo, &x->at, x->err);
    TRY_DONE(e, hub_repo_directory(&x->at, "snapshots", &path));
    TRY_DONE(e, hub_visit_all(path.p, hub_list_visit_snapshot, x, x->err));
    if (!x->has_snapshot) {
        e = add_interrupted(x);
    }
done:
    strbuf_deinit(&path);
    hub_repo_deinit(&x->at);
    return e;
}

static int hub_list_compare(const void *a, const void *b) {
    const quire_hub_model *x = a, *y = b;
    int order = strcmp(x->name, y->name);
    return order != 0 ? order : strcmp(x->revision, y->revision);
}

quire_err quire_hub_list(const quire_hub_options *o, quire_hub_model **models, size_t *n, quire_error *err) {
    quire_hub_options own;
    *models = NULL;
    *n = 0;
    TRY(hub_options_read(o, &own, err));
    listing_of_cache x = {.cache = own.cache, .err = err};
    quire_err e = hub_visit_all(own.cache, visit_repo, &x, err);
    if (e != QUIRE_OK) {
        mem_free(x.models);
        return e == QUIRE_IO ? e
                             : err_set(err, e, -1, "%s: its models could not be listed: %s", own.cache,
                                       quire_err_text(e));
    }
    if (x.n > 0) {
        qsort(x.models, x.n, sizeof *x.models, hub_list_compare);
    }
    *models = x.models;
    *n = x.n;
    return QUIRE_OK;
}
