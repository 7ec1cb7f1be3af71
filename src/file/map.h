/* A whole file, mapped read-only. Immutable after open: any thread may read. */
#ifndef FILE_MAP_H
#define FILE_MAP_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/str.h"

/* State of a file when it was opened. Its content is unchanged as long as size, inode and
 * times are. */
typedef struct file_stamp {
    uint64_t size, inode;
    /* times of the last change of its bytes, and of any change including that of its
     * times */
    int64_t mtime_ns, ctime_ns;
    int64_t opened_ns;    /* by the same clock */
    uint32_t owner, mode; /* user id; permissions */
} file_stamp;

/* Zero-initialised it is "no file", with p NULL. An empty file has n 0 and p not NULL. */
typedef struct file_map {
    const void *p;
    size_t n;
    file_stamp stamp; /* zero for bytes that belong to no file */
} file_map;

/* Maps path, a regular file of at most max_bytes. QUIRE_NOT_FOUND when there is no such
 * file, QUIRE_TOO_LARGE, QUIRE_BAD_FILE when it is not a regular file, QUIRE_IO. On an
 * error *out is unchanged. */
quire_err file_map_open(const char *path, size_t max_bytes, file_map *out, quire_error *err);
void file_map_close(file_map *m);

static inline str file_map_text(const file_map *m) {
    return (str){m->p, m->n};
}

/* ---- reading from front to back ---- */

/* Reads a file in memory from front to back and never past its end. The first value that
 * does not fit fills err. Little-endian. */

typedef struct cursor {
    const char *file; /* for messages */
    const uint8_t *p;
    size_t n, at; /* at <= n */
    quire_error *err;
} cursor;

/* Takes the next n bytes; `what` names them in messages. QUIRE_BAD_FILE when fewer are
 * left; the cursor then does not move. */
quire_err cursor_take(cursor *c, uint64_t n, const char *what, const uint8_t **out);
quire_err cursor_u32(cursor *c, const char *what, uint32_t *out);
quire_err cursor_u64(cursor *c, const char *what, uint64_t *out);
/* Reads a u64 length and that many bytes. */
quire_err cursor_str(cursor *c, const char *what, str *out);

#endif
