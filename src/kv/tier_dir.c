#include "kv/tier_dir.h"

#include <assert.h>
#include <string.h>

#include "base/mem.h"

#define MAX_NAMESPACES 4096

quire_err kv_dir_open(kv_dir *d, int32_t cap, int32_t page_tokens, int32_t hash_bits) {
    if (cap < 1 || cap == INT32_MAX || page_tokens < 1 || hash_bits < 0 || hash_bits > 64) {
        return QUIRE_INVALID;
    }
    *d = (kv_dir){.page_tokens = page_tokens, .cap = cap, .n_buckets = cap, .unused = SLOT_NONE};
    d->hash_mask = hash_bits == 0 || hash_bits == 64 ? UINT64_MAX : ((uint64_t)1 << hash_bits) - 1;
    d->slots = mem_new_huge((size_t)cap + 1, sizeof *d->slots);
    d->tokens = mem_new_huge((size_t)cap, (size_t)page_tokens * sizeof *d->tokens);
    d->buckets = mem_new_huge((size_t)cap, sizeof *d->buckets);
    quire_err e = kv_namespaces_open(&d->namespaces, cap < MAX_NAMESPACES ? cap : MAX_NAMESPACES);
    if (d->slots == NULL || d->tokens == NULL || d->buckets == NULL || e != QUIRE_OK) {
        kv_dir_close(d);
        return QUIRE_NO_MEMORY;
    }
    memset(d->buckets, 0xff, (size_t)cap * sizeof *d->buckets); /* sets each to SLOT_NONE */
    d->slots[cap].older = d->slots[cap].younger = cap;
    return QUIRE_OK;
}

void kv_dir_close(kv_dir *d) {
    mem_free(d->slots);
    mem_free(d->tokens);
    mem_free(d->buckets);
    kv_namespaces_close(&d->namespaces);
    *d = (kv_dir){0};
}

/* ---- the order of use: a ring through the sentinel, oldest after it ---- */

static void tier_dir_enqueue(kv_dir *d, int32_t slot) {
    int32_t sentinel = d->cap, youngest = d->slots[sentinel].older;
    d->slots[slot].older = youngest;
    d->slots[slot].younger = sentinel;
    d->slots[youngest].younger = slot;
    d->slots[sentinel].older = slot;
}

static void tier_dir_unqueue(kv_dir *d, int32_t slot) {
    kv_dir_slot *s = &d->slots[slot];
    d->slots[s->older].younger = s->younger;
    d->slots[s->younger].older = s->older;
    s->older = s->younger = slot;
}

/* ---- finding ---- */

static int32_t *tier_dir_bucket_of(const kv_dir *d, kv_tier_id id) {
    return &d->buckets[(id.a & d->hash_mask) % (uint64_t)d->n_buckets];
}

int32_t kv_dir_find(const kv_dir *d, const kv_tier_key *key) {
    int32_t namespace = kv_namespaces_find(&d->namespaces, NAMESPACE_PLAIN, key->namespace, key->n_namespace);
    if (namespace == NAMESPACE_NONE) {
        return SLOT_NONE;
    }
    size_t n_bytes = (size_t)d->page_tokens * sizeof *d->tokens;
    for (int32_t i = *tier_dir_bucket_of(d, key->id); i != SLOT_NONE; i = d->slots[i].next) {
        const kv_dir_slot *s = &d->slots[i];
        if (s->namespace == namespace && s->group == key->group && kv_tier_id_equal(s->id, key->id) &&
            kv_tier_id_equal(s->parent, key->parent) &&
            memcmp(d->tokens + (int64_t)i * d->page_tokens, key->tokens, n_bytes) == 0) {
            return i;
        }
    }
    return SLOT_NONE;
}

kv_tier_key kv_dir_key(const kv_dir *d, int32_t slot) {
    const kv_dir_slot *s = &d->slots[slot];
    const kv_namespace *namespace = &d->namespaces.slots[s->namespace];
    return (kv_tier_key){.namespace = namespace->name,
                         .n_namespace = namespace->n_name,
                         .group = s->group,
                         .parent = s->parent,
                         .id = s->id,
                         .tokens = d->tokens + (int64_t)slot * d->page_tokens};
}

void kv_dir_touch(kv_dir *d, int32_t slot) {
    if (d->slots[slot].n_pins == 0) {
        tier_dir_unqueue(d, slot);
        tier_dir_enqueue(d, slot);
    }
}

void kv_dir_pin(kv_dir *d, int32_t slot) {
    if (d->slots[slot].n_pins++ == 0) {
        tier_dir_unqueue(d, slot);
    }
}

void kv_dir_unpin(kv_dir *d, int32_t slot) {
    assert(d->slots[slot].n_pins > 0);
    if (--d->slots[slot].n_pins == 0) {
        tier_dir_enqueue(d, slot);
    }
}

