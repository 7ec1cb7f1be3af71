/* Reads a file in memory from front to back and never past its end. The first value that
 * does not fit fills err. Little-endian. */
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

/* Takes the next n bytes; `what` names them in messages. QUIRE_BAD_FILE when fewer are
 * left; the cursor then does not move. */
quire_err cursor_take(cursor *c, uint64_t n, const char *what, const uint8_t **out);
quire_err cursor_u32(cursor *c, const char *what, uint32_t *out);
quire_err cursor_u64(cursor *c, const char *what, uint64_t *out);
/* Reads a u64 length and that many bytes. */
quire_err cursor_str(cursor *c, const char *what, str *out);

#endif
