#include "file/packed_write.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

#include "base/mem.h"
#include "file/map.h"

#define MAX_WRITERS 100 /* of one file at once, including those that were killed */

struct packed_writer {
    char *path, *own_path; /* the final path, and the path that is written */
    int fd;                /* -1: not open */
};

static quire_err packed_write_failed(const packed_writer *w, quire_error *err) {
    return err_set(err, QUIRE_IO, -1, "%s: could not be written: %s", w->own_path, strerror(errno));
}

static quire_err packed_write_no_memory(const char *path, quire_error *err) {
    return err_set(err, QUIRE_NO_MEMORY, -1, "%s: out of memory", path);
}

/* Only an older packed model or an empty file may be replaced: another file there is a
 * mistake, perhaps the model itself. */
static quire_err check_place(const char *path, quire_error *err) {
    file_map there;
    quire_err e = file_map_open(path, SIZE_MAX, &there, err);
    if (e != QUIRE_OK) {
        return e == QUIRE_NOT_FOUND ? QUIRE_OK : e;
    }
    bool is_packed =
        there.n >= strlen(PACKED_MAGIC) && memcmp(there.p, PACKED_MAGIC, strlen(PACKED_MAGIC)) == 0;
    bool is_empty = there.n == 0;
    file_map_close(&there);
    return is_packed || is_empty
               ? QUIRE_OK
               : err_set(err, QUIRE_INVALID, -1,
                         "%s: exists already and is no packed model: give another name", path);
}

/* Creates the file under a name that no other writer has. */
static quire_err create(packed_writer *w, quire_error *err) {
    for (int i = 0; w->fd < 0 && i < MAX_WRITERS; i++) {
        strbuf own = {0};
        if (strbuf_addf(&own, "%s.%d.part", w->path, i) != QUIRE_OK) {
            strbuf_deinit(&own);
            return packed_write_no_memory(w->path, err);
        }
        mem_free(w->own_path);
        w->own_path = own.p;
        w->fd = open(w->own_path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
        if (w->fd < 0 && errno != EEXIST) {
            break;
        }
    }
    return w->fd >= 0 ? QUIRE_OK : packed_write_failed(w, err);
}

quire_err packed_writer_open(const char *path, packed_writer **out, quire_error *err) {
    TRY(check_place(path, err));
    packed_writer *w = mem_new(1, sizeof *w);
    if (w == NULL) {
        return packed_write_no_memory(path, err);
    }
    w->fd = -1;
    w->path = mem_dup(path, strlen(path));
    quire_err e = w->path != NULL ? create(w, err) : packed_write_no_memory(path, err);
    if (e != QUIRE_OK) {
        packed_writer_discard(w);
        return e;
    }
    *out = w;
    return QUIRE_OK;
}

quire_err packed_writer_finish(packed_writer *w, const packed_image *i, quire_error *err) {
    bool written = packed_image_write(i, w->fd, 0, packed_image_bytes(i)) == QUIRE_OK && fsync(w->fd) == 0;
    quire_err e = written && rename(w->own_path, w->path) == 0 ? QUIRE_OK : packed_write_failed(w, err);
    if (e == QUIRE_OK) {
        (void)close(w->fd); /* all data is written already */
        w->fd = -1;
    }
    packed_writer_discard(w);
    return e;
}

void packed_writer_discard(packed_writer *w) {
    if (w == NULL) {
        return;
    }
    if (w->fd >= 0) {
        (void)close(w->fd);
        (void)unlink(w->own_path);
    }
    mem_free(w->path);
    mem_free(w->own_path);
    mem_free(w);
}
