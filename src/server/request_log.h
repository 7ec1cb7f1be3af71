/* Records of requests: a connection fills one; when the response is complete it becomes a
 * line of the log, and is added to the statistics.
 *
 * A line has no prompt, no answer and no key. The only text of a client in it is an id
 * that the client chose, the path of a 404, escaped and cut, and a refusal's field and
 * reason, which may quote a name or a value of that field. Owner of a record: its
 * connection, or its response in the background; the loop's thread. A loop has its own
 * statistics; /metrics adds up those of all loops. Any thread. */
#ifndef SERVER_REQUEST_LOG_H
#define SERVER_REQUEST_LOG_H

#include <pthread.h>

#include "base/str.h"
#include "server/error_body.h"
#include "server/loop.h"

#define REQUEST_ID_BYTES 128

/* Zero-initialised: no request. */
typedef struct request_record {
    bool is_open;
    bool is_probe;    /* a monitoring probe: logged at level debug unless it failed */
    bool is_expected; /* a probe that fails for a reason already logged: also at level debug */
    bool is_generation;
    uint64_t number;               /* unique in this process (loop_new_id) */
    char id[REQUEST_ID_BYTES + 1]; /* the client's X-Request-Id, or "req-" and the number */
    const char *method;            /* NULL: the head was not understood */
    const char *endpoint;          /* the route's path, without parameters; NULL: none */
    char adapter[256];             /* the name of its adapter, or "" */
    int status;                    /* as sent; 0: nothing was sent */
    int error_status;              /* status of an error, also of one that ends a stream; 0: none */
    char error[200];               /* why; "" without an error */
    char param[64];                /* the field that was refused, or "" */
    char path[SHOWN_PATH_BYTES];   /* as path_show writes it, of a 404; else "" */
    /* the connection's address and port; NULL: none */
    const char *client;
    /* for a response in the background: its id, and that of its request, which has its
     * own record. NULL: none */
    const char *response;
    size_t request_bytes, response_bytes;       /* of the bodies */
    int64_t begun_us, first_token_us, queue_us; /* first_token_us 0: there was none */
    /* it waited until its model was loaded: the model_state when it arrived, how long it
     * waited, and how long loading took */
    bool has_waited;
    int found;
    int64_t model_wait_us, model_load_us;
    int32_t prompt_tokens, completion_tokens, cached_tokens;
    unsigned finishes; /* bit f: a choice ended with the quire_finish f */
} request_record;

/* Begins a record. `id` is what the client sent; it is used if it has 1 to 128 visible
 * ASCII characters, otherwise an id is made from a new number of l. */
void request_record_open(request_record *r, str id, loop *l);
/* A token has come; the request had waited queue_us to be admitted. */
void request_record_token(request_record *r, int64_t queue_us);
/* The response is an error, or its stream ends with one. */
void request_record_fail(request_record *r, const api_error *e);
/* Writes the line. tenant: NULL: none. */
void request_log(const request_record *r, const char *tenant);

/* ---- statistics: by route, method and status, and by tenant ---- */

#define HTTP_STATUS_END 600 /* statuses are below */
#define HTTP_N_SECONDS  21  /* bounds of the finer histogram of durations */
#define HTTP_N_COARSE   3   /* buckets of the coarser histogram */

/* Requests of one route and method whose status has the same first digit. */
typedef struct http_row {
    const char *handler, *method; /* constant strings */
    int32_t status_class;         /* 2: 200 to 299 */
    int64_t n, request_bytes, response_bytes;
    int64_t coarse[HTTP_N_COARSE + 1]; /* durations by bucket, not cumulated */
    double seconds;
} http_row;

typedef struct tenant_row {
    char *name;                       /* owned */
    int64_t n[HTTP_STATUS_END / 100]; /* by status class */
    int64_t prompt_tokens, cached_tokens, completion_tokens;
} tenant_row;

typedef struct http_stats {
    pthread_mutex_t lock; /* guards the others */
    http_row *rows;
    tenant_row *tenants;
    size_t n_rows, cap_rows, n_tenants, cap_tenants;
    int64_t statuses[HTTP_STATUS_END];
    int64_t fine[HTTP_N_SECONDS + 1];
    double seconds;
} http_stats;

/* QUIRE_NO_MEMORY. */
quire_err http_stats_open(http_stats **out);
/* NULL does nothing. */
void http_stats_close(http_stats *s);
/* Counts a request that is over. tenant NULL: none. If out of memory, only the sums
 * without labels count it. */
void http_stats_note(http_stats *s, const request_record *r, const char *tenant);
/* Adds the tokens of a background response, whose request was counted when it was
 * answered. Skipped if out of memory. */
void http_stats_note_tokens(http_stats *s, const request_record *r, const char *tenant);
/* Adds `from` to `to`, which no other thread uses. QUIRE_NO_MEMORY: only a part was
 * added. */
quire_err http_stats_add(http_stats *to, http_stats *from);

/* Upper bounds of the durations' buckets, in seconds. */
extern const double http_fine_bounds[HTTP_N_SECONDS], http_coarse_bounds[HTTP_N_COARSE];

#endif
