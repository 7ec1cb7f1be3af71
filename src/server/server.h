/* The HTTP server: OpenAI's API over an open engine.
 *
 *   server_options_init -> server_open -> server_serve (returns after server_stop or a signal) -> server_close
 *   or all of it at once: server_run
 *
 * A fixed number of loop threads, each with its own connections and its own quire_queue; a loop never blocks and never tokenises.
 * Strings in the options are borrowed until server_close. The engine must outlive the server. */
#ifndef SERVER_SERVER_H
#define SERVER_SERVER_H

#include <stddef.h>
#include <stdint.h>

#include "quire.h"

typedef struct server_options {
    const char *host;              /* a name or an address */
    int32_t port;                  /* 0: any free one */
    const char *served_model_name; /* NULL: the model's own name, else its path */
    const char *const *api_keys;   /* with none here and no file, everybody may ask */
    int32_t n_api_keys;
    const char *api_key_file;      /* lines tenant:key; NULL: none */
    const char *operator_key;      /* opens what shows the inside; NULL: nobody, or, without any keys, who asks from this machine */
    const char *allow_origin;      /* which web pages may ask: "*" or one origin; NULL: none */
    /* without keys: names with dots by which clients may call this server, "a.example,b.example"; NULL: host alone */
    const char *allowed_hosts;
    int32_t n_loops;               /* loop threads */
    int32_t max_connections;       /* more are answered 503 */
    size_t max_header_bytes;       /* of one request; more is answered 431; at most 65,536 */
    size_t max_body_bytes;         /* of one request; more is answered 413 */
    size_t max_bodies_bytes;       /* of all large bodies together, until their first token; further ones wait */
    size_t max_output_bytes;       /* waiting in a connection's buffer; while it is full nothing more is written */
    /* of all responses of a loop that wait for their readers; past it those who read nothing for longest are cut */
    size_t max_unread_bytes;
    int64_t header_deadline_us;    /* from a request's first byte (or the connection's opening) to the end of its header */
    int64_t body_deadline_us;      /* from there to the end of its body */
    int64_t idle_deadline_us;      /* a connection between requests */
    int64_t write_deadline_us;     /* output waits and the client takes no byte: the response is cut */
    int64_t shutdown_deadline_us;  /* from server_stop until what still runs is cancelled */
} server_options;

void server_options_init(server_options *o);

typedef struct server server;

/* Binds and listens. On failure *out is NULL and err says what to do: INVALID (an option), IO (the address), BAD_FILE (the keys). */
quire_err server_open(quire_engine *e, const server_options *o, server **out, quire_error *err);
/* "http://127.0.0.1:8000", with the real port. Lives as long as s. */
const char *server_url(const server *s);
int32_t server_port(const server *s);
/* Serves on this thread and n_loops - 1 others until server_stop; what runs then may finish until shutdown_deadline_us. */
quire_err server_serve(server *s, quire_error *err);
/* Asks server_serve to end; a second call cuts short what still runs. Any thread, and signal handlers. */
void server_stop(server *s);
/* After server_serve has returned. NULL is allowed. */
void server_close(server *s);

/* Opens, says "quire: listening on URL" on stderr, serves until SIGINT or SIGTERM, closes. A second signal cuts short what still runs.
 * SIGHUP reads the key file again; where it is bad the keys stay as they are. SIGUSR1 does nothing. Warns where others than this machine
 * can connect and no key is needed. */
quire_err server_run(quire_engine *e, const server_options *o, quire_error *err);

#endif
