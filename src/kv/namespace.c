#include "kv/namespace.h"

#include <stdbool.h>
#include <string.h>

#include "base/mem.h"
#include "base/str.h"

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
