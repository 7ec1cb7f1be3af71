/* The HTTP server: OpenAI's API over an open engine.
 *
 *   server_options_init -> server_open -> server_serve (returns after server_stop or a signal) -> server_close
 *   or all of it at once: server_run
 *
 * There is a fixed number of loop threads, each with its own connections and its own quire_queue. A loop never blocks and never tokenises.
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
    const char *const *api_keys;   /* with none here and no file, requests need no key */
    int32_t n_api_keys;
    const char *api_key_file;      /* lines tenant:key; NULL: none */
    const char *operator_key;      /* gives access to the internals; NULL: nobody has it, or, without any keys, clients on this machine */
    const char *allow_origin;      /* origin whose web pages may send requests: "*" or one origin; NULL: none */
    /* without keys: names with dots by which clients may address this server, "a.example,b.example"; NULL: host alone */
    const char *allowed_hosts;
    int32_t n_loops;               /* loop threads */
    int32_t max_connections;       /* more get status 503 */
    size_t max_header_bytes;       /* of one request; more gets 431; at most 65,536 */
    size_t max_body_bytes;         /* of one request; more gets 413 */
    size_t max_bodies_bytes;       /* of all large bodies together, until their first token; further ones wait */
    size_t max_output_bytes;       /* unsent in a connection's buffer; while it is full nothing more is written */
    /* unread bytes of all responses of a loop; past it the connections that have read nothing for longest are closed */
    size_t max_unread_bytes;
    int64_t header_deadline_us;    /* from a request's first byte (or the connection's opening) to the end of its header */
    int64_t body_deadline_us;      /* from there to the end of its body */
    int64_t idle_deadline_us;      /* a connection between requests */
    int64_t write_deadline_us;     /* the longest time in which the client reads none of the waiting output; then the response is cut */
    int64_t shutdown_deadline_us;  /* from server_stop until running requests are cancelled */
} server_options;

void server_options_init(server_options *o);

typedef struct server server;

/* Binds and listens. On failure *out is NULL and err names the remedy: INVALID (an option), IO (the address), BAD_FILE (the keys). */
quire_err server_open(quire_engine *e, const server_options *o, server **out, quire_error *err);
/* "http://127.0.0.1:8000", with the real port. Valid as long as s. */
const char *server_url(const server *s);
int32_t server_port(const server *s);
/* Serves on this thread and n_loops - 1 others until server_stop. Running requests may then finish until shutdown_deadline_us. */
quire_err server_serve(server *s, quire_error *err);
/* Makes server_serve return; a second call cancels running requests. Any thread, and signal handlers. */
void server_stop(server *s);
/* After server_serve has returned. NULL is allowed. */
void server_close(server *s);

/* Opens, prints "quire: listening on URL" on stderr, serves until SIGINT or SIGTERM, closes. A second signal cancels running requests.
 * SIGHUP reads the key file again; if that fails the keys stay unchanged. SIGUSR1 does nothing. Warns where other machines can connect and
 * no key is needed. */
quire_err server_run(quire_engine *e, const server_options *o, quire_error *err);

#endif
