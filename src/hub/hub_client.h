/* Requests to a hub: its endpoint and token, redirects, tries after failures, and what
 * its answers mean.
 *
 * The token goes to the endpoint's own scheme, host and port, and nowhere else: not where
 * a redirect leads, and not over plain HTTP but to this machine. A client belongs to one
 * thread. */
#ifndef HUB_CLIENT_H
#define HUB_CLIENT_H

#include <stdatomic.h>

#include "hub/hub_http.h"
#include "quire_hub.h"

typedef struct hub_client hub_client;

/* stop ends a running request with CANCELLED; it and o are borrowed until the close.
 * INVALID: endpoint or token. UNSUPPORTED: no libcurl. */
quire_err hub_client_open(const quire_hub_options *o, const atomic_bool *stop, hub_client **out,
                          quire_error *err);
void hub_client_close(hub_client *c);

/* Destination of bytes. `at`: how many it has, from which the next are requested.
 * is_joined becomes true when a response continues the bytes of another, or of an
 * earlier process. */
typedef struct hub_sink {
    int64_t at;
    bool is_joined;
    bool keeps; /* received bytes are kept for a later pull, whatever fails */
    /* the next byte is the first: sets at to 0 */
    quire_err (*restart)(struct hub_sink *s, quire_error *err);
    quire_err (*add)(struct hub_sink *s, const void *p, size_t n, quire_error *err); /* moves at */
} hub_sink;

typedef struct hub_target {
    const char *repo; /* "ORG/NAME" */
    const char *what; /* for errors: a file's path, or "its list of files" */
    const char *path; /* after the endpoint, begins with '/' */
    const char *id;   /* the hash that the hub must report for it; NULL: any */
    int64_t n_bytes;  /* in all; -1: unknown */
} hub_target;

/* Gets the target's bytes from s->at on, with a few tries after each failure that may
 * pass: a try that brought a MiB is not a failure. The errors are those of quire_hub_pull
 * and of the sink. */
quire_err hub_client_get(hub_client *c, const hub_target *t, hub_sink *s, quire_error *err);

/* Appends text with all but letters, digits and "-_.~" as %XX; slashes stay where
 * keep_slashes. NO_MEMORY. */
quire_err hub_escape(str text, bool keep_slashes, strbuf *out);

/* Whether a URL has the scheme, host and port of an endpoint, written in the same way. */
bool hub_same_origin(const char *endpoint, const char *url);
/* Whether an endpoint is this machine, by name. */
bool hub_is_loopback(const char *endpoint);

#endif
