#include "kv/namespace.h"

#include <assert.h>
#include <stdbool.h>
#include <string.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

#include "base/mem.h"
#include "base/str.h"

/* ---- chained hashes ---- */

uint64_t kv_hash_root(uint64_t before, const void *name, size_t n) {
    return XXH3_64bits_withSeed(name, n, before);
}

uint64_t kv_hash_page(uint64_t parent, const int32_t *tokens, int32_t n) {
    uint64_t h = XXH3_64bits_withSeed(tokens, (size_t)n * sizeof *tokens, parent);
    return h != 0 ? h : 1;
}

quire_err kv_namespaces_open(kv_namespaces *s, int32_t cap) {
    *s = (kv_namespaces){.cap = cap};
    s->slots = mem_new((size_t)cap, sizeof *s->slots);
    s->buckets = mem_new((size_t)cap, sizeof *s->buckets);
    if (s->slots == NULL || s->buckets == NULL) {
        kv_namespaces_close(s);
        return QUIRE_NO_MEMORY;
    }
    for (int32_t i = 0; i < cap; i++) {
        s->slots[i].next = i + 1 < cap ? i + 1 : NAMESPACE_NONE;
        s->buckets[i] = NAMESPACE_NONE;
    }
    return QUIRE_OK;
}

void kv_namespaces_close(kv_namespaces *s) {
    mem_free(s->slots);
    mem_free(s->buckets);
    *s = (kv_namespaces){0};
}

static int32_t *namespace_bucket_of(const kv_namespaces *s, int32_t behind, const void *name, size_t n) {
    uint64_t h = str_hash(STR_HASH_START ^ (uint32_t)behind, (str){name, n});
    return &s->buckets[h % (uint64_t)s->cap];
}

static bool namespace_is_named(const kv_namespace *slot, int32_t behind, const void *name, size_t n) {
    return slot->behind == behind && slot->n_name == n && (n == 0 || memcmp(slot->name, name, n) == 0);
}

int32_t kv_namespaces_find(const kv_namespaces *s, int32_t behind, const void *name, size_t n) {
    int32_t i = *namespace_bucket_of(s, behind, name, n);
    while (i != NAMESPACE_NONE && !namespace_is_named(&s->slots[i], behind, name, n)) {
        i = s->slots[i].next;
    }
    return i;
}

int32_t kv_namespaces_add(kv_namespaces *s, int32_t behind, const void *name, size_t n) {
    int32_t i = s->unused;
    if (i == NAMESPACE_NONE) {
        return NAMESPACE_NONE;
    }
    kv_namespace *slot = &s->slots[i];
    int32_t *bucket = namespace_bucket_of(s, behind, name, n);
    s->unused = slot->next;
    s->n++;
    slot->behind = behind;
    slot->n_paths = 0;
    slot->n_name = (uint8_t)n;
    mem_copy(slot->name, name, n);
    slot->next = *bucket;
    *bucket = i;
    return i;
}

void kv_namespaces_remove(kv_namespaces *s, int32_t number) {
    kv_namespace *slot = &s->slots[number];
    int32_t *link = namespace_bucket_of(s, slot->behind, slot->name, slot->n_name);
    while (*link != number) {
        link = &s->slots[*link].next;
    }
    *link = slot->next;
    slot->next = s->unused;
    s->unused = number;
    s->n--;
}

void kv_publics_close(kv_publics *p) {
    assert(p != NULL);
    for (int32_t i = 0; i < p->n; i++) {
        mem_free(p->list[i].scope);
        mem_free(p->list[i].tokens);
    }
    mem_free(p->list);
    *p = (kv_publics){0};
}

static bool is_in_scope(const kv_public *one, const void *scope, size_t n_scope) {
    return one->n_scope == n_scope && (n_scope == 0 || memcmp(one->scope, scope, n_scope) == 0);
}

static bool public_begins_with(const kv_public *one, const int32_t *tokens, int32_t n) {
    return one->n <= n && memcmp(one->tokens, tokens, (size_t)one->n * sizeof *tokens) == 0;
}

quire_err kv_publics_add(kv_publics *p, const void *scope, size_t n_scope, const int32_t *tokens, int32_t n,
                         int32_t page_tokens) {
    n -= n % page_tokens;
    if (n <= 0) {
        return QUIRE_INVALID;
    }
    int32_t found = kv_publics_find(p, scope, n_scope, tokens, n);
    if (found != PUBLIC_NONE && p->list[found].n == n) {
        return QUIRE_OK;
    }
    TRY(mem_grow(&p->list, &p->cap, (size_t)p->n + 1, sizeof *p->list));
    kv_public one = {.scope = mem_new(n_scope, 1),
                     .n_scope = n_scope,
                     .tokens = mem_new((size_t)n, sizeof *tokens),
                     .n = n};
    if (one.scope == NULL || one.tokens == NULL) {
        mem_free(one.scope);
        mem_free(one.tokens);
        return QUIRE_NO_MEMORY;
    }
    mem_copy(one.scope, scope, n_scope);
    memcpy(one.tokens, tokens, (size_t)n * sizeof *tokens);
    p->list[p->n++] = one;
    return QUIRE_OK;
}

int32_t kv_publics_find(const kv_publics *p, const void *scope, size_t n_scope, const int32_t *tokens,
                        int32_t n) {
    int32_t best = PUBLIC_NONE;
    for (int32_t i = 0; i < p->n; i++) {
        bool longer = best == PUBLIC_NONE || p->list[i].n > p->list[best].n;
        if (longer && is_in_scope(&p->list[i], scope, n_scope) &&
            public_begins_with(&p->list[i], tokens, n)) {
            best = i;
        }
    }
    return best;
}
