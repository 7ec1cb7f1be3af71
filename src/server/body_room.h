/* A limit on the memory of large bodies: how many of their bytes all connections may hold at once, from the head of a request to its first
 * token.
 *
 * Bodies up to BODY_SMALL_BYTES are not counted. A connection whose body does not fit stops reading until another frees its room, in the
 * order of arrival within a loop. So a burst of large bodies takes bounded memory. Any thread. */
#ifndef SERVER_BODY_ROOM_H
#define SERVER_BODY_ROOM_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

#define BODY_SMALL_BYTES ((size_t)64 << 10)

typedef struct body_room {
    size_t max_bytes;
    atomic_size_t n_bytes; /* in use */
    atomic_int n_waiting;  /* connections that wait for room */
} body_room;

/* Reserves n bytes; false: there is no room. The first body always fits, however large it is. */
bool body_room_take(body_room *r, size_t n);
/* Frees n bytes. True: a connection waits and has to be woken. */
bool body_room_give(body_room *r, size_t n);

#endif
