/* Fetches one file of a repository into its blob: under the blob's lock, from where an
 * earlier try ended; it gets its name only after its hash is verified. */
#ifndef HUB_FETCH_H
#define HUB_FETCH_H

#include <stdatomic.h>

#include "hub/hub_cache.h"
#include "hub/hub_http.h"
#include "hub/hub_name.h"
#include "quire_hub.h"

/* Requests to a hub: its endpoint and token, redirects, tries after failures, and what
 * its answers mean.
 *
 * The token is only sent to the endpoint's own scheme, host and port: not to the target
 * of a redirect, and over plain HTTP only to this machine. A client belongs to one
 * thread. */

typedef struct hub_client hub_client;

/* stop ends a running request with CANCELLED; it and o are borrowed until the close.
 * INVALID: endpoint or token. UNSUPPORTED: no libcurl. */
quire_err hub_client_open(const quire_hub_options *o, const atomic_bool *stop, hub_client **out,
                          quire_error *err);
void hub_client_close(hub_client *c);

/* A destination of bytes. `at`: how many it has; the next request starts there.
 * is_joined becomes true when a response continues the bytes of another, or of an
 * earlier process. */
typedef struct hub_sink {
    int64_t at;
    bool is_joined;
    bool keeps; /* received bytes are kept for a later pull, whatever fails */
    /* the next byte is the first: sets at to 0 */
    quire_err (*restart)(struct hub_sink *s, quire_error *err);
    quire_err (*add)(struct hub_sink *s, const void *p, size_t n, quire_error *err); /* advances at */
} hub_sink;

typedef struct hub_target {
    const char *repo; /* "ORG/NAME" */
    const char *what; /* for errors: a file's path, or "its list of files" */
    const char *path; /* after the endpoint, begins with '/' */
    const char *id;   /* the hash that the hub must report for it; NULL: any */
    int64_t n_bytes;  /* in all; -1: unknown */
} hub_target;

/* Gets the target's bytes from s->at on, retrying a few times after temporary failures; a
 * try that brought at least a MiB does not count as a failure. The errors are those of
 * quire_hub_pull and of the sink. */
quire_err hub_client_get(hub_client *c, const hub_target *t, hub_sink *s, quire_error *err);

/* Appends text, with every character but letters, digits and "-_.~" as %XX; slashes stay
 * if keep_slashes. NO_MEMORY. */
quire_err hub_escape(str text, bool keep_slashes, strbuf *out);

/* Whether a URL has the scheme, host and port of an endpoint, written in the same way. */
bool hub_same_origin(const char *endpoint, const char *url);
/* Whether an endpoint is this machine, by name. */
bool hub_is_loopback(const char *endpoint);

/* State shared by the fetches of a pull. */
typedef struct hub_meter {
    _Atomic int64_t bytes;   /* there, of all files */
    _Atomic int64_t fetched; /* came over the network */
    atomic_int n_files;      /* done */
    atomic_int n_waiting;    /* fetches that wait for another process */
    atomic_bool stop;        /* ends all of them */
} hub_meter;

/* Whether the blob exists, as a regular file of the right size. */
bool hub_blob_is_there(const hub_repo *r, const hub_file *f);
/* How many bytes of it an interrupted fetch has left. */
int64_t hub_blob_begun(const hub_repo *r, const hub_file *f);

/* Appends where the hub has a file, after the endpoint, as hub_target.path. NO_MEMORY. */
quire_err hub_address(const char *repo, const char *commit, const hub_file *f, strbuf *out, quire_error *err);

/* Errors of quire_hub_pull; CANCELLED: the meter requested it. */
quire_err hub_fetch(hub_client *c, const hub_repo *r, const char *repo, const char *commit, const hub_file *f,
                    hub_meter *m, quire_error *err);

/* The hash that names a blob, of bytes that come in pieces: SHA-256 of a large file,
 * SHA-1 of the git object of a small one. OpenSSL's, which use the processor's
 * instructions for them. One thread. */

typedef struct hub_digest {
    void *context; /* EVP_MD_CTX; NULL: none is open */
    bool is_sha1;
} hub_digest;

/* Begins the kind of hash that id is, for a file of n_bytes. May be called again to
 * restart. NO_MEMORY. */
quire_err hub_digest_begin(hub_digest *d, const char *id, int64_t n_bytes);
quire_err hub_digest_add(hub_digest *d, const void *p, size_t n);
/* Writes the hexadecimal digits. */
quire_err hub_digest_end(hub_digest *d, char out[HUB_DIGEST_BYTES]);
void hub_digest_deinit(hub_digest *d);

#endif
