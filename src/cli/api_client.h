/* Requests to an OpenAI-compatible API, several at once: each thread has one exchange at
 * a time over a connection of its own. Failures that may pass are retried a few times,
 * after the delay that the API names.
 *
 *   api_client_send -> (a thread posts it) -> api_client_take -> api_job_free
 *
 * Owner: one thread, which calls everything here. */
#ifndef CLI_API_CLIENT_H
#define CLI_API_CLIENT_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "base/str.h"

#define API_MAX_AT_ONCE 32 /* requests under way at once; others wait */

typedef struct api_client api_client;

typedef struct api_client_options {
    const char *url;     /* "https://api.example.com/v1", to which paths are appended */
    const char *key;     /* sent as a bearer token; NULL: none is */
    const char *ca_file; /* file of certificates; NULL: the system's */
} api_client_options;

/* A request. From api_client_send to api_client_take its members belong to the client. */
typedef struct api_job {
    struct api_job *next;
    void *user;
    const char *path;  /* "/completions"; a constant */
    strbuf body;       /* JSON; empty: it is a GET */
    strbuf response;   /* of status 200 */
    quire_error error; /* code QUIRE_OK: there is a response */
    int32_t n_sent;    /* how often it was sent */
    bool is_dropped;
} api_job;

/* Opens a client; the options' texts are borrowed until the close. INVALID: no address, one
 * with a password, or no key. */
quire_err api_client_open(const api_client_options *o, api_client **out, quire_error *err);
/* Cancels what is under way. */
void api_client_close(api_client *c);
/* Makes a job, whose body the caller then writes; NULL: out of memory. */
api_job *api_job_new(const char *path, void *user);
void api_job_free(api_job *j);
/* Sends a job, which belongs to the client until it is taken or dropped; on failure
 * the caller keeps it. UNSUPPORTED: there is no libcurl; NO_MEMORY. */
quire_err api_client_send(api_client *c, api_job *j, quire_error *err);
/* Cancels and frees a job that was not taken, sent or not. */
void api_client_drop(api_client *c, api_job *j);
/* Takes the next job that has ended, which the caller frees. NULL: none has. */
api_job *api_client_take(api_client *c);
/* Readable when a job has ended. */
int api_client_fd(const api_client *c);
void api_client_wait(api_client *c, int64_t timeout_us);

#endif
