/* Swap space: frames of host memory, each of which keeps one page of a preempted
 * sequence. A sequence's frames form a list. Frames are numbered from 1, and 0 is no
 * frame.
 *
 * Only the mover touches frames, in the order of the calls, so they are taken, freed and
 * taken again without waiting for it; closing waits. Owner: the engine thread. Invariant:
 * every frame is in one list, a sequence's or the free one. Everything is allocated at
 * open. */
#ifndef KV_KV_SWAP_H
#define KV_KV_SWAP_H

#include <stdbool.h>
#include <stdint.h>

#include "kv/table.h"

/* A kv_mover moves the bytes of pages for a KV cache, which itself knows only page
 * numbers. The owner of the memory lends it to the cache.
 *
 * The device may lag behind the host. It executes moves and steps in the order of the
 * calls, so nothing waits for a page: it may be released, reserved and written again as
 * soon as a call that reads it has returned. Host memory is different. Between a call
 * that names it and the moment when the call's fence is done, the host neither reads what
 * `read` fills, nor changes what `write` reads, nor frees either; it may lend the same
 * memory to further calls.
 *
 * Owner: the engine thread. Fences ascend: when one is done, so are all before it. */

/* The number of a call. Fence 0 is always done. */
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
    /* Discards the contents of n pages from `first` on: their memory may be used
     * otherwise until they are written. False: the memory stays allocated. NULL: it
     * always does. */
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
    const kv_mover *mover; /* outlives it */
    unsigned char *memory; /* [n_frames, page_bytes] */
    /* [n_frames + 1] the next frame in its list; the caller's tag for the page that it
     * holds */
    int32_t *next, *tags;
    int32_t n_frames, n_free, free_frame;
    kv_fence last; /* fence of the last move */
} kv_swap;

/* Opens as many frames as fit into `bytes`, in place. QUIRE_NO_MEMORY: *w is empty. */
quire_err kv_swap_open(int64_t bytes, const kv_mover *mover, kv_swap *w);
/* Waits for the mover, and frees the frames. Does nothing if *w is empty. */
void kv_swap_close(kv_swap *w);
/* Measures how many microseconds n frames take to be read and written. Overwrites page 0,
 * so the pool must be empty. Returns how many frames were used, at most n. */
int32_t kv_swap_probe(kv_swap *w, int32_t n, int64_t *read_us, int64_t *write_us);

/* Copies a page into a free frame, of which there is one, and puts it in front of the
 * list that begins with *first. */
void kv_swap_out(kv_swap *w, page_id page, int32_t tag, int32_t *first);
/* Copies a frame to a page. */
void kv_swap_in(kv_swap *w, int32_t frame, page_id page);
/* Frees the frames of a list and empties it. */
void kv_swap_drop(kv_swap *w, int32_t *first);
/* Checks that n_free frames are free: QUIRE_INTERNAL otherwise. O(frames). */
quire_err kv_swap_check(const kv_swap *w, quire_error *err);

#endif
