#include "hub/hub_cache.h"

#include <assert.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/mem.h"

#define MAX_DEPTH 8

static quire_err hub_cache_failed(const char *path, quire_error *err) {
    return err_set(err, QUIRE_IO, -1, "%s: %s", path, strerror(errno));
}

static quire_err hub_cache_no_memory(quire_err e, const hub_repo *r, quire_error *err) {
    return err_set(err, e, -1, "%s: out of memory", r->dir != NULL ? r->dir : "the cache");
}

/* ---- paths ---- */

quire_err hub_repo_init(const char *cache, const char *repo, hub_repo *out, quire_error *err) {
    strbuf dir = {0}, locks = {0};
    const char *slash = strchr(repo, '/');
    size_t n_org = (size_t)(slash - repo);
    *out = (hub_repo){NULL, NULL};
    quire_err e = strbuf_addf(&dir, "%s/models--%.*s--%s", cache, (int)n_org, repo, slash + 1);
    TRY_DONE(e, strbuf_addf(&locks, "%s/.locks/models--%.*s--%s", cache, (int)n_org, repo, slash + 1));
    out->dir = mem_dup(dir.p, dir.n);
    out->locks = mem_dup(locks.p, locks.n);
    e = out->dir != NULL && out->locks != NULL ? QUIRE_OK : QUIRE_NO_MEMORY;
done:
    strbuf_deinit(&dir);
    strbuf_deinit(&locks);
    return hub_cache_no_memory(e, out, err);
}

void hub_repo_deinit(hub_repo *r) {
    mem_free(r->dir);
    mem_free(r->locks);
    *r = (hub_repo){NULL, NULL};
}

quire_err hub_repo_blob(const hub_repo *r, const char *id, const char *suffix, strbuf *out,
                        quire_error *err) {
    assert(r != NULL);
    return hub_cache_no_memory(strbuf_addf(out, "%s/blobs/%s%s", r->dir, id, suffix), r, err);
}

quire_err hub_repo_file(const hub_repo *r, const char *commit, const char *path, strbuf *out,
                        quire_error *err) {
    assert(r != NULL);
    return hub_cache_no_memory(strbuf_addf(out, "%s/snapshots/%s%s%s", r->dir, commit,
                                           path != NULL ? "/" : "", path != NULL ? path : ""),
                               r, err);
}

/* Creates a directory and its parents; with `parent`, only the parents of path. */
static quire_err hub_cache_make_directories(const char *path, bool parent, quire_error *err) {
    char part[4096];
    size_t n = strlen(path);
    if (n >= sizeof part) {
        return err_set(err, QUIRE_IO, -1, "%.200s..: the path is too long", path);
    }
    for (size_t i = 1; i <= n; i++) {
        if (path[i] != '/' && (path[i] != 0 || parent)) {
            continue;
        }
        memcpy(part, path, i);
        part[i] = 0;
        if (mkdir(part, 0777) != 0 && errno != EEXIST && (path[i] == 0 || access(part, F_OK) != 0)) {
            return hub_cache_failed(part, err);
        }
    }
    return QUIRE_OK;
}

quire_err hub_repo_make(const hub_repo *r, quire_error *err) {
    static const char *const names[] = {"blobs", "refs", "snapshots"};
    strbuf path = {0};
    quire_err e = hub_cache_make_directories(r->locks, false, err);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        strbuf_clear(&path);
        TRY_DONE(e, hub_cache_no_memory(strbuf_addf(&path, "%s/%s", r->dir, names[i]), r, err));
        TRY_DONE(e, hub_cache_make_directories(path.p, false, err));
    }
done:
    strbuf_deinit(&path);
    return e;
}

/* ---- references ---- */

