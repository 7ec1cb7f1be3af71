/* quire_hub_list: lists the models in the cache, one for the safetensors of each revision
 * and one for each GGUF model. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/mem.h"
#include "file/map.h"
#include "hub/hub_cache.h"
#include "hub/hub_choose.h"
#include "hub/hub_name.h"
#include "json/json.h"

#define MAX_CONFIG_BYTES ((size_t)16 << 20)

typedef struct listing_of_cache {
    const char *cache;
    quire_error *err;        /* out: names a directory that cannot be read */
    quire_hub_model *models; /* owned; memory of mem_new */
    size_t n, cap;
    /* the repository and snapshot that are visited now */
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

/* Number of models in the snapshot with this quantisation. */
static int count_of_quant(const hub_listing *l, str quant) {
    int n = 0;
    hub_gguf g;
    for (size_t i = 0; i < l->n; i++) {
        n += hub_gguf_read(str_of(l->files[i].path), &g) && hub_quant_same(g.quant, quant) && g.part == 1;
    }
    return n;
}

/* Adds the model of which file i is a part, unless it was added for an earlier part. */
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

/* Writes the quantisation that config.json names, else its type of weights. */
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

/* Whether the snapshot has all shards that its index names; true without an index. */
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

/* Adds the snapshot's model in safetensors, if there is a config or weights. */
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

/* Adds the size of a blob that an interrupted pull has left without a snapshot. */
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
    x->n -= x->models[x->n - 1].bytes == 0; /* no blob has bytes either */
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

/* quire_hub_remove. It checks everything before it removes anything, because an
 * unreadable directory may hold links to a blob. Then it removes references, links, and
 * the blobs to which no link points any more, in this order. A process that dies midway
 * leaves only blobs, which the next pull or removal finds. */

#define MAX_DEPTH 64 /* depth of directories below snapshots; a model's have at most 8 */

typedef struct removal {
    hub_name name;
    hub_repo repo;
    bool one_revision;       /* @REVISION was given */
    char commit[41];         /* commit of that revision */
    int32_t n_found, n_left; /* links or snapshots to remove; files to keep */
    int64_t bytes;
    hub_listing going; /* paths of links and snapshots to remove */
    hub_listing used;  /* names of blobs to which other links point, as paths; sorted */
    bool is_busy, failed;
} removal;

/* ---- trees ---- */

/* Removes an entry of the open directory and everything below it. Does not follow
 * links. */
static void remove_entry(int dir, const char *name, removal *x);

static void remove_below(int dir, const char *name, removal *x) {
    int fd = openat(dir, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    DIR *d = fd >= 0 ? fdopendir(fd) : NULL;
    for (struct dirent *entry = d != NULL ? readdir(d) : NULL; entry != NULL; entry = readdir(d)) {
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0) {
            remove_entry(dirfd(d), entry->d_name, x);
        }
    }
    if (d != NULL) {
        (void)closedir(d);
    } else if (fd >= 0) {
        (void)close(fd);
    }
}

static void remove_entry(int dir, const char *name, removal *x) {
    struct stat st;
    if (fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) != 0) {
        x->failed = x->failed || errno != ENOENT;
        return;
    }
    bool is_directory = S_ISDIR(st.st_mode);
    if (is_directory) {
        remove_below(dir, name, x);
    }
    if (unlinkat(dir, name, is_directory ? AT_REMOVEDIR : 0) != 0) {
        x->failed = x->failed || errno != ENOENT;
    } else if (S_ISREG(st.st_mode)) {
        x->bytes += (int64_t)st.st_size;
    }
}

static void remove_path(const char *path, removal *x) {
    remove_entry(AT_FDCWD, path, x);
}

/* ---- links ---- */

static bool hub_remove_is_wanted(const removal *x, const char *path) {
    hub_gguf g, wanted;
    if (!hub_path_is_safe(str_of(path)) || !hub_gguf_read(str_of(path), &g)) {
        return false;
    }
    if (hub_gguf_read(str_of(x->name.pick), &wanted)) {
        return str_eq(g.stem, wanted.stem) && g.n_parts == wanted.n_parts;
    }
    return hub_quant_same(g.quant, str_of(x->name.pick));
}

/* Position of a walk over the snapshots. */
typedef struct look {
    removal *of;
    const char *directory; /* directory whose entries are visited */
    size_t n_root;         /* length of the snapshot's path, a prefix of the entries' paths */
    bool loses_links;      /* the snapshot loses its links to the model */
    int depth;
    quire_error *err;
} look;

static quire_err unreadable(const char *path, quire_error *err) {
    return err_set(err, QUIRE_IO, -1, "%s: %s", path, strerror(errno));
}

