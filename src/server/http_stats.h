/* Statistics of HTTP requests: by route, method and status, and by tenant. A loop has its
 * own, which it notes each finished request in; /metrics adds up those of all loops. Any
 * thread. */
#ifndef SERVER_HTTP_STATS_H
#define SERVER_HTTP_STATS_H

#include <pthread.h>

#include "base/str.h"
#include "server/request_log.h"

#define HTTP_STATUS_END 600 /* statuses are below */
#define HTTP_N_SECONDS  21  /* bounds of the finer histogram of durations */
#define HTTP_N_COARSE   3   /* of the coarser one */

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
/* Notes a request that is over. tenant: NULL: none. Short of memory, only the sums
 * without labels count it. */
void http_stats_note(http_stats *s, const request_record *r, const char *tenant);
/* Adds the numbers of `from` to `to`, which no other thread uses. QUIRE_NO_MEMORY: some
 * of them. */
quire_err http_stats_add(http_stats *to, http_stats *from);

/* Upper bounds of the durations' buckets, in seconds. */
extern const double http_fine_bounds[HTTP_N_SECONDS], http_coarse_bounds[HTTP_N_COARSE];

/* Appends the metrics, under the names of vLLM's server and quire's own; those of tenants
 * where shows_tenants. NO_MEMORY: a part of them. */
quire_err http_stats_write(http_stats *s, bool shows_tenants, strbuf *out);

#endif
