#include "jinja/jinja_arena.h"

#include "base/mem.h"
#include "base/size.h"

enum { BLOCK_BYTES = 64 << 10, TEXT_BYTES = 16 << 10, LONG_TEXT = 1024 };

typedef struct jblock {
    struct jblock *next;
    size_t used, cap;
    char bytes[];
} jblock;

/* bytes[0..cap) are text, bytes[cap..2 cap) their origins. */
typedef struct jtext_block {
    struct jtext_block *next;
    size_t used, cap;
    char bytes[];
} jtext_block;

void *jarena_new(jarena *a, size_t n) {
    jblock *b = a->blocks;
    size_t at = b == NULL ? 0 : size_align(b->used, 8); /* a block's bytes begin at a multiple of 8 */
    if (b == NULL || at > b->cap || n > b->cap - at) {
        size_t cap = n > BLOCK_BYTES ? n : BLOCK_BYTES;
        if (n > a->max || a->total > a->max - n) {
            return NULL;
        }
        b = mem_new(1, sizeof *b + cap);
        if (b == NULL) {
            return NULL;
        }
        b->cap = cap;
        b->next = a->blocks;
        a->blocks = b;
        a->total += cap;
        at = 0;
    }
    b->used = at + n;
    return b->bytes + at;
}

char *jarena_bytes(jarena *a, size_t n) {
    jtext_block *b = a->texts;
    if (b == NULL || n > b->cap - b->used) {
        size_t cap = b == NULL ? TEXT_BYTES : 2 * b->cap;
        cap = n > cap ? n : cap;
        if (n > a->max / 2 || a->total > a->max - 2 * n) {
            return NULL;
        }
        cap = 2 * cap > a->max - a->total ? n : cap;
        b = mem_new(1, sizeof *b + 2 * cap);
        if (b == NULL) {
            return NULL;
        }
        b->cap = cap;
        b->next = a->texts;
        a->texts = b;
        a->total += 2 * cap;
    }
    b->used += n;
    return b->bytes + b->used - n;
}

uint8_t *jarena_origins(const jarena *a, str s) {
    for (jtext_block *b = a->texts; b != NULL && s.n > 0; b = b->next) {
        if ((uintptr_t)s.p >= (uintptr_t)b->bytes && (uintptr_t)s.p < (uintptr_t)b->bytes + b->cap) {
            return (uint8_t *)b->bytes + b->cap + (s.p - b->bytes);
        }
    }
    return NULL;
}

bool jarena_is_input(const jarena *a, str s) {
    const uint8_t *origins = jarena_origins(a, s);
    return origins != NULL && memchr(origins, JINJA_INPUT, s.n) != NULL;
}

/* Copies s and its origins to `to`, which lies in the arena. */
static void put(const jarena *a, char *to, str s) {
    uint8_t *origins = jarena_origins(a, (str){to, s.n});
    const uint8_t *from = jarena_origins(a, s);
    mem_copy(to, s.p, s.n);
    if (from != NULL) {
        mem_copy(origins, from, s.n);
    } else if (origins != NULL) {
        memset(origins, JINJA_TEMPLATE, s.n);
    }
}

bool jarena_copy(jarena *a, str s, str *out) {
    char *copy = jarena_bytes(a, s.n);
    if (copy == NULL) {
        return false;
    }
    put(a, copy, s);
    *out = (str){copy, s.n};
    return true;
}

bool jarena_grow(jarena *a, void *p, size_t *cap, size_t n, size_t size) {
    if (n < *cap) {
        return true;
    }
    size_t wanted = *cap == 0 ? 4 : *cap * 2;
    void *old, *grown = wanted > a->max / size ? NULL : jarena_new(a, wanted * size);
    if (grown == NULL) {
        return false;
    }
    memcpy(&old, p, sizeof old);
    mem_copy(grown, old, n * size);
    memcpy(p, &grown, sizeof grown);
    *cap = wanted;
    return true;
}

bool jarena_append(jarena *a, str left, str right, str *out) {
    jtext_block *b = a->texts;
    size_t n = left.n + right.n;
    if (left.n > 0 && left.p + left.n == a->text_end && right.n <= (size_t)(a->text_limit - a->text_end)) {
        put(a, a->text_end, right);
        a->text_end += right.n;
    } else if (b != NULL && left.n > 0 && left.p + left.n == b->bytes + b->used && right.n <= b->cap - b->used) {
        b->used += right.n;
        put(a, b->bytes + b->used - right.n, right);
    } else {
        bool is_long = n >= LONG_TEXT;
        char *p = jarena_bytes(a, is_long ? 2 * n : n);
        if (p == NULL) {
            return false;
        }
        put(a, p, left);
        put(a, p + left.n, right);
        if (is_long) {
            a->text_end = p + n;
            a->text_limit = p + 2 * n;
        }
        left.p = p;
    }
    *out = (str){left.p, n};
    return true;
}

void jarena_deinit(jarena *a) {
    while (a->blocks != NULL) {
        jblock *next = a->blocks->next;
        mem_free(a->blocks);
        a->blocks = next;
    }
    while (a->texts != NULL) {
        jtext_block *next = a->texts->next;
        mem_free(a->texts);
        a->texts = next;
    }
    *a = (jarena){.max = a->max};
}
