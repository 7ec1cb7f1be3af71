#include "base/str.h"

#include <stdio.h>

#include "base/mem.h"
#include "base/size.h"

bool str_contains(str s, str part) {
    for (size_t i = 0; i + part.n <= s.n; i++) {
        if (str_eq((str){s.p + i, part.n}, part)) {
            return true;
        }
    }
    return false;
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
    b->n = 0;
    if (b->p != NULL) {
        b->p[0] = '\0';
    }
}

quire_err strbuf_reserve(strbuf *b, size_t n) {
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