/* ---- filling and dropping ---- */

/* Removes a filled slot from its bucket. */
static void tier_dir_forget(kv_dir *d, int32_t slot) {
    kv_dir_slot *s = &d->slots[slot];
    int32_t *link = tier_dir_bucket_of(d, s->id);
    while (*link != slot) {
        link = &d->slots[*link].next;
    }
    *link = s->next;
    tier_dir_unqueue(d, slot);
    if (--d->namespaces.slots[s->namespace].n_paths == 0) {
        kv_namespaces_remove(&d->namespaces, s->namespace);
    }
    s->is_filled = false;
    d->n_filled--;
}

int32_t kv_dir_take(kv_dir *d, int32_t *was) {
    int32_t slot = d->unused;
    *was = -1;
    if (slot != SLOT_NONE) {
        d->unused = d->slots[slot].next;
    } else if (d->made < d->cap) {
        slot = d->made++;
        d->slots[slot].older = d->slots[slot].younger = slot;
    } else if (d->slots[d->cap].younger != d->cap) {
        slot = d->slots[d->cap].younger;
        *was = d->slots[slot].value;
        tier_dir_forget(d, slot);
    }
    return slot;
}

bool kv_dir_fill(kv_dir *d, int32_t slot, const kv_record *record, int32_t value) {
    const kv_tier_key *key = &record->key;
    int32_t namespace = kv_namespaces_find(&d->namespaces, NAMESPACE_PLAIN, key->namespace, key->n_namespace);
    if (namespace == NAMESPACE_NONE) {
        namespace = kv_namespaces_add(&d->namespaces, NAMESPACE_PLAIN, key->namespace, key->n_namespace);
    }
    if (namespace == NAMESPACE_NONE) {
        return false;
    }
    d->namespaces.slots[namespace].n_paths++;
    kv_dir_slot *s = &d->slots[slot];
    int32_t *bucket = tier_dir_bucket_of(d, key->id);
    *s = (kv_dir_slot){.parent = key->parent,
                       .id = key->id,
                       .sum = record->sum,
                       .namespace = namespace,
                       .group = key->group,
                       .value = value,
                       .next = *bucket,
                       .older = slot,
                       .younger = slot,
                       .is_filled = true};
    memcpy(d->tokens + (int64_t)slot * d->page_tokens, key->tokens,
           (size_t)d->page_tokens * sizeof *d->tokens);
    *bucket = slot;
    tier_dir_enqueue(d, slot);
    d->n_filled++;
    return true;
}

void kv_dir_give(kv_dir *d, int32_t slot) {
    assert(!d->slots[slot].is_filled);
    d->slots[slot].next = d->unused;
    d->unused = slot;
}

void kv_dir_drop(kv_dir *d, int32_t slot) {
    assert(d->slots[slot].is_filled && d->slots[slot].n_pins == 0);
    tier_dir_forget(d, slot);
    kv_dir_give(d, slot);
}

/* ---- audit ---- */

quire_err kv_dir_check(const kv_dir *d, quire_error *err) {
    assert(d != NULL);
    int32_t n_filled = 0, n_pinned = 0, n_queued = 0, n_chained = 0;
    for (int32_t i = 0; i < d->made; i++) {
        if (d->slots[i].is_filled) {
            kv_tier_key key = kv_dir_key(d, i);
            n_filled++;
            n_pinned += d->slots[i].n_pins > 0;
            if (kv_dir_find(d, &key) == SLOT_NONE) {
                return err_set(err, QUIRE_INTERNAL, -1, "tier directory: slot %d is filled and not found", i);
            }
        }
    }
    for (int32_t i = d->slots[d->cap].younger; i != d->cap && n_queued <= d->cap; i = d->slots[i].younger) {
        n_queued++;
        if (!d->slots[i].is_filled || d->slots[i].n_pins > 0 || d->slots[d->slots[i].younger].older != i) {
            return err_set(err, QUIRE_INTERNAL, -1,
                           "tier directory: slot %d is in the order of use and should not be", i);
        }
    }
    for (int32_t b = 0; b < d->n_buckets; b++) {
        for (int32_t i = d->buckets[b]; i != SLOT_NONE && n_chained <= d->cap; i = d->slots[i].next) {
            n_chained++;
        }
    }
    if (n_filled != d->n_filled || n_queued + n_pinned != n_filled || n_chained != n_filled) {
        return err_set(err, QUIRE_INTERNAL, -1,
                       "tier directory: %d filled, %d counted, %d chained, %d in order, %d pinned", n_filled,
                       d->n_filled, n_chained, n_queued, n_pinned);
    }
    return QUIRE_OK;
}
