/* A bounded ring of fixed-size entries with many producers and one consumer (after
 * Vyukov's bounded MPMC queue).
 *
 * Owner: the opener. Each entry is entry_bytes; capacity is a power of two. Neither side
 * ever blocks. */
#ifndef BASE_RING_H
#define BASE_RING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

typedef struct ring ring;

quire_err ring_open(size_t entry_bytes, size_t capacity, ring **out);
void ring_close(ring *r);
/* Copies *entry in; false when full. Any thread. */
bool ring_push(ring *r, const void *entry);
/* Copies the oldest entry out; false when empty. One thread. */
bool ring_pop(ring *r, void *entry);
/* Whether ring_pop would find nothing. The consumer's thread. */
bool ring_is_empty(const ring *r);

#endif
