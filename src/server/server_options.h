/* Options of the server: where it listens, who may use it, and its limits. Strings are
 * borrowed until server_close. */
#ifndef SERVER_SERVER_OPTIONS_H
#define SERVER_SERVER_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "options/flag.h"
#include "quire_err.h"

/* connections over the limit that get a 503; still more are closed without a response */
#define SERVER_MAX_SURPLUS 64

/* A model besides the main one: its name in requests and the options that open it, both
 * borrowed until server_close. */
typedef struct model_spec {
    const char *name;
    const struct quire_options *options;
    bool is_pinned; /* loaded at the start, and unloaded by command only */
} model_spec;

typedef struct server_options {
    const char *host; /* a name, an address, or unix: and the path of a socket file */
    int32_t port;     /* TCP port; 0: any free one */
    /* names of the main model; responses have the first. None: its file's, or its own */
    const char *const *served_model_names;
    int32_t n_served_model_names;
    const char *const *api_keys; /* API keys; without keys and file, requests need none */
    int32_t n_api_keys;
    const char *api_key_file; /* file of lines tenant:key; NULL: none */
    /* key for the server's internals; NULL: nobody has access or, without any keys,
     * clients on this machine have it */
    const char *operator_key;
    /* "*" or the one origin whose web pages may send requests; NULL: none */
    const char *allow_origin;
    /* on a server without keys: names with dots by which clients may address it,
     * "a.example,b.example"; NULL: only `host` */
    const char *allowed_hosts;
    /* time from SIGTERM to the drain; requests are served, but /ready answers 503 */
    int64_t drain_delay_us;
    bool no_request_log;     /* do not log a line for each request */
    int32_t n_loops;         /* loop threads */
    int32_t max_connections; /* most connections; more get 503 */
    size_t max_header_bytes; /* most bytes of a request's header, up to 65,536; more gets 431 */
    size_t max_body_bytes;   /* most bytes of a request's body; more gets 413 */
    /* bytes of all large bodies until their first token; more bodies wait (bodies.h) */
    size_t max_bodies_bytes;
    /* unsent bytes of a connection at which no more output is written */
    size_t max_output_bytes;
    /* unread bytes of a loop's responses over which it closes the connections that have
     * read nothing for longest */
    size_t max_unread_bytes;
    /* time from a request's first byte (or the opening) to the end of its header */
    int64_t header_deadline_us;
    int64_t body_deadline_us; /* time from the end of a request's header to the end of its body */
    /* minimum rate of a large body in bytes/s over each body_pace_us; a slower one gets
     * 408; 0: no minimum */
    int64_t body_least_rate;
    int64_t body_pace_us;
    int64_t idle_deadline_us; /* how long a connection may stay open between requests */
    /* how long a client may read no output before the response is cut */
    int64_t write_deadline_us;
    int64_t ping_us; /* silence after which a stream sends a ping; 0: never */
    /* stored responses (response_store.h): most bytes (0: none) and greatest age */
    size_t max_responses_bytes;
    int64_t max_response_age_us;
    /* limits of a program (quire_program_limits) */
    int32_t program_states, program_depth, program_steps, program_tokens;
    int64_t program_us;
    int64_t shutdown_deadline_us; /* time from server_stop until running requests are cancelled */
    /* models besides the main one, loaded when a request names one (models.h) */
    const model_spec *other_models;
    int32_t n_other_models;
    int32_t max_models;    /* most other models loaded at once, besides pinned ones; 0: any number */
    int64_t model_idle_us; /* idle time after which another model is unloaded; 0: never */
    /* how long a model waits for the place of one in use (models_options.patience_us) */
    int64_t model_patience_us;
} server_options;

/* The options of a user, in groups for `--help`; a flag without names ends each group. */
extern const flag flags_listen[], flags_keys[], flags_origins[], flags_models[], flags_server_limits[];

/* Sets the defaults. */
void server_options_init(server_options *o);
/* QUIRE_INVALID: an option is out of its range; err names it and the range. */
quire_err server_options_check(const server_options *o, quire_error *err);

#endif
