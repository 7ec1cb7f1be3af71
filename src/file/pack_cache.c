#include "file/pack_cache.h"

#include <assert.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/mem.h"
#include "file/open_file.h"
#include "quire_hub.h"

#define SUFFIX       ".quire"
#define PART_SUFFIX  ".quire.part"
#define KEY_DIGITS   (PACK_KEY_BYTES - 1)
#define HEAD_BYTES   65536
#define SAMPLES      64 /* number of samples of SAMPLE_BYTES, spread evenly over a file */
#define SAMPLE_BYTES 4096

/* How long a file system's clock may stand still at most: a tick of the kernel or, if
 * times are whole seconds, two seconds; both with a margin. */
#define TICK_NS        50000000
#define COARSE_TICK_NS 3000000000

/* ---- paths ---- */

typedef struct entry_path {
    char text[4096];
} entry_path;

/* Builds the path of a file of the cache. False: it is too long. */
static bool pack_cache_path_of(const pack_cache *c, const char *name, const char *suffix, entry_path *out) {
    int n = snprintf(out->text, sizeof out->text, "%s/%s%s", c->dir, name, suffix);
    return n > 0 && (size_t)n < sizeof out->text;
}

/* Whether name is a KEY followed by this suffix. */
static bool pack_cache_is_named(const char *name, const char *suffix) {
    return strspn(name, "0123456789abcdef") == KEY_DIGITS && strcmp(name + KEY_DIGITS, suffix) == 0;
}

/* ---- the directory ---- */

/* Creates the directory and its parents. Existing ones may belong to anyone. */
static bool make_directory(const char *path) {
    char part[4096];
    size_t n = strlen(path);
    if (n == 0 || n >= sizeof part) {
        errno = n == 0 ? ENOENT : ENAMETOOLONG;
        return false;
    }
    for (size_t i = 1; i <= n; i++) {
        if (i < n && path[i] != '/') {
            continue;
        }
        memcpy(part, path, i);
        part[i] = '\0';
        if (mkdir(part, 0700) != 0 && errno != EEXIST && (i == n || access(part, F_OK) != 0)) {
            return false;
        }
    }
    return true;
}

static quire_err check_directory(const char *dir, quire_error *err) {
    struct stat st;
    if (!make_directory(dir) || stat(dir, &st) != 0) {
        return err_set(err, QUIRE_IO, -1, "%s: %s", dir, strerror(errno));
    }
    if (!S_ISDIR(st.st_mode)) {
        return err_set(err, QUIRE_IO, -1, "%s: not a directory", dir);
    }
    if (st.st_uid != geteuid() || (st.st_mode & (S_IWGRP | S_IWOTH)) != 0) {
        return err_set(err, QUIRE_UNSUPPORTED, -1, "%s: %s, so its content cannot be trusted", dir,
                       st.st_uid != geteuid() ? "belongs to another user" : "other users may write there");
    }
    return access(dir, W_OK | X_OK) == 0 ? QUIRE_OK
                                         : err_set(err, QUIRE_IO, -1, "%s: %s", dir, strerror(errno));
}

quire_err pack_cache_open(const char *dir, int64_t max_bytes, pack_cache *out, quire_error *err) {
    *out = (pack_cache){.max_bytes = max_bytes};
    TRY(check_directory(dir, err));
    out->dir = mem_dup(dir, strlen(dir));
    return err_set(err, mem_check(out->dir), -1, "%s: out of memory", dir);
}

void pack_cache_close(pack_cache *c) {
    mem_free(c->dir);
    *c = (pack_cache){0};
}

/* ---- names ---- */

static void add_samples(sha256_sum *sum, const file_map *m) {
    size_t head = m->n < HEAD_BYTES ? m->n : HEAD_BYTES;
    sha256_add(sum, m->p, head);
    for (size_t i = 0; i < SAMPLES && m->n > HEAD_BYTES; i++) {
        size_t at = (m->n - SAMPLE_BYTES) / (SAMPLES - 1) * i;
        sha256_add(sum, (const uint8_t *)m->p + at, SAMPLE_BYTES);
    }
}