/* Records the blob to which a link points, whatever its name. Does nothing for other
 * entries. */
static quire_err note_used(removal *x, const char *path, quire_error *err) {
    char target[4096];
    ssize_t n = readlink(path, target, sizeof target - 1);
    if (n < 0) {
        return errno == EINVAL ? QUIRE_OK : unreadable(path, err);
    }
    target[n] = 0;
    const char *slash = strrchr(target, '/');
    return hub_listing_add(&x->used, str_of(slash != NULL ? slash + 1 : target), (str){"", 0}, 0);
}

static quire_err visit_entry(void *user, const char *name);

/* Visits one entry: descends into a directory of any name; for other entries records
 * whether they are removed or used. */
static quire_err hub_remove_look_at(const look *l, str path) {
    struct stat st;
    removal *x = l->of;
    if (lstat(path.p, &st) != 0) {
        return unreadable(path.p, l->err);
    }
    if (S_ISDIR(st.st_mode)) {
        look below = *l;
        below.directory = path.p;
        below.depth++;
        return below.depth <= MAX_DEPTH
                   ? hub_visit_all(path.p, visit_entry, &below, l->err)
                   : err_set(l->err, QUIRE_IO, -1, "%s: its directories are nested deeper than in any model",
                             path.p);
    }
    if (l->loses_links && path.n > l->n_root && hub_remove_is_wanted(x, path.p + l->n_root + 1)) {
        x->n_found++;
        return hub_listing_add(&x->going, path, (str){"", 0}, 0);
    }
    x->n_left++;
    return note_used(x, path.p, l->err);
}

static quire_err visit_entry(void *user, const char *name) {
    const look *l = user;
    strbuf path = {0};
    quire_err e = strbuf_addf(&path, "%s/%s", l->directory, name);
    TRY_DONE(e, hub_remove_look_at(l, (str){path.p, path.n}));
done:
    strbuf_deinit(&path);
    return e;
}

/* Records a snapshot for removal, or the part of it to remove. */
static quire_err hub_remove_visit_snapshot(void *user, const char *name) {
    look l = *(const look *)user;
    removal *x = l.of;
    bool has_pick = x->name.pick[0] != 0, is_it = strcmp(name, x->commit) == 0;
    strbuf path = {0};
    quire_err e = strbuf_addf(&path, "%s/%s", l.directory, name);
    l.n_root = path.n;
    l.loses_links = has_pick && hub_is_hex(str_of(name), 40) && (is_it || !x->one_revision);
    if (e == QUIRE_OK && is_it && !has_pick) {
        x->n_found++;
        e = hub_listing_add(&x->going, (str){path.p, path.n}, (str){"", 0}, 0);
    } else if (e == QUIRE_OK) {
        e = hub_remove_look_at(&l, (str){path.p, path.n});
    }
    strbuf_deinit(&path);
    return e;
}

/* Finds what to remove and which blobs the other files use. */
static quire_err look_around(removal *x, quire_error *err) {
    strbuf path = {0};
    quire_err e = hub_repo_directory(&x->repo, "snapshots", &path);
    if (e == QUIRE_OK) {
        look l = {.of = x, .directory = path.p, .err = err};
        e = hub_visit_all(path.p, hub_remove_visit_snapshot, &l, err);
    }
    strbuf_deinit(&path);
    hub_listing_sort(&x->used);
    if (e == QUIRE_IO) {
        return err_prefix(err, e, "nothing was removed, because what cannot be read may be in use");
    }
    return err_set(err, e, -1, "%s: %s; nothing was removed", x->repo.dir, quire_err_text(e));
}

/* Removes a reference to the removed commit. */
static quire_err hub_remove_visit_ref(void *user, const char *name) {
    removal *x = user;
    char commit[41];
    strbuf path = {0};
    if (hub_repo_commit(&x->repo, name, commit) && strcmp(commit, x->commit) == 0 &&
        strbuf_addf(&path, "%s/refs/%s", x->repo.dir, name) == QUIRE_OK) {
        remove_path(path.p, x);
    }
    strbuf_deinit(&path);
    return QUIRE_OK;
}

/* ---- blobs ---- */

static quire_err hub_remove_visit_blob(void *user, const char *name) {
    removal *x = user;
    strbuf path = {0};
    if (hub_listing_find(&x->used, str_of(name)) < 0) {
        TRY(hub_repo_blob(&x->repo, name, "", &path, NULL));
        remove_path(path.p, x);
    }
    strbuf_deinit(&path);
    return QUIRE_OK;
}

