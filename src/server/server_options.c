#include "server/server_options.h"

#include "base/err.h"

#define MAX_LOOPS 256
#define MAX_HEADER_BYTES 65536 /* http-parser's own limit is 81,920 */

void server_options_init(server_options *o) {
    *o = (server_options){
        .host = "127.0.0.1",
        .port = 8000,
        .n_loops = 1,
        .max_connections = 1024,
        .max_header_bytes = 32u << 10,
        .max_body_bytes = 16u << 20, /* the API's limit */
        .max_bodies_bytes = 64u << 20,
        .max_output_bytes = 1u << 20,
        .max_unread_bytes = 64u << 20,
        .header_deadline_us = 10000000,
        .body_deadline_us = 60000000,
        .body_least_rate = 64 << 10,
        .body_pace_us = 5000000,
        .idle_deadline_us = 75000000,
        .write_deadline_us = 30000000,
        .shutdown_deadline_us = 10000000,
    };
}

quire_err server_options_check(const server_options *o, quire_error *err) {
    if (o->port < 0 || o->port > 65535) {
        return err_set(err, QUIRE_INVALID, -1, "--port %d: must be from 0 to 65535", (int)o->port);
    }
    if (o->n_loops < 1 || o->n_loops > MAX_LOOPS) {
        return err_set(err, QUIRE_INVALID, -1, "server loops: %d: must be from 1 to %d", (int)o->n_loops, MAX_LOOPS);
    }
    if (o->max_connections < 1) {
        return err_set(err, QUIRE_INVALID, -1, "server connections: %d: must be at least 1", (int)o->max_connections);
    }
    if (o->max_header_bytes < 256 || o->max_header_bytes > MAX_HEADER_BYTES) {
        return err_set(err, QUIRE_INVALID, -1, "header limit of %zu bytes: must be from 256 to %d", o->max_header_bytes, MAX_HEADER_BYTES);
    }
    return QUIRE_OK;
}
