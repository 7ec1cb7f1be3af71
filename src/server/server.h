/* The HTTP server: OpenAI's API over an open engine.
 *
 *   server_options_init -> server_open -> server_serve (returns after server_stop or a
 *   signal) -> server_close
 *   without an engine yet: server_open without one -> .. -> server_run, or server_attach and then as above
 *
 * A fixed number of loop threads each have their own connections and quire_queues. A loop
 * never blocks and never tokenises. Strings in the options are borrowed until
 * server_close. The engine must outlive the server. */
#ifndef SERVER_SERVER_H
#define SERVER_SERVER_H

#include <stdint.h>

#include "quire.h"
#include "server/server_options.h"

typedef struct server server;

/* Binds and listens. e NULL: the model is still loading, and a thread answers every
 * request with 503 until server_attach. The caller closes *out. On failure *out is NULL
 * and err says what to do: QUIRE_INVALID (an option), QUIRE_IO (the address),
 * QUIRE_BAD_FILE (the keys). */
quire_err server_open(quire_engine *e, const server_options *o, server **out, quire_error *err);
/* Gives the engine to a server that was opened without one; its connections stay open. On
 * failure s can only be closed. */
quire_err server_attach(server *s, quire_engine *e, quire_error *err);
/* The number of tenants' keys. */
int64_t server_count_keys(const server *s);
/* The port on which the server listens. */
int32_t server_port(const server *s);
/* Serves on this thread and n_loops - 1 others until server_stop. Running requests may
 * then finish until shutdown_deadline_us. */
quire_err server_serve(server *s, quire_error *err);
/* Makes server_serve return once requests have ended; a second call cancels them. Any
 * thread, and signal handlers. */
void server_stop(server *s);
/* Frees the server, after server_serve or server_run has returned. NULL is allowed. */
void server_close(server *s);

/* Attaches the engine to a server that was opened without one, starts the log's thread
 * (base/log.h), logs "listening on URL", and serves until SIGINT or SIGTERM, which
 * server_options.drain_delay_us delays; s must then be closed, and no longer needs the
 * engine. A second signal cancels running requests. SIGHUP reads the key file again; if
 * that fails, the keys stay unchanged. SIGUSR1 does nothing. Logs a warning if other
 * machines can connect and no key is needed. */
quire_err server_run(server *s, quire_engine *e, quire_error *err);

#endif