bool pack_cache_key(const model_file *source, const char *form, char key[PACK_KEY_BYTES]) {
    assert(source != NULL);
    sha256_sum sum;
    uint8_t digest[SHA256_BYTES];
    sha256_begin(&sum);
    sha256_add(&sum, form, strlen(form) + 1);
    str set = model_file_overrides(source);
    sha256_add(&sum, set.p, set.n);
    for (size_t i = 0; i < source->n_maps; i++) {
        const file_stamp *s = &source->maps[i].stamp;
        const uint64_t numbers[] = {s->size, s->inode, (uint64_t)s->mtime_ns, (uint64_t)s->ctime_ns};
        sha256_add(&sum, numbers, sizeof numbers);
        add_samples(&sum, &source->maps[i]);
    }
    sha256_end(&sum, digest);
    for (int i = 0; i < KEY_DIGITS / 2; i++) {
        (void)snprintf(key + 2 * i, 3, "%02x", digest[i]);
    }
    return source->n_maps > 0;
}

bool pack_cache_can_name(const model_file *source) {
    assert(source != NULL);
    for (size_t i = 0; i < source->n_maps; i++) {
        const file_stamp *s = &source->maps[i].stamp;
        int64_t newest = s->mtime_ns > s->ctime_ns ? s->mtime_ns : s->ctime_ns;
        int64_t tick = newest % 1000000000 == 0 ? COARSE_TICK_NS : TICK_NS;
        if (s->opened_ns - newest < tick) {
            return false;
        }
    }
    return true;
}

/* ---- reading ---- */

static quire_err pack_cache_check_entry(const model_file *f, const char *key, quire_error *err) {
    const file_stamp *s = &f->whole.stamp;
    if (!f->is_packed || s->owner != geteuid() || (s->mode & (S_IWGRP | S_IWOTH)) != 0) {
        return err_set(err, QUIRE_UNSUPPORTED, -1, "%s: is not a packed model that only this user may write",
                       f->path);
    }
    if (!str_is(packed_section(f, PACKED_KEY), key)) {
        return err_set(err, QUIRE_BAD_FILE, -1, "%s: is the packed form of something else", f->path);
    }
    return packed_n_blocks(f) > 0
               ? QUIRE_OK
               : err_set(err, QUIRE_BAD_FILE, -1, "%s: its checksums are damaged", f->path);
}

quire_err pack_cache_find(const pack_cache *c, const char *key, model_file **out, quire_error *err) {
    entry_path path;
    model_file *f = NULL;
    if (!pack_cache_path_of(c, key, SUFFIX, &path) || access(path.text, F_OK) != 0) {
        return QUIRE_NOT_FOUND;
    }
    quire_err e = model_file_open(path.text, &f, err);
    if (e != QUIRE_OK || (e = pack_cache_check_entry(f, key, err)) != QUIRE_OK) {
        model_file_close(f);
        pack_cache_remove(c, key);
        return e;
    }
    (void)utimensat(AT_FDCWD, path.text,
                    (const struct timespec[]){{.tv_nsec = UTIME_OMIT}, {.tv_nsec = UTIME_NOW}}, 0);
    *out = f;
    return QUIRE_OK;
}

void pack_cache_remove(const pack_cache *c, const char *key) {
    entry_path path;
    if (pack_cache_path_of(c, key, SUFFIX, &path)) {
        (void)unlink(path.text);
    }
}

/* ---- room ---- */

typedef struct listed {
    char key[PACK_KEY_BYTES];
    int64_t n_bytes;
    struct timespec used;
} listed;

typedef struct listing {
    listed *entries;
    size_t n, cap;
    int64_t n_bytes;
} listing;

static bool pack_cache_list_entry(listing *l, const char *name, const struct stat *st) {
    bool ok = mem_grow(&l->entries, &l->cap, l->n + 1, sizeof *l->entries) == QUIRE_OK;
    if (ok) {
        listed *e = &l->entries[l->n++];
        *e = (listed){.n_bytes = (int64_t)st->st_size, .used = st->st_mtim};
        memcpy(e->key, name, KEY_DIGITS);
        l->n_bytes += e->n_bytes;
    }
    return ok;
}

/* Removes a .part file that is not locked: its writer has ended. */
static void remove_left(const char *path) {
    int fd = open(path, O_WRONLY | O_CLOEXEC | O_NOFOLLOW);
    if (fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) == 0) {
        (void)unlink(path);
    }
    if (fd >= 0) {
        (void)close(fd);
    }
}

