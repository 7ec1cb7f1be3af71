/* What the log says about one request: a record that its connection fills, and the line
 * that it becomes when the response is complete.
 *
 * It has no prompt, no answer and no key. Of what a client wrote it has an id that it
 * chose, the path of a 404, escaped and cut, and a refusal's field and reason, which may
 * quote a name or a value of that field.
 * Owner: the connection; the loop's thread. */
#ifndef SERVER_REQUEST_LOG_H
#define SERVER_REQUEST_LOG_H

#include "server/error_body.h"
#include "server/loop.h"
#include "server/unknown_path.h"

#define REQUEST_ID_BYTES 128

/* Zero-initialised: no request. */
typedef struct request_record {
    bool is_open;
    bool is_probe;    /* of monitoring: at level debug unless it failed */
    bool is_expected; /* a probe that fails for a reason of which the log has told: at level debug too */
    bool is_generation;
    uint64_t number;               /* unique in this process (loop_new_id) */
    char id[REQUEST_ID_BYTES + 1]; /* the client's X-Request-Id, or "req-" and the number */
    const char *method;            /* NULL: the head was not understood */
    const char *endpoint;          /* the route's path, without parameters; NULL: none */
    int status;                    /* as sent; 0: nothing was sent */
    int error_status;              /* of an error, also of one that ends a stream; 0: none */
    char error[200];               /* why; "" without an error */
    char param[64];                /* the field that was refused, or "" */
    char path[SHOWN_PATH_BYTES];   /* as path_show writes it, of a 404; else "" */
    /* its address and port; NULL: it has none. The connection's */
    const char *client;
    size_t request_bytes, response_bytes;       /* of the bodies */
    int64_t begun_us, first_token_us, queue_us; /* first_token_us 0: there was none */
    int32_t prompt_tokens, completion_tokens, cached_tokens;
    unsigned finishes; /* bit f: a choice ended with the quire_finish f */
} request_record;

/* Begins a record. `id` is what the client sent; one of 1 to 128 visible ASCII characters
 * is taken, else one is made of the number, which l makes. */
void request_record_open(request_record *r, str id, loop *l);
/* A token has come, the request having waited queue_us to be admitted. */
void request_record_token(request_record *r, int64_t queue_us);
/* The response is an error, or its stream ends with one. */
void request_record_fail(request_record *r, const api_error *e);
/* The status as sent. A client that left before anything was sent has status 499, as in
 * nginx. */
int32_t request_status(const request_record *r);
/* Writes the line. tenant: NULL: none. */
void request_log(const request_record *r, const char *tenant);

#endif
