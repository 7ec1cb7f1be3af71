/* A kv_mover moves the bytes of pages for a KV cache, which itself has page numbers only:
 * the owner of the memory lends it to the cache.
 *
 * The device may run behind the host. It does everything that it is given, moves and
 * steps alike, in the order of the calls, so no page has to be waited for: one may be
 * released, reserved and written again as soon as a call that reads it has returned. Host
 * memory is different. Between a call that names it and the moment when the call's fence
 * is done, the host neither reads what `read` fills, nor changes what `write` reads, nor
 * frees either; it may lend the same memory to further calls.
 *
 * Owner: the engine thread. Fences ascend: when one is done, so are all before it. */
#ifndef KV_KV_MOVER_H
#define KV_KV_MOVER_H

#include <stdbool.h>
#include <stdint.h>

#include "kv/table.h"

/* The number of a call. 0 is done from the start. */
typedef uint64_t kv_fence;

typedef struct kv_mover {
    void *context;
    int64_t page_bytes;
    /* Copies pages to pages, in the order of the list. */
    void (*copy)(void *context, const kv_copies *copies);
    /* Copies a page to host[page_bytes]. */
    kv_fence (*read)(void *context, page_id page, void *host);
    /* Copies host[page_bytes] to a page. */
    kv_fence (*write)(void *context, page_id page, const void *host);
    /* The contents of n pages from `first` on are needed no more: their memory may have
     * other use until they are written. False: it stays. NULL: it always does. */
    bool (*discard)(void *context, page_id first, int32_t n);
    /* Whether the device has passed the fence. Does not block. */
    bool (*done)(void *context, kv_fence fence);
} kv_mover;

/* Waits until the device has passed the fence. */
static inline void kv_mover_wait(const kv_mover *m, kv_fence fence) {
    while (!m->done(m->context, fence)) {
    }
}

#endif