/* Lists the entries, and removes the files that killed writers left. */
static quire_err list_all(const pack_cache *c, listing *l, quire_error *err) {
    DIR *d = opendir(c->dir);
    if (d == NULL) {
        return err_set(err, QUIRE_IO, -1, "%s: %s", c->dir, strerror(errno));
    }
    bool ok = true;
    for (struct dirent *entry = readdir(d); entry != NULL && ok; entry = readdir(d)) {
        entry_path path;
        struct stat st;
        bool is_part = pack_cache_is_named(entry->d_name, PART_SUFFIX);
        if ((!is_part && !pack_cache_is_named(entry->d_name, SUFFIX)) ||
            !pack_cache_path_of(c, entry->d_name, "", &path) || lstat(path.text, &st) != 0) {
            continue;
        }
        if (is_part) {
            remove_left(path.text);
        } else {
            ok = pack_cache_list_entry(l, entry->d_name, &st);
        }
    }
    closedir(d);
    return ok ? QUIRE_OK : err_set(err, QUIRE_NO_MEMORY, -1, "%s: out of memory", c->dir);
}

/* Lists the entries without opening them. The caller frees *out with mem_free. QUIRE_IO,
 * QUIRE_NO_MEMORY. */
static quire_err pack_cache_list(const pack_cache *c, pack_form **out, size_t *n, quire_error *err) {
    listing l = {0};
    *out = NULL;
    *n = 0;
    quire_err e = list_all(c, &l, err);
    if (e == QUIRE_OK && l.n > 0) {
        *out = mem_new(l.n, sizeof **out);
        e = *out != NULL ? QUIRE_OK : err_set(err, QUIRE_NO_MEMORY, -1, "%s: out of memory", c->dir);
    }
    for (size_t i = 0; e == QUIRE_OK && i < l.n; i++) {
        pack_form *f = &(*out)[(*n)++];
        *f = (pack_form){.n_bytes = l.entries[i].n_bytes, .used_unix_s = (int64_t)l.entries[i].used.tv_sec};
        memcpy(f->key, l.entries[i].key, sizeof f->key);
    }
    mem_free(l.entries);
    return e;
}

/* Builds the path of an entry. False: it is too long. */
static bool pack_cache_path(const pack_cache *c, const char *key, char *out, size_t n_out) {
    entry_path path;
    bool fits = pack_cache_path_of(c, key, SUFFIX, &path) && strlen(path.text) < n_out;
    (void)snprintf(out, n_out, "%s", fits ? path.text : "");
    return fits;
}

static int compare_use(const void *a, const void *b) {
    const struct timespec *x = &((const listed *)a)->used, *y = &((const listed *)b)->used;
    return x->tv_sec != y->tv_sec ? (x->tv_sec > y->tv_sec) - (x->tv_sec < y->tv_sec)
                                  : (x->tv_nsec > y->tv_nsec) - (x->tv_nsec < y->tv_nsec);
}

/* Removes entries, the least recently used first, until n_bytes fit. */
static quire_err remove_for(const pack_cache *c, listing *l, int64_t n_bytes, quire_error *err) {
    struct statvfs fs;
    if (statvfs(c->dir, &fs) != 0) {
        return err_set(err, QUIRE_IO, -1, "%s: %s", c->dir, strerror(errno));
    }
    int64_t unit = (int64_t)fs.f_frsize, tenth = (int64_t)fs.f_blocks * unit / 10;
    int64_t left = tenth < PACK_FREE_BYTES ? tenth : PACK_FREE_BYTES,
            room = (int64_t)fs.f_bavail * unit - left;
    if (n_bytes > c->max_bytes) {
        return err_set(err, QUIRE_NO_ROOM, -1,
                       "the packed form takes %.1f GB, over the limit of %.1f GB (--pack-cache-bytes)",
                       (double)n_bytes / 1e9, (double)c->max_bytes / 1e9);
    }
    if (n_bytes > room + l->n_bytes) {
        return err_set(err, QUIRE_NO_ROOM, -1,
                       "%s: the packed form takes %.1f GB, and %.1f GB of the disk must stay free", c->dir,
                       (double)n_bytes / 1e9, (double)left / 1e9);
    }
    if (l->n > 0) {
        qsort(l->entries, l->n, sizeof *l->entries, compare_use);
    }
    for (size_t i = 0; i < l->n && (l->n_bytes + n_bytes > c->max_bytes || n_bytes > room); i++) {
        pack_cache_remove(c, l->entries[i].key);
        l->n_bytes -= l->entries[i].n_bytes;
        room += l->entries[i].n_bytes;
    }
    return QUIRE_OK;
}

