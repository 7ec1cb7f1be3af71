/* quire_hub_remove. First go the references, then the links, then the blobs that no link leads to any more: a process that dies in between
 * leaves blobs that the next pull or removal finds. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "file/hub_options.h"
#include "file/hub_quant.h"
#include "file/hub_shelf.h"

typedef struct removal {
    hub_name name;
    hub_repo repo;
    bool one_revision;       /* @REVISION was given */
    char commit[41];         /* then its commit */
    int32_t n_found, n_left; /* links, or snapshots, that were removed; files that are left */
    int64_t bytes;
    hub_listing used; /* blobs that links lead to, as paths */
    bool is_busy, failed;
} removal;

/* ---- trees ---- */

/* Removes an entry of the open directory, with all that is below it. A link is removed, not followed. */
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

static bool is_wanted(const removal *x, const char *path) {
    hub_gguf g, wanted;
    if (!hub_gguf_read(str_of(path), &g)) {
        return false;
    }
    if (hub_gguf_read(str_of(x->name.pick), &wanted)) {
        return str_eq(g.stem, wanted.stem) && g.n_parts == wanted.n_parts;
    }
    return hub_quant_same(g.quant, str_of(x->name.pick));
}

/* Removes the links of one snapshot that are to go, and notes which blobs the others lead to. */
static quire_err remove_links(removal *x, const char *commit) {
    hub_listing l;
    TRY(hub_repo_list(&x->repo, commit, &l, NULL));
    bool is_it = !x->one_revision || strcmp(commit, x->commit) == 0;
    quire_err e = QUIRE_OK;
    for (size_t i = 0; i < l.n && e == QUIRE_OK; i++) {
        strbuf path = {0};
        e = hub_repo_file(&x->repo, commit, l.files[i].path, &path, NULL);
        if (e == QUIRE_OK && is_it && x->name.pick[0] != 0 && is_wanted(x, l.files[i].path)) {
            remove_path(path.p, x);
            x->n_found++;
        } else if (e == QUIRE_OK) {
            e = hub_listing_add(&x->used, str_of(l.files[i].id), (str){"", 0}, 0);
            x->n_left++;
        }
        strbuf_deinit(&path);
    }
    hub_listing_deinit(&l);
    return e;
}

static quire_err visit_snapshot(void *user, const char *commit) {
    removal *x = user;
    if (!hub_is_hex(str_of(commit), 40)) {
        return QUIRE_OK;
    }
    if (x->name.pick[0] != 0 || strcmp(commit, x->commit) != 0) {
        return remove_links(x, commit);
    }
    strbuf path = {0};
    quire_err e = hub_repo_file(&x->repo, commit, NULL, &path, NULL);
    if (e == QUIRE_OK) {
        remove_path(path.p, x);
        x->n_found++;
    }
    strbuf_deinit(&path);
    return e;
}

/* Removes a reference to the commit that goes. */
static quire_err visit_ref(void *user, const char *name) {
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

static quire_err visit_blob(void *user, const char *name) {
    removal *x = user;
    strbuf path = {0};
    if (hub_listing_find(&x->used, str_of(name)) < 0) {
        TRY(hub_repo_blob(&x->repo, name, "", &path, NULL));
        remove_path(path.p, x);
    }
    strbuf_deinit(&path);
    return QUIRE_OK;
}

/* Visits what is in a directory of the repository. */
static quire_err visit_in(removal *x, const char *directory, hub_visit visit) {
    strbuf path = {0};
    quire_err e = hub_repo_directory(&x->repo, directory, &path);
    e = e == QUIRE_OK ? hub_visit_all(path.p, visit, x) : e;
    strbuf_deinit(&path);
    return e;
}

static quire_err remove_part(removal *x) {
    TRY(x->name.pick[0] == 0 ? visit_in(x, "refs", visit_ref) : QUIRE_OK);
    int64_t before = x->bytes;
    TRY(visit_in(x, "snapshots", visit_snapshot));
    x->bytes = before; /* links and references are no content */
    if (x->n_found == 0) {
        return QUIRE_NOT_FOUND;
    }
    if (x->n_left == 0) {
        remove_path(x->repo.dir, x);
        return QUIRE_OK;
    }
    hub_listing_sort(&x->used);
    return visit_in(x, "blobs", visit_blob);
}

/* ---- locks ---- */

/* Sees whether another program writes a blob, and removes what a killed process left. */
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
    (void)hub_visit_all(x->repo.locks, visit_lock, x);
    if (x->is_busy) {
        return err_set(err, QUIRE_BUSY, -1, "%s: another program is fetching it; wait for that, or stop it", repo);
    }
    quire_err e = QUIRE_OK;
    if (x->name.pick[0] == 0 && !x->one_revision) {
        remove_path(x->repo.dir, x);
    } else {
        e = remove_part(x);
    }
    if (e == QUIRE_NOT_FOUND) {
        return err_set(err, e, -1, "%s%s%s: not in the cache; `quire list` shows what is", repo, x->name.pick[0] != 0 ? ":" : "@",
                       x->name.pick[0] != 0 ? x->name.pick : x->name.revision);
    }
    if (e != QUIRE_OK || x->failed) {
        return err_set(err, e != QUIRE_OK ? e : QUIRE_IO, -1, "%s: not all of it could be removed; may this user write there?",
                       x->repo.dir);
    }
    return QUIRE_OK;
}

static quire_err run(removal *x, const char *cache, quire_error *err) {
    struct stat st;
    int lock;
    TRY(hub_repo_init(cache, x->name.repo, &x->repo, err));
    bool there = lstat(x->repo.dir, &st) == 0 && S_ISDIR(st.st_mode);
    if (!there || (x->one_revision && !hub_repo_commit(&x->repo, x->name.revision, x->commit))) {
        return err_set(err, QUIRE_NOT_FOUND, -1, "%s%s%s: not in the cache %s; `quire list` shows what is", x->name.repo, there ? "@" : "",
                       there ? x->name.revision : "", cache);
    }
    TRY(hub_repo_make(&x->repo, err)); /* for the locks' directory */
    quire_err e = hub_lock(&x->repo, "quire", HUB_LOCK_EXCLUSIVE, &lock, err);
    if (e == QUIRE_BUSY) {
        return err_set(err, e, -1, "%s: another process is pulling it; wait for that, or stop it", x->name.repo);
    }
    e = e == QUIRE_OK ? remove_locked(x, err) : e;
    hub_unlock(lock);
    return e;
}

quire_err quire_hub_remove(const quire_hub_options *o, const char *name, int64_t *bytes, quire_error *err) {
    quire_hub_options own;
    removal x = {.one_revision = strchr(name, '@') != NULL};
    *bytes = 0;
    TRY(hub_options_read(o, &own, err));
    TRY(hub_name_parse(name, &x.name, err));
    quire_err e = run(&x, own.cache, err);
    hub_listing_deinit(&x.used);
    hub_repo_deinit(&x.repo);
    *bytes = x.bytes;
    return e;
}
