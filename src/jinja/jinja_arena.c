/* Arena: the memory of a render, freed at once: its values, and its texts with their
 * origins. One budget counts all of it.
 *
 * The origin of a byte is the template or the variables. It belongs to a place in memory,
 * so a part of a text (a slice, a split, a strip) needs no extra work, and code that
 * copies bytes copies their origins (jinja_out.c). Texts of one origin lie in blocks of
 * that origin and cost only their bytes; only texts of both origins, which a render puts
 * together, have an origin for each byte. Bytes outside the arena, such as literals of
 * the program, are the template's. */
#include "jinja/jinja_value.h"

#include <assert.h>

#include "base/mem.h"
#include "base/size.h"
#include "base/turn.h"

enum { BLOCK_BYTES = 64 << 10, TEXT_BYTES = 16 << 10, LONG_TEXT = 1024 };

typedef struct jblock {
    struct jblock *next;
    size_t used, cap;
    char bytes[];
} jblock;

/* bytes[0..cap) are text; of mixed texts bytes[cap..2 cap) are the origins. */
typedef struct jtext_block {
    struct jtext_block *next;
    size_t used, cap;
    char bytes[];
} jtext_block;

bool jarena_charge(jarena *a, size_t n) {
    assert(a != NULL);
    if (n > a->max || a->total > a->max - n) {
        a->refused = JARENA_FULL;
        return false;
    }
    if (turn_hold(n) != QUIRE_OK) {
        a->refused = JARENA_CANCELLED;
        return false;
    }
    a->total += n;
    return true;
}

void jarena_release(jarena *a, size_t n) {
    assert(a != NULL);
    a->total -= n;
    turn_let_go(n);
}

/* Counts and allocates a block: a head and n bytes. */
static void *new_block(jarena *a, size_t head, size_t n) {
    if (!jarena_charge(a, n)) {
        return NULL;
    }
    void *b = mem_new(1, head + n);
    if (b == NULL) {
        jarena_release(a, n);
    }
    return b;
}

void *jarena_new(jarena *a, size_t n) {
    assert(a != NULL);
    jblock *b = a->blocks;
    size_t at = b == NULL ? 0 : size_align(b->used, 8); /* a block's bytes begin at a multiple of 8 */
    if (b == NULL || at > b->cap || n > b->cap - at) {
        size_t cap = n > BLOCK_BYTES ? n : BLOCK_BYTES;
        b = new_block(a, sizeof *b, cap);
        if (b == NULL) {
            return NULL;
        }
        b->cap = cap;
        b->next = a->blocks;
        a->blocks = b;
        at = 0;
    }
    b->used = at + n;
    return b->bytes + at;
}

char *jarena_bytes(jarena *a, size_t n, int origin, uint8_t **origins) {
    size_t copies = origin == JINJA_MIXED ? 2 : 1;
    jtext_block *b = a->texts[origin];
    if (b == NULL || n > b->cap - b->used) {
        size_t cap = b == NULL ? TEXT_BYTES : 2 * b->cap, room = (a->max - a->total) / copies;
        cap = n > cap || cap > room ? n : cap;
        if (n > a->max / copies) { /* checked before it is multiplied */
            a->refused = JARENA_FULL;
            return NULL;
        }
        b = new_block(a, sizeof *b, copies * cap);
        if (b == NULL) {
            return NULL;
        }
        b->cap = cap;
        b->next = a->texts[origin];
        a->texts[origin] = b;
    }
    b->used += n;
    char *p = b->bytes + b->used - n;
    *origins = origin == JINJA_MIXED ? (uint8_t *)p + b->cap : NULL;
    return p;
}

/* The block of a text and its kind. NULL: it is outside the arena, and the template's. */
static const jtext_block *jinja_arena_block_of(const jarena *a, str s, int *kind) {
    for (int k = JINJA_TEMPLATE; k < N_JARENA_KINDS && s.n > 0; k++) {
        for (const jtext_block *b = a->texts[k]; b != NULL; b = b->next) {
            if ((uintptr_t)s.p >= (uintptr_t)b->bytes && (uintptr_t)s.p < (uintptr_t)b->bytes + b->cap) {
                *kind = k;
                return b;
            }
        }
    }
    *kind = JINJA_TEMPLATE;
    return NULL;
}

jorigins jarena_origins(const jarena *a, str s) {
    int kind;
    const jtext_block *b = jinja_arena_block_of(a, s, &kind);
    return kind == JINJA_MIXED ? (jorigins){.of_bytes = (const uint8_t *)s.p + b->cap}
                               : (jorigins){.all = (uint8_t)kind};
}

