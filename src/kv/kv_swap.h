/* Swap space: frames of host memory, each of which holds one page of a preempted
 * sequence. The frames of a sequence form a list. Frames are numbered from 1; 0 is no
 * frame.
 *
 * Only the mover accesses frames, in the order of the calls, so they can be taken, freed
 * and taken again without waiting for it; only closing waits. Owner: the engine thread.
 * Invariant: every frame is in one list, a sequence's or the free list. Everything is
 * allocated at open. */
#ifndef KV_KV_SWAP_H
#define KV_KV_SWAP_H

#include <stdbool.h>
#include <stdint.h>

#include "kv/table.h"

/* A kv_mover moves the bytes of pages for a KV cache, which itself knows only page
 * numbers. The owner of the memory lends it to the cache.
 *
 * The device may lag behind the host. It executes moves and steps in the order of the
 * calls, so nothing waits for a page: as soon as a call that reads the page has returned,
 * the page may be released, reserved and written again. Host memory is different. From a
 * call that names it until the call's fence is done, the host must not read what `read`
 * fills, change what `write` reads, or free either; it may lend the same memory to
 * further calls.
 *
 * Owner: the engine thread. Fences ascend: when one is done, so are all before it. */

/* Number of a call to the mover. Fence 0 is always done. */
typedef uint64_t kv_fence;

typedef struct kv_mover {
    void *context;
    int64_t page_bytes;
    /* Copies pages within the device, in the order of the list. */
    void (*copy)(void *context, const kv_copies *copies);
    /* Copies a page to host[page_bytes]; returns the call's fence. */
    kv_fence (*read)(void *context, page_id page, void *host);
    /* Copies host[page_bytes] to a page; returns the call's fence. */
    kv_fence (*write)(void *context, page_id page, const void *host);
    /* Discards the contents of n pages from `first` on, whose memory the system may use
     * until they are written again. False: the memory stays allocated, as it does if
     * discard is NULL. */
    bool (*discard)(void *context, page_id first, int32_t n);
    /* Whether the device has reached the fence. Does not block. */
    bool (*done)(void *context, kv_fence fence);
} kv_mover;

/* Waits until the device has reached the fence. */
static inline void kv_mover_wait(const kv_mover *m, kv_fence fence) {
    while (!m->done(m->context, fence)) {
    }
}

typedef struct kv_swap {
    const kv_mover *mover; /* borrowed; outlives the swap space */
    unsigned char *memory; /* [n_frames, page_bytes] */
    /* [n_frames + 1] next frame in each frame's list; the caller's tag for its page */
    int32_t *next, *tags;
    int32_t n_frames, n_free, free_frame;
    kv_fence last; /* fence of the last move */
} kv_swap;

/* Opens as many frames as fit into `bytes`, in place. QUIRE_NO_MEMORY: *w is empty. */
quire_err kv_swap_open(int64_t bytes, const kv_mover *mover, kv_swap *w);
/* Waits for the mover, and frees the frames. Does nothing if *w is empty. */
void kv_swap_close(kv_swap *w);
/* Measures the time, in microseconds, to read and to write n frames. Overwrites page 0,
 * so the pool must be empty. Returns the number of frames used, at most n. */
int32_t kv_swap_probe(kv_swap *w, int32_t n, int64_t *read_us, int64_t *write_us);

/* Copies a page into a free frame and puts it at the front of the list *first. A frame
 * must be free. */
void kv_swap_out(kv_swap *w, page_id page, int32_t tag, int32_t *first);
/* Copies a frame to a page. */
void kv_swap_in(kv_swap *w, int32_t frame, page_id page);
/* Frees all frames of the list *first, which is then empty. */
void kv_swap_drop(kv_swap *w, int32_t *first);
/* Checks that n_free frames are free. QUIRE_INTERNAL: they are not. O(frames). */
quire_err kv_swap_check(const kv_swap *w, quire_error *err);

#endif
