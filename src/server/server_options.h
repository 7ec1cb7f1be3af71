/* Options of the server: where it listens, who may use it, and its limits. Strings are
 * borrowed until server_close. */
#ifndef SERVER_SERVER_OPTIONS_H
#define SERVER_SERVER_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "options/flag.h"
#include "quire_err.h"

/* connections over the limit that may read their response; more are closed at once */
#define SERVER_MAX_SURPLUS 64

/* A model besides the engine's: its name in requests, and how it is opened. Both are
 * borrowed until server_close. */
typedef struct model_spec {
    const char *name;
    const struct quire_options *options;
    bool is_pinned; /* loaded at the start, and unloaded by command only */
} model_spec;

typedef struct server_options {
    const char *host; /* a name, an address, or unix: and the path of a socket file */
    int32_t port;     /* 0: any free one */
    /* served names; responses have the first one. None: the model file's name, or else
     * the model's own */
    const char *const *served_model_names;
    int32_t n_served_model_names;
    const char *const *api_keys; /* if there are none and no file, requests need no key */
    int32_t n_api_keys;
    const char *api_key_file; /* lines tenant:key; NULL: none */
    /* gives access to the internals; NULL: no client has it, or, if there are no keys at
     * all, clients on this machine do */
    const char *operator_key;
    /* origin whose web pages may send requests: "*" or one origin; NULL: none */
    const char *allow_origin;
    /* without keys: host names with dots by which clients may address this server,
     * "a.example,b.example"; NULL: only `host` */
    const char *allowed_hosts;
    /* time from SIGTERM to the drain, in which /ready answers 503 while requests are
     * served */
    int64_t drain_delay_us;
    bool no_request_log;     /* no line in the log for each request */
    int32_t n_loops;         /* loop threads */
    int32_t max_connections; /* more get status 503 */
    size_t max_header_bytes; /* bytes of a request's header; more gets 431; at most 65,536 */
    size_t max_body_bytes;   /* bytes of a request's body; more gets 413 */
    /* bytes of all large bodies until their first token; further ones wait (bodies.h) */
    size_t max_bodies_bytes;
    /* unsent in a connection's buffer; while it is full nothing more is written */
    size_t max_output_bytes;
    /* unread bytes of all responses of a loop; past it the connections that have read
     * nothing for longest are closed */
    size_t max_unread_bytes;
    /* from a request's first byte (or the connection's opening) to its header's end */
    int64_t header_deadline_us;
    int64_t body_deadline_us; /* from there to the end of its body */
    /* minimum rate of a large body in bytes/s over each body_pace_us; a slower one gets
     * 408; 0: no minimum */
    int64_t body_least_rate;
    int64_t body_pace_us;
    int64_t idle_deadline_us; /* a connection between requests */
    /* how long the client may read none of the output before the response is cut */
    int64_t write_deadline_us;
    int64_t ping_us; /* silence after which a stream sends a ping; 0: never */
    /* stored responses (response_store.h): most bytes (0: none are stored), and how long
     * they are kept */
    size_t max_responses_bytes;
    int64_t max_response_age_us;
    /* limits of a program (quire_program_limits) */
    int32_t program_states, program_depth, program_steps, program_tokens;
    int64_t program_us;
    int64_t shutdown_deadline_us; /* from server_stop until running requests are cancelled */
    /* models besides the engine's: loaded when a request names one (models.h) */
    const model_spec *other_models;
    int32_t n_other_models;
    int32_t max_models;        /* most of them loaded at once, not counting pinned ones; 0: any number */
    int64_t model_idle_us;     /* idle time after which one is unloaded; 0: never */
    int64_t model_patience_us; /* how long a model waits for the place of one in use (models.h) */
} server_options;

/* A user's options, in groups as commands list them; a flag without names ends each. */
extern const flag flags_listen[], flags_keys[], flags_origins[], flags_models[], flags_server_limits[];

/* Sets the defaults. */
void server_options_init(server_options *o);
/* INVALID: an option is out of its range; err names it and the range. */
quire_err server_options_check(const server_options *o, quire_error *err);

#endif
