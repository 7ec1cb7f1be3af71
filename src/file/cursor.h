/* Reads a file in memory from front to back, never past its end; the first thing that does not fit fills err. Little-endian. */
#ifndef FILE_CURSOR_H
#define FILE_CURSOR_H

#include <stdint.h>

#include "base/str.h"

typedef struct cursor {
    const char *file; /* for messages */
    const uint8_t *p;
    size_t n, at; /* at <= n */
    quire_error *err;
} cursor;

/* The next n bytes; what says in a message what they are. QUIRE_BAD_FILE when fewer are left, the cursor then stays. */
quire_err cursor_take(cursor *c, uint64_t n, const char *what, const uint8_t **out);
quire_err cursor_u32(cursor *c, const char *what, uint32_t *out);
quire_err cursor_u64(cursor *c, const char *what, uint64_t *out);
/* A u64 length and that many bytes. */
quire_err cursor_str(cursor *c, const char *what, str *out);

#endif
