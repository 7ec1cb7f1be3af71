/* memmem, whose time is always linear, is outside POSIX. */
#define _GNU_SOURCE
#include "base/str.h"

#include <assert.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/mem.h"
#include "base/size.h"

bool str_contains(str s, str part) {
    return part.n == 0 || (s.n > 0 && memmem(s.p, s.n, part.p, part.n) != NULL);
}

bool str_is_one_of(str s, const char *names) {
    size_t n = strcspn(names, "|");
    while (!str_eq(s, (str){names, n}) && names[n] != '\0') {
        names += n + 1;
        n = strcspn(names, "|");
    }
    return str_eq(s, (str){names, n});
}

uint64_t str_hash(uint64_t h, str s) {
    for (size_t i = 0; i < s.n; i++) {
        h = (h ^ (unsigned char)s.p[i]) * 0x100000001b3u;
    }
    return h;
}

void strbuf_deinit(strbuf *b) {
    mem_free(b->p);
    *b = (strbuf){.max = b->max};
}

void strbuf_clear(strbuf *b) {
    assert(b != NULL);
    b->n = 0;
    if (b->p != NULL) {
        b->p[0] = '\0';
    }
}

quire_err strbuf_reserve(strbuf *b, size_t n) {
    assert(b != NULL);
    size_t total, with_zero;
    if (!size_add(b->n, n, &total) || !size_add(total, 1, &with_zero) || (b->max != 0 && total > b->max)) {
        return QUIRE_TOO_LARGE;
    }
    return mem_grow(&b->p, &b->cap, with_zero, 1);
}

quire_err strbuf_add(strbuf *b, const void *p, size_t n) {
    TRY(strbuf_reserve(b, n));
    mem_copy(b->p + b->n, p, n);
    b->n += n;
    b->p[b->n] = '\0';
    return QUIRE_OK;
}

quire_err strbuf_add_str(strbuf *b, const char *s) {
    return strbuf_add(b, s, strlen(s));
}

quire_err strbuf_add_char(strbuf *b, char c) {
    return strbuf_add(b, &c, 1);
}

quire_err strbuf_addf(strbuf *b, const char *format, ...) {
    va_list args;
    va_start(args, format);
    int n = vsnprintf(NULL, 0, format, args);
    va_end(args);
    if (n < 0) {
        return QUIRE_INVALID;
    }
    TRY(strbuf_reserve(b, (size_t)n));
    va_start(args, format);
    (void)vsnprintf(b->p + b->n, (size_t)n + 1, format, args);
    va_end(args);
    b->n += (size_t)n;
    return QUIRE_OK;
}

/* ---- base64 ---- */

static int base64_value_of(char c) {
    return c >= 'A' && c <= 'Z'   ? c - 'A'
           : c >= 'a' && c <= 'z' ? c - 'a' + 26
           : c >= '0' && c <= '9' ? c - '0' + 52
           : c == '+'             ? 62
           : c == '/'             ? 63
                                  : -1;
}

quire_err base64_decode(str text, strbuf *out) {
    uint32_t bits = 0;
    int n_bits = 0;
    for (int i = 0; i < 2 && text.n > 0 && text.n % 4 == (size_t)(i > 0 ? 3 : 0) && text.p[text.n - 1] == '=';
         i++) {
        text.n--;
    }
    if (text.n % 4 == 1) {
        return QUIRE_BAD_FILE;
    }
    TRY(strbuf_reserve(out, text.n / 4 * 3 + 3));
    for (size_t i = 0; i < text.n; i++) {
        int v = base64_value_of(text.p[i]);
        if (v < 0) {
            return QUIRE_BAD_FILE;
        }
        bits = bits << 6 | (uint32_t)v;
        n_bits += 6;
        if (n_bits >= 8) {
            n_bits -= 8;
            TRY(strbuf_add_char(out, (char)(bits >> n_bits & 0xFF)));
        }
    }
    return QUIRE_OK;
}

quire_err base64_encode(str bytes, strbuf *out) {
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    if (bytes.n > SIZE_MAX / 4 * 3 - 3) {
        return QUIRE_NO_MEMORY;
    }
    TRY(strbuf_reserve(out, (bytes.n + 2) / 3 * 4 + 1));
    for (size_t i = 0; i < bytes.n; i += 3) {
        size_t n = bytes.n - i < 3 ? bytes.n - i : 3;
        uint32_t bits = 0;
        char group[4];
        for (size_t k = 0; k < 3; k++) {
            bits = bits << 8 | (k < n ? (unsigned char)bytes.p[i + k] : 0u);
        }
        for (size_t k = 0; k < 4; k++) {
            group[k] = k <= n ? digits[bits >> (18 - 6 * k) & 63] : '=';
        }
        TRY(strbuf_add(out, group, sizeof group));
    }
    return QUIRE_OK;
}

/* ---- numbers in the C locale ---- */

static pthread_once_t made = PTHREAD_ONCE_INIT;
static locale_t plain; /* the C locale; 0 if it could not be created, and uselocale(0) changes nothing */

static void c_locale_make(void) {
    plain = newlocale(LC_ALL_MASK, "C", (locale_t)0);
}

locale_t c_locale_enter(void) {
    (void)pthread_once(&made, c_locale_make);
    return uselocale(plain);
}

void c_locale_leave(locale_t before) {
    (void)uselocale(before);
}

double c_locale_strtod(const char *text, char **end) {
    locale_t before = c_locale_enter();
    double v = strtod(text, end);
    c_locale_leave(before);
    return v;
}

int c_locale_snprintf(char *out, size_t size, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    locale_t before = c_locale_enter();
    int n = vsnprintf(out, size, format, arguments);
    c_locale_leave(before);
    va_end(arguments);
    return n;
}

/* ---- the nearest name ---- */

static size_t least(size_t a, size_t b) {
    return a < b ? a : b;
}

size_t edit_distance(str a, str b) {
    /* edits from a prefix of a to each prefix of b */
    size_t rows[3][EDIT_MAX + 1], *two_back = rows[0], *above = rows[1], *row = rows[2];
    if (a.n > EDIT_MAX || b.n > EDIT_MAX) {
        return SIZE_MAX;
    }
    for (size_t j = 0; j <= b.n; j++) {
        above[j] = j;
    }
    for (size_t i = 1; i <= a.n; i++) {
        row[0] = i;
        for (size_t j = 1; j <= b.n; j++) {
            row[j] = least(least(above[j], row[j - 1]) + 1, above[j - 1] + (a.p[i - 1] != b.p[j - 1]));
            if (i > 1 && j > 1 && a.p[i - 1] == b.p[j - 2] && a.p[i - 2] == b.p[j - 1]) {
                row[j] = least(row[j], two_back[j - 2] + 1);
            }
        }
        size_t *oldest = two_back;
        two_back = above;
        above = row;
        row = oldest;
    }
    return above[b.n];
}

void nearest_offer(nearest *n, str name) {
    assert(n != NULL);
    size_t distance = edit_distance(n->wanted, name);
    if (distance <= NEAREST_MAX_EDITS && distance <= n->wanted.n / 3 &&
        (n->best.n == 0 || distance < n->distance)) {
        n->best = name;
        n->distance = distance;
    }
}

void nearest_offer_all(nearest *n, const char *names) {
    assert(names != NULL);
    while (*names) {
        size_t length = strcspn(names, " ");
        nearest_offer(n, (str){names, length});
        names += length + (names[length] == ' ');
    }
}
