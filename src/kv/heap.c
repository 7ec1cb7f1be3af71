#include "kv/heap.h"

#include "base/mem.h"

quire_err kv_heap_open(kv_heap *h, int32_t cap) {
    *h = (kv_heap){.cap = cap};
    h->slots = mem_new_huge((size_t)cap, sizeof *h->slots);
    h->position = mem_new_huge((size_t)cap, sizeof *h->position);
    if (h->slots == NULL || h->position == NULL) {
        kv_heap_close(h);
        return QUIRE_NO_MEMORY;
    }
    return QUIRE_OK;
}

void kv_heap_close(kv_heap *h) {
    mem_free(h->slots);
    mem_free(h->position);
    h->slots = NULL;
    h->position = NULL;
}

static bool heap_is_before(const kv_heap_slot *a, const kv_heap_slot *b) {
    if (a->level != b->level) {
        return a->level < b->level;
    }
    return a->score < b->score || (!(b->score < a->score) && a->stamp < b->stamp);
}

static void set_slot(kv_heap *h, int32_t at, const kv_heap_slot *slot) {
    h->slots[at] = *slot;
    h->position[slot->id] = at + 1;
}

/* Puts *slot into the hole at `at`: moves the hole up past higher keys or down past lower
 * ones, then fills it. */
static void heap_fill(kv_heap *h, int32_t at, const kv_heap_slot *slot) {
    while (at > 0 && (h->n_compared++, heap_is_before(slot, &h->slots[(at - 1) / 2]))) {
        set_slot(h, at, &h->slots[(at - 1) / 2]);
        at = (at - 1) / 2;
    }
    for (int32_t child; at < h->n / 2; at = child) { /* slots from n / 2 on have nothing below them */
        child = 2 * at + 1;
        if (child + 1 < h->n && (h->n_compared++, heap_is_before(&h->slots[child + 1], &h->slots[child]))) {
            child++;
        }
        h->n_compared++;
        if (!heap_is_before(&h->slots[child], slot)) {
            break;
        }
        set_slot(h, at, &h->slots[child]);
    }
    set_slot(h, at, slot);
}

void kv_heap_put(kv_heap *h, int32_t id, kv_heap_key key) {
    kv_heap_slot slot = {.score = key.score, .stamp = key.stamp, .level = key.level, .id = id};
    int32_t at = h->position[id] - 1;
    if (at < 0) {
        at = h->n++;
        h->slots[at] = slot; /* so that the hole compares as its future content */
    }
    heap_fill(h, at, &slot);
}

void kv_heap_take(kv_heap *h, int32_t id) {
    int32_t at = h->position[id] - 1;
    if (at < 0) {
        return;
    }
    h->position[id] = 0;
    h->n--;
    if (at < h->n) {
        kv_heap_slot last = h->slots[h->n];
        heap_fill(h, at, &last);
    }
}

int32_t kv_heap_lowest(const kv_heap *h) {
    return h->n > 0 ? h->slots[0].id : HEAP_NONE;
}

bool kv_heap_has(const kv_heap *h, int32_t id) {
    return h->position[id] > 0;
}

kv_heap_key kv_heap_key_of(const kv_heap *h, int32_t id) {
    const kv_heap_slot *slot = &h->slots[h->position[id] - 1];
    return (kv_heap_key){slot->level, slot->score, slot->stamp};
}

quire_err kv_heap_check(const kv_heap *h, quire_error *err) {
    int32_t n = 0;
    for (int32_t at = 0; at < h->n; at++) {
        const kv_heap_slot *slot = &h->slots[at];
        if (slot->id < 0 || slot->id >= h->cap || h->position[slot->id] != at + 1) {
            return err_set(err, QUIRE_INTERNAL, -1,
                           "kv heap: slot %d holds %d, whose recorded position differs", at, slot->id);
        }
        if (at > 0 && heap_is_before(slot, &h->slots[(at - 1) / 2])) {
            return err_set(err, QUIRE_INTERNAL, -1, "kv heap: slot %d is below one of a higher key", at);
        }
    }
    for (int32_t id = 0; id < h->cap; id++) {
        n += h->position[id] > 0;
    }
    if (n != h->n) {
        return err_set(err, QUIRE_INTERNAL, -1, "kv heap: %d numbers have a position, %d are counted", n,
                       h->n);
    }
    return QUIRE_OK;
}
