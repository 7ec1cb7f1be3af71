/* A simulated device for tests of code that moves pages. It has pages of PAGE_WORDS
 * numbers, and executes calls in order but late: a few at each check of a fence. */
#ifndef TESTS_KV_MOVER_WORLD_H
#define TESTS_KV_MOVER_WORLD_H

#include <string.h>

#include "kv/kv_swap.h"
#include "test.h"

enum { PAGE_WORDS = 4, DEVICE_PAGES = 64, DEVICE_CALLS = 1 << 16, DEVICE_PACE = 3 };

typedef struct device_call {
    enum { CALL_READ, CALL_WRITE, CALL_COPY, CALL_STORE, CALL_DISCARD } kind;
    int32_t page, from; /* from: the page to copy, or the index of a word in the page */
    uint64_t *host, word;
} device_call;

typedef struct device {
    uint64_t pages[DEVICE_PAGES][PAGE_WORDS];
    device_call calls[DEVICE_CALLS];
    uint64_t n_given, n_done; /* calls submitted and executed; call n has the fence n, from 1 on */
    bool is_prompt;           /* calls are executed at once */
} device;

static inline void device_do(device *d) {
    const device_call *c = &d->calls[d->n_done++ % DEVICE_CALLS];
    size_t n = sizeof d->pages[0];
    switch (c->kind) {
    case CALL_READ:
        memcpy(c->host, d->pages[c->page], n);
        break;
    case CALL_WRITE:
        memcpy(d->pages[c->page], c->host, n);
        break;
    case CALL_COPY:
        memcpy(d->pages[c->page], d->pages[c->from], n);
        break;
    case CALL_STORE:
        d->pages[c->page][c->from] = c->word;
        break;
    case CALL_DISCARD:
        memset(d->pages[c->page], 0xDD, n);
        break;
    }
}

static inline void device_finish(device *d) {
    while (d->n_done < d->n_given) {
        device_do(d);
    }
}

static inline kv_fence device_give(device *d, device_call c) {
    assert_true(d->n_given - d->n_done < DEVICE_CALLS);
    d->calls[d->n_given++ % DEVICE_CALLS] = c;
    if (d->is_prompt) {
        device_finish(d);
    }
    return d->n_given;
}

static inline kv_fence device_read(void *context, page_id page, void *host) {
    return device_give(context, (device_call){.kind = CALL_READ, .page = page.v, .host = host});
}

static inline kv_fence device_write(void *context, page_id page, const void *host) {
    return device_give(
        context, (device_call){.kind = CALL_WRITE, .page = page.v, .host = (uint64_t *)(uintptr_t)host});
}

static inline bool device_passed(void *context, kv_fence fence) {
    device *d = context;
    for (int i = 0; i < DEVICE_PACE && d->n_done < d->n_given; i++) {
        device_do(d);
    }
    return d->n_done >= fence;
}

static inline void device_copy(void *context, const kv_copies *copies) {
    for (int32_t i = 0; i < copies->n; i++) {
        (void)device_give(
            context,
            (device_call){.kind = CALL_COPY, .page = copies->pairs[i].dst.v, .from = copies->pairs[i].src.v});
    }
}

static inline bool device_discard(void *context, page_id first, int32_t n) {
    for (int32_t i = 0; i < n; i++) {
        (void)device_give(context, (device_call){.kind = CALL_DISCARD, .page = first.v + i});
    }
    return true;
}

static inline void device_store(device *d, int32_t page, int32_t word, uint64_t value) {
    (void)device_give(d, (device_call){.kind = CALL_STORE, .page = page, .from = word, .word = value});
}

static inline kv_mover device_mover(device *d) {
    return (kv_mover){.context = d,
                      .page_bytes = sizeof d->pages[0],
                      .copy = device_copy,
                      .read = device_read,
                      .write = device_write,
                      .discard = device_discard,
                      .done = device_passed};
}

#endif