bool hub_repo_commit(const hub_repo *r, const char *revision, char commit[41]) {
    strbuf path = {0};
    char text[64];
    ssize_t n = -1;
    int fd = strbuf_addf(&path, "%s/refs/%s", r->dir, revision) == QUIRE_OK
                 ? open(path.p, O_RDONLY | O_CLOEXEC | O_NONBLOCK)
                 : -1;
    if (fd >= 0) {
        n = read(fd, text, sizeof text);
        (void)close(fd);
    }
    strbuf_deinit(&path);
    str found = n >= 40 ? (str){text, 40} : str_of(revision);
    bool is = hub_is_hex(found, 40);
    if (is) {
        memcpy(commit, found.p, 40);
        commit[40] = 0;
    }
    return is;
}

/* Writes text to a temporary file that then replaces path. It lies in the directory of
 * locks, because other programs would take a file left there by a killed process for a
 * reference. */
static quire_err write_ref(const hub_repo *r, const char *path, const char *text, quire_error *err) {
    strbuf part = {0};
    TRY(hub_cache_no_memory(strbuf_addf(&part, "%s/ref.%ld.incomplete", r->locks, (long)getpid()), r, err));
    size_t n = strlen(text);
    int fd = open(part.p, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0666);
    bool fine = fd >= 0 && write(fd, text, n) == (ssize_t)n && fdatasync(fd) == 0;
    fine = (fd < 0 || close(fd) == 0) && fine && rename(part.p, path) == 0;
    quire_err e = fine ? QUIRE_OK : hub_cache_failed(path, err);
    if (!fine) {
        (void)unlink(part.p);
    }
    strbuf_deinit(&part);
    return e;
}

quire_err hub_repo_set_ref(const hub_repo *r, const char *revision, const char *commit, quire_error *err) {
    strbuf path = {0};
    char now[41];
    if (strcmp(revision, commit) == 0 || (hub_repo_commit(r, revision, now) && strcmp(now, commit) == 0)) {
        return QUIRE_OK;
    }
    quire_err e = hub_cache_no_memory(strbuf_addf(&path, "%s/refs/%s", r->dir, revision), r, err);
    TRY_DONE(e, hub_cache_make_directories(path.p, true, err));
    TRY_DONE(e, write_ref(r, path.p, commit, err));
done:
    strbuf_deinit(&path);
    return e;
}

/* ---- snapshots ---- */

/* Name of the blob to which a link points; empty: it points elsewhere. */
static str link_id(const char *path, char target[4096]) {
    ssize_t n = readlink(path, target, 4095);
    if (n < 0) {
        return (str){"", 0};
    }
    target[n] = 0;
    const char *slash = strrchr(target, '/');
    str id = str_of(slash != NULL ? slash + 1 : target);
    return hub_is_digest(id) ? id : (str){"", 0};
}

static int64_t later(time_t a, time_t b) {
    return (int64_t)(a > b ? a : b);
}

static quire_err hub_cache_list_directory(strbuf *path, size_t n_root, int depth, hub_listing *out);

/* Adds the snapshot's entry at `path` to the listing. */
static quire_err hub_cache_list_entry(strbuf *path, size_t n_root, int depth, hub_listing *out) {
    struct stat own, st;
    char target[4096];
    str name = {path->p + n_root + 1, path->n - n_root - 1};
    if (!hub_path_is_safe(name) || lstat(path->p, &own) != 0) {
        return QUIRE_OK;
    }
    if (S_ISDIR(own.st_mode)) {
        return depth < MAX_DEPTH ? hub_cache_list_directory(path, n_root, depth + 1, out) : QUIRE_OK;
    }
    if (stat(path->p, &st) != 0 || !S_ISREG(st.st_mode)) {
        return QUIRE_OK;
    }
    TRY(hub_listing_add(out, name, link_id(path->p, target), (int64_t)st.st_size));
    out->files[out->n - 1].used_unix_s = later(own.st_mtime, st.st_atime);
    return QUIRE_OK;
}

