/* Those who look at the pool's pages over HTTP: GET /debug/pool (server-sent events), /debug/pool/state and /debug/pool/pages/N.
 *
 * A loop with watchers has one quire_pool_view. It asks when somebody new looks, and at most 5 times a second when the engine's counters
 * have changed; when the response is there it is written once and sent to all. What was not read before the next state is due is not
 * followed by more: such a watcher skips states, and is closed by its connection's deadline when it reads nothing at all. The time between
 * two states grows with what writing one costs, so that a huge pool takes at most a twentieth of the loop. Owner: the loop's thread; a
 * watcher hangs on its connection. */
#ifndef SERVER_WATCH_H
#define SERVER_WATCH_H

#include "server/conn.h"

#define WATCH_MAX 16 /* on one loop; more are answered 503 */

struct watcher;

quire_err watch_open(loop *l);
/* Its watchers are gone with their connections. */
void watch_shut(loop *l);

/* Streams states to c, as much of them as c may see. */
void watch_stream(conn *c);
/* Responses c with one state. */
void watch_state(conn *c);
/* Responses c with what lies in a page, which the pool has. */
void watch_page(conn *c, int32_t page);
/* Whether it streams, or waits for one response. */
bool watch_is_stream(const struct watcher *w);
/* Ends a stream in order: the server is shutting down. */
void watch_end(struct watcher *w);
/* Its connection is closing, or was answered: forgets it. */
void watch_close(struct watcher *w);

#endif
