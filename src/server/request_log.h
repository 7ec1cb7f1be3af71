/* What the log says about one request: a record that its connection fills, and the line that it becomes when the response is complete.
 *
 * It never has what a client wrote: no prompt, answer, key, path or message of a refusal; an id that the client chose is the exception.
 * Owner: the connection; the loop's thread. */
#ifndef SERVER_REQUEST_LOG_H
#define SERVER_REQUEST_LOG_H

#include "server/error_body.h"
#include "server/loop.h"

#define REQUEST_ID_BYTES 128

/* Zero-initialised: no request. */
typedef struct request_record {
    bool is_open;
    bool is_probe;            /* of monitoring: at level debug unless it failed */
    bool is_generation;
    char id[REQUEST_ID_BYTES + 1]; /* the client's X-Request-Id, or a number */
    const char *method;       /* NULL: the head was not understood */
    const char *endpoint;     /* the route's path, without parameters; NULL: none */
    int status;               /* as sent; 0: nothing was sent */
    int error_status;         /* of an error, also of one that ends a stream; 0: none */
    char error[160];          /* why, where error_status is 500 or more; else "" */
    size_t request_bytes, response_bytes; /* of the bodies */
    int64_t begun_us, first_token_us, queue_us; /* first_token_us 0: there was none */
    int32_t prompt_tokens, completion_tokens, cached_tokens;
    unsigned finishes;        /* bit f: a choice ended with the quire_finish f */
} request_record;

/* Begins a record. `id` is what the client sent; one of 1 to 128 visible ASCII characters is taken, else l makes one. */
void request_record_open(request_record *r, str id, loop *l);
/* A token has come, the request having waited queue_us to be admitted. */
void request_record_token(request_record *r, int64_t queue_us);
/* The response is an error, or its stream ends with one. */
void request_record_fail(request_record *r, const api_error *e);
/* The status as sent. A client that left before anything was sent has status 499, as in nginx. */
int32_t request_status(const request_record *r);
/* Writes the line. tenant: NULL: none. */
void request_log(const request_record *r, const char *tenant);

#endif
