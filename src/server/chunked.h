/* The chunked transfer coding, parsed strictly: sizes are plain hexadecimal, lines end in
 * CRLF, data ends where its size says.
 *
 * Zero-initialised is the start of a body. Owner: a request being read; one thread. */
#ifndef SERVER_CHUNKED_H
#define SERVER_CHUNKED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum chunked_state {
    CHUNKED_SIZE,
    CHUNKED_EXTENSION,
    CHUNKED_SIZE_LF,
    CHUNKED_DATA,
    CHUNKED_DATA_CR,
    CHUNKED_DATA_LF,
    CHUNKED_LINE, /* at the start of a line behind the last chunk: a trailer or the end */
    CHUNKED_TRAILER,
    CHUNKED_TRAILER_LF,
    CHUNKED_END_LF,
    CHUNKED_DONE
} chunked_state;

typedef struct chunked {
    chunked_state state;
    uint64_t left; /* bytes of the chunk that are still missing; the size while it is read */
    int n_digits;
    size_t n_extras; /* bytes of extensions and trailers so far */
} chunked;

/* Parses p[0..n), n > 0. *used: how many bytes it consumed. *data: how many of them, the
 * last ones, belong to the body. False: malformed, or more than max_extras bytes of
 * extensions and trailers. Call until state is CHUNKED_DONE. */
bool chunked_feed(chunked *c, const char *p, size_t n, size_t max_extras, size_t *used, size_t *data);

#endif
