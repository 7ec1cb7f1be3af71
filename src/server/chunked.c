#include "server/chunked.h"

#include "base/str.h"

#define MAX_DIGITS 15 /* below 2^60: no overflow */

static bool size_byte(chunked *c, char byte) {
    int digit = hex_digit(byte);
    if (digit >= 0) {
        c->left = c->left * 16 + (uint64_t)digit;
        return ++c->n_digits <= MAX_DIGITS;
    }
    c->state = byte == '\r' ? CHUNKED_SIZE_LF : CHUNKED_EXTENSION;
    return c->n_digits > 0 && (byte == '\r' || byte == ';');
}

/* Parses one byte that is not data. */
static bool framing_byte(chunked *c, char byte, size_t max_extras) {
    switch (c->state) {
    case CHUNKED_SIZE:
        return size_byte(c, byte);
    case CHUNKED_EXTENSION:
    case CHUNKED_TRAILER:
        if (byte == '\r') {
            c->state = c->state == CHUNKED_EXTENSION ? CHUNKED_SIZE_LF : CHUNKED_TRAILER_LF;
        }
        return byte != '\n' && ++c->n_extras <= max_extras;
    case CHUNKED_SIZE_LF:
        c->state = c->left > 0 ? CHUNKED_DATA : CHUNKED_LINE;
        return byte == '\n';
    case CHUNKED_DATA_CR:
        c->state = CHUNKED_DATA_LF;
        return byte == '\r';
    case CHUNKED_DATA_LF:
        c->state = CHUNKED_SIZE;
        c->n_digits = 0;
        return byte == '\n';
    case CHUNKED_LINE:
        c->state = byte == '\r' ? CHUNKED_END_LF : CHUNKED_TRAILER;
        return byte != '\n';
    case CHUNKED_TRAILER_LF:
        c->state = CHUNKED_LINE;
        return byte == '\n';
    case CHUNKED_END_LF:
        c->state = CHUNKED_DONE;
        return byte == '\n';
    default:
        return false;
    }
}

bool chunked_feed(chunked *c, const char *p, size_t n, size_t max_extras, size_t *used, size_t *data) {
    *used = *data = 0;
    while (*used < n && c->state != CHUNKED_DONE && c->state != CHUNKED_DATA) {
        if (!framing_byte(c, p[(*used)++], max_extras)) {
            return false;
        }
    }
    if (c->state == CHUNKED_DATA) {
        *data = c->left < n - *used ? (size_t)c->left : n - *used;
        *used += *data;
        c->left -= *data;
        c->state = c->left > 0 ? CHUNKED_DATA : CHUNKED_DATA_CR;
    }
    return true;
}
