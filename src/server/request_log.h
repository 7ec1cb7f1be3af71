/* Records of requests. A connection fills one; once the response is complete it becomes a
 * line of the log and is added to the statistics.
 *
 * A line has no prompt, answer or key. The only text of a client in it is an id that the
 * client chose, the path of a 404, escaped and truncated, and a refused field with the
 * reason, which may quote a name or value. Owner of a record: its connection, or its
 * background response; the loop's thread. Each loop has its own statistics, which
 * /metrics adds up from any thread. */
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
    bool is_probe;    /* a monitoring probe; logged at level debug unless it failed */
    bool is_expected; /* a probe that fails for a reason already logged; also at level debug */
    bool is_generation;
    uint64_t number;               /* unique in this process (loop_new_id) */
    char id[REQUEST_ID_BYTES + 1]; /* the client's X-Request-Id, or "req-" and the number */
    const char *method;            /* HTTP method; NULL: the head was malformed */
    const char *endpoint;          /* the route's path, without parameters; NULL: none */
    char adapter[256];             /* name of the LoRA adapter; "": none */
    int status;                    /* HTTP status as sent; 0: nothing was sent */
    /* status of an error, even one that ends a stream begun with 200; 0: none */
    int error_status;
    char error[200];             /* message of the error; "": none */
    char param[64];              /* the field that was refused, or "" */
    char path[SHOWN_PATH_BYTES]; /* path of a 404, as path_show writes it; "": not a 404 */
    /* the client's address and port; NULL: none */
    const char *client;
    /* background response: its id; its request has a record of its own. NULL: not one */
    const char *response;
    size_t request_bytes, response_bytes;       /* bytes of the request's and response's bodies */
    int64_t begun_us, first_token_us, queue_us; /* first_token_us 0: no token */
    /* has_waited: for its model to load. found: the model_state when it arrived;
     * model_wait_us: its wait; model_load_us: how long loading took */
    bool has_waited;
    int found;
    int64_t model_wait_us, model_load_us;
    int32_t prompt_tokens, completion_tokens, cached_tokens;
    unsigned finishes; /* bit f is set if a choice ended with quire_finish f */
} request_record;

/* Begins a record. id: the client's; used if it has 1 to 128 visible ASCII characters,
 * else an id is made from a new number of l. */
void request_record_open(request_record *r, str id, loop *l);
/* Notes a token, and how long the request had waited to be admitted. */
void request_record_token(request_record *r, int64_t queue_us);
/* Notes that the response is an error, or that its stream ends with one. */
void request_record_fail(request_record *r, const api_error *e);
/* Writes the log line. tenant NULL: none. */
void request_log(const request_record *r, const char *tenant);

/* ---- statistics: by route, method and status, and by tenant ---- */

#define HTTP_STATUS_END 600 /* one more than the largest status */
#define HTTP_N_SECONDS  21  /* bounds of the fine histogram of durations */
#define HTTP_N_COARSE   3   /* bounds of the coarse histogram of durations */

/* Requests of one route and method whose status has the same first digit. */
typedef struct http_row {
    const char *handler, *method; /* constant strings */
    int32_t status_class;         /* 2: 200 to 299 */
    int64_t n, request_bytes, response_bytes;
    int64_t coarse[HTTP_N_COARSE + 1]; /* number of durations in each bucket, not cumulative */
    double seconds;
} http_row;

typedef struct tenant_row {
    char *name;                       /* owned */
    int64_t n[HTTP_STATUS_END / 100]; /* requests by the first digit of their status */
    int64_t prompt_tokens, cached_tokens, completion_tokens;
} tenant_row;

typedef struct http_stats {
    pthread_mutex_t lock; /* guards all other members */
    http_row *rows;
    tenant_row *tenants;
    size_t n_rows, cap_rows, n_tenants, cap_tenants;
    int64_t statuses[HTTP_STATUS_END];
    int64_t fine[HTTP_N_SECONDS + 1];
    double seconds;
} http_stats;

/* QUIRE_NO_MEMORY. */
quire_err http_stats_open(http_stats **out);
/* Frees s; NULL is allowed. */
void http_stats_close(http_stats *s);
/* Counts a request that has ended. tenant NULL: none. If out of memory, counts it only in
 * the sums without labels. */
void http_stats_note(http_stats *s, const request_record *r, const char *tenant);
/* Adds the tokens of a background response, whose request was counted when it was
 * answered. Does nothing if out of memory. */
void http_stats_note_tokens(http_stats *s, const request_record *r, const char *tenant);
/* Adds `from` to `to`, which no other thread uses. QUIRE_NO_MEMORY: a part was added. */
quire_err http_stats_add(http_stats *to, http_stats *from);

/* Upper bounds of the buckets of durations, in seconds. */
extern const double http_fine_bounds[HTTP_N_SECONDS], http_coarse_bounds[HTTP_N_COARSE];

#endif
