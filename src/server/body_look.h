/* Looking over what a long body begins with, while the rest is still on its way: a field
 * that is too large is refused without reading on.
 *
 * A text thread walks over the bytes that are there (quire_look_start), as it would over
 * the whole body. Meanwhile the connection reads nothing, so the client waits. What it
 * sends to a refused request is skipped: over TCP in the kernel, which costs the server
 * next to nothing. Calls: the loop's thread. */
#ifndef SERVER_BODY_LOOK_H
#define SERVER_BODY_LOOK_H

#include "server/conn.h"

/* Starts a look, during which a text thread owns what the body has; false: there is no
 * memory for it, and the body is dropped. */
bool body_look(conn *c, quire_endpoint endpoint);
/* Event LOOKED. */
void body_looked(const quire_event *ev);

#endif
