/* Makes one HTTP exchange at a time with libcurl. The library is loaded at first use,
 * since linking it would load thirty more libraries at every start. Redirects are not
 * followed. Certificates are always checked. A handle belongs to one thread. */
#ifndef HUB_HTTP_H
#define HUB_HTTP_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/str.h"

typedef struct hub_http hub_http;

typedef struct hub_http_options {
    const char *ca_file; /* CA certificates; NULL: those of the system */
    int32_t stall_s;     /* a transfer ends after this many seconds below 1,000 bytes per second */
    bool https_only;
    const atomic_bool *stop; /* ends a transfer; may be NULL */
} hub_http_options;

/* Opens a handle. UNSUPPORTED: libcurl is not installed; err says what to install. The
 * options' texts are borrowed until hub_http_close. */
quire_err hub_http_open(const hub_http_options *o, hub_http **out, quire_error *err);
void hub_http_close(hub_http *h);

/* True if a text is 1 to `most` visible ASCII characters. A bearer token must be, because
 * a line break could inject headers. */
bool hub_http_is_token(const char *token, size_t most);

/* The status and headers of a response. Texts are truncated to fit their buffers. */
typedef struct hub_reply {
    int32_t status;
    char id[130];                    /* X-Linked-Etag, else ETag, without W/ and quotes */
    char location[4096];             /* target of a redirect, as an absolute URL; empty: none */
    char code[64];                   /* X-Error-Code, such as "GatedRepo" */
    char message[256];               /* X-Error-Message */
    int32_t retry_after_s;           /* -1: no Retry-After header, or it has a date */
    int64_t range_from, range_total; /* Content-Range; -1: not given */
} hub_reply;

/* Receives a response: its status and headers first, then the body if it is wanted. An
 * error that a callback returns ends the exchange and becomes its result. */
typedef struct hub_receiver {
    /* called once, before `add`, if the status is 200 or 206, or any status if takes_all;
     * may be NULL */
    quire_err (*begin)(void *user, const hub_reply *reply);
    quire_err (*add)(void *user, const void *p, size_t n);
    void *user;
    bool takes_all; /* wants the body whatever the status */
} hub_receiver;

typedef struct hub_http_request {
    const char *url;
    const char *token; /* sent as a bearer token, must pass hub_http_is_token; NULL: none is sent */
    int64_t from;      /* if over 0, requests the bytes from this offset on */
    bool is_direct;    /* without a proxy */
    const char *json;  /* [n_json] body of a POST request; NULL: a GET request */
    size_t n_json;
} hub_http_request;

/* Makes one request. QUIRE_OK: a whole response arrived, whatever its status.
 * QUIRE_CANCELLED: *stop was set. QUIRE_BUSY: a temporary failure (no connection, a
 * timeout, a body that ends early). QUIRE_IO: another failure. Otherwise the receiver's
 * error; err is then unchanged. */
quire_err hub_http_run(hub_http *h, const hub_http_request *r, const hub_receiver *to, hub_reply *reply,
                       quire_error *err);

#endif
