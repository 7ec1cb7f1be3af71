/* Where a server listens: a port of an address, or a socket file. And how many
 * connections may be open there. */
#ifndef SERVER_LISTEN_H
#define SERVER_LISTEN_H

#include "server/loop.h"

#define LISTEN_UNIX "unix:" /* before the path of a socket file, in server_options.host */

/* Binds and listens; sets the server's descriptor, URL, port and on_loopback. A socket
 * file has mode 0660; that of a server that is gone is replaced. On failure (IO, INVALID)
 * err says what to do, and nothing is left. */
quire_err listen_open(server *s, quire_error *err);
/* Closes the descriptor, and removes the socket file unless another has taken its place.
 * Once more does nothing. */
void listen_close(server *s);
/* Raises the soft limit of open files to what max_connections needs; warns where the hard
 * limit is lower. */
void listen_raise_files(const server_options *o);

#endif