static quire_err hub_cache_list_directory(strbuf *path, size_t n_root, int depth, hub_listing *out) {
    size_t n = path->n;
    quire_err e = QUIRE_OK;
    DIR *d = opendir(path->p);
    for (struct dirent *entry = d != NULL ? readdir(d) : NULL; entry != NULL && e == QUIRE_OK;
         entry = readdir(d)) {
        e = strbuf_addf(path, "/%s", entry->d_name);
        if (e == QUIRE_OK) {
            e = hub_cache_list_entry(path, n_root, depth, out);
        }
        path->n = n;
        path->p[n] = 0;
    }
    if (d != NULL) {
        (void)closedir(d);
    }
    return e;
}

quire_err hub_repo_list(const hub_repo *r, const char *commit, hub_listing *out, quire_error *err) {
    strbuf path = {0};
    *out = (hub_listing){.n = 0};
    TRY(hub_repo_file(r, commit, NULL, &path, err));
    if (access(path.p, F_OK) != 0) {
        strbuf_deinit(&path);
        return QUIRE_NOT_FOUND;
    }
    memcpy(out->commit, commit, 40);
    quire_err e = hub_cache_list_directory(&path, path.n, 1, out);
    hub_listing_sort(out);
    strbuf_deinit(&path);
    return hub_cache_no_memory(e, r, err);
}

/* Opens directory `name` in dir, and creates it if it is missing. Does not follow
 * links. */
static int open_below(int dir, const char *name) {
    if (mkdirat(dir, name, 0777) != 0 && errno != EEXIST) {
        return -1;
    }
    return openat(dir, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
}

/* Creates the link in dir, replacing an existing one. */
static bool place_link(int dir, const char *name, const char *target) {
    char there[4096];
    ssize_t n = readlinkat(dir, name, there, sizeof there);
    if (n == (ssize_t)strlen(target) && memcmp(there, target, (size_t)n) == 0) {
        return true;
    }
    return (unlinkat(dir, name, 0) == 0 || errno == ENOENT) && symlinkat(target, dir, name) == 0;
}

/* Links path, below the open directory, to the blob. The target gets a "../" for each
 * directory of path. Closes dir. */
static bool link_below(int dir, const char *path, const char *id) {
    char name[256], target[256] = "../../";
    const char *slash;
    while (dir >= 0 && (slash = strchr(path, '/')) != NULL) {
        (void)snprintf(name, sizeof name, "%.*s", (int)(slash - path), path);
        int below = open_below(dir, name), code = errno;
        (void)close(dir);
        errno = code;
        dir = below;
        path = slash + 1;
        strcat(target, "../"); /* runs at most 7 times (hub_path_is_safe) */
    }
    strcat(target, "blobs/");
    strcat(target, id);
    bool done = dir >= 0 && place_link(dir, path, target);
    int code = errno;
    if (dir >= 0) {
        (void)close(dir);
    }
    errno = code;
    return done;
}

quire_err hub_repo_link(const hub_repo *r, const char *commit, const hub_file *f, quire_error *err) {
    strbuf path = {0};
    TRY(hub_repo_file(r, commit, NULL, &path, err));
    quire_err e = hub_cache_make_directories(path.p, false, err);
    if (e == QUIRE_OK &&
        !link_below(open(path.p, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC), f->path, f->id)) {
        e = err_set(err, QUIRE_IO, -1, "%s/%s: the link to its blob could not be made: %s", path.p, f->path,
                    strerror(errno));
    }
    strbuf_deinit(&path);
    return e;
}

void hub_repo_touch(const hub_repo *r, const char *commit, const char *path) {
    strbuf whole = {0};
    if (hub_repo_file(r, commit, path, &whole, NULL) == QUIRE_OK) {
        (void)utimensat(AT_FDCWD, whole.p,
                        (const struct timespec[]){{.tv_nsec = UTIME_OMIT}, {.tv_nsec = UTIME_NOW}},
                        AT_SYMLINK_NOFOLLOW);
    }
    strbuf_deinit(&whole);
}

/* ---- locks ---- */

/* Opens and locks the file. Opens it again if its former holder has removed it meanwhile,
 * because no other process could find the locked file. */
static int lock_file(const char *path, int operation) {
    for (int tries = 0; tries < 100; tries++) {
        struct stat ours, there;
        int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666);
        if (fd < 0) {
            return -1;
        }
        if (flock(fd, operation | LOCK_NB) != 0) {
            int code = errno;
            (void)close(fd);
            errno = code;
            return -1;
        }
        if (fstat(fd, &ours) == 0 && lstat(path, &there) == 0 && ours.st_ino == there.st_ino &&
            ours.st_dev == there.st_dev) {
            return fd;
        }
        (void)close(fd);
    }
    errno = EWOULDBLOCK;
    return -1;
}

