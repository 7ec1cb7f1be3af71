/* Room for large bodies: how many of their bytes may be held at once by all connections, from the head of a request to its first token.
 *
 * Bodies up to BODY_SMALL_BYTES need no room. A connection whose body finds none stops reading until another gives its room back, in the
 * order of arrival within a loop; so a burst of large bodies costs bounded memory. Any thread. */
#ifndef SERVER_BODY_ROOM_H
#define SERVER_BODY_ROOM_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

#define BODY_SMALL_BYTES ((size_t)64 << 10)

typedef struct body_room {
    size_t max_bytes;
    atomic_size_t n_bytes; /* held now */
    atomic_int n_waiting;  /* connections that found no room */
} body_room;

/* Takes n bytes; false: there is no room. The first always finds room, however large it is. */
bool body_room_take(body_room *r, size_t n);
/* Gives n back. True: somebody waits and is to be woken. */
bool body_room_give(body_room *r, size_t n);

#endif
