/* Strings: a slice that owns nothing, and a growing buffer that owns its bytes. */
#ifndef BASE_STR_H
#define BASE_STR_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "base/err.h"

/* A slice of bytes that it does not own; not 0-terminated, and may contain zeros. */
typedef struct str {
    const char *p;
    size_t n;
} str;

static inline str str_of(const char *s) {
    return (str){s, strlen(s)};
}
static inline bool str_eq(str a, str b) {
    return a.n == b.n && (a.n == 0 || memcmp(a.p, b.p, a.n) == 0);
}
static inline bool str_is(str a, const char *s) {
    return str_eq(a, str_of(s));
}
static inline bool str_begins(str s, const char *with) {
    size_t n = strlen(with);
    return s.n >= n && memcmp(s.p, with, n) == 0;
}
static inline bool str_ends(str s, const char *with) {
    size_t n = strlen(with);
    return s.n >= n && memcmp(s.p + s.n - n, with, n) == 0;
}

bool str_contains(str s, str part);
/* FNV-1a: continues the hash h of what precedes s. Equal hashes can be forged. */
#define STR_HASH_START 0xcbf29ce484222325u
uint64_t str_hash(uint64_t h, str s);

/* The value of a hexadecimal digit, or -1. */
static inline int hex_digit(char c) {
    return c >= '0' && c <= '9'   ? c - '0'
           : c >= 'a' && c <= 'f' ? c - 'a' + 10
           : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                  : -1;
}

/* A growing buffer; p[n] is always 0 once anything was added. Zero-initialised is empty.
 * One thread. */
typedef struct strbuf {
    char *p;
    size_t n, cap;
    size_t max; /* 0, or the most bytes it may hold: QUIRE_TOO_LARGE beyond that */
} strbuf;

void strbuf_deinit(strbuf *b);
/* Empties it and keeps its memory. */
void strbuf_clear(strbuf *b);
/* Grows the capacity by n more bytes at once, where their number is known; errors as
 * below. */
quire_err strbuf_reserve(strbuf *b, size_t n);
/* Append; QUIRE_NO_MEMORY or QUIRE_TOO_LARGE leave it unchanged. */
quire_err strbuf_add(strbuf *b, const void *p, size_t n);
quire_err strbuf_add_str(strbuf *b, const char *s);
quire_err strbuf_add_char(strbuf *b, char c);
quire_err strbuf_addf(strbuf *b, const char *format, ...) __attribute__((format(printf, 2, 3)));

#endif
