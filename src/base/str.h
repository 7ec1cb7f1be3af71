/* Strings: a slice that owns nothing, and a growing buffer that owns its bytes; base64,
 * numbers in the C locale, and the name nearest to a mistyped one. */
#ifndef BASE_STR_H
#define BASE_STR_H

#include <locale.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "base/err.h"

/* A slice of bytes owned elsewhere; may contain zero bytes, and none need follow it. */
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
/* Compares bytes, a prefix before longer texts. Returns below, equal to or above 0. */
static inline int str_compare(str a, str b) {
    size_t n = a.n < b.n ? a.n : b.n;
    int c = n > 0 ? memcmp(a.p, b.p, n) : 0;
    return c != 0 ? c : (a.n > b.n) - (a.n < b.n);
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
/* Whether s is one of names separated by '|'. */
bool str_is_one_of(str s, const char *names);
/* Returns the FNV-1a hash of s, continuing from h, the hash of the text before it or
 * STR_HASH_START. A client can construct texts with equal hashes. */
#define STR_HASH_START 0xcbf29ce484222325u
uint64_t str_hash(uint64_t h, str s);

/* Returns the value of a hexadecimal digit, or -1 for another character. */
static inline int hex_digit(char c) {
    return c >= '0' && c <= '9'   ? c - '0'
           : c >= 'a' && c <= 'f' ? c - 'a' + 10
           : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                  : -1;
}

/* A growing buffer; p[n] is 0 once anything was added. Zero: empty. One thread. */
typedef struct strbuf {
    char *p;
    size_t n, cap;
    size_t max; /* most bytes that it may hold, or else QUIRE_TOO_LARGE; 0: no limit */
} strbuf;

void strbuf_deinit(strbuf *b);
/* Empties the buffer, which keeps its memory. */
void strbuf_clear(strbuf *b);
/* Makes room for n more bytes in one allocation. Errors as strbuf_add. */
quire_err strbuf_reserve(strbuf *b, size_t n);
/* Append to the buffer. QUIRE_NO_MEMORY, QUIRE_TOO_LARGE (over max): it is unchanged. */
quire_err strbuf_add(strbuf *b, const void *p, size_t n);
quire_err strbuf_add_str(strbuf *b, const char *s);
quire_err strbuf_add_char(strbuf *b, char c);
quire_err strbuf_addf(strbuf *b, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* ---- base64 ---- */

/* Base64 (RFC 4648). Stateless: any thread. */

/* Appends the decoded bytes of text; padding is optional. QUIRE_BAD_FILE for other
 * characters, white space included, or a wrong length; *out may then have a part. */
quire_err base64_decode(str text, strbuf *out);

/* Appends the base64 of bytes, with its padding. QUIRE_NO_MEMORY: *out is unchanged. */
quire_err base64_encode(str bytes, strbuf *out);

/* ---- numbers in the C locale ---- */

/* Numbers as text in the C locale, since a program that embeds Quire may have set a
 * locale whose decimal separator is a comma. Any thread. */

/* As strtod and snprintf, with a decimal point in every locale. */
double c_locale_strtod(const char *text, char **end);
int c_locale_snprintf(char *out, size_t size, const char *format, ...) __attribute__((format(printf, 3, 4)));

/* The calling thread uses the C locale from c_locale_enter until c_locale_leave, which
 * takes the result of c_locale_enter. */
locale_t c_locale_enter(void);
void c_locale_leave(locale_t before);

/* ---- the nearest name ---- */

/* Finds the name nearest to a mistyped one, by the least number of edits, for "did you
 * mean".
 *
 * An edit inserts, deletes or replaces a byte, or swaps two neighbours (Damerau 1964,
 * each pair swapped at most once). One thread. */

/* Initialised as {.wanted = ...}. best is empty until a name is near enough: at most
 * NEAREST_MAX_EDITS edits, and at most one for each three bytes of wanted. */
#define NEAREST_MAX_EDITS 2
typedef struct nearest {
    str wanted, best;
    size_t distance; /* number of edits between wanted and best */
} nearest;

/* Returns the number of edits between two texts; SIZE_MAX: one exceeds EDIT_MAX bytes. */
#define EDIT_MAX 64
size_t edit_distance(str a, str b);

/* Makes `name`, whose bytes are borrowed, the best one if it is nearer than the best. */
void nearest_offer(nearest *n, str name);
/* Offers each of several names, separated by spaces. */
void nearest_offer_all(nearest *n, const char *names);

#endif
