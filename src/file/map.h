/* Maps a whole file read-only. Immutable after open: any thread may read. */
#ifndef FILE_MAP_H
#define FILE_MAP_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/str.h"

/* State of a file when it was opened. While size, inode and times are the same, so is its
 * content. */
typedef struct file_stamp {
    uint64_t size, inode;
    /* time of the last write, and of the last change of bytes or metadata */
    int64_t mtime_ns, ctime_ns;
    int64_t opened_ns;    /* time of the open, by the clock of the file system's times */
    uint32_t owner, mode; /* user id; permissions */
} file_stamp;

/* A zero-initialised map is no file: p is NULL. An empty file has n 0 and p not NULL. */
typedef struct file_map {
    const void *p;
    size_t n;
    file_stamp stamp; /* all zero for bytes that are no file */
} file_map;

/* Maps path, a regular file of at most max_bytes. QUIRE_NOT_FOUND: there is no such file;
 * QUIRE_BAD_FILE: it is not a regular file; QUIRE_TOO_LARGE; QUIRE_IO. *out is then
 * unchanged. */
quire_err file_map_open(const char *path, size_t max_bytes, file_map *out, quire_error *err);
void file_map_close(file_map *m);

static inline str file_map_text(const file_map *m) {
    return (str){m->p, m->n};
}

/* ---- reading from front to back ---- */

/* Reads a file in memory from front to back, never past its end. The first failed call
 * sets *err. Little-endian. */

typedef struct cursor {
    const char *file; /* name for messages */
    const uint8_t *p;
    size_t n, at; /* at <= n */
    quire_error *err;
} cursor;

/* Takes the next n bytes; `what` names them in messages. QUIRE_BAD_FILE: fewer are left,
 * and the cursor does not move. */
quire_err cursor_take(cursor *c, uint64_t n, const char *what, const uint8_t **out);
quire_err cursor_u32(cursor *c, const char *what, uint32_t *out);
quire_err cursor_u64(cursor *c, const char *what, uint64_t *out);
/* Reads a u64 length and that many bytes. */
quire_err cursor_str(cursor *c, const char *what, str *out);

#endif