static quire_err pack_cache_make_room(const pack_cache *c, int64_t n_bytes, quire_error *err) {
    listing l = {0};
    quire_err e = list_all(c, &l, err);
    TRY_DONE(e, remove_for(c, &l, n_bytes, err));
done:
    mem_free(l.entries);
    return e;
}

/* ---- writing ---- */

struct pack_entry {
    int fd;
    entry_path part, path;
};

static quire_err pack_cache_failed(const pack_entry *e, quire_error *err) {
    return err_set(err, QUIRE_IO, -1, "%s: could not be written: %s", e->part.text, strerror(errno));
}

/* Opens the .part file and takes its lock. If its last holder has renamed or removed it
 * meanwhile, it now belongs to another process. */
static quire_err lock_part(pack_entry *e, quire_error *err) {
    struct stat ours, there;
    e->fd = open(e->part.text, O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (e->fd < 0) {
        return pack_cache_failed(e, err);
    }
    if (flock(e->fd, LOCK_EX | LOCK_NB) != 0 || fstat(e->fd, &ours) != 0 ||
        lstat(e->part.text, &there) != 0 || ours.st_ino != there.st_ino) {
        (void)close(e->fd);
        e->fd = -1;
        return err_set(err, QUIRE_BUSY, -1, "%s: another process is writing it", e->path.text);
    }
    return ftruncate(e->fd, 0) == 0 ? QUIRE_OK : pack_cache_failed(e, err);
}

quire_err pack_entry_open(const pack_cache *c, const char *key, int64_t n_bytes, pack_entry **out,
                          quire_error *err) {
    TRY(pack_cache_make_room(c, n_bytes, err));
    pack_entry *e = mem_new(1, sizeof *e);
    TRY(err_set(err, mem_check(e), -1, "%s: out of memory", c->dir));
    e->fd = -1;
    quire_err r =
        pack_cache_path_of(c, key, SUFFIX, &e->path) && pack_cache_path_of(c, key, PART_SUFFIX, &e->part)
            ? lock_part(e, err)
            : err_set(err, QUIRE_IO, -1, "%s: the path is too long", c->dir);
    if (r != QUIRE_OK) {
        pack_entry_discard(e);
        return r;
    }
    *out = e;
    return QUIRE_OK;
}

quire_err pack_entry_write(pack_entry *e, const packed_image *image, uint64_t from, uint64_t n,
                           quire_error *err) {
    return packed_image_write(image, e->fd, from, n) == QUIRE_OK ? QUIRE_OK : pack_cache_failed(e, err);
}

quire_err pack_entry_finish(pack_entry *e, quire_error *err) {
    assert(e != NULL);
    quire_err r = fdatasync(e->fd) == 0 && rename(e->part.text, e->path.text) == 0
                      ? QUIRE_OK
                      : pack_cache_failed(e, err);
    if (r == QUIRE_OK) {
        (void)close(e->fd); /* all data is written; the close releases the lock */
        e->fd = -1;
    }
    pack_entry_discard(e);
    return r;
}

void pack_entry_discard(pack_entry *e) {
    if (e != NULL && e->fd >= 0) {
        (void)unlink(e->part.text);
        (void)close(e->fd);
    }
    mem_free(e);
}

/* quire_packed_list and quire_packed_remove: list and remove entries of the pack
 * cache. */

#define PREFIX "packed:"

/* Fills in what the entry itself states. */
static void pack_cache_list_describe(const pack_cache *c, const pack_form *from, quire_packed_form *out) {

    char path[4096];
    model_file *f = NULL;
    compute_mode compute;
    *out = (quire_packed_form){.bytes = from->n_bytes, .used_unix_s = from->used_unix_s};
    (void)snprintf(out->name, sizeof out->name, PREFIX "%s", from->key);
    if (!pack_cache_path(c, from->key, path, sizeof path) || model_file_open(path, &f, NULL) != QUIRE_OK) {
        return;
    }
    str source = packed_section(f, PACKED_SOURCE);
    out->is_whole = model_file_packed_for(f, &compute) && str_is(packed_section(f, PACKED_KEY), from->key);
    if (out->is_whole && source.n < sizeof out->source) {
        (void)snprintf(out->source, sizeof out->source, "%.*s", (int)source.n, source.n > 0 ? source.p : "");
    }
    if (out->is_whole) {
        (void)snprintf(out->compute, sizeof out->compute, "%s", compute_name(compute));
    }
    model_file_close(f);
}

static int pack_cache_list_compare(const void *a, const void *b) {
    const quire_packed_form *x = a, *y = b;
    int order = strcmp(x->source, y->source);
    return order != 0 ? order : strcmp(x->name, y->name);
}

/* Opens the cache in an existing directory; *c stays closed if there is none. */
static quire_err open_there(const char *dir, pack_cache *c, quire_error *err) {
    *c = (pack_cache){0};
    return dir != NULL && access(dir, F_OK) == 0 ? pack_cache_open(dir, INT64_MAX, c, err) : QUIRE_OK;
}

quire_err quire_packed_list(const char *dir, quire_packed_form **forms, size_t *n, quire_error *err) {
    pack_cache c;
    pack_form *found = NULL;
    *forms = NULL;
    *n = 0;
    quire_err e = open_there(dir, &c, err);
    if (e == QUIRE_OK && c.dir != NULL) {
        e = pack_cache_list(&c, &found, n, err);
    }
    if (e == QUIRE_OK && *n > 0) {
        *forms = mem_new(*n, sizeof **forms);
        e = *forms != NULL ? QUIRE_OK : err_set(err, QUIRE_NO_MEMORY, -1, "out of memory for the list");
    }
    *n = e == QUIRE_OK ? *n : 0;
    for (size_t i = 0; i < *n; i++) {
        pack_cache_list_describe(&c, &found[i], &(*forms)[i]);
    }
    if (*n > 0) {
        qsort(*forms, *n, sizeof **forms, pack_cache_list_compare);
    }
    mem_free(found);
    pack_cache_close(&c);
    return e;
}

/* Whether a name refers to an entry. */
static bool is_meant(const pack_form *f, const char *name) {
    const char *digits = name + strlen(PREFIX);
    return strcmp(name, "packed") == 0 || (digits[0] != '\0' && strncmp(f->key, digits, strlen(digits)) == 0);
}

static quire_err remove_meant(const pack_cache *c, const pack_form *found, size_t n, const char *name,
                              int64_t *bytes, quire_error *err) {
    size_t n_meant = 0;
    for (size_t i = 0; i < n; i++) {
        n_meant += is_meant(&found[i], name);
    }
    if (n_meant > 1 && strcmp(name, "packed") != 0) {
        return err_set(err, QUIRE_INVALID, -1,
                       "%s: %zu packed forms begin with these digits; give more, as `quire list` shows them",
                       name, n_meant);
    }
    if (n_meant == 0) {
        return err_set(err, QUIRE_NOT_FOUND, -1,
                       "%s: there is no such packed form; `quire list` shows them all", name);
    }
    for (size_t i = 0; i < n; i++) {
        if (is_meant(&found[i], name)) {
            pack_cache_remove(c, found[i].key);
            *bytes += found[i].n_bytes;
        }
    }
    return QUIRE_OK;
}

quire_err quire_packed_remove(const char *dir, const char *name, int64_t *bytes, quire_error *err) {
    pack_cache c;
    pack_form *found = NULL;
    size_t n = 0;
    *bytes = 0;
    if (strcmp(name, "packed") != 0 && !str_begins(str_of(name), PREFIX)) {
        return err_set(err, QUIRE_INVALID, -1, "%s: a packed form's name begins with " PREFIX, name);
    }
    quire_err e = open_there(dir, &c, err);
    if (c.dir != NULL) {
        TRY_DONE(e, pack_cache_list(&c, &found, &n, err));
    }
    TRY_DONE(e, remove_meant(&c, found, n, name, bytes, err));
done:
    mem_free(found);
    pack_cache_close(&c);
    return e;
}
