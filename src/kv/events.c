#include "kv/events.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>

#include "base/mem.h"
#include "base/size.h"

#define MAX_EVENTS (1 << 24)

/* A slot is an array of words: a head, then the name, then the tokens. Its stamp is the
 * number of its event; 0 while it is being written. Words are stored with release and
 * loaded with acquire. So a reader that has read a word of a newer event sees the newer
 * stamp, or its 0, when it reads the stamp again. */
enum { HEAD_WORDS = 8, NAME_WORDS = (KV_NAMESPACE_BYTES + 1) / 4 };

typedef struct head {
    uint32_t kind, group, n_tokens, n_namespace;
    uint64_t hash, parent;
} head;

struct kv_events {
    uint64_t mask;
    int32_t page_tokens;
    size_t slot_words;
    _Atomic uint64_t last;
    _Atomic uint64_t *stamps; /* [mask + 1] stamp of each slot */
    _Atomic uint32_t *words;  /* [mask + 1][slot_words] the slots */
};

quire_err kv_events_open(int32_t n_events, int32_t page_tokens, kv_events **out) {
    if (n_events < 1 || n_events > MAX_EVENTS || page_tokens < 1 || page_tokens > KV_MAX_PAGE_TOKENS) {
        return QUIRE_INVALID;
    }
    size_t n_slots = size_power_of_two((size_t)n_events);
    kv_events *ev = mem_new(1, sizeof *ev);
    TRY(mem_check(ev));
    ev->mask = n_slots - 1;
    ev->page_tokens = page_tokens;
    ev->slot_words = (size_t)(HEAD_WORDS + NAME_WORDS + page_tokens);
    ev->stamps = mem_new_huge(n_slots, sizeof *ev->stamps);
    ev->words = mem_new_huge(n_slots, ev->slot_words * sizeof *ev->words);
    if (ev->stamps == NULL || ev->words == NULL) {
        kv_events_close(ev);
        return QUIRE_NO_MEMORY;
    }
    *out = ev;
    return QUIRE_OK;
}

void kv_events_close(kv_events *ev) {
    if (ev != NULL) {
        mem_free(ev->stamps);
        mem_free(ev->words);
        mem_free(ev);
    }
}

/* ---- the writer ---- */

static void events_put(_Atomic uint32_t *words, const uint32_t *from, size_t n) {
    for (size_t i = 0; i < n; i++) {
        atomic_store_explicit(&words[i], from[i], memory_order_release);
    }
}

/* Writes e, the name and the tokens into the next slot. */
static void events_add(kv_events *ev, const head *e, const void *name, const int32_t *tokens) {
    uint64_t number = atomic_load_explicit(&ev->last, memory_order_relaxed) + 1;
    size_t slot = (size_t)(number & ev->mask), n_name_words = (e->n_namespace + 3) / 4;
    _Atomic uint32_t *words = ev->words + slot * ev->slot_words;
    atomic_store_explicit(&ev->stamps[slot], 0, memory_order_relaxed);
    events_put(words,
               (uint32_t[HEAD_WORDS]){e->kind, e->group, e->n_tokens, e->n_namespace, (uint32_t)e->hash,
                                      (uint32_t)(e->hash >> 32), (uint32_t)e->parent,
                                      (uint32_t)(e->parent >> 32)},
               HEAD_WORDS);
    if (e->n_namespace > 0) {
        uint32_t copy[NAME_WORDS];
        copy[n_name_words - 1] = 0;
        memcpy(copy, name, e->n_namespace);
        events_put(words + HEAD_WORDS, copy, n_name_words);
    }
    for (uint32_t i = 0; i < e->n_tokens; i++) {
        atomic_store_explicit(&words[HEAD_WORDS + n_name_words + i], (uint32_t)tokens[i],
                              memory_order_release);
    }
    atomic_store_explicit(&ev->stamps[slot], number, memory_order_release);
    atomic_store_explicit(&ev->last, number, memory_order_release);
}

void kv_events_stored(kv_events *ev, int32_t group, uint64_t hash, uint64_t parent, const int32_t *tokens,
                      const void *name, size_t n_name) {
    head e = {KV_EVENT_STORED, (uint32_t)group, (uint32_t)ev->page_tokens, (uint32_t)n_name, hash, parent};
    events_add(ev, &e, name, tokens);
}

void kv_events_removed(kv_events *ev, int32_t group, uint64_t hash) {
    events_add(ev, &(head){.kind = KV_EVENT_REMOVED, .group = (uint32_t)group, .hash = hash}, NULL, NULL);
}

void kv_events_cleared(kv_events *ev) {
    events_add(ev, &(head){.kind = KV_EVENT_CLEARED}, NULL, NULL);
}

/* ---- readers ---- */

uint64_t kv_events_last(const kv_events *ev) {
    return atomic_load_explicit(&ev->last, memory_order_acquire);
}

static uint32_t word(const _Atomic uint32_t *words, size_t i) {
    return atomic_load_explicit(&words[i], memory_order_acquire);
}

/* Fills *out from a slot that may be overwritten meanwhile. False: its lengths show that
 * it was. */
static bool events_copy_out(const kv_events *ev, const _Atomic uint32_t *words, kv_event *out) {
    out->kind = (kv_event_kind)word(words, 0);
    out->group = (int32_t)word(words, 1);
    out->n_tokens = (int32_t)word(words, 2);
    out->n_namespace = (int32_t)word(words, 3);
    out->hash = word(words, 4) | (uint64_t)word(words, 5) << 32;
    out->parent = word(words, 6) | (uint64_t)word(words, 7) << 32;
    if (out->n_tokens < 0 || out->n_tokens > ev->page_tokens || out->n_namespace < 0 ||
        out->n_namespace > KV_NAMESPACE_BYTES) {
        return false;
    }
    size_t n_name_words = ((size_t)out->n_namespace + 3) / 4;
    for (size_t i = 0; i < n_name_words; i++) {
        uint32_t w = word(words, HEAD_WORDS + i);
        memcpy(out->namespace + 4 * i, &w, sizeof w);
    }
    for (int32_t i = 0; i < out->n_tokens; i++) {
        out->tokens[i] = (int32_t)word(words, HEAD_WORDS + n_name_words + (size_t)i);
    }
    return true;
}

kv_event_found kv_events_read(const kv_events *ev, uint64_t number, kv_event *out) {
    size_t slot = (size_t)(number & ev->mask);
    if (number > kv_events_last(ev)) {
        return KV_EVENT_LATER;
    }
    if (atomic_load_explicit(&ev->stamps[slot], memory_order_acquire) != number ||
        !events_copy_out(ev, ev->words + slot * ev->slot_words, out) ||
        atomic_load_explicit(&ev->stamps[slot], memory_order_acquire) != number) {
        return KV_EVENT_LOST;
    }
    out->number = number;
    return KV_EVENT_FOUND;
}
