/* Makes one HTTP exchange at a time over libcurl, which is loaded when first needed:
 * linking it would add thirty libraries to every start. Redirects are not followed,
 * certificates always checked. A handle belongs to one thread. */
#ifndef HUB_HTTP_H
#define HUB_HTTP_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/str.h"

typedef struct hub_http hub_http;

typedef struct hub_http_options {
    const char *ca_file; /* NULL: the system's */
    int32_t stall_s;     /* a transfer ends after this many seconds with under 1,000 bytes each */
    bool https_only;
    const atomic_bool *stop; /* ends a transfer; may be NULL */
} hub_http_options;

/* UNSUPPORTED: there is no libcurl; err says what to install. The options' texts are
 * borrowed until the close. */
quire_err hub_http_open(const hub_http_options *o, hub_http **out, quire_error *err);
void hub_http_close(hub_http *h);

/* True if a text is 1 to `most` visible ASCII characters. A bearer token must be, since
 * other characters could add headers. */
bool hub_http_is_token(const char *token, size_t most);

/* What a response's head contains. Texts are cut at their buffers' ends. */
typedef struct hub_reply {
    int32_t status;
    char id[130];                    /* X-Linked-Etag, else ETag, without quotes and W/ */
    char location[4096];             /* of a redirect, made absolute; empty: none */
    char code[64];                   /* X-Error-Code: "GatedRepo" */
    char message[256];               /* X-Error-Message */
    int32_t retry_after_s;           /* -1: not said, or said as a date */
    int64_t range_from, range_total; /* Content-Range; -1: not said */
} hub_reply;

/* Receives a response: its status and headers first, then the wanted part of its body. An
 * error that it returns ends the exchange and is its result. */
typedef struct hub_receiver {
    /* called once, before `add`, where the status is 200 or 206, or any that is wanted;
     * NULL: nothing is to be done */
    quire_err (*begin)(void *user, const hub_reply *reply);
    quire_err (*add)(void *user, const void *p, size_t n);
    void *user;
    bool takes_all; /* bodies of every status are wanted */
} hub_receiver;

typedef struct hub_http_request {
    const char *url;
    const char *token; /* a hub_http_is_token, sent as a bearer token; NULL: none is */
    int64_t from;      /* over 0: the bytes from there on are requested */
    bool is_direct;    /* past any proxy */
    const char *json;  /* [n_json] the body of a POST; NULL: it is a GET */
    size_t n_json;
} hub_http_request;

/* QUIRE_OK: a whole response arrived, with any status. QUIRE_CANCELLED: by stop.
 * QUIRE_BUSY: a temporary failure such as no connection, a timeout, or a body that
 * ends early. QUIRE_IO: another failure. Otherwise the receiver's error, without
 * setting err. */
quire_err hub_http_run(hub_http *h, const hub_http_request *r, const hub_receiver *to, hub_reply *reply,
                       quire_error *err);

#endif