/* Visits the entries of a directory of the repository. */
static quire_err visit_in(removal *x, const char *directory, hub_visit visit) {
    strbuf path = {0};
    quire_err e = hub_repo_directory(&x->repo, directory, &path);
    TRY_DONE(e, hub_visit_all(path.p, visit, x, NULL));
done:
    strbuf_deinit(&path);
    return e;
}

/* Removes the files that were found. Keeps the blobs if a link could not be removed. */
static quire_err remove_part(removal *x) {
    if (x->name.pick[0] == 0) {
        TRY(visit_in(x, "refs", hub_remove_visit_ref));
    }
    for (size_t i = 0; i < x->going.n; i++) {
        remove_path(x->going.files[i].path, x);
    }
    x->bytes = 0; /* bytes counts only blobs, not links and references */
    if (x->failed) {
        return QUIRE_IO;
    }
    if (x->n_left == 0) {
        remove_path(x->repo.dir, x);
        return QUIRE_OK;
    }
    return visit_in(x, "blobs", hub_remove_visit_blob);
}

/* ---- locks ---- */

/* Sets is_busy if another program holds a blob's lock. */
static quire_err visit_lock(void *user, const char *name) {
    removal *x = user;
    char id[HUB_DIGEST_BYTES];
    size_t n = strlen(name);
    int fd;
    if (n > 5 && n - 5 < sizeof id && str_ends(str_of(name), ".lock") && strcmp(name, "quire.lock") != 0) {
        (void)snprintf(id, sizeof id, "%.*s", (int)(n - 5), name);
        x->is_busy = hub_lock(&x->repo, id, HUB_LOCK_EXCLUSIVE, &fd, NULL) == QUIRE_BUSY || x->is_busy;
        hub_unlock(fd);
    }
    return QUIRE_OK;
}

static quire_err remove_locked(removal *x, quire_error *err) {
    const char *repo = x->name.repo;
    bool is_whole = x->name.pick[0] == 0 && !x->one_revision;
    quire_err e = QUIRE_OK;
    TRY(hub_visit_all(x->repo.locks, visit_lock, x, err));
    if (x->is_busy) {
        return err_set(err, QUIRE_BUSY, -1, "%s: another program is fetching it; wait for that, or stop it",
                       repo);
    }
    if (!is_whole) {
        TRY(look_around(x, err));
    }
    if (!is_whole && x->n_found == 0) {
        return err_set(err, QUIRE_NOT_FOUND, -1, "%s%s%s: not in the cache; `quire list` shows what is", repo,
                       x->name.pick[0] != 0 ? ":" : "@",
                       x->name.pick[0] != 0 ? x->name.pick : x->name.revision);
    }
    if (is_whole) {
        remove_path(x->repo.dir, x);
    } else {
        e = remove_part(x);
    }
    if (e != QUIRE_OK || x->failed) {
        return err_set(err, e != QUIRE_OK ? e : QUIRE_IO, -1,
                       "%s: some of it could not be removed; may this user write there?", x->repo.dir);
    }
    return QUIRE_OK;
}

static quire_err hub_remove_run(removal *x, const char *cache, quire_error *err) {
    struct stat st;
    int lock;
    TRY(hub_repo_init(cache, x->name.repo, &x->repo, err));
    bool there = lstat(x->repo.dir, &st) == 0 && S_ISDIR(st.st_mode);
    if (!there || (x->one_revision && !hub_repo_commit(&x->repo, x->name.revision, x->commit))) {
        return err_set(err, QUIRE_NOT_FOUND, -1, "%s%s%s: not in the cache %s; `quire list` shows what is",
                       x->name.repo, there ? "@" : "", there ? x->name.revision : "", cache);
    }
    TRY(hub_repo_make(&x->repo, err)); /* creates the directory of locks */
    quire_err e = hub_lock(&x->repo, "quire", HUB_LOCK_EXCLUSIVE, &lock, err);
    if (e == QUIRE_BUSY) {
        return err_set(err, e, -1, "%s: another process is pulling it; wait for that, or stop it",
                       x->name.repo);
    }
    TRY_DONE(e, remove_locked(x, err));
done:
    hub_unlock(lock);
    return e;
}

quire_err quire_hub_remove(const quire_hub_options *o, const char *name, int64_t *bytes, quire_error *err) {
    quire_hub_options own;
    removal x = {.one_revision = strchr(name, '@') != NULL};
    *bytes = 0;
    TRY(hub_options_read(o, &own, err));
    TRY(hub_name_parse(name, &x.name, err));
    quire_err e = hub_remove_run(&x, own.cache, err);
    hub_listing_deinit(&x.going);
    hub_listing_deinit(&x.used);
    hub_repo_deinit(&x.repo);
    *bytes = x.bytes;
    return e;
}
