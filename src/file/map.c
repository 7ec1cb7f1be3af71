#include "file/map.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "file/show.h"

static const char empty[1];

static int64_t ns_of(struct timespec t) {
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static file_stamp stamp_of(const struct stat *st) {
    struct timespec now = {0};
    (void)clock_gettime(CLOCK_REALTIME, &now);
    return (file_stamp){.size = (uint64_t)st->st_size,
                        .inode = (uint64_t)st->st_ino,
                        .mtime_ns = ns_of(st->st_mtim),
                        .ctime_ns = ns_of(st->st_ctim),
                        .opened_ns = ns_of(now),
                        .owner = (uint32_t)st->st_uid,
                        .mode = (uint32_t)st->st_mode & 07777u};
}

static quire_err map_fd(int fd, const char *path, size_t max_bytes, file_map *out, quire_error *err) {
    struct stat st;
    if (fstat(fd, &st) != 0) {
        return err_set(err, QUIRE_IO, -1, "%s: %s", path, strerror(errno));
    }
    if (!S_ISREG(st.st_mode)) {
        return err_set(err, QUIRE_BAD_FILE, -1, "%s: not a regular file", path);
    }
    uint64_t n = (uint64_t)st.st_size;
    if (n > max_bytes) {
        return err_set(err, QUIRE_TOO_LARGE, -1,
                       "%s: the file has %s bytes, the limit for this kind of file is %s", path,
                       show_count(n).text, show_count(max_bytes).text);
    }
    if (n == 0) {
        *out = (file_map){.p = empty, .stamp = stamp_of(&st)};
        return QUIRE_OK;
    }
    void *p = mmap(NULL, (size_t)n, PROT_READ, MAP_SHARED, fd, 0);
    if (p == MAP_FAILED) {
        return err_set(err, QUIRE_IO, -1, "%s: cannot be mapped: %s", path, strerror(errno));
    }
    *out = (file_map){.p = p, .n = (size_t)n, .stamp = stamp_of(&st)};
    return QUIRE_OK;
}

quire_err file_map_open(const char *path, size_t max_bytes, file_map *out, quire_error *err) {
    /* O_NONBLOCK: opening a named pipe must not block */
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) {
        bool absent = errno == ENOENT || errno == ENOTDIR;
        return err_set(err, absent ? QUIRE_NOT_FOUND : QUIRE_IO, -1, "%s: %s", path, strerror(errno));
    }
    quire_err e = map_fd(fd, path, max_bytes, out, err);
    close(fd);
    return e;
}

void file_map_close(file_map *m) {
    assert(m != NULL);
    if (m->p != NULL && m->p != empty) {
        munmap((void *)(uintptr_t)m->p, m->n);
    }
    *m = (file_map){0};
}

/* ---- reading from front to back ---- */

quire_err cursor_take(cursor *c, uint64_t n, const char *what, const uint8_t **out) {
    assert(c != NULL);
    if (n > c->n - c->at) {
        return err_set(c->err, QUIRE_BAD_FILE, (int64_t)c->at,
                       "%s: %s at byte %s takes %s bytes, the file has %s: it is cut short or damaged; "
                       "download it again",
                       c->file, what, show_count(c->at).text, show_count(n).text, show_count(c->n).text);
    }
    *out = c->p + c->at;
    c->at += (size_t)n;
    return QUIRE_OK;
}

static quire_err cursor_copy(cursor *c, const char *what, void *out, size_t n) {
    const uint8_t *p;
    TRY(cursor_take(c, n, what, &p));
    memcpy(out, p, n);
    return QUIRE_OK;
}

quire_err cursor_u32(cursor *c, const char *what, uint32_t *out) {
    return cursor_copy(c, what, out, sizeof *out);
}

quire_err cursor_u64(cursor *c, const char *what, uint64_t *out) {
    return cursor_copy(c, what, out, sizeof *out);
}

quire_err cursor_str(cursor *c, const char *what, str *out) {
    uint64_t n;
    const uint8_t *p;
    TRY(cursor_u64(c, what, &n));
    TRY(cursor_take(c, n, what, &p));
    *out = (str){(const char *)p, (size_t)n};
    return QUIRE_OK;
}
