#include "answer/part_arena.h"

#include <assert.h>

#include "base/mem.h"

/* Makes room for one more block of n elements. */
static bool has_room(part_arena *a, size_t n, size_t size) {
    if (a->failed == QUIRE_OK && n > (PART_ARENA_BYTES - a->bytes) / size) {
        a->failed = QUIRE_TOO_LARGE;
    }
    if (a->failed == QUIRE_OK && a->n == a->cap) {
        a->failed = mem_grow(&a->blocks, &a->cap, a->cap < 16 ? 16 : a->cap * 2, sizeof *a->blocks);
    }
    a->bytes += a->failed == QUIRE_OK ? n * size : 0;
    return a->failed == QUIRE_OK;
}

void *part_arena_new(part_arena *a, size_t n, size_t size) {
    if (n == 0 || !has_room(a, n, size)) {
        return NULL;
    }
    void *block = mem_new(n, size);
    a->failed = mem_check(block);
    if (block != NULL) {
        a->blocks[a->n++] = block;
    }
    return block;
}

str part_arena_take(part_arena *a, strbuf *s) {
    str text = {s->p, s->n};
    if (s->p == NULL || !has_room(a, s->n, 1)) {
        strbuf_deinit(s);
        return (str){"", 0};
    }
    a->blocks[a->n++] = s->p;
    *s = (strbuf){0};
    return text;
}

void part_arena_deinit(part_arena *a) {
    assert(a != NULL);
    for (size_t i = 0; i < a->n; i++) {
        mem_free(a->blocks[i]);
    }
    mem_free(a->blocks);
    *a = (part_arena){0};
}

grammar_part part_text(str text) {
    return (grammar_part){.part = GRAMMAR_PART_TEXT, .text = text};
}

grammar_part part_rule(grammar_kind kind, str text, const char *where) {
    return (grammar_part){.part = GRAMMAR_PART_RULE, .kind = kind, .text = text, .where = where};
}

grammar_part part_sequence(part_arena *a, const grammar_part *parts, size_t n) {
    grammar_part *own = part_arena_new(a, n, sizeof *own);
    if (own == NULL) {
        return part_text((str){"", 0});
    }
    memcpy(own, parts, n * sizeof *own);
    return (grammar_part){.part = GRAMMAR_PART_SEQUENCE, .parts = own, .n_parts = n};
}

grammar_part part_repeat(part_arena *a, grammar_part part, uint32_t min, uint32_t max) {
    grammar_part *own = part_arena_new(a, 1, sizeof *own);
    if (own == NULL) {
        return part_text((str){"", 0});
    }
    *own = part;
    return (grammar_part){.part = GRAMMAR_PART_REPEAT, .parts = own, .n_parts = 1, .min = min, .max = max};
}

grammar_part part_until(const str *texts, size_t n) {
    return (grammar_part){.part = GRAMMAR_PART_UNTIL, .texts = texts, .n_texts = n};
}