quire_err hub_lock(const hub_repo *r, const char *name, hub_lock_mode mode, int *fd, quire_error *err) {
    strbuf path = {0};
    *fd = -1;
    TRY(hub_cache_no_memory(strbuf_addf(&path, "%s/%s.lock", r->locks, name), r, err));
    *fd = lock_file(path.p, mode == HUB_LOCK_SHARED ? LOCK_SH : LOCK_EX);
    quire_err e = *fd >= 0 ? QUIRE_OK : errno == EWOULDBLOCK ? QUIRE_BUSY : hub_cache_failed(path.p, err);
    strbuf_deinit(&path);
    return e;
}

void hub_unlock(int fd) {
    if (fd >= 0) {
        (void)close(fd);
    }
}

static quire_err hub_shelf_failed(const char *directory, quire_error *err) {
    return err_set(err, QUIRE_IO, -1, "%s: %s", directory, strerror(errno));
}

quire_err hub_visit_all(const char *directory, hub_visit visit, void *user, quire_error *err) {
    quire_err e = QUIRE_OK;
    struct dirent *entry;
    DIR *d = opendir(directory);
    if (d == NULL) {
        return errno == ENOENT ? QUIRE_OK : hub_shelf_failed(directory, err);
    }
    errno = 0;
    while ((entry = readdir(d)) != NULL) {
        const char *name = entry->d_name;
        if (strcmp(name, ".") != 0 && strcmp(name, "..") != 0) {
            TRY_DONE(e, visit(user, name));
        }
        errno = 0; /* readdir sets it if it fails */
    }
    if (errno != 0) {
        e = hub_shelf_failed(directory, err);
    }
done:
    (void)closedir(d);
    return e;
}

bool hub_repo_of_directory(const char *directory, char repo[194]) {
    hub_name name;
    const char *rest = strncmp(directory, "models--", 8) == 0 ? directory + 8 : "",
               *dashes = strstr(rest, "--");
    if (dashes == NULL || snprintf(repo, 194, "%.*s/%s", (int)(dashes - rest), rest, dashes + 2) >= 194) {
        return false;
    }
    return hub_name_parse(repo, &name, NULL) == QUIRE_OK && strcmp(name.repo, repo) == 0;
}

quire_err hub_repo_directory(const hub_repo *r, const char *name, strbuf *out) {
    assert(r != NULL);
    return strbuf_addf(out, "%s/%s", r->dir, name);
}

typedef struct ref_search {
    const hub_repo *repo;
    const char *commit;
    char *out;
} ref_search;

static quire_err hub_shelf_visit_ref(void *user, const char *name) {
    const ref_search *x = user;
    char commit[41];
    bool is_it = hub_path_is_safe(str_of(name)) && hub_repo_commit(x->repo, name, commit) &&
                 strcmp(commit, x->commit) == 0;
    bool is_better =
        is_it && (hub_is_hex(str_of(x->out), 40) || strcmp(name, "main") == 0) && strcmp(x->out, "main") != 0;
    if (is_better) {
        (void)snprintf(x->out, 256, "%s", name);
    }
    return QUIRE_OK;
}

void hub_repo_name_commit(const hub_repo *r, const char *commit, char out[256]) {
    strbuf path = {0};
    ref_search x = {r, commit, out};
    (void)snprintf(out, 256, "%s", commit);
    if (hub_repo_directory(r, "refs", &path) == QUIRE_OK) {
        (void)hub_visit_all(path.p, hub_shelf_visit_ref, &x, NULL);
    }
    strbuf_deinit(&path);
}