bool jarena_is_input(const jarena *a, str s) {
    jorigins o = jarena_origins(a, s);
    return o.of_bytes != NULL ? memchr(o.of_bytes, JINJA_INPUT, s.n) != NULL
                              : o.all == JINJA_INPUT && s.n > 0;
}

/* Copies s to `to`, and its origins to origins (NULL: the target block has one
 * origin). */
static void jinja_arena_put(const jarena *a, char *to, uint8_t *origins, str s) {
    mem_copy(to, s.p, s.n);
    if (origins != NULL && s.n > 0) {
        jorigins from = jarena_origins(a, s);
        if (from.of_bytes != NULL) {
            memcpy(origins, from.of_bytes, s.n);
        } else {
            memset(origins, from.all, s.n);
        }
    }
}

bool jarena_copy_as(jarena *a, str s, uint8_t origin, str *out) {
    uint8_t *none;
    char *copy = jarena_bytes(a, s.n, origin, &none);
    if (copy == NULL) {
        return false;
    }
    mem_copy(copy, s.p, s.n);
    *out = (str){copy, s.n};
    return true;
}

bool jarena_grow(jarena *a, void *p, size_t *cap, size_t n, size_t size) {
    if (n < *cap) {
        return true;
    }
    size_t wanted = *cap == 0 ? 4 : *cap * 2;
    if (wanted > a->max / size) {
        a->refused = JARENA_FULL;
        return false;
    }
    void *old, *grown = jarena_new(a, wanted * size);
    if (grown == NULL) {
        return false;
    }
    memcpy(&old, p, sizeof old);
    mem_copy(grown, old, n * size);
    memcpy(p, &grown, sizeof grown);
    *cap = wanted;
    return true;
}

/* Appends right in place, after left, if there is room and left is the newest text of its
 * block or the long text appended to last. */
static bool append_in_place(jarena *a, str left, int kind, str right) {
    jtext_block *b = a->texts[kind];
    char *to = b == NULL ? NULL : b->bytes + b->used;
    size_t cap;
    if (left.p + left.n == a->text_end && right.n <= (size_t)(a->text_limit - a->text_end)) {
        int same;
        to = a->text_end;
        cap = jinja_arena_block_of(a, left, &same)->cap;
        a->text_end += right.n;
    } else if (b != NULL && left.p + left.n == to && right.n <= b->cap - b->used) {
        b->used += right.n;
        cap = b->cap;
    } else {
        return false;
    }
    jinja_arena_put(a, to, kind == JINJA_MIXED ? (uint8_t *)to + cap : NULL, right);
    return true;
}

bool jarena_append(jarena *a, str left, str right, str *out) {
    int left_kind, right_kind;
    jinja_arena_block_of(a, left, &left_kind);
    jinja_arena_block_of(a, right, &right_kind);
    int kind = left.n == 0 ? right_kind : right.n == 0 || left_kind == right_kind ? left_kind : JINJA_MIXED;
    size_t n = left.n + right.n;
    if (left.n == 0 || kind != left_kind || !append_in_place(a, left, kind, right)) {
        bool is_long = n >= LONG_TEXT;
        uint8_t *origins;
        char *p = jarena_bytes(a, is_long ? 2 * n : n, kind, &origins);
        if (p == NULL) {
            return false;
        }
        jinja_arena_put(a, p, origins, left);
        jinja_arena_put(a, p + left.n, origins != NULL ? origins + left.n : NULL, right);
        if (is_long) {
            a->text_end = p + n;
            a->text_limit = p + 2 * n;
        }
        left.p = p;
    }
    *out = (str){left.p, n};
    return true;
}

bool jarena_repeat(jarena *a, str s, size_t times, str *out) {
    int kind;
    uint8_t *origins;
    jinja_arena_block_of(a, s, &kind);
    if (times > 0 && s.n > a->max / times) {
        a->refused = JARENA_FULL;
        return false;
    }
    char *p = jarena_bytes(a, s.n * times, kind, &origins);
    if (p == NULL) {
        return false;
    }
    for (size_t i = 0; i < times && s.n > 0; i++) {
        jinja_arena_put(a, p + i * s.n, origins != NULL ? origins + i * s.n : NULL, s);
    }
    *out = (str){p, s.n * times};
    return true;
}

void jarena_deinit(jarena *a) {
    assert(a != NULL);
    while (a->blocks != NULL) {
        jblock *next = a->blocks->next;
        mem_free(a->blocks);
        a->blocks = next;
    }
    for (int k = 0; k < N_JARENA_KINDS; k++) {
        while (a->texts[k] != NULL) {
            jtext_block *next = a->texts[k]->next;
            mem_free(a->texts[k]);
            a->texts[k] = next;
        }
    }
    *a = (jarena){.max = a->max};
}
