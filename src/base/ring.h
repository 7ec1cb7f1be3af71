/* A bounded ring of fixed-size entries with many producers and one consumer (after
 * Vyukov's bounded MPMC queue), and a wake-up for the consumer.
 *
 * Owned by the caller of ring_open, which takes the bytes of an entry and a capacity that
 * is a power of two (else QUIRE_INVALID). Neither side ever blocks. */
#ifndef BASE_RING_H
#define BASE_RING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

typedef struct ring ring;

/* QUIRE_INVALID: a size is wrong; QUIRE_TOO_LARGE: over SIZE_MAX; QUIRE_NO_MEMORY. */
quire_err ring_open(size_t entry_bytes, size_t capacity, ring **out);
void ring_close(ring *r);
/* Copies *entry into the ring. False: it is full. Any thread. */
bool ring_push(ring *r, const void *entry);
/* Moves the oldest entry to *entry. False: the ring is empty. The consumer's thread. */
bool ring_pop(ring *r, void *entry);
/* Whether the ring is empty. The consumer's thread. */
bool ring_is_empty(const ring *r);

/* ---- a wake-up between threads ---- */

/* A wake-up between threads: an eventfd that any thread may ring and one thread waits on.
 * Rings before the wait are not lost, and count as one. A zeroed wake is closed. */

typedef struct wake {
    int fd;
    bool is_open;
} wake;

/* Opens the wake. QUIRE_IO: the system refused. */
quire_err wake_init(wake *w);
void wake_deinit(wake *w);
/* Wakes the waiting thread, or its next wait. Any thread. */
void wake_ring(const wake *w);
/* Waits until the wake is rung or timeout_us have passed (-1: forever), and clears it.
 * True: it was rung. One thread. */
bool wake_wait(const wake *w, int64_t timeout_us);

#endif
