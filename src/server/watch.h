/* Watchers: clients that read the state of the pool's pages over HTTP, by GET /debug/pool
 * (server-sent events), /debug/pool/state and /debug/pool/pages/N.
 *
 * A loop with watchers has one quire_pool_view. It requests a state when a watcher comes,
 * and up to 5 times a second while the engine's counters change. A state is written once
 * and sent to all. A watcher that has not read the last state skips the next one; one
 * that reads nothing is closed by its connection's deadline. The interval between states
 * grows with the time that writing one takes, so a huge pool takes at most a twentieth of
 * the loop's time. Owner: the loop's thread; a watcher belongs to its connection. */
#ifndef SERVER_WATCH_H
#define SERVER_WATCH_H

#include "server/conn.h"

#define WATCH_MAX 16 /* most watchers of one loop; more get 503 */

/* Opens the watchers of a loop, without a view. QUIRE_NO_MEMORY. */
quire_err watch_open(loop *l);
/* Closes the loop's view. All its watchers' connections must be closed. */
void watch_shut(loop *l);

/* Streams states of the pool to c, limited to what c may see. */
void watch_stream(conn *c);
/* Answers c with one state of the pool. */
void watch_state(conn *c);
/* Answers c with the contents of a page, which must exist. */
void watch_page(conn *c, int32_t page);
#endif
